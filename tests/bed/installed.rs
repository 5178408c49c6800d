//! Tier `installed`: the packages on a booted Debian with AppArmor enforcing, its own libvirt, and kubelet as a service.

mod node;
mod policy;

use std::fs;

use anyhow::{Result, ensure};
use tests::case::{Bed, Case};
use tests::installed::Packages;

/// The cases of this tier.
pub(crate) fn cases() -> impl Iterator<Item = Case> {
    CASES.iter().chain(node::CASES).chain(policy::CASES).copied()
}

const CASES: &[Case] = &[Case {
    name: "installed::packages_are_the_same_bytes_when_they_are_built_again",
    deadline: node::TOOL_DEADLINE,
    run: reproducible,
}];

fn reproducible(bed: &Bed) -> Result<()> {
    let first = Packages::build_in(bed, &bed.dir.join("first"), "1.0")?;
    let second = Packages::build_in(bed, &bed.dir.join("second"), "1.0")?;
    for name in ["virtlet", "virtletctl"] {
        let (first, second) = (fs::read(first.file(name)?)?, fs::read(second.file(name)?)?);
        ensure!(first == second, "`{name}` has other bytes: {} and {}", first.len(), second.len());
    }
    Ok(())
}
