use super::*;

const ME: Uuid = Uuid::from_u128(1);

fn noted(epoch: u64, records_since: u64) -> Option<Note> {
    Some(Note { version: VERSION, instance: ME, epoch, records_since, settled: true })
}

fn known(epoch: u64) -> Known {
    Known { instance: Some(ME), epoch: Some(epoch), commits: 100 }
}

fn made(epoch: u64, commits: u64) -> Made {
    Made { epoch, commits }
}

#[test]
fn a_database_that_is_not_the_last_one_is_doubted() {
    let lost = Known::default();
    let other = Known { instance: Some(Uuid::from_u128(2)), epoch: Some(7), commits: 100 };
    let first_release = Known { instance: Some(ME), ..lost };
    let none = Made::default();
    for (case, file, database, made, doubted, epoch, records_since) in [
        ("the first start", None, lost, none, false, 1, 1),
        ("the first release's state", None, first_release, none, false, 1, 1),
        ("another start", noted(7, 1), known(7), made(7, 100), false, 8, 1),
        ("killed between the two writes", noted(7, 1), known(8), made(7, 90), false, 8, 1),
        ("disks of a release that did not count", noted(7, 1), known(7), made(7, 0), false, 8, 1),
        ("moved away", noted(7, 1), lost, made(7, 100), true, 8, 8),
        ("put back from a copy of the life before", noted(7, 1), known(6), made(7, 110), true, 8, 8),
        ("put back from an old copy", noted(7, 1), known(2), none, true, 8, 8),
        ("put back from a copy of the same life", noted(7, 1), known(7), made(7, 101), true, 8, 8),
        ("put back with the file", noted(3, 1), known(3), made(7, 0), true, 8, 8),
        ("put back with the file, of the same life", noted(3, 1), known(3), made(3, 101), true, 4, 4),
        ("put back from the first release's, the file lost", None, first_release, made(7, 0), true, 8, 8),
        ("of another node", noted(7, 1), other, none, true, 8, 8),
        ("the file put back", noted(3, 1), known(7), made(7, 100), true, 8, 8),
        ("the file lost", None, known(7), made(7, 100), true, 8, 8),
    ] {
        let (note, doubt) = next(file, database, made);
        assert_eq!(doubt.is_some(), doubted, "{case}: {doubt:?}");
        assert_eq!((note.epoch, note.records_since), (epoch, records_since), "{case}");
        assert_eq!(note.settled, !doubted, "{case}");
        if case != "the first start" {
            assert_eq!(note.instance, ME, "{case}");
        }
    }
}

async fn begin(dir: &Path, database: &str) -> Instance {
    begin_beside(dir, database, &[]).await
}

async fn begin_beside(dir: &Path, database: &str, owners: &[Owner]) -> Instance {
    let store = Store::open(&dir.join(database)).expect("opens");
    Instance::begin(dir, &store, owners).await.expect("begins")
}

/// Whose the disks are of a pod that was made just now.
async fn pod(store: &Store, instance: &Instance) -> Owner {
    store.put_fact("pod", &"on record").await.expect("durable");
    Owner::new(instance.id(), (instance.epoch(), store.commits()), "uid-1", "default", "web")
}

#[tokio::test]
async fn a_copy_of_the_same_life_is_known_by_the_disks_that_are_younger() {
    let dir = tempfile::tempdir().expect("tempdir");
    let database = dir.path().join("meta.redb");
    let copy = dir.path().join("meta.copy");
    let store = Store::open(&database).expect("opens");
    let first = Instance::begin(dir.path(), &store, &[]).await.expect("begins");
    let early = pod(&store, &first).await;
    std::fs::copy(&database, &copy).expect("copied");
    let late = pod(&store, &first).await;
    drop(store);

    let sound = begin_beside(dir.path(), "meta.redb", &[early.clone(), late.clone()]).await;
    assert_eq!(sound.doubt(), None, "it has all records");
    std::fs::write(dir.path().join("instance"), serde_json::to_vec(&first.note).expect("json")).expect("put back");
    std::fs::copy(&copy, &database).expect("put back");
    let harmless = begin_beside(dir.path(), "meta.redb", std::slice::from_ref(&early)).await;
    assert_eq!(harmless.doubt(), None, "nothing is younger than the copy");

    std::fs::write(dir.path().join("instance"), serde_json::to_vec(&first.note).expect("json")).expect("put back");
    std::fs::copy(&copy, &database).expect("put back");
    let rolled_back = begin_beside(dir.path(), "meta.redb", &[early.clone(), late.clone()]).await;
    assert!(rolled_back.doubt().is_some(), "the later pod is on no record");
    rolled_back.settle().expect("written");
    let store = Store::open(&database).expect("opens");
    let after = Instance::begin(dir.path(), &store, &[early, late.clone()]).await.expect("begins");
    assert_eq!(after.doubt(), None, "doubted once: what was made has been marked");
    assert!(pod(&store, &after).await.commits > late.commits, "the count goes on behind all that was made");
}

