//! Tier `image`: the image store through controld's own doors, against servers and tools that somebody else wrote.

mod by_hand;
mod crash;
mod handlers;
mod http;
mod layers;
mod providers;
mod registries;
mod servers;
mod space;
mod upkeep;

use tests::case::Case;

pub(crate) fn cases() -> impl Iterator<Item = Case> {
    [
        http::CASES,
        handlers::CASES,
        providers::CASES,
        registries::CASES,
        servers::CASES,
        crash::CASES,
        space::CASES,
        layers::CASES,
        upkeep::CASES,
        by_hand::CASES,
    ]
    .into_iter()
    .flatten()
    .copied()
}
