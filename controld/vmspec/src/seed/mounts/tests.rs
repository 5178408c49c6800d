use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Command, Output};

use super::*;
use crate::seed::tests::disk;

const SHELLS: [&str; 2] = ["sh", "bash"];

fn mount(entry: u16, path: &str, read_only: bool, is_file: bool) -> GuestMount {
    GuestMount { entry, path: path.into(), read_only, options: MountOptions::default(), is_file }
}

fn some() -> [GuestMount; 4] {
    [
        mount(0, "/data/inner", true, false),
        mount(1, "/data", false, false),
        mount(2, "/etc/a.conf", true, true),
        mount(3, "/with a ' quote", false, false),
    ]
}

fn disks() -> [GuestDisk; 4] {
    [
        disk("inner", "/scratch/inner", "xfs"),
        GuestDisk { read_only: true, ..disk("scratch", "/scratch", "ext4") },
        disk("testpvc", "/dev/it's", ""),
        disk("spaced", "/of two words", "ext4"),
    ]
}

#[test]
fn disks_are_mounted_by_their_links_before_what_may_be_below_them() {
    let scratch = disk("scratch", "/scratch", "ext4");
    let alone = json!({"mounts": [[scratch.link, "/scratch", "ext4", format!("rw,{DISK_PATIENCE}"), "0", "2"]]});
    assert_eq!(Value::Object(cloud_config(&[], std::slice::from_ref(&scratch))), alone);
    let read_only = GuestDisk { read_only: true, ..scratch.clone() };
    let line = json!([scratch.link, "/scratch", "ext4", format!("ro,{DISK_PATIENCE}"), "0", "0"]);
    assert_eq!(cloud_config(&[], &[read_only])["mounts"][0], line);
    let image = cloud_config(&[], &[disk("image", "/image", "auto")]);
    assert!(!image.contains_key("mounts"), "its partition is looked for at each boot");
    assert!(
        image["bootcmd"][0][2].as_str().is_some_and(|script| script.contains("virtlet_mount 'image' '/image' auto"))
    );
    let both = cloud_config(&[mount(0, "/scratch/in", false, false)], &[scratch]);
    assert_eq!(both["mounts"].as_array().map(Vec::len), Some(3));
    assert_eq!(both["mounts"][1], alone["mounts"][0]);
}

const NOEXEC: MountOptions = MountOptions { noexec: true, nodev: false, nosuid: false };
const ALL: MountOptions = MountOptions { noexec: true, nodev: true, nosuid: true };

fn with_options() -> ([GuestMount; 3], [GuestDisk; 2]) {
    let mounts = [
        GuestMount { options: ALL, ..mount(0, "/data", true, false) },
        mount(1, "/free", false, false),
        GuestMount { options: NOEXEC, ..mount(2, "/etc/a.conf", false, true) },
    ];
    let disks = [
        GuestDisk { options: ALL, ..disk("scratch", "/scratch", "ext4") },
        GuestDisk { options: NOEXEC, read_only: true, ..disk("image", "/image", ANY_FILE_SYSTEM) },
    ];
    (mounts, disks)
}

#[test]
fn options_are_those_of_disks_and_of_binds_of_a_share_on_which_nothing_starts() {
    let (mounts, disks) = with_options();
    let made = cloud_config(&mounts, &disks);
    let options: Vec<_> = made["mounts"].as_array().expect("lines").iter().map(|line| line[3].as_str()).collect();
    let of_bind = format!("nofail,x-systemd.requires-mounts-for={SHARE_DIR}");
    assert_eq!(
        options,
        [
            Some(&*format!("rw,nosuid,nodev,noexec,{NOFAIL}")),
            Some(&*format!("rw,noexec,nodev,nosuid,{DISK_PATIENCE}")),
            Some(&*format!("bind,ro,nosuid,nodev,noexec,{of_bind}")),
            Some(&*format!("bind,rw,nosuid,nodev,exec,{of_bind}")),
        ]
    );
    let script = made["bootcmd"][0][2].as_str().expect("a script");
    assert_eq!(
        calls(script),
        ["virtlet_mount 'image' '/image' auto ro,noexec", "virtlet_bind 2 '/etc/a.conf' rw,noexec"]
    );
    assert!(script.contains("mount -t virtiofs -o nosuid,nodev,noexec virtlet"), "{script}");
    let whole = super::script(&mounts, &disks);
    assert!(calls(&whole).contains(&"virtlet_bind 1 '/free' rw,exec"), "{whole}");
    // What the share has anyway, changes nothing.
    let harmless = MountOptions { noexec: false, ..ALL };
    let plain = mount(0, "/data", false, false);
    let with = GuestMount { options: harmless, ..plain.clone() };
    assert_eq!(cloud_config(&[with], &[]), cloud_config(&[plain], &[]));
}

