//! A boot that waits at the gate.
#![allow(clippy::unwrap_used, reason = "a test")]

mod harness;

use std::cell::RefCell;
use std::process::{Command, ExitStatus, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use proto::agent::Message;

use harness::{Agent, lives, sh, wait_for};

fn end_of_the_wait(agent: &mut Agent) -> ExitStatus {
    let child = RefCell::new(&mut agent.child);
    wait_for("end of the wait", || child.borrow_mut().try_wait().unwrap().is_some());
    agent.child.wait().unwrap()
}

fn waits(agent: &mut Agent) -> bool {
    agent.child.try_wait().unwrap().is_none()
}

#[test]
fn a_boot_goes_on_when_it_is_told_and_not_before() {
    // A process runs in it while it waits, by which the harness finds the agent.
    let mut agent = Agent::at_gate();
    // Another controld, which may have been told to go on and not have said so.
    agent.greet_at_gate(8);
    assert!(waits(&mut agent));
    agent.say(0, Message::GoOn);
    assert!(end_of_the_wait(&mut agent).success());
    // The agent stays, and nobody waits any more. Again is fine.
    agent.say(0, Message::GoOn);
    agent.greet(9);
    agent.run(1, sh("echo on"));
    assert_eq!(agent.rest(1).0, "on\n");
    assert!(lives(agent.daemon.unwrap()));
}

#[test]
fn what_a_connection_before_says_opens_no_gate() {
    let mut agent = Agent::at_gate();
    agent.epoch = 6;
    agent.say(0, Message::GoOn);
    agent.greet_at_gate(8);
    assert!(waits(&mut agent));
}

#[test]
fn a_boot_does_not_wait_for_an_agent_that_is_gone() {
    for signal in [Signal::SIGKILL, Signal::SIGTERM] {
        let mut agent = Agent::at_gate();
        kill(Pid::from_raw(agent.daemon.unwrap().try_into().unwrap()), signal).unwrap();
        assert_eq!(end_of_the_wait(&mut agent).code(), Some(1), "{signal}");
    }
}

/// This machine is none of virtlet's that a node waits for.
#[test]
fn a_boot_for_which_no_node_waits_goes_on_at_once() {
    let mut gate = Command::new(env!("CARGO_BIN_EXE_virtlet-agent"));
    // The agent itself finds no port here, and says so when it has waited for one.
    let output =
        gate.arg("gate").stdin(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap().wait_with_output().unwrap();
    assert!(output.status.success());
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.starts_with("virtlet-agent: no virtio-serial port `org.virtlet.agent.0` in "), "{said}");
}
