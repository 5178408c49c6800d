//! What passing devices to guests needs: the IOMMU, VFIO, and cards with SR-IOV. A node without such cards needs none of it.

use super::facts::Facts;
use super::finding::Finding;
use super::host::{Host, HostError};
use super::modules::{Has, Modules};

const PCI: &str = "/sys/bus/pci/devices";
const GROUPS: &str = "/sys/kernel/iommu_groups";

/// A card that can have functions.
#[derive(Debug)]
struct Card {
    total: u64,
    enabled: u64,
}

pub(super) fn look(host: &Host, _facts: &Facts) -> Vec<Finding> {
    let cards = match cards(host) {
        Ok(cards) => cards,
        Err(error) => {
            let checks = ["sriov", "iommu", "kernel.vfio-pci", "kernel.iommufd"];
            return checks.map(|check| Finding::unknown(check, &error)).into();
        }
    };
    let wanted = !cards.is_empty();
    vec![sriov(&cards), iommu(host, wanted), vfio_pci(host, wanted), iommufd(host, wanted)]
}

fn cards(host: &Host) -> Result<Vec<Card>, HostError> {
    let mut cards = Vec::new();
    for address in host.names(PCI)? {
        let number = |file: &str| Ok(host.word(format!("{PCI}/{address}/{file}"))?.parse().unwrap_or(0));
        let total = number("sriov_totalvfs")?;
        if total > 0 {
            cards.push(Card { total, enabled: number("sriov_numvfs")? });
        }
    }
    Ok(cards)
}

fn sriov(cards: &[Card]) -> Finding {
    const CHECK: &str = "sriov";
    if cards.is_empty() {
        return Finding::ok(CHECK, "no card with SR-IOV");
    }
    let total: u64 = cards.iter().fold(0, |sum, card| sum.saturating_add(card.total));
    let enabled: u64 = cards.iter().fold(0, |sum, card| sum.saturating_add(card.enabled));
    Finding::ok(CHECK, format!("{} cards with SR-IOV, {enabled} of {total} functions made", cards.len()))
}

fn iommu(host: &Host, wanted: bool) -> Finding {
    const CHECK: &str = "iommu";
    match host.names(GROUPS) {
        Ok(groups) if !groups.is_empty() => Finding::ok(CHECK, format!("{} groups", groups.len())),
        Ok(_) if wanted => Finding::warning(
            CHECK,
            "no IOMMU groups: no function of a card goes to a guest",
            "turn the IOMMU on in the firmware, and boot with intel_iommu=on or amd_iommu=on",
        ),
        Ok(_) => Finding::ok(CHECK, "no IOMMU groups, which only SR-IOV needs"),
        Err(error) => Finding::unknown(CHECK, error),
    }
}

fn vfio_pci(host: &Host, wanted: bool) -> Finding {
    const CHECK: &str = "kernel.vfio-pci";
    if host.has("/sys/bus/pci/drivers/vfio-pci") {
        return Finding::ok(CHECK, "loaded");
    }
    let has = match Modules::read(host) {
        Ok(modules) => modules.has("vfio-pci"),
        Err(error) => return Finding::unknown(CHECK, error),
    };
    if wanted {
        let seen = if has == Has::InFile { "not loaded" } else { "not loaded, and perhaps not there" };
        let mend = "modprobe vfio-pci; echo vfio-pci >/etc/modules-load.d/vfio.conf";
        return Finding::warning(CHECK, seen, mend);
    }
    Finding::ok(CHECK, "not loaded; only SR-IOV needs it")
}

fn iommufd(host: &Host, wanted: bool) -> Finding {
    const CHECK: &str = "kernel.iommufd";
    match (host.has("/dev/iommu"), wanted) {
        (true, _) => Finding::ok(CHECK, "`/dev/iommu` is there"),
        (false, true) => Finding::ok(CHECK, "no `/dev/iommu`: functions go to guests by VFIO groups"),
        (false, false) => Finding::ok(CHECK, "no `/dev/iommu`, which only SR-IOV uses"),
    }
}

#[cfg(test)]
mod tests {
    use super::super::finding::State;
    use super::super::tests::{facts, tree};
    use super::*;

    fn states(files: &[(&str, &str)]) -> Vec<(&'static str, State)> {
        let (_dir, host) = tree(files);
        look(&host, &facts()).iter().map(|finding| (finding.check, finding.state)).collect()
    }

    #[test]
    fn a_node_without_cards_needs_nothing_of_it() {
        assert!(states(&[]).iter().all(|(_, state)| *state == State::Ok));
    }

    #[test]
    fn cards_want_an_iommu_and_vfio() {
        let card = "sys/bus/pci/devices/0000:3b:00.0";
        let (total, made) = (format!("{card}/sriov_totalvfs"), format!("{card}/sriov_numvfs"));
        let files = [(&*total, "64\n"), (&*made, "8\n"), ("sys/bus/pci/devices/0000:00:00.0/vendor", "0x8086\n")];
        let (_dir, host) = tree(&files);
        assert_eq!(look(&host, &facts())[0].seen, "1 cards with SR-IOV, 8 of 64 functions made");
        let states = states(&files);
        assert_eq!(states[1..3], [("iommu", State::Warning), ("kernel.vfio-pci", State::Warning)]);
        let well = [&files[..], &[("sys/kernel/iommu_groups/7/type", ""), ("sys/bus/pci/drivers/vfio-pci/bind", "")]];
        let (_dir, host) = tree(&well.concat());
        assert!(look(&host, &facts()).iter().all(|finding| finding.state == State::Ok));
    }

    #[test]
    fn a_number_that_is_none_is_no_card() {
        let card = "sys/bus/pci/devices/0000:3b:00.0/sriov_totalvfs";
        assert_eq!(states(&[(card, "many\n")])[0], ("sriov", State::Ok));
        let (_dir, host) = tree(&[(&format!("{card}/a-directory"), "")]);
        let findings = look(&host, &facts());
        assert!(findings[0].state == State::Warning && findings[0].seen.contains("not a regular file"), "{findings:?}");
    }
}
