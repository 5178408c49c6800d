//! Tiers `sriov` and `iommufd`: emulated nodes with an SR-IOV card behind an IOMMU. The first has Debian 12's kernel, whose
//! VFIO has groups alone; the kernel of the second one has IOMMUFD, and a file for each device.

mod card;
mod daemons;
mod kills;
mod machines;
mod removed;
mod setup;
mod tool;
mod traffic;

use tests::case::Case;
use tests::emulated::Kind;

pub(crate) fn cases() -> impl Iterator<Item = Case> {
    let all = [card::CASES, daemons::CASES, kills::CASES, machines::CASES, removed::CASES, tool::CASES];
    let cases = move || all.into_iter().flatten().copied();
    debug_assert!(cases().all(|case| Kind::of(case.name).is_some_and(Kind::one_at_a_time)));
    cases()
}
