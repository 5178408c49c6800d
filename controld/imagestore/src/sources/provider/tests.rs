use url::Url;

use super::*;
use crate::sources::net::{self, Transport};

mod file;
mod registry;

pub(super) fn locator(url: &str) -> Locator {
    Locator::new(Url::parse(url).expect("a URL"), "a test".into(), Transport::plain())
}

#[test]
fn hashes_are_exact_or_none() {
    for (alg, length) in [(HashAlg::Md5, 32), (HashAlg::Sha1, 40), (HashAlg::Sha256, 64), (HashAlg::Sha512, 128)] {
        let text = format!("{}:{}", alg.name(), "ab".repeat(length / 2));
        let hash: ImageHash = text.parse().expect("a hash");
        assert_eq!((hash.alg(), hash.to_string(), hash.hex().len()), (alg, text.clone(), length));
        assert_eq!(ImageHash::new(alg, &"AB".repeat(length / 2)), Ok(hash));
        for bad in [
            text.to_uppercase(),
            text.replace(':', "-"),
            format!("{text}0"),
            text.replacen('a', "g", 1),
            text[1..].to_owned(),
            text[..text.len() - 1].to_owned(),
        ] {
            assert!(bad.parse::<ImageHash>().is_err(), "{bad}");
        }
        assert!(ImageHash::new(alg, &"ab".repeat(length / 2 - 1)).is_err());
    }
    assert!([HashAlg::Sha256, HashAlg::Sha512].into_iter().all(HashAlg::is_strong));
    assert!(![HashAlg::Sha1, HashAlg::Md5].into_iter().any(HashAlg::is_strong));
    let error = "sha3:\u{1b}[31m".parse::<ImageHash>().expect_err("none").to_string();
    assert!(!error.contains('\u{1b}'), "{error:?}");
}

#[test]
fn architectures_have_many_names() {
    for (name, oci, variant, uname, dpkg) in [
        ("x86_64", "amd64", None, "x86_64", "amd64"),
        ("AMD64", "amd64", None, "x86_64", "amd64"),
        ("aarch64", "arm64", Some("v8"), "aarch64", "arm64"),
        ("armv7l", "arm", Some("v7"), "armv7l", "armhf"),
        ("armhf", "arm", Some("v7"), "armv7l", "armhf"),
        ("armel", "arm", Some("v6"), "armv6l", "armel"),
        ("i686", "386", None, "i686", "i386"),
        ("i386", "386", None, "i686", "i386"),
        ("ppc64el", "ppc64le", None, "ppc64le", "ppc64el"),
        ("ppc64", "ppc64", None, "ppc64", "ppc64"),
        ("s390x", "s390x", None, "s390x", "s390x"),
        ("riscv64", "riscv64", None, "riscv64", "riscv64"),
        ("loong64", "loong64", None, "loong64", "loong64"),
    ] {
        let platform = Platform::linux(name);
        assert_eq!((platform.architecture.as_str(), platform.variant.as_deref()), (oci, variant), "{name}");
        assert_eq!((platform.uname_arch(), platform.dpkg_arch()), (uname, dpkg), "{name}");
    }
    assert_eq!(Platform::linux("arm").variant, None, "`arm` alone says nothing of its variant");
    assert_eq!(Platform::linux("arm64").to_string(), "linux/arm64/v8");
}

#[test]
fn a_platform_accepts_what_runs_on_it() {
    let windows = |version: Option<&str>, features: &[&str]| Platform {
        os: "windows".into(),
        os_version: version.map(str::to_owned),
        os_features: features.iter().map(|&feature| feature.to_owned()).collect(),
        ..Platform::linux("amd64")
    };
    let arm = |variant: Option<&str>| Platform { variant: variant.map(str::to_owned), ..Platform::linux("arm") };
    for (wanted, offered, accepted) in [
        (Platform::linux("amd64"), Platform::linux("x86_64"), true),
        (Platform::linux("amd64"), Platform::linux("arm64"), false),
        (Platform::linux("arm64"), Platform { variant: None, ..Platform::linux("arm64") }, true),
        (Platform::linux("amd64"), windows(None, &[]), false),
        (arm(Some("v7")), arm(Some("v6")), true),
        (arm(Some("v6")), arm(Some("v7")), false),
        (arm(Some("v7")), arm(None), true),
        (arm(Some("v7")), arm(Some("v4")), false),
        (windows(Some("10.0.20348"), &[]), windows(Some("10.0.20348.2700"), &[]), true),
        (windows(Some("10.0.20348"), &[]), windows(Some("10.0.203481"), &[]), false),
        (windows(Some("10.0.20348"), &[]), windows(Some("10.0.17763.1"), &[]), false),
        (windows(Some("10.0.20348"), &[]), windows(None, &[]), false),
        (windows(None, &[]), windows(Some("10.0.20348.2700"), &[]), true),
        (windows(None, &["win32k"]), windows(None, &["win32k"]), true),
        (windows(None, &["win32k"]), windows(None, &[]), true),
        (windows(None, &[]), windows(None, &["win32k"]), false),
    ] {
        assert_eq!(wanted.accepts(&offered), accepted, "{wanted:?} {offered:?}");
    }
}

#[test]
fn what_is_shown_of_a_place_holds_no_secret() {
    let image = locator("https://user:secret@h.example:8443/a/b?token=secret#secret");
    assert_eq!(image.to_string(), "https://h.example:8443/a/b?...");
    let request = net::Request::get(image.url().clone()).with_secret_header("X-Token", "secret");
    let remote = RemoteImage::at("http", request);
    assert_eq!(remote.shown, "https://h.example:8443/a/b?...");
    assert!(!format!("{:?}", remote.source).contains("secret"));
    // Whoever may not see the same is not given the same download.
    let profile = |insecure| {
        let spec = net::TransportSpec { insecure, ..net::TransportSpec::default() };
        let transport = Transport::new("same", &spec).expect("a profile");
        RemoteImage::at("http", net::Request::get(image.url().clone()).with_transport(transport)).key
    };
    assert_ne!(profile(false), profile(true));
    let keys: std::collections::BTreeSet<_> = ["https://h/", "https://a:b@h/", "https://a:c@h/", "https://h/?x"]
        .map(|url| RemoteImage::at("http", net::Request::get(Url::parse(url).expect("a URL"))).key)
        .into();
    assert_eq!(keys.len(), 4);
    assert!(keys.iter().all(|key| !key.contains("a:b")));
}
