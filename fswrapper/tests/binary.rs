//! The built binary, as root of a user namespace of its own, with a fake virtiofsd that says what it would share.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use proto::share::{Bind, FILE, PID_FILE, Share, WRAPPER};
use tempfile::TempDir;

const FSWRAPPER: &str = env!("CARGO_BIN_EXE_fswrapper");
/// What it can without a virtiofsd.
const OWN: &str = "{\"type\": \"fs\", \"features\": [\"separate-options\"]}\n";
const FAKE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fake_virtiofsd.sh");

/// A node with volumes, and the directory that libvirt is told of.
struct Node {
    dir: TempDir,
    shared: PathBuf,
}

impl Node {
    fn new() -> Self {
        let dir = tempfile::tempdir().expect("dir");
        let shared = dir.path().join("shared");
        fs::create_dir(&shared).expect("made");
        fs::create_dir(dir.path().join("config")).expect("made");
        fs::write(dir.path().join("config/a"), "1").expect("written");
        fs::write(dir.path().join("single"), "one file").expect("written");
        symlink("config", dir.path().join("link")).expect("made");
        Self { dir, shared }
    }

    fn bind(&self, name: &str, read_only: bool) -> Bind {
        Bind { source: self.dir.path().join(name), read_only, recursive: false, follows: false, filled: false }
    }

    fn shares(&self, virtiofsd: &Path, mounts: Vec<Bind>) -> Output {
        let share = Share { virtiofsd: virtiofsd.into(), mounts };
        fs::write(self.shared.join(FILE), share.encode().expect("text")).expect("written");
        self.run()
    }

    fn run(&self) -> Output {
        let mut command = Command::new("unshare");
        command.args(["--map-root-user", "--mount", FSWRAPPER, "--fd=7", "--shared-dir"]).arg(&self.shared);
        // What the fake repeats of the shell is compared.
        command.env("LC_ALL", "C");
        command.output().expect("runs")
    }

    fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(&self.shared).expect("read");
        entries.map(|entry| entry.expect("entry").file_name().into_string().expect("text")).collect()
    }
}

fn fails(output: &Output, code: i32, begins: &str) {
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{said}");
    assert!(said.starts_with(&format!("fswrapper[{code}]: {begins}")), "{said}");
    assert_eq!(said.lines().count(), 1, "{said}");
}

