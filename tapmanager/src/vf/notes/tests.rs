use std::os::unix::fs::{PermissionsExt as _, symlink};

use super::*;

const VF: &str = "0000:3b:02.1";
/// A note as this release writes it.
const NOTE: &str = include_str!("fixtures/v1.json");

#[test]
fn a_claim_is_noted_read_and_forgotten() {
    let mut dir = Dir::new();
    assert_eq!(dir.notes.noted(vf()).expect("read"), None);
    dir.notes.flush(&claim()).expect("noted");
    dir.notes.flush(&claim()).expect("noted again");
    let mode = fs::metadata(dir.path("0000:3b:02.1.json")).expect("there").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    assert_eq!(dir.notes.noted(vf()).expect("read"), Some(claim()));
    let (claims, unreadable) = ClaimNotes::open(dir.dir.path()).expect("opened").all().expect("read");
    assert_eq!((claims, unreadable.len()), (vec![claim()], 0));
    dir.notes.remove(vf()).expect("removed");
    dir.notes.remove(vf()).expect("removed again");
    assert_eq!(dir.notes.all().expect("read").0, []);
}

#[test]
fn claims_come_in_the_order_of_vfs() {
    let mut dir = Dir::new();
    for text in ["10000:00:00.1", "0000:3b:02.1", "0000:00:00.1"] {
        dir.notes.flush(&serde_json::from_str(&NOTE.replace(VF, text)).expect("a claim")).expect("noted");
    }
    let vfs: Vec<String> = dir.notes.all().expect("read").0.iter().map(|claim| claim.vf().to_string()).collect();
    assert_eq!(vfs, ["0000:00:00.1", "0000:3b:02.1", "10000:00:00.1"]);
}

#[test]
fn a_note_that_is_not_understood_is_reported_and_left_alone() {
    let other = NOTE.replacen(VF, "0000:3b:02.2", 1);
    let newer = NOTE.replace(r#""version": 1"#, r#""version": 2"#);
    let long = format!("{NOTE}{}", " ".repeat(1 << 20));
    for (text, why) in [
        ("", "EOF while parsing"),
        (other.as_str(), "it is about `0000:3b:02.2`"),
        (newer.as_str(), "the note's version is 2, this program knows 1"),
        (long.as_str(), "it has more than 1048576 bytes"),
    ] {
        let mut dir = Dir::new();
        let path = dir.path("0000:3b:02.1.json");
        fs::write(&path, text).expect("written");
        let (claims, unreadable) = dir.notes.all().expect("read");
        assert_eq!((claims.len(), unreadable.len()), (0, 1), "{why}");
        let told = common::Chain(&unreadable[0]).to_string();
        assert!(told.contains(why) && told.contains("0000:3b:02.1.json"), "{told}");
        dir.notes.noted(vf()).expect_err("not none");
        dir.notes.flush(&claim()).expect_err("not overwritten");
        dir.notes.remove(vf()).expect_err("not removed");
        assert_eq!(fs::read_to_string(&path).expect("there"), text);
    }
}

#[test]
fn strange_names_and_links_are_reported_and_not_followed() {
    let mut dir = Dir::new();
    let outside = dir.dir.path().join("outside.json");
    fs::write(&outside, NOTE).expect("written");
    symlink(&outside, dir.path("0000:3b:02.1.json")).expect("linked");
    for name in ["0000:3B:02.2.json", "notes.txt", ".json"] {
        fs::write(dir.path(name), NOTE).expect("written");
    }
    dir.notes.noted(vf()).expect_err("a link is no note");
    dir.notes.flush(&claim()).expect_err("a link is not replaced");
    let (claims, unreadable) = dir.notes.all().expect("read");
    assert_eq!((claims.len(), unreadable.len()), (0, 4));
    assert_eq!(fs::read_to_string(&outside).expect("there"), NOTE);
}

#[test]
fn what_a_crash_left_half_written_goes_and_the_note_before_it_holds() {
    let mut dir = Dir::new();
    dir.notes.flush(&claim()).expect("noted");
    let (torn, strange) = (dir.path(".0000:3b:02.1.json.tmp"), dir.path(".strange.tmp"));
    fs::write(&torn, "{").expect("written");
    fs::write(&strange, "{").expect("written");
    let (claims, unreadable) = dir.notes.all().expect("read");
    assert_eq!((claims, unreadable.len()), (vec![claim()], 1), "the strange one");
    ClaimNotes::open(dir.dir.path()).expect("opened");
    assert_eq!((torn.exists(), strange.exists()), (false, true));
}

#[test]
fn a_directory_that_is_not_there_holds_nothing() {
    let dir = tempfile::tempdir().expect("tempdir");
    let (claims, unreadable) = ClaimNotes::peek(dir.path()).all().expect("read");
    assert_eq!((claims.len(), unreadable.len()), (0, 0));
}

struct Dir {
    dir: tempfile::TempDir,
    notes: ClaimNotes,
}

impl Dir {
    fn new() -> Self {
        let dir = tempfile::tempdir().expect("tempdir");
        let notes = ClaimNotes::open(dir.path()).expect("opened");
        Self { dir, notes }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join("claims").join(name)
    }
}

fn claim() -> Claim {
    serde_json::from_str(NOTE).expect("a claim")
}

fn vf() -> PciAddr {
    VF.parse().expect("an address")
}