#[tokio::test]
async fn what_an_earlier_life_made_is_trusted_until_records_are_lost_and_never_again() {
    let dir = tempfile::tempdir().expect("tempdir");
    let first = begin(dir.path(), "meta.redb").await;
    let second = begin(dir.path(), "meta.redb").await;
    assert_eq!(second.id(), first.id());
    assert!(second.would_be_on_record(first.id(), first.epoch()));
    assert!(!second.would_be_on_record(Uuid::from_u128(9), first.epoch()), "another's");
    assert!(!second.would_be_on_record(first.id(), second.epoch()), "this life has made nothing yet");

    let lost = begin(dir.path(), "other.redb").await;
    assert_eq!(lost.id(), first.id(), "the instance outlives the database");
    assert!(lost.doubt().is_some());
    assert!(!lost.would_be_on_record(first.id(), lost.epoch()), "nothing is trusted in doubt");
    let unsettled = begin(dir.path(), "other.redb").await;
    assert!(unsettled.doubt().is_some(), "the life before had no time to mark what it found");
    unsettled.settle().expect("written");
    let after = begin(dir.path(), "other.redb").await;
    assert_eq!(after.doubt(), None);
    assert!(after.would_be_on_record(first.id(), unsettled.epoch()));
    assert!(!after.would_be_on_record(first.id(), second.epoch()), "made before records were lost");
}

/// A fixture of each released form, which stays readable.
#[tokio::test]
async fn what_a_start_makes_that_could_not_be_noted_carries_the_one_before() {
    let dir = tempfile::tempdir().expect("tempdir");
    let first = begin(dir.path(), "db").await;
    // Where the file would be written.
    std::fs::create_dir(dir.path().join("instance.new")).expect("made");
    let second = begin(dir.path(), "db").await;
    assert!(second.doubt().is_some(), "nothing says so");
    assert_eq!(second.epoch(), first.epoch());
    std::fs::remove_dir(dir.path().join("instance.new")).expect("removed");
    assert_eq!(begin(dir.path(), "db").await.doubt(), None);
}

#[tokio::test]
async fn the_file_of_each_release_is_read() {
    let dir = tempfile::tempdir().expect("tempdir");
    std::fs::write(dir.path().join("instance"), include_str!("fixtures/instance.v1.json")).expect("written");
    let begun = begin(dir.path(), "meta.redb").await;
    assert_eq!(begun.id().to_string(), "6f0c1b2e-3d4a-4b5c-8d6e-7f8091a2b3c4");
    assert_eq!(begun.epoch(), 13, "it goes on from 12");
}

#[tokio::test]
async fn a_file_that_cannot_be_read_is_left_as_it_is_and_nothing_is_trusted() {
    let dir = tempfile::tempdir().expect("tempdir");
    let first = begin(dir.path(), "meta.redb").await;
    let path = dir.path().join("instance");
    for text in ["", r#"{"version":1,"instance":"new","epochs":[1]}"#] {
        std::fs::write(&path, text).expect("written");
        for _ in 0..2 {
            let begun = begin(dir.path(), "meta.redb").await;
            assert_eq!(begun.id(), first.id(), "the database has it too");
            assert!(begun.doubt().is_some_and(|doubt| doubt.contains("instance`")), "{:?}", begun.doubt());
            assert!(!begun.would_be_on_record(first.id(), begun.epoch()));
            begun.settle().expect("nothing to do");
            assert_eq!(std::fs::read_to_string(&path).expect("there"), text);
        }
    }
}

#[tokio::test]
async fn a_file_of_a_newer_release_is_refused_and_stays_as_it_is() {
    let dir = tempfile::tempdir().expect("tempdir");
    let path = dir.path().join("instance");
    let text = r#"{"version":2,"instance":"new","epochs":[1]}"#;
    std::fs::write(&path, text).expect("written");
    let store = Store::open(&dir.path().join("meta.redb")).expect("opens");
    let error = Instance::begin(dir.path(), &store, &[]).await.expect_err("an older release works with it");
    assert!(error.to_string().contains("has version 2, and this release reads version 1"), "{error}");
    assert_eq!(std::fs::read_to_string(&path).expect("there"), text);
}
