//! Images made by `qemu-img`, and its verdict on those made here.

use std::os::unix::fs::FileExt;
use std::process::Command;

use super::*;

/// Everything that `qemu-img` makes as plain images must pass, and what stands on other files must not.
#[test]
fn real_images_are_judged_right() {
    let dir = tempfile::tempdir().expect("a directory");
    let run = |arguments: &[&str]| {
        let done = Command::new("qemu-img").args(arguments).current_dir(dir.path()).output();
        let done = done.expect("qemu-img; install the package `qemu-utils`");
        assert!(done.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&done.stderr));
    };
    let judged = |name: &str| {
        let file = File::open(dir.path().join(name)).expect("made");
        let length = file.metadata().expect("there").len();
        let mut head = vec![0; HEAD.min(usize::try_from(length).expect("small"))];
        file.read_exact_at(&mut head, 0).expect("read");
        let early = check_head(&head, Some(length), false, false, STRICT).map_err(|error| format!("{error:?}"));
        let late = check_file(&file, length, STRICT).expect("read").map_err(|error| format!("{error:?}"));
        assert_eq!(early.is_ok(), late.is_ok(), "{name}: {early:?} {late:?}");
        late
    };
    for (number, options) in [
        "compat=0.10",
        "compat=1.1",
        "cluster_size=512",
        "cluster_size=2M",
        "compression_type=zstd",
        "lazy_refcounts=on",
        "refcount_bits=1",
        "refcount_bits=64",
        "preallocation=metadata",
    ]
    .iter()
    .enumerate()
    {
        let name = format!("plain{number}.qcow2");
        run(&["create", "-q", "-f", "qcow2", "-o", options, &name, "1G"]);
        assert_eq!(judged(&name), Ok(ImageInfo { format: DiskFormat::Qcow2, virtual_size: 1 << 30 }), "{options}");
    }
    run(&["snapshot", "-c", "one", "plain1.qcow2"]);
    run(&["bitmap", "--add", "plain1.qcow2", "b"]);
    assert!(judged("plain1.qcow2").is_ok(), "snapshots and bitmaps");

    run(&["create", "-q", "-f", "qcow2", "-b", "plain0.qcow2", "-F", "qcow2", "backed.qcow2"]);
    assert!(judged("backed.qcow2").is_err_and(|error| error.contains("BackingFile")));
    run(&["create", "-q", "-f", "qcow2", "-o", "data_file=data.raw", "datafile.qcow2", "1M"]);
    assert!(judged("datafile.qcow2").is_err_and(|error| error.contains("DataFile")));
    run(&["create", "-q", "-f", "qcow2", "-o", "extended_l2=on", "extl2.qcow2", "1M"]);
    assert!(judged("extl2.qcow2").is_err_and(|error| error.contains("Features(16)")));
    run(&[
        "create",
        "-q",
        "-f",
        "qcow2",
        "--object",
        "secret,id=s,data=x",
        "-o",
        "encrypt.format=luks,encrypt.key-secret=s,encrypt.iter-time=10",
        "luks.qcow2",
        "1M",
    ]);
    assert!(judged("luks.qcow2").is_err_and(|error| error.contains("Encrypted")));
    for format in ["vmdk", "vhdx", "vdi", "qed", "parallels"] {
        run(&["create", "-q", "-f", format, format, "16M"]);
        assert!(judged(format).is_err_and(|error| error.contains("Format {")), "{format}");
    }
}
