//! What is told of rules and settings that cannot be used.

use std::path::Path;
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::*;

fn images(rules: &str) -> (tempfile::TempDir, Images) {
    let dir = tempfile::tempdir().expect("a directory");
    let rules_dir = dir.path().join("rules");
    std::fs::create_dir(&rules_dir).expect("made");
    std::fs::write(rules_dir.join("a.yaml"), rules).expect("written");
    let mut config = imagestore::Config::new(dir.path().join("images"));
    config.translations_dir = Some(rules_dir);
    let mappings = config.mappings.clone();
    let images = Images::of(Store::open(config).expect("opened"), mappings);
    (dir, images)
}

#[tokio::test]
async fn problems_of_rules_are_told_before_any_pull_and_as_they_are_now() {
    let (dir, images) = images("translations: [{name: a, url: 'ftp://h/'}, {name: b, url: 'https://h/'}]");
    let told = images.rule_problems().await;
    assert_eq!(told.len(), 1, "{told:?}");
    assert!(told[0].starts_with("rule 1 of translation file `a.yaml` is not used: its `url` cannot be used: scheme"));
    std::fs::remove_file(dir.path().join("rules/a.yaml")).expect("removed");
    assert!(images.rule_problems().await.is_empty());
}

#[tokio::test]
async fn problems_of_rules_fit_a_status() {
    let rule = format!("{{name: a, url: 'https://h/', format: {}}},", "x".repeat(5000));
    let (_dir, images) = images(&format!("translations: [{}]", rule.repeat(MAX_PROBLEMS + 3)));
    let told = images.rule_problems().await;
    assert_eq!(told.len(), MAX_PROBLEMS + 1);
    assert!(told.iter().all(|line| line.chars().count() <= MAX_PROBLEM), "{told:?}");
    assert_eq!(told[MAX_PROBLEMS], "3 more are in the log");
}

#[tokio::test]
async fn a_pull_does_not_hold_up_a_shutdown() {
    let (_dir, images) = images("translations: []");
    let pull = || images.pull(PullRequest { name: "h.example/disk".into(), ..PullRequest::default() });
    let (under_way, ()) = tokio::join!(pull(), async { images.stop_pulls() });
    for refused in [under_way, pull().await] {
        let refused = refused.expect_err("ended");
        assert_eq!(refused.kind(), Kind::Unavailable, "{refused}");
        assert!(refused.to_string().contains("going down"), "{refused}");
    }
}

#[test]
fn what_is_not_taken_at_the_start_is_not_taken_by_a_check() {
    let dir = tempfile::tempdir().expect("a directory");
    let repos = dir.path().join("repos.d");
    std::fs::create_dir(&repos).expect("made");
    let repo = "[lago]\nuri=https://b.example/index.asc\ngpgkey=file:///nowhere/key\n";
    std::fs::write(repos.join("a.conf"), repo).expect("written");
    let provider = |rest: &str| format!("[[images.providers]]\nid = 'a'\n{rest}\n");
    let lago = "type = 'lago'\nuri = 'http://h/repo.metadata'";
    let streams = "type = 'simplestreams'\nuri = 'https://h/'";
    let builder = "type = 'virt-builder'\nuri = 'https://h/index.asc'";
    for (text, wanted) in [
        (format!("{0}{0}", provider(lago)), "provider `a` is not configured soundly: another provider has the same id"),
        (provider(&format!("{streams}\nkeyring = '/nowhere/keys'")), "failed to open `/nowhere/keys`"),
        (provider(&format!("{lago}\ntransport.ca_file = '/nowhere/ca'")), "failed to read `/nowhere/ca`"),
        (provider("type = 'glance'"), "provider `a` is not configured soundly: "),
        (provider(builder), "name a `keyring`, or say `insecure`"),
        ("[images.handlers.'X Y']".into(), "`X Y` cannot be the name of a runtime handler"),
        ("runtime_handlers = ['X Y']".into(), "`X Y` cannot be the name of a runtime handler"),
        ("[handlers.'X Y']".into(), "`X Y` cannot be the name of a runtime handler"),
        ("[images]\ndefault_handler = 'X'".into(), "`X` cannot be the name of a runtime handler"),
        (
            format!(
                "[images]\nvirt_builder_repos = ['{}']\n{}",
                repos.display(),
                provider(lago).replace("'a'", "'lago'")
            ),
            "`lago`",
        ),
        (
            format!("[images.handlers.v]\nproviders = ['nope']\n{}", provider(lago)),
            "runtime handler `v` names provider `nope` in `providers`; there are http, file, a",
        ),
        ("[images.handlers.virtlet]\nproviders = ['nope']".into(), "runtime handler `virtlet` names provider `nope`"),
    ] {
        let config = load(dir.path(), &text);
        let checked = Chain(&Images::check(&config).expect_err(&text)).to_string();
        assert!(checked.contains(wanted), "{text}: {checked}");
        assert!(!config.state_dir.exists(), "{text}: the check leaves nothing behind");
        std::fs::create_dir(&config.state_dir).expect("made");
        let opened = Chain(&Images::open(&config).expect_err(&text)).to_string();
        assert!(opened.contains(wanted), "{text}: {opened}");
        std::fs::remove_dir_all(&config.state_dir).expect("removed");
    }
    let sound = format!("[images.handlers.v]\nproviders = ['http', 'a']\n{}", provider(lago));
    let config = load(dir.path(), &sound);
    Images::check(&config).expect("sound");
    assert!(!config.state_dir.exists());
}

