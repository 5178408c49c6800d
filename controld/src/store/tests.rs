mod flaky;

use std::os::unix::fs::PermissionsExt as _;
use std::sync::atomic::Ordering;

use redb::ReadableDatabase as _;
use tempfile::TempDir;
use vmspec::SandboxConfig;
use vmspec::plan::{Cpus, Guest, Hardware, Layer, MachinePlan, Memory, RootDisk};

use self::flaky::Flaky;
use super::feed::Record;
use super::is_disk_full;
use super::*;
use crate::model::{CONTAINER_VERSION, ContainerState, SANDBOX_VERSION, SandboxState};

fn sandbox(id: &str) -> Sandbox {
    Sandbox {
        version: SANDBOX_VERSION,
        id: id.parse().expect("pod id"),
        state: SandboxState::Ready,
        boot: String::new(),
        created_at: 1,
        config: SandboxConfig {
            name: "vm".into(),
            labels: BTreeMap::from([("a".into(), "b".into())]),
            ..Default::default()
        },
        net: None,
    }
}

fn id(text: &str) -> PodId {
    text.parse().expect("pod id")
}

fn ids(store: &Store) -> Vec<String> {
    store.sandboxes().iter().map(|sandbox| sandbox.id.to_string()).collect()
}

/// A directory with a database on a disk of the test's own.
struct Bed {
    dir: TempDir,
    disk: Flaky,
}

impl Bed {
    fn new() -> Self {
        Self { dir: tempfile::tempdir().expect("tempdir"), disk: Flaky::default() }
    }

    fn open(&self) -> Store {
        Store::open_on(self.disk.clone(), &self.log()).expect("opens")
    }

    fn log(&self) -> PathBuf {
        self.dir.path().join("meta.log")
    }

    fn log_len(&self) -> u64 {
        std::fs::metadata(self.log()).expect("log").len()
    }

    /// What is in the database itself, by table and name, without the log.
    fn written(&self) -> Vec<String> {
        let db = self.disk.open().expect("opens");
        let contents = database::contents(&db).expect("read");
        contents.into_keys().filter(|key| key.table != Table::Facts).map(|key| key.name).collect()
    }

    /// What a killed daemon leaves: the log as it was, and a database that had the chance to write nothing.
    fn killed_before_it_wrote(store: Store, bed: &Self) {
        let log = std::fs::read(bed.log()).expect("log");
        bed.disk.full.store(true, Ordering::SeqCst);
        drop(store);
        bed.disk.full.store(false, Ordering::SeqCst);
        std::fs::write(bed.log(), log).expect("put back");
    }
}

/// Something that the writer does in its own time.
async fn until(what: &str, mut so: impl FnMut() -> bool) {
    let waited = tokio::time::timeout(std::time::Duration::from_secs(30), async {
        while !so() {
            tokio::task::yield_now().await;
        }
    });
    waited.await.unwrap_or_else(|_elapsed| panic!("{what}: not within 30 s"));
}

#[tokio::test]
async fn what_was_put_is_there_after_a_restart_and_what_was_removed_is_not() {
    let dir = tempfile::tempdir().expect("tempdir");
    let path = dir.path().join("meta.redb");
    let store = Store::open(&path).expect("opens");
    assert!(store.unread().is_empty());
    store.put_sandbox(sandbox("one")).await.expect("put");
    store.put_sandbox(sandbox("two")).await.expect("put");
    store.remove_sandbox(&id("one")).expect("removed");
    store.remove_sandbox(&id("never")).expect("removing what is absent is fine");
    store.put_fact("boot", &"id-1").await.expect("put");
    drop(store);
    let store = Store::open(&path).expect("opens");
    assert_eq!(ids(&store), ["two"]);
    assert_eq!(*store.sandboxes()[0], sandbox("two"));
    assert_eq!(store.fact::<String>("boot"), Some("id-1".into()));
    assert_eq!(store.fact::<String>("absent"), None);
}