#[test]
fn volumes_are_entries_and_nothing_is_left_on_the_node() {
    let node = Node::new();
    // Each file and directory can be written to on the node, and of those that are bound read-only their binds say no.
    let mounts = vec![
        node.bind("config", true),
        node.bind("single", true),
        node.bind("link", false),
        node.bind("single", false),
    ];
    let output = node.shares(Path::new(FAKE), mounts);
    let said = String::from_utf8(output.stdout).expect("text");
    assert!(output.stderr.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
    let args: Vec<_> = said.lines().filter_map(|line| line.strip_prefix("arg ")).collect();
    let expected = [
        "--fd=7",
        "--sandbox=namespace",
        "--seccomp=kill",
        "--modcaps=-mknod:-setfcap",
        "--inode-file-handles=never",
        "--announce-submounts",
        "--xattr",
        "--cache=auto",
        "--log-level=warn",
        "--shared-dir",
        node.shared.to_str().expect("text"),
    ];
    assert_eq!(args, expected, "each of them keeps a guest from something, or shows it what it needs");
    let seen: Vec<_> = said.lines().filter(|line| !line.starts_with("arg ")).collect();
    let expected = [
        "0: a",
        "0: Read-only file system",
        "1: one file",
        "1: Read-only file system",
        "2: a",
        "2 is written to",
        "3: one file",
        "3 is written to",
    ];
    assert_eq!(seen, expected);
    let mut names = node.names();
    names.sort();
    assert_eq!(names, [PID_FILE, FILE], "its mounts are its own");
}

#[test]
fn links_of_what_kubelet_fills_can_be_followed_by_all() {
    let node = Node::new();
    let mode = |name: &str| fs::metadata(node.dir.path().join(name)).expect("there").permissions().mode() & 0o7777;
    for name in ["token", "tmp"] {
        let dir = node.dir.path().join(name);
        fs::create_dir(&dir).expect("made");
        fs::set_permissions(dir, fs::Permissions::from_mode(0o3777)).expect("set");
    }
    let mounts = vec![Bind { filled: true, ..node.bind("token", true) }, node.bind("tmp", true)];
    let output = node.shares(Path::new(FAKE), mounts);
    assert!(output.status.success(), "{output:?}");
    assert_eq!((mode("token"), mode("tmp")), (0o2777, 0o3777), "of others nothing is changed");
}

#[test]
fn what_is_mounted_without_exec_stays_so() {
    let node = Node::new();
    let look = node.dir.path().join("look");
    fs::write(&look, "#!/bin/sh\ngrep ' /.*/shared/0 ' /proc/self/mountinfo | cut -d' ' -f6\n").expect("written");
    fs::set_permissions(&look, fs::Permissions::from_mode(0o755)).expect("set");
    let share = Share { virtiofsd: look, mounts: vec![node.bind("config", false)] };
    fs::write(node.shared.join(FILE), share.encode().expect("text")).expect("written");
    let script = "mount -t tmpfs -o noexec,ro t \"$0/config\" && exec \"$@\"";
    let mut command = Command::new("unshare");
    command.args(["--map-root-user", "--mount", "sh", "-c", script]).arg(node.dir.path()).arg(FSWRAPPER);
    let output = command.args(["--fd=7", "--shared-dir"]).arg(&node.shared).output().expect("runs");
    let said = String::from_utf8_lossy(&output.stdout);
    for flag in ["ro", "noexec", "nosuid", "nodev"] {
        assert!(said.trim().split(',').any(|one| one == flag), "{flag} in `{said}`: {output:?}");
    }
}

#[test]
fn what_cannot_be_shared_is_named() {
    let node = Node::new();
    let absent = node.shares(Path::new(FAKE), vec![node.bind("gone", true)]);
    fails(&absent, 66, "the pod's volumes cannot be shared: `");
    let socket = std::os::unix::net::UnixListener::bind(node.dir.path().join("socket")).expect("bound");
    let refused = node.shares(Path::new(FAKE), vec![node.bind("socket", true)]);
    fails(&refused, 66, "the pod's volumes cannot be shared: `");
    assert!(String::from_utf8_lossy(&refused.stderr).contains("neither a directory nor a file"), "{refused:?}");
    drop(socket);
    let virtiofsd = node.shares(Path::new("/nowhere/virtiofsd"), vec![]);
    fails(&virtiofsd, 71, "failed to execute `/nowhere/virtiofsd`; is virtiofsd installed?");
    fs::write(node.shared.join(FILE), "{}").expect("written");
    fails(&node.run(), 78, "`");
}

#[test]
fn libvirt_is_told_what_the_real_one_can() {
    let node = Node::new();
    let wrapper = node.shared.join(WRAPPER);
    symlink(FSWRAPPER, &wrapper).expect("made");
    let asked = |says: &str| {
        let virtiofsd = node.dir.path().join("virtiofsd");
        fs::write(&virtiofsd, format!("#!/bin/sh\n[ \"$*\" = --print-capabilities ] && echo '{says}'\n"))
            .expect("written");
        fs::set_permissions(&virtiofsd, fs::Permissions::from_mode(0o755)).expect("set");
        let share = Share { virtiofsd, mounts: Vec::new() };
        fs::write(node.shared.join(FILE), share.encode().expect("text")).expect("written");
        Command::new(&wrapper).arg("--print-capabilities").output().expect("runs")
    };
    let says = r#"{"type": "fs", "features": ["migrate-precopy", "separate-options"]}"#;
    let output = asked(says);
    assert_eq!(String::from_utf8_lossy(&output.stdout), format!("{says}\n"), "{output:?}");
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
    let other = asked("virtiofsd 0.1");
    assert_eq!(String::from_utf8_lossy(&other.stdout), OWN, "it may still share");
    let told = String::from_utf8_lossy(&other.stderr).into_owned();
    assert!(other.status.success() && told.starts_with("fswrapper: `") && told.lines().count() == 1, "{told}");
    assert!(told.contains("did not say what virtiofsd can"), "{told}");
}

#[test]
fn what_lies_in_the_current_directory_is_nobodys_word() {
    let node = Node::new();
    let virtiofsd = node.dir.path().join("virtiofsd");
    fs::write(&virtiofsd, "#!/bin/sh\necho '{\"type\": \"fs\"}'\n").expect("written");
    fs::set_permissions(&virtiofsd, fs::Permissions::from_mode(0o755)).expect("set");
    let share = Share { virtiofsd, mounts: Vec::new() };
    fs::write(node.shared.join(FILE), share.encode().expect("text")).expect("written");
    for called in ["fswrapper", "./fswrapper"] {
        let mut command = Command::new(FSWRAPPER);
        command.arg0(called).arg("--print-capabilities").current_dir(&node.shared);
        let output = command.output().expect("runs");
        assert_eq!(String::from_utf8_lossy(&output.stdout), OWN, "{called}");
    }
}

#[test]
fn without_a_share_libvirt_is_told_what_it_can_itself() {
    let output = Command::new(FSWRAPPER).arg("--print-capabilities").output().expect("runs");
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(String::from_utf8_lossy(&output.stdout), OWN);
    fails(&Command::new(FSWRAPPER).output().expect("runs"), 64, "arguments are not libvirt's: no `--fd=N`");
}
