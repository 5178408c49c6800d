//! Names in, places out: by configurations as people write them. What a configuration may hold is in [`reading`], where
//! it comes from in [`sources`], and that order means nothing in [`order`].

use std::collections::BTreeSet;
use std::sync::Arc;

use common::Chain;
use vmimage::declared::Declared;
use vmimage::inspect::DiskFormat;

use super::source::RuleSource;
use super::*;
use crate::sources::provider::Platform;

mod catalogue;
mod order;
mod reading;
mod sources;
mod virtlet;

/// Configurations by name, of one kind.
#[derive(Debug)]
struct Fixed(Arc<RuleSet>);

impl Fixed {
    fn source(kind: OriginKind, configs: &[(&str, &str)]) -> Arc<dyn RuleSource> {
        let mut set = RuleSet::default();
        for (name, text) in configs {
            let origin = Origin { kind, name: (*name).to_owned() };
            let (config, problems) = file::parse(origin, text).expect("a configuration");
            set.configs.push(Arc::new(config));
            set.problems.extend(problems);
        }
        Arc::new(Self(Arc::new(set)))
    }
}

impl RuleSource for Fixed {
    fn current(&self) -> Result<Arc<RuleSet>, DirError> {
        Ok(self.0.clone())
    }
}

fn config() -> TranslateConfig {
    TranslateConfig {
        strip_prefixes: vec!["virtlet.cloud/".into()],
        protocol: Protocol::Https,
        allow_untranslated: true,
        regexps: true,
        platform: Platform::linux("amd64"),
    }
}

fn files(configs: &[(&str, &str)]) -> Translator {
    Translator::new(config(), vec![Fixed::source(OriginKind::File, configs)])
}

fn show(translated: Result<Translated, TranslateError>) -> String {
    match translated {
        Ok(found) => format!("{} by {}", found.locator.url(), found.locator.by()),
        Err(error) => format!("error: {}", Chain(&error)),
    }
}

fn ask(translator: &Translator, name: &str) -> String {
    ask_for(translator, name, "virtlet", &Platform::linux("amd64"))
}

fn ask_for(translator: &Translator, name: &str, handler: &str, platform: &Platform) -> String {
    show(translator.translate(&name.parse().expect("a name"), &Wanted { handler, platform, configs: None, tag: None }))
}

fn told(problems: &[Problem]) -> Vec<String> {
    problems.iter().map(|problem| Chain(problem).to_string()).collect()
}

const PLAIN: &str = "
translations:
- {name: cirros, url: 'https://a.example/CirrOS.img'}
- {name: cirros, url: 'https://never.example/second'}
- {name: prod/other, url: 'b.example/x?y=z'}
- {name: 'example.com:1234/foo', url: 'http://user:secret@c.example/'}
";
const PREFIXED: &str = "prefix: prod/\ntranslations: [{name: cirros, url: https://prod.example/c}]";
const DEEPER: &str = "prefix: prod/eu\ntranslations: [{name: cirros, url: https://eu.example/c}]";
const SHADOW: &str = "translations: [{name: prod/eu/cirros, url: https://shadow.example/c}]";

#[test]
fn names_become_urls() {
    let translator =
        files(&[("plain.yaml", PLAIN), ("prefixed.yaml", PREFIXED), ("deeper.yaml", DEEPER), ("z.yaml", SHADOW)]);
    let cases = [
        ("cirros", "https://a.example/CirrOS.img by rule 1 (`cirros`) of `plain.yaml`"),
        ("virtlet.cloud/cirros", "https://a.example/CirrOS.img by rule 1 (`cirros`) of `plain.yaml`"),
        ("virtlet.cloud/virtlet.cloud/cirros", "https://virtlet.cloud/cirros by default https rule"),
        ("prod/cirros", "https://prod.example/c by rule 1 (`cirros`) of `prefixed.yaml`"),
        ("prod/eu/cirros", "https://eu.example/c by rule 1 (`cirros`) of `deeper.yaml`"),
        ("prod/other", "https://b.example/x?y=z by rule 3 (`prod/other`) of `plain.yaml`"),
        ("production/cirros", "https://production/cirros by default https rule"),
        ("example.com:1234/foo", "http://user:secret@c.example/ by rule 4 (`example.com:1234/foo`) of `plain.yaml`"),
        ("example.com:1234/foo/bar", "https://example.com:1234/foo/bar by default https rule"),
        ("[::1]:8080/x", "https://[::1]:8080/x by default https rule"),
        // Of the grammar, and no address.
        (
            "300.1.1.1/x",
            "error: `300.1.1.1/x` makes no URL by default https rule; add a translation rule or mend it: not a URL: \
             invalid IPv4 address",
        ),
    ];
    for (name, expected) in cases {
        assert_eq!(ask(&translator, name), expected, "{name}");
    }
}