/// In a namespace of its own, by the shells and mount programs that are here. In place of virtiofs, which takes a virtual machine, something
/// else is the share.
#[test]
fn the_script_holds_options_of_volumes() {
    let dir = tempfile::tempdir().expect("dir");
    let at = |name: &str| dir.path().join(name).display().to_string();
    let mounts = [
        GuestMount { options: NOEXEC, ..mount(0, &at("held"), false, false) },
        mount(1, &at("free"), false, false),
        GuestMount { options: ALL, ..mount(2, &at("sealed"), true, false) },
    ];
    let whole =
        script(&mounts, &[]).replace("virtlet_share=/run/virtlet/share", &format!("virtlet_share='{}'", at("share")));
    assert!(whole.contains("mount -t virtiofs -o nosuid,nodev,noexec virtlet"), "{whole}");
    let whole = whole.replace("mount -t virtiofs", "mount -t tmpfs");
    let make = format!(
        "cd '{}'; for entry in 0 1 2; do mkdir -p share/$entry; printf '#!/bin/sh\\necho ran\\n' >share/$entry/program; chmod a+x share/$entry/program; done",
        dir.path().display()
    );
    // The entries are there once the share is.
    let whole = whole.replace("virtlet_bind() {", &format!("({make})\nvirtlet_bind() {{"));
    let line = format!(
        "{whole}\n{whole}\ncd '{}'; for dir in held free sealed share/0 share/1; do ./$dir/program 2>&- || echo no; done; touch sealed/x 2>&- || echo no",
        dir.path().display()
    );
    for shell in SHELLS {
        let ran = Command::new("unshare").args(["--map-root-user", "--mount", shell, "-c", &line]).output();
        let ran = ran.expect("unshare starts; util-linux and user namespaces are needed");
        assert_eq!(String::from_utf8_lossy(&ran.stdout), "no\nran\nno\nno\nno\nno\n", "{shell}: {ran:?}");
    }
}

/// The paths of the table, and the script's lines that say a path.
fn places(made: &Map<String, Value>) -> (Vec<&str>, Vec<&str>) {
    let lines = made.get("mounts").and_then(Value::as_array);
    let paths = lines.into_iter().flatten().filter_map(|line| line[1].as_str()).collect();
    (paths, made.get("bootcmd").and_then(|commands| commands[0][2].as_str()).map(calls).unwrap_or_default())
}

fn calls(script: &str) -> Vec<&str> {
    script.lines().filter(|line| line.starts_with("virtlet_") && line.contains(" '")).collect()
}

#[test]
fn what_is_above_is_mounted_first_whichever_of_both_it_is() {
    let mounts = [mount(0, "/a/disk/b/share", false, false), mount(1, "/scratch/conf", false, false)];
    let mounts = [&mounts[..], &[mount(2, "/a", false, false)]].concat();
    let disks =
        [disk("deep", "/a/disk/b", "ext4"), disk("disk", "/a/disk", "xfs"), disk("scratch", "/scratch", "ext4")];
    let order = ["/scratch", "/a", "/a/disk", "/scratch/conf", "/a/disk/b", "/a/disk/b/share"];
    let made = cloud_config(&mounts, &disks);
    assert_eq!(places(&made), ([&[SHARE_DIR], &order[..]].concat(), vec![]));
    let script = script(&mounts, &disks);
    let paths: Vec<&str> = calls(&script)
        .into_iter()
        .filter_map(|line| line.split('\'').rev().find(|word| word.starts_with('/')))
        .collect();
    assert_eq!(paths, order);
}

