//! Images that a rule or a provider declares as another format, made qcow2 on their way.

use std::fs;
use std::process::Command;

use serde_json::json;
use vmimage::convert::ForeignFormat;
use vmimage::declared::Declared;
use vmimage::error::ErrorKind;
use vmimage::inspect::DiskFormat;

use crate::rig::{Bed, Server, chain, hex, names, sha512};

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
    // The digest that the rule demands leads to what was made of it.
    assert_eq!(bed.store.pull("img").await.expect("pulled").id, pulled.id);
    assert_eq!(server.hits(), 1);
}

#[tokio::test]
async fn what_was_converted_is_told_from_what_came_as_it_is() {
    let (image, _) = vmdk();
    let mut made = Vec::new();
    for more in [format!(", digest: 'sha256:{}'", hex(&image)), String::new()] {
        let server = serving(image.clone());
        let bed = bed(&server, &more, true);
        let pulled = bed.store.pull("img").await.expect("pulled");
        assert!(bed.store.is_converted(&pulled.id), "{more}");
        made = fs::read(&pulled.path).expect("there");
    }
    let server = serving(made);
    let bed = Bed::with("http://unused.example/", |_| ());
    let rule = format!("translations: [{{name: img, url: '{}', format: qcow2}}]", server.url("/image.qcow2"));
    fs::write(bed.dir.path().join("rules/a.yaml"), rule).expect("written");
    let pulled = bed.store.pull("img").await.expect("pulled");
    assert!(!bed.store.is_converted(&pulled.id));
}

/// A Glance with one image, `cirros`, and a store that asks it.
struct Cloud {
    server: Server,
    bed: Bed,
}

impl Cloud {
    /// The image's record is said to have that format, and the SHA-512 of `promised`.
    fn new(image: Vec<u8>, promised: &[u8], disk_format: &str, convert: &[ForeignFormat]) -> Self {
        let hash = sha512(promised);
        let record = json!({
            "id": "71c675ab-d94f-49cd-a114-e12490b328d9", "name": "cirros", "status": "active",
            "disk_format": disk_format, "container_format": "bare", "size": image.len(),
            "os_hash_algo": "sha512", "os_hash_value": hash, "created_at": "2026-11-21T13:00:00Z"
        });
        let list = json!({ "images": [record] }).to_string();
        let server = Server::plain(move |call| match call.path().ends_with("/file") {
            true => call.ok(&image),
            false => call.ok(list.as_bytes()),
        });
        let settings = json!({ "type": "glance", "id": "corp", "endpoint": server.url("/") });
        let bed = Bed::with("http://unused.example/", |config| {
            config.convert = convert.iter().copied().collect();
            config.providers = vec![serde_json::from_value(settings).expect("settings")];
        });
        Self { server, bed }
    }

    /// A rule for `img` that leads to the image, and says more.
    fn rule(&self, more: &str) {
        let rule = format!("translations: [{{name: img, url: 'glance+http://corp/cirros'{more}}}]");
        fs::write(self.bed.dir.path().join("rules/a.yaml"), rule).expect("written");
    }

    fn downloads(&self) -> usize {
        self.server.requests.lock().expect("sound").iter().filter(|head| head.contains("/file ")).count()
    }
}

const VMDK: &[ForeignFormat] = &[ForeignFormat::Vmdk];

#[tokio::test]
async fn what_a_provider_declares_is_made_qcow2() {
    let (image, _) = vmdk();
    let cloud = Cloud::new(image.clone(), &image, "vmdk", VMDK);
    let pulled = cloud.bed.store.pull("cirros").await.unwrap_or_else(|error| panic!("{}", chain(&*error)));
    assert_eq!((pulled.format, pulled.virtual_size), (DiskFormat::Qcow2, DISK as u64));
    assert!(!pulled.weak, "its hash was compared");
    let file = fs::read(&pulled.path).expect("there");
    assert!(file.starts_with(b"QFI\xfb") && pulled.id.hex() == hex(&file));
    // The hash of what is hosted leads to it, also by a rule that says the same.
    for more in ["", ", format: vmdk"] {
        cloud.rule(more);
        assert_eq!(cloud.bed.store.pull("img").await.expect("pulled").id, pulled.id);
    }
    assert_eq!(cloud.bed.store.pull("cirros").await.expect("pulled").id, pulled.id);
    assert_eq!(cloud.downloads(), 1);
    assert_eq!(names(&cloud.bed.images().join("data")), [pulled.id.hex()], "what came is gone");
    let found = cloud.bed.store.search("cirros", "", None).await.expect("searched");
    assert!(found[0].cached && found[0].image.format == Some(Declared::Foreign(ForeignFormat::Vmdk)));
}

