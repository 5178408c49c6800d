//! The pod's volumes in a guest. In place of virtiofs, which takes a virtual machine, a file system is mounted where the agent looks
//! for the share first; in namespaces of the agent's own, so that the tests need not be root's.
#![allow(clippy::unwrap_used, reason = "a test")]

mod harness;

use std::fs;

use proto::agent::{Main, Message, Mount, MountOptions, Setup};
use tempfile::TempDir;

use harness::{Agent, sh, wait_for};

/// `/run` is the agent's own, or the host would be changed. The agent is run again when it has ended.
const NO_SHARE: &str = "mount -t tmpfs run /run; setpriv --pdeathsig KILL \"$0\" \"$@\"; exec \"$0\" \"$@\"";
/// The last entry is a file system of the node's that has another one's numbers of files, as two of a pod's may.
const SHARE: &str = "mount -t tmpfs run /run; share=/run/virtlet/share; mkdir -p $share; mount -t tmpfs virtlet $share;
    mkdir $share/0 $share/2 $share/4; echo zero >$share/0/name; echo one >$share/1; echo two >$share/2/name; mkdir $share/2/sub;
    mount -t tmpfs other $share/4; echo four >$share/4/name; echo five >$share/5;
    setpriv --pdeathsig KILL \"$0\" \"$@\"; exec \"$0\" \"$@\"";

struct Guest {
    agent: Agent,
    dir: TempDir,
}

impl Guest {
    fn start(script: &str) -> Self {
        let dir = TempDir::new().unwrap();
        let agent = Agent::apart(script, &[dir.path().join("log"), dir.path().join("exit")]);
        Self { agent, dir }
    }

    fn at(&self, name: &str) -> String {
        self.dir.path().join(name).to_str().unwrap().to_owned()
    }

    fn mount(&self, entry: u16, name: &str, read_only: bool) -> Mount {
        Mount { entry, path: self.at(name), read_only, options: MountOptions::default() }
    }

    /// What is not done of it.
    fn set_up(&mut self, mounts: &[Mount]) -> String {
        self.agent.say(0, Message::Setup(Setup { mounts: mounts.to_vec(), ..Setup::default() }));
        let (0, Message::Ready(why)) = self.agent.hear() else { panic!("not ready") };
        why
    }

    /// What a script in the guest prints, there.
    fn prints(&self, script: &str) -> String {
        self.agent.sees(&format!("cd {}; {script}", self.dir.path().display()))
    }
}

#[test]
fn volumes_are_seen_where_the_pod_has_them() {
    let mut guest = Guest::start(SHARE);
    fs::create_dir_all(guest.at("there")).unwrap();
    // Not in the order that they have to be made in.
    let mounts = [
        guest.mount(1, "outer/sub/file", true),
        guest.mount(2, "outer", false),
        guest.mount(0, "there", true),
        guest.mount(4, "new/dir", false),
        guest.mount(5, "etc/conf", false),
    ];
    assert_eq!(guest.set_up(&mounts), "");
    assert_eq!(
        guest.prints("cat there/name outer/name outer/sub/file new/dir/name etc/conf"),
        "zero\ntwo\none\nfour\nfive\n"
    );
    // What is read-only is, and the rest is the node's own.
    let write = "for file in there/name outer/sub/file; do echo x 2>&- >$file || echo no; done; echo x >outer/name; echo y >etc/conf; \
                 cat /run/virtlet/share/*/name /run/virtlet/share/1 /run/virtlet/share/5";
    assert_eq!(guest.prints(write), "no\nno\nzero\nx\nfour\none\ny\n");
    // Nobody else does.
    assert!(!fs::exists(guest.at("outer/name")).unwrap());
}

#[test]
fn an_agent_that_is_started_again_mounts_nothing_twice() {
    let mut guest = Guest::start(SHARE);
    let mounts = [guest.mount(0, "a b", true), guest.mount(4, "a", false), guest.mount(1, "file", false)];
    let list = "grep -c . /proc/self/mountinfo; grep -c ' ro,' /proc/self/mountinfo";
    assert_eq!(guest.set_up(&mounts), "");
    let before = guest.prints(list);
    guest.agent.say(0, Message::Stop);
    guest.agent.begins();
    guest.agent.greet(8);
    assert_eq!(guest.set_up(&mounts), "");
    assert_eq!(guest.prints(list), before);
    // An agent that was killed between the two steps of one.
    let mounts = [guest.mount(4, "a", true)];
    assert_eq!(guest.set_up(&mounts), "");
    assert_ne!(guest.prints(list), before);
    assert_eq!(guest.prints("echo x 2>&- >a/name || echo no"), "no\n");
}

