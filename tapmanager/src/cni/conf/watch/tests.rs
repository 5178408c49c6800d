use std::fs;

use super::*;

const NET: &str = r#"{"cniVersion":"1.0.0","name":"NAME","type":"bridge"}"#;

fn put(dir: &Path, file: &str, name: &str) {
    fs::write(dir.join(file), NET.replace("NAME", name)).unwrap();
}

fn names(watch: &mut ConfWatch) -> String {
    let networks = watch.networks().unwrap();
    networks.lists.iter().map(|list| list.name()).collect::<Vec<_>>().join(" ")
}

fn watch(dir: &Path) -> ConfWatch {
    // The age is for what the kernel does not report; a slow machine must not make these tests read once more.
    ConfWatch { max_age: Duration::MAX, ..ConfWatch::new(dir.to_owned()) }
}

#[test]
fn files_are_read_again_when_and_only_when_something_changed() {
    let dir = tempfile::tempdir().unwrap();
    let mut watch = watch(dir.path());
    assert_eq!(names(&mut watch), "");
    put(dir.path(), "20-b.conf", "b");
    assert_eq!(names(&mut watch), "b");
    put(dir.path(), "10-a.conf", "a");
    assert_eq!(names(&mut watch), "a b");
    assert_eq!(names(&mut watch), "a b");
    assert_eq!(names(&mut watch), "a b");
    assert_eq!(watch.reads, 3);
    // Changed in place, put in place, taken away.
    put(dir.path(), "10-a.conf", "c");
    assert_eq!(names(&mut watch), "c b");
    put(dir.path(), ".new", "d");
    fs::rename(dir.path().join(".new"), dir.path().join("10-a.conf")).unwrap();
    assert_eq!(names(&mut watch), "d b");
    fs::remove_file(dir.path().join("10-a.conf")).unwrap();
    assert_eq!(names(&mut watch), "b");
    assert_eq!(watch.reads, 6);
}

#[test]
fn a_directory_may_come_go_and_be_replaced() {
    let parent = tempfile::tempdir().unwrap();
    let dir = parent.path().join("net.d");
    let mut watch = watch(&dir);
    assert_eq!(names(&mut watch), "");
    fs::create_dir(&dir).unwrap();
    put(&dir, "a.conf", "a");
    assert_eq!(names(&mut watch), "a");
    let other = parent.path().join("other");
    fs::create_dir(&other).unwrap();
    put(&other, "b.conf", "b");
    fs::rename(&dir, parent.path().join("old")).unwrap();
    fs::rename(&other, &dir).unwrap();
    assert_eq!(names(&mut watch), "b");
    fs::remove_dir_all(&dir).unwrap();
    assert_eq!(names(&mut watch), "");
}

#[test]
fn plugins_in_files_of_their_own_are_watched_too() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("n.conflist"), r#"{"cniVersion":"1.1.0","name":"n","plugins":[{"type":"a"}]}"#).unwrap();
    let kinds = |watch: &mut ConfWatch| {
        let networks = watch.networks().unwrap();
        networks.lists.iter().flat_map(|list| list.kinds()).collect::<Vec<_>>().join(" ")
    };
    let mut watch = watch(dir.path());
    assert_eq!(kinds(&mut watch), "a");
    fs::create_dir(dir.path().join("n")).unwrap();
    assert_eq!(kinds(&mut watch), "a");
    fs::write(dir.path().join("n/b.conf"), r#"{"type":"b"}"#).unwrap();
    assert_eq!(kinds(&mut watch), "a b");
}

#[test]
fn what_the_kernel_does_not_report_is_seen_when_the_memory_is_old() {
    let (dir, elsewhere) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    put(elsewhere.path(), "net", "a");
    std::os::unix::fs::symlink(elsewhere.path().join("net"), dir.path().join("a.conf")).unwrap();
    let mut young = watch(dir.path());
    let mut old = ConfWatch { max_age: Duration::ZERO, ..ConfWatch::new(dir.path().to_owned()) };
    assert_eq!((names(&mut young), names(&mut old)), ("a".to_owned(), "a".to_owned()));
    put(elsewhere.path(), "net", "b");
    assert_eq!((names(&mut young), names(&mut old)), ("a".to_owned(), "b".to_owned()));
}

#[test]
fn a_directory_that_cannot_be_listed_is_an_error_until_it_can() {
    let parent = tempfile::tempdir().unwrap();
    let dir = parent.path().join("net.d");
    fs::write(&dir, "").unwrap();
    let mut watch = watch(&dir);
    watch.networks().expect_err("a file");
    fs::remove_file(&dir).unwrap();
    fs::create_dir(&dir).unwrap();
    put(&dir, "a.conf", "a");
    assert_eq!(names(&mut watch), "a");
}
