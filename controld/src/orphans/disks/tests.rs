use std::path::Path;

use uuid::Uuid;

use super::*;
use crate::volumes::Owner;
use crate::volumes::{Folder, Volumes};

const ME: Uuid = Uuid::from_u128(1);
const UID: &str = "uid-1";

fn pod() -> PodName {
    PodName { uid: UID.into(), namespace: "default".into(), name: "web".into() }
}

fn records(pods: &[PodName]) -> OnRecord {
    OnRecord { roots: Vec::new(), pods: pods.to_vec(), unread: false }
}

fn folder(dir: &Path) -> Folder {
    let volumes = Volumes::open(dir.to_owned()).expect("open");
    volumes.claim(&Owner::new(ME, (5, 0), UID, "default", "web")).expect("claimed")
}

#[test]
fn a_folder_goes_only_if_its_record_would_be_there() {
    let dir = tempfile::tempdir().expect("tempdir");
    let folder = folder(dir.path());
    let sure = || Instance::of_test(ME, 3, 9, None);
    let in_doubt = || Instance::of_test(ME, 9, 9, Some("the database is new"));
    let mine = |epoch| Ok(Some(Owner::new(ME, (epoch, 0), UID, "default", "web")));
    let others = Ok(Some(Owner::new(Uuid::from_u128(2), (5, 0), UID, "default", "web")));
    let unread = OnRecord { unread: true, ..records(&[]) };
    let marked = Some(Kept::new("records were lost".into()));
    let kept = |why: &str| Fate::Kept(why.to_owned());
    let of_root = OnRecord { roots: vec![dir.path().join(UID).join("root.qcow2")], ..records(&[]) };
    let nameless = PodName { uid: UID.into(), ..PodName::default() };

    for (case, owner, mark, records, instance, wanted) in [
        ("its pod is on record", mine(5), None, records(&[pod()]), sure(), Fate::Of(pod())),
        ("of the first release", Ok(None), None, records(&[pod()]), sure(), Fate::Of(pod())),
        ("its pod is gone", mine(5), None, records(&[]), sure(), Fate::Left),
        ("nothing says whose it is", Ok(None), None, records(&[]), sure(), kept("nothing in it says whose it is")),
        ("of a newer release", Err("version 2".into()), None, records(&[]), sure(), kept("version 2")),
        (
            "of another controld",
            others,
            None,
            records(&[]),
            sure(),
            kept(&format!("instance `{}` of controld made it", Uuid::from_u128(2))),
        ),
        ("of before the loss", mine(2), None, records(&[]), sure(), kept("it was made before records were lost")),
        (
            "of this very life, which has made nothing yet",
            mine(9),
            None,
            records(&[]),
            sure(),
            kept("it was made before records were lost"),
        ),
        ("the records are lost", mine(5), None, records(&[]), in_doubt(), kept("the database is new")),
        ("a record is unread", mine(5), None, unread, sure(), kept("there are records that cannot be read")),
        ("marked", mine(5), marked.clone(), records(&[]), sure(), kept("records were lost")),
        (
            "marked, and its pod was made anew",
            mine(5),
            marked.clone(),
            records(&[pod()]),
            sure(),
            kept("records were lost"),
        ),
        ("marked, and its container is on record again", mine(5), marked, of_root, sure(), Fate::Of(nameless)),
    ] {
        let found = Found { folder: folder.clone(), owner, kept: mark };
        assert_eq!(fate(&found, &records, &instance), wanted, "{case}");
    }
}