#[test]
fn options_of_a_volume_are_held_and_others_are_as_they_were() {
    let mut guest = Guest::start(SHARE);
    let noexec = MountOptions { noexec: true, ..MountOptions::default() };
    let all = MountOptions { noexec: true, nodev: true, nosuid: true };
    let mounts = [
        guest.mount(0, "free", false),
        Mount { options: noexec, ..guest.mount(0, "held", false) },
        Mount { options: all, ..guest.mount(4, "all", true) },
        Mount { options: noexec, ..guest.mount(1, "file", false) },
    ];
    assert_eq!(guest.set_up(&mounts), "");
    let programs = "printf '#!/bin/sh\necho ran\n' >free/program; cat free/program >file; chmod a+x free/program file; \
                    for program in free/program held/program ./file; do $program 2>&- || echo no; done";
    assert_eq!(guest.prints(programs), "ran\nno\nno\n");
    // Of the kernel's list, the options of the mount itself.
    let options =
        |guest: &Guest, name: &str| guest.prints(&format!("awk '$5 ~ /.{name}$/ {{ print $6 }}' /proc/self/mountinfo"));
    let before = ["free", "held", "all", "file"].map(|name| options(&guest, name));
    assert_eq!(before.each_ref().map(|options| options.matches("noexec").count()), [0, 1, 1, 1], "{before:?}");
    assert_eq!(before[2], "ro,nosuid,nodev,noexec,relatime\n");
    guest.agent.say(0, Message::Stop);
    guest.agent.begins();
    guest.agent.greet(8);
    assert_eq!(guest.set_up(&mounts), "");
    assert_eq!(["free", "held", "all", "file"].map(|name| options(&guest, name)), before);
    // An agent that was killed between the two steps of one, which keeps what it has.
    assert_eq!(guest.set_up(&[Mount { options: noexec, ..guest.mount(0, "free", true) }]), "");
    assert_eq!(guest.set_up(&[Mount { options: all, ..guest.mount(0, "free", false) }]), "");
    assert_eq!(options(&guest, "free"), "ro,nosuid,nodev,noexec,relatime\n");
}

/// As an agent did that mounted a disk after a volume below it.
#[test]
fn a_volume_that_a_later_mount_hides_is_mounted_again() {
    let mut guest = Guest::start(SHARE);
    let mounts = [guest.mount(2, "outer/two", true)];
    let number = "grep -c /outer/two /proc/self/mountinfo";
    assert_eq!(guest.set_up(&mounts), "");
    assert_eq!(guest.prints(&format!("mount -t tmpfs disk outer; {number}; ls outer")), "1\n");
    guest.agent.say(0, Message::Stop);
    guest.agent.begins();
    guest.agent.greet(8);
    // Once, also if more is mounted then.
    for mounts in [&mounts[..], &[mounts[0].clone(), guest.mount(0, "other", false)]] {
        assert_eq!(guest.set_up(mounts), "");
        let line = format!("cat outer/two/name; {number}; echo x 2>&- >outer/two/name || echo no");
        assert_eq!(guest.prints(&line), "two\n2\nno\n");
    }
}

#[test]
fn what_is_not_mounted_is_said_and_the_rest_is() {
    let mut guest = Guest::start(SHARE);
    fs::write(guest.at("file"), "").unwrap();
    let of = |entry, path: &str| Mount { entry, path: path.into(), ..Mount::default() };
    let mounts =
        [of(0, "/proc/x"), guest.mount(9, "none", false), guest.mount(0, "file", false), guest.mount(2, "two", false)];
    let why = guest.set_up(&mounts);
    let volume = |path: &str, why: &str| format!("volume `{path}` was not mounted in the guest: {why}");
    assert_eq!(
        why.lines().collect::<Vec<_>>(),
        [
            volume("/proc/x", "the path is in `/proc`, `/sys` or `/dev`, which are the guest's kernel's"),
            volume(
                &guest.at("none"),
                "`/run/virtlet/share/9` of the share not found: No such file or directory (os error 2)"
            ),
            volume(&guest.at("file"), "it is a file in the guest, and the volume a directory; take another path"),
        ]
    );
    assert_eq!(guest.prints("cat two/name; ls"), "two\nfile\ntwo\n");
}

#[test]
fn a_command_does_not_start_without_its_volumes() {
    for (script, why) in [
        (NO_SHARE, "127 share `virtlet` was not mounted at `/run/virtlet/share` in the guest, nor any volume of it: "),
        (SHARE, "127 volume `/sys` was not mounted in the guest: the path is in `/proc`, `/sys` or `/dev`"),
    ] {
        let mut guest = Guest::start(script);
        let mounts = vec![guest.mount(0, "a", false), Mount { path: "/sys".into(), ..Mount::default() }];
        let main = Main { start: sh("echo started"), read_only_root: false, stop_signal: 15 };
        guest.agent.say(0, Message::Setup(Setup { mounts, main: Some(main), ..Setup::default() }));
        wait_for("end of the machine", || fs::exists(guest.at("exit")).unwrap());
        wait_for("reason", || fs::read_to_string(guest.at("exit")).unwrap().ends_with('\n'));
        let exit = fs::read_to_string(guest.at("exit")).unwrap();
        assert!(exit.starts_with(why) && exit.lines().count() == 1, "{exit}");
        assert!(!fs::exists(guest.at("log")).unwrap());
    }
}
