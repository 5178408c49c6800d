//! Each rule is shown red on a workspace with one planted fault, and green on the one without.

use std::path::Path;

use crate::check;
use crate::workspace::Workspace;

const RULES: &str = r#"
    [crates]
    leaf = []
    wire = []
    daemon = ["leaf/", "wire/tap"]

    [without]
    leaf = ["tokio"]

    [rooms]
    daemon = ["edge", "service", "store"]

    [[only]]
    path = "wire::cri"
    within = ["wire", "daemon::edge"]
    except = ["wire::cri::server"]
"#;

const CLEAN: &[(&str, &str)] = &[
    ("Cargo.toml", "[workspace]\nresolver = '3'\nmembers = ['leaf', 'wire', 'daemon']\n"),
    (
        "leaf/Cargo.toml",
        "[package]\nname = 'leaf'\nedition = '2024'\n[dev-dependencies]\ndaemon = { path = '../daemon' }\n",
    ),
    ("leaf/src/lib.rs", "pub fn used() {}\n"),
    ("wire/Cargo.toml", "[package]\nname = 'wire'\nedition = '2024'\n[features]\ntap = []\ncri = []\n"),
    ("wire/src/lib.rs", "pub mod tap {}\npub mod cri { pub struct Request; pub mod server { pub struct Server; } }\n"),
    (
        "daemon/Cargo.toml",
        "[package]\nname = 'daemon'\nedition = '2024'\n[dependencies]\nleaf = { path = '../leaf' }\n\
         wire = { path = '../wire', features = ['tap'] }\n",
    ),
    ("daemon/src/lib.rs", "mod edge;\nmod service;\nmod store;\nmod words;\npub use service::Service;\n"),
    ("daemon/src/edge.rs", "pub mod convert { pub fn of(_: wire::cri::Request) {} }\nuse crate::Service;\n"),
    (
        "daemon/src/service.rs",
        "mod actor;\npub struct Service(crate::store::Store, wire::cri::server::Server);\npub struct Shared;\n",
    ),
    ("daemon/src/service/actor.rs", "use super::Shared;\nuse crate::words::say;\n"),
    (
        "daemon/src/store.rs",
        "pub struct Store;\n#[cfg(test)]\nmod tests { use crate::service::Shared; }\n\
         fn f() { /* crate::service::Shared */ let s = \"crate::service::Shared\"; }\n",
    ),
    (
        "README.md",
        "# Top\n[all](docs/ALL.md#how-it-works) `daemon/src/{edge,store.rs}` `edge.rs` `/etc/gone.rs` `example.com/gone`\n\
         ```\ndaemon/src/gone.rs\n```\n",
    ),
    ("docs/ALL.md", "# All\n## How it *works*\n[top](../README.md), [here](#all), [web](https://example.com/gone)\n"),
    ("docs/adr/0001-gone.md", "Status: superseded by 2.\n`daemon/src/gone.rs`\n"),
    ("daemon/src/words.rs", "#[macro_export]\nmacro_rules! say { () => {} }\npub use say;\n"),
];

/// What is wrong with the clean workspace after `planted` is appended to its files.
fn faults_of(planted: &[(&str, &str)]) -> Vec<String> {
    let dir = tempfile::tempdir().expect("a directory");
    let write = |name: &str, text: &str| {
        let path = dir.path().join(name);
        std::fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
        std::fs::write(path, text).expect("a file");
    };
    write(crate::RULES, RULES);
    CLEAN.iter().for_each(|(name, text)| write(name, text));
    for (name, text) in planted {
        let before = std::fs::read_to_string(dir.path().join(name)).unwrap_or_default();
        write(name, &format!("{before}{text}"));
    }
    let workspace = Workspace::read(&dir.path().join(Path::new("Cargo.toml"))).expect("a workspace");
    check(&workspace).expect("readable sources").1
}

#[test]
fn a_clean_workspace_passes() {
    assert_eq!(faults_of(&[]), Vec::<String>::new());
}

#[test]
fn a_cycle_is_found_and_both_ends_of_each_tie_are_named() {
    let faults = faults_of(&[("daemon/src/words.rs", "\nuse crate::service::{\n    Shared,\n};\n")]);
    let expected = "modules of `daemon` use each other in a circle: `service`, `words`\n  \
        `service` uses `words`: daemon/src/service/actor.rs:2 names `crate::words::say`, from daemon/src/words.rs:2\n  \
        `words` uses `service`: daemon/src/words.rs:6 names `crate::service::Shared`, from daemon/src/service.rs:3";
    assert_eq!(faults, [expected]);
}

#[test]
fn a_cycle_is_found_below_the_top_and_through_what_is_no_import() {
    let planted = [
        ("daemon/src/service.rs", "mod health;\npub use health::Health;\n"),
        ("daemon/src/service/health.rs", "pub struct Health;\nfn f() { println!(\"{}\", super::actor::ONE) }\n"),
        ("daemon/src/service/actor.rs", "pub const ONE: u8 = 1;\nfn g(_: super::Health) {}\n"),
    ];
    let faults = faults_of(&planted);
    let expected = "modules of `daemon::service` use each other in a circle: `actor`, `health`\n  \
        `actor` uses `health`: daemon/src/service/actor.rs:4 names `super::Health`, from daemon/src/service/health.rs:1\n  \
        `health` uses `actor`: daemon/src/service/health.rs:2 names `super::actor::ONE`, from daemon/src/service/actor.rs:3";
    assert_eq!(faults, [expected]);
}

