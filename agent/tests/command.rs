//! The command that a machine is for, and how the agent leaves the guest.
#![allow(clippy::unwrap_used, reason = "a test")]

mod harness;

use std::fs;
use std::path::PathBuf;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use proto::agent::{Main, Message, Setup, Start};
use tempfile::TempDir;

use harness::{Agent, sh, wait_for};

struct Machine {
    agent: Agent,
    dir: TempDir,
}

impl Machine {
    fn start() -> Self {
        let dir = TempDir::new().unwrap();
        let agent = Agent::with(&[dir.path().join("log"), dir.path().join("exit")]);
        Self { agent, dir }
    }

    fn file(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn read(&self, name: &str) -> String {
        fs::read_to_string(self.file(name)).unwrap_or_default()
    }

    fn runs(&mut self, start: Start) {
        self.agent.say(0, setup(start));
        self.agent.expect(0, &Message::Ready(String::new()));
    }

    /// Waits for the agent's end, in place of the guest's.
    fn end(&mut self) -> (String, String) {
        wait_for_end(&mut self.agent);
        (self.read("log"), self.read("exit"))
    }
}

fn wait_for_end(agent: &mut Agent) {
    let child = std::cell::RefCell::new(&mut agent.child);
    wait_for("end of the agent", || child.borrow_mut().try_wait().unwrap().is_some());
}

fn setup(start: Start) -> Message {
    let main = Main { start, read_only_root: false, stop_signal: 15 };
    Message::Setup(Setup { main: Some(main), ..Setup::default() })
}

#[test]
fn output_and_end_of_a_command_are_written_and_the_machine_ends() {
    let mut machine = Machine::start();
    machine.runs(sh("for n in 1 2 3; do echo out $n; echo err $n >&2; done; exit 3"));
    let (log, exit) = machine.end();
    let of = |tag: char| log.lines().filter_map(|line| line.strip_prefix(tag)).collect::<Vec<_>>();
    assert_eq!((of('o'), of('e')), (vec!["out 1", "out 2", "out 3"], vec!["err 1", "err 2", "err 3"]), "{log}");
    assert_eq!(log.lines().count(), 6);
    assert_eq!(exit, "3 \n");
}

#[test]
fn output_without_a_line_end_is_a_piece_of_a_line() {
    let mut machine = Machine::start();
    machine.runs(sh("printf open; printf bad >&2"));
    let (log, exit) = machine.end();
    assert!(["Oopen\nEbad\n", "Ebad\nOopen\n"].contains(&log.as_str()), "{log}");
    assert_eq!(exit, "0 \n");
}

#[test]
fn a_command_that_cannot_be_started_ends_the_machine_with_the_reason() {
    let mut machine = Machine::start();
    machine.agent.say(0, setup(Start { argv: vec!["/no/such".into()], ..Start::default() }));
    let (log, exit) = machine.end();
    assert_eq!(log, "");
    assert_eq!(exit, "127 failed to start `/no/such`: No such file or directory (os error 2)\n");
}

#[test]
fn a_command_outlives_connections_and_is_started_once() {
    let mut machine = Machine::start();
    let go_on = machine.file("go-on");
    machine.runs(sh(&format!("echo started; while [ ! -e {} ]; do sleep 0.05; done", go_on.display())));
    // Another controld.
    machine.agent.greet(8);
    machine.runs(sh(&format!("echo started; while [ ! -e {} ]; do sleep 0.05; done", go_on.display())));
    fs::write(go_on, "").unwrap();
    assert_eq!(machine.end(), ("ostarted\n".into(), "0 \n".into()));
}

#[test]
fn who_is_attached_has_output_and_input_of_the_command_and_its_end() {
    let mut machine = Machine::start();
    machine.runs(Start { stdin: true, ..sh("while read line; do echo got $line; done; exit 5") });
    machine.agent.say(4, Message::Attach);
    assert!(matches!(machine.agent.hear(), (4, Message::Started { .. })));
    machine.agent.say(4, Message::Stdin(b"one\n".to_vec()));
    machine.agent.expect(4, &Message::Stdout(b"got one\n".to_vec()));
    // One more, who leaves again, which is not the end of the command's input.
    machine.agent.say(5, Message::Attach);
    assert!(matches!(machine.agent.hear(), (5, Message::Started { .. })));
    machine.agent.say(5, Message::Cancel);
    machine.agent.say(4, Message::Stdin(b"two\n".to_vec()));
    machine.agent.expect(4, &Message::Stdout(b"got two\n".to_vec()));
    machine.agent.say(4, Message::StdinEnd);
    machine.agent.expect(4, &Message::Exited { code: 5 });
    assert_eq!(machine.end(), ("ogot one\nogot two\n".into(), "5 \n".into()));
}

#[test]
fn who_takes_no_output_holds_up_no_command() {
    let mut machine = Machine::start();
    machine.runs(Start { stdin: true, ..sh("read line; head -c 3000000 /dev/zero | tr '\\0' x") });
    machine.agent.say(4, Message::Attach);
    assert!(matches!(machine.agent.hear(), (4, Message::Started { .. })));
    machine.agent.say(4, Message::Stdin(b"go\n".to_vec()));
    let (log, exit) = machine.end();
    assert_eq!((log.matches('x').count(), exit.as_str()), (3_000_000, "0 \n"));
}

#[test]
fn a_command_that_is_stopped_may_take_its_leave() {
    let mut machine = Machine::start();
    machine.runs(sh("trap 'echo bye; exit 7' TERM; echo ready; while :; do sleep 0.05; done"));
    wait_for("trap", || machine.read("log") == "oready\n");
    machine.agent.say(0, Message::Stop);
    assert_eq!(machine.end(), ("oready\nobye\n".into(), "7 \n".into()));
}

#[test]
fn a_guest_that_shuts_down_ends_its_command_first() {
    let mut machine = Machine::start();
    machine.runs(sh("trap 'echo bye; exit 0' TERM; echo ready; while :; do sleep 0.05; done"));
    wait_for("trap", || machine.read("log") == "oready\n");
    kill(Pid::from_raw(machine.agent.child.id().try_into().unwrap()), Signal::SIGTERM).unwrap();
    assert_eq!(machine.end(), ("oready\nobye\n".into(), "0 \n".into()));
}

#[test]
fn a_machine_for_no_command_is_stopped_by_powering_off() {
    let mut machine = Machine::start();
    machine.agent.say(1, Message::Attach);
    machine.agent.expect(1, &Message::Refused("the machine's command does not run".into()));
    machine.agent.say(0, Message::Stop);
    assert_eq!(machine.end(), (String::new(), String::new()));
}

#[test]
fn what_a_guest_cannot_be_is_said_at_each_greeting() {
    let mut machine = Machine::start();
    for epoch in [7, 8] {
        machine.agent.greet(epoch);
        let setup = Setup { sysctls: vec!["no.such.setting=1".into()], ..Setup::default() };
        machine.agent.say(0, Message::Setup(setup));
        let (0, Message::Ready(why)) = machine.agent.hear() else { panic!("not ready") };
        assert!(why.starts_with("sysctl `no.such.setting` = `1` was not set in the guest: "), "{why}");
    }
}
