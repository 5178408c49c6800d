//! Sockets in a tree, with answers as they come.

use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixListener;

use proto::cri::{StatusResponse, VersionResponse};

use super::super::facts::{Answers, TapStatus};
use super::super::tests::{facts, tree};
use super::*;

/// A node whose daemons answer; its sockets have these modes.
fn node(cri: u32, handoff: u32) -> (tempfile::TempDir, Host, Facts) {
    let (dir, host) = tree(&[("run/virtlet/controld.lock", "")]);
    for (name, mode) in [("cri.sock", cri), ("control.sock", 0o600), ("handoff.sock", handoff)] {
        let path = dir.path().join("run/virtlet").join(name);
        // The file stays when nobody listens any more.
        drop(UnixListener::bind(&path).expect("socket"));
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).expect("mode");
    }
    let mut facts = facts();
    let version =
        VersionResponse { runtime_name: "controld".into(), runtime_version: "1".into(), ..Default::default() };
    facts.cri = Ok(Answers { version, status: StatusResponse::default() });
    facts.tap = Ok(TapStatus { server: "tapmanager 1".into(), ready: true, reason: String::new() });
    (dir, host, facts)
}

/// The unit tests may run as somebody else.
fn is_root() -> bool {
    nix::unistd::geteuid().is_root()
}

#[test]
fn sockets_of_root_that_answer_are_well() {
    let (_dir, host, facts) = node(0o600, 0o660);
    let found = look(&host, &facts);
    if is_root() {
        assert_eq!(found[0].seen, "controld 1 answers at `/run/virtlet/cri.sock` (mode 0600, owner 0:0)");
        assert_eq!((found[0].state, found[1].state), (State::Ok, State::Ok), "{found:?}");
        // Nobody has said yet who QEMU runs as.
        assert!(found[2].state == State::Warning && found[2].seen.contains("group is root's"), "{found:?}");
    } else {
        assert!(found.iter().all(|finding| finding.seen.contains("others may use it")), "{found:?}");
    }
}

#[test]
fn what_others_may_use_is_a_warning() {
    let (_dir, host, facts) = node(0o666, 0o666);
    let found = look(&host, &facts);
    for finding in [&found[0], &found[2]] {
        assert!(finding.state == State::Warning && finding.seen.contains("mode 0666"), "{finding:?}");
    }
}

#[test]
fn a_socket_without_an_answer_is_a_failure() {
    let (dir, host, mut facts) = node(0o600, 0o660);
    facts.cri = Err("Connection refused".into());
    std::fs::remove_file(dir.path().join("run/virtlet/control.sock")).expect("removed");
    std::fs::create_dir_all(dir.path().join("proc/net")).expect("directory");
    let list = "Num RefCount Protocol Flags Type St Inode Path\n\
                0: 00000002 00000000 00010000 0005 01 1 /run/virtlet/control.sock\n\
                0: 00000002 00000000 00000000 0005 01 2 /run/virtlet/handoff.sock\n";
    std::fs::write(dir.path().join("proc/net/unix"), list).expect("written");
    let found = look(&host, &facts);
    assert!(found.iter().all(|finding| finding.state == State::Failure), "{found:?}");
    assert_eq!(found[0].seen, "`/run/virtlet/cri.sock` is there, but: Connection refused");
    assert_eq!(found[1].seen, "`/run/virtlet/control.sock` is not there");
    assert_eq!(found[2].seen, "`/run/virtlet/handoff.sock` is there, but: nobody listens");
}

#[test]
fn daemons_that_mean_different_sockets_are_told() {
    let (_dir, host, mut facts) = node(0o600, 0o660);
    facts.cri_socket = "/elsewhere.sock".into();
    if let Ok(taps) = &mut facts.tapmanager {
        taps.run_dir = "/run/other".into();
    }
    let found = look(&host, &facts);
    assert_eq!(found[0].mend.as_deref(), Some("virtletctl --socket /run/virtlet/cri.sock doctor"));
    assert_eq!(
        found[1].seen,
        "tapmanager makes `/run/other/control.sock`, controld looks for `/run/virtlet/control.sock`"
    );
}
