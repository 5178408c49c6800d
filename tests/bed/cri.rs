//! Tier `cri`: the CRI as real clients use it, and requests that must be refused.

mod clients;
mod crictl;
pub(crate) mod critest;
mod critest_images;
mod critest_left_out;
mod doctor;
mod exec;
mod feed;
mod forward;
mod functions;
mod images;
mod main_command;
mod sandboxes;
mod wire;

use tests::case::Case;

pub(crate) fn cases() -> impl Iterator<Item = Case> {
    [
        clients::CASES,
        critest::CASES,
        critest_images::CASES,
        critest_left_out::CASES,
        doctor::CASES,
        exec::CASES,
        feed::CASES,
        functions::CASES,
        images::CASES,
        main_command::CASES,
        sandboxes::CASES,
        wire::CASES,
    ]
    .into_iter()
    .flatten()
    .copied()
}
