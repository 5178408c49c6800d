//! Whether a described machine fits the rest of what is known of it.

pub(super) mod disks;

use crate::Accelerator;
use crate::error::{Error, Kind, Result};
use crate::plan::{Chipset, Cpus, Described, Firmware, Hardware, Memory, PanicModel, Watchdog};

/// # Errors
/// When it does not.
pub(super) fn check(hardware: &Hardware, cpus: Cpus, accel: Accelerator, is_asked: bool) -> Result<()> {
    let Described { topology, features, .. } = &hardware.described;
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
    devices(hardware, accel, is_asked)?;
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

/// The memory of a machine without a balloon, which is what it boots with.
///
/// # Errors
/// When it is to be given more.
pub(super) fn fixed(memory: Memory) -> Result<Memory> {
    if memory.max > memory.boot {
        let what = "annotation virtlet.k8s/vm: devices.memBalloon: a VM without one is given no more memory than it boots with; unset \
                    annotation virtlet.cloud/max-memory, or take a runtime handler without `max_memory_mib`";
        return Err(Error::new(Kind::Invalid, what));
    }
    Ok(memory)
}

/// Whether machine type, firmware and devices go together, and are the pod's to say.
fn devices(hardware: &Hardware, accel: Accelerator, is_asked: bool) -> Result<()> {
    let Described { machine, use_serial, devices, .. } = &hardware.described;
    if machine.is_some() && hardware.machine.chipset() != Chipset::Q35 {
        if hardware.firmware == (Firmware::Uefi { secure_boot: true }) {
            return invalid("machine: the runtime handler boots securely, which takes a `q35`".to_owned());
        }
        if hardware.extras.watchdog == Some(Watchdog::Itco) {
            return invalid("machine: the runtime handler's watchdog, itco, is of the chipset `q35`".to_owned());
        }
    }
    if *use_serial && devices.no_serial {
        return invalid("firmware.useSerial: there is no serial console, as devices.serialConsole says".to_owned());
    }
    if *use_serial && hardware.firmware != Firmware::Bios {
        return invalid("firmware.useSerial: is for a BIOS, and the runtime handler has UEFI".to_owned());
    }
    if (devices.graphics == Some(true) || devices.video.is_some()) && !hardware.has_screen() {
        let field = if devices.graphics == Some(true) { "graphics" } else { "video" };
        return invalid(format!("devices.{field}: takes a runtime handler with `graphics = \"vnc\"`"));
    }
    if devices.panic.contains(&PanicModel::Hyperv) && accel == Accelerator::Qemu && is_asked {
        let what = "annotation virtlet.k8s/vm: devices.panicDevices: `hyperv` needs KVM; this node emulates";
        return Err(Error::new(Kind::State, what.to_owned()));
    }
    Ok(())
}

fn invalid(what: String) -> Result<()> {
    Err(Error::new(Kind::Invalid, format!("annotation virtlet.k8s/vm: {what}")))
}

#[cfg(test)]
mod tests {
    use proto::vm::VmDescription;

    use super::*;
    use crate::plan::{Extras, Graphics, Topology};

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
    fn what_is_the_handlers_to_give_or_goes_with_nothing_of_it_is_told() {
        let of = |description: &str, extras: &Extras, firmware| {
            let described = Described::of(VmDescription::parse(description).expect(description)).expect(description);
            let machine = described.machine.clone().unwrap_or_default();
            let hardware = Hardware { machine, described, firmware, extras: extras.clone(), ..Hardware::default() };
            check(&hardware, Cpus::fixed(1), Accelerator::Qemu, true)
                .map_or_else(|error| error.to_string(), |()| "fits".into())
        };
        let screen = Extras { graphics: Some(Graphics::Vnc), ..Extras::default() };
        let itco = Extras { watchdog: Some(Watchdog::Itco), ..Extras::default() };
        let (none, secure) = (Extras::default(), Firmware::Uefi { secure_boot: true });
        let (graphics, video) =
            (r#"{"v":1,"devices":{"graphics":true}}"#, r#"{"v":1,"devices":{"video":{"type":"virtio"}}}"#);
        assert_eq!(of(graphics, &screen, Firmware::Bios), "fits");
        assert_eq!(of(video, &screen, Firmware::Bios), "fits");
        let told = [
            of(graphics, &none, Firmware::Bios),
            of(video, &none, Firmware::Bios),
            of(r#"{"v":1,"firmware":{"useSerial":true}}"#, &none, secure),
            of(r#"{"v":1,"firmware":{"useSerial":true},"devices":{"serialConsole":false}}"#, &none, Firmware::Bios),
            of(r#"{"v":1,"machine":"pc"}"#, &none, secure),
            of(r#"{"v":1,"machine":"pc-i440fx-9.2"}"#, &itco, Firmware::Bios),
            of(r#"{"v":1,"devices":{"panicDevices":[{"model":"hyperv"}]}}"#, &none, Firmware::Bios),
        ];
        insta::assert_snapshot!(told.join("\n"));
    }

    #[test]
    fn memory_that_grows_takes_a_balloon() {
        assert_eq!(fixed(Memory { boot: 1, max: 1 }).expect("as it boots").boot, 1);
        assert!(fixed(Memory { boot: 1, max: 2 }).expect_err("grows").to_string().contains("devices.memBalloon"));
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
