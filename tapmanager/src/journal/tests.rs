use std::os::unix::fs::{PermissionsExt as _, symlink};

use proto::tap::{Attach, DataPath, DhcpOptions, Dns, NetworkAsk, Nic, NicKind, PodNet, Tap};

use super::*;
use crate::cni::NetworkList;
use crate::net::Choices;

/// As the first release wrote it. Stays as it is for ever.
const FIRST_RELEASE: &str = include_str!("fixtures/v1.json");
/// As the second release wrote it. Stays as it is for ever.
const SECOND_RELEASE: &str = include_str!("fixtures/v2.json");
/// As of today, for later releases to read: of most pods, and of one that wants options of DHCP told.
const FOURTH_RELEASE: &str = include_str!("fixtures/v4.json");
const THIRD_RELEASE: &str = include_str!("fixtures/v3.json");
const THIRD_NOTE: &str = include_str!("fixtures/v3.note");

struct Dir {
    dir: tempfile::TempDir,
    journal: Journal,
}

impl Dir {
    fn new() -> Self {
        let dir = tempfile::tempdir().expect("tempdir");
        let journal = Journal::open(dir.path()).expect("opens");
        Self { dir, journal }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join("pods").join(name)
    }

    fn put(&self, name: &str, bytes: impl AsRef<[u8]>) -> PathBuf {
        fs::write(self.path(name), bytes).expect("write");
        self.path(name)
    }

    fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(self.path("")).expect("dir");
        let mut names: Vec<String> =
            entries.map(|entry| entry.expect("entry").file_name().into_string().expect("text")).collect();
        names.sort();
        names
    }

    fn load(&self) -> Loaded {
        self.journal.load().expect("loads")
    }
}

fn network() -> NetworkList {
    let list = serde_json::json!({
        "name": "net", "cniVersion": "1.0.0", "plugins": [{ "type": "bridge", "ipam": { "type": "host-local" } }],
    });
    serde_json::from_value(list).expect("a network")
}

fn record(pod: &str) -> Record {
    let request = Attach {
        namespace: "default".into(),
        name: "vm".into(),
        uid: "6f0b".into(),
        hostname: "vm".into(),
        ..Attach::new(pod.parse().expect("pod id"))
    };
    let choices = Choices { data_path: DataPath::Ebpf, queues: 4, anti_spoof: true };
    let attachments = ["eth0", "net1"].map(|name| attachment(name, None)).to_vec();
    Record::intent(request, "boot".into(), format!("/run/netns/virtlet-{pod}").into(), choices, attachments)
}

fn attachment(name: &str, result: Option<serde_json::Value>) -> Attachment {
    Attachment {
        network: network(),
        ifname: name.parse().expect("name"),
        ask: NetworkAsk::default(),
        begun: None,
        result,
    }
}

fn result() -> serde_json::Value {
    serde_json::json!({ "cniVersion": "1.0.0", "unknown": [1.5, null] })
}

fn attached(pod: &str) -> Record {
    let mut record = record(pod);
    record.phase = PodPhase::Attached;
    record.attachments = ["eth0", "net1"].map(|name| attachment(name, Some(result()))).to_vec();
    let nic = Nic {
        name: "eth0".parse().expect("name"),
        network: "net".into(),
        kind: NicKind::Tap(Tap { data_path: proto::tap::DataPath::Tc, queues: 1 }),
        mac: "02:00:00:00:00:01".parse().expect("mac"),
        mtu: 1450,
        addresses: vec!["10.77.0.2/24".parse().expect("net")],
        routes: vec![],
    };
    record.net = Some(PodNet { netns: record.netns.clone(), nics: vec![nic], dns: Dns::default() });
    record
}

fn json(record: &Record) -> serde_json::Value {
    serde_json::to_value(record).expect("encodes")
}

#[test]
fn what_is_written_is_read_back_until_it_is_removed() {
    let dir = Dir::new();
    dir.journal.create(&record("p1")).expect("intent");
    dir.journal.flush(&"p1".parse().expect("id")).expect("flushed");
    dir.journal.note(&attached("p1")).expect("result");
    dir.journal.create(&record("p2")).expect("intent");
    assert_eq!(dir.names(), ["p1.json", "p1.note", "p2.json"]);
    let loaded = dir.load();
    assert!(loaded.unreadable.is_empty());
    assert_eq!(json(&loaded.records[&"p1".parse().expect("id")]), json(&attached("p1")));
    assert_eq!(json(&loaded.records[&"p2".parse().expect("id")]), json(&record("p2")));
    for _ in 0..2 {
        dir.journal.remove(&"p1".parse().expect("id")).expect("removed");
    }
    assert_eq!(dir.names(), ["p2.json"]);
}

