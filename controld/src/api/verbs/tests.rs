use common::KeyedMutex;
use proto::pause::Pause;
use streaming::Otherwise;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, duplex};
use tokio_util::sync::CancellationToken;

use super::*;
use crate::container::tests::container;
use crate::daemon::node::tests::node;

/// Verbs of a node with one container, whose libvirt does not answer.
struct Fixture {
    verbs: Verbs,
    id: ContainerId,
    _dir: TempDir,
}

impl Fixture {
    async fn with(state: ContainerState, pause: Option<Pause>) -> Self {
        let dir = tempfile::tempdir().expect("directory");
        let node = node(dir.path()).await;
        let containers = Containers::new(node.for_containers(), KeyedMutex::default());
        let record = Container { state, pause, ..container("web", 0) };
        node.store.show_container(record.clone());
        Self { verbs: Verbs::new(containers), id: record.id, _dir: dir }
    }

    /// What a client of the streaming server sees: both outputs, and the exit code.
    async fn serve(&self, line: &str, tty: bool) -> (String, String, u8) {
        let cmd = words(line);
        let container_id = self.id.to_string();
        let otherwise = Otherwise::default();
        let request = ExecRequest { container_id, cmd, stdin: false, stdout: true, stderr: !tty, tty, otherwise };
        let (stdout, mut shown) = duplex(1 << 16);
        let (stderr, mut told) = duplex(1 << 16);
        let session = Session {
            stdin: None,
            stdout: Some(Box::new(stdout)),
            stderr: (!tty).then(|| Box::new(stderr) as Output),
            resize: None,
            stdin_once: false,
            closed: CancellationToken::new(),
        };
        let code = self.verbs.serve(&request, session).await;
        let (mut out, mut err) = (String::new(), String::new());
        shown.read_to_string(&mut out).await.expect("text");
        told.read_to_string(&mut err).await.expect("text");
        (out, err, code)
    }

    async fn answer(&self, line: &str) -> (String, u8) {
        let Answer { stdout, stderr, code } = self.verbs.answer(self.id, &words(line)).await;
        assert!(stdout.is_empty(), "{line}");
        (String::from_utf8(stderr).expect("text").replace(&self.id.to_string(), "ID"), code)
    }
}

fn words(line: &str) -> Vec<String> {
    line.split(' ').map(str::to_owned).collect()
}

#[test]
fn commands_of_guests_are_no_verbs() {
    for line in ["virtlet", "sh -c virtlet:pause", "/virtlet:pause", "./virtlet:pause", "Virtlet:pause"] {
        assert!(!is_verb(&words(line)), "{line}");
    }
    assert!(!is_verb(&[]) && is_verb(&words("virtlet:what-is-not-there")));
}

#[tokio::test]
async fn a_conflict_is_a_line_and_a_code() {
    let paused = Fixture::with(ContainerState::Running, Some(Pause::ByHand)).await;
    let runs = Fixture::with(ContainerState::Running, None).await;
    let ended = Fixture::with(ContainerState::Exited, None).await;
    for (fixture, line, words) in [
        (&paused, "virtlet:pause", "the VM is paused already"),
        (&paused, "virtlet:softreboot", "the guest cannot be rebooted in order: the guest was paused by hand"),
        (&paused, "virtlet:freeze", "the guest cannot be frozen"),
        (&runs, "virtlet:unpause", "the VM is not paused"),
        (&runs, "virtlet:screenshot", "the VM has no screen"),
        (&runs, "virtlet:userlist", "QEMU's agent does not answer in the guest"),
        (&ended, "virtlet:reset", "does not run, so it cannot be reset"),
    ] {
        let (stdout, stderr, code) = fixture.serve(line, false).await;
        assert!(stderr.contains(words) && stderr.lines().count() == 1, "{line}: {stderr}");
        assert_eq!((stdout.as_str(), code), ("", 69), "{line}");
    }
}

#[tokio::test]
async fn a_terminal_is_told_on_its_only_stream() {
    let fixture = Fixture::with(ContainerState::Running, None).await;
    let (stdout, stderr, code) = fixture.serve("virtlet:unpause", true).await;
    assert_eq!((stdout.as_str(), stderr.as_str(), code), ("the VM is not paused\r\n", "", 69));
    let (stdout, _, code) = fixture.serve("virtlet:screenshot", true).await;
    assert!(stdout.contains("not for a terminal") && code == 64, "{code}: {stdout}");
}

#[tokio::test]
async fn a_viewer_that_does_not_speak_is_none() {
    let fixture = Fixture::with(ContainerState::Running, None).await;
    let (_, stderr, code) = fixture.serve("virtlet:vnc", false).await;
    assert!(stderr.contains("it takes stdin and stdout") && code == 64, "{code}: {stderr}");
}

#[tokio::test]
async fn probes_are_answered_where_they_only_read() {
    let fixture = Fixture::with(ContainerState::Running, None).await;
    let (stderr, code) = fixture.answer("virtlet:guestosinfo").await;
    assert!(stderr.starts_with("QEMU's agent does not answer in the guest") && code == 69, "{code}: {stderr}");
    let (stderr, code) = fixture.answer("virtlet:pause").await;
    assert!(stderr.starts_with("`virtlet:pause` is not for probes") && code == 77, "{code}: {stderr}");
    let (stderr, code) = fixture.answer("virtlet:paws").await;
    assert!(stderr.starts_with("there is no verb `virtlet:paws`\nvirtlet:vnc ") && code == 64, "{code}: {stderr}");
    let gone = fixture.verbs.answer(ContainerId::random(), &words("virtlet:userlist")).await;
    assert_eq!(gone.code, 66);
}

#[tokio::test(start_paused = true)]
async fn a_client_that_reads_nothing_is_not_waited_for_without_end() {
    let (stdout, _unread) = duplex(1);
    let error = write(&mut Some(Box::new(stdout)), b"more than fits").await.expect_err("late");
    assert_eq!(Refusal::from(error).code, 75);
    let (stdout, gone) = duplex(1);
    drop(gone);
    write(&mut Some(Box::new(stdout)), b"more than fits").await.expect("it is leaving");
}