#[test]
fn a_rule_is_known_by_its_text() {
    let names = |name: &str| BTreeSet::from([name.to_owned()]);
    let rule = "translations: [{regexp: '^x` of `b.yaml$|^y', url: h.example/x}]";
    let cases: [(OriginKind, &str, &[&str], &[&str]); 4] = [
        (OriginKind::File, "a.b.yaml", &["a.b.yaml", "a.b"], &["a", "b.yaml", "yaml"]),
        (OriginKind::File, "mapping", &["mapping"], &[""]),
        (OriginKind::File, "it's", &["it's"], &["its"]),
        (OriginKind::Mapping, "a.b", &["a.b"], &["a"]),
    ];
    for (kind, name, yes, no) in cases {
        let translator = Translator::new(config(), vec![Fixed::source(kind, &[(name, rule)])]);
        let wanted = Wanted { handler: "virtlet", platform: &Platform::linux("amd64"), configs: None, tag: None };
        let found = translator.translate(&"y".parse().expect("a name"), &wanted).expect("a rule for it");
        let by = found.locator.by();
        yes.iter().for_each(|of| assert!(is_led_by(by, &names(of)), "{by}: {of}"));
        no.iter().for_each(|of| assert!(!is_led_by(by, &names(of)), "{by}: {of}"));
    }
    for by in ["default https rule", "provider `corp`"] {
        assert!(is_led_by(by, &BTreeSet::new()), "{by}");
    }
    assert!(!is_led_by("rule of another release", &names("rule")));
}

#[test]
fn the_default_rule_may_be_off_or_plain_http() {
    let name = "ubuntu".parse().expect("a name");
    let denied = Translator::new(TranslateConfig { allow_untranslated: false, ..config() }, Vec::new());
    assert!(matches!(denied.by_default(&name), Err(TranslateError::Untranslated { name }) if name == "ubuntu"));
    let http = TranslateConfig { protocol: Protocol::Http, ..config() };
    let rules = Fixed::source(OriginKind::File, &[("a", "translations: [{name: x, url: h.example/x}]")]);
    let plain = Translator::new(http, vec![rules]);
    assert_eq!(ask(&plain, "ubuntu"), "http://ubuntu/ by default http rule");
    assert_eq!(ask(&plain, "x"), "http://h.example/x by rule 1 (`x`) of `a`");
}

#[test]
fn one_prefix_is_stripped_and_the_longest() {
    let prefixes = ["", "/", "a/", "a/b"].map(str::to_owned).to_vec();
    let translator = Translator::new(TranslateConfig { strip_prefixes: prefixes, ..config() }, Vec::new());
    for (name, expected) in
        [("a/b/c", "https://c/"), ("a/c", "https://c/"), ("a/a/c", "https://a/c"), ("ab/c", "https://ab/c")]
    {
        assert_eq!(ask(&translator, name), format!("{expected} by default https rule"), "{name}");
    }
}

