//! Entry for fuzzers: bytes as a network's configuration, and as what a plugin answers.

use serde_json::Value;

use super::result::{ResultView, convert};
use super::version::SpecVersion;

/// Reads `bytes` as the result of a plugin, of every version.
///
/// # Panics
/// When a result in one version's form means something else than in another's.
pub fn exercise(bytes: &[u8]) {
    let Ok(raw) = serde_json::from_slice::<Value>(bytes) else { return };
    let views = SpecVersion::ALL.map(|version| {
        let converted = convert(raw.clone(), version).ok()?;
        let again = convert(converted.clone(), version).expect("what was converted can be converted");
        assert!(again == converted, "converted twice is something else");
        Some(ResultView::of(&converted).map_err(|error| error.to_string()))
    });
    let [first, others @ ..] = &views;
    assert!(others.iter().all(|other| same(first.as_ref(), other.as_ref())), "versions disagree: {views:?}");
}

fn same(one: Option<&Result<ResultView, String>>, other: Option<&Result<ResultView, String>>) -> bool {
    format!("{one:?}") == format!("{other:?}")
}
