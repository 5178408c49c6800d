//! The whole daemon on the real kernel with Debian's CNI plugins, driven by the protocol's own client.
//!
//! Each test runs itself again inside network and mount namespaces of its own, so the machine's links, firewall and
//! `/run/netns` are never touched. Needs root and the plugins in `/usr/lib/cni`; without them it fails and says so.

use std::os::unix::process::ExitStatusExt as _;
use std::sync::Arc;
use std::time::Duration;

use proto::tap::{ErrorCode, PodPhase, QemuUser};
use tapmanager::config::Config;
use tapmanager::daemon::{Daemon, DaemonError};
use tapmanager::faults::Faults;
use tapmanager::spawner::Spawner;
use tokio::runtime::Runtime;

#[path = "real/bed.rs"]
mod bed;
#[path = "real/guest.rs"]
mod guest;

use bed::{Bed, Program, apart, arm, attach, run, unmount};

#[test]
fn a_pod_lives_and_goes_without_a_trace() {
    apart("a_pod_lives_and_goes_without_a_trace", || {
        let bed = Bed::new();
        let before = bed.world();
        let daemon = bed.start(Faults::none());
        let status = bed.status();
        assert!(status.ready, "{}", status.reason);
        let net = bed.attach("p1").expect("attached");
        assert_eq!(bed.attach("p1").expect("again"), net);
        assert!(net.netns.exists());
        assert_eq!(net.nics.len(), 1);
        assert_eq!(net.nics[0].addresses[0].prefix(), 24);

        let token = bed.arm("p1");
        let (handoff, fds) = bed.get(token.clone()).expect("descriptors");
        assert_eq!((handoff.nics[0].mac, handoff.nics[0].queues), (net.nics[0].mac, 1));
        assert_eq!(bed.get(token).expect_err("used"), ErrorCode::Denied);
        assert_eq!(bed.get(bed.arm("p1")).expect_err("the tap is in use"), ErrorCode::Conflict);
        assert_eq!(guest::discover(&fds[0], net.nics[0].mac).expect("an offer"), net.nics[0].addresses[0].ip());
        drop(fds);
        // A machine that was started again.
        let (_, fds) = bed.get(bed.arm("p1")).expect("descriptors again");
        drop(fds);

        bed.detach("p1").expect("detached");
        bed.detach("p1").expect("detached again");
        assert_eq!(bed.status().pods, 0);
        daemon.stop();
        bed.assert_as(&before);
    });
}

#[test]
fn failure_after_any_step_leaves_nothing_and_the_next_attach_succeeds() {
    apart("failure_after_any_step_leaves_nothing_and_the_next_attach_succeeds", || {
        let bed = Bed::new();
        let before = bed.world();
        let mut failures = Vec::new();
        for step in 1.. {
            let daemon = bed.start(Faults::after_step(step));
            let Err(error) = bed.attach("p1") else {
                bed.detach("p1").expect("detached");
                daemon.stop();
                break;
            };
            assert!(error.contains("failure injected after step"), "step {step}: {error}");
            assert!(!error.contains("not undone"), "step {step}: {error}");
            bed.assert_as(&before);
            bed.attach("p1").unwrap_or_else(|error| panic!("second try after step {step}: {error}"));
            bed.detach("p1").expect("detached");
            daemon.stop();
            bed.assert_as(&before);
            failures.push(error);
        }
        assert!(failures.len() > 6, "the join has steps of its own: {failures:#?}");
    });
}

