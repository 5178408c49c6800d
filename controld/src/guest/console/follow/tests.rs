use std::fs::OpenOptions;
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;

use super::copy::CHUNK;
use super::*;
use crate::guest::console::{SERIAL_LOG, crilog};

/// Bytes.
const LIMIT: u64 = 64 << 20;

struct Bed {
    dir: tempfile::TempDir,
}

impl Bed {
    fn new() -> Self {
        Self { dir: tempfile::tempdir().expect("tempdir") }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn log(&self) -> PathBuf {
        self.path("pod.log")
    }

    fn print(&self, text: &str) {
        let mut file = OpenOptions::new().append(true).create(true).open(self.path("serial.log")).expect("open");
        file.write_all(text.as_bytes()).expect("write");
    }

    /// As virtlogd does: every predecessor moves up, then the newest.
    fn rotate(&self) {
        for n in (0..3).rev() {
            let _ = std::fs::rename(self.path(&format!("serial.log.{n}")), self.path(&format!("serial.log.{}", n + 1)));
        }
        std::fs::rename(self.path("serial.log"), self.path("serial.log.0")).expect("rotate");
        let _ = std::fs::remove_file(self.path("serial.log.3"));
    }

    fn copy(&self) -> Copy {
        Copy::open(self.dir.path(), SERIAL_LOG, self.log(), LIMIT).expect("open")
    }

    fn contents(&self) -> Vec<String> {
        let text = std::fs::read_to_string(self.log()).expect("log");
        text.lines().map(|line| line.splitn(4, ' ').skip(2).collect::<Vec<_>>().join(" ")).collect()
    }
}

#[test]
fn what_was_printed_before_and_between_is_copied_once() {
    let bed = Bed::new();
    bed.print("1\r\n2\r\n");
    let mut copy = bed.copy();
    copy.advance(false).expect("copies");
    bed.print("3\r\nlog");
    copy.advance(false).expect("copies");
    drop(copy);
    bed.print("in\r\n");
    let mut copy = bed.copy();
    copy.advance(true).expect("copies");
    assert_eq!(bed.contents(), ["F 1", "F 2", "F 3", "F login"]);
}

#[test]
fn a_kill_between_log_and_position_repeats_nothing() {
    let bed = Bed::new();
    for n in 0..100 {
        bed.print(&format!("line {n}\r\n"));
    }
    let mut copy = bed.copy();
    let position = copy.position;
    copy.advance(false).expect("copies");
    // As if killed after the lines were written and before the position was.
    position.write(&copy.position_file).expect("writes");
    drop(copy);
    bed.print("after\r\n");
    bed.copy().advance(true).expect("copies");
    let wanted: Vec<String> = (0..100).map(|n| format!("F line {n}")).chain(["F after".to_owned()]).collect();
    assert_eq!(bed.contents(), wanted);
}

#[test]
fn rotation_by_virtlogd_loses_nothing() {
    let bed = Bed::new();
    let mut copy = bed.copy();
    bed.print("1\n2\nha");
    copy.advance(false).expect("copies");
    bed.print("lf\n");
    bed.rotate();
    bed.print("3\nqua");
    bed.rotate();
    bed.print("rter\n4\n");
    copy.advance(false).expect("copies");
    drop(copy);
    bed.print("5\nun");
    bed.rotate();
    bed.print("til\n6\n");
    bed.copy().advance(true).expect("copies");
    assert_eq!(bed.contents(), ["F 1", "F 2", "F half", "F 3", "F quarter", "F 4", "F 5", "F until", "F 6"]);
}

#[test]
fn an_unfinished_line_across_a_rotation_and_a_restart_is_whole() {
    let bed = Bed::new();
    bed.print("1\nun");
    let mut copy = bed.copy();
    copy.advance(false).expect("copies");
    bed.rotate();
    bed.print("fin");
    copy.advance(false).expect("copies");
    copy.reopen().expect("reopens");
    drop(copy);
    bed.print("ished\n");
    bed.copy().advance(true).expect("copies");
    assert_eq!(bed.contents(), ["F 1", "F unfinished"]);
}

#[test]
fn a_position_in_a_dropped_file_goes_on_with_the_oldest() {
    let bed = Bed::new();
    bed.print("1\n");
    bed.copy().advance(false).expect("copies");
    for n in 2..8 {
        bed.rotate();
        bed.print(&format!("{n}\n"));
    }
    bed.copy().advance(true).expect("copies");
    assert_eq!(bed.contents(), ["F 1", "F 4", "F 5", "F 6", "F 7"], "four files are kept");
}

#[test]
fn a_log_that_cannot_be_written_costs_a_chunk_of_memory_and_no_line() {
    let bed = Bed::new();
    std::os::unix::fs::symlink("/dev/full", bed.log()).expect("symlink");
    let mut copy = bed.copy();
    let mut printed = 0;
    let mut print = |bytes: usize| {
        let first = printed;
        let mut text = String::new();
        while text.len() < bytes {
            text += &format!("line {printed:0500}\r\n");
            printed += 1;
        }
        bed.print(&text);
        first
    };
    // 20 MiB as they come, over ten files; the oldest that is kept begins with the sixth.
    let mut oldest_kept = 0;
    for file in 0..10 {
        for part in 0..16 {
            let first = print(128 * 1024);
            if (file, part) == (6, 0) {
                oldest_kept = first;
            }
            let error = copy.advance(false).expect_err("there is no room");
            assert_eq!(error.kind(), io::ErrorKind::StorageFull);
            assert!(copy.pending.len() <= CHUNK + crilog::MAX_CONTENT, "{} bytes in memory", copy.pending.len());
        }
        if file < 9 {
            bed.rotate();
        }
    }
    // There is room again.
    std::fs::remove_file(bed.log()).expect("removes");
    copy.reopen().expect("reopens");
    copy.advance(true).expect("copies");
    assert!(copy.pending.is_empty());
    let copied = bed.contents();
    let (kept, rest): (Vec<_>, Vec<_>) = copied
        .iter()
        .map(|line| line["F line ".len()..].parse::<usize>().expect("a number"))
        .partition(|n| *n >= oldest_kept);
    assert_eq!(kept, (oldest_kept..printed).collect::<Vec<_>>(), "all that virtlogd still has, once");
    assert_eq!(rest, (0..rest.len()).collect::<Vec<_>>(), "and of the file that was being read all");
}

#[test]
fn reopening_goes_on_in_a_new_file() {
    let bed = Bed::new();
    bed.print("1\n");
    let mut copy = bed.copy();
    copy.advance(false).expect("copies");
    std::fs::rename(bed.log(), bed.path("pod.log.old")).expect("rename");
    copy.reopen().expect("reopens");
    bed.print("2\n");
    copy.advance(false).expect("copies");
    assert_eq!(bed.contents(), ["F 2"]);
    assert_eq!(std::fs::metadata(bed.log()).expect("log").permissions().mode() & 0o777, 0o640);
}

#[test]
fn a_log_that_nobody_rotates_is_bounded_and_ends_with_what_came_last() {
    let bed = Bed::new();
    // They become forty times as many bytes.
    bed.print(&"\n".repeat(1 << 20));
    let mut copy = Copy::open(bed.dir.path(), SERIAL_LOG, bed.log(), 1 << 20).expect("open");
    copy.advance(false).expect("copies");
    bed.print("last\n");
    copy.advance(false).expect("copies");
    drop(copy);
    bed.print("after a restart\n");
    Copy::open(bed.dir.path(), SERIAL_LOG, bed.log(), 1 << 20).expect("open").advance(true).expect("copies");
    let mut lengths = Vec::new();
    for entry in std::fs::read_dir(bed.dir.path()).expect("listed").map(|entry| entry.expect("entry")) {
        let name = entry.file_name().into_string().expect("name");
        if name.starts_with("pod.log") {
            lengths.push((name, entry.metadata().expect("metadata").len()));
        }
    }
    lengths.sort();
    let names: Vec<_> = lengths.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["pod.log", "pod.log.1"], "one older log");
    assert!(lengths.iter().all(|(_, length)| *length <= 1 << 20), "{lengths:?}");
    let contents = bed.contents();
    assert_eq!(contents[contents.len() - 2..], ["F last", "F after a restart"]);
    assert!(contents[..contents.len() - 2].iter().all(|line| line == "F "));
    assert_eq!(std::fs::metadata(bed.log()).expect("log").permissions().mode() & 0o777, 0o640);
}

