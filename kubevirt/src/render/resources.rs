//! What the pod asks of its node for the VM: processors, memory, and devices of the node.

use common::quantity;
use k8s_openapi::api::core::v1::ResourceRequirements;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use vmspec::annotations::keys::{CPU_MODEL, MAX_VCPUS, VCPU_COUNT};
use vmspec::draft::size::Guest;

use super::Draft;
use crate::types::Quantities;

const MIB: u64 = 1 << 20;
/// Memory that the RuntimeClass of `deploy/` gives a pod beside its limits.
const OVERHEAD: u64 = 128 * MIB;
/// Thousandths of a processor that are requested for each vCPU.
const CPU_SHARE: u32 = 100;
/// Room on the node's own disk.
const STORAGE: &str = "ephemeral-storage";

pub(super) fn of(draft: &mut Draft<'_>) {
    let domain = &draft.spec.domain;
    let at = draft.domain("cpu");
    draft.annotate(VCPU_COUNT, domain.cpu.count().to_string(), &at);
    if domain.cpu.max_sockets > 0 && domain.cpu.most() > domain.cpu.count() {
        draft.annotate(MAX_VCPUS, domain.cpu.most().to_string(), &at.field("maxSockets"));
    }
    if let Some(model) = &domain.cpu.model {
        draft.annotate(CPU_MODEL, model.clone(), &at.field("model"));
    }
    let mut requests = domain.resources.requests.clone();
    let mut limits = domain.resources.limits.clone();
    if domain.cpu.dedicated_cpu_placement {
        for all in [&mut requests, &mut limits] {
            all.insert("cpu".to_owned(), domain.cpu.count().to_string());
        }
    } else if !requests.contains_key("cpu") && !limits.contains_key("cpu") {
        requests.insert("cpu".to_owned(), format!("{}m", domain.cpu.count().saturating_mul(CPU_SHARE)));
    }
    memory(draft, &mut requests, &mut limits);
    scratch(draft, &mut requests, &mut limits);
    let of = |all: Quantities| Some(all.into_iter().map(|(name, text)| (name, Quantity(text))).collect());
    draft.container.resources =
        Some(ResourceRequirements { requests: of(requests), limits: of(limits), ..ResourceRequirements::default() });
}

/// The container's limit is what makes the guest's memory: with it the guest has what the object says, in a pod that has [`OVERHEAD`].
fn memory(draft: &mut Draft<'_>, requests: &mut Quantities, limits: &mut Quantities) {
    let spec = draft.spec;
    let domain = &spec.domain;
    let guest = domain.guest_memory().unwrap_or_default();
    let is_seed = |name: &String| spec.volumes.iter().any(|it| it.name == *name && it.cloud_init().is_some());
    let is_root = |name: &String| spec.root().is_some_and(|(root, _)| root.name == *name);
    let others = domain.devices.disks.iter().filter(|disk| !is_seed(&disk.name) && !is_root(&disk.name)).count();
    let is = Guest {
        memory: guest,
        vcpus: u16::try_from(domain.cpu.count()).unwrap_or(u16::MAX),
        disks: others,
        uefi: domain.firmware.efi().is_some(),
    };
    let limit = if let Some(pages) = &domain.memory.hugepages {
        let name = format!("hugepages-{}", pages.page_size);
        for all in [&mut *requests, &mut *limits] {
            all.insert(name.clone(), said(guest));
        }
        is.limit_beside()
    } else {
        is.limit(OVERHEAD).1
    };
    let at = draft.domain("resources");
    if let Some(own) = limits.insert("memory".to_owned(), said(limit))
        && quantity::bytes(&own).is_ok_and(|own| own != limit && own != guest)
    {
        let text = format!("the pod's limit is {}, with which the guest has its memory", said(limit));
        draft.found.warn(&at.field("limits").field("memory"), text);
    }
    let request = match requests.get("memory").and_then(|own| quantity::bytes(own).ok()) {
        _ if domain.cpu.dedicated_cpu_placement || domain.memory.hugepages.is_some() => limit,
        // As much less than the guest's as the object says, and what QEMU takes beside it.
        Some(own) if domain.memory.guest.is_some() => {
            let beside = if domain.resources.overcommit_guest_overhead { 0 } else { limit.saturating_sub(guest) };
            if own > guest {
                draft
                    .found
                    .warn(&at.field("requests").field("memory"), "is more than the VM may use, which is requested");
            }
            own.saturating_add(beside).min(limit)
        }
        _ if domain.resources.overcommit_guest_overhead => guest.min(limit),
        _ => limit,
    };
    requests.insert("memory".to_owned(), said(request));
}

/// Disks that are made for the pod are on its node's own.
fn scratch(draft: &Draft<'_>, requests: &mut Quantities, limits: &mut Quantities) {
    let disks = draft.spec.volumes.iter().filter_map(|volume| volume.empty_disk.as_ref());
    let all = disks.filter_map(|disk| quantity::bytes(&disk.capacity).ok()).fold(0, u64::saturating_add);
    if all == 0 {
        return;
    }
    let with = |own: Option<&String>| {
        let own = own.and_then(|own| quantity::bytes(own).ok()).unwrap_or_default();
        said(own.saturating_add(all).min(quantity::MAX))
    };
    requests.insert(STORAGE.to_owned(), with(requests.get(STORAGE)));
    if let Some(limit) = limits.get_mut(STORAGE) {
        *limit = with(Some(limit));
    }
}

/// Bytes as people write them.
fn said(bytes: u64) -> String {
    if bytes.is_multiple_of(MIB) { format!("{}Mi", bytes / MIB) } else { bytes.to_string() }
}
