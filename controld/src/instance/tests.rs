use super::*;

const ME: Uuid = Uuid::from_u128(1);

fn noted(epoch: u64, records_since: u64) -> Option<Note> {
    Some(Note { version: VERSION, instance: ME, epoch, records_since, settled: true })
}

fn known(epoch: u64) -> Known {
    Known { instance: Some(ME), epoch: Some(epoch) }
}

#[test]
fn a_database_that_is_not_the_last_one_is_doubted() {
    let lost = Known::default();
    let other = Known { instance: Some(Uuid::from_u128(2)), epoch: Some(7) };
    let first_release = Known { instance: Some(ME), epoch: None };
    for (case, file, database, doubted, epoch, records_since) in [
        ("the first start", None, lost, false, 1, 1),
        ("the first release's state", None, first_release, false, 1, 1),
        ("another start", noted(7, 1), known(7), false, 8, 1),
        ("killed between the two writes", noted(7, 1), known(8), false, 8, 1),
        ("moved away", noted(7, 1), lost, true, 8, 8),
        ("put back from a copy of the life before", noted(7, 1), known(6), true, 8, 8),
        ("put back from an old copy", noted(7, 1), known(2), true, 8, 8),
        ("of another node", noted(7, 1), other, true, 8, 8),
        ("the file put back", noted(3, 1), known(7), true, 8, 8),
        ("the file lost", None, known(7), true, 8, 8),
    ] {
        let (note, doubt) = next(file, database);
        assert_eq!(doubt.is_some(), doubted, "{case}: {doubt:?}");
        assert_eq!((note.epoch, note.records_since), (epoch, records_since), "{case}");
        assert_eq!(note.settled, !doubted, "{case}");
        if case != "the first start" {
            assert_eq!(note.instance, ME, "{case}");
        }
    }
}

async fn begin(dir: &Path, database: &str) -> Instance {
    let store = Store::open(&dir.join(database)).expect("opens");
    Instance::begin(dir, &store).await.expect("begins")
}

#[tokio::test]
async fn what_an_earlier_life_made_is_trusted_until_records_are_lost_and_never_again() {
    let dir = tempfile::tempdir().expect("tempdir");
    let first = begin(dir.path(), "meta.redb").await;
    let second = begin(dir.path(), "meta.redb").await;
    assert_eq!(second.id(), first.id());
    assert!(second.would_be_on_record(first.id(), first.epoch()));
    assert!(!second.would_be_on_record(Uuid::from_u128(9), first.epoch()), "another's");
    assert!(!second.would_be_on_record(first.id(), second.epoch() + 1), "of a life that was rolled back");

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
    for text in ["", r#"{"version":2,"instance":"new","epochs":[1]}"#] {
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
