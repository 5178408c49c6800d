//! A process and all that came of it.

use std::collections::BTreeMap;
use std::fs;

use nix::sys::signal::{Signal, kill as signal};
use nix::unistd::Pid;

/// Rounds in which those are killed that were started while others were being killed.
const ROUNDS: usize = 8;

/// Kills a process that leads a session: its session, its descendants, and what they have started meanwhile.
pub(crate) fn kill(leader: Pid) {
    let mut killed = Vec::new();
    for _ in 0..ROUNDS {
        let all = processes();
        let mut found = false;
        // The leader last of a round: as long as it is there, its children have it as a parent.
        for (pid, process) in all.iter().rev() {
            let ours = *pid == leader.as_raw() || process.session == leader.as_raw() || descends(*pid, leader, &all);
            if ours && process.lives && !killed.contains(pid) {
                found = true;
                killed.push(*pid);
                // Gone since.
                let _ = signal(Pid::from_raw(*pid), Signal::SIGKILL);
            }
        }
        if !found {
            return;
        }
    }
}

struct Entry {
    parent: i32,
    session: i32,
    lives: bool,
}

fn descends(pid: i32, leader: Pid, all: &BTreeMap<i32, Entry>) -> bool {
    let mut at = pid;
    // As many steps as there are processes, should what was read in turn make a ring.
    for _ in 0..all.len() {
        let Some(entry) = all.get(&at) else { return false };
        if entry.parent == leader.as_raw() {
            return true;
        }
        at = entry.parent;
    }
    false
}

fn processes() -> BTreeMap<i32, Entry> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let numbered = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    numbered.filter_map(|pid| Some((pid, entry(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)?))).collect()
}

/// Of a line of `stat`; the name, in parentheses, may hold anything.
fn entry(stat: &str) -> Option<Entry> {
    let (_, rest) = stat.rsplit_once(") ")?;
    let mut fields = rest.split(' ');
    let lives = !matches!(fields.next()?, "Z" | "X");
    let parent = fields.next()?.parse().ok()?;
    let session = fields.nth(1)?.parse().ok()?;
    Some(Entry { parent, session, lives })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_stat_is_read_whatever_the_name() {
        let read = entry("12 (a) b (c)) S 3 4 5 0 -1").expect("a line");
        assert!(read.lives && read.parent == 3 && read.session == 5);
        assert!(!entry("12 (z) Z 3 4 5 0").expect("a line").lives);
        assert!(entry("12 z").is_none());
    }
}
