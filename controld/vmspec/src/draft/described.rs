//! Whether a described machine fits the rest of what is known of it.

use crate::Accelerator;
use crate::error::{Error, Kind, Result};
use crate::plan::{Cpus, Described, Firmware, Hardware};

/// # Errors
/// When it does not.
pub(super) fn check(hardware: &Hardware, cpus: Cpus, accel: Accelerator, is_asked: bool) -> Result<()> {
    let Described { topology, features, .. } = &hardware.described;
    let invalid = |what: String| Err(Error::new(Kind::Invalid, format!("annotation virtlet.k8s/vm: {what}")));
    if let Some(topology) = topology {
        let (places, boot) = (topology.vcpus(), cpus.boot);
        if places != u64::from(boot) {
            return invalid(format!("cpu.topology gives {places} vCPUs, the VM has {boot}"));
        }
        let of_socket = u64::from(topology.cores) * u64::from(topology.threads);
        if u64::from(cpus.max) % of_socket != 0 {
            let max = cpus.max;
            return invalid(format!("{max} vCPUs, which the VM can be given, are no whole sockets of {of_socket}"));
        }
    }
    let is_off = features.smm.is_some_and(|smm| smm.enabled == Some(false));
    if is_off && hardware.firmware == (Firmware::Uefi { secure_boot: true }) {
        return invalid("features.smm cannot be off with secure boot".to_owned());
    }
    if features.hyperv.is_some() && accel == Accelerator::Qemu && is_asked {
        let what = "annotation virtlet.k8s/vm: features.hyperv needs KVM; this node emulates";
        return Err(Error::new(Kind::State, what.to_owned()));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::Topology;

    fn told(topology: [u16; 3], (boot, max): (u16, u16)) -> String {
        let [sockets, cores, threads] = topology;
        let topology = Some(Topology { sockets, dies: 1, cores, threads });
        let described = Described { topology, ..Described::default() };
        let hardware = Hardware { described, ..Hardware::default() };
        check(&hardware, Cpus { boot, max }, Accelerator::Kvm, true)
            .map_or_else(|error| error.to_string(), |()| "fits".into())
    }

    #[test]
    fn a_topology_has_a_place_for_each_vcpu_also_for_those_that_come_later() {
        assert_eq!(told([2, 2, 2], (8, 8)), "fits");
        assert_eq!(told([1, 2, 2], (4, 12)), "fits");
        assert_eq!(
            told([1, 2, 2], (4, 6)),
            "annotation virtlet.k8s/vm: 6 vCPUs, which the VM can be given, are no whole sockets of 4"
        );
        assert_eq!(told([2, 2, 1], (2, 4)), "annotation virtlet.k8s/vm: cpu.topology gives 4 vCPUs, the VM has 2");
    }

    #[test]
    fn what_needs_kvm_or_smm_is_told() {
        let of = |text: &str, firmware, accel| {
            let described =
                Described { features: serde_json::from_str(text).expect("features"), ..Described::default() };
            let hardware = Hardware { described, firmware, ..Hardware::default() };
            check(&hardware, Cpus::fixed(1), accel, true).map_or_else(|error| error.to_string(), |()| "fits".into())
        };
        let (hyperv, no_smm) = (r#"{"hyperv":{"relaxed":{}}}"#, r#"{"smm":{"enabled":false}}"#);
        assert_eq!(of(hyperv, Firmware::Bios, Accelerator::Kvm), "fits");
        let refused = of(hyperv, Firmware::Bios, Accelerator::Qemu);
        assert_eq!(refused, "annotation virtlet.k8s/vm: features.hyperv needs KVM; this node emulates");
        assert_eq!(of(no_smm, Firmware::Bios, Accelerator::Qemu), "fits");
        let refused = of(no_smm, Firmware::Uefi { secure_boot: true }, Accelerator::Kvm);
        assert_eq!(refused, "annotation virtlet.k8s/vm: features.smm cannot be off with secure boot");
    }
}