#[test]
fn a_cycle_through_three_modules_an_alias_and_a_glob_is_found() {
    let planted = [
        ("daemon/src/words.rs", "use crate::edge as border;\nfn f() { border::convert::g() }\n"),
        ("daemon/src/edge.rs", "use crate::*;\npub(crate) fn h(_: service::Shared) {}\n"),
    ];
    let faults = faults_of(&planted);
    let [fault] = faults.as_slice() else { panic!("{faults:?}") };
    assert!(
        fault.starts_with("modules of `daemon` use each other in a circle: `edge`, `service`, `words`\n"),
        "{fault}"
    );
}

#[test]
fn a_crate_that_may_not_be_used_is_found() {
    let faults = faults_of(&[("leaf/Cargo.toml", "[dependencies]\nwire = { path = '../wire' }\n")]);
    assert_eq!(faults, ["leaf/Cargo.toml: `leaf` may not depend on `wire`"]);
}

#[test]
fn a_crate_of_others_that_may_not_be_used_is_found() {
    let faults = faults_of(&[("leaf/Cargo.toml", "[dependencies]\ntokio = '1'\nserde = '1'\n")]);
    assert_eq!(faults, ["leaf/Cargo.toml: `leaf` may not depend on `tokio`"]);
}

#[test]
fn a_feature_of_a_crate_that_is_used_without_any_is_found() {
    let asked = "[build-dependencies]\nleaf = { path = '../leaf', features = ['log'] }\n";
    let faults = faults_of(&[("leaf/Cargo.toml", "[features]\nlog = []\n"), ("daemon/Cargo.toml", asked)]);
    assert_eq!(faults, ["daemon/Cargo.toml: `daemon` may not depend on `leaf/log`"]);
}

#[test]
fn a_feature_that_may_not_be_used_is_found() {
    let faults =
        faults_of(&[("daemon/Cargo.toml", "[build-dependencies]\nwire = { path = '../wire', features = ['cri'] }\n")]);
    assert_eq!(faults, ["daemon/Cargo.toml: `daemon` may not depend on `wire/cri`"]);
}

#[test]
fn a_folder_that_may_not_be_used_is_found() {
    let faults = faults_of(&[("daemon/src/store.rs", "fn g(_: crate::Service) {}\n")]);
    let expected = "daemon/src/store.rs:5: in `daemon`, `store` may not use `service`: names `crate::Service`, \
        from daemon/src/service.rs:2";
    assert!(faults.contains(&expected.to_owned()), "{faults:?}");
}

#[test]
fn a_generated_type_is_found_wherever_it_comes_through() {
    let direct = faults_of(&[("daemon/src/service.rs", "fn f(_: &wire::cri::Request) {}\n")]);
    assert_eq!(
        direct,
        ["daemon/src/service.rs:4: `daemon::service` may not name `wire::cri`: names `wire::cri::Request`"]
    );

    let planted = [
        ("daemon/src/words.rs", "pub use crate::edge::Request;\n"),
        ("daemon/src/edge.rs", "pub use wire::cri::{self as pb, Request};\n"),
    ];
    let through = faults_of(&planted);
    assert_eq!(
        through,
        ["daemon/src/words.rs:4: `daemon::words` may not name `wire::cri`: names `crate::edge::Request`"]
    );
}

#[test]
fn a_rule_that_names_no_module_is_found() {
    let faults = faults_of(&[(crate::RULES, "[[only]]\npath = 'leaf'\nwithin = ['daemon::gone', 'daemon']\n")]);
    assert_eq!(faults, ["a rule names `daemon::gone`, which is no module"]);
}

#[test]
fn a_path_in_a_document_that_does_not_exist_is_found() {
    let planted = [
        ("README.md", "see `store.rs` and `daemon/src/gone.rs`\n"),
        ("docs/ALL.md", "`gone.sh`, `service/{actor,gone}`\n"),
        ("docs/adr/0002-here.md", "Status: accepted.\n`leaf/gone`\n"),
    ];
    let expected = [
        "README.md:6: names `daemon/src/gone.rs`, which does not exist",
        "docs/ALL.md:4: names `gone.sh`, which does not exist",
        "docs/ALL.md:4: names `service/{actor,gone}`, which does not exist",
        "docs/adr/0002-here.md:2: names `leaf/gone`, which does not exist",
    ];
    assert_eq!(faults_of(&planted), expected);
}

#[test]
fn a_link_in_a_document_that_leads_nowhere_is_found() {
    let planted = [("docs/ALL.md", "[gone](GONE.md), [no heading](../README.md#gone), [none here](#top)\n")];
    let expected = [
        "docs/ALL.md:4: the link to `GONE.md` leads nowhere",
        "docs/ALL.md:4: the link to `../README.md#gone` leads nowhere",
        "docs/ALL.md:4: the link to `#top` leads nowhere",
    ];
    assert_eq!(faults_of(&planted), expected);
}
