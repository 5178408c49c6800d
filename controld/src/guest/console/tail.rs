//! What a guest has printed last on its console, for people who ask why it ended. The guest is free to print anything.

use std::io;
use std::path::Path;

use common::bounded;
use common::shown::is_harmful;

use super::SERIAL_LOG;

/// Bytes at the end of the log that are read.
const MAX: u64 = 16 << 10;
/// Most bytes that are told.
const MAX_TOLD: usize = 1 << 10;
/// Most characters of a line.
const MAX_LINE: usize = 200;
/// How Linux begins to tell that it panics; a backtrace longer than what is told may follow.
const PANIC: &str = "Kernel panic - not syncing";
/// Between that and what came last.
const CUT: &str = "...";

/// The last lines of the console of the machine whose console directory this is, and the line with which a Linux kernel has said that it
/// panics; empty if it has printed nothing.
///
/// # Errors
/// When the log cannot be read.
pub fn read(dir: &Path) -> io::Result<String> {
    let bytes = match bounded::last(&dir.join(SERIAL_LOG), MAX + 1) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(String::new()),
        Err(error) => return Err(error),
    };
    let text = String::from_utf8_lossy(&bytes);
    // The first line is not whole.
    let is_all = bytes.len() as u64 <= MAX;
    let whole = if is_all { &*text } else { text.split_once('\n').map_or("", |(_, rest)| rest) };
    Ok(told(whole))
}

fn told(text: &str) -> String {
    let lines: Vec<String> = text.lines().map(printable).filter(|line| !line.is_empty()).collect();
    let says = |line: &String| line.contains(PANIC) && !line.contains("end Kernel panic");
    let (all, panic) = (&lines[..], lines.iter().rposition(says));
    let last = last_of(all, MAX_TOLD);
    match panic {
        Some(at) if at < all.len() - last.len() => {
            let head = &lines[at];
            let rest = last_of(&all[at + 1..], MAX_TOLD - head.len() - CUT.len() - 2);
            [&[head.clone(), CUT.to_owned()], rest].concat().join("\n")
        }
        _ => last.join("\n"),
    }
}

/// As many of the lines, from the last one on, as have so many bytes with what ends them.
fn last_of(lines: &[String], mut room: usize) -> &[String] {
    let fit = lines.iter().rev().take_while(|line| {
        let fits = line.len() < room;
        room = room.saturating_sub(line.len() + 1);
        fits
    });
    &lines[lines.len() - fit.count()..]
}

/// A line without what moves a terminal's cursor, colours it or changes the direction of what follows.
fn printable(line: &str) -> String {
    let mut shown = String::new();
    let mut rest = line.chars();
    let mut count = 0;
    while let Some(c) = rest.next() {
        if c == '\u{1b}' {
            skip_sequence(&mut rest);
        } else if !is_harmful(c) && count < MAX_LINE {
            shown.push(c);
            count += 1;
        }
    }
    shown.trim_end().to_owned()
}

/// What follows an escape character: with `[`, all up to a letter or the like (ECMA-48, "CSI"); else one character.
fn skip_sequence(rest: &mut std::str::Chars<'_>) {
    if rest.next() == Some('[') {
        let _last = rest.find(|c| matches!(c, '@'..='~'));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbered(count: usize) -> String {
        (0..count).map(|n| format!("[    1.000000] line {n:03}\r\n")).collect()
    }

    #[test]
    fn the_last_lines_are_told_without_what_is_for_terminals() {
        assert_eq!(told(""), "");
        assert_eq!(told("\n \n\u{0}\n"), "");
        assert_eq!(told("right\u{202e} to\u{2066} left"), "right to left");
        assert_eq!(told("\u{1b}[1;31mred\u{1b}[0m\u{7}\r\n\tlast \u{1b}cword\u{1b}["), "red\nlast word");
        let many = told(&numbered(100));
        assert!(many.len() <= MAX_TOLD && many.len() > MAX_TOLD - 50, "{}", many.len());
        assert!(many.starts_with("[    1.000000] line ") && many.ends_with("line 099"), "{many}");
        assert_eq!(told(&"x".repeat(5000)).len(), MAX_LINE);
        assert!(told(&"\u{1f600}".repeat(5000)).len() <= MAX_TOLD);
        assert!(told(&format!("{}\n", "\u{1f600}".repeat(5000)).repeat(9)).len() <= MAX_TOLD);
    }

    #[test]
    fn the_word_of_a_kernels_panic_is_told_however_much_follows() {
        let panic = "[    1.5] Kernel panic - not syncing: sysrq triggered crash";
        let end = "---[ end Kernel panic - not syncing: sysrq triggered crash ]---";
        let short = told(&format!("before\n{panic}\nafter\n"));
        assert_eq!(short, format!("before\n{panic}\nafter"));
        let long = told(&format!("before\n{panic}\n{}{end}\n", numbered(100)));
        assert!(long.starts_with(&format!("{panic}\n...\n[    1.000000] line ")) && long.ends_with(end), "{long}");
        assert!(long.len() <= MAX_TOLD, "{}", long.len());
        let wide = told(&format!("{PANIC}{}\n{}", "\u{1f600}".repeat(5000), numbered(100)));
        assert!(wide.starts_with(PANIC) && wide.ends_with("line 099") && wide.len() <= MAX_TOLD, "{wide}");
    }

    #[test]
    fn no_more_than_the_end_of_a_log_is_read() {
        let dir = tempfile::tempdir().expect("tempdir");
        assert_eq!(read(dir.path()).expect("read"), "");
        let log = dir.path().join(SERIAL_LOG);
        std::fs::write(&log, "one line").expect("written");
        assert_eq!(read(dir.path()).expect("read"), "one line");
        std::fs::write(&log, format!("{:<1$}", "whole", 16 << 10)).expect("written");
        assert_eq!(read(dir.path()).expect("read"), "whole");
        std::fs::write(&log, format!("{PANIC}: long ago\n{}", numbered(1000))).expect("written");
        let told = read(dir.path()).expect("read");
        assert!(!told.contains(PANIC) && told.ends_with("line 999"), "{told}");
        std::fs::write(&log, [0xff; 1 << 20]).expect("written");
        assert_eq!(read(dir.path()).expect("read"), "");
    }
}
