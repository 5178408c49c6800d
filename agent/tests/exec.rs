//! Processes that the agent starts.
#![allow(clippy::unwrap_used, reason = "a test")]

mod harness;

use std::io::Write as _;
use std::process::Command;

use proto::agent::{Frame, HEADER, MAX_BODY, Message, Size, Start, Stream, WINDOW, encode};

use harness::{Agent, lives, sh, wait_for};

#[test]
fn streams_and_exit_code_come_back() {
    let mut agent = Agent::start();
    let start = Start { env: vec!["WORD=hello".into()], cwd: "/usr".into(), ..sh("echo $WORD; pwd >&2; exit 3") };
    agent.run(1, start);
    assert_eq!(agent.rest(1), ("hello\n".into(), "/usr\n".into(), 3));
    agent.run(2, sh("kill -9 $$"));
    assert_eq!(agent.rest(2).2, 137);
    agent.say(3, Message::Start(Start { argv: vec!["/no/such".into()], ..Start::default() }));
    agent.expect(3, &Message::Refused("failed to start `/no/such`: No such file or directory (os error 2)".into()));
}

#[test]
fn more_output_than_credit_waits_for_credit_and_holds_up_no_other() {
    let mut agent = Agent::start();
    agent.run(1, sh("head -c 1000000 /dev/zero | tr '\\0' x"));
    let mut got = 0;
    while got < WINDOW as usize {
        let (1, Message::Stdout(data)) = agent.hear() else { panic!("other than output") };
        got += data.len();
    }
    assert_eq!(got, WINDOW as usize);
    agent.run(2, sh("echo passes"));
    assert_eq!(agent.rest(2).0, "passes\n");
    agent.say(1, Message::Credit { stream: Stream::Stdout, bytes: WINDOW });
    assert_eq!(agent.rest(1).0.len() + got, 1_000_000);
}

#[test]
fn input_ends_and_a_process_in_the_background_keeps_nobody() {
    let mut agent = Agent::start();
    agent.run(1, Start { stdin: true, ..sh("cat; sleep 1000 & echo $!") });
    agent.say(1, Message::Stdin(b"line\n".to_vec()));
    agent.say(1, Message::StdinEnd);
    let (out, _, code) = agent.rest(1);
    let sleeps = out.strip_prefix("line\n").expect("input comes back").trim().parse().unwrap();
    assert!(code == 0 && lives(sleeps));
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(i32::try_from(sleeps).unwrap()), nix::sys::signal::SIGKILL)
        .unwrap();
}

#[test]
fn a_key_interrupts_although_the_agent_was_started_in_the_background() {
    let mut agent = Agent::start();
    let tty = Some(Size { width: 80, height: 24 });
    agent.run(1, Start { tty, stdin: true, ..sh("trap 'exit 6' INT; echo ready; while :; do sleep 0.1; done") });
    assert!(matches!(agent.hear(), (1, Message::Stdout(data)) if data == b"ready\r\n"));
    agent.say(1, Message::Stdin(vec![3]));
    assert_eq!(agent.rest(1).2, 6);
}

#[test]
fn a_terminal_has_its_size_and_is_resized() {
    let mut agent = Agent::start();
    let tty = Some(Size { width: 81, height: 25 });
    agent.run(1, Start { tty, stdin: true, ..sh("stty size; read x; stty size; cat; exit 4") });
    assert!(matches!(agent.hear(), (1, Message::Stdout(data)) if data == b"25 81\r\n"));
    agent.say(1, Message::Resize(Size { width: 100, height: 50 }));
    agent.say(1, Message::Stdin(b"\n".to_vec()));
    agent.say(1, Message::StdinEnd);
    let (out, _, code) = agent.rest(1);
    assert!(out.contains("50 100\r\n") && code == 4, "{out:?} {code}");
}

#[test]
fn cancel_kills_descendants_that_left_the_session() {
    let mut agent = Agent::start();
    let pid = agent.run(1, sh("setsid sleep 1000 & sleep 1001 & echo $!; wait; exec sleep 1001"));
    let (1, Message::Stdout(out)) = agent.hear() else { panic!("other than output") };
    let sleeps = String::from_utf8(out).unwrap().trim().parse().unwrap();
    agent.say(1, Message::Cancel);
    assert_eq!(agent.rest(1).2, 137);
    wait_for("end of the session", || !lives(sleeps) && !lives(pid));
    wait_for("end of who left the session", || {
        Command::new("pgrep").args(["-f", "^sleep 1000$"]).output().unwrap().stdout.is_empty()
    });
}

#[test]
fn a_new_hello_after_half_a_frame_ends_what_ran() {
    let mut agent = Agent::start();
    let pid = agent.run(1, sh("exec sleep 1002"));
    let half = encode(&Frame { epoch: 7, session: 1, message: Message::Cancel }).unwrap();
    agent.socket.write_all(&half[..9]).unwrap();
    agent.socket.write_all(b"garbage").unwrap();
    agent.greet(8);
    wait_for("end of what ran", || !lives(pid));
    agent.run(1, sh("echo again"));
    assert_eq!(agent.rest(1).0, "again\n");
}

#[test]
fn a_connection_after_a_frame_that_was_cut_off_is_heard() {
    let mut agent = Agent::start();
    let long = encode(&Frame { epoch: 7, session: 1, message: Message::Stdin(vec![b'x'; 30_000]) }).unwrap();
    agent.socket.write_all(&long[..100]).unwrap();
    agent.socket.write_all(&vec![0; HEADER + MAX_BODY]).unwrap();
    agent.greet(8);
    agent.run(1, sh("echo again"));
    assert_eq!(agent.rest(1).0, "again\n");
}

#[test]
fn no_signal_is_blocked_in_a_process() {
    let mut agent = Agent::start();
    agent.run(1, sh("grep SigBlk /proc/self/status"));
    assert_eq!(agent.rest(1).0, "SigBlk:\t0000000000000000\n");
}

#[test]
fn a_directory_that_is_not_there_is_named() {
    let mut agent = Agent::start();
    agent.say(1, Message::Start(Start { cwd: "/no/such".into(), ..sh("pwd") }));
    agent.expect(1, &Message::Refused("the guest has no directory `/no/such`".into()));
}

#[test]
fn who_goes_on_writing_in_the_background_holds_up_no_end() {
    let mut agent = Agent::start();
    agent.run(1, sh("yes & exit 5"));
    assert_eq!(agent.rest(1).2, 5);
}

#[test]
fn why_a_command_was_refused_is_short() {
    let mut agent = Agent::start();
    agent.say(1, Message::Start(Start { argv: vec!["x".repeat(200_000)], ..Start::default() }));
    let (1, Message::Refused(why)) = agent.hear() else { panic!("not refused") };
    assert!(why.starts_with("failed to start `xxx") && why.len() == 1024, "{}", why.len());
}

#[test]
fn an_agent_that_is_to_end_ends_what_it_has_started() {
    let mut agent = Agent::start();
    let pid = agent.run(1, sh("exec sleep 1003"));
    let own = nix::unistd::Pid::from_raw(i32::try_from(agent.child.id()).unwrap());
    nix::sys::signal::kill(own, nix::sys::signal::SIGTERM).unwrap();
    assert!(agent.child.wait().unwrap().success());
    wait_for("end of what it has started", || !lives(pid));
    // For its own end, which waits for a process.
    agent.child = Command::new("true").spawn().unwrap();
}
