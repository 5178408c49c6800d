//! CPUs, memory and resources.

use common::quantity;

use crate::Path;
use crate::finding::Findings;
use crate::types::{Cpu, Domain, Quantities};

const MIB: u64 = 1 << 20;
/// Most vCPUs of a VM.
const MAX_VCPUS: u32 = 255;

pub(super) fn check(domain: &Domain, at: &Path, found: &mut Findings) {
    cpu(&domain.cpu, &at.field("cpu"), found);
    dedicated(domain, at, found);
    memory(domain, at, found);
    let resources = at.field("resources");
    let (requests, limits) = (&domain.resources.requests, &domain.resources.limits);
    for (name, request) in requests {
        if let Some(limit) = limits.get(name)
            && milli(request) > milli(limit)
        {
            let text = format!("{request} is more than the limit of {limit}");
            found.error(&resources.field("requests").field(name), text);
        }
    }
}

fn cpu(cpu: &Cpu, at: &Path, found: &mut Findings) {
    let (sockets, ..) = cpu.topology();
    let most = cpu.most();
    found.unless(
        cpu.count() <= MAX_VCPUS && most <= MAX_VCPUS,
        at,
        format!("sockets, cores and threads make {} vCPUs, and {MAX_VCPUS} are the most", most.max(cpu.count())),
    );
    let is_fine = cpu.max_sockets == 0 || sockets <= cpu.max_sockets;
    found.unless(is_fine, &at.field("sockets"), format!("{sockets} is more than maxSockets, {}", cpu.max_sockets));
    let features = at.field("features");
    for (nth, feature) in cpu.features.iter().enumerate() {
        let at = features.item(nth).field("name");
        let before = cpu.features.iter().take(nth).any(|other| other.name == feature.name);
        found.unless(!before, &at, format!("\"{}\" is there twice", feature.name));
    }
}

fn dedicated(domain: &Domain, at: &Path, found: &mut Findings) {
    if !domain.cpu.dedicated_cpu_placement {
        return;
    }
    let count = u64::from(domain.cpu.count());
    let (resources, at_cpu) = (&domain.resources, at.field("cpu").field("dedicatedCpuPlacement"));
    found.unless(domain.cpu.topology().2 <= 2, &at_cpu, "takes at most 2 threads a core");
    for (all, name) in [(&resources.requests, "requests"), (&resources.limits, "limits")] {
        if let Some(cpus) = all.get("cpu")
            && milli(cpus) != Some(count * 1000)
        {
            let at = at.field("resources").field(name).field("cpu");
            found.error(&at, format!("{cpus} is not the number of vCPUs, {count}, as dedicatedCpuPlacement wants it"));
        }
    }
}

fn memory(domain: &Domain, at: &Path, found: &mut Findings) {
    let of = |all: &Quantities| all.get("memory").and_then(|text| quantity::bytes(text).ok());
    let at_memory = at.field("memory");
    let Some(guest) = domain.guest_memory() else {
        // What is there and is no quantity was told.
        if !found.has_error_at(&at_memory) && !found.has_error_at(&at.field("resources")) {
            let text = "is required, unless resources.requests.memory says how much the guest has";
            found.error(&at_memory.field("guest"), text);
        }
        return;
    };
    let at_guest = if domain.memory.guest.is_some() {
        at_memory.field("guest")
    } else {
        at.field("resources").field("requests").field("memory")
    };
    found.unless(guest >= MIB, &at_guest, "is below 1Mi");
    if let Some(limit) = of(&domain.resources.limits) {
        found.unless(guest <= limit, &at_guest, format!("is more than limits.memory, {limit} bytes"));
    }
    if let Some(pages) = &domain.memory.hugepages
        && let Ok(size @ 1..) = quantity::bytes(&pages.page_size)
    {
        let at = at_memory.field("hugepages").field("pageSize");
        let divides = guest.is_multiple_of(size) && guest >= size;
        found.unless(divides, &at, format!("{} does not divide the guest's memory", pages.page_size));
    }
}

/// Thousandths of a quantity, up to what fits.
pub(crate) fn milli(text: &str) -> Option<u64> {
    // A thousand times as much is the same number with another suffix, and none that is too fine is in between.
    let number = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    match text.strip_prefix(number)? {
        "m" => quantity::bytes(number).ok(),
        "" => quantity::bytes(&format!("{number}k")).ok(),
        _ => quantity::bytes(text).ok().map(|whole| whole.saturating_mul(1000)),
    }
}
