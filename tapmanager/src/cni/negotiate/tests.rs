use std::fs;

use proptest::prelude::*;
use serde_json::json;

use super::*;

const ALL: [SpecVersion; 5] = SpecVersion::ALL;

#[test]
fn the_newest_version_that_all_speak_is_taken() {
    let [v030, v031, v040, v100, v110] = ALL;
    for (choice, spoken, expected) in [
        (&ALL[..], vec![ALL.to_vec()], Some(v110)),
        (&ALL, vec![vec![v030, v031, v040, v100], ALL.to_vec()], Some(v100)),
        (&[v040, v110], vec![vec![v030, v031, v040, v100]], Some(v040)),
        (&[v100, v110], vec![vec![v030, v031]], None),
        (&[v110], vec![], Some(v110)),
        (&[v031], vec![vec![]], None),
        (&ALL, vec![vec![v030], vec![v031]], None),
    ] {
        assert_eq!(newest_common(choice, &spoken), expected, "{choice:?} {spoken:?}");
    }
}

#[test]
fn versions_that_only_the_plugin_speaks_are_left_out() {
    let answer = json!({"cniVersion": "1.1.0", "supportedVersions": ["0.1.0", "0.4.0", 7, null, "1.1.0", "2.0.0"]});
    assert_eq!(spoken_in(&answer).unwrap(), [SpecVersion::V040, SpecVersion::V110]);
    for none in [json!({}), json!([]), json!({"supportedVersions": "1.0.0"}), json!(null)] {
        assert_eq!(spoken_in(&none), None, "{none}");
    }
}

#[test]
fn an_answer_holds_as_long_as_the_executable_is_the_same() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("plugin");
    fs::write(&path, "one").unwrap();
    let spoken = VersionCache::default();
    let stamp = Stamp::of(&path).unwrap();
    assert_eq!(spoken.get(&path, stamp), None);
    spoken.note(path.clone(), stamp, vec![SpecVersion::V100]);
    assert_eq!(spoken.get(&path, Stamp::of(&path).unwrap()), Some(vec![SpecVersion::V100]));
    // An update puts another file in its place, of the same length and age.
    let other = dir.path().join("new");
    fs::write(&other, "two").unwrap();
    let modified = fs::metadata(&path).unwrap().modified().unwrap();
    fs::File::options().write(true).open(&other).unwrap().set_modified(modified).unwrap();
    fs::rename(&other, &path).unwrap();
    assert_eq!(spoken.get(&path, Stamp::of(&path).unwrap()), None);
}

proptest! {
    #[test]
    fn the_choice_is_spoken_by_all_and_none_newer_is(
        choice in proptest::sample::subsequence(ALL.to_vec(), 0..=5),
        spoken in proptest::collection::vec(proptest::sample::subsequence(ALL.to_vec(), 0..=5), 0..4),
    ) {
        let common = |version: &SpecVersion| choice.contains(version) && spoken.iter().all(|one| one.contains(version));
        match newest_common(&choice, &spoken) {
            Some(version) => {
                prop_assert!(common(&version));
                prop_assert!(!ALL.iter().any(|other| *other > version && common(other)));
            }
            None => prop_assert!(!ALL.iter().any(common)),
        }
    }
}
