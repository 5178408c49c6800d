use std::fs;
use std::path::Path;

use redb::{Database, TableDefinition};
use serde_json::json;
use sha2::{Digest as _, Sha256};
use tempfile::TempDir;

use super::*;
use crate::daemon::dump::Dump;
use crate::orphans::instance::Instance;
use crate::store::Store;

/// Something of this kind, of the release after this one, in a state directory of its own.
fn newer((kind, version): (&str, u32)) -> (TempDir, Config) {
    let dir = tempfile::tempdir().expect("tempdir");
    let path = dir.path();
    let version = version + 1;
    let record = json!({ "version": version, "of": "a later time" }).to_string();
    match kind {
        "sandboxes" | "containers" => put(path, kind, record.as_bytes()),
        "lines" => {
            let json = r#"{"seq":1,"sandbox":"one"}"#;
            let sum: String = Sha256::digest(json).iter().take(8).map(|byte| format!("{byte:02x}")).collect();
            fs::write(path.join("meta.log"), format!("{version} {sum} {json}\n")).expect("written");
        }
        "disks" => {
            let folder = path.join("volumes/a-pod");
            fs::create_dir_all(&folder).expect("made");
            fs::write(folder.join("owner.json"), record).expect("written");
        }
        "instance" => fs::write(path.join("instance"), record).expect("written"),
        other => panic!("a test is to be told how a newer release writes `{other}`"),
    }
    let config = Config { state_dir: path.to_owned(), ..Config::default() };
    (dir, config)
}

fn put(dir: &Path, table: &str, record: &[u8]) {
    let db = Database::create(dir.join("meta.redb")).expect("made");
    let write = db.begin_write().expect("begun");
    write.open_table(TableDefinition::<&str, &[u8]>::new(table)).expect("table").insert("web", record).expect("put");
    write.commit().expect("committed");
}

/// Opens what `Node::open` does before anything is changed.
async fn start(config: &Config) -> anyhow::Result<()> {
    let store = Store::open(&crate::daemon::database(config))?;
    Volumes::open(crate::daemon::volumes_dir(config))?.refuse_newer()?;
    Instance::begin(&config.state_dir, &store, &[]).await?;
    Ok(())
}

#[tokio::test]
async fn what_a_start_refuses_of_a_newer_release_is_named_and_shown() {
    for kind in [SANDBOXES, CONTAINERS, LINES, DISKS, INSTANCE] {
        let (name, version) = kind;
        let (_dir, config) = newer(kind);
        let line = format!("{name} {version}\n");
        assert!(written().contains(&line), "{}", written());
        // A line is of a sandbox.
        let there = if kind == LINES { lines([(SANDBOXES, true), (LINES, true)]) } else { line };
        assert_eq!(recorded(&config), there);
        let dump = Dump::of(&config).expect("shown");
        assert_eq!(dump.unread, 1, "{name}: {:#}", dump.state);
        let told = format!("ersion {}", version + 1);
        let named = [&dump.state["unread"], &dump.state["unread_files"]].map(ToString::to_string).concat();
        assert!(named.contains(&told), "{name}: {named}");
        start(&config).await.expect_err(name);
    }
}

#[tokio::test]
async fn what_is_on_no_record_keeps_nobody_from_an_older_release() {
    let dir = tempfile::tempdir().expect("tempdir");
    let config = Config { state_dir: dir.path().to_owned(), ..Config::default() };
    assert_eq!(recorded(&config), "");
    assert_eq!(fs::read_dir(dir.path()).expect("dir").count(), 0, "a look makes something");
    start(&config).await.expect("starts");
    assert_eq!(recorded(&config), lines([(INSTANCE, true)]), "a start leaves more");
}

#[tokio::test]
async fn while_a_daemon_has_the_database_there_may_be_anything_in_it() {
    let dir = tempfile::tempdir().expect("tempdir");
    let config = Config { state_dir: dir.path().to_owned(), ..Config::default() };
    let _daemon = Store::open(&crate::daemon::database(&config)).expect("opens");
    assert_eq!(recorded(&config), lines([SANDBOXES, CONTAINERS, LINES].map(|kind| (kind, true))));
}