#[tokio::test]
async fn who_listens_hears_each_change_once_it_is_shown_until_the_end() {
    let bed = Bed::new();
    let store = bed.open();
    let mut changes = store.changes();
    store.put_sandbox(sandbox("aaaa")).await.expect("put");
    store.show_sandbox(Sandbox { state: SandboxState::NotReady, ..sandbox("aaaa") });
    store.remove_sandbox(&id("aaaa")).expect("removed");
    store.end_changes();
    let mut heard = Vec::new();
    while let Ok(shown) = changes.recv().await {
        let Record::Sandbox { before, now } = shown.record else { panic!("{shown:?}") };
        heard.push((before.map(|sandbox| sandbox.state), now.map(|sandbox| sandbox.state)));
    }
    let (ready, stopped) = (Some(SandboxState::Ready), Some(SandboxState::NotReady));
    assert_eq!(heard, [(None, ready), (ready, stopped), (stopped, None)]);
    assert!(store.changes().recv().await.is_err(), "nothing is told after the end");
}

#[tokio::test]
async fn a_damaged_record_is_reported_kept_and_not_written_over() {
    let dir = tempfile::tempdir().expect("tempdir");
    let path = dir.path().join("meta.redb");
    {
        let db = File::new(&path).open().expect("made");
        let write = db.begin_write().expect("begun");
        for (table, key, value) in [("sandboxes", "bad", &br#"{"version":1}"#[..]), ("containers", "torn", b"{")] {
            let table: redb::TableDefinition<'_, &str, &[u8]> = redb::TableDefinition::new(table);
            write.open_table(table).expect("table").insert(key, value).expect("put");
        }
        write.commit().expect("committed");
    }
    for _ in 0..2 {
        let store = Store::open(&path).expect("opens");
        store.put_sandbox(sandbox("good")).await.expect("put");
        assert_eq!(ids(&store), ["good"]);
        let unread: Vec<_> = store.unread().iter().map(|unread| (unread.table, unread.key.clone())).collect();
        assert_eq!(unread, [("sandboxes", "bad".to_owned()), ("containers", "torn".to_owned())]);
        assert!(store.unread()[0].problem.starts_with("missing field"), "{}", store.unread()[0].problem);
        let refused = store.put_sandbox(sandbox("bad")).await.expect_err("written over");
        assert!(matches!(refused, StoreError::Unread(_)), "{refused}");
        store.show_sandbox(sandbox("bad"));
        assert!(matches!(store.remove_sandbox(&id("bad")), Err(StoreError::Unread(_))));
        assert_eq!(ids(&store), ["good"]);
    }
}

#[tokio::test]
async fn what_a_newer_release_wrote_is_not_opened_and_stays_as_it_is() {
    let dir = tempfile::tempdir().expect("tempdir");
    let path = dir.path().join("meta.redb");
    let sandboxes: redb::TableDefinition<'_, &str, &[u8]> = redb::TableDefinition::new("sandboxes");
    let record = br#"{"version":99,"of":"a later time"}"#;
    {
        let db = File::new(&path).open().expect("made");
        let write = db.begin_write().expect("begun");
        write.open_table(sandboxes).expect("table").insert("web", &record[..]).expect("put");
        write.commit().expect("committed");
    }
    for _ in 0..2 {
        let error = Store::open(&path).expect_err("an older release works with it");
        assert_eq!(
            Chain(&error).to_string(),
            format!(
                "database `{}` has records of a newer release; install that release again, or remove their pods by it \
                 first: record `web` of `sandboxes` cannot be read: version 99 is not known, 1 is the newest",
                path.display()
            )
        );
    }
    let db = File::new(&path).open().expect("opens");
    let read = db.begin_read().expect("begun");
    let row = read.open_table(sandboxes).expect("table").get("web").expect("read").expect("there");
    assert_eq!(row.value(), record);
}

#[tokio::test]
async fn a_log_that_a_newer_release_wrote_is_not_opened_and_stays_as_it_is() {
    let bed = Bed::new();
    drop(bed.open());
    for newer in [
        [b"2", &line("one", Some(sandbox("one")))[1..]].concat(),
        log_line(r#"{"seq":1001,"sandbox":"one","record":{"version":2}}"#),
    ] {
        std::fs::write(bed.log(), &newer).expect("written");
        let error = Store::open_on(bed.disk.clone(), &bed.log()).expect_err("an older release works with it");
        assert!(matches!(error, StoreError::Newer { .. }), "{error}");
        assert_eq!(std::fs::read(bed.log()).expect("there"), newer);
        assert!(bed.written().is_empty());
    }
}

#[test]
fn a_second_daemon_and_a_foreign_file_are_refused() {
    let dir = tempfile::tempdir().expect("tempdir");
    let path = dir.path().join("meta.redb");
    let _held = Store::open(&path).expect("opens");
    assert!(matches!(Store::open(&path), Err(StoreError::Held { .. })));
    let foreign = dir.path().join("foreign");
    std::fs::write(&foreign, "not a database, but longer than a header would be").expect("writes");
    assert!(matches!(Store::open(&foreign), Err(StoreError::Open { .. })));
}

#[test]
fn database_and_log_are_for_root_alone_also_those_of_earlier_releases() {
    let dir = tempfile::tempdir().expect("tempdir");
    let path = dir.path().join("meta.redb");
    let mode = |name: &str| std::fs::metadata(dir.path().join(name)).expect("there").permissions().mode() & 0o777;
    drop(Store::open(&path).expect("opens"));
    assert_eq!((mode("meta.redb"), mode("meta.log")), (0o600, 0o600));
    for name in ["meta.redb", "meta.log"] {
        std::fs::set_permissions(dir.path().join(name), std::fs::Permissions::from_mode(0o644)).expect("set");
    }
    drop(Store::open(&path).expect("opens"));
    assert_eq!((mode("meta.redb"), mode("meta.log")), (0o600, 0o600));
}

#[tokio::test]
async fn a_killed_daemon_finds_its_sandboxes_in_the_log() {
    let bed = Bed::new();
    let store = bed.open();
    store.put_fact("first", &1).await.expect("put");
    store.put_sandbox(sandbox("gone")).await.expect("put");
    store.put_sandbox(sandbox("stays")).await.expect("put");
    store.remove_sandbox(&id("gone")).expect("removed");
    Bed::killed_before_it_wrote(store, &bed);
    assert_eq!(bed.written(), [""; 0], "the test is of the log");
    let store = bed.open();
    assert_eq!(ids(&store), ["stays"]);
    // The database takes it over, and the log begins anew.
    until("an empty log", || bed.log_len() == 0).await;
    drop(store);
    assert_eq!(bed.written(), ["stays"]);
}

#[tokio::test]
async fn lines_that_the_database_has_are_not_replayed() {
    let bed = Bed::new();
    let store = bed.open();
    store.put_sandbox(sandbox("one")).await.expect("put");
    let log = std::fs::read(bed.log()).expect("log");
    store.remove_sandbox(&id("one")).expect("removed");
    drop(store);
    // As if the log could not be emptied.
    std::fs::write(bed.log(), log).expect("put back");
    let store = bed.open();
    assert_eq!(ids(&store), [""; 0]);
    // A new line has a new number.
    store.put_sandbox(sandbox("two")).await.expect("put");
    Bed::killed_before_it_wrote(store, &bed);
    assert_eq!(ids(&bed.open()), ["two"]);
}

#[tokio::test]
async fn a_durable_change_takes_earlier_logged_ones_with_it() {
    let bed = Bed::new();
    let store = bed.open();
    store.put_sandbox(sandbox("one")).await.expect("put");
    store.put_fact("later", &2).await.expect("put");
    assert_eq!(bed.log_len(), 0, "all of the log is in the database");
    bed.disk.full.store(true, Ordering::SeqCst);
    drop(store);
    bed.disk.full.store(false, Ordering::SeqCst);
    assert_eq!(ids(&bed.open()), ["one"]);
}

#[tokio::test]
async fn a_full_disk_refuses_what_is_new_and_lets_go_of_what_goes() {
    let bed = Bed::new();
    let store = bed.open();
    let mut container = crate::api::cri::convert::tests::container();
    container.state = ContainerState::Running;
    store.put_container(container.clone()).await.expect("put");
    store.put_sandbox(sandbox("old")).await.expect("put");
    store.put_fact("settled", &1).await.expect("put");

    bed.disk.full.store(true, Ordering::SeqCst);
    let refused = store.put_container(crate::api::cri::convert::tests::container()).await.expect_err("no room");
    assert!(is_disk_full(&refused), "{refused:?}");
    assert!(store.failed_writes() > 0 && !store.writing().is_zero());
    assert_eq!(store.log_len(), bed.log_len());
    let trouble = store.trouble().expect("told");
    assert!(is_disk_full(&StoreError::Write(trouble.cause)));
    let refused = store.put_sandbox(sandbox("new")).await.expect_err("no room");
    assert!(is_disk_full(&refused), "{refused:?}");
    assert_eq!(ids(&store), ["old"]);
    // The end of a machine is seen, and a removal too.
    container.state = ContainerState::Exited;
    store.show_container(container.clone());
    assert_eq!(store.container(container.id).expect("there").state, ContainerState::Exited);
    store.show_sandbox(Sandbox { state: SandboxState::NotReady, ..sandbox("old") });
    assert_eq!(store.sandbox(&id("old")).expect("there").state, SandboxState::NotReady);
    store.remove_sandbox(&id("old")).expect("gone");
    store.remove_container(container.id).await.expect("gone");
    assert!(store.sandboxes().is_empty() && store.containers().is_empty());

    // With room again it is well by itself, and on the disk is what memory shows.
    bed.disk.full.store(false, Ordering::SeqCst);
    until("the end of the trouble", || store.trouble().is_none()).await;
    store.put_sandbox(sandbox("new")).await.expect("room");
    drop(store);
    assert_eq!(bed.written(), ["new"]);
}

#[tokio::test]
async fn a_change_waits_for_no_retry_once_there_is_room() {
    let bed = Bed::new();
    let store = bed.open();
    bed.disk.full.store(true, Ordering::SeqCst);
    store.put_fact("a", &1).await.expect_err("no room");
    bed.disk.full.store(false, Ordering::SeqCst);
    store.put_sandbox(sandbox("one")).await.expect("room");
    assert!(store.trouble().is_none());
    assert_eq!(store.fact::<u8>("a"), None, "what was refused stays refused");
}

#[tokio::test]
async fn one_io_error_is_gone_with_the_next_change() {
    let bed = Bed::new();
    let store = bed.open();
    store.put_fact("a", &1).await.expect("put");
    let opened = bed.disk.opened.load(Ordering::SeqCst);
    bed.disk.flush_fails.store(true, Ordering::SeqCst);
    // Written at the second attempt, on the database opened anew.
    store.put_fact("b", &2).await.expect("put");
    assert_eq!(bed.disk.opened.load(Ordering::SeqCst), opened + 1);
    drop(store);
    assert_eq!(bed.open().fact::<u8>("b"), Some(2));
}

#[tokio::test]
async fn a_refused_change_is_not_there_later_even_if_the_disk_took_it() {
    let bed = Bed::new();
    let store = bed.open();
    let refused = crate::api::cri::convert::tests::container();
    store.put_fact("a", &1).await.expect("put");
    // The record is written, the flush fails, and then the disk is full when it is tried again.
    let (flush_fails, full) = (bed.disk.flush_fails.clone(), bed.disk.full.clone());
    flush_fails.store(true, Ordering::SeqCst);
    bed.disk.full_after_flush_failed.store(true, Ordering::SeqCst);
    store.put_container(refused.clone()).await.expect_err("not durable");
    full.store(false, Ordering::SeqCst);
    until("the end of the trouble", || store.trouble().is_none()).await;
    drop(store);
    assert_eq!(bed.written(), [""; 0]);
}

#[tokio::test]
async fn a_log_that_cannot_be_written_is_made_up_for_by_the_database() {
    let bed = Bed::new();
    let store = Store::open_on(bed.disk.clone(), Path::new("/dev/full")).expect("opens");
    store.put_sandbox(sandbox("one")).await.expect("durable");
    assert_eq!(bed.disk.opened.load(Ordering::SeqCst), 1);
    drop(store);
    assert_eq!(bed.written(), ["one"]);
}

#[tokio::test]
async fn an_unread_record_goes_when_somebody_says_so() {
    let dir = tempfile::tempdir().expect("tempdir");
    let path = dir.path().join("meta.redb");
    {
        let db = File::new(&path).open().expect("made");
        let write = db.begin_write().expect("begun");
        let table: redb::TableDefinition<'_, &str, &[u8]> = redb::TableDefinition::new("sandboxes");
        write.open_table(table).expect("table").insert("newer", &b"{}"[..]).expect("put");
        write.commit().expect("committed");
    }
    let store = Store::open(&path).expect("opens");
    let unread = store.unread().pop().expect("one");
    assert_eq!(unread.name(), "sandboxes/newer");
    store.forget_unread(&unread).await.expect("removed");
    assert_eq!(store.unread(), []);
    drop(store);
    assert_eq!(Store::open(&path).expect("opens").unread(), []);
}

#[tokio::test]
async fn a_flush_writes_what_is_pending_and_nothing_otherwise() {
    let bed = Bed::new();
    let store = bed.open();
    store.put_sandbox(sandbox("one")).await.expect("put");
    store.flush().await.expect("written");
    assert_eq!((bed.log_len(), bed.written()), (0, vec!["one".to_owned()]));
    bed.disk.full.store(true, Ordering::SeqCst);
    store.flush().await.expect("nothing is to be written");
    store.show_sandbox(Sandbox { state: SandboxState::NotReady, ..sandbox("one") });
    let refused = store.flush().await.expect_err("no room");
    assert!(is_disk_full(&refused), "{refused:?}");
}

#[tokio::test]
async fn transactions_are_counted_for_ever_and_no_two_have_one_number() {
    let bed = Bed::new();
    let store = bed.open();
    assert_eq!(store.commits(), 0);
    store.put_fact("a", &1).await.expect("put");
    assert_eq!(store.commits(), 1);
    bed.disk.flush_fails.store(true, Ordering::SeqCst);
    store.put_fact("a", &2).await.expect("put at the second attempt");
    assert_eq!(store.commits(), 3, "the first attempt may be on the disk");
    drop(store);
    let store = bed.open();
    assert_eq!(store.commits(), 3);
    store.count_on_from(70);
    store.put_fact("a", &3).await.expect("put");
    drop(store);
    assert_eq!(bed.open().commits(), 71);
}

/// A line of the log that makes `sandbox`, or removes it.
fn line(sandbox: &str, record: Option<Sandbox>) -> Vec<u8> {
    let dir = tempfile::tempdir().expect("tempdir");
    let path = dir.path().join("log");
    let (mut log, _) = Log::open(&path).expect("opens");
    // Beyond all that a test has written.
    log.go_on_from(1000);
    let change = match record {
        Some(record) => Change::sandbox(Arc::new(record)).expect("encoded"),
        None => Change::no_sandbox(id(sandbox)),
    };
    log.append(&change).expect("appended");
    std::fs::read(path).expect("read")
}

/// A whole line of the log, whatever it says.
fn log_line(json: &str) -> Vec<u8> {
    format!("1 {} {json}\n", log::checksum(json.as_bytes())).into_bytes()
}

fn names(store: &Store) -> Vec<String> {
    store.unread().iter().map(Unread::name).collect()
}

#[tokio::test]
async fn a_line_that_cannot_be_read_hides_its_sandbox_until_it_is_forgotten() {
    let bed = Bed::new();
    let store = bed.open();
    store.put_sandbox(sandbox("one")).await.expect("put");
    store.put_sandbox(sandbox("two")).await.expect("put");
    drop(store);
    let no_record = log_line(r#"{"seq":1001,"sandbox":"one","record":{"version":1}}"#);
    std::fs::write(bed.log(), no_record).expect("written");
    for start in 1..=3 {
        let store = bed.open();
        store.flush().await.expect("written");
        assert_eq!((ids(&store), names(&store)), (vec!["two".into()], vec!["sandboxes/one".into()]), "start {start}");
        assert!(matches!(store.put_sandbox(sandbox("one")).await, Err(StoreError::Unread(_))));
    }
    let store = bed.open();
    let unread = store.unread().pop().expect("one");
    store.forget_unread(&unread).await.expect("removed");
    assert_eq!((ids(&store), names(&store)), (vec!["two".into()], vec![]));
    drop(store);
    let store = bed.open();
    assert_eq!(
        (ids(&store), names(&store)),
        (vec!["two".into()], vec![]),
        "neither the line nor the stale record is back"
    );
}

#[tokio::test]
async fn lines_that_another_release_kept_are_taken_up_by_the_one_that_reads_them() {
    let bed = Bed::new();
    let store = bed.open();
    store.put_sandbox(sandbox("gone")).await.expect("put");
    store.put_sandbox(sandbox("stopped")).await.expect("put");
    drop(store);
    {
        let db = bed.disk.open().expect("opens");
        let write = db.begin_write().expect("begun");
        let stopped = Sandbox { state: SandboxState::NotReady, ..sandbox("stopped") };
        for line in [line("gone", None), line("stopped", Some(stopped)), line("new", Some(sandbox("new")))] {
            let table: redb::TableDefinition<'_, &str, &[u8]> = redb::TableDefinition::new("log_kept");
            let name = log::checksum(&line);
            write.open_table(table).expect("table").insert(name.as_str(), line.as_slice()).expect("put");
        }
        write.commit().expect("committed");
    }
    for start in 1..=2 {
        let store = bed.open();
        assert_eq!((ids(&store), names(&store)), (vec!["new".into(), "stopped".into()], vec![]), "start {start}");
        assert_eq!(store.sandbox(&id("stopped")).expect("there").state, SandboxState::NotReady);
        if start == 1 {
            // What came later holds.
            store.remove_sandbox(&id("new")).expect("removed");
            store.put_sandbox(sandbox("new")).await.expect("put");
        }
    }
    assert_eq!(bed.written(), ["new", "stopped"]);
}

#[tokio::test]
async fn a_container_of_the_first_release_keeps_its_id_and_its_machine() {
    let dir = tempfile::tempdir().expect("tempdir");
    let path = dir.path().join("meta.redb");
    let old = "00112233445566778899aabbccddeeff";
    {
        let db = File::new(&path).open().expect("made");
        let write = db.begin_write().expect("begun");
        let table: redb::TableDefinition<'_, &str, &[u8]> = redb::TableDefinition::new("containers");
        let record = include_bytes!("tests/fixtures/container.v1.json");
        write.open_table(table).expect("table").insert(old, &record[..]).expect("put");
        write.commit().expect("committed");
    }
    for life in ["upgraded", "started again"] {
        let store = Store::open(&path).expect("opens");
        let container = store.container(old.parse().expect("id")).expect("shown");
        assert_eq!((container.id.to_string(), container.machine.id.to_string()), (old.into(), old.into()), "{life}");
        assert_eq!(container.version, CONTAINER_VERSION);
        assert_eq!(store.machines().len(), 1);
        store.put_container(Container::clone(&container)).await.expect("written as it is now");
    }
}

#[test]
fn a_machine_of_the_release_before_plans_is_the_same_by_its_plan() {
    let record = serde_json::from_slice(include_bytes!("tests/fixtures/container.v2.json")).expect("JSON");
    let container: Container = change::parse_record(record).expect("upgraded");
    let layer = |path: &str, format: &str| Layer { path: path.into(), format: format.into() };
    let plan = MachinePlan {
        passed: Default::default(),
        guest: Guest::default(),
        share: None,
        disks: Vec::new(),
        id: "00112233445566778899aabbccddeeff".parse().expect("id"),
        domain: "virtlet-0011223344556-vm".into(),
        cpus: Cpus { boot: 2, max: 2 },
        memory: Memory { boot: 1_010_827_264, max: 1_010_827_264 },
        hardware: Hardware::default(),
        root: RootDisk {
            overlay: "/disks/uid/root.qcow2".into(),
            images: vec![layer("/images/00", "qcow2"), layer("/images/11", "raw")],
            persistent: None,
            volume: None,
        },
        huge_page: None,
        smbios: None,
        cgroup: None,
    };
    assert_eq!((container.version, container.machine), (CONTAINER_VERSION, plan));
}
