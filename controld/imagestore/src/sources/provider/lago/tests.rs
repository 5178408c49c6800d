use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::sources::provider::{Covers, ImageHash};

const REPO: &str = r#"{
  "name": "office",
  "sources": {
    "web": {"type": "http", "args": {"baseurl": "http://host/repo"}},
    "disk": {"type": "file", "args": {"root": "/srv/lago"}},
    "home": {"type": "file", "args": {"root": "~/lago"}},
    "vars": {"type": "file", "args": {"root": "$HOME/lago"}},
    "odd": {"type": "gluster", "args": {}},
    "blank": {"type": "http", "args": {}}
  },
  "templates": {
    "el7": {"versions": {
      "v1": {"source": "web", "handle": "el7.qcow2", "timestamp": 1428328144},
      "v3": {"source": "web", "handle": "el7-new.qcow2", "timestamp": 1428328144.5},
      "v2": {"source": "disk", "handle": "sub/el7.qcow2.xz", "timestamp": 1428328144.25}}},
    "tie": {"versions": {
      "a": {"source": "web", "handle": "a", "timestamp": 5},
      "c": {"source": "web", "handle": "c", "timestamp": 5},
      "b": {"source": "web", "handle": "b", "timestamp": 5.0}}},
    "office": {"versions": {"el7": {"source": "web", "handle": "odd", "timestamp": 0}}},
    "el8": {"versions": {}},
    "no-source": {"versions": {"v": {"source": "gone", "handle": "x", "timestamp": 1}}},
    "no-kind": {"versions": {"v": {"source": "odd", "handle": "x", "timestamp": 1}}},
    "no-url": {"versions": {"v": {"source": "blank", "handle": "x", "timestamp": 1}}},
    "tilde": {"versions": {"v": {"source": "home", "handle": "x", "timestamp": 1}}},
    "dollar": {"versions": {"v": {"source": "vars", "handle": "x", "timestamp": 1}}},
    "up": {"versions": {"v": {"source": "web", "handle": "../x", "timestamp": 1}}},
    "away": {"versions": {"v": {"source": "web", "handle": "http://elsewhere/x", "timestamp": 1}}},
    "root": {"versions": {"v": {"source": "disk", "handle": "/etc/shadow", "timestamp": 1}}}
  }
}"#;

fn repo() -> Repo {
    Repo::parse(REPO.as_bytes()).expect("a repository")
}

#[test]
fn a_name_has_the_repository_and_the_version_or_not() {
    let repo = repo();
    for (name, found) in [
        ("el7", Some("el7:v3")),
        ("el7:v1", Some("el7:v1")),
        ("./el7:v1", Some("el7:v1")),
        ("office:el7:v2", Some("el7:v2")),
        // A template's version comes before a repository's template.
        ("office:el7", Some("office:el7")),
        ("office:tie", Some("tie:c")),
        ("tie", Some("tie:c")),
        ("el7:v4", None),
        ("office:el7:v4", None),
        ("other:el7:v1", None),
        ("el8", None),
        ("el", None),
        ("", None),
    ] {
        let image = repo.find(name).expect(name);
        assert_eq!(image.map(|image| image.name()).as_deref(), found, "{name}");
    }
}

#[test]
fn an_image_is_at_its_source() {
    let repo = repo();
    let image = |name| repo.find(name).expect("sound").expect("found");
    assert_eq!(image("el7").place, Place::Url("http://host/repo".into()));
    assert_eq!(image("el7:v2").place, Place::Dir("/srv/lago".into()));
    assert_eq!(image("el7").created(), Some(1_428_328_144));
    assert_eq!(image("el7:v1").beside(".hash"), ["el7.qcow2.hash"]);
    // What builds repositories takes the end off before it adds another.
    assert_eq!(image("el7:v2").beside(".hash"), ["sub/el7.qcow2.xz.hash", "sub/el7.qcow2.hash"]);
}

#[test]
fn what_leads_elsewhere_is_refused() {
    let repo = repo();
    for (name, why) in [
        ("no-source", "from source `gone`, which is not described"),
        ("no-kind", "of type `gluster`"),
        ("no-url", "no usable `baseurl`"),
        ("tilde", "no usable `root`"),
        ("dollar", "no usable `root`"),
        ("up", "handle `../x`"),
        ("away", "handle `http://elsewhere/x`"),
        ("root", "handle `/etc/shadow`"),
    ] {
        let error = repo.find(name).expect_err(name).to_string();
        assert!(error.contains(why), "{name}: {error}");
    }
    // Others stay usable.
    let found: Vec<_> = repo.search("").filter_map(|image| Some(image.ok()?.name())).collect();
    assert_eq!(found, ["el7:v3", "office:el7", "tie:c"]);
    assert_eq!(repo.search("el").count(), 1);
    assert_eq!(repo.search("no-").filter(Result::is_err).count(), 3);
}