#[test]
fn a_log_that_somebody_has_removed_does_not_grow_out_of_sight() {
    let bed = Bed::new();
    bed.print("first\n");
    let mut copy = Copy::open(bed.dir.path(), SERIAL_LOG, bed.log(), 1 << 20).expect("open");
    copy.advance(false).expect("copies");
    std::fs::remove_file(bed.log()).expect("removed");
    bed.print(&"\n".repeat(1 << 16));
    copy.advance(false).expect("copies");
    bed.print("last\n");
    copy.advance(false).expect("copies");
    assert_eq!(bed.contents().last().map(String::as_str), Some("F last"), "in a new file of its name");
    assert!(std::fs::metadata(bed.log()).expect("log").len() <= 1 << 20);
}

#[test]
fn a_log_that_kubelet_has_renamed_is_left_to_kubelet() {
    let bed = Bed::new();
    let mut copy = Copy::open(bed.dir.path(), SERIAL_LOG, bed.log(), 1 << 20).expect("open");
    let renamed = bed.path("pod.log.20261123-000000");
    std::fs::rename(bed.log(), &renamed).expect("rename");
    // It comes to its limit before kubelet asks for a new file.
    bed.print(&"\n".repeat(1 << 20));
    copy.advance(false).expect("copies");
    assert!(!bed.log().exists() && !bed.path("pod.log.1").exists());
    assert_eq!(std::fs::metadata(&renamed).expect("log").len(), 41 << 20);
    copy.reopen().expect("reopens");
    bed.print("2\n");
    copy.advance(false).expect("copies");
    assert_eq!(bed.contents(), ["F 2"]);
}

#[tokio::test]
async fn a_follower_copies_as_it_comes_and_the_rest_at_the_end() {
    let bed = Bed::new();
    let watcher = Watcher::start();
    let follower =
        Follower::start(&watcher, bed.dir.path(), &[SERIAL_LOG], bed.log(), LIMIT, (None, false)).expect("starts");
    assert!(bed.log().exists(), "the log is there before the machine is");
    bed.print("1\n2\nprompt> ");
    follower.finish(true).await;
    assert_eq!(bed.contents(), ["F 1", "F 2", "P prompt> "]);
}

#[tokio::test(start_paused = true)]
async fn a_follower_copies_without_inotify_too() {
    let bed = Bed::new();
    let watcher = Watcher::without_inotify();
    let follower =
        Follower::start(&watcher, bed.dir.path(), &[SERIAL_LOG], bed.log(), LIMIT, (None, false)).expect("starts");
    bed.print("1\n");
    let copied = async {
        while bed.contents().is_empty() {
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), copied).await.expect("what is printed is copied");
    assert!(watcher.trouble().is_some());
    follower.finish(false).await;
    assert_eq!((bed.contents(), watcher.trouble()), (vec!["F 1".to_owned()], None));
}
