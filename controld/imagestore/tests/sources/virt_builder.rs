//! virt-builder's sources.

use std::path::Path;

use imagestore::net::{Ask, Transport};
use imagestore::provider::{Covers, Provider as _, ProviderError, Revision, VirtBuilder, VirtBuilderConfig};
use pgp::composed::{ArmorOptions, CleartextSignedMessage, KeyType, SecretKeyParamsBuilder, SignedSecretKey};
use pgp::types::{KeyDetails as _, Password};
use rand::rngs::OsRng;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha512};
use vmimage::convert::ForeignFormat;
use vmimage::declared::Declared;
use vmimage::inspect::DiskFormat;

use crate::rig::{Files, Server, bytes, chain, client, found, is_absent, locator, refused, want};

fn key() -> SignedSecretKey {
    let mut params = SecretKeyParamsBuilder::default();
    params.key_type(KeyType::Ed25519Legacy).can_certify(true).can_sign(true).primary_user_id("a".into());
    params.build().expect("parameters").generate(OsRng).expect("a key")
}

fn signed(key: &SignedSecretKey, text: &str) -> String {
    let text = text.strip_suffix('\n').expect("ends a line");
    let signed = CleartextSignedMessage::sign(OsRng, text, &key.primary_key, &Password::empty()).expect("signed");
    signed.to_armored_string(ArmorOptions::default()).expect("armor")
}