#[test]
fn groups_go_where_the_url_says() {
    let cases = [
        // pattern, url, name, what comes out
        (r"^centos/(\d+)-(\d+)$", "https://h/$1/c-$1-$2.img", "centos/7-01", "https://h/7/c-7-01.img"),
        (r"^a/(.*)$", "https://h/${1}_x", "a/b", "https://h/b_x"),
        (r"^a/(?P<v>[a-z]+)$", "https://h/$v.img", "a/b", "https://h/b.img"),
        (r"^a/(?<v>[a-z]+)$", "https://h/${v}1.img", "a/b", "https://h/b1.img"),
        (r"^a/(.*)$", "https://h/$$1?a=$$", "a/b", "https://h/$1?a=$"),
        (r"^a/(.*)$", "https://h/$0", "a/b", "https://h/a/b"),
        (r"^a(/b)?$", "https://h/x$1", "a", "https://h/x"),
        // A dollar sign that begins no group is itself.
        (r"^a/(.*)$", "https://h/$/${/${}/${a b}/$", "a/b", "https://h/$/$%7B/$%7B%7D/$%7Ba%20b%7D/$"),
        // What was filled in is not read again.
        (r"^(.*)$", "https://h/$1", "a__b/c", "https://h/a__b/c"),
        // Only the match, not what is around it.
        (r"(\d+)", "https://h/$1.img", "a1b2", "https://h/1.img"),
        (r"^e\.com:(\d+)/(.*)$", "https://h:$1/$2", "e.com:81/x", "https://h:81/x"),
        (r"^(.*)$", "$1", "e.com/x", "https://e.com/x"),
        (r"^(.*)$", "https://$1.example/", "e", "https://e.example/"),
        (r"(?i)^A(b)$", "https://h/$1", "ab", "https://h/b"),
    ];
    for (regexp, url, name, expected) in cases {
        let text = serde_json::json!({"translations": [{"regexp": regexp, "url": url}]}).to_string();
        assert_eq!(ask(&files(&[("f", &text)]), name), format!("{expected} by rule 1 (`{regexp}`) of `f`"));
    }
}

#[test]
fn a_rule_by_name_takes_dollar_signs_as_they_are() {
    let text = r"translations: [{name: a, regexp: '^a|(b)$', url: 'https://h/$1'}, {name: c, url: 'https://h/$x$$'}]";
    let translator = files(&[("f", text)]);
    assert_eq!(ask(&translator, "a"), "https://h/$1 by rule 1 (`a`) of `f`");
    assert_eq!(ask(&translator, "b"), "https://h/b by rule 1 (`^a|(b)$`) of `f`");
    assert_eq!(ask(&translator, "c"), "https://h/$x$$ by rule 2 (`c`) of `f`");
}

#[test]
fn regexps_may_be_off() {
    let text = "translations: [{regexp: '^a(.*)$', url: 'https://h/$1'}, {name: n, regexp: '^n', url: 'https://h/n'}]";
    let rules = Fixed::source(OriginKind::File, &[("f", text)]);
    let translator = Translator::new(TranslateConfig { regexps: false, ..config() }, vec![rules]);
    assert_eq!(ask(&translator, "ab"), "https://ab/ by default https rule");
    assert_eq!(ask(&translator, "n"), "https://h/n by rule 2 (`n`) of `f`");
    let told = told(&translator.problems());
    let off =
        "2 rules by `regexp` of translation file `f` are not used: they are off; see `images.regexp_translations`";
    assert!(told.iter().any(|problem| problem == off), "{told:?}");
}

#[test]
fn a_rule_that_cannot_be_used_is_not_passed_over_if_it_is_the_only_one() {
    let bad = "prefix: p\ntranslations: [{name: a, url: 'ftp://h/'}, {regexp: '^r(', url: 'https://h/'}, {name: b}]";
    let refused = "error: rule 1 (`a`) of `f` is the only one for `p/a`, and cannot be used; mend it or take it away: \
                   its `url` cannot be used: scheme `ftp` is not supported";
    let translator = files(&[("f", bad), ("g", "translations: [{name: p/b, url: 'https://g/'}]")]);
    assert!(ask(&translator, "p/a").starts_with(refused), "{}", ask(&translator, "p/a"));
    assert_eq!(ask(&translator, "p/b"), "https://g/ by rule 1 (`p/b`) of `g`");
    for (other, url) in [("a", "https://a/"), ("p/a/c", "https://p/a/c"), ("p/r", "https://p/r")] {
        assert_eq!(ask(&translator, other), format!("{url} by default https rule"));
    }
    let caught = files(&[("f", bad), ("g", "translations: [{regexp: '^p/a$', url: 'https://g/'}]")]);
    assert_eq!(ask(&caught, "p/a"), "https://g/ by rule 1 (`^p/a$`) of `g`");
    let not_ours = files(&[("f", &format!("handlers: [other]\n{bad}"))]);
    assert_eq!(ask(&not_ours, "p/a"), "https://p/a by default https rule");
}