#[test]
fn a_kill_at_any_step_leaves_nothing_and_the_next_daemon_goes_on() {
    const NAME: &str = "a_kill_at_any_step_leaves_nothing_and_the_next_daemon_goes_on";
    bed::serve_if_doomed();
    apart(NAME, || {
        let bed = Bed::new();
        // The bridge plugin leaks its masquerading rules, and says so to nobody, where DEL finds no namespace.
        bed.configure(false, "");
        let before = bed.world();
        let [mut of_attach, mut of_detach, mut unanswered] = [0; 3];
        for step in 1.. {
            let mut daemon = bed::doomed(&bed, NAME, step);
            let attached = bed.attach_to("p1", 2).is_ok();
            // The second one waits for what is behind the answer of the first.
            let detached = attached && bed.detach("p1").is_ok() && bed.detach("p1").is_ok();
            if detached && daemon.try_wait().expect("looked at").is_none() {
                daemon.kill().expect("killed");
                daemon.wait().expect("gone");
                break;
            }
            let ended = daemon.wait().expect("gone");
            assert_eq!(ended.signal(), Some(9), "step {step}");
            *(if attached { &mut of_detach } else { &mut of_attach }) += 1;

            let mut daemon = Program::start(&bed);
            // What was half done is undone; what was whole, but for the answer, is there.
            if bed.phases() == [("p1".to_owned(), PodPhase::Attached)] {
                assert!(!attached, "step {step}: a Detach that began is finished");
                unanswered += 1;
                bed.detach("p1").unwrap_or_else(|error| panic!("after a kill at step {step}: {error}"));
            }
            assert_eq!(bed.phases(), [], "step {step}");
            bed.assert_as(&before);
            bed.attach_to("p1", 2).unwrap_or_else(|error| panic!("after a kill at step {step}: {error}"));
            bed.detach("p1").unwrap_or_else(|error| panic!("after a kill at step {step}: {error}"));
            daemon.terminate();
            bed.assert_as(&before);
        }
        assert!(of_attach > 15 && of_detach >= 6, "{of_attach} and {of_detach} steps");
        assert_eq!(unanswered, 1, "after the result was written");
    });
}

#[test]
fn a_restart_after_kill_serves_running_machines_and_hands_off_again() {
    apart("a_restart_after_kill_serves_running_machines_and_hands_off_again", || {
        let bed = Bed::new();
        // The bridge plugin leaks its masquerading rules, and says so to nobody, where DEL finds no namespace.
        bed.configure(false, "");
        let before = bed.world();
        let mut daemon = Program::start(&bed);
        let net = bed.attach("p1").expect("attached");
        bed.attach("p2").expect("attached");
        let (_, fds) = bed.get(bed.arm("p1")).expect("descriptors");
        let lost = bed.arm("p2");
        daemon.kill();

        // Sockets of the dead daemon are in the way of none; nobody has said Hello to the new one.
        let mut daemon = Program::start(&bed);
        assert_eq!(bed.attach("p1").expect("the same"), net);
        assert_eq!(guest::discover(&fds[0], net.nics[0].mac).expect("an offer"), net.nics[0].addresses[0].ip());
        assert_eq!(bed.get(lost).expect_err("tokens do not survive"), ErrorCode::Denied);
        bed.get(bed.arm("p2")).expect("QEMU's user is remembered");
        daemon.kill();

        // A reboot, as far as namespaces go.
        unmount(&bed.netns("p2"));
        std::fs::remove_file(bed.netns("p2")).expect("removed");
        let mut daemon = Program::start(&bed);
        assert_eq!(bed.phases(), [("p1".to_owned(), PodPhase::Attached), ("p2".to_owned(), PodPhase::Attached)]);
        assert!(bed.attach("p2").expect_err("is of no use").contains("is gone"));
        assert_eq!(bed.client().call(&arm("p2")).expect_err("is of no use").code(), ErrorCode::Conflict);
        drop(fds);
        bed.detach("p1").expect("detached");
        bed.detach("p2").expect("detached");
        daemon.terminate();
        bed.assert_as(&before);
    });
}

#[test]
fn a_second_daemon_and_a_stranger_are_refused() {
    apart("a_second_daemon_and_a_stranger_are_refused", || {
        let bed = Bed::new();
        let daemon = bed.start(Faults::none());
        let runtime = Runtime::new().expect("runtime");
        let second = runtime.block_on(Daemon::start(
            bed.config.clone(),
            Spawner::in_process(&bed.config.cni_plugin_dirs, &bed.config.plugin_locks()).expect("spawner"),
            Arc::new(Faults::none()),
        ));
        assert!(matches!(second.expect_err("locked"), DaemonError::Locked { .. }));
        bed.attach("p1").expect("attached");
        let token = bed.arm("p1");
        bed.hello(QemuUser { uid: 64055, gid: 993 });
        assert_eq!(bed.get(token.clone()).expect_err("root is not QEMU now"), ErrorCode::Denied);
        bed.hello(QemuUser { uid: 0, gid: 0 });
        bed.get(token).expect("a stranger spent no token");
        bed.detach("p1").expect("detached");
        daemon.stop();
    });
}

