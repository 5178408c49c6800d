//! Every input that was ever worth keeping, once more.
#![allow(clippy::unwrap_used, reason = "a test")]

use std::fs;
use std::panic::catch_unwind;
use std::path::{Path, PathBuf};

fn corpora() -> PathBuf {
    Path::new(&std::env::var_os("CARGO_MANIFEST_DIR").unwrap()).join("corpus")
}

#[test]
fn nothing_of_the_corpora_finds_a_fault() {
    let corpora = corpora();
    let mut faults = Vec::new();
    for (name, run) in fuzz::TARGETS {
        let inputs: Vec<_> = fs::read_dir(corpora.join(name)).unwrap().map(|entry| entry.unwrap().path()).collect();
        assert!(inputs.len() >= 3, "hardly a corpus: {name}");
        for input in inputs {
            let bytes = fs::read(&input).unwrap();
            if catch_unwind(|| run(&bytes)).is_err() {
                faults.push(input);
            }
        }
    }
    assert!(faults.is_empty(), "{faults:#?}");
}

#[test]
fn every_corpus_has_a_target() {
    let corpora = corpora();
    for entry in fs::read_dir(corpora).unwrap() {
        let name = entry.unwrap().file_name();
        assert!(fuzz::target(name.to_str().unwrap()).is_some(), "no target {}", name.display());
    }
}