#[test]
fn what_is_no_repository_is_refused() {
    for text in ["", "[]", "{}", r#"{"name": "x", "templates": []}"#, r#"{"name": 1}"#] {
        assert!(Repo::parse(text.as_bytes()).is_err(), "{text}");
    }
    assert!(Repo::parse(br#"{"name": "x"}"#).expect("empty").find("a").expect("sound").is_none());
}

#[test]
fn hashes_are_of_the_disk_and_the_strongest_is_first() {
    let promises = |metadata: Value, hash: Option<&str>| {
        let said = Metadata::parse(metadata.to_string().as_bytes()).expect("metadata");
        let made = said.promises(hash).map_err(|error| error.to_string());
        made.map(|promises| {
            assert!(promises.iter().all(|promise| promise.covers == Covers::Content));
            promises.into_iter().map(|promise| promise.hash).collect::<Vec<ImageHash>>()
        })
    };
    let hash = |text: &str| text.parse::<ImageHash>().expect("a hash");
    let (one, five) = ("ec4c0a608f6db5e0e42de0026a937c0860a3b927", "5".repeat(128));
    let (sha1, sha512) = (hash(&format!("sha1:{one}")), hash(&format!("sha512:{five}")));
    assert_eq!(promises(json!({}), Some(one)), Ok(vec![sha1.clone()]));
    assert_eq!(promises(json!({}), Some(&format!(" {one}\r\n"))), Ok(vec![sha1.clone()]));
    assert_eq!(promises(json!({ "sha1": one }), Some(one)), Ok(vec![sha1.clone()]));
    assert_eq!(promises(json!({ "checksum": five, "sha1": one }), None), Ok(vec![sha512.clone(), sha1.clone()]));
    // In spite of its name it is of the compressed file.
    let misnamed =
        json!({ "checksum": five, "uncompressed_checksum": "6".repeat(128), "compressed_sha1": "7".repeat(40) });
    assert_eq!(promises(misnamed, None), Ok(vec![sha512]));
    // Who contradicts himself is caught by the bytes.
    assert_eq!(promises(json!({ "sha1": "0".repeat(40) }), Some(one)).map(|hashes| hashes.len()), Ok(2));
    for (metadata, hash, why) in [
        (json!({}), None, "neither"),
        (json!({ "distro": "el7" }), None, "neither"),
        (json!({}), Some(""), "broken hash"),
        (json!({}), Some("ec4c"), "broken hash"),
        (json!({}), Some("<html>"), "broken hash"),
        (json!({ "checksum": one }), Some(one), "broken hash"),
    ] {
        let error = promises(metadata.clone(), hash).expect_err("refused");
        assert!(error.contains(why), "{metadata} {hash:?}: {error}");
    }
}

#[test]
fn what_stands_beside_a_disk_is_told() {
    let text = json!({
        "root-password": "cowswin:)", "distro": "el7", "arch": "x86_64", "root-partition": "/dev/sda3", "base": "el7-base:v1",
        "osinfo": "centos7.0", "expand": "/dev/sda4", "size": 6_442_450_944_u64, "commands": []
    });
    let mut told = ImageMetadata::default();
    Metadata::parse(text.to_string().as_bytes()).expect("metadata").tell(&mut told);
    assert_eq!(told.platform, Platform::linux("amd64"));
    assert_eq!((told.distro.as_deref(), told.osinfo.as_deref()), (Some("el7"), Some("centos7.0")));
    assert_eq!((told.root_partition.as_deref(), told.parent.as_deref()), (Some("/dev/sda3"), Some("el7-base:v1")));
    assert_eq!(told.extra.get("root-password").map(String::as_str), Some("cowswin:)"));
    // Bytes of the file that was built, which a qcow2's disk is not.
    assert_eq!((told.virtual_size, told.extra.get("size").map(String::as_str)), (None, Some("6442450944")));
}

proptest! {
    #[test]
    fn whatever_comes_is_an_answer(text in r#"[{}\[\]",:a-z0-9. ]{0,80}"#, at in 0_usize..3000, with in any::<u8>()) {
        let _ = Metadata::parse(text.as_bytes()).map(|said| said.promises(Some(&text)));
        let mut bytes = REPO.as_bytes().to_vec();
        let at = at % bytes.len();
        bytes[at] = with;
        if let Ok(repo) = Repo::parse(&bytes) {
            for image in repo.search("").flatten() {
                prop_assert!(mirror::stays_below(&image.handle));
            }
        }
    }

    #[test]
    fn the_latest_has_the_greatest_time(quarters in prop::collection::vec(-1_000_000_i32..1_000_000, 1..8)) {
        let times: Vec<_> = quarters.into_iter().map(|quarters| f64::from(quarters) / 4.0).collect();
        let versions: serde_json::Map<_, _> = times
            .iter()
            .enumerate()
            .map(|(at, time)| (format!("v{at}"), json!({ "source": "s", "handle": "h", "timestamp": time })))
            .collect();
        let text = json!({
            "name": "r", "sources": { "s": { "type": "http", "args": { "baseurl": "http://host" } } },
            "templates": { "t": { "versions": versions } }
        });
        let repo = Repo::parse(text.to_string().as_bytes()).expect("a repository");
        let found = repo.find("t").expect("sound").expect("found");
        prop_assert!(times.iter().all(|time| *time <= found.timestamp));
    }
}
