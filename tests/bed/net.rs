//! Tier `net`: `tapmanager` on real namespaces with real plugins, and no machine: guests are namespaces behind the tap.

mod faults;
mod handoff;
mod hostile;
mod input;
mod isolation;
mod life;
mod networks;

use tests::case::Case;

pub(crate) fn cases() -> impl Iterator<Item = Case> {
    [life::CASES, isolation::CASES, handoff::CASES, input::CASES, faults::CASES, hostile::CASES, networks::CASES]
        .into_iter()
        .flatten()
        .copied()
}
