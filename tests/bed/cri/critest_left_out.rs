//! The specs of critest that machines do not meet, each with the reason.

use std::collections::BTreeSet;

use anyhow::{Result, ensure};
use tests::case::{Bed, Case};

use super::{critest, critest_images};

pub(super) const CASES: &[Case] =
    &[Case { name: "cri::critest_has_no_spec_that_nobody_knows", deadline: critest::DEADLINE, run: all_known }];

const PROFILES: &str = "what confines processes is the guest's own; the node's kernel does not reach them";
const NODES_NAMESPACES: &str = "a guest has a kernel of its own and none of the node's namespaces";
const ONE_CONTAINER: &str = "a pod has one container, which is the machine";
const NO_FEATURE: &str = "a feature that controld says it does not have: critest itself leaves it out";

/// Beginnings of their descriptions, after the one that all have.
const LEFT_OUT: &[(&str, &str)] = &[
    (
        "Container Mount Propagation runtime should support mount propagation mount with 'rshared'",
        "what a guest mounts cannot reach the node",
    ),
    (
        "Container Mount Readonly runtime should support readonly mounts should support non-recursive",
        "in a guest, what is mounted below a read-only volume is read-only, too",
    ),
    ("Container OOM", "no guest boots in 15 MiB"),
    (
        "Container runtime should support basic operations on container runtime should support listing stats for three created",
        ONE_CONTAINER,
    ),
    (
        "Image Volume [Feature:ImageVolume] should reject Image Volume with Readonly set to false",
        "it may be asked for, and is read-only all the same: critest itself leaves that out",
    ),
    (
        "Image Volume [Feature:ImageVolume] subPath should succeed",
        "an image is a disk, and no part of it can be mounted alone",
    ),
    ("Image Manager public image with digest", "the digest is that of somebody else's image"),
    ("Multiple Containers", ONE_CONTAINER),
    (
        "PodSandbox runtime should support metrics operations runtime should support listing pod sandbox metrics",
        "its container has 64 MiB, and QEMU with a guest needs more; crictl's case looks for the same",
    ),
    ("AppArmor", PROFILES),
    ("NRI", "its plugins change how the node starts a process, and there is none of theirs to change in a guest"),
    ("Security Context NamespaceOption runtime should support ContainerPID", ONE_CONTAINER),
    ("Security Context NamespaceOption runtime should support HostIpc is true", NODES_NAMESPACES),
    ("Security Context NamespaceOption runtime should support HostNetwork is true", NODES_NAMESPACES),
    ("Security Context NamespaceOption runtime should support HostPID", NODES_NAMESPACES),
    ("Security Context NoNewPrivs", PROFILES),
    ("Security Context SeccompProfilePath runtime should support an seccomp profile that blocks", PROFILES),
    ("Security Context SeccompProfilePath should support seccomp default", PROFILES),
    ("Security Context SeccompProfilePath should support seccomp localhost", PROFILES),
    ("Security Context SupplementalGroupsPolicy", NO_FEATURE),
    ("Security Context UserNamespaces", NO_FEATURE),
    ("Security Context bucket runtime should support MaskedPaths", PROFILES),
    ("Security Context bucket runtime should support Privileged is false", PROFILES),
    ("Security Context bucket runtime should support ReadonlyPaths", PROFILES),
    ("Security Context bucket runtime should support adding capability", PROFILES),
    ("Security Context bucket runtime should support dropping", PROFILES),
    (
        "Streaming runtime should support streaming interfaces runtime should support portforward in host network",
        NODES_NAMESPACES,
    ),
];

/// A release of critest that brings a spec has somebody decide about it, and what is left out for nothing is seen.
fn all_known(bed: &Bed) -> Result<()> {
    let all = tests::critest::specs(bed)?;
    let runs: BTreeSet<&str> =
        critest::LISTS.iter().copied().chain([critest_images::SPECS]).flatten().copied().collect();
    for spec in &all {
        // `RunAsUser` is not `RunAsUserName`.
        let ends = |rest: &str| !rest.starts_with(char::is_alphanumeric);
        let of =
            |begins: &str| spec.strip_prefix("[k8s.io] ").and_then(|spec| spec.strip_prefix(begins)).is_some_and(ends);
        let ran = runs.iter().filter(|begins| of(begins)).count();
        let left_out = LEFT_OUT.iter().filter(|(begins, _)| of(begins)).count();
        ensure!(
            ran + left_out == 1,
            "{spec}: in {ran} lists of what runs and {left_out} times in that of what does not"
        );
    }
    for begins in LEFT_OUT.iter().map(|(begins, _)| begins).chain(&runs) {
        ensure!(all.iter().any(|spec| spec.contains(begins)), "no spec is `{begins}`");
    }
    ensure!(LEFT_OUT.iter().all(|(_, why)| !why.is_empty()));
    Ok(())
}
