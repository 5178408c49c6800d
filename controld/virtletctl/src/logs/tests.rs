use std::fs::{self, OpenOptions};

use super::*;

const STAMP: &str = "2016-10-06T00:17:09.669794202Z";

fn unwrapped(log: &[u8], bits: usize) -> String {
    let mut unwrap = Unwrap::default();
    let mut out = Vec::new();
    log.chunks(bits).for_each(|bit| unwrap.feed(bit, &mut out));
    unwrap.end(&mut out);
    String::from_utf8_lossy(&out).into_owned()
}

#[test]
fn lines_lose_their_heads_and_pieces_are_joined() {
    let log = format!(
        "{STAMP} stdout F one\n{STAMP} stdout F \n{STAMP} stdout P lo\n{STAMP} stderr P ng \n\
         2016-10-06T02:17:09.6+02:00 stdout F:x end\n{STAMP} stdout P login: \n"
    );
    for bits in [1, 2, 7, 1000] {
        assert_eq!(unwrapped(log.as_bytes(), bits), "one\n\nlong end\nlogin: \n", "{bits}");
    }
}

#[test]
fn what_is_no_log_line_is_printed_as_it_is() {
    for junk in [
        "junk\n".to_owned(),
        "\n\n".to_owned(),
        format!("{STAMP} stdlog F x\n"),
        format!("{STAMP} stdout Q x\n"),
        format!("{STAMP} stdout F\n"),
        "yesterday stdout F x\n".to_owned(),
        "2016-99-06T00:17:09Z stdout F x\n".to_owned(),
        "a b c d e\n".to_owned(),
        format!("{}\n", "x".repeat(10_000)),
        "\u{1b}[2J \u{e9} \u{e9} \n".to_owned(),
    ] {
        for bits in [1, 3, 100_000] {
            assert_eq!(unwrapped(junk.as_bytes(), bits), junk);
            let mixed = format!("{STAMP} stdout F a\n{junk}{STAMP} stdout F b\n");
            assert_eq!(unwrapped(mixed.as_bytes(), bits), format!("a\n{junk}b\n"));
        }
    }
    assert_eq!(unwrapped(b"2016-10-06T00:1", 4), "2016-10-06T00:1\n", "cut in the head");
    assert_eq!(unwrapped(b"\xff\xfe \xff x y\n", 2), "\u{fffd}\u{fffd} \u{fffd} x y\n");
}

#[test]
fn lines_have_times_and_begin_with_a_moment_if_asked() {
    let log = "2016-10-06T00:00:01Z stdout F old\njunk\n2016-10-06T00:00:02Z stdout P in\n\
               2016-10-06T00:00:09Z stdout F  pieces\n2016-10-06T02:00:05+02:00 stdout F five\nof five\n\
               2016-10-05T23:00:06-01:00 stdout F six\n2016-10-06T00:00:07Z stdout P end";
    let since = humantime::parse_rfc3339("2016-10-06T00:00:05Z").expect("a time");
    for (stamps, since, wanted) in [
        (false, Some(since), "five\nof five\nsix\nend\n"),
        (
            true,
            Some(since),
            "2016-10-06T02:00:05+02:00 five\nof five\n2016-10-05T23:00:06-01:00 six\n2016-10-06T00:00:07Z end\n",
        ),
        (
            true,
            None,
            "2016-10-06T00:00:01Z old\njunk\n2016-10-06T00:00:02Z in pieces\n2016-10-06T02:00:05+02:00 five\nof five\n\
             2016-10-05T23:00:06-01:00 six\n2016-10-06T00:00:07Z end\n",
        ),
        (false, Some(since + Duration::from_secs(60)), ""),
    ] {
        for bits in [1, 7, 1000] {
            let mut unwrap = Unwrap::new(stamps, since);
            let mut out = Vec::new();
            log.as_bytes().chunks(bits).for_each(|bit| unwrap.feed(bit, &mut out));
            unwrap.end(&mut out);
            assert_eq!(String::from_utf8_lossy(&out), wanted, "{stamps} {since:?} {bits}");
        }
    }
}

#[test]
fn a_tail_counts_lines_of_the_guest() {
    let dir = tempfile::tempdir().expect("directory");
    let path = dir.path().join("0.log");
    let log = format!("{STAMP} stdout F a\n{STAMP} stdout P b\n{STAMP} stdout F c\njunk\n{STAMP} stdout P d");
    fs::write(&path, &log).expect("log");
    for (tail, wanted) in [(0, ""), (1, "d\n"), (2, "junk\nd\n"), (3, "bc\njunk\nd\n"), (9, "a\nbc\njunk\nd\n")] {
        let mut log = Log::new(path.clone(), Unwrap::default());
        let mut out = Vec::new();
        log.open().expect("there");
        log.skip_to(Lines(Some(tail))).expect("read");
        log.print(&mut out).expect("printed");
        log.end(&mut out).expect("ended");
        assert_eq!(String::from_utf8_lossy(&out), wanted, "{tail}");
    }
}

#[test]
fn a_log_is_printed_as_it_grows_and_when_it_is_rotated() {
    let dir = tempfile::tempdir().expect("directory");
    let path = dir.path().join("0.log");
    let append = |line: &str| {
        let mut file = OpenOptions::new().append(true).create(true).open(&path).expect("log");
        file.write_all(line.as_bytes()).expect("written");
    };
    let mut log = Log::new(path.clone(), Unwrap::default());
    let mut out = Vec::new();
    log.print(&mut out).expect("not there yet");
    append(&format!("{STAMP} stdout F a\n{STAMP} std"));
    log.print(&mut out).expect("printed");
    assert_eq!(out, b"a\n");
    append(&format!("out P b\n{STAMP} stdout F c\n"));
    fs::rename(&path, dir.path().join("0.log.1")).expect("rotated");
    log.print(&mut out).expect("printed");
    append(&format!("{STAMP} stdout F d\n"));
    log.print(&mut out).expect("printed");
    assert_eq!(String::from_utf8_lossy(&out), "a\nbc\nd\n");
}
