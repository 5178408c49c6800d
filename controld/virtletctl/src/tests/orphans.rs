//! `orphans` and `forget` against a service of our own.

use proto::orphans::{Kind, Orphan};
use tonic::Status;

use super::fake::{Fake, serve};
use super::*;

fn orphans() -> Vec<Orphan> {
    let lost = "it is on no record: records were lost".to_owned();
    vec![
        Orphan {
            kind: Kind::Machine.into(),
            id: "c0".repeat(16),
            pod_uid: "0e5a9b7c".into(),
            why: lost.clone(),
            runs: true,
            ..Orphan::default()
        },
        Orphan {
            kind: Kind::Disk.into(),
            id: "0e5a9b7c".into(),
            pod_uid: "0e5a9b7c".into(),
            pod_namespace: "default".into(),
            pod_name: "web\u{1b}[2J".into(),
            since: 1_700_000_000,
            why: "the database is new: the one of the last start is gone".into(),
            bytes: 3 << 30,
            ..Orphan::default()
        },
        Orphan {
            kind: Kind::Record.into(),
            id: "containers/c1".into(),
            why: "version 2 is not 1".into(),
            ..Orphan::default()
        },
    ]
}

#[tokio::test]
async fn what_is_of_unknown_owner_is_listed_and_forgotten() {
    let (_dir, fake, socket) = serve(Fake::having(orphans()));
    let (table, errors) = ctl(&socket, &["orphans"]).await;
    assert_eq!(errors, [""; 0]);
    // The age changes with the clock.
    let cells =
        |line: &str| line.split("  ").map(str::trim).filter(|cell| !cell.is_empty()).map(str::to_owned).collect();
    let table: Vec<Vec<String>> = table.lines().map(cells).collect();
    assert_eq!(table[0], ["KIND/ID", "STATE", "POD", "SIZE", "KNOWN FOR", "WHY IT IS KEPT"]);
    assert_eq!(table[1][..4], [&*format!("machine/{}", "c0".repeat(16)), "running", "0e5a9b7c", "-"]);
    assert_eq!(table[2][..4], ["disk/0e5a9b7c", "-", "default/web\\u{1b}[2J", "3.0 GiB"]);
    assert_eq!(table[3][0], "record/containers/c1");
    let (json, _) = ctl(&socket, &["orphans", "--json"]).await;
    insta::assert_snapshot!(json);

    let (out, errors) = ctl(&socket, &["forget", "disk/0e5a9b7c", "record/containers/c1"]).await;
    assert_eq!((out.as_str(), errors), ("disk/0e5a9b7c\nrecord/containers/c1\n", vec![]));
    assert_eq!(fake.calls(), ["Forget 0e5a9b7c", "Forget containers/c1"]);
    assert_eq!(ctl(&socket, &["orphans"]).await.0.lines().count(), 2, "the machine is left");
}

#[tokio::test]
async fn what_is_in_use_is_said_and_the_rest_goes() {
    let mut fake = Fake::having(orphans());
    fake.fail("Forget", Status::failed_precondition("disk `0e5a9b7c` is in use by a machine of unknown owner"));
    let (_dir, _fake, socket) = serve(fake);
    let (out, errors) = ctl(&socket, &["forget", "disk/0e5a9b7c"]).await;
    assert_eq!(out, "");
    insta::assert_snapshot!(errors.join("\n"), @"failed to forget `disk/0e5a9b7c`: disk `0e5a9b7c` is in use by a machine of unknown owner");
}

#[test]
fn things_are_named_by_kind_and_id() {
    for (text, wanted) in [
        ("0e5a9b7c", "write KIND/ID; the kinds are machine, disk, network, console, lease, record"),
        ("pod/0e5a9b7c", "no kind `pod`"),
        ("disk/", "write an id after the slash"),
    ] {
        let error = Cli::try_parse_from(["virtletctl", "forget", text]).expect_err(wanted);
        assert!(error.to_string().contains(wanted), "{error}");
    }
    assert!(Cli::try_parse_from(["virtletctl", "forget", "record/sandboxes/a", "disk/b"]).is_ok());
}