/// The script comes before the table, or after it.
#[test]
fn what_is_above_or_below_something_of_the_script_is_of_the_script() {
    let mounts = [
        mount(0, "/data/conf/file", false, true),
        mount(1, "/data/sub", false, false),
        mount(2, "/database", false, false),
        mount(3, "/models/more", false, false),
    ];
    let disks =
        [disk("data", "/data", "ext4"), disk("linked", "/data/linked", ""), disk("models", "/models", ANY_FILE_SYSTEM)];
    let made = cloud_config(&mounts, &disks);
    let calls = vec![
        "virtlet_mount 'data' '/data' ext4 rw",
        "virtlet_mount 'models' '/models' auto rw",
        "virtlet_link 'linked' '/data/linked'",
        "virtlet_bind 1 '/data/sub' rw",
        "virtlet_bind 3 '/models/more' rw",
        "virtlet_bind 0 '/data/conf/file' rw",
    ];
    assert_eq!(places(&made), (vec![SHARE_DIR, "/database"], calls));
    assert_eq!(made["bootcmd"].as_array().map(Vec::len), Some(1));
}

#[test]
fn a_file_is_on_the_disk_whose_path_is_the_next_above() {
    let models = GuestDisk { read_only: true, ..disk("models", "/data/models", "auto") };
    let disks = [disk("data", "/data", "ext4"), models, disk("raw", "/raw", "")];
    let mounts = [mount(0, "/data/of-node", false, false)];
    for (path, is_on_disk) in [
        ("/data/a", true),
        ("/data/models/a", false),
        ("/data/of-node/a", false),
        ("/database/a", false),
        ("/raw/a", false),
        ("/etc/a", false),
    ] {
        assert_eq!(super::is_on_disk(path, &mounts, &disks), is_on_disk, "{path}");
    }
}

#[test]
fn disks_are_links_at_each_boot_or_lines_of_the_table_if_that_can_hold_them() {
    insta::assert_snapshot!(serde_json::to_string_pretty(&cloud_config(&[], &disks())).expect("JSON"));
}

#[test]
fn directories_are_lines_of_the_table_and_files_are_a_script() {
    insta::assert_snapshot!(serde_json::to_string_pretty(&cloud_config(&some(), &[])).expect("JSON"));
    assert!(cloud_config(&[], &[]).is_empty());
    assert!(!cloud_config(&[mount(0, "/data", false, false)], &[]).contains_key("bootcmd"));
}

#[test]
fn the_script_is_for_all_of_them() {
    insta::assert_snapshot!(script(&some(), &disks()));
    assert_eq!(script(&[], &[]), "");
    assert!(!script(&some(), &[]).contains("virtlet_disk"));
    assert!(!script(&[], &disks()).contains("virtlet_share"));
}

#[test]
fn any_shell_takes_the_script() {
    for shell in SHELLS {
        let checked = run(shell, &["-n"], &script(&some(), &disks()));
        assert!(checked.status.success(), "{shell}: {checked:?}");
    }
}

#[test]
fn a_link_at_boot_replaces_links_alone() {
    let dir = tempfile::tempdir().expect("dir");
    let at = |name: &str| dir.path().join(name).display().to_string();
    let linked = |path: &str| {
        let Value::Array(words) = link_command(&GuestDisk { path: path.to_owned(), ..disk("testpvc", "", "") }) else {
            unreachable!("a list")
        };
        let words: Vec<&str> = words.iter().filter_map(Value::as_str).collect();
        Command::new(words[0]).args(&words[1..]).output().expect("a shell")
    };
    symlink("/dev/elsewhere", at("old")).expect("linked");
    for path in ["deep/new", "it's", "old", "old"] {
        let made = linked(&at(path));
        assert!(made.status.success() && made.stderr.is_empty(), "{made:?}");
        assert_eq!(fs::read_link(at(path)).expect(path), Path::new("/dev/disk/by-id/virtio-testpvc"));
    }
    for (name, make) in [("node", true), ("dir", false)] {
        if make {
            fs::write(at(name), "kept").expect("written")
        } else {
            fs::create_dir(at(name)).expect("made")
        };
        let kept = linked(&at(name));
        assert!(String::from_utf8_lossy(&kept.stderr).contains("stays what it is"), "{kept:?}");
        assert!(
            !Path::new(&at(name)).is_symlink()
                && fs::read_dir(dir.path().join("dir")).map_or(true, |dir| dir.count() == 0)
        );
    }
}

