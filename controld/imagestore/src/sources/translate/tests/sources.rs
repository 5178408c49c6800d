//! Where configurations come from: the directory as people and kubelet change it, and what is pushed.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use super::*;
use crate::storage::config::{Config, HandlerConfig};

fn over(dir: &Path) -> Translator {
    Translator::new(config(), vec![Arc::new(RuleDir::new(dir.to_owned()))])
}

fn place(translator: &Translator, name: &str) -> String {
    ask(translator, name).split(' ').next().unwrap_or_default().to_owned()
}

#[test]
fn the_directory_is_read_again_when_it_changed() {
    let dir = tempfile::tempdir().expect("a directory");
    let rules = dir.path().join("rules");
    let translator = over(&rules);
    assert_eq!(place(&translator, "cirros"), "https://cirros/", "no directory, no rules");

    write(&rules, "a.yaml", "translations: [{name: cirros, url: https://one.example/}]");
    assert_eq!(place(&translator, "cirros"), "https://one.example/");
    write(&rules, "a.yaml", "translations: [{name: cirros, url: https://two.example/}]");
    assert_eq!(place(&translator, "cirros"), "https://two.example/");

    write(&rules, ".hidden.yaml", "junk: 1");
    write(&rules, "README.md", "junk");
    fs::create_dir(rules.join("dir.yaml")).expect("made");
    fs::remove_file(rules.join("a.yaml")).expect("removed");
    assert_eq!(place(&translator, "cirros"), "https://cirros/");
    write(&rules, "c.json", r#"{"translations": [{"name": "cirros", "url": "https://json.example/"}]}"#);
    assert_eq!(place(&translator, "cirros"), "https://json.example/");
    assert!(translator.problems().is_empty());
}

#[test]
fn a_change_within_one_tick_of_the_clock_shows() {
    let dir = tempfile::tempdir().expect("a directory");
    let translator = over(dir.path());
    // Same file, same length, and often the same time.
    for round in 0..50 {
        write(dir.path(), "a.yaml", &format!("translations: [{{name: cirros, url: https://{round:02}.example/}}]"));
        assert_eq!(place(&translator, "cirros"), format!("https://{round:02}.example/"));
    }
}

#[test]
fn a_mounted_config_map_is_followed_when_kubelet_swaps_it() {
    let dir = tempfile::tempdir().expect("a directory");
    let mount = dir.path();
    let version = |name: &str, host: &str| {
        write(&mount.join(name), "map.yml", &format!("translations: [{{name: cirros, url: https://{host}.example/}}]"));
    };
    // As kubelet lays it out: files are links through `..data`, which is a link to a directory with a date for a name.
    version("..2026_01", "one");
    symlink("..2026_01", mount.join("..data")).expect("linked");
    symlink("..data/map.yml", mount.join("map.yml")).expect("linked");
    let translator = over(mount);
    assert_eq!(place(&translator, "cirros"), "https://one.example/");
    version("..2026_02", "two");
    symlink("..2026_02", mount.join("..data_tmp")).expect("linked");
    fs::rename(mount.join("..data_tmp"), mount.join("..data")).expect("swapped");
    fs::remove_dir_all(mount.join("..2026_01")).expect("removed");
    assert_eq!(place(&translator, "cirros"), "https://two.example/");
    assert!(translator.problems().is_empty());
}

#[test]
fn an_unchanged_directory_is_not_read_again() {
    let dir = tempfile::tempdir().expect("a directory");
    write(dir.path(), "a.yaml", "translations: [{name: cirros, url: https://one.example/}]");
    let long_ago = std::time::SystemTime::now() - std::time::Duration::from_secs(3600);
    fs::File::open(dir.path().join("a.yaml")).expect("open").set_modified(long_ago).expect("set");
    let rules = RuleDir::new(dir.path().to_owned());
    // The time of change cannot be set: it gets old enough by itself.
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(10);
    let same = || Arc::ptr_eq(&rules.current().expect("rules"), &rules.current().expect("rules"));
    while !same() {
        assert!(std::time::Instant::now() < deadline, "it is read each time");
    }
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
    let translator = over(dir.path());
    assert_eq!(ask(&translator, "cirros"), "https://good.example/ by rule 1 (`cirros`) of `c-good.yaml`");
    let problems = told(&translator.problems());
    let starts = [
        "translation file `a-bad.yaml` is not used: not a translation file: line 1 column 1: unknown field `tranlations`",
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
    let translator = over(&dir.path().join("file"));
    assert!(ask(&translator, "cirros").starts_with("error: translation rules not readable: failed to read directory"));
}

#[test]
fn what_is_pushed_counts_until_it_is_taken_away() {
    let mappings = Mappings::default();
    let translator = Translator::new(config(), vec![Arc::new(mappings.clone())]);
    let url = || place(&translator, "cirros");
    assert_eq!(url(), "https://cirros/");
    assert!(mappings.put("b", "translations: [{name: cirros, url: https://b.example/}]").is_empty());
    assert_eq!(url(), "https://b.example/");
    assert!(mappings.put("a", "translations: [{name: cirros, url: https://a.example/}]").is_empty());
    assert_eq!(url(), "https://a.example/");
    mappings.remove("a");
    mappings.remove("nothing");
    assert_eq!(url(), "https://b.example/");

    let told_now = told(&mappings.put("b", "translations: [{name: cirros}]"));
    assert_eq!(told_now, ["rule 1 of mapping `b` is not used: it has no `url`"]);
    assert!(ask(&translator, "cirros").starts_with("error: rule 1 (`cirros`) of mapping `b` is the only one"));
    assert_eq!(told(&translator.problems()), told_now);
    assert!(told(&mappings.put("b", "translations: 5"))[0].starts_with("mapping `b` is not used: not a translation"));
    mappings.put("c", "translations: [{name: cirros, url: https://c.example/}]");
    assert_eq!(url(), "https://c.example/");
    mappings.retain(&["b".to_owned()].into());
    assert_eq!((url(), mappings.names()), ("https://cirros/".to_owned(), vec!["b".to_owned()]));
}

#[test]
fn a_stores_settings_reach_the_rules() {
    let dir = tempfile::tempdir().expect("a directory");
    let text = "translations:
- {name: a, url: h/a, platforms: {linux/s390x: {url: h/s390x}}}
- {regexp: '^b$', url: h/b}
";
    write(dir.path(), "a.yaml", text);
    let arm64 = Platform::linux("arm64");
    let mut config = Config::new(dir.path().join("store"));
    config.translations_dir = Some(dir.path().to_owned());
    config.regexp_translations = true;
    config.protocol = Protocol::Http;
    let of_default = HandlerConfig { platform: arm64.clone(), ..HandlerConfig::default() };
    config.handlers.insert(config.default_handler.clone(), of_default);
    config.mappings.put("m", "translations: [{name: c, url: h/c}]");
    let translator = crate::storage::store::translator(&config);
    for (name, expected) in [("a", "http://h/a"), ("b", "http://h/b"), ("c", "http://h/c")] {
        let shown = ask_for(&translator, name, "virtlet", &arm64);
        assert_eq!(shown.split(' ').next(), Some(expected), "{name}");
    }
    let other = ask_for(&translator, "a", "other", &Platform::linux("amd64"));
    assert!(other.starts_with("error: "), "the default place is for the default handler's platform: {other}");
}

#[test]
fn the_same_rules_are_the_same_set() {
    let mappings = Mappings::default();
    let same = |a: &Arc<RuleSet>| Arc::ptr_eq(a, &mappings.current().expect("a set"));
    let first = mappings.current().expect("a set");
    assert!(same(&first));
    mappings.put("a", "{}");
    assert!(!same(&first));
}

fn write(dir: &Path, name: &str, text: &str) {
    fs::create_dir_all(dir).expect("made");
    fs::write(dir.join(name), text).expect("written");
}
