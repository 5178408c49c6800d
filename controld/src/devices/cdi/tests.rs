use std::os::unix::fs::symlink;

use super::*;

const DISK: &str = r#"{
    "cdiVersion": "0.6.0", "kind": "example.com/disk",
    "containerEdits": {"env": ["ALL=1"]},
    "devices": [
        {"name": "a", "containerEdits": {
            "env": ["DISK=a"],
            "deviceNodes": [{"path": "/dev/a", "hostPath": "/dev/loop3", "permissions": "r", "type": "b", "major": 7}],
            "mounts": [{"hostPath": "/opt/a", "containerPath": "/a", "options": ["ro", "bind", "nosuid"]}]
        }},
        {"name": "b", "containerEdits": {"deviceNodes": [{"path": "/dev/loop4"}], "hooks": []}}
    ]
}"#;

const CARD: &str = "
cdiVersion: 0.5.0
kind: example.com/card
devices:
- name: '0'
  containerEdits:
    deviceNodes: [{path: /dev/vfio/5}]
    hooks: [{hookName: createContainer, path: /bin/hook}]
    additionalGids: [44]
    mounts:
    - {hostPath: x, containerPath: /x, type: tmpfs}
    - {hostPath: /y, containerPath: /y, options: [noexec]}
";

struct Dirs(tempfile::TempDir);

impl Dirs {
    fn new() -> Self {
        let dir = tempfile::tempdir().expect("tempdir");
        for name in ["etc", "run"] {
            fs::create_dir(dir.path().join(name)).expect("made");
        }
        Self(dir)
    }

    fn file(&self, name: &str, text: &str) {
        fs::write(self.0.path().join(name), text).expect("written");
    }

    fn edits(&self, names: &[&str]) -> Result<Edits, NoCdi> {
        let dirs = ["etc", "run", "absent"].map(|name| self.0.path().join(name));
        edits(&dirs, &names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>())
    }

    fn refused(&self, names: &[&str]) -> String {
        let text = Chain(&self.edits(names).expect_err("refused")).to_string();
        text.replace(&self.0.path().display().to_string(), "")
    }
}

#[test]
fn a_device_has_what_its_file_says_and_what_all_of_the_file_have_once() {
    let dirs = Dirs::new();
    dirs.file("etc/disk.json", DISK);
    dirs.file("run/card.yaml", CARD);
    dirs.file("run/readme.txt", "{");
    let all = dirs.edits(&["example.com/disk=b", "example.com/disk=a", "example.com/disk=a"]).expect("found");
    assert_eq!(all.env, ["ALL=1", "DISK=a"]);
    let nodes: Vec<_> = all.nodes.iter().map(|node| (&*node.host_path, &*node.path, node.read_only)).collect();
    assert_eq!(nodes, [("/dev/loop3", "/dev/a", true), ("/dev/loop4", "/dev/loop4", false)]);
    let mounts: Vec<_> = all.mounts.iter().map(|mount| (&*mount.host_path, &*mount.path, mount.read_only)).collect();
    assert_eq!(mounts, [("/opt/a", "/a", true)]);
    assert!(all.rest.is_empty(), "{:?}", all.rest);
}

#[test]
fn what_no_machine_can_have_is_told_by_its_name() {
    let dirs = Dirs::new();
    dirs.file("run/card.yaml", CARD);
    let all = dirs.edits(&["example.com/card=0"]).expect("found");
    assert_eq!(
        all.rest.into_iter().collect::<Vec<_>>(),
        ["additionalGids", "hooks", "mount option noexec", "mounts of type tmpfs"]
    );
    assert_eq!((all.nodes.len(), all.mounts.len()), (1, 1));
}