/// Keys that serde says a table knows.
fn keys_of(table: &str) -> Vec<String> {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("controld.toml");
    std::fs::write(&path, format!("[[images.providers]]\nid = 'a'\n{table}\nno_such = 1\n")).expect("written");
    let error = Config::load(Some(&path)).expect_err("an unknown key");
    let said = Chain(&error).to_string();
    let (_, known) = said.split_once("unknown field `no_such`, expected").unwrap_or_else(|| panic!("{said}"));
    known.split('`').skip(1).step_by(2).map(str::to_owned).collect()
}

#[test]
fn the_document_has_every_setting_of_every_provider() {
    let document = include_str!("../../../docs/configuration.md");
    let (_, chapter) = document.split_once("### Providers of images").expect("a chapter");
    let (chapter, _) = chapter.split_once("\n### ").expect("another one");
    for (kind, table) in [
        ("oci", "type = 'oci'"),
        ("virt-builder", "type = 'virt-builder'\nuri = 'http://x/'"),
        ("simplestreams", "type = 'simplestreams'\nuri = 'http://x/'"),
        ("glance", "type = 'glance'"),
        ("lago", "type = 'lago'\nuri = 'http://x/'"),
        ("transport", "type = 'oci'\n[images.providers.transport]"),
    ] {
        let (_, rows) =
            chapter.split_once(&format!("| key of `{kind}` |")).unwrap_or_else(|| panic!("no table of {kind}"));
        let rows = rows.lines().skip(2).take_while(|line| line.starts_with('|'));
        let keys = rows.flat_map(|row| row.split('|').nth(1).unwrap_or_default().split('`').skip(1).step_by(2));
        let (mut written, mut known) = (keys.map(str::to_owned).collect::<Vec<_>>(), keys_of(table));
        written.sort();
        known.sort();
        assert_eq!(written, known, "{kind}");
    }
}

#[test]
fn the_examples_of_providers_are_ones() {
    let document = include_str!("../../../docs/configuration.md");
    let (_, chapter) = document.split_once("### Providers of images").expect("a chapter");
    let (chapter, _) = chapter.split_once("\n### ").expect("another one");
    let examples = chapter.split("```toml\n").skip(1).map(|rest| rest.split("```").next().expect("an end"));
    let dir = tempfile::tempdir().expect("a directory");
    let kinds: Vec<_> = examples
        .map(|example| {
            let config = load(dir.path(), example);
            let [provider] = &*config.images.providers else { panic!("not one provider: {example}") };
            // Whatever its files are, it is sound but for those that are not on this machine.
            if let Err(error) = Images::check(&config) {
                let said = Chain(&error).to_string();
                assert!(said.contains("/etc/virtlet/") && said.contains("No such file"), "{example}: {said}");
            }
            format!("{:?}", provider.kind).split('(').next().unwrap_or_default().to_owned()
        })
        .collect();
    assert_eq!(kinds, ["Oci", "VirtBuilder", "Simplestreams", "Glance", "Lago"]);
}

