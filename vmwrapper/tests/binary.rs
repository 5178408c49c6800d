//! The built binary, between a fake tapmanager that sends real descriptors and a fake emulator that says what it got.

#[path = "binary/server.rs"]
mod server;

use std::fs;
use std::os::unix::ffi::OsStringExt as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use proto::tap::{ErrorBody, ErrorCode, Handoff, HandoffNic, HandoffVfio, Token};

use self::server::{Answer, Server, nics};

const VMWRAPPER: &str = env!("CARGO_BIN_EXE_vmwrapper");
const FAKE_EMULATOR: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fake_emulator.sh");
const SECRET: &str = "00112233445566778899aabbccddeeff";

// === a pod's machine ===

#[test]
fn becomes_the_emulator_with_the_nics_appended() {
    let server = Server::start(Answer::Nics(nics(&[1]), 1));
    let output = pod(&server.path).args(["-name", "guest=a b"]).output().expect("runs");
    assert_eq!(server.requested(), Some(SECRET.parse::<Token>().expect("token")));

    let said = Said::of(&output);
    assert_eq!(said.args[..2], ["-name", "guest=a b"]);
    let (fd, target) = said.fds.first().expect("a descriptor");
    assert_eq!((said.fds.len(), target.as_str()), (1, "/dev/zero"));
    assert_eq!(
        said.args[2..],
        [
            "-netdev",
            &format!("tap,id=vw0,fd={fd},vhost=off"),
            "-device",
            r#"{"driver":"virtio-net-pci","netdev":"vw0","id":"vwnet0","mac":"02:00:00:00:00:00","host_mtu":1450,"bus":"pcie.0","addr":"0x10"}"#,
        ]
    );
    assert_eq!(said.env, ["KEPT=yes", "PATH=/usr/bin:/bin"]);
    assert!(output.stderr.is_empty());
}

