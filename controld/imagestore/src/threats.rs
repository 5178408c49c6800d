//! Keeps `docs/image-threats.md` honest: every threat has its row, and every test that a row names is there.

use std::fs;
use std::path::{Path, PathBuf};

const DOCUMENT: &str = include_str!("../../../docs/image-threats.md");
/// Threats that the store is built against.
const THREATS: usize = 37;

/// Number and tests of each row.
fn rows() -> Vec<(usize, Vec<&'static str>)> {
    let of_row = |line: &'static str| {
        let cells: Vec<_> = line.strip_prefix('|')?.strip_suffix('|')?.split('|').map(str::trim).collect();
        let [number, threat, answer, tests] = cells[..] else { panic!("not four cells: {line}") };
        let number = number.parse().ok()?;
        assert!(!threat.is_empty() && !answer.is_empty(), "an empty cell: {line}");
        // Every other piece stands between backticks.
        Some((number, tests.split('`').skip(1).step_by(2).collect()))
    };
    DOCUMENT.lines().filter_map(of_row).collect()
}

fn workspace() -> PathBuf {
    let crate_dir = std::env::var_os("CARGO_MANIFEST_DIR").expect("cargo names it to a test");
    Path::new(&crate_dir).join("../..")
}

/// Where tests of a crate may be, each file of which has the name of a module: those beside the code, and those of a
/// program of their own.
fn places(of: &str) -> [PathBuf; 2] {
    let workspace = workspace();
    let of = match of {
        "imagestore" | "virtletctl" | "vmimage" => workspace.join("controld").join(of),
        of => workspace.join(of),
    };
    [of.join("src"), of.join("tests")]
}

/// Whether there is a test, named as `crate module::test`, or as `tier::case` if it is a case of the bed.
fn is_there(test: &str) -> bool {
    let Some((of, path)) = test.split_once(' ') else {
        return case_files().iter().any(|text| text.contains(&format!("name: \"{test}\"")));
    };
    let modules: Vec<_> = path.split("::").collect();
    let Some((name, modules)) = modules.split_last() else { return false };
    // `tests` may be a module in the file of what it tests.
    let inline = modules.strip_suffix(&["tests"]).unwrap_or(modules);
    let files = places(of).into_iter().flat_map(|place| {
        [modules, inline].map(|modules| modules.iter().collect::<PathBuf>()).map(|file| place.join(file))
    });
    let mut texts = files.filter_map(|file| fs::read_to_string(file.with_extension("rs")).ok());
    texts.any(|text| text.contains(&format!("fn {name}(")))
}

/// Sources of the bed's cases.
fn case_files() -> Vec<String> {
    let (mut directories, mut texts) = (vec![workspace().join("tests/bed")], Vec::new());
    while let Some(directory) = directories.pop() {
        for entry in fs::read_dir(&directory).expect("the bed's sources") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                directories.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                texts.push(fs::read_to_string(&path).expect("read"));
            }
        }
    }
    texts
}

#[test]
fn every_threat_has_a_row_and_every_row_a_test() {
    let rows = rows();
    let numbers: Vec<_> = rows.iter().map(|(number, _)| *number).collect();
    assert_eq!(numbers, (1..=THREATS).collect::<Vec<_>>());
    for (number, tests) in rows {
        assert!(!tests.is_empty(), "no test in row {number}");
        for test in tests {
            assert!(is_there(test), "row {number} names `{test}`, which is not in the sources");
        }
    }
}

#[test]
fn a_test_that_is_not_there_is_missed() {
    assert!(is_there("imagestore threats::a_test_that_is_not_there_is_missed"));
    for test in ["imagestore threats::another", "imagestore nowhere::rows", "another threats::rows", "image::another"] {
        assert!(!is_there(test), "{test}");
    }
}