#[test]
fn the_later_directory_is_before_the_earlier_one_and_two_of_one_are_an_error() {
    let dirs = Dirs::new();
    dirs.file("etc/disk.json", DISK);
    dirs.file("run/disk.json", &DISK.replace("loop4", "loop9"));
    assert_eq!(dirs.edits(&["example.com/disk=b"]).expect("found").nodes[0].host_path, "/dev/loop9");
    dirs.file("run/other.json", DISK);
    insta::assert_snapshot!(dirs.refused(&["example.com/disk=b"]), @"
    CDI device `example.com/disk=b` is in both `/run/disk.json` and `/run/other.json`; remove it from one
    ");
}

#[test]
fn files_that_are_hostile_cost_nobody_a_device_and_are_told_if_one_is_missing() {
    let dirs = Dirs::new();
    dirs.file("etc/disk.json", DISK);
    dirs.file("etc/a-depth.json", &"[".repeat(10_000));
    dirs.file("etc/b-depth.yaml", &"[".repeat(10_000));
    dirs.file("etc/c-large.json", &" ".repeat((1 << 20) + 1));
    dirs.file("etc/d-bomb.yaml", "a: &a [x,x,x,x,x,x,x,x,x,x]\nb: &b [*a,*a,*a,*a,*a,*a,*a,*a,*a,*a]\nc: &c [*b,*b,*b,*b,*b,*b,*b,*b,*b,*b]\nd: &d [*c,*c,*c,*c,*c,*c,*c,*c,*c,*c]\ne: &e [*d,*d,*d,*d,*d,*d,*d,*d,*d,*d]\nf: &f [*e,*e,*e,*e,*e,*e,*e,*e,*e,*e]\ng: [*f,*f,*f,*f,*f,*f,*f,*f,*f,*f]\n");
    dirs.file("etc/e-version.json", &DISK.replace("0.6.0", "2.0.0"));
    dirs.file("etc/f-kind.json", &DISK.replace("example.com/disk", "disk"));
    dirs.file("etc/g-env.json", &DISK.replace("DISK=a", "=a"));
    dirs.file("etc/h-twice.json", &DISK.replace(r#""name": "b""#, r#""name": "a""#));
    dirs.file("etc/i-type.json", &DISK.replace(r#"["ALL=1"]"#, "7"));
    symlink("/dev/zero", dirs.0.path().join("etc/j-link.json")).expect("linked");
    fs::create_dir(dirs.0.path().join("etc/k-dir.json")).expect("made");
    nix::unistd::mkfifo(&dirs.0.path().join("etc/l-pipe.json"), nix::sys::stat::Mode::S_IRWXU).expect("made");
    assert_eq!(dirs.edits(&["example.com/disk=b"]).expect("found").nodes.len(), 1);
    insta::assert_snapshot!(dirs.refused(&["example.com/disk=c"]).replace("; ", ";\n"), @"
    CDI device `example.com/disk=c` is in no file of `/etc`, `/run`, `/absent`;
    `/etc/a-depth.json` was not understood: it is not JSON: line 1;
    `/etc/b-depth.yaml` was not understood: it is not valid YAML: line 1;
    `/etc/c-large.json` was not understood: it has more than 1048576 bytes;
    `/etc/d-bomb.yaml` was not understood: it is not valid YAML: line 5;
    `/etc/e-version.json` was not understood: its `cdiVersion` is not of the versions 0 or 1 of CDI;
    `/etc/f-kind.json` was not understood: its `kind` is not `vendor/class`;
    `/etc/g-env.json` was not understood: a variable in it is not `NAME=value`;
    `/etc/h-twice.json` was not understood: it has two devices of one name;
    `/etc/i-type.json` was not understood: it has no `env`, or one of another type;
    `/etc/j-link.json` was not understood: failed to read it: Too many levels of symbolic links (os error 40);
    `/etc/k-dir.json` was not understood: it is no regular file;
    `/etc/l-pipe.json` was not understood: it is no regular file
    ");
}

#[test]
fn names_and_numbers_have_limits() {
    let dirs = Dirs::new();
    dirs.file("etc/disk.json", DISK);
    let long = format!("example.com/disk={}", "x".repeat(300));
    for name in ["disk=a", "/disk=a", "example.com/=a", "example.com/disk=", "example.com/disk", "", &long] {
        assert!(matches!(dirs.edits(&[name]), Err(NoCdi::Name(_))), "{name}");
    }
    assert!(matches!(dirs.edits(&["example.com/disk=a"; 65]), Err(NoCdi::Many(65))));
    for n in 0..MAX_FILES {
        dirs.file(&format!("run/{n}.json"), "");
    }
    assert_eq!(dirs.edits(&["example.com/disk=a"]).expect("found").nodes.len(), 1);
    dirs.file("run/one-more.yaml", "");
    assert!(matches!(dirs.edits(&["example.com/disk=a"]), Err(NoCdi::List { .. })));
}