#[test]
fn files_and_directory_are_roots_alone() {
    let dir = Dir::new();
    dir.journal.create(&record("p1")).expect("intent");
    let mode = |path: PathBuf| fs::metadata(path).expect("there").permissions().mode() & 0o7777;
    assert_eq!((mode(dir.path("p1.json")), mode(dir.path(""))), (0o600, 0o700));
}

#[test]
fn the_first_release_is_understood_for_ever() {
    let dir = Dir::new();
    dir.put("p1.json", FIRST_RELEASE);
    let loaded = dir.load();
    assert!(loaded.unreadable.is_empty(), "{:?}", loaded.unreadable);
    // The boot is not known; all else is what there was no choice about.
    let mut expected = Record { version: SECOND, ..attached("p1") };
    (expected.boot, expected.attachments) = (None, vec![attachment("eth0", Some(result()))]);
    expected.choices = Choices { data_path: DataPath::Tc, queues: 1, anti_spoof: false };
    let record = &loaded.records[&"p1".parse().expect("id")];
    assert_eq!(json(record), json(&expected));
    dir.journal.note(record).expect("as the second release has it");
    assert_eq!(json(&dir.load().records[&"p1".parse().expect("id")]), json(&expected));
}

#[test]
fn a_pod_of_the_second_release_stays_one_that_it_understands() {
    let dir = Dir::new();
    dir.put("p1.json", SECOND_RELEASE);
    let read = || dir.load().records.remove(&"p1".parse().expect("id")).expect("understood");
    let mut expected = Record { version: SECOND, ..whole() };
    expected.request.owner = None;
    expected.attachments.iter_mut().for_each(|attachment| attachment.begun = None);
    assert_eq!(json(&read()), json(&expected));
    dir.put("p1.note", SECOND_RELEASE.replace("\"tries\": 3", "\"tries\": 4"));
    let mut record = read();
    let failing = record.failing.as_mut().expect("it fails");
    assert_eq!(failing.tries, 4, "its notes are read");
    failing.tries = 5;
    dir.journal.note(&record).expect("noted");
    let note = fs::read_to_string(dir.path("p1.note")).expect("note");
    assert_eq!(note, SECOND_RELEASE.trim_end().replace("\"tries\": 3", "\"tries\": 5"), "one record, of its version");
}

#[test]
fn this_release_writes_what_the_next_has_to_understand() {
    let dir = Dir::new();
    dir.put("p1.json", THIRD_RELEASE);
    assert_eq!(json(&dir.load().records[&"p1".parse().expect("id")]), json(&whole()));
    assert_eq!(serde_json::to_string_pretty(&whole()).expect("encodes"), THIRD_RELEASE.trim_end());
    dir.journal.note(&attached("p1")).expect("note");
    assert_eq!(dir.load().records.values().map(|record| record.phase).collect::<Vec<_>>(), [PodPhase::Attached]);
    dir.journal.note(&whole()).expect("note");
    assert_eq!(fs::read_to_string(dir.path("p1.note")).expect("note"), THIRD_NOTE.trim_end());
    assert_eq!(json(&dir.load().records[&"p1".parse().expect("id")]), json(&whole()));
}

#[test]
fn only_a_record_that_says_more_is_of_a_newer_form() {
    let dir = Dir::new();
    assert_eq!(dir.journal.newest(), None);
    let request = |pod: &str, dhcp| Attach { dhcp, ..record(pod).request };
    let intent = |request: Attach| {
        let Record { boot, netns, choices, attachments, .. } = record(request.pod.as_str());
        Record::intent(request, boot.expect("this boot"), netns, choices, attachments)
    };
    dir.journal.create(&intent(request("p2", BTreeMap::new()))).expect("intent");
    assert_eq!(dir.journal.newest(), Some(THIRD));
    let options = DhcpOptions {
        boot_file: "pxelinux.0".into(),
        ntp_servers: vec!["10.0.0.1".parse().expect("an address")],
        private: [(240, "x".to_owned())].into(),
        ..DhcpOptions::default()
    };
    let told = intent(request("p1", [("net1".parse().expect("name"), options)].into()));
    assert_eq!(serde_json::to_string_pretty(&told).expect("encodes"), FOURTH_RELEASE.trim_end());
    dir.put("p1.json", FOURTH_RELEASE);
    assert_eq!(json(&dir.load().records[&"p1".parse().expect("id")]), json(&told));
    dir.journal.note(&told).expect("note");
    assert_eq!(json(&dir.load().records[&"p1".parse().expect("id")]), json(&told), "a line of a note, too");
    assert_eq!(dir.journal.newest(), Some(FORMAT));
    dir.journal.remove(told.pod()).expect("removed");
    dir.put("p3.json", "precious");
    assert_eq!(dir.journal.newest(), Some(FORMAT), "what cannot be read may be anything");
}

