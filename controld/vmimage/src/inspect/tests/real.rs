//! Images made by `qemu-img`, and its verdict on those made here.

use std::error::Error as _;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;

use super::*;

/// How long `qemu-img` may take for one small image; `timeout` ends it then.
const DEADLINE_SECONDS: &str = "20";

fn judged_late(path: &Path) -> String {
    let file = File::open(path).expect("made");
    let length = file.metadata().expect("there").len();
    match check_file(&file, length, STRICT).expect("read") {
        Ok(info) => format!("{info:?}"),
        Err(refusal) => format!("{refusal:?} {}", refusal.source().map(ToString::to_string).unwrap_or_default()),
    }
}

/// Whatever is changed in a sound image: if it is taken here, `qemu-img` opens it too. (It may find wrong reference
/// counts, which matter to who writes only.)
#[test]
fn what_is_taken_qemu_opens() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("image");
    let mut taken = 0;
    let numbers = |width: usize| {
        let neighbours = (0..width as u32 * 8).flat_map(|power| [(1_u64 << power) - 1, 1 << power]);
        neighbours.chain((0..8).map(|cluster| cluster * CLUSTER as u64)).chain([!0])
    };
    let mut seen = std::collections::BTreeSet::new();
    for (at, width) in property::FIELDS.into_iter().chain([CLUSTER, L1, L1 + 8, L2, L2 + 8].map(|at| (at, 8))) {
        for number in numbers(width) {
            let mut image = image();
            put(&mut image, at, &number.to_be_bytes()[8 - width..]);
            if verdict(&image, STRICT).is_err() || !seen.insert((at, image[at..at + width].to_vec())) {
                continue;
            }
            std::fs::write(&path, &image).expect("written");
            assert_opens(&path, &format!("{number:#x} at {at}"));
            taken += 1;
        }
    }
    for (what, change) in sound() {
        std::fs::write(&path, changed(&change)).expect("written");
        assert_opens(&path, what);
    }
    assert!(taken > 50, "{taken}: too few to mean anything");
}

fn assert_opens(path: &Path, what: &str) {
    let done =
        Command::new("timeout").args([DEADLINE_SECONDS, "qemu-img", "check", "-q", "-f", "qcow2"]).arg(path).output();
    let done = done.expect("timeout and qemu-img; install the package `qemu-utils`");
    // 2: corrupt clusters, 3: leaked clusters; both are about reference counts.
    let opened = matches!(done.status.code(), Some(0 | 2 | 3));
    assert!(opened, "{what}: {:?}: {}", done.status.code(), String::from_utf8_lossy(&done.stderr));
}

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
        "extended_l2=on",
        "extended_l2=on,preallocation=metadata",
        "extended_l2=on,cluster_size=16k",
        "cluster_size=4k,preallocation=metadata",
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

    let noise: Vec<u8> = (0_u32..1 << 20).map(|number| (number.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    std::fs::write(dir.path().join("noise"), [noise.clone(), vec![0; 1 << 20], vec![7; 1 << 20], noise].concat())
        .expect("written");
    for options in ["compat=0.10", "compression_type=zstd", "cluster_size=512", "extended_l2=on"] {
        for compressed in [&["-c"][..], &[]] {
            if options == "extended_l2=on" && compressed == ["-c"] {
                continue;
            }
            let arguments =
                [&["convert"], compressed, &["-f", "raw", "-O", "qcow2", "-o", options, "noise", "data.qcow2"]];
            run(&arguments.concat());
            assert_eq!(
                judged("data.qcow2"),
                Ok(ImageInfo { format: DiskFormat::Qcow2, virtual_size: 4 << 20 }),
                "{options}"
            );
            let file = File::options().write(true).open(dir.path().join("data.qcow2")).expect("made");
            file.set_len(file.metadata().expect("there").len() / 2).expect("cut");
            assert!(
                judged_late(&dir.path().join("data.qcow2")).contains("points beyond the file's end"),
                "{options}, cut off"
            );
        }
    }

    run(&["create", "-q", "-f", "qcow2", "-b", "plain0.qcow2", "-F", "qcow2", "backed.qcow2"]);
    assert!(judged("backed.qcow2").is_err_and(|error| error.contains("BackingFile")));
    run(&["create", "-q", "-f", "qcow2", "-o", "data_file=data.raw", "datafile.qcow2", "1M"]);
    assert!(judged("datafile.qcow2").is_err_and(|error| error.contains("DataFile")));
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
