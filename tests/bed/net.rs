//! Tier `net`: `tapmanager` on real namespaces with real plugins, and no machine: guests are namespaces behind the tap.

mod faults;
mod full_disk;
mod handoff;
mod hanging;
mod hostile;
mod in_process;
mod input;
mod instances;
mod isolation;
mod kills;
mod life;
mod networks;
mod reference_plugins;
mod strain;
mod toolkit;
mod worked_example;

use tests::case::Case;

pub(crate) use in_process::{DOOMED, Doomed, serve_until};

pub(crate) fn cases() -> impl Iterator<Item = Case> {
    [
        life::CASES,
        isolation::CASES,
        handoff::CASES,
        hanging::CASES,
        input::CASES,
        faults::CASES,
        kills::CASES,
        instances::CASES,
        full_disk::CASES,
        hostile::CASES,
        networks::CASES,
        reference_plugins::CASES,
        strain::CASES,
        toolkit::CASES,
        worked_example::CASES,
    ]
    .into_iter()
    .flatten()
    .copied()
}
