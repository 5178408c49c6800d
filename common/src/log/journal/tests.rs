use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::MetadataExt as _;

use tempfile::TempDir;
use tracing::subscriber::DefaultGuard;
use tracing::{error, info, info_span, warn};
use tracing_subscriber::fmt;
use tracing_subscriber::layer::SubscriberExt as _;

use super::*;
use crate::log::pod::PodFields;

/// Longest until a datagram that was sent is there.
const DEADLINE: Duration = Duration::from_secs(5);

/// A socket in journald's place, to which this thread logs until it is dropped.
struct Journald {
    socket: UnixDatagram,
    dir: TempDir,
    _logs: DefaultGuard,
}

impl Journald {
    fn start() -> Self {
        let dir = tempfile::tempdir().expect("tempdir");
        let path = dir.path().join("socket");
        let socket = UnixDatagram::bind(&path).expect("bound");
        socket.set_read_timeout(Some(DEADLINE)).expect("deadline");
        let entries = Entries::new(Journal::at(&path, "testd").expect("journal"), fmt::format().without_time());
        let lines = fmt::layer().with_ansi(false).with_writer(io::sink).event_format(entries);
        let log = tracing_subscriber::registry().with(PodFields).with(lines);
        Self { socket, dir, _logs: tracing::subscriber::set_default(log) }
    }

    /// The fields of the next entry.
    fn entry(&self) -> BTreeMap<String, String> {
        let mut datagram = vec![0; 64 << 10];
        let length = self.socket.recv(&mut datagram).expect("an entry");
        fields(datagram.get(..length).expect("as long as it is"))
    }
}

/// Reads a datagram as journald does.
fn fields(mut rest: &[u8]) -> BTreeMap<String, String> {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).expect("UTF-8");
    let mut fields = BTreeMap::new();
    while !rest.is_empty() {
        let (line, after) = rest.split_at(rest.iter().position(|&byte| byte == b'\n').expect("an end of line"));
        rest = &after[1..];
        let (name, value) = match line.iter().position(|&byte| byte == b'=') {
            Some(at) => (text(&line[..at]), text(&line[at + 1..])),
            None => {
                let (length, after) = rest.split_first_chunk::<8>().expect("a length");
                let (value, after) = after.split_at(usize::try_from(u64::from_le_bytes(*length)).expect("length"));
                rest = after.strip_prefix(b"\n").expect("an end of the value");
                (text(line), text(value))
            }
        };
        assert!(fields.insert(name, value).is_none(), "a field twice: {fields:?}");
    }
    fields
}

fn field<'a>(entry: &'a BTreeMap<String, String>, name: &str) -> Option<&'a str> {
    entry.get(name).map(String::as_str)
}

#[test]
fn an_entry_has_the_pod_that_its_spans_are_about() {
    let journald = Journald::start();
    let call = info_span!("call", call = "StartContainer", namespace = "default", name = "web", container = "c0ffee");
    let _in_call = call.enter();
    let _in_pod = info_span!("pod", pod = "abc").entered();
    error!(tap = "tap0", "no way");
    let entry = journald.entry();
    assert_eq!(field(&entry, "VIRTLET_POD_NAMESPACE"), Some("default"));
    assert_eq!(field(&entry, "VIRTLET_POD_NAME"), Some("web"));
    assert_eq!(field(&entry, "VIRTLET_SANDBOX_ID"), Some("abc"));
    assert_eq!(field(&entry, "VIRTLET_CONTAINER_ID"), Some("c0ffee"));
    assert_eq!(field(&entry, "PRIORITY"), Some("3"));
    assert_eq!(field(&entry, "SYSLOG_IDENTIFIER"), Some("testd"));
    let message = field(&entry, "MESSAGE").expect("a message");
    assert!(message.starts_with("ERROR call{call=\"StartContainer\" namespace=\"default\""), "{message}");
    assert!(message.ends_with("no way tap=\"tap0\""), "{message}");
}

#[test]
fn what_a_span_learns_later_is_in_the_entries_after_that() {
    let journald = Journald::start();
    let span = info_span!("call", name = tracing::field::Empty);
    span.in_scope(|| info!("one"));
    span.record("name", "web");
    span.in_scope(|| info!("two"));
    assert_eq!(field(&journald.entry(), "VIRTLET_POD_NAME"), None);
    assert_eq!(field(&journald.entry(), "VIRTLET_POD_NAME"), Some("web"));
}

#[test]
fn an_event_says_ids_but_its_name_is_not_the_pods() {
    let journald = Journald::start();
    let _in_span = info_span!("call", name = "web", pod = "outer").entered();
    warn!(pod = %"abc", name = "eth0", "something");
    let entry = journald.entry();
    assert_eq!(field(&entry, "VIRTLET_SANDBOX_ID"), Some("abc"));
    assert_eq!(field(&entry, "VIRTLET_POD_NAME"), Some("web"));
    assert_eq!(field(&entry, "PRIORITY"), Some("4"));
}

#[test]
fn no_value_makes_another_field() {
    let journald = Journald::start();
    let _in_span = info_span!("call", name = "web\nPRIORITY=0").entered();
    info!("first\nMESSAGE=second");
    let entry = journald.entry();
    assert_eq!(field(&entry, "VIRTLET_POD_NAME"), Some("web\nPRIORITY=0"));
    assert_eq!(field(&entry, "PRIORITY"), Some("6"));
    assert!(field(&entry, "MESSAGE").expect("a message").contains("first\nMESSAGE=second"), "{entry:?}");
}

#[test]
fn a_journald_that_is_away_fails_nobody() {
    let journald = Journald::start();
    drop(std::fs::remove_dir_all(journald.dir.path()));
    info!("on stderr");
}

#[test]
fn the_stream_is_told_by_device_and_inode() {
    let dir = tempfile::tempdir().expect("tempdir");
    let file = File::create(dir.path().join("stderr")).expect("file");
    let other = File::create(dir.path().join("other")).expect("file");
    let metadata = file.metadata().expect("metadata");
    let stream = format!("{}:{}", metadata.dev(), metadata.ino());
    assert!(is_stream(Some(OsStr::new(&stream)), &file));
    assert!(!is_stream(Some(OsStr::new(&stream)), &other));
    assert!(!is_stream(None, &file));
    for unfit in ["", ":", "8", "a:b", "-1:2"] {
        assert!(!is_stream(Some(OsStr::new(unfit)), &file), "{unfit}");
    }
}