#[test]
fn queues_go_to_their_nics_in_order() {
    let server = Server::start(Answer::Nics(nics(&[2, 1]), 3));
    let output = pod(&server.path).env("VIRTLET_NICS", "0x1e,0x10").arg("-S").output().expect("runs");
    let said = Said::of(&output);
    let target = |fd: &str| said.fds.iter().find(|(number, _)| number == fd).map(|(_, target)| target.as_str());
    let (first, last) = said.args[2]
        .strip_prefix("tap,id=vw0,fds=")
        .and_then(|rest| rest.strip_suffix(",vhost=off"))
        .and_then(|numbers| numbers.split_once(':'))
        .expect("two queues");
    let alone = said.args[6].strip_prefix("tap,id=vw1,fd=").and_then(|rest| rest.strip_suffix(",vhost=off"));
    assert_eq!((target(first), target(last)), (Some("/dev/zero"), Some("/dev/full")));
    assert_eq!(target(alone.expect("one queue")), Some("/dev/random"));
    assert!(said.args[4].contains(r#""mq":true,"vectors":6,"bus":"pcie.0","addr":"0x1e""#), "{}", said.args[4]);
    assert!(said.args[8].contains(r#""mac":"02:00:00:00:00:01","host_mtu":1450,"bus":"pcie.0","addr":"0x10""#));
}

#[test]
fn stays_the_same_process_and_keeps_what_it_inherited() {
    let server = Server::start(Answer::Nics(nics(&[1]), 1));
    let mut command = pod(&server.path);
    // The shell hands 9 down, as libvirt does with the monitor.
    let child = wrapped(&mut command, &["/bin/sh", "-c", "exec 9</dev/urandom; exec \"$@\"", "sh"])
        .arg("-S")
        .stdout(Stdio::piped())
        .spawn()
        .expect("runs");
    let pid = child.id();
    let said = Said::of(&child.wait_with_output().expect("ends"));
    assert_eq!(said.pid, pid);
    assert!(said.fds.contains(&("9".into(), "/dev/urandom".into())), "{:?}", said.fds);
    assert_eq!(said.fds.len(), 2);
}

#[test]
fn the_emulator_is_called_by_its_path() {
    let server = Server::start(Answer::Nics(nics(&[1]), 1));
    let output = pod(&server.path)
        .env("VIRTLET_EMULATOR", "/bin/sh")
        .args(["-c", "tr '\\0' '\\n' </proc/$$/cmdline"])
        .output()
        .expect("runs");
    assert!(output.stdout.starts_with(b"/bin/sh\n-c\n"), "{output:?}");
}

#[test]
fn arguments_are_bytes() {
    let server = Server::start(Answer::Nics(nics(&[1]), 1));
    let odd = [&b"\xff\xfe=\x80"[..], b"", b"-device=\t{"];
    let output = pod(&server.path)
        .env("VIRTLET_EMULATOR", "/usr/bin/printf")
        .arg("<%s>")
        .args(odd.map(|bytes| std::ffi::OsString::from_vec(bytes.into())))
        .output()
        .expect("runs");
    assert!(output.stdout.starts_with(b"<\xff\xfe=\x80><><-device=\t{><-netdev><"), "{output:?}");
}

// === what can go wrong there ===

#[test]
fn nobody_listens() {
    let output = pod(Path::new("/nowhere/handoff.sock")).arg("-S").output().expect("runs");
    fails(
        &output,
        69,
        "failed to fetch the pod's network: failed to connect to `/nowhere/handoff.sock`; is tapmanager running?: ENOENT: No such file or directory",
    );
}

#[test]
fn a_silent_server_is_left_at_the_deadline() {
    let server = Server::start(Answer::Silence);
    let output = pod(&server.path).env("VIRTLET_DEADLINE_MS", "50").arg("-S").output().expect("runs");
    let path = server.path.display();
    fails(
        &output,
        69,
        &format!(
            "failed to fetch the pod's network: no answer from `{path}` to `get` within 0.05 s; see tapmanager's log"
        ),
    );
}

#[test]
fn a_server_that_hangs_up() {
    let server = Server::start(Answer::HangUp);
    let output = pod(&server.path).arg("-S").output().expect("runs");
    fails_like(&output, 69, "peer closed the connection; see tapmanager's log");
}

#[test]
fn refusals_are_told() {
    for (code, exit) in [(ErrorCode::Denied, 69), (ErrorCode::NotFound, 69), (ErrorCode::Version, 76)] {
        let message = "token is unknown, used or lapsed; start the container again".to_owned();
        let server = Server::start(Answer::Refusal(ErrorBody { code, message }));
        let output = pod(&server.path).arg("-S").output().expect("runs");
        fails(
            &output,
            exit,
            "failed to fetch the pod's network: tapmanager: token is unknown, used or lapsed; start the container again",
        );
    }
}

fn no_room() -> Answer {
    let message = "too many machines are started at once; ask again later".to_owned();
    Answer::Refusal(ErrorBody { code: ErrorCode::Unavailable, message })
}

#[test]
fn it_asks_again_while_there_is_no_room() {
    let server = Server::answering(vec![no_room(), no_room(), Answer::Nics(nics(&[1]), 1)]);
    let output = pod(&server.path).arg("-S").output().expect("runs");
    assert_eq!(Said::of(&output).fds.len(), 1);
    assert_eq!(server.requested(), Some(SECRET.parse::<Token>().expect("token")));
}

#[test]
fn it_does_not_ask_again_past_the_deadline() {
    let server = Server::answering((0..1000).map(|_| no_room()).collect());
    let output = pod(&server.path).env("VIRTLET_DEADLINE_MS", "300").arg("-S").output().expect("runs");
    // The refusal, or silence if the last time it was asked was a moment before the deadline.
    fails_like(&output, 69, "failed to fetch the pod's network: ");
    assert_eq!(server.requested(), Some(SECRET.parse::<Token>().expect("token")));
}

#[test]
fn answers_that_are_not_of_the_protocol() {
    let advice = "; install vmwrapper and tapmanager of one release";
    for (packet, why) in [
        (&b"hello\xff"[..], "message is not of the tap protocol: expected value at line 1 column 1"),
        (b"{}", "message is not of the tap protocol: missing field `v`"),
        (br#"{"v":1,"x":[]}"#, "peer speaks tap protocol 1, this program speaks 3 to 5; install one release of both"),
        (br#"{"v":3,"fds":1,"body":{"ok":{"nics":{"nics":[]}}}}"#, "message announces 1 descriptors, 0 came"),
        (br#"{"v":3,"fds":0,"body":{"ok":{"nics":{"nics":[{"mac":"02:00:00:00:00:01\",\"x\":\"","mtu":1,"queues":1}]}}}}"#, "is not six pairs of hex digits joined by colons"),
    ] {
        let server = Server::start(Answer::Packet(packet.into()));
        let output = pod(&server.path).arg("-S").output().expect("runs");
        fails_like(&output, 76, why);
        fails_like(&output, 76, advice);
    }
}

#[test]
fn descriptors_and_nics_that_do_not_match() {
    for (queues, sent, slots, why) in [
        (&[1][..], 2, "0x10", "message announces 1 descriptors, 2 came; install"),
        (&[2], 1, "0x10", "message announces 2 descriptors, 1 came; install"),
        (&[1, 1], 2, "0x10", "tapmanager gave 2 NICs, the domain has 1 slots in `VIRTLET_NICS`; delete the pod"),
        (&[1], 1, "0x10,0x11", "tapmanager gave 1 NICs, the domain has 2 slots in `VIRTLET_NICS`; delete the pod"),
        (&[], 0, "0x10", "tapmanager gave 0 NICs, the domain has 1 slots in `VIRTLET_NICS`; delete the pod"),
        (&[1, 0], 1, "0x10,0x11", "tapmanager gave NIC 1 without a queue; install"),
    ] {
        let server = Server::start(Answer::Nics(nics(queues), sent));
        let output = pod(&server.path).env("VIRTLET_NICS", slots).arg("-S").output().expect("runs");
        fails_like(&output, 76, why);
    }
}

#[test]
fn descriptors_of_vhost_follow_the_queues_and_are_as_many() {
    for (vhost, outcome) in [(1, None), (2, Some("tapmanager gave NIC 0 2 vhost descriptors for 1 queues; install"))] {
        let mut handoff = nics(&[1]);
        let [HandoffNic::Tap(tap)] = &mut handoff.nics[..] else { panic!("one tap") };
        tap.vhost = vhost;
        let server = Server::start(Answer::Nics(handoff, 1 + usize::from(vhost)));
        let output = pod(&server.path).env("VIRTLET_NICS", "0x10").arg("-S").output().expect("runs");
        if let Some(why) = outcome {
            fails_like(&output, 76, why);
            continue;
        }
        let said = Said::of(&output);
        let file_of = |key: &str| {
            let number = said.args[2].split(',').find_map(|option| option.strip_prefix(key)).expect("named");
            said.fds.iter().find_map(|(fd, file)| (fd == number).then_some(file.as_str())).expect("inherited")
        };
        assert_eq!((file_of("fd="), file_of("vhostfd=")), ("/dev/zero", "/dev/full"));
    }
}

#[test]
fn a_device_comes_with_what_it_is_used_through() {
    let device = || HandoffNic::Vfio { vfio: HandoffVfio::Descriptor };
    let with = |iommufd| Handoff { nics: vec![device()], iommufd };
    let server = Server::start(Answer::Nics(with(true), 2));
    let said = Said::of(&pod(&server.path).arg("-S").output().expect("runs"));
    let file_of = |place: usize| {
        let fd = said.args[place].split(r#""fd":""#).nth(1).and_then(|rest| rest.split('"').next()).expect("named");
        said.fds.iter().find_map(|(number, file)| (number == fd).then_some(file.as_str())).expect("inherited")
    };
    assert_eq!((said.args[1].as_str(), said.args[3].as_str()), ("-object", "-device"));
    assert_eq!((file_of(2), file_of(4)), ("/dev/zero", "/dev/full"));

    let server = Server::start(Answer::Nics(with(false), 1));
    let output = pod(&server.path).arg("-S").output().expect("runs");
    fails_like(&output, 76, "tapmanager gave NIC 0 as a device and no descriptor of `/dev/iommu`; install");
}

#[test]
fn a_device_that_libvirt_gives_adds_nothing() {
    let handoff = Handoff { nics: vec![HandoffNic::Vfio { vfio: HandoffVfio::Hostdev }], iommufd: false };
    let server = Server::start(Answer::Nics(handoff, 0));
    let said = Said::of(&pod(&server.path).arg("-S").output().expect("runs"));
    assert_eq!(said.args, ["-S"]);
}

#[test]
fn a_wrong_environment_is_told_before_the_token_is_spent() {
    let server = Server::start(Answer::Silence);
    for (name, value, why) in [
        ("VIRTLET_TOKEN", Some("0011"), "variable `VIRTLET_TOKEN` is not 32 lower-case hex digits"),
        ("VIRTLET_TOKEN", None, "variable `VIRTLET_TOKEN` is missing"),
        ("VIRTLET_HANDOFF", Some("handoff.sock"), "variable `VIRTLET_HANDOFF` is not an absolute path"),
        ("VIRTLET_EMULATOR", None, "variable `VIRTLET_EMULATOR` is missing"),
        ("VIRTLET_NICS", Some("0x10\n,"), "variable `VIRTLET_NICS`: `0x10 ` is not a slot from 0x10 to 0x1e"),
        (
            "VIRTLET_DEADLINE_MS",
            Some("-1"),
            "variable `VIRTLET_DEADLINE_MS` is not a number of milliseconds from 1 to 600000",
        ),
    ] {
        let mut command = pod(&server.path);
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
        let why = format!("environment of the domain is wrong: {why}; install controld and vmwrapper of one release");
        fails(&command.arg("-S").output().expect("runs"), 78, &why);
    }
    assert_eq!(server.requested(), None);
}

#[test]
fn a_wrong_emulator_is_told_before_the_token_is_spent() {
    let server = Server::start(Answer::Silence);
    let output = pod(&server.path).env("VIRTLET_EMULATOR", "/nowhere/qemu").arg("-S").output().expect("runs");
    fails(
        &output,
        71,
        "no emulator to become: `/nowhere/qemu` is not there: No such file or directory (os error 2); is QEMU installed?",
    );
    let output = pod(&server.path).env("VIRTLET_EMULATOR", VMWRAPPER).arg("-S").output().expect("runs");
    fails(&output, 78, &format!("no emulator to become: `{VMWRAPPER}` is vmwrapper itself; name the real QEMU"));
    assert_eq!(server.requested(), None);
}

#[test]
fn an_emulator_that_cannot_be_executed() {
    let server = Server::start(Answer::Nics(nics(&[1]), 1));
    let output = pod(&server.path).env("VIRTLET_EMULATOR", "/etc/passwd").arg("-S").output().expect("runs");
    fails(
        &output,
        71,
        "failed to execute emulator `/etc/passwd`: Permission denied (os error 13); is QEMU installed, and may libvirt's user run it?",
    );
}

#[test]
fn no_arguments_is_a_wrong_use() {
    let output = Command::new(VMWRAPPER).env_clear().output().expect("runs");
    fails(&output, 64, "no arguments; libvirt starts this program in the place of QEMU, people start QEMU");
}

// === libvirt's probes ===

#[test]
fn a_probe_goes_to_the_emulator_of_the_file_as_it_is() {
    let output = probe(format!("{FAKE_EMULATOR}\n").as_bytes());
    let said = Said::of(&output);
    assert_eq!(said.args, ["-S", "-machine", "none"]);
    assert_eq!(said.env, ["LC_ALL=C", "PATH=/usr/bin:/bin"]);
    assert!(said.fds.is_empty());
    assert!(output.stderr.is_empty());
}

#[test]
fn a_node_without_the_file_has_the_emulator_of_the_build() {
    let built_in = "/usr/bin/qemu-system-x86_64";
    let output = probe_in(etc().path(), &["-version"]);
    if Path::new(built_in).exists() {
        assert!(output.stdout.starts_with(b"QEMU emulator version "), "{output:?}");
    } else {
        fails_like(&output, 71, &format!("no emulator to become: `{built_in}` is not there"));
    }
}

#[test]
fn a_malformed_emulator_file_is_refused() {
    let long = format!("/{}\n", "a".repeat(4096));
    let advice = "; write one line into it, the absolute path of the real QEMU";
    for (content, problem) in [
        (&b""[..], "is empty"),
        (b"qemu-system-x86_64\n", "does not name an absolute path"),
        (b"/bin/sh\n/bin/true\n", "has more than one line"),
        (b"/bin/sh\0/x\n", "has a NUL byte"),
        (long.as_bytes(), "is longer than a path may be"),
        (&vec![b'/'; 1 << 20], "is longer than a path may be"),
    ] {
        fails(&probe(content), 78, &format!("no emulator to become: `/etc/virtlet/emulator` {problem}{advice}"));
    }
    let own = format!("no emulator to become: `{VMWRAPPER}` is vmwrapper itself; name the real QEMU");
    fails(&probe(VMWRAPPER.as_bytes()), 78, &own);
}

#[test]
fn an_emulator_file_that_is_no_file_is_refused() {
    for made_by in ["mkdir \"$0\"", "mkfifo \"$0\""] {
        let etc = etc();
        let made = Command::new("/bin/sh").args(["-c", made_by]).arg(etc.path().join("virtlet/emulator")).status();
        assert!(made.expect("sh").success());
        fails_like(
            &probe_in(etc.path(), &["-S"]),
            78,
            "no emulator to become: `/etc/virtlet/emulator` is not a regular file",
        );
    }
}

// === helpers ===

/// The binary in the environment of a pod's machine.
fn pod(handoff: &Path) -> Command {
    let mut command = Command::new(VMWRAPPER);
    command
        .env_clear()
        .env("PATH", "/usr/bin:/bin")
        .env("KEPT", "yes")
        .env("VIRTLET_HANDOFF", handoff)
        .env("VIRTLET_TOKEN", SECRET)
        .env("VIRTLET_EMULATOR", FAKE_EMULATOR)
        .env("VIRTLET_NICS", "0x10");
    command
}

/// The same, started by another program.
fn wrapped(command: &mut Command, by: &[&str]) -> Command {
    let mut outer = Command::new(by[0]);
    outer.args(&by[1..]).arg(command.get_program()).args(command.get_args()).env_clear();
    outer.envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
    outer
}

fn etc() -> tempfile::TempDir {
    let etc = tempfile::tempdir().expect("tempdir");
    fs::set_permissions(etc.path(), fs::Permissions::from_mode(0o755)).expect("chmod");
    fs::create_dir(etc.path().join("virtlet")).expect("mkdir");
    etc
}

/// A probe where `/etc/virtlet/emulator` has this content.
fn probe(content: &[u8]) -> Output {
    let etc = etc();
    fs::write(etc.path().join("virtlet/emulator"), content).expect("write");
    probe_in(etc.path(), &["-S", "-machine", "none"])
}

/// A probe where `etc` is `/etc`: in namespaces of its own, so the machine's is not touched.
fn probe_in(etc: &Path, args: &[&str]) -> Output {
    let script = "mount --bind \"$0\" /etc && exec \"$@\"";
    Command::new("/usr/bin/unshare")
        .args(["--map-root-user", "--mount", "/bin/sh", "-c", script])
        .arg(etc)
        .arg(VMWRAPPER)
        .args(args)
        .env_clear()
        .env("PATH", "/usr/bin:/bin")
        .env("LC_ALL", "C")
        .stdin(Stdio::null())
        .output()
        .expect("unshare runs; util-linux and user namespaces are needed")
}

/// Asserts the exit code and the whole line.
#[track_caller]
fn fails(output: &Output, code: i32, text: &str) {
    let line = failure_line(output, code);
    assert_eq!(line, format!("vmwrapper[{code}]: {text}\n"));
}

/// Asserts the exit code and a part of the line.
#[track_caller]
fn fails_like(output: &Output, code: i32, part: &str) {
    let line = failure_line(output, code);
    assert!(line.contains(part), "{line}");
}

#[track_caller]
fn failure_line(output: &Output, code: i32) -> String {
    let line = String::from_utf8(output.stderr.clone()).expect("text");
    assert_eq!(output.status.code(), Some(code), "{line}");
    assert!(output.stdout.is_empty());
    assert!(
        line.starts_with(&format!("vmwrapper[{code}]: ")) && line.ends_with('\n') && line.lines().count() == 1,
        "{line}"
    );
    assert!(!line.contains(SECRET), "the token is shown");
    line
}

/// What `fake_emulator.sh` said.
struct Said {
    pid: u32,
    args: Vec<String>,
    env: Vec<String>,
    fds: Vec<(String, String)>,
}

impl Said {
    #[track_caller]
    fn of(output: &Output) -> Self {
        assert_eq!(output.status.code(), Some(3), "the emulator did not run: {output:?}");
        let text = String::from_utf8(output.stdout.clone()).expect("text");
        let all = |key: &str| -> Vec<String> {
            text.lines().filter_map(|line| line.strip_prefix(key)?.strip_prefix(' ')).map(str::to_owned).collect()
        };
        // What the shell adds by itself is not from vmwrapper.
        let mut env: Vec<String> = all("env").into_iter().filter(|line| !line.starts_with("PWD=")).collect();
        env.sort();
        let fds = all("fd").iter().filter_map(|line| line.split_once(' ')).map(|(a, b)| (a.into(), b.into())).collect();
        Self { pid: all("pid")[0].parse().expect("pid"), args: all("arg"), env, fds }
    }
}
