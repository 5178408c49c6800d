//! What a node's CPU is, as far as a guest that has the node's own depends on it: another one may lack what it has found.

use sha2::{Digest as _, Sha256};
use vmimage::digest::hex;
use vmspec::plan::{CpuMode, CpuModel, Hardware};

/// Where the kernel tells.
pub(super) const FILE: &str = "/proc/cpuinfo";
/// What it is known by, beside its features.
const NAMED: [&str; 4] = ["vendor_id", "cpu family", "model", "stepping"];

/// Whether a guest under KVM has the node's own CPU, or what is made of that.
pub(super) fn is_nodes(hardware: &Hardware) -> bool {
    match (&hardware.cpu_setting, &hardware.cpu) {
        (Some(setting), _) => setting.mode != CpuMode::Custom,
        (None, Some(CpuModel::Named(_))) => false,
        (None, _) => true,
    }
}

/// The first CPU that the kernel tells of: vendor, family, model and stepping, and a digest of its features in any order. They are those
/// that this kernel and its microcode leave it.
pub(super) fn of(cpuinfo: &str) -> String {
    let first = cpuinfo.split("\n\n").next().unwrap_or_default();
    let said = |name: &str| {
        let values = first.lines().filter_map(|line| line.split_once(':'));
        values.filter(|(key, _)| key.trim() == name).map(|(_, value)| value.trim()).next().unwrap_or("-")
    };
    let mut features: Vec<_> = said("flags").split_whitespace().collect();
    features.sort_unstable();
    let digest = Sha256::digest(features.join(" "));
    format!("{} {}", NAMED.map(said).join(" "), hex(digest.get(..8).unwrap_or_default()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cpu_is_known_by_what_a_guest_finds() {
        let told = |flags: &str, mhz: &str| {
            let one = format!(
                "vendor_id\t: GenuineIntel\ncpu family\t: 6\nmodel\t\t: 85\nmodel name\t: Xeon\nstepping\t: 7\ncpu MHz\t: {mhz}\nflags\t\t: {flags}\n"
            );
            of(&format!("processor\t: 0\n{one}\nprocessor\t: 1\n{one}"))
        };
        let cpu = told("fpu vme", "2100.1");
        assert!(cpu.starts_with("GenuineIntel 6 85 7 "), "{cpu}");
        assert_eq!(cpu, told("vme fpu", "3000.0"), "clocks go up and down");
        assert_ne!(cpu, told("fpu", "2100.1"));
        assert!(of("").starts_with("- - - - "));
    }

    #[test]
    fn a_named_model_is_of_no_node() {
        let has = |cpu| is_nodes(&Hardware { cpu, ..Hardware::default() });
        assert!(has(None) && has(Some(CpuModel::HostPassthrough)) && has(Some(CpuModel::HostModel)));
        assert!(!has(Some(CpuModel::Named("Westmere".into()))));
    }
}
