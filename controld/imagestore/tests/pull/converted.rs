//! Images that a rule declares as another format, made qcow2 on their way.

use std::fs;
use std::process::Command;

use imagestore::{DiskFormat, ErrorKind, ForeignFormat};
use sha2::{Digest, Sha256};

use crate::rig::{Bed, Server, chain, hex, names};

const DISK: usize = 4 << 20;

/// A VMDK image, and the disk in it.
fn vmdk() -> (Vec<u8>, Vec<u8>) {
    let dir = tempfile::tempdir().expect("a directory");
    let mut disk = vec![0; DISK];
    disk[1 << 20..2 << 20].fill(0x5a);
    fs::write(dir.path().join("disk"), &disk).expect("written");
    let made = Command::new("qemu-img")
        .args(["convert", "-f", "raw", "-O", "vmdk", "disk", "image"])
        .current_dir(dir.path())
        .output()
        .expect("qemu-img; install the package `qemu-utils`");
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    (fs::read(dir.path().join("image")).expect("made"), disk)
}

/// A store with a rule for `img` that declares VMDK, and says more.
fn bed(server: &Server, more: &str, convert: bool) -> Bed {
    let bed = Bed::with("http://unused.example/", |config| {
        config.convert = convert.then_some(ForeignFormat::Vmdk).into_iter().collect();
    });
    let rule = format!("translations: [{{name: img, url: '{}', format: vmdk{more}}}]", server.url("/image.vmdk"));
    fs::write(bed.dir.path().join("rules/a.yaml"), rule).expect("written");
    bed
}

fn serving(image: Vec<u8>) -> Server {
    Server::plain(move |call| call.ok(&image))
}

#[tokio::test]
async fn what_a_rule_declares_is_made_qcow2() {
    let (image, disk) = vmdk();
    let digest = hex(&image);
    let server = serving(image);
    let bed = bed(&server, &format!(", digest: 'sha256:{digest}'"), true);
    let pulled = bed.store.pull("img").await.expect("pulled");
    assert_eq!((pulled.format, pulled.virtual_size), (DiskFormat::Qcow2, DISK as u64));
    let file = fs::read(&pulled.path).expect("there");
    assert!(file.starts_with(b"QFI\xfb"));
    assert_eq!(pulled.id.hex(), hex(&file), "it is known by the bytes that are kept");
    let raw = bed.dir.path().join("raw");
    let read =
        Command::new("qemu-img").args(["convert", "-f", "qcow2", "-O", "raw"]).arg(&pulled.path).arg(&raw).output();
    assert!(read.expect("ran").status.success());
    assert!(fs::read(&raw).expect("read") == disk, "the same disk");
    assert_eq!(names(&bed.images().join("data")), [pulled.id.hex()], "what came is gone");
}

#[tokio::test]
async fn what_may_not_be_converted_is_refused() {
    let (image, _) = vmdk();
    let digest = hex(&image);
    let wrong = Sha256::digest(b"other").iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let text = b"# Disk DescriptorFile\nversion=1\nRW 1 FLAT \"/etc/passwd\" 0\n".to_vec();
    let mut other = image.clone();
    other[0] ^= 1;
    for (name, image, more, convert, kind, said) in [
        ("img".to_owned(), image.clone(), String::new(), false, ErrorKind::Refused, "images.convert"),
        (format!("img@sha256:{digest}"), image.clone(), String::new(), true, ErrorKind::Refused, "into the rule"),
        ("img".to_owned(), image, format!(", digest: 'sha256:{wrong}'"), true, ErrorKind::DigestMismatch, "digest"),
        ("img".to_owned(), text, String::new(), true, ErrorKind::Refused, "VMDK"),
        ("img".to_owned(), other, String::new(), true, ErrorKind::Refused, "VMDK"),
    ] {
        let server = serving(image);
        let bed = bed(&server, &more, convert);
        let error = bed.store.pull(&name).await.expect_err(said);
        assert_eq!(error.kind(), kind, "{}", chain(&error));
        assert!(chain(&error).contains(said), "{}", chain(&error));
        bed.assert_empty().await;
    }
}
