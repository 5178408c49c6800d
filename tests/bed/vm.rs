//! Tier `vm`: the whole chain, with a real guest at its end.

mod annotations;
mod api_sources;
mod checkpoint;
mod claims;
mod cloud;
mod console;
mod disks;
mod emptydirs;
mod ends;
mod failures;
mod flexvolumes;
mod full_disk;
mod handlers;
mod host_devices;
mod image_volumes;
mod life;
mod networks;
mod pause;
mod resources;
mod restore;
pub(crate) mod roots;
mod secrets;
mod seeds;
mod shell;
pub(crate) mod sockets;
mod stand_in;
mod starts;
mod volumes;
mod warm;

use tests::case::Case;

const TABLES: &[&[Case]] = &[
    life::CASES,
    annotations::CASES,
    api_sources::CASES,
    ends::CASES,
    failures::CASES,
    flexvolumes::CASES,
    full_disk::CASES,
    handlers::CASES,
    host_devices::CASES,
    image_volumes::CASES,
    checkpoint::CASES,
    restore::CASES,
    warm::CASES,
    claims::CASES,
    cloud::CASES,
    console::CASES,
    disks::CASES,
    emptydirs::CASES,
    networks::CASES,
    pause::CASES,
    resources::CASES,
    roots::CASES,
    secrets::CASES,
    seeds::CASES,
    starts::CASES,
    volumes::CASES,
];

pub(crate) fn cases() -> impl Iterator<Item = Case> {
    TABLES.iter().copied().flatten().copied()
}
