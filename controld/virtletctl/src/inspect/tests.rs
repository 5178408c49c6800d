use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

use clap::Parser as _;

use super::super::cli::{Cli, Command, ImageCommand};
use super::super::error::Line;
use super::*;

/// What is printed, or the exit code and the line of the error; the directory is taken out.
fn inspect(dir: &Path, arguments: &[&str]) -> Result<String, (u8, String)> {
    let arguments = ["virtletctl", "image", "inspect"].iter().chain(arguments);
    let Command::Image { command: ImageCommand::Inspect(mut wanted) } =
        Cli::try_parse_from(arguments).expect("arguments").command
    else {
        panic!("not this command")
    };
    wanted.path = dir.join(wanted.path);
    let mut out = Vec::new();
    match run(&wanted, &mut out) {
        Ok(()) => Ok(String::from_utf8(out).expect("UTF-8")),
        Err(error) => {
            // Programs are told in JSON, people by the error alone.
            let reason = match &error {
                CtlError::OfImage(error) => error.refusal(),
                _ => None,
            };
            let wanted = reason.filter(|_| wanted.json).map(|reason| json!({ "taken": false, "reason": reason }));
            assert_eq!(serde_json::from_slice::<serde_json::Value>(&out).ok(), wanted);
            assert!(wanted.is_some() || out.is_empty(), "nothing else is printed of what is refused");
            Err((error.exit_code(), Line(&error).to_string().replace(dir.to_str().expect("UTF-8"), "DIR")))
        }
    }
}

/// A sound image of 1 GiB without data, with these fields changed.
fn image(path: &Path, fields: &[(u64, &[u8])]) {
    let file = File::create(path).expect("made");
    file.set_len(4 << 16).expect("long");
    let sound: [(u64, &[u8]); 9] = [
        (0, b"QFI\xfb\0\0\0\x03"),
        (20, &16_u32.to_be_bytes()),
        (24, &(1_u64 << 30).to_be_bytes()),
        (36, &2_u32.to_be_bytes()),
        (40, &(3_u64 << 16).to_be_bytes()),
        (48, &(1_u64 << 16).to_be_bytes()),
        (56, &1_u32.to_be_bytes()),
        (96, &4_u32.to_be_bytes()),
        (100, &112_u32.to_be_bytes()),
    ];
    for (at, bytes) in sound.iter().chain(fields) {
        file.write_all_at(bytes, *at).expect("written");
    }
}

