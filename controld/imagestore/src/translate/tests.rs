use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use proptest::prelude::*;

use super::dir::OneLine;
use super::*;

fn file(name: &str, text: &str) -> RuleFile {
    let (rules, bad) = super::file::parse(name, text, Protocol::Https).expect("a sound file");
    assert!(bad.is_empty(), "{bad:?}");
    rules
}

fn translator() -> Translator {
    Translator::new(vec!["virtlet.cloud/".into()], Protocol::Https, true, None)
}

fn shown(files: &[RuleFile], name: &str) -> String {
    match translator().translate_by(&RuleTable::new(files.to_vec()), &name.parse().expect("a name")) {
        Ok(locator) => format!("{} by {}", locator.url(), locator.by()),
        Err(error) => format!("error: {}", OneLine(&error)),
    }
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
    let files = [
        file("plain.yaml", PLAIN),
        file("prefixed.yaml", PREFIXED),
        file("deeper.yaml", DEEPER),
        file("z.yaml", SHADOW),
    ];
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
    ];
    for (name, expected) in cases {
        assert_eq!(shown(&files, name), expected, "{name}");
    }
}

#[test]
fn the_default_rule_may_be_off_or_plain_http() {
    let table = RuleTable::default();
    let name = "ubuntu".parse().expect("a name");
    let denied = Translator::new(Vec::new(), Protocol::Https, false, None).translate_by(&table, &name);
    assert!(matches!(denied, Err(TranslateError::Untranslated { name }) if name == "ubuntu"));
    let plain = Translator::new(Vec::new(), Protocol::Http, true, None).translate_by(&table, &name).expect("a URL");
    assert_eq!(plain.url().as_str(), "http://ubuntu/");
}

#[test]
fn a_locator_shows_no_secret() {
    let url = Locator::parse_url("https://user:secret@example.com:8443/a/b?sig=secret#secret").expect("a URL");
    let locator = Locator::new(url, "a rule".into(), Transport::plain());
    assert_eq!(locator.to_string(), "https://example.com:8443/a/b?...");
    assert!(!format!("{locator:?}").contains("secret"));
}

#[test]
fn files_that_cannot_be_obeyed_are_refused_whole() {
    let parse = |text: &str| match super::file::parse("f", text, Protocol::Https) {
        Ok(_) => "ok".to_owned(),
        Err(error) => error.to_string(),
    };
    assert_eq!(parse("translations: [{regexp: 'a(.*)', url: x}]").get(..27), Some("`regexp` is not supported y"));
    assert_eq!(
        parse("translations: [{name: a, url: x, transport: t}]").get(..30),
        Some("`transport` is not supported y")
    );
    assert_eq!(parse("translations: []\ntransports: {}").get(..31), Some("`transports` is not supported y"));
    for text in [
        "nonsense: 1",
        "translations: [{name: a, url: b, sha: c}]",
        "translations: 5",
        "- a",
        "{",
        "translations: [a]",
        "prefix: [a]",
        "prefix: a\nprefix: b",
        "a: &a [x,x,x,x,x,x,x,x]\nb: &b [*a,*a,*a,*a,*a,*a,*a]\nc: &c [*b,*b,*b,*b,*b,*b]\nprefix: *c",
    ] {
        assert!(parse(text).starts_with("not a translation file: "), "{text}: {}", parse(text));
    }
    for text in [
        "translations: [{name: a, uri: 'https://u:secret@h/'}]",
        "translations: ['https://u:secret@h/']",
        "translations: 'https://u:secret@h/'",
        "'https://u:secret@h/': x",
        "https://u:secret@h/",
    ] {
        assert!(!parse(text).contains("secret") && parse(text) != "ok", "{}", parse(text));
    }
    assert_eq!(parse("{\"prefix\": \"p\", \"translations\": [{\"name\": \"a\", \"url\": \"b\"}]}"), "ok");
    assert_eq!(parse(""), "ok");
}

