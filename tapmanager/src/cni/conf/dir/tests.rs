use std::os::unix::fs::symlink;

use common::Chain;
use nix::sys::stat::Mode;
use nix::unistd::mkfifo;

use super::super::SpecVersion;
use super::*;

const LIST: &str = r#"{"cniVersion":"1.0.0","name":"net","plugins":[{"type":"bridge","x":1},{"type":"tuning"}]}"#;
const SINGLE: &str = r#"{"cniVersion":"0.4.0","name":"one","type":"ptp","ipam":{"type":"host-local"}}"#;

fn default_network(dir: &Path) -> Result<NetworkList, ConfError> {
    Networks::read(dir)?.default_network(dir)
}

fn dir_with(files: &[(&str, &str)]) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    for (name, text) in files {
        fs::write(dir.path().join(name), text).unwrap();
    }
    dir
}

/// The error and its causes, without the directory's name.
fn refusal(dir: &tempfile::TempDir) -> String {
    let error = default_network(dir.path()).expect_err("refused");
    Chain(&error).to_string().replace(dir.path().to_str().unwrap(), "DIR")
}

fn refused(text: &str) -> String {
    let full = refusal(&dir_with(&[("10-x.conflist", text)]));
    let start =
        "network configuration `DIR/10-x.conflist` is refused; correct it, or remove it if another one is meant: ";
    full.strip_prefix(start).unwrap_or(&full).to_owned()
}

#[test]
fn the_first_file_in_lexical_order_is_the_network() {
    let dir =
        dir_with(&[("20-b.conflist", LIST), ("10-a.conf", SINGLE), ("00-readme.txt", "no"), ("05-x.conf.bak", "no")]);
    fs::create_dir(dir.path().join("00-dir.conf")).unwrap();
    assert_eq!(default_network(dir.path()).unwrap().name(), "one");
}

#[test]
fn a_single_configuration_becomes_a_list_of_one() {
    for name in ["10-a.conf", "10-a.json"] {
        let list = default_network(dir_with(&[(name, SINGLE)]).path()).unwrap();
        assert_eq!(list.versions(), [SpecVersion::V040]);
        let plugin = list.plugins().first().unwrap();
        assert_eq!(plugin.kind, "ptp");
        assert_eq!(Value::Object(plugin.conf.clone()), serde_json::from_str::<Value>(SINGLE).unwrap());
    }
}

#[test]
fn a_link_to_a_file_is_as_good_as_the_file() {
    let elsewhere = dir_with(&[("net", LIST)]);
    let dir = dir_with(&[]);
    symlink(elsewhere.path().join("net"), dir.path().join("10-x.conflist")).unwrap();
    assert_eq!(default_network(dir.path()).unwrap().name(), "net");
}

#[test]
fn without_a_file_the_error_says_what_to_do() {
    let text = "no network is configured: `DIR` has no *.conflist, *.conf or *.json; install a CNI network";
    assert_eq!(refusal(&dir_with(&[("x.yaml", "")])), text);
    let gone = ConfError::None { dir: "/gone".into() }.to_string();
    assert_eq!(default_network(Path::new("/gone")).expect_err("no such directory").to_string(), gone);
}

#[test]
fn a_broken_file_is_reported_and_keeps_no_other_from_being_used() {
    let dir = dir_with(&[("10-a.conflist", "{"), ("20-b.conflist", LIST), ("30-c.conf", SINGLE), ("40-d.json", "[]")]);
    let networks = Networks::read(dir.path()).unwrap();
    assert_eq!(networks.default_network(dir.path()).unwrap().name(), "net");
    assert_eq!(networks.named("one", dir.path()).unwrap().name(), "one");
    let broken: Vec<_> = networks.broken.iter().filter_map(|error| error.file_name()).collect();
    assert_eq!(broken, ["10-a.conflist", "40-d.json"]);
    let unknown = |files: &[(&str, &str)]| {
        let dir = dir_with(files);
        let error = Networks::read(dir.path()).unwrap().named("gone", dir.path()).expect_err("unknown");
        error.to_string().replace(dir.path().to_str().unwrap(), "DIR")
    };
    let good = ("20-b.conflist", LIST);
    let bad = ("10-a.conflist", "{");
    assert_eq!(unknown(&[]), "`DIR` has no network `gone`, but none at all; install it");
    assert_eq!(unknown(&[good]), "`DIR` has no network `gone`, but `net`; install it, or name one of these");
    assert_eq!(unknown(&[bad]), "`DIR` has no network `gone`, but only broken files: `10-a.conflist`");
    assert_eq!(unknown(&[good, bad]), "`DIR` has no network `gone`, but `net`, and the broken files `10-a.conflist`");
}

#[test]
fn where_all_files_are_broken_the_first_is_the_reason() {
    let dir = dir_with(&[("10-a.conflist", "{"), ("20-b.conflist", "[]")]);
    assert_eq!(
        refusal(&dir),
        "network configuration `DIR/10-a.conflist` is refused; correct it, or remove it if another one is meant: \
         it is not JSON: EOF while parsing an object at line 1 column 1"
    );
}

#[test]
fn of_two_networks_with_one_name_the_first_is_meant() {
    let second = LIST.replace("bridge", "ptp");
    let dir = dir_with(&[("20-b.conflist", &second), ("10-a.conflist", LIST)]);
    let found = Networks::read(dir.path()).unwrap().named("net", dir.path()).unwrap();
    assert_eq!(found.kinds().next(), Some("bridge"));
}