#[test]
fn what_would_be_taken_is_described() {
    let dir = tempfile::tempdir().expect("directory");
    image(&dir.path().join("a.qcow2"), &[(80, &1_u64.to_be_bytes())]);
    let parent = format!("sha256:{}", "ab".repeat(32));
    let format = [&0xe279_2aca_u32.to_be_bytes()[..], &5_u32.to_be_bytes(), b"qcow2"].concat();
    let layered: [(u64, &[u8]); 4] =
        [(8, &512_u64.to_be_bytes()), (16, &71_u32.to_be_bytes()), (112, &format), (512, parent.as_bytes())];
    image(&dir.path().join("child"), &layered);
    std::fs::write(dir.path().join("disk"), [7; 1024]).expect("written");
    let told = [
        &["a.qcow2"][..],
        &["child", "--format=qcow2", "--layered"],
        &["child", "--layered", "--json"],
        &["--format", "raw", "disk"],
        &["--format", "raw", "disk", "--json"],
    ]
    .map(|arguments| inspect(dir.path(), arguments).expect("taken"));
    insta::assert_snapshot!(told.join("\n"), @r#"
    format            qcow2
    virtual size      1.0 GiB (1073741824 bytes)
    file size         256 KiB (262144 bytes)
    version           3
    cluster size      64 KiB (65536 bytes)
    compression       zlib
    refcount bits     16
    features          lazy-refcounts
    snapshots         0
    bitmaps           0
    parent            -

    format            qcow2
    virtual size      1.0 GiB (1073741824 bytes)
    file size         256 KiB (262144 bytes)
    version           3
    cluster size      64 KiB (65536 bytes)
    compression       zlib
    refcount bits     16
    features          -
    snapshots         0
    bitmaps           0
    parent            sha256:abababababababababababababababababababababababababababababababab
    parent's format   qcow2

    {
      "bitmaps": 0,
      "clusterSize": 65536,
      "compression": "zlib",
      "features": [],
      "fileSize": 262144,
      "format": "qcow2",
      "parent": "sha256:abababababababababababababababababababababababababababababababab",
      "parentFormat": "qcow2",
      "refcountBits": 16,
      "snapshots": 0,
      "taken": true,
      "version": 3,
      "virtualSize": 1073741824
    }

    format            raw
    virtual size      1.0 KiB (1024 bytes)
    file size         1.0 KiB (1024 bytes)

    {
      "fileSize": 1024,
      "format": "raw",
      "taken": true,
      "virtualSize": 1024
    }
    "#);
}

#[test]
fn what_would_not_be_taken_is_told_with_the_reason() {
    let dir = tempfile::tempdir().expect("directory");
    let path = |name: &str| dir.path().join(name);
    let backed: [(u64, &[u8]); 3] =
        [(8, &512_u64.to_be_bytes()), (16, &11_u32.to_be_bytes()), (512, b"/etc/pa\x1bswd")];
    image(&path("backed"), &backed);
    image(&path("json:{\"driver\":\"null-co\"}"), &[(72, &4_u64.to_be_bytes())]);
    image(&path("nbd:localhost"), &[(24, &(1_u64 << 62).to_be_bytes())]);
    std::fs::write(path("disk"), [7; 1024]).expect("written");
    std::fs::write(path("empty"), []).expect("written");
    std::fs::write(path("page"), b"<html>").expect("written");
    std::fs::write(path("disk.gz"), b"\x1f\x8b\x08 and more").expect("written");
    std::fs::write(path("disk.lz4"), b"\x04\x22\x4d\x18 and more").expect("written");
    std::fs::write(path("disk.vmdk"), b"KDMV and more").expect("written");
    let layer: [(u64, &[u8]); 3] = [(8, &512_u64.to_be_bytes()), (16, &7_u32.to_be_bytes()), (512, b"el7:3.1")];
    image(&path("layer"), &layer);
    nix::unistd::mkfifo(&path("fifo"), nix::sys::stat::Mode::S_IRWXU).expect("fifo");
    let lines: Vec<String> = [
        &["backed"][..],
        &["--format", "raw", "backed"],
        &["json:{\"driver\":\"null-co\"}"],
        &["nbd:localhost", "--json"],
        &["disk"],
        &["empty"],
        &["page", "--format", "raw"],
        &["disk.gz"],
        &["disk.lz4"],
        &["disk.vmdk", "--json"],
        &["layer"],
        &["layer", "--json"],
        &["fifo", "--json"],
        &["."],
        &["nothing"],
        &["json:{\"driver\":\"file\",\"filename\":\"disk\"}"],
    ]
    .iter()
    .map(|arguments| {
        let (code, line) = inspect(dir.path(), arguments).expect_err("refused");
        format!("{code} {line}")
    })
    .collect();
    insta::assert_snapshot!(lines.join("\n"), @r#"
    65 `DIR/backed` would not be taken: unsafe or broken qcow2 image: its backing file `/etc/pa\u{1b}swd` is neither the hash nor the name of an image; flatten it with `qemu-img convert`
    65 `DIR/backed` would not be taken: declared as a raw disk, but it is a qcow2 image
    65 `DIR/json:{"driver":"null-co"}` would not be taken: unsafe or broken qcow2 image: its data are in another file; make it whole with `qemu-img convert`
    65 `DIR/nbd:localhost` would not be taken: unsafe or broken qcow2 image: L1 table of 2 entries, but the disk's size needs 8589934592
    65 `DIR/disk` would not be taken: not a qcow2 image (it begins with `07 07 07 07 07 07 07 07`); if it is a raw disk, say so with --format raw
    65 `DIR/empty` would not be taken: empty image
    65 `DIR/page` would not be taken: a web page instead of a disk image; check the URL and whether the server wants a login
    65 `DIR/disk.gz` would not be taken: compressed by gzip; decompress it first; for this command only: a pull unpacks it, and judges what is in it
    65 `DIR/disk.lz4` would not be taken: compressed by lz4; decompress it first
    65 `DIR/disk.vmdk` would not be taken: a VMDK image; only plain qcow2 images are taken; a pull converts it if `images.convert` lists its format, and a rule's `format` or a provider declares it
    65 `DIR/layer` would not be taken: it stands on `el7:3.1`; flatten it with `qemu-img convert`, or have layers taken by `images.layered` or `virtletctl image pull`, as --layered assumes
    65 `DIR/layer` would not be taken: it stands on `el7:3.1`; flatten it with `qemu-img convert`, or have layers taken by `images.layered` or `virtletctl image pull`, as --layered assumes
    66 failed to inspect `DIR/fifo`: the image is not a regular file
    66 failed to inspect `DIR/.`: the image is not a regular file
    66 failed to inspect `DIR/nothing`: failed to open the image: No such file or directory (os error 2)
    66 failed to inspect `DIR/json:{"driver":"file","filename":"disk"}`: failed to open the image: No such file or directory (os error 2)
    "#);
}
