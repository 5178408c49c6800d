use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read as _;
use std::os::unix::fs::MetadataExt as _;
use std::os::unix::net::UnixStream;
use std::time::Instant;

use nix::sys::socket::getsockopt;
use tempfile::TempDir;
use tracing::subscriber::DefaultGuard;
use tracing::{error, info, info_span, warn};
use tracing_subscriber::fmt;
use tracing_subscriber::layer::SubscriberExt as _;

use super::*;
use crate::log::pod::PodFields;

/// Longest until a datagram that was sent is there.
const DEADLINE: Duration = Duration::from_secs(5);
/// How long an entry waits here for a journald that hangs.
const PATIENCE: Duration = Duration::from_millis(200);

/// A socket in journald's place, to which this thread logs until it is dropped.
struct Journald {
    socket: UnixDatagram,
    /// What it reads of the daemon's stderr.
    stderr: UnixStream,
    dir: TempDir,
    _logs: DefaultGuard,
}

impl Journald {
    fn start() -> Self {
        let dir = tempfile::tempdir().expect("tempdir");
        let path = dir.path().join("socket");
        let socket = bind(&path);
        let (stderr, of_daemon) = UnixStream::pair().expect("a pair");
        stderr.set_read_timeout(Some(DEADLINE)).expect("deadline");
        let journal = Journal::at(&path, of_daemon.into(), "testd", PATIENCE).expect("journal");
        let entries = Entries::new(journal, fmt::format().without_time());
        let lines = fmt::layer().with_ansi(false).with_writer(io::sink).event_format(entries);
        let log = tracing_subscriber::registry().with(PodFields).with(lines);
        Self { socket, stderr, dir, _logs: tracing::subscriber::set_default(log) }
    }

    /// The fields of the next entry.
    fn entry(&self) -> BTreeMap<String, String> {
        let mut datagram = vec![0; 64 << 10];
        let length = self.socket.recv(&mut datagram).expect("an entry");
        fields(datagram.get(..length).expect("as long as it is"))
    }

    /// The next entry's message.
    fn message(&self) -> String {
        field(&self.entry(), "MESSAGE").expect("a message").to_owned()
    }

    /// Reads all that it was sent; how many entries.
    fn drain(&self) -> u64 {
        self.socket.set_nonblocking(true).expect("set");
        let entries = std::iter::from_fn(|| self.socket.recv(&mut [0; 1024]).ok()).count();
        self.socket.set_nonblocking(false).expect("set");
        entries as u64
    }

    /// The next bytes of the daemon's stderr.
    fn on_stderr(&mut self) -> String {
        let mut bytes = vec![0; 64 << 10];
        let length = self.stderr.read(&mut bytes).expect("something on stderr");
        String::from_utf8(bytes.get(..length).expect("as long as it is").to_vec()).expect("UTF-8")
    }
}

fn bind(path: &Path) -> UnixDatagram {
    let socket = UnixDatagram::bind(path).expect("bound");
    socket.set_read_timeout(Some(DEADLINE)).expect("deadline");
    socket
}

/// More entries than a socket has room for.
fn too_many() -> u64 {
    let queue = std::fs::read_to_string("/proc/sys/net/unix/max_dgram_qlen").expect("the kernel's limit");
    queue.trim().parse::<u64>().expect("a number") + 50
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
fn a_journald_that_hangs_is_waited_for_once_and_what_is_lost_is_counted() {
    let journald = Journald::start();
    let (many, began) = (too_many(), Instant::now());
    (0..many).for_each(|_| info!("an entry"));
    assert!(began.elapsed() < 10 * PATIENCE, "each entry waited: {:?}", began.elapsed());
    let lost = many - journald.drain();
    assert!(lost >= 40, "there was room for all but {lost}");
    info!("again");
    assert!(journald.message().ends_with("again"));
    let told = journald.entry();
    let message = format!("{lost} entries of this log were lost: journald did not take them");
    assert_eq!((field(&told, "MESSAGE"), field(&told, "PRIORITY")), (Some(&*message), Some("4")));
    info!("and on");
    assert!(journald.message().ends_with("and on"), "told once");
}

#[test]
fn what_journald_cannot_be_given_is_a_line_with_its_level() {
    let mut journald = Journald::start();
    warn!("{}", "x".repeat(ON_THE_WAY * 4));
    drop(std::fs::remove_dir_all(journald.dir.path()));
    let mut said = String::new();
    // The one that was too large has filled it.
    while !said.contains("xx") {
        said = journald.on_stderr();
    }
    assert!(said.starts_with("<4> WARN"), "{}", &said[..20]);
    journald.stderr.set_nonblocking(true).expect("set");
    while journald.stderr.read(&mut [0; 64 << 10]).is_ok() {}
    journald.stderr.set_nonblocking(false).expect("set");
    error!("first\nsecond");
    let line = journald.on_stderr();
    assert!(line.starts_with("\n<3>ERROR") && line.ends_with("first\n<3>second\n"), "{line}");
}

#[test]
fn nobody_waits_for_a_stderr_that_nobody_reads() {
    let mut journald = Journald::start();
    drop(std::fs::remove_file(journald.dir.path().join("socket")));
    // More than a socket holds.
    (0..4096).for_each(|_| info!("{}", "x".repeat(1024)));
    journald.socket = bind(&journald.dir.path().join("socket"));
    info!("again");
    assert!(journald.message().ends_with("again"));
    assert!(journald.message().contains("entries of this log were lost"));
}

#[test]
fn as_much_may_be_on_its_way_as_the_kernel_lets_it() {
    let dir = tempfile::tempdir().expect("tempdir");
    let (stderr, _) = UnixStream::pair().expect("a pair");
    let journal = Journal::at(&dir.path().join("socket"), stderr.into(), "testd", PATIENCE).expect("journal");
    let other = UnixDatagram::unbound().expect("a socket");
    let may_force = setsockopt(&other, SndBufForce, &ON_THE_WAY).is_ok();
    let size = getsockopt(&journal.socket, SndBuf).expect("size");
    let plain = getsockopt(&UnixDatagram::unbound().expect("a socket"), SndBuf).expect("size");
    assert!(size >= if may_force { ON_THE_WAY } else { plain }, "{size}");
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