fn sha512(bytes: &[u8]) -> String {
    Sha512::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

fn entry(name: &str, arch: &str, revision: u64, more: &str) -> String {
    let file = format!("{name}-{arch}.xz");
    format!(
        "[{name}]\nname=An image\narch={arch}\nfile=images/{file}\nchecksum[sha512]={}\nrevision={revision}\nsize=1000\ncompressed_size={}\n{more}\n",
        sha512(file.as_bytes()),
        file.len()
    )
}

/// A source whose index is signed by `key`, and files that hold their names.
struct Bed {
    files: Files,
    server: Server,
    key: SignedSecretKey,
    dir: tempfile::TempDir,
}

impl Bed {
    fn new() -> Self {
        let files = Files::default();
        let (key, dir) = (key(), tempfile::tempdir().expect("a directory"));
        let armored = key.to_public_key().to_armored_string(ArmorOptions::default()).expect("armor");
        std::fs::write(dir.path().join("key.asc"), armored).expect("written");
        Self { server: Server::of(&files), files, key, dir }
    }

    fn sign(&self, index: &str) {
        self.files.put("repo/index.asc", signed(&self.key, index));
    }

    fn provider(&self, settings: Value) -> Result<VirtBuilder, ProviderError> {
        let mut all = json!({ "uri": self.server.url("/repo/index.asc"), "keyring": self.path("key.asc") });
        for (name, value) in settings.as_object().expect("settings") {
            all[name] = value.clone();
        }
        let config: VirtBuilderConfig = serde_json::from_value(all).expect("settings");
        VirtBuilder::new("vb", config, client(), Transport::plain(), Some(self.path("seen.json")))
    }

    fn sound(&self) -> VirtBuilder {
        self.provider(json!({})).expect("a provider")
    }

    fn path(&self, name: &str) -> std::path::PathBuf {
        Path::new(self.dir.path()).join(name)
    }
}

#[tokio::test]
async fn an_image_of_a_signed_index_is_found_and_opened() {
    let bed = Bed::new();
    let index = [
        entry("fedora-40", "x86_64", 2, "aliases=fedora\nosinfo=fedora40\nexpand=/dev/sda3\nnotes=hello"),
        entry("fedora-39", "x86_64", 7, "aliases=fedora f39"),
        entry("fedora-40", "aarch64", 9, "aliases=fedora"),
        entry("fedora", "s390x", 1, "hidden=true"),
    ];
    bed.sign(&index.concat());
    bed.files.put("repo/images/fedora-40-x86_64.xz", "fedora-40-x86_64.xz");
    let provider = bed.sound();
    let image = found(&provider, "fedora-40").await;
    assert_eq!(image.shown, bed.server.url("/repo/images/fedora-40-x86_64.xz"));
    assert_eq!(
        (image.promises[0].covers, image.promises[0].hash.hex()),
        (Covers::Hosted, &*sha512(b"fedora-40-x86_64.xz"))
    );
    assert_eq!(image.metadata.revision, Some(Revision::Number(2)));
    assert_eq!(image.metadata.signed_by, Some(format!("{:X}", bed.key.fingerprint())));
    assert_eq!((image.metadata.virtual_size, image.size), (Some(1000), Some(19)));
    assert_eq!(bytes(&provider, &image, &Ask::default()).await.expect("opened"), b"fedora-40-x86_64.xz");
    // A tag says nothing here: an index has one revision.
    assert_eq!(found(&provider, "fedora-40:8").await.metadata.revision, Some(Revision::Number(2)));
    // An alias of two is that of the higher revision, and a section's own name comes before aliases.
    assert_eq!(found(&provider, "fedora").await.metadata.name, "fedora-39");
    let own = provider.find("fedora:latest", &want("s390x")).await.expect("asked").expect("there");
    assert_eq!(own.metadata.name, "fedora");
    assert!(provider.find("debian", &want("amd64")).await.expect("asked").is_none());
}

#[tokio::test]
async fn the_format_of_a_disk_is_what_the_index_says() {
    let bed = Bed::new();
    let formats = [
        ("qcow2", Some(Declared::Kept(DiskFormat::Qcow2))),
        ("raw", Some(Declared::Kept(DiskFormat::Raw))),
        ("vmdk", Some(Declared::Foreign(ForeignFormat::Vmdk))),
        ("vpc", Some(Declared::Foreign(ForeignFormat::Vhd))),
        ("qed", None),
        ("auto", None),
    ];
    let index = formats.map(|(name, _)| entry(name, "x86_64", 1, &format!("format={name}")));
    bed.sign(&index.concat());
    let provider = bed.sound();
    for (name, format) in formats {
        assert_eq!(found(&provider, name).await.metadata.format, format, "{name}");
    }
}

#[tokio::test]
async fn platforms_rules_search_and_hashes() {
    let bed = Bed::new();
    bed.sign(
        &(entry("a", "aarch64", 1, "")
            + &entry("b", "x86_64", 1, "aliases=ab")
            + &entry("w", "x86_64", 1, "osinfo=win11")),
    );
    let provider = bed.sound();
    assert!(refused(&provider, "a").await.ends_with("not for linux/amd64, only for linux/arm64/v8"));
    assert!(refused(&provider, "w").await.ends_with("only for windows/amd64"));
    let names =
        |found: Vec<imagestore::provider::ImageMetadata>| found.into_iter().map(|image| image.name).collect::<Vec<_>>();
    assert_eq!(names(provider.search("a", None).await.expect("searched")), ["a", "b"]);
    assert_eq!(names(provider.search("a", Some(&want("amd64").platform)).await.expect("searched")), ["b"]);
    let hash = found(&provider, "b").await.promises[0].hash.clone();
    assert_eq!(provider.metadata(&hash).await.expect("asked").expect("there").name, "b");
    for (url, good) in [
        ("virt-builder:b", true),
        ("virt-builder://vb/b", true),
        ("virt-builder://other/b", false),
        ("virt-builder:none", false),
    ] {
        assert_eq!(provider.resolve(&locator(url), &want("amd64")).await.is_ok(), good, "{url}");
    }
    // One conditional request each, once the index is known.
    assert_eq!(bed.server.paths().iter().filter(|path| *path != "/repo/index.asc").count(), 0);
}

#[tokio::test]
async fn what_is_not_signed_by_the_key_is_refused() {
    let bed = Bed::new();
    let index = entry("a", "x86_64", 1, "");
    let sound = signed(&bed.key, &index);
    let forged = format!(
        "the index of `vb` is not signed as it must be: the document is not what key {:X} signed: it was changed at its \
         source or on the way; if another pull says so again, tell whoever runs the source",
        bed.key.fingerprint()
    );
    for (case, document, expected) in [
        ("unsigned", index.clone(), "not signed"),
        ("tampered", sound.replace("revision=1", "revision=2"), &forged),
        ("of another", signed(&key(), &index), "none of the configured keys"),
        ("twice", format!("{sound}{sound}"), "more than one signed block"),
        ("in front", format!("{index}{sound}"), "does not begin with"),
    ] {
        bed.files.put("repo/index.asc", document);
        let error = refused(&bed.sound(), "a").await;
        assert!(error.contains(expected) && !error.contains('\n'), "{case}: {error}");
        assert!(case != "tampered" || error.ends_with(expected), "nothing of the library's: {error}");
    }
    bed.files.put("repo/index.asc", format!("{sound}\n{}", entry("evil", "x86_64", 1, "")));
    let provider = bed.sound();
    assert_eq!(found(&provider, "a").await.metadata.name, "a");
    assert!(provider.find("evil", &want("amd64")).await.expect("asked").is_none());
    // Then unsigned, which is not believed either.
    bed.files.put("repo/index.asc", index);
    assert!(refused(&provider, "a").await.contains("not signed"));
}

#[tokio::test]
async fn an_older_index_is_refused_even_after_a_restart() {
    let bed = Bed::new();
    bed.sign(&entry("a", "x86_64", 5, ""));
    found(&bed.sound(), "a").await;
    bed.sign(&entry("a", "x86_64", 4, ""));
    let provider = bed.sound();
    assert!(refused(&provider, "a").await.contains("revision 4 of `a`, though 5 was seen before"));
    let lax = bed.provider(json!({ "allow_rollback": true })).expect("a provider");
    assert_eq!(found(&lax, "a").await.metadata.revision, Some(Revision::Number(4)));
    // To ask anew is not to forget.
    provider.clear_cache();
    assert!(refused(&provider, "a").await.contains("though 5 was seen before"));
    provider.forget().expect("forgotten");
    assert_eq!(found(&provider, "a").await.metadata.revision, Some(Revision::Number(4)));
}

#[tokio::test]
async fn a_broken_entry_keeps_its_names() {
    let bed = Bed::new();
    let broken = entry("debian", "x86_64", 2, "aliases=stable sid\n").replace("size=", "size=x");
    bed.sign(&format!("{broken}{}", entry("other", "x86_64", 1, "aliases=debian stable\n")));
    let provider = bed.sound();
    // Neither the alias of another image nor another source may answer for it; for the alias of both the sound one does.
    for name in ["debian", "sid"] {
        assert!(refused(&provider, name).await.contains("entry `"), "{name}");
    }
    assert_eq!(found(&provider, "stable").await.metadata.name, "other");
    assert!(provider.find("none", &want("amd64")).await.expect("asked").is_none());
    let dropped: Vec<_> = provider.dropped().into_iter().map(|image| (image.name, image.reason)).collect();
    assert!(matches!(&dropped[..], [(name, reason)] if name == "debian" && reason.contains("size")), "{dropped:?}");
}

#[tokio::test]
async fn settings_must_agree() {
    let bed = Bed::new();
    let other = format!("{:X}", key().fingerprint());
    for settings in [
        json!({ "keyring": null }),
        json!({ "insecure": true }),
        json!({ "keyring": bed.path("none") }),
        json!({ "fingerprint": "ABCD" }),
        json!({ "fingerprint": other }),
        json!({ "keyring": null, "insecure": true, "fingerprint": other }),
        json!({ "uri": "file:///srv/index" }),
    ] {
        assert!(bed.provider(settings.clone()).is_err(), "{settings}");
    }
    let own = format!("{:X}", bed.key.fingerprint());
    assert!(bed.provider(json!({ "fingerprint": own })).is_ok());
    let unknown = serde_json::from_value::<VirtBuilderConfig>(json!({ "uri": "http://a/", "other": 1 }));
    assert!(unknown.is_err());
}

#[tokio::test]
async fn unsigned_indices_are_for_those_who_say_so() {
    let bed = Bed::new();
    let insecure = || bed.provider(json!({ "keyring": null, "insecure": true })).expect("a provider");
    let plain = "[a]\narch=x86_64\nfile=a.xz\nsize=1\n[bad]\narch=x86_64\nfile=../a.xz\nsize=1\n";
    bed.files.put("repo/index.asc", plain);
    let image = found(&insecure(), "a").await;
    assert_eq!((image.promises.len(), image.metadata.signed_by), (0, None));
    assert!(refused(&insecure(), "bad").await.contains("entry `bad` of the index of `vb` cannot be used"));
    bed.sign(plain);
    assert!(refused(&insecure(), "a").await.contains("it is signed"));
    // Who signs an index must say what its files are.
    assert!(refused(&bed.sound(), "a").await.contains("only weak hashes"));
    bed.sign(&format!("[a]\narch=x86_64\nfile=a.xz\nsize=1\nchecksum[md5]={}\n", "a".repeat(32)));
    assert!(refused(&bed.sound(), "a").await.contains("only weak hashes"));
    let lax = bed.provider(json!({ "allow_weak_hashes": true })).expect("a provider");
    assert_eq!(found(&lax, "a").await.promises.len(), 1);
    bed.files.remove("repo/index.asc");
    let why = format!("the index of provider `vb` is not at `{}`", bed.server.url("/repo/index.asc"));
    is_absent(&bed.sound(), &why).await;
    bed.files.put("repo/index.asc", "junk\n");
    assert!(refused(&insecure(), "a").await.contains("line 1: neither a section"));
}

#[tokio::test]
async fn a_file_is_below_the_index_even_after_redirects() {
    use crate::rig::Reply;
    let server = Server::new(|asked| match asked.path.as_str() {
        "/repo/index" => Reply::ok("[a]\narch=x86_64\nfile=a.xz\nsize=1\n[b]\narch=x86_64\nfile=b.xz\nsize=1\n"),
        "/repo/a.xz" => Reply::new(302, "").with("Location", "/elsewhere"),
        "/repo/b.xz" => Reply::new(302, "").with("Location", "/repo/pool/b.xz"),
        _ => Reply::ok("there"),
    });
    let config =
        serde_json::from_value(json!({ "uri": server.url("/repo/index"), "insecure": true })).expect("settings");
    let provider = VirtBuilder::new("vb", config, client(), Transport::plain(), None).expect("a provider");
    let error = bytes(&provider, &found(&provider, "a").await, &Ask::default()).await.expect_err("refused");
    assert!(!server.paths().contains(&"/elsewhere".to_owned()), "{}", chain(&error));
    assert_eq!(bytes(&provider, &found(&provider, "b").await, &Ask::default()).await.expect("opened"), b"there");
}
