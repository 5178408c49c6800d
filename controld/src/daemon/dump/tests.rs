use std::fs;

use redb::{Database, TableDefinition};
use vmspec::SandboxConfig;

use super::*;
use crate::model::{SANDBOX_VERSION, Sandbox, SandboxState};
use crate::store::Store;

const NEWER: &[u8] = br#"{"version":99,"of":"a later time"}"#;

#[tokio::test]
async fn what_can_be_read_is_shown_beside_what_a_newer_release_wrote() {
    let dir = tempfile::tempdir().expect("tempdir");
    let config = Config { state_dir: dir.path().to_owned(), ..Config::default() };
    let sandbox = Sandbox {
        version: SANDBOX_VERSION,
        id: "one".parse().expect("pod id"),
        state: SandboxState::Ready,
        boot: String::new(),
        created_at: 1,
        config: SandboxConfig { name: "web".into(), ..SandboxConfig::default() },
        net: None,
    };
    let store = Store::open(&super::super::database(&config)).expect("opens");
    store.put_sandbox(sandbox).await.expect("put");
    Dump::of(&config).expect_err("a daemon has it");
    drop(store);
    let well = Dump::of(&config).expect("shown");
    assert_eq!((well.unread, &well.state["sandboxes"][0]["config"]["name"]), (0, &json!("web")));

    let db = Database::create(super::super::database(&config)).expect("opens");
    let write = db.begin_write().expect("begun");
    let table = TableDefinition::<&str, &[u8]>::new("containers");
    write.open_table(table).expect("table").insert("later", NEWER).expect("put");
    write.commit().expect("committed");
    drop(db);
    let folder = dir.path().join("volumes/a-pod");
    fs::create_dir_all(&folder).expect("made");
    fs::write(folder.join("kept.json"), "{").expect("written");
    Store::open(&super::super::database(&config)).expect_err("an older release works with it");
    let Dump { state, unread } = Dump::of(&config).expect("shown");
    assert_eq!((unread, &state["sandboxes"][0]["config"]["name"]), (2, &json!("web")));
    assert_eq!(state["unread"][0]["key"], "later");
    let file = state["unread_files"][0].as_str().expect("a text");
    assert!(file.contains("a-pod/kept.json` is damaged"), "{file}");
}
