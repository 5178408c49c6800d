use proptest::prelude::*;
use serde_json::{Value, json};
use vmimage::inspect::DiskFormat;

use super::tree::{Dated as _, Index, Item, Products};
use super::*;

const INDEX: &str = r#"{
  "format": "index:1.0", "updated": "Tue, 08 Mar 2016 01:02:03 +0000",
  "index": {
    "com.example:b": {"format": "products:1.0", "datatype": "image-downloads", "path": "streams/v1/b.json", "products": ["p"]},
    "com.example:a": {"format": "products:1.0", "path": "streams/v1/com.example:a.sjson"},
    "com.example:ids": {"format": "products:1.0", "datatype": "image-ids", "path": "streams/v1/ids.json"},
    "com.example:new": {"format": "products:2.0", "path": "streams/v1/new.json"},
    "com.example:mirrors": {"format": "mirrors:1.0"}
  }
}"#;

const PRODUCTS: &str = r#"{
  "format": "products:1.0", "updated": "Tue, 08 Mar 2016 01:02:03 +0000", "os": "cirros",
  "products": {
    "net.cirros:0.6:arm64": {
      "arch": "arm64", "version": "0.6", "aliases": "cirros, stable",
      "versions": {"20240101": {"items": {"disk.img": {"ftype": "disk.img", "path": "0.6/arm64.img", "size": 10, "sha256": "SHA256"}}}}
    },
    "net.cirros:0.6:amd64": {
      "arch": "amd64", "version": "0.6", "aliases": "cirros,stable,", "release": "six",
      "versions": {
        "20240110": {"pubname": "cirros-0.6-20240110", "items": {
          "disk.img": {"path": "0.6/b.img", "size": "12", "sha256": "SHA256", "md5": "MD5"},
          "disk.qcow2": {"path": "0.6/b.qcow2", "sha256": "SHA256"},
          "squashfs": {"ftype": "squashfs", "path": "0.6/b.squashfs", "sha256": "SHA256"}}},
        "20240109.10": {"pubname": "cirros-0.6-20240109.10", "ftype": "disk1.img", "items": {
          "z": {"path": "0.6/a.img", "sha256": "SHA256", "sha512": "SHA512"}}},
        "20240111": {"items": {"manifest": {"ftype": "manifest", "path": "0.6/c.manifest", "sha256": "SHA256"}}}
      }
    },
    "net.cirros:old:amd64": {
      "arch": "amd64", "md5": "MD5",
      "versions": {"1": {"items": {"disk.img": {"path": "old.img"}}}}
    },
    "net.cirros:bad:amd64": {
      "arch": "amd64",
      "versions": {
        "1": {"items": {"disk.img": {"path": "sound.img", "sha256": "SHA256"}}},
        "2": {"items": {"disk.img": {"path": "../../etc/shadow", "sha256": "SHA256"}}}
      }
    },
    "net.cirros:none:amd64": {"arch": "amd64"}
  }
}"#;

fn products() -> Products {
    Products::parse(filled(PRODUCTS).as_bytes()).expect("products")
}

fn filled(text: &str) -> String {
    let hash = |text: &str, name: &str, with: char, count| {
        text.replace(&format!("\"{name}\""), &format!("\"{}\"", with.to_string().repeat(count)))
    };
    hash(&hash(&hash(text, "SHA256", 'A', 64), "SHA512", 'b', 128), "MD5", 'c', 32)
}

fn kinds() -> Vec<String> {
    default_kinds()
}

fn named(products: &Products, name: &str) -> Vec<String> {
    products.named(name, &kinds()).map(|Item { product, serial, .. }| format!("{product} {serial}")).collect()
}

#[test]
fn an_index_names_files_of_downloads_alone() {
    let index = Index::parse(INDEX.as_bytes()).expect("an index");
    assert_eq!(index.date(), Some("Tue, 08 Mar 2016 01:02:03 +0000"));
    let files: Vec<_> = index.files.values().map(String::as_str).collect();
    assert_eq!(files, ["streams/v1/com.example:a.sjson", "streams/v1/b.json"]);
}