#[test]
fn plugins_in_files_of_their_own_follow_the_inlined_ones() {
    let kinds = |list: &str| {
        let dir = dir_with(&[("10-x.conflist", list)]);
        fs::create_dir(dir.path().join("net")).unwrap();
        for (name, text) in [("20-b.conf", r#"{"type":"b"}"#), ("10-a.conf", r#"{"type":"a"}"#), ("c.conflist", "{")] {
            fs::write(dir.path().join("net").join(name), text).unwrap();
        }
        let list = default_network(dir.path());
        list.map(|list| list.kinds().map(str::to_owned).collect::<Vec<_>>().join(" "))
    };
    assert_eq!(kinds(LIST).unwrap(), "bridge tuning a b");
    let alone = r#"{"cniVersion":"1.1.0","name":"net"}"#;
    assert_eq!(kinds(alone).unwrap(), "a b");
    assert_eq!(kinds(&alone.replace('}', r#","plugins":null}"#)).unwrap(), "a b");
    let only = LIST.replace(r#""name""#, r#""loadOnlyInlinedPlugins":true,"name""#);
    assert_eq!(kinds(&only).unwrap(), "bridge tuning");
    kinds(&only.replace(":true", ":3")).expect_err("no flag");
    kinds(&alone.replace('}', r#","plugins":3}"#)).expect_err("no list");
}

#[test]
fn a_broken_file_of_a_plugin_breaks_its_network_alone() {
    let dir = dir_with(&[("10-x.conflist", LIST), ("20-y.conf", SINGLE)]);
    fs::create_dir(dir.path().join("net")).unwrap();
    fs::write(dir.path().join("net/a.conf"), "{").unwrap();
    let networks = Networks::read(dir.path()).unwrap();
    assert_eq!(networks.lists.iter().map(NetworkList::name).collect::<Vec<_>>(), ["one"]);
    assert_eq!(networks.broken.first().unwrap().file_name().as_deref(), Some("a.conf"));
}

#[test]
fn what_is_no_file_is_not_waited_for() {
    let dir = dir_with(&[]);
    mkfifo(&dir.path().join("10-x.conf"), Mode::S_IRUSR).unwrap();
    assert!(refusal(&dir).ends_with("it is not a regular file of at most 1048576 bytes"));
    let dir = dir_with(&[]);
    symlink("/gone", dir.path().join("10-x.conf")).unwrap();
    assert!(refusal(&dir).starts_with("failed to read the network configuration `DIR/10-x.conf`: No such file"));
}

#[test]
fn an_endless_file_is_refused() {
    let long = format!("{LIST}{}", " ".repeat(1 << 20));
    assert_eq!(refused(&long), "it is not a regular file of at most 1048576 bytes");
}

#[test]
fn what_is_wrong_is_said() {
    let spoken = "this runtime speaks 0.3.0, 0.3.1, 0.4.0, 1.0.0, 1.1.0";
    let plugins = r#""plugins":[{"type":"a"}]"#;
    for (text, expected) in [
        ("[]".to_owned(), "`name` is not letters, digits, `_`, `.` and `-`, starting with a letter or digit"),
        (format!(r#"{{"cniVersion":"1.0.0",{plugins}}}"#), "`name` is not letters"),
        (format!(r#"{{"name":"../x","cniVersion":"1.0.0",{plugins}}}"#), "`name` is not letters"),
        (format!(r#"{{"name":"n",{plugins}}}"#), &format!("`cniVersion` is missing; {spoken}")),
        (format!(r#"{{"name":"n","cniVersion":"0.2.0",{plugins}}}"#), &format!("`cniVersion` is `0.2.0`; {spoken}")),
        (format!(r#"{{"name":"n","cniVersion":1,{plugins}}}"#), "`cniVersion` is missing or not a text"),
        (format!(r#"{{"name":"n","cniVersions":[1],{plugins}}}"#), "`cniVersions` is missing or not a list of texts"),
        (r#"{"name":"n","cniVersion":"1.0.0"}"#.to_owned(), "`plugins` is missing or not a list"),
        (r#"{"name":"n","cniVersion":"1.0.0","type":"a"}"#.to_owned(), "it has `type` but no `plugins`"),
        (
            r#"{"name":"n","cniVersion":"1.0.0","type":"a","plugins":1}"#.to_owned(),
            "`plugins` is missing or not a list",
        ),
        (r#"{"name":"n","cniVersion":"1.0.0","plugins":[]}"#.to_owned(), "`plugins` has 0 entries, not 1 to 32"),
        (
            format!(r#"{{"name":"n","cniVersion":"1.0.0","plugins":[{}{{}}]}}"#, r#"{"type":"a"},"#.repeat(32)),
            "`plugins` has 33 entries, not 1 to 32",
        ),
        (
            r#"{"name":"n","cniVersion":"1.0.0","plugins":[{"type":"a"},{"type":"../sh"}]}"#.to_owned(),
            "plugin 2 of `plugins` has no `type` that is a plain file name",
        ),
        (
            format!(r#"{{"name":"n","cniVersion":"1.0.0","disableCheck":"no",{plugins}}}"#),
            "`disableCheck` is missing or not true or false",
        ),
        (
            format!(r#"{{"name":"n","cniVersion":"1.0.0","disableGC":3,{plugins}}}"#),
            "`disableGC` is missing or not true or false",
        ),
    ] {
        let said = refused(&text);
        assert!(said.starts_with(expected), "{text}: {said}");
    }
    let misnamed = refusal(&dir_with(&[("10-x.conf", LIST)]));
    assert!(
        misnamed.ends_with("it has `plugins` but no `type`: a list of plugins belongs into a *.conflist"),
        "{misnamed}"
    );
}