#[tokio::test]
async fn what_a_provider_declares_is_refused_if_nobody_allows_it_or_it_is_not_true() {
    let (image, _) = vmdk();
    let pinned = format!("cirros@sha256:{}", hex(&image));
    let refused = ErrorKind::Refused;
    for (name, disk_format, rule, convert, kind, said) in [
        ("cirros", "vmdk", "", &[][..], refused, "list the format in `images.convert`"),
        ("img", "vmdk", "", &[], refused, "list the format in `images.convert`"),
        ("img", "vmdk", ", format: vmdk", &[ForeignFormat::Vdi], refused, "list the format in `images.convert`"),
        (&pinned, "vmdk", "", VMDK, refused, "other bytes once it is converted"),
        ("img", "vmdk", ", format: qcow2", VMDK, refused, "its source says that it is vmdk"),
        ("img", "qcow2", ", format: vmdk", VMDK, refused, "its source says that it is qcow2"),
        ("img", "vhd", ", format: vmdk", &ForeignFormat::ALL, refused, "its source says that it is vhd"),
        ("cirros", "vdi", "", &ForeignFormat::ALL, refused, "declared as a VDI image, but"),
        ("cirros", "qcow2", "", VMDK, refused, "VMDK"),
        ("cirros", "iso", "", &ForeignFormat::ALL, ErrorKind::Server, "disk format `iso`"),
    ] {
        let cloud = Cloud::new(image.clone(), &image, disk_format, convert);
        cloud.rule(rule);
        let error = cloud.bed.store.pull(name).await.expect_err(said);
        assert!(chain(&*error).contains(said), "{name} {disk_format} {rule}: {}", chain(&*error));
        assert_eq!(error.kind(), kind, "{}", chain(&*error));
        cloud.bed.assert_empty().await;
    }
}

#[tokio::test]
async fn a_hash_of_what_is_hosted_is_compared_before_anything_is_converted() {
    let (image, _) = vmdk();
    let mut other = image.clone();
    let last = other.len() - 1;
    other[last] ^= 1;
    let cloud = Cloud::new(other, &image, "vmdk", VMDK);
    let error = cloud.bed.store.pull("cirros").await.expect_err("other bytes");
    assert_eq!(error.kind(), ErrorKind::DigestMismatch, "{}", chain(&*error));
    cloud.bed.assert_empty().await;
}

/// The hash is of bytes. What they are as one format they need not be as another, so each is made anew.
#[tokio::test]
async fn the_same_bytes_as_another_format_are_judged_anew() {
    let (image, _) = vmdk();
    let (server, convert) = (serving(image.clone()), ForeignFormat::ALL);
    let bed = Bed::with("http://unused.example/", |config| config.convert = convert.into_iter().collect());
    let rule = |format: &str| {
        let (url, digest) = (server.url("/image"), hex(&image));
        let rule = format!("translations: [{{name: img, url: '{url}', digest: 'sha256:{digest}', format: {format}}}]");
        fs::write(bed.dir.path().join("rules/a.yaml"), rule).expect("written");
    };
    rule("vmdk");
    bed.store.pull("img").await.expect("pulled");
    for (format, said) in [("vdi", "declared as a VDI image, but"), ("qcow2", "VMDK")] {
        rule(format);
        let error = bed.store.pull("img").await.expect_err(format);
        assert!(chain(&*error).contains(said), "{}", chain(&*error));
    }
}

#[tokio::test]
async fn what_may_not_be_converted_is_refused() {
    let (image, _) = vmdk();
    let digest = hex(&image);
    let wrong = hex(b"other");
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

#[tokio::test]
async fn what_is_here_must_be_what_it_is_declared_as() {
    let disk = vec![0x5a; DISK];
    let sum = hex(&disk);
    let server = serving(disk);
    let bed = Bed::with("http://unused.example/", |config| config.allow_raw = true);
    let rule = |name: &str, more: &str| json!({"name": name, "url": server.url("/image"), "digest": format!("sha256:{sum}"), "format": more});
    let rules = json!({"translations": [rule("raw", "raw"), rule("img", "qcow2")]});
    fs::write(bed.dir.path().join("rules/a.yaml"), rules.to_string()).expect("written");
    bed.store.pull("raw").await.expect("pulled");
    // The same bytes: no download, and still not what the other rule says.
    let error = bed.store.pull("img").await.expect_err("refused");
    assert_eq!(error.kind(), ErrorKind::Refused);
    assert!(chain(&*error).contains("image is here as raw, and is declared as qcow2"), "{}", chain(&*error));
}