#[test]
fn what_is_no_index_is_refused() {
    for (text, why) in [
        ("", "JSON"),
        ("[]", "JSON"),
        (r#"{"index": {}}"#, "format ``"),
        (r#"{"format": "index:2.0", "index": {}}"#, "format `index:2.0`"),
        (r#"{"format": "products:1.0", "index": {}}"#, "format `products:1.0`"),
        (&INDEX.replace("streams/v1/b.json", "../b.json"), "`../b.json`"),
        (&INDEX.replace("streams/v1/b.json", "http://elsewhere/b.json"), "`http://elsewhere/b.json`"),
        (&format!("{}{}", "[".repeat(10_000), "]".repeat(10_000)), "JSON"),
    ] {
        let error = Index::parse(text.as_bytes()).expect_err(text).to_string();
        assert!(error.contains(why), "{text}: {error}");
    }
    assert!(Products::parse(INDEX.as_bytes()).is_err());
}

#[test]
fn a_name_is_an_id_an_alias_a_release_a_version_or_that_of_one_publication() {
    let products = products();
    let amd64 = "net.cirros:0.6:amd64 20240110";
    let both = [amd64, "net.cirros:0.6:arm64 20240101"];
    for (name, found) in [
        ("net.cirros:0.6:amd64", &[amd64][..]),
        ("cirros", &both),
        ("stable", &both),
        ("0.6", &both),
        ("six", &[amd64]),
        ("cirros-0.6-20240110", &[amd64]),
        ("cirros-0.6-20240109.10", &["net.cirros:0.6:amd64 20240109.10"]),
        ("net.cirros:none:amd64", &[]),
        ("amd64", &[]),
        ("", &[]),
        ("CIRROS", &[]),
    ] {
        assert_eq!(named(&products, name), found, "{name}");
    }
}

#[test]
fn versions_are_ordered_by_the_bytes_of_their_serials() {
    let products = products();
    let kinds = kinds();
    let serials: Vec<_> = products.versions("net.cirros:0.6:amd64", &kinds).map(|item| item.serial).collect();
    // The newest of all has no disk; `.` is before `1`.
    assert_eq!(serials, ["20240110", "20240109.10"]);
}

#[test]
fn the_preferred_kind_is_taken_whatever_it_is_called() {
    let products = products();
    let path = |kinds: &[&str]| {
        let kinds: Vec<_> = kinds.iter().map(|kind| (*kind).to_owned()).collect();
        let item = products.named("six", &kinds).next()?;
        Some(item.checked().expect("sound").path)
    };
    assert_eq!(path(&["disk.img", "disk.qcow2"]).as_deref(), Some("0.6/b.img"));
    assert_eq!(path(&["disk.qcow2", "disk.img"]).as_deref(), Some("0.6/b.qcow2"));
    // By the kind that its version has, or by its key.
    assert_eq!(path(&["disk1.img"]).as_deref(), Some("0.6/a.img"));
    assert_eq!(path(&["z"]).as_deref(), Some("0.6/a.img"));
    assert_eq!(path(&["y"]), None);
    assert_eq!(path(&["manifest"]).as_deref(), Some("0.6/c.manifest"));
    assert_eq!(path(&[]), None);
}

#[test]
fn keys_are_inherited_and_the_strongest_hash_counts() {
    let products = products();
    let kinds = kinds();
    let disk = |name: &str| products.named(name, &kinds).next().expect("found").checked().expect("sound");
    let found = disk("six");
    assert_eq!((found.path.as_str(), found.size), ("0.6/b.img", Some(12)));
    assert_eq!(found.hash.to_string(), format!("sha256:{}", "a".repeat(64)));
    assert_eq!(found.weaker.len(), 1);
    assert_eq!(disk("cirros-0.6-20240109.10").hash.to_string(), format!("sha512:{}", "b".repeat(128)));
    // The hash is the product's.
    assert_eq!(disk("net.cirros:old:amd64").hash.to_string(), format!("md5:{}", "c".repeat(32)));
    let item = products.named("six", &kinds).next().expect("found");
    assert_eq!(item.distro(), Some("cirros"));
    assert_eq!(item.platform(), Some(Platform::linux("x86_64")));
    assert_eq!(item.updated(), Some(1_457_398_923));
}

#[test]
fn a_broken_newest_version_is_an_error_and_never_an_older_one() {
    let products = products();
    let item = products.named("net.cirros:bad:amd64", &kinds()).next().expect("found");
    assert_eq!(item.serial, "2");
    let error = item.checked().expect_err("another path").to_string();
    assert!(error.ends_with("does not lead below the root of the mirror"), "{error}");
    for (item, why) in [
        (json!({ "path": "a", "sha256": "abc" }), "broken hash"),
        (json!({ "path": "a", "sha512": "g".repeat(128) }), "broken hash"),
        (json!({ "path": "a", "sha256": "a".repeat(64), "md5": "" }), "broken hash"),
        (json!({ "path": "a" }), "no hash"),
        (json!({ "sha256": "a".repeat(64) }), "no path"),
        (json!({ "path": "", "sha256": "a".repeat(64) }), "does not lead below"),
        (json!({ "path": "a/%2e%2e/b", "sha256": "a".repeat(64) }), "does not lead below"),
        (json!({ "path": "https://host/b", "sha256": "a".repeat(64) }), "does not lead below"),
    ] {
        let error = one(&item).checked().expect_err("refused").to_string();
        assert!(error.contains(why), "{item}: {error}");
    }
}

/// The one item of a file of products.
fn one(item: &Value) -> Item {
    let text = json!({ "format": "products:1.0", "products": { "p": { "versions": { "1": { "items": { "disk.img": item } } } } } });
    let products = Products::parse(text.to_string().as_bytes()).expect("products");
    let mut kinds = kinds();
    kinds.extend(item["ftype"].as_str().map(str::to_owned));
    products.named("p", &kinds).next().expect("found")
}

#[test]
fn the_format_is_told_by_the_kind_or_the_path() {
    for (kind, path, format) in [
        ("qcow2", "a.img", Some(DiskFormat::Qcow2)),
        ("disk.qcow2", "a", Some(DiskFormat::Qcow2)),
        ("raw.xz", "a", Some(DiskFormat::Raw)),
        ("disk.img", "a.raw.gz", Some(DiskFormat::Raw)),
        ("disk.img", "a.img", None),
    ] {
        let item = one(&json!({ "ftype": kind, "path": path }));
        assert_eq!((item.format(), item.platform()), (format, None), "{kind} {path}");
    }
}

#[test]
fn a_uri_is_a_root_or_an_index() {
    for (uri, root, index) in [
        ("https://host", "https://host/", None),
        ("https://host/releases", "https://host/releases/", None),
        ("https://host/releases/", "https://host/releases/", None),
        ("https://host/releases/streams/v1/", "https://host/releases/", None),
        ("https://host/streams/v1/index.sjson", "https://host/", Some("streams/v1/index.sjson")),
        ("https://host/a/streams/v1/sub/my.json", "https://host/a/", Some("streams/v1/sub/my.json")),
    ] {
        let (found, path) = split(&Url::parse(uri).expect("a URL"));
        assert_eq!((found.as_str(), path.as_deref()), (root, index), "{uri}");
    }
}

#[test]
fn settings_that_contradict_each_other_are_refused() {
    let client = Arc::new(Client::new(net::NetConfig::default()));
    let made = |text: serde_json::Value| {
        let config: SimplestreamsConfig = serde_json::from_value(text).expect("settings");
        Simplestreams::new("p", &config, client.clone(), Transport::plain(), None).map(|made| made.indices)
    };
    let why = |text| {
        let error = made(text).expect_err("refused");
        std::error::Error::source(&error).expect("a cause").to_string()
    };
    let uri = "https://host/";
    assert!(why(json!({ "uri": uri })).contains("name a `keyring`"));
    assert!(why(json!({ "uri": uri, "insecure": true, "keyring": "/k" })).contains("contradict"));
    assert!(why(json!({ "uri": "ftp://host/", "insecure": true })).contains("http"));
    let signed = json!({ "uri": "https://host/streams/v1/index.sjson", "insecure": true });
    assert!(why(signed).contains("needs a `keyring`"));
    assert!(made(json!({ "uri": uri, "keyring": "/nowhere" })).is_err());
    let made = made(json!({ "uri": uri, "insecure": true })).expect("made");
    assert_eq!(made, ["streams/v1/index.json"]);
    let unknown = serde_json::from_value::<SimplestreamsConfig>(json!({ "uri": uri, "secure": true }));
    assert!(unknown.is_err());
}

proptest! {
    #[test]
    fn whatever_comes_is_an_answer(text in r#"[{}\[\]",:a-z0-9. ]{0,80}"#, at in 0_usize..2000, with in any::<u8>()) {
        let _ = (Index::parse(text.as_bytes()), Products::parse(text.as_bytes()));
        let mut bytes = filled(PRODUCTS).into_bytes();
        let at = at % bytes.len();
        bytes[at] = with;
        if let Ok(products) = Products::parse(&bytes) {
            for item in products.newest(&kinds()) {
                if let Ok(disk) = item.checked() {
                    prop_assert!(super::mirror::stays_below(&disk.path));
                }
            }
        }
    }

    #[test]
    fn the_newest_is_the_greatest_in_the_order_of_bytes(serials in prop::collection::btree_set("[0-9a-z._]{1,8}", 1..8)) {
        let versions: serde_json::Map<_, _> = serials
            .iter()
            .map(|serial| (serial.clone(), json!({ "items": { "disk.img": { "path": serial } } })))
            .collect();
        let text = json!({ "format": "products:1.0", "products": { "p": { "versions": versions } } });
        let products = Products::parse(text.to_string().as_bytes()).expect("products");
        let newest = products.named("p", &kinds()).next().expect("found");
        prop_assert_eq!(Some(&newest.serial), serials.iter().max_by_key(|serial| serial.as_bytes()));
    }
}
