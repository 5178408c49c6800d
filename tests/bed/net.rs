//! Tier `net`: `tapmanager` on real namespaces with real plugins, and no machine: guests are namespaces behind the tap.

mod faults;
mod handoff;
mod hanging;
mod hostile;
mod input;
mod isolation;
mod life;
mod networks;
mod strain;
mod toolkit;
mod worked_example;

use tests::case::Case;

pub(crate) fn cases() -> impl Iterator<Item = Case> {
    [
        life::CASES,
        isolation::CASES,
        handoff::CASES,
        hanging::CASES,
        input::CASES,
        faults::CASES,
        hostile::CASES,
        networks::CASES,
        strain::CASES,
        toolkit::CASES,
        worked_example::CASES,
    ]
    .into_iter()
    .flatten()
    .copied()
}
