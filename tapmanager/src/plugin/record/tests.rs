use serde_json::Value;

use super::*;

#[test]
fn allocations_of_released_forms_are_read_and_written_the_same() {
    let text = include_str!("fixtures/v1.json");
    let allocation: Allocation = serde_json::from_str(text).expect("read");
    assert_eq!(allocation.owner.told(), "pod `shop/cart` (`net1`)");
    let written = serde_json::to_value(&allocation).expect("written");
    assert_eq!(written, serde_json::from_str::<Value>(text).expect("JSON"));
}

#[test]
fn allocations_of_other_forms_are_refused() {
    let text = include_str!("fixtures/v1.json");
    let newer = text.replacen("\"version\": 1", "\"version\": 2", 1);
    let error = serde_json::from_str::<Allocation>(&newer).expect_err("newer").to_string();
    assert!(error.starts_with("its version is 2, this program knows 1; install the newer release"), "{error}");
    let more = text.replacen("\"version\": 1", "\"colour\": 1, \"version\": 1", 1);
    serde_json::from_str::<Allocation>(&more).expect_err("more than this release knows");
}

#[test]
fn a_file_is_of_the_vf_that_it_is_named_after() {
    let dir = tempfile::tempdir().expect("a folder");
    let store = Store::new(dir.path(), Duration::ZERO);
    let vf = "0000:3b:02.2".parse().expect("an address");
    fs::write(dir.path().join("0000:3b:02.2.json"), include_str!("fixtures/v1.json")).expect("written");
    store.read(vf).expect_err("of another VF");
    assert_eq!(store.all().expect("listed").len(), 1);
}