#[test]
fn nor_is_one_by_regexp_whose_pattern_is_sound() {
    for bad in [
        r"{regexp: '^rx/(\d+)$', url: 'ftp://h/$1'}",
        r"{regexp: '^rx/(\d+)$', url: 'https://h/$2'}",
        r"{regexp: '^rx/(\d+)$', url: 'https://h/$1', transport: none}",
        r"{regexp: '^rx/(\d+)$', url: 'https://h/$1', format: none}",
        r"{regexp: '^rx/(\d+)$'}",
    ] {
        let translator = files(&[("f", &format!("translations: [{bad}]"))]);
        let refused = ask(&translator, "rx/5");
        assert!(
            refused.starts_with(r"error: rule 1 (`^rx/(\d+)$`) of `f` is the only one for `rx/5`"),
            "{bad}: {refused}"
        );
        assert_eq!(ask(&translator, "rx/x"), "https://rx/x by default https rule");
        let rules = Fixed::source(OriginKind::File, &[("f", &format!("translations: [{bad}]"))]);
        let off = Translator::new(TranslateConfig { regexps: false, ..config() }, vec![rules]);
        assert_eq!(ask(&off, "rx/5"), "https://rx/5 by default https rule", "rules by regexp are off");
    }
}

#[test]
fn the_platform_goes_into_the_url() {
    let text = "translations:
- {name: a, url: 'https://h/{os}/{arch}/{uname_arch}/{dpkg_arch}'}
- {regexp: '^v/(.*)$', url: 'https://h/$1-{os_version}'}
- {name: arm, url: 'https://h/{arch}-{variant}'}
";
    let translator = files(&[("f", text)]);
    let windows = Platform { os: "windows".into(), os_version: Some("10.0.20348".into()), ..Platform::linux("amd64") };
    let cases = [
        ("a", Platform::linux("amd64"), "https://h/linux/amd64/x86_64/amd64"),
        ("a", Platform::linux("aarch64"), "https://h/linux/arm64/aarch64/arm64"),
        ("a", Platform::linux("armhf"), "https://h/linux/arm/armv7l/armhf"),
        ("a", Platform::linux("ppc64le"), "https://h/linux/ppc64le/ppc64le/ppc64el"),
        ("v/x", windows, "https://h/x-10.0.20348"),
        ("arm", Platform::linux("arm64"), "https://h/arm64-v8"),
        (
            "v/x",
            Platform::linux("amd64"),
            "error: rule 2 (`^v/(.*)$`) of `f` wants `{os_version}`, and platform linux/amd64 has none; name the URL \
             under `platforms`",
        ),
    ];
    for (name, platform, expected) in cases {
        let shown = ask_for(&translator, name, "virtlet", &platform);
        assert_eq!(shown.split(" by ").next(), Some(expected), "{name} for {platform}");
    }
}

