//! Options of the resolver in a guest, whose `/etc` is the agent's own here.
#![allow(clippy::unwrap_used, reason = "a test")]

mod harness;

use proto::agent::{Message, Setup};

use harness::{Agent, wait_for};

const ETC: &str = "mount -t tmpfs etc /etc; exec \"$0\" \"$@\"";

#[test]
fn each_lease_has_the_options_added() {
    let mut agent = Agent::apart::<&str>(ETC, &[]);
    agent.say(0, Message::Setup(Setup { resolver: vec!["ndots:5".into()], ..Setup::default() }));
    agent.expect(0, &Message::Ready(String::new()));
    for lease in ["10.0.0.1", "10.0.0.2"] {
        agent.sees(&format!("cd /etc; echo nameserver {lease} >new; mv new resolv.conf"));
        let text = format!("nameserver {lease}\noptions ndots:5\n");
        wait_for("options of the resolver", || agent.sees("cat /etc/resolv.conf") == text);
    }
}

#[test]
fn a_file_that_another_program_keeps_is_said_to_lack_them() {
    let mut agent = Agent::apart::<&str>(ETC, &[]);
    agent.sees("ln -s ../run/stub /etc/resolv.conf");
    agent.say(0, Message::Setup(Setup { resolver: vec!["ndots:5".into()], ..Setup::default() }));
    let why = "options `ndots:5` of the resolver were not set in the guest: `/etc/resolv.conf` is a symlink to `../run/stub`, so \
               another program keeps it; set them there";
    agent.expect(0, &Message::Ready(why.into()));
}