#[test]
fn a_second_daemon_on_the_node_takes_nothing_from_the_first() {
    apart("a_second_daemon_on_the_node_takes_nothing_from_the_first", || {
        let bed = Bed::new();
        let daemon = bed.start(Faults::none());
        let net = bed.attach("p1").expect("attached");
        // Its namespaces and the result cache are in the same places.
        let dir = tempfile::tempdir().expect("tempdir");
        let (state_dir, run_dir) = (dir.path().join("state"), dir.path().join("run"));
        let other = Bed { config: Config { state_dir, run_dir, ..bed.config.clone() }, dir };
        let second = other.start(Faults::none());
        let report = other.collect_strays();
        assert_eq!(report.removed, [""; 0]);
        assert_eq!(report.kept, [format!("namespace `{}`: its owner is unknown", net.netns.display())]);
        second.stop();
        bed.get(bed.arm("p1")).expect("descriptors");
        assert_eq!(bed.findings("p1"), [""; 0]);
        bed.detach("p1").expect("detached");
        daemon.stop();
    });
}

#[test]
fn broken_networks_and_plugins_are_clear_errors_that_leave_nothing() {
    apart("broken_networks_and_plugins_are_clear_errors_that_leave_nothing", || {
        let mut bed = Bed::new();
        bed.config.cni_deadline = Duration::from_secs(1);
        bed.config.cni_plugin_dirs.insert(0, bed.dir.path().join("bin"));
        let before = bed.world();
        let daemon = bed.start(Faults::none());
        let scripts = [("junk", "echo '<html>'"), ("hang", "exec sleep 600"), ("cross", "echo >&2 no; exit 3")];
        for (name, script) in scripts {
            bed.script(name, script);
        }
        let cases = [
            ("not json", None, ErrorCode::Unavailable, "is refused"),
            ("missing", Some("nowhere"), ErrorCode::Unavailable, "none of the plugin directories"),
            ("junk", Some("junk"), ErrorCode::Internal, "<html>"),
            ("hang", Some("hang"), ErrorCode::Deadline, "within 1 s"),
            ("cross", Some("cross"), ErrorCode::Internal, "stderr: `no`"),
        ];
        for (case, plugin, code, words) in cases {
            match plugin {
                None => std::fs::write(bed.conf_file(), "{").expect("written"),
                // Behind the bridge, so that there is something to undo.
                Some(plugin) => bed.configure(true, &format!(r#",{{"type":"{plugin}"}}"#)),
            }
            let error = bed.client().call(&attach("p1", 1)).expect_err(case);
            assert_eq!(error.code(), code, "{case}: {error}");
            assert!(error.to_string().contains(words), "{case}: {error}");
            // What fails at DEL as it failed at ADD may have left something, and is asked again until it is put right.
            if ["hang", "cross"].contains(&case) {
                assert_eq!(bed.phases(), [("p1".to_owned(), PodPhase::Detaching)], "{case}");
                bed.script(case, "true");
                bed.detach("p1").unwrap_or_else(|error| panic!("{case}: {error}"));
            }
            assert_eq!(bed.status().pods, 0, "{case}");
            bed.assert_as(&before);
        }
        bed.configure(true, "");
        bed.attach("p1").expect("attached");
        bed.detach("p1").expect("detached");
        daemon.stop();
        bed.assert_as(&before);
    });
}

#[test]
fn a_full_disk_fails_an_attach_clearly_and_no_detach() {
    apart("a_full_disk_fails_an_attach_clearly_and_no_detach", || {
        let bed = Bed::new();
        let state = bed.config.state_dir.to_str().expect("text");
        run("mount", &["-t", "tmpfs", "-o", "size=64k", "tmpfs", state]);
        let daemon = bed.start(Faults::none());
        let before = bed.world();
        bed.attach("p1").expect("attached");
        let ballast = bed.config.state_dir.join("ballast");
        let written = std::fs::write(&ballast, vec![0; 1 << 20]).expect_err("full");
        assert_eq!(written.kind(), std::io::ErrorKind::StorageFull);

        let error = bed.client().call(&attach("p2", 1)).expect_err("no room for its intent");
        assert_eq!(error.code(), ErrorCode::Exhausted, "{error}");
        assert!(error.to_string().contains("No space left"), "{error}");
        bed.detach("p1").expect("detached all the same");
        assert_eq!(bed.status().pods, 0);

        std::fs::remove_file(&ballast).expect("removed");
        bed.assert_as(&before);
        bed.attach("p2").expect("attached");
        bed.detach("p2").expect("detached");
        daemon.stop();
    });
}
