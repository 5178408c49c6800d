//! Rules for tags, and the catalogue that comes with the packages.

use super::*;

const CATALOGUE: &str = include_str!("../../../../../../deploy/images.d/catalogue.yaml");

fn ask_tag(translator: &Translator, name: &str, tag: Option<&str>, platform: &Platform) -> String {
    let wanted = Wanted { handler: "virtlet", platform, configs: None, tag };
    show(translator.translate(&name.parse().expect("a name"), &wanted))
}

#[test]
fn a_rule_may_be_for_one_tag() {
    let rules = "translations:
- {name: debian, url: 'https://any.example/'}
- {name: 'debian:13', url: 'https://thirteen.example/'}
- {name: 'h.example:5000/a:1', url: 'https://port.example/'}
- {name: 'broken:1', url: 'ftp://x/'}";
    let more = "prefix: prod\ntranslations: [{name: 'debian:12', url: 'https://prod.example/'}]";
    let translator = files(&[("a", rules), ("b", more)]);
    let linux = Platform::linux("amd64");
    for (name, tag, expected) in [
        ("debian", Some("13"), "https://thirteen.example/ by rule 2 (`debian:13`) of `a`"),
        ("debian", Some("12"), "https://any.example/ by rule 1 (`debian`) of `a`"),
        ("debian", None, "https://any.example/ by rule 1 (`debian`) of `a`"),
        ("prod/debian", Some("12"), "https://prod.example/ by rule 1 (`debian:12`) of `b`"),
        ("prod/debian", Some("13"), "https://prod/debian by default https rule"),
        ("h.example:5000/a", Some("1"), "https://port.example/ by rule 3 (`h.example:5000/a:1`) of `a`"),
        ("h.example:5000/a", Some("11"), "https://h.example:5000/a by default https rule"),
    ] {
        assert_eq!(ask_tag(&translator, name, tag, &linux), expected, "{name} {tag:?}");
    }
    let rejected = ask_tag(&translator, "broken", Some("1"), &linux);
    assert!(rejected.starts_with("error: rule 4 (`broken:1`) of `a` is the only one for `broken`"), "{rejected}");
    assert_eq!(ask_tag(&translator, "broken", Some("2"), &linux), "https://broken/ by default https rule");
    // A tag is no pattern of a name with a port.
    let of_tag = told(&translator.problems());
    assert_eq!(of_tag.len(), 1, "{of_tag:?}");
}

#[test]
fn lists_of_checksums_are_for_http() {
    for (rule, expected) in [
        ("{name: a, url: 'https://h/{arch}', checksums: 'https://h/SUMS-{arch}'}", ""),
        ("{name: a, url: 'h/x', checksums: 'h/y'}", ""),
        ("{name: a, url: 'https://h/x', checksums: ''}", ""),
        ("{name: a, url: 'oci://h/x', checksums: 'https://h/y'}", "`checksums` names a list that is fetched by http"),
        ("{name: a, url: 'https://h/x', checksums: 'file:///y'}", "`checksums` names a list that is fetched by http"),
        ("{name: a, url: 'https://h/x', checksums: 'ftp://h/y'}", "its `checksums` cannot be used: scheme `ftp`"),
        ("{name: a, checksums: 'https://h/y'}", "it has no `url`"),
        ("{name: a, checksums: 'https://h/y', platforms: {linux/arm64: {url: 'https://h/x'}}}", "it has no `url`"),
    ] {
        let (_, problems) =
            file::parse(Origin::file("f"), &format!("translations: [{rule}]")).expect("a configuration");
        let told = told(&problems).join("");
        assert!(told.contains(expected) && told.is_empty() == expected.is_empty(), "{rule}: {told}");
    }
    let translator =
        files(&[("f", "translations: [{name: a, url: 'https://h/x', checksums: 'https://h/SUMS-{arch}'}]")]);
    let linux = Platform::linux("arm64");
    let wanted = Wanted { handler: "", platform: &linux, configs: None, tag: None };
    let found = translator.translate(&"a".parse().expect("a name"), &wanted).expect("a place");
    assert_eq!(found.locator.checksums().map(url::Url::as_str), Some("https://h/SUMS-arm64"));
    assert!(found.locator.identity().contains("SUMS-arm64"), "another list may promise other bytes");
}

