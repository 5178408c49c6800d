use vmspec::SandboxConfig;

use super::*;
use crate::model::{SANDBOX_VERSION, SandboxState};

/// Made by the first release that had a log. Stays as it is.
const V1: &[u8] = include_bytes!("fixtures/v1.log");

fn sandbox(id: &str) -> Arc<Sandbox> {
    Arc::new(Sandbox {
        version: SANDBOX_VERSION,
        id: id.parse().expect("pod id"),
        state: SandboxState::Ready,
        boot: String::new(),
        created_at: 1,
        config: SandboxConfig { name: "vm\nwith a line".into(), ..Default::default() },
        net: None,
    })
}

fn put(log: &mut Log, id: &str) -> u64 {
    log.append(&Change::sandbox(sandbox(id)).expect("encoded")).expect("appended")
}

fn bytes_of(lines: &[(&str, bool)]) -> Vec<u8> {
    let dir = tempfile::tempdir().expect("tempdir");
    let path = dir.path().join("log");
    let (mut log, _) = Log::open(&path).expect("opens");
    for (id, there) in lines {
        let gone = Change::no_sandbox(id.parse().expect("id"));
        let change = if *there { Change::sandbox(sandbox(id)).expect("encoded") } else { gone };
        log.append(&change).expect("appended");
    }
    std::fs::read(path).expect("read")
}

fn seqs(found: &Found) -> Vec<u64> {
    found.lines.iter().map(|line| line.seq).collect()
}

#[test]
fn lines_of_each_release_are_read() {
    let found = parse(V1);
    assert_eq!((seqs(&found), found.torn, &found.unread[..]), (vec![1, 2, 3], false, &[][..]));
    assert_eq!(found.lines[0].record, Some(sandbox("one")));
    assert_eq!((found.lines[2].sandbox.as_str(), &found.lines[2].record), ("one", &None));
}

#[test]
fn this_release_writes_what_it_says() {
    let bytes = bytes_of(&[("one", true), ("two", true), ("one", false)]);
    assert_eq!(String::from_utf8_lossy(&bytes), String::from_utf8_lossy(V1));
}

#[test]
fn a_log_cut_off_anywhere_gives_the_whole_lines_before() {
    let bytes = bytes_of(&[("one", true), ("two", true)]);
    let first = bytes.iter().position(|byte| *byte == b'\n').expect("a line") + 1;
    for cut in 0..bytes.len() {
        let found = parse(&bytes[..cut]);
        let whole = usize::from(cut >= first);
        assert_eq!((found.lines.len(), found.unread.len()), (whole, 0), "cut at {cut}");
        assert_eq!(found.torn, cut != 0 && cut != first, "cut at {cut}");
    }
}

#[test]
fn damage_is_kept_and_the_rest_is_read() {
    let bytes = bytes_of(&[("one", true), ("two", true), ("three", true)]);
    for at in 0..bytes.len() {
        let mut damaged = bytes.clone();
        damaged[at] ^= 1;
        let found = parse(&damaged);
        let whole = found.lines.len();
        assert!(whole < 3, "damage at {at} was not seen");
        assert!(whole >= 1, "damage at {at} took more than the line and the one that it ran into");
        assert!(found.torn || !found.unread.is_empty(), "damage at {at} was not told");
        let kept: usize = found.unread.iter().map(|line| line.bytes.len()).sum();
        assert!(found.torn || kept > 0, "damage at {at} was not kept");
    }
}

#[test]
fn a_page_that_was_never_written_is_a_torn_line() {
    let mut bytes = bytes_of(&[("one", true), ("two", true)]);
    let len = bytes.len();
    bytes[len - 40..len - 10].fill(0);
    let found = parse(&bytes);
    assert_eq!((seqs(&found), found.torn, found.unread.len()), (vec![1], true, 0));
}

#[test]
fn newer_lines_and_records_are_kept_whole() {
    let json = br#"{"seq":4,"sandbox":"new","record":{"version":2}}"#;
    let mut bytes = format!("1 {} ", checksum(json)).into_bytes();
    bytes.extend(json);
    bytes.extend(b"\n");
    let newer = format!("2 {} {{}}\n", checksum(b"{}"));
    let found = parse(&[&bytes[..], newer.as_bytes()].concat());
    assert_eq!(found.lines, []);
    let told: Vec<_> = found.unread.iter().map(|line| (line.bytes.clone(), line.problem.to_string())).collect();
    assert_eq!(
        told,
        [
            (bytes.clone(), "version 2 is not known, 1 is the newest".to_owned()),
            (newer.clone().into_bytes(), "version 2 of its line is not known, 1 is the newest".to_owned())
        ]
    );
    assert_eq!(found.unread[0].sandbox.as_ref().map(PodId::as_str), Some("new"));
}

#[test]
fn numbers_go_on_where_the_log_or_the_database_ends() {
    let dir = tempfile::tempdir().expect("tempdir");
    let path = dir.path().join("log");
    let (mut log, _) = Log::open(&path).expect("opens");
    assert_eq!((put(&mut log, "a"), put(&mut log, "b")), (1, 2));
    drop(log);
    let (mut log, found) = Log::open(&path).expect("opens");
    assert_eq!(seqs(&found), [1, 2]);
    log.committed(1);
    assert_ne!(std::fs::metadata(&path).expect("there").len(), 0, "line 2 is not in the database");
    log.committed(2);
    assert_eq!(std::fs::metadata(&path).expect("there").len(), 0);
    assert_eq!(put(&mut log, "c"), 3);
    log.go_on_from(9);
    assert_eq!(put(&mut log, "d"), 10);
}

#[test]
fn nothing_is_written_behind_half_a_line() {
    let dir = tempfile::tempdir().expect("tempdir");
    let path = dir.path().join("log");
    std::fs::write(&path, "1 half").expect("written");
    let (mut log, found) = Log::open(&path).expect("opens");
    assert!(found.torn);
    log.append(&Change::no_sandbox("a".parse().expect("id"))).expect_err("behind half a line");
    log.committed(0);
    assert_eq!(put(&mut log, "a"), 1);
}
