//! Tier `vm`: the whole chain, with a real guest at its end.

mod cloud;
mod ends;
mod failures;
mod full_disk;
mod life;
mod networks;
mod secrets;

use tests::case::Case;

pub(crate) fn cases() -> impl Iterator<Item = Case> {
    [life::CASES, ends::CASES, failures::CASES, full_disk::CASES, cloud::CASES, networks::CASES, secrets::CASES]
        .into_iter()
        .flatten()
        .copied()
}