#[test]
fn the_last_whole_line_of_a_note_holds_and_a_long_note_begins_anew() {
    let dir = Dir::new();
    dir.journal.create(&record("p1")).expect("intent");
    let mut leaving = whole();
    let tries =
        || dir.load().records.values().map(|record| record.failing.as_ref().map(|f| f.tries)).collect::<Vec<_>>();
    dir.journal.note(&leaving).expect("note");
    let note = fs::read(dir.path("p1.note")).expect("note");
    fs::write(dir.path("p1.note"), [note.as_slice(), &note[..100]].concat()).expect("torn");
    assert_eq!(tries(), [Some(3)], "what is before the torn line");
    let mut longest = 0;
    for count in 4..200 {
        leaving.failing.as_mut().expect("it fails").tries = count;
        dir.journal.note(&leaving).expect("note");
        longest = longest.max(fs::metadata(dir.path("p1.note")).expect("note").len());
        assert_eq!(tries(), [Some(count)]);
    }
    assert!((MAX_NOTE..MAX_NOTE + 4096).contains(&longest), "{longest} bytes");
    assert_eq!(dir.names(), ["p1.json", "p1.note"]);
}

/// With something in every field.
fn whole() -> Record {
    let mut record = attached("p1");
    record.phase = PodPhase::Detaching;
    record.request.owner = Some("3f0c2b1a".parse().expect("owner"));
    record.attachments[1].begun = Some(1);
    record.failing = Some(Failing { since: 1_700_000_000, tries: 3, why: "its plugin is busy".into() });
    record
}

#[test]
fn a_note_takes_the_place_of_its_record_as_long_as_it_is_whole() {
    let dir = Dir::new();
    let phase = || dir.load().records.values().map(|record| record.phase).collect::<Vec<_>>();
    dir.journal.create(&record("p1")).expect("intent");
    let mut leaving = record("p1");
    leaving.phase = PodPhase::Detaching;
    dir.journal.note(&leaving).expect("note");
    assert_eq!(dir.names(), ["p1.json", "p1.note"]);
    assert_eq!(phase(), [PodPhase::Detaching]);
    let read = dir.journal.read(leaving.pod()).expect("read");
    assert_eq!(read.map(|record| record.phase), Some(PodPhase::Detaching));
    let note = fs::read(dir.path("p1.note")).expect("note");
    for cut in [0, 1, note.len() / 2, note.len() - 1] {
        dir.put("p1.note", &note[..cut]);
        assert_eq!(phase(), [PodPhase::Attaching], "torn at {cut}");
    }
    dir.put("p1.note", String::from_utf8_lossy(&note).replace("\"p1\"", "\"p2\""));
    assert_eq!(phase(), [PodPhase::Attaching], "of another pod");
    dir.journal.note(&leaving).expect("note");
    dir.journal.remove(leaving.pod()).expect("removed");
    assert!(dir.names().is_empty());
    // A crash between the two removals can only have left the record; a note alone is nobody's.
    dir.put("p1.note", &note);
    assert!(dir.load().records.is_empty());
    assert_eq!(dir.journal.sweep().expect("swept"), 1);
    assert!(dir.names().is_empty());
}

#[test]
fn what_may_have_begun_is_what_comes_after_the_last_result() {
    let mut record = record("p1");
    record.attachments.push(attachment("net2", None));
    for done in 0..=3 {
        let mut begun = record.clone();
        begun.attachments.iter_mut().take(done).for_each(|attachment| attachment.result = Some(result()));
        begun.keep_begun();
        assert_eq!(begun.attachments.len(), (done + 1).min(3), "{done}");
    }
}

#[test]
fn a_crash_between_writing_and_placing_leaves_the_old_state_and_is_swept() {
    let dir = Dir::new();
    dir.journal.create(&record("p1")).expect("intent");
    // As kill -9 leaves it: the result is written, or half written, but not in place.
    let whole = serde_json::to_vec(&attached("p1")).expect("encodes");
    for cut in [whole.len(), whole.len() / 2, 0] {
        dir.put(&durable::temp_name("p1.note"), &whole[..cut]);
        dir.put(&durable::temp_name("p2.json"), &whole[..cut]);
        let loaded = dir.load();
        assert!(loaded.unreadable.is_empty());
        assert_eq!(loaded.records.values().map(|record| record.phase).collect::<Vec<_>>(), [PodPhase::Attaching]);
        dir.journal.sweep().expect("swept");
        assert_eq!(dir.names(), ["p1.json"]);
    }
    dir.put(&durable::temp_name("p1.note"), "rest");
    dir.journal.note(&attached("p1")).expect("a rest is in nobody's way");
    assert_eq!(dir.journal.sweep().expect("swept"), 1);
    assert_eq!(dir.names(), ["p1.json", "p1.note"]);
}