#[test]
fn the_catalogue_is_asked_last_and_replaced_by_a_file_of_its_name() {
    let dir = tempfile::tempdir().expect("a directory");
    let (vendor, own) = (dir.path().join("vendor"), dir.path().join("own"));
    for (path, text) in [
        (vendor.join("catalogue.yaml"), "translations: [{name: 'debian:13', url: 'https://vendor.example/'}]"),
        (vendor.join("more.yaml"), "translations: [{name: other, url: 'https://more.example/'}]"),
        (own.join("a.yaml"), "translations: []"),
    ] {
        std::fs::create_dir_all(path.parent().expect("one")).expect("made");
        std::fs::write(path, text).expect("written");
    }
    let translator = Translator::new(config(), vec![Arc::new(RuleDir::new(own.clone()))])
        .with_catalogue(vec![Arc::new(RuleDir::catalogue(vendor, Some(own.clone())))]);
    let linux = Platform::linux("amd64");
    let ask = |tag| ask_tag(&translator, "debian", Some(tag), &linux);
    let vendors = "https://vendor.example/ by rule 1 (`debian:13`) of catalogue `catalogue.yaml`";
    assert_eq!(ask("13"), vendors);
    assert_eq!(ask("99"), "https://debian/ by default https rule");
    let wanted = Wanted { handler: "virtlet", platform: &linux, configs: None, tag: Some("13") };
    let name = "debian".parse().expect("a name");
    assert!(translator.by_rule(&name, &wanted).expect("read").is_none(), "providers come first");
    assert_eq!(translator.in_catalogue(&wanted).expect("read"), ["debian:13", "other"]);
    // Any rule for the name comes first, also one by regexp.
    std::fs::write(own.join("a.yaml"), "translations: [{regexp: '^deb.*$', url: 'https://own.example/'}]")
        .expect("written");
    assert!(ask("13").starts_with("https://own.example/ by "), "{}", ask("13"));
    std::fs::remove_file(own.join("a.yaml")).expect("removed");
    // A file of the same name takes the place, and a link to nothing is one.
    std::os::unix::fs::symlink("/dev/null", own.join("catalogue.yaml")).expect("linked");
    assert_eq!(ask("13"), "https://debian/ by default https rule");
    assert_eq!(translator.in_catalogue(&wanted).expect("read"), ["other"]);
    std::fs::remove_file(own.join("catalogue.yaml")).expect("removed");
    assert_eq!(ask("13"), vendors);
    let only = BTreeSet::from(["more".to_owned()]);
    let wanted = Wanted { configs: Some(&only), ..wanted };
    assert_eq!(translator.in_catalogue(&wanted).expect("read"), ["other"]);
    assert!(is_led_by("rule 1 (`debian:13`) of catalogue `catalogue.yaml`", &BTreeSet::from(["catalogue".to_owned()])));
    assert!(!is_led_by("rule 1 (`debian:13`) of catalogue `catalogue.yaml`", &only));
}

#[test]
fn every_image_of_the_shipped_catalogue_is_verified() {
    let catalogue = files(&[("catalogue.yaml", CATALOGUE)]);
    assert_eq!(told(&catalogue.current_problems().expect("read")), [""; 0]);
    let origin = Origin { kind: OriginKind::Catalogue, name: "catalogue.yaml".into() };
    let (config, problems) = file::parse(origin, CATALOGUE).expect("a configuration");
    assert_eq!((told(&problems).len(), config.regexps.len()), (0, 0));
    let names: Vec<_> = config.names().collect();
    let mut once = names.clone();
    once.sort();
    once.dedup();
    assert_eq!(once.len(), names.len(), "a name is there twice");
    for wanted in ["debian:13", "ubuntu:24.04", "fedora:44", "almalinux:10", "rockylinux:9", "opensuse/leap:16.0"] {
        assert!(names.iter().any(|name| name == wanted), "no {wanted}");
    }
    let mut of_arm = 0;
    for name in &names {
        let (bare, tag) = name.rsplit_once(':').expect("each is for a tag");
        for architecture in ["amd64", "arm64"] {
            let platform = Platform::linux(architecture);
            let wanted = Wanted { handler: "virtlet", platform: &platform, configs: None, tag: Some(tag) };
            let found = match catalogue.by_rule(&bare.parse().expect("a name"), &wanted) {
                Ok(found) => found.expect("a rule"),
                Err(TranslateError::Platform { .. }) if architecture == "arm64" => continue,
                Err(error) => panic!("{name}: {error}"),
            };
            of_arm += usize::from(architecture == "arm64");
            let (url, list) = (found.locator.url(), found.locator.checksums());
            assert!(found.digest.is_some() != list.is_some(), "{name} has a digest or a list");
            for url in std::iter::once(url).chain(list) {
                assert_eq!(url.scheme(), "https", "{name}: {url}");
                assert!(!url.as_str().contains(['{', '}']), "{name}: {url}");
            }
        }
    }
    assert!(of_arm > names.len() / 2, "{of_arm}");
}