/// The words of k8s.io/cri-api/pkg/errors, which kubelet looks for at the beginning of an unknown error.
#[tokio::test]
async fn kubelet_knows_why_a_registry_could_not_be_asked() {
    let dir = tempfile::tempdir().expect("a directory");
    let config = load(dir.path(), "[images]\nprotocol = 'http'\nnetwork = {allow_loopback = true}\n");
    std::fs::create_dir(&config.state_dir).expect("made");
    let mut wanted = for_store(&config);
    wanted.net.retries.count = 0;
    let mappings = wanted.mappings.clone();
    let images = Images::of(Store::open(wanted).expect("opened"), mappings);
    // Nobody listens at that port.
    let error = images.pull("127.0.0.1:1/image".into()).await.expect_err("nobody there");
    let status = crate::api::status::of(&error);
    assert_eq!(status.code(), tonic::Code::Unknown);
    assert!(status.message().starts_with("RegistryUnavailable: image not pulled"), "{}", status.message());
    let error = images.pull("169.254.169.254/image".into()).await.expect_err("not asked");
    assert_eq!(crate::api::status::of(&error).code(), tonic::Code::PermissionDenied);
}

#[tokio::test]
async fn a_failed_pull_names_the_key_that_stands_in_its_way() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("bound");
    let host = listener.local_addr().expect("an address").to_string();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut hello = [0; 512];
            let _ = stream.read(&mut hello).await;
            // As web servers answer what is no HTTP. One that is gone has asked enough.
            let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n").await;
        }
    });
    let rules = tempfile::tempdir().expect("a directory");
    let rule = |name: &str, url: &str| format!("{{name: {name}, url: '{url}://{host}/image'}}");
    let both = format!("translations: [{}, {}]", rule("by-url", "https"), rule("by-oci", "oci"));
    std::fs::write(rules.path().join("a.yaml"), both).expect("written");
    let open =
        format!("[images]\nnetwork = {{allow_loopback = true}}\ntranslations_dir = '{}'\n", rules.path().display());
    let provider = format!("{open}[[images.providers]]\nid = 'corp'\ntype = 'oci'\nregistries = ['{host}']\n");
    let image = format!("{host}/image");
    for (settings, name, key) in [
        ("", &image, "`images.network.allow_loopback`"),
        ("", &"localhost/disk".to_owned(), "`virtletctl image import`"),
        (open.as_str(), &format!("{image}.qcow2"), "; of a server that speaks plain HTTP, set `images.protocol`, or"),
        (
            open.as_str(),
            &image,
            "set `images.protocol`, translate the name to a URL, or name a registry's host in `plain_http`",
        ),
        (provider.as_str(), &image, "name the host in `plain_http` of that provider"),
        (open.as_str(), &"by-url".to_owned(), "begin the rule's `url` with `http://`"),
        (open.as_str(), &"by-oci".to_owned(), "name the host in `plain_http` of a provider of type `oci`"),
    ] {
        let dir = tempfile::tempdir().expect("a directory");
        let config = load(dir.path(), settings);
        std::fs::create_dir(&config.state_dir).expect("made");
        let mut wanted = for_store(&config);
        wanted.net.retries.count = 0;
        let mappings = wanted.mappings.clone();
        let images = Images::of(Store::open(wanted).expect("opened"), mappings);
        let error = images.pull(name.as_str().into()).await.expect_err("no image");
        let said = Chain(&error).to_string();
        assert!(said.contains(key), "{name}: {said}");
        if !settings.is_empty() {
            // virtletctl ends with the code of a source that cannot be reached.
            assert!(said.starts_with("RegistryUnavailable: "), "{said}");
        }
    }
}

#[test]
fn limits_reach_the_store() {
    let dir = tempfile::tempdir().expect("a directory");
    let limits = |text: &str| for_store(&load(dir.path(), text)).limits;
    assert_eq!(limits(""), imagestore::Limits::default());
    let text = "[images]\nmax_virtual_size_gib = 9\n[images.limits]\nartifact_gib = 1\nunpacked_gib = 2\nratio = 3\n\
                ratio_from_gib = 4\ndownloads = 5\ngranted_for_s = 9\npartial_ttl_s = 6\npartial_quota_gib = 7\nreserve_gib = 8\n";
    let wanted = imagestore::Limits {
        artifact: 1 << 30,
        unpacked: 2 << 30,
        ratio: 3,
        ratio_from: 4 << 30,
        virtual_size: 9 << 30,
        downloads: 5,
        granted_for: Duration::from_secs(9),
        partial_ttl: Duration::from_secs(6),
        partial_quota: 7 << 30,
        reserve: 8 << 30,
    };
    assert_eq!(limits(text), wanted);
}

fn load(dir: &Path, text: &str) -> Config {
    let path = dir.join("controld.toml");
    let state = dir.join("state");
    std::fs::write(&path, format!("state_dir = '{}'\n{text}", state.display())).expect("written");
    Config::load(Some(&path)).expect("loads")
}