/// By a tree that stands for the guest's `/sys`, and a `sleep` that only tells that it was called.
#[test]
fn the_script_finds_a_disk_by_its_file_or_page_of_a_serial() {
    let dir = tempfile::tempdir().expect("dir");
    let at = |name: &str| dir.path().join(name);
    for (file, bytes) in [
        ("sys/block/vda/serial", &b""[..]),
        ("sys/block/vdb/serial", b"data-1\n"),
        ("sys/block/vdc/serial", b"data"),
        ("sys/block/sda/device/vpd_pg80", b"\0\x80\0\x06page80"),
        ("sys/block/sdb/device/vpd_pg80", b"\0\x80\0\x14             padded\0"),
        ("sys/block/loop0/size", b"0"),
    ] {
        fs::create_dir_all(at(file).parent().expect("one")).expect("made");
        fs::write(at(file), bytes).expect("written");
    }
    let path = |serial: &str| at(&format!("dev of it's/{serial}"));
    let wanted = ["data-1", "data", "page80", "padded", "absent"];
    let disks = wanted.map(|serial| disk(serial, &path(serial).display().to_string(), ""));
    let whole = script(&[], &disks);
    let whole = whole.replace("virtlet_sys=/sys", &format!("virtlet_sys='{}'", at("sys").display()));
    let whole = format!("sleep() {{ echo \"$1 s\"; }}\n{whole}");
    for shell in SHELLS {
        for _again in 0..2 {
            let ran = run(shell, &[], &whole);
            assert_eq!(String::from_utf8_lossy(&ran.stdout), "1 s\n".repeat(10), "for the absent one alone, {shell}");
            assert_eq!(String::from_utf8_lossy(&ran.stderr), "virtlet: no disk has the serial absent\n", "{shell}");
        }
        for (serial, node) in [("data-1", "vdb"), ("data", "vdc"), ("page80", "sda"), ("padded", "sdb")] {
            assert_eq!(fs::read_link(path(serial)).expect(serial), Path::new("/dev").join(node), "{shell}");
        }
        assert!(!path("absent").is_symlink());
        fs::remove_dir_all(at("dev of it's")).expect("removed");
    }
    fs::create_dir_all(path("data")).expect("made");
    let ran = run("sh", &[], &whole);
    assert!(String::from_utf8_lossy(&ran.stderr).contains("is no link to a disk"), "{ran:?}");
    assert_eq!(fs::read_dir(path("data")).expect("a directory").count(), 0);
}

fn run(shell: &str, options: &[&str], script: &str) -> Output {
    Command::new(shell).args(options).args(["-c", script]).output().expect("a shell")
}

/// By a `mount` that tells its words.
#[test]
fn the_script_mounts_the_partition_that_was_named() {
    let dir = tempfile::tempdir().expect("dir");
    let serial = dir.path().join("sys/block/vdb/serial");
    fs::create_dir_all(serial.parent().expect("one")).expect("made");
    fs::write(serial, "data").expect("written");
    let path = dir.path().join("at").display().to_string();
    let (sys, told) = (format!("virtlet_sys='{}'", dir.path().join("sys").display()), "mount() { echo \"$*\"; }\n");
    for (partition, node) in [(0, "/dev/vdb"), (3, "/dev/vdb3")] {
        let whole = script(&[], &[GuestDisk { partition, ..disk("data", &path, "ext4") }]);
        let whole = format!("set -u\n{told}{}", whole.replace("virtlet_sys=/sys", &sys));
        for shell in SHELLS {
            let ran = run(shell, &[], &whole);
            let expected = format!("-t ext4 -o rw {node} {path}\n");
            assert_eq!(String::from_utf8_lossy(&ran.stdout), expected, "{shell}: {ran:?}");
        }
    }
}