#[test]
fn a_rule_leads_by_platform() {
    let hex = "ab".repeat(32);
    let text = format!(
        "translations:
- name: u
  url: https://h/default
  digest: sha256:{hex}
  format: qcow2
  platforms:
    linux/arm64: {{url: 'https://h/arm64', digest: 'sha256:{hex}'}}
    linux/arm/v6: {{url: 'https://h/armv6'}}
    windows/amd64:10.0.17763.1: {{url: 'https://h/2019'}}
    windows/amd64:10.0.20348.1: {{url: 'https://h/2022-1'}}
    windows/amd64:10.0.20348.20: {{url: 'https://h/2022-20'}}
- {{name: only, platforms: {{linux/s390x: {{url: 'https://h/s390x'}}}}}}
- {{name: all, url: 'https://h/all'}}
"
    );
    let translator = files(&[("f", &text)]);
    let windows = |version: Option<&str>| Platform {
        os: "windows".into(),
        os_version: version.map(str::to_owned),
        ..Platform::linux("amd64")
    };
    let cases = [
        ("u", Platform::linux("amd64"), "https://h/default"),
        ("u", Platform::linux("aarch64"), "https://h/arm64"),
        // A v7 runs what was made for a v6.
        ("u", Platform::linux("armhf"), "https://h/armv6"),
        ("u", windows(Some("10.0.17763")), "https://h/2019"),
        ("u", windows(Some("10.0.20348.1")), "https://h/2022-1"),
        ("u", windows(Some("10.0.20348")), "https://h/2022-20"),
        ("u", windows(None), "https://h/2022-20"),
        ("all", Platform::linux("s390x"), "https://h/all"),
        ("only", Platform::linux("s390x"), "https://h/s390x"),
        (
            "only",
            Platform::linux("amd64"),
            "error: rule 2 (`only`) of `f` has no `only` for linux/amd64, only for linux/s390x",
        ),
    ];
    for (name, platform, expected) in cases {
        let shown = ask_for(&translator, name, "virtlet", &platform);
        assert_eq!(shown.split(" by ").next(), Some(expected), "{name} for {platform}");
    }
    let none = ask_for(&translator, "u", "virtlet", &Platform::linux("riscv64"));
    assert!(
        none.starts_with("error: rule 1 (`u`) of `f` has no `u` for linux/riscv64, only for linux/arm/v6, "),
        "{none}"
    );
    let amd64 = Platform::linux("amd64");
    let wanted = Wanted { handler: "virtlet", platform: &amd64, configs: None, tag: None };
    let found = translator.translate(&"u".parse().expect("a name"), &wanted).expect("a rule");
    assert_eq!(found.digest.map(|digest| digest.to_string()), Some(format!("sha256:{hex}")));
    assert_eq!(found.format, Some(Declared::Kept(DiskFormat::Qcow2)));
}

#[test]
fn rules_may_be_for_some_handlers() {
    let translator = files(&[
        ("a.yaml", "handlers: [vm-arm64]\ntranslations: [{name: u, url: 'https://h/arm'}]"),
        ("b.yaml", "translations: [{name: u, url: 'https://h/all'}]"),
        ("c.yaml", "handlers: []\ntranslations: [{name: v, url: 'https://h/nobody'}]"),
    ]);
    let platform = Platform::linux("amd64");
    let only_b: BTreeSet<String> = ["b.yaml".to_owned()].into();
    let without_extension: BTreeSet<String> = ["b".to_owned()].into();
    let none = BTreeSet::new();
    let cases = [
        ("u", "vm-arm64", Some(&without_extension), "https://h/all"),
        ("u", "vm-arm64", None, "https://h/arm"),
        ("u", "virtlet", None, "https://h/all"),
        ("u", "vm-arm64", Some(&only_b), "https://h/all"),
        ("u", "vm-arm64", Some(&none), "https://u/"),
        ("v", "virtlet", None, "https://v/"),
    ];
    for (name, handler, configs, expected) in cases {
        let wanted = Wanted { handler, platform: &platform, configs, tag: None };
        let shown = show(translator.translate(&name.parse().expect("a name"), &wanted));
        assert_eq!(shown.split(" by ").next(), Some(expected), "{name} for {handler}");
    }
}

#[test]
fn every_kind_of_place_can_be_named() {
    for url in [
        "https://h/x",
        "http://h:81/x",
        "file:///srv/images/x.qcow2",
        "oci://registry.example/x:tag",
        "docker://registry.example/x@sha256:abc",
        "glance+https://g.example/x",
        "glance+http://g.example/x",
        "virt-builder://libguestfs/fedora-40",
        "simplestreams://ubuntu/24.04",
    ] {
        let text = serde_json::json!({"translations": [{"name": "x", "url": url}]}).to_string();
        assert_eq!(ask(&files(&[("f", &text)]), "x"), format!("{url} by rule 1 (`x`) of `f`"));
    }
}

#[test]
fn a_locator_shows_no_secret() {
    let url = Locator::parse_url("https://user:secret@example.com:8443/a/b?sig=secret#secret").expect("a URL");
    let locator = Locator::new(url, "a rule".into(), Transport::plain());
    assert_eq!(locator.to_string(), "https://example.com:8443/a/b?...");
    assert!(!format!("{locator:?}").contains("secret"));
}