#[test]
fn what_is_not_understood_is_reported_and_left_alone() {
    let dir = Dir::new();
    let text = serde_json::to_string(&attached("p1")).expect("encodes");
    let attached_to_nothing = text.replace("\"net\":{", "\"net\":null,\"x\":{");
    let mut no_net = attached("p6");
    no_net.net = None;
    dir.put("p1.json", &text[..text.len() - 9]);
    dir.put("p2.json", "");
    dir.put("p3.json", &text);
    dir.put("p4.json", text.replace("\"version\":3", "\"version\":5"));
    dir.put("p5.json", attached_to_nothing);
    dir.put("p6.json", serde_json::to_vec(&no_net).expect("encodes"));
    dir.put("p7.json", vec![b' '; usize::try_from(MAX_FILE).expect("fits") + 1]);
    dir.put("p8.json.bak", &text);
    dir.put(".p9.json.tmp.bak", &text);
    dir.put(".json.tmp", &text);
    dir.put(".hidden.json", &text);
    fs::create_dir(dir.path("dir.json")).expect("dir");
    symlink("p3.json", dir.path("link.json")).expect("link");
    nix::unistd::mkfifo(&dir.path("fifo.json"), nix::sys::stat::Mode::S_IRUSR).expect("fifo");
    let before = dir.names();
    dir.journal.sweep().expect("swept");
    let loaded = dir.load();
    assert!(loaded.records.is_empty());
    let name = |path: &Path| path.file_name().expect("name").to_str().expect("text").to_owned();
    let reasons: Vec<String> =
        loaded.unreadable.iter().map(|file| format!("{}: {}", name(&file.path), common::Chain(&file.cause))).collect();
    insta::assert_snapshot!(reasons.join("\n"));
    assert_eq!(dir.names(), before);
}

#[test]
fn a_first_record_does_not_replace_what_nobody_knows() {
    let dir = Dir::new();
    let file = dir.put("p1.json", "precious");
    let error = dir.journal.create(&record("p1")).expect_err("occupied");
    assert!(matches!(error, JournalError::Occupied { .. }), "{error}");
    assert_eq!(fs::read_to_string(file).expect("there"), "precious");
    assert_eq!(dir.names(), ["p1.json"]);
}

#[test]
fn a_write_that_fails_leaves_the_old_file_and_no_other() {
    let dir = Dir::new();
    dir.journal.create(&record("p1")).expect("intent");
    // Stands for a full disk: it cannot be opened.
    symlink("nowhere", dir.path("p1.note")).expect("link");
    let error = dir.journal.note(&attached("p1")).expect_err("in the way");
    assert!(error.to_string().contains("p1.note"), "{error}");
    assert_eq!(dir.names(), ["p1.json", "p1.note"]);
    fs::remove_file(dir.path("p1.note")).expect("removed");
    assert_eq!(dir.load().records.values().map(|record| record.phase).collect::<Vec<_>>(), [PodPhase::Attaching]);
}

#[test]
fn a_note_that_cannot_be_read_is_not_taken_for_none() {
    let dir = Dir::new();
    let pod: PodId = "p1".parse().expect("id");
    let too_long = usize::try_from(MAX_FILE).expect("fits") + 1;
    let puts: [&dyn Fn(&Path); 3] =
        [&|note| symlink("elsewhere", note).expect("link"), &|note| fs::create_dir(note).expect("dir"), &|note| {
            fs::write(note, vec![b'\n'; too_long]).expect("written")
        }];
    dir.journal.create(&record("p1")).expect("intent");
    for put in puts {
        // The pod stands, and its first record alone says that it is half made.
        dir.journal.note(&attached("p1")).expect("result");
        fs::remove_file(dir.path("p1.note")).expect("removed");
        put(&dir.path("p1.note"));
        assert_eq!(dir.journal.sweep().expect("swept"), 0);
        let Loaded { records, unreadable } = dir.load();
        assert!(records.is_empty(), "{records:?}");
        assert_eq!(unreadable.iter().map(Unreadable::pod).collect::<Vec<_>>(), [Some(pod.clone())]);
        assert_eq!(dir.journal.read(&pod).expect_err("unreadable").path, dir.path("p1.note"));
        assert_eq!(dir.names(), ["p1.json", "p1.note"]);
        // By hand, as whoever looks after it.
        let _ = fs::remove_dir(dir.path("p1.note"));
        let _ = fs::remove_file(dir.path("p1.note"));
    }
    assert!(dir.journal.read(&"p2".parse().expect("id")).expect("none").is_none());
}

#[test]
fn a_record_that_cannot_be_looked_at_is_there() {
    let dir = Dir::new();
    let pod: PodId = "p1".parse().expect("id");
    assert!(!dir.journal.has(&pod));
    dir.put("p1.note", "its record may stand");
    let journal = Journal { dir: dir.path("p1.note") };
    assert!(journal.has(&pod), "ENOTDIR is not ENOENT");
}