#[test]
fn a_bad_rule_spoils_only_itself() {
    let text = "translations:
- {url: https://a/}
- {name: b}
- {name: c, url: ''}
- {name: d, url: 'ftp://d/'}
- {name: e, url: 'https://'}
- {name: f, url: 'file:///images/f'}
- {name: good, url: g.example/g}
";
    let (rules, bad) = super::file::parse("f", text, Protocol::Https).expect("a file");
    assert_eq!(
        rules.rules.iter().map(|rule| rule.url.as_str()).collect::<Vec<_>>(),
        ["file:///images/f", "https://g.example/g"]
    );
    let bad: Vec<_> = bad.iter().map(|(place, error)| format!("{place}: {}", OneLine(error))).collect();
    assert_eq!(
        bad,
        [
            "1: it has no `name`",
            "2: it has no `url`",
            "3: it has no `url`",
            "4: its `url` cannot be used: scheme `ftp` is not supported; use one of https, http, file, oci, docker, \
             glance+http, glance+https, virt-builder, simplestreams",
            "5: its `url` cannot be used: not a URL: empty host",
        ]
    );
}

#[test]
fn the_directory_is_read_again_when_it_changed() {
    let dir = tempfile::tempdir().expect("a directory");
    let rules = RuleDir::new(dir.path().join("rules"), Protocol::Https);
    let translator = Translator::new(Vec::new(), Protocol::Https, true, Some(rules));
    let url = |translator: &Translator| {
        translator.translate(&"cirros".parse().expect("a name")).expect("a URL").url().to_string()
    };
    assert_eq!(url(&translator), "https://cirros/", "no directory, no rules");

    let rules = dir.path().join("rules");
    write(&rules, "a.yaml", "translations: [{name: cirros, url: https://one.example/}]");
    assert_eq!(url(&translator), "https://one.example/");
    write(&rules, "a.yaml", "translations: [{name: cirros, url: https://two.example/}]");
    assert_eq!(url(&translator), "https://two.example/");

    // As a mounted ConfigMap looks: a link into a hidden directory; files that do not count beside it.
    write(&rules.join("..data"), "map.yml", "translations: [{name: cirros, url: https://three.example/}]");
    fs::remove_file(rules.join("a.yaml")).expect("removed");
    symlink("..data/map.yml", rules.join("map.yml")).expect("linked");
    write(&rules, ".hidden.yaml", "junk: 1");
    write(&rules, "README.md", "junk");
    fs::create_dir(rules.join("dir.yaml")).expect("made");
    assert_eq!(url(&translator), "https://three.example/");
    assert!(translator.problems().is_empty());
}

#[test]
fn a_bad_file_is_reported_and_disables_no_other() {
    let dir = tempfile::tempdir().expect("a directory");
    write(dir.path(), "a-bad.yaml", "tranlations: []");
    write(dir.path(), "b-rule.yaml", "translations: [{name: x, url: 'ftp://x/'}]");
    write(dir.path(), "c-good.yaml", "translations: [{name: cirros, url: https://good.example/}]");
    fs::write(dir.path().join("d-bytes.yaml"), b"prefix: \xff").expect("written");
    fs::write(dir.path().join("e-large.yaml"), vec![b'#'; (1 << 20) + 1]).expect("written");
    nix::unistd::mkfifo(&dir.path().join("f-fifo.yaml"), nix::sys::stat::Mode::S_IRWXU).expect("made");
    symlink("nowhere", dir.path().join("g-dangling.yaml")).expect("linked");
    let rules = RuleDir::new(dir.path().to_owned(), Protocol::Https);
    let translator = Translator::new(Vec::new(), Protocol::Https, true, Some(rules));
    let found = translator.translate(&"cirros".parse().expect("a name")).expect("a URL");
    assert_eq!(found.by(), "rule 1 (`cirros`) of `c-good.yaml`");
    let problems: Vec<_> = translator.problems().iter().map(|problem| OneLine(problem).to_string()).collect();
    let starts = [
        "translation file `a-bad.yaml` is not used: not a translation file: ",
        "rule 1 of translation file `b-rule.yaml` is not used: its `url` cannot be used",
        "translation file `d-bytes.yaml` is not readable: ",
        "translation file `e-large.yaml` is not readable: larger than 1 MiB",
    ];
    assert_eq!(problems.len(), starts.len(), "{problems:#?}");
    for (problem, start) in problems.iter().zip(starts) {
        assert!(problem.starts_with(start), "{problem}");
        assert!(!problem.contains('\n'), "{problem}");
    }
}

#[test]
fn a_directory_that_cannot_be_read_is_no_empty_one() {
    let dir = tempfile::tempdir().expect("a directory");
    write(dir.path(), "file", "");
    let rules = RuleDir::new(dir.path().join("file"), Protocol::Https);
    assert!(rules.current().is_err());
}

proptest! {
    #[test]
    fn the_order_of_reading_changes_nothing(
        files in prop::collection::btree_map("[a-c]{1,2}", ("|a|a/b", prop::collection::vec("a|b|a/b|b/a", 0..4)), 0..5),
        seed in any::<u64>(),
        name in "(a/)?(b/)?[ab]",
    ) {
        let mut table: Vec<RuleFile> = files
            .iter()
            .map(|(file, (prefix, names))| RuleFile {
                file: file.clone(),
                prefix: prefix.clone(),
                rules: names.iter().enumerate().map(|(index, name)| Rule {
                    place: index + 1,
                    name: name.clone(),
                    url: Locator::parse_url(&format!("https://{file}.example/{index}")).expect("a URL"),
                }).collect(),
            })
            .collect();
        let before = shown(&table, &name);
        let count = table.len().max(1);
        table.rotate_left(usize::try_from(seed % count as u64).expect("small"));
        if seed % 2 == 0 { table.reverse(); }
        prop_assert_eq!(shown(&table, &name), before);
    }
}

fn write(dir: &Path, name: &str, text: &str) {
    fs::create_dir_all(dir).expect("made");
    fs::write(dir.join(name), text).expect("written");
}
