//! What a machine's guest finds itself on: what the pod or its runtime handler wishes, if the emulator has it. Pure.

use std::collections::BTreeSet;
use std::fmt;

use proto::vm::ANNOTATION;

use crate::annotations::PodAnnotations;
use crate::error::{Error, Kind, Result};
use crate::plan::{CpuMode, CpuModel, CpuSetting, DiskBus, Fallback, Firmware, Hardware, MachineType, Watchdog};
use crate::settings::Handler;
use crate::{Accelerator, Offer};

/// Most names that an error lists.
const MAX_LISTED: usize = 40;

const CPU_SETTING: &str = "VirtletLibvirtCPUSetting";

/// Who wishes.
#[derive(Debug, Clone, Copy)]
enum From<'a> {
    Annotation(&'static str),
    Handler(&'a Handler),
}

/// The machine type that a machine is to have, as the pod says it or its handler is configured.
pub fn machine_type(handler: &Handler, annotations: &PodAnnotations) -> MachineType {
    let by_handler = || handler.defaults.machine.get().cloned();
    annotations.described.machine.clone().or_else(by_handler).unwrap_or_default()
}

/// What is told if the emulator knows no such machine type, but these.
pub fn no_machine_type(handler: &Handler, annotations: &PodAnnotations, there: &BTreeSet<String>) -> Error {
    let wanted = machine_type(handler, annotations);
    let like = |name: &&String| name.parse().is_ok_and(|other: MachineType| other.chipset() == wanted.chipset());
    let there = there.iter().filter(like).map(String::as_str);
    let from =
        if annotations.described.machine.is_some() { From::Annotation(ANNOTATION) } else { From::Handler(handler) };
    from.refused("machine type", &wanted, "the emulator does not have", there)
}

/// What it is to have; `offer` is what the emulator has, if that is known.
///
/// # Errors
/// When the emulator does not have what is wished.
pub(super) fn of(
    handler: &Handler,
    annotations: &PodAnnotations,
    offer: Option<&Offer>,
    accel: Accelerator,
    vcpus: u16,
) -> Result<Hardware> {
    let asked = machine_type(handler, annotations);
    let machine = match offer {
        Some(offer) => offer.machine.parse().map_err(|cause| {
            let name = &offer.machine;
            Error::because(Kind::Internal, format!("libvirt says that machine type `{asked}` is `{name}`"), cause)
        })?,
        None => asked,
    };
    let bus_by_handler = handler.defaults.disk_bus.get().copied().unwrap_or_default();
    let disk_bus = annotations.disk_bus.unwrap_or(bus_by_handler);
    let cpu_setting = annotations.cpu_setting.clone();
    let cpu = annotations.cpu_model.clone().or_else(|| handler.defaults.cpu_model.get().cloned());
    let cpu = cpu.filter(|_| cpu_setting.is_none());
    if let Some(setting) = &cpu_setting {
        check_topology(setting, vcpus)?;
    }
    let mut extras = handler.defaults.extras();
    if extras.hyperv && accel == Accelerator::Qemu && offer.is_some() {
        let what = format!("runtime handler `{}` wants `hyperv`, which needs KVM; this node emulates", handler.name);
        return Err(Error::new(Kind::State, what));
    }
    let devices = &annotations.described.devices;
    extras.graphics.take_if(|_| devices.graphics == Some(false));
    if devices.watchdog.is_some() {
        extras.watchdog = Some(Watchdog::I6300esb);
    }
    let (firmware, tpm) = (handler.defaults.boots_with(), handler.defaults.tpm);
    let shared_disks = handler.defaults.shared_disks;
    let described = annotations.described.clone();
    let hardware = Hardware { machine, cpu, disk_bus, firmware, tpm, shared_disks, cpu_setting, described, extras };
    match offer {
        Some(offer) => check(&hardware, handler, annotations, offer, accel).map(|()| hardware),
        None => Ok(hardware),
    }
}

/// Whether the emulator has it.
fn check(
    hardware: &Hardware,
    handler: &Handler,
    annotations: &PodAnnotations,
    offer: &Offer,
    accel: Accelerator,
) -> Result<()> {
    let by = |annotation: Option<&'static str>| annotation.map_or(From::Handler(handler), From::Annotation);
    if !offer.disk_buses.contains(hardware.disk_bus.name()) {
        let there = DiskBus::ALL.map(DiskBus::name).into_iter().filter(|bus| offer.disk_buses.contains(*bus));
        let from = by(annotations.disk_bus.map(|_| "VirtletDiskDriver"));
        return Err(from.refused("disk bus", &hardware.disk_bus, "the emulator does not have", there));
    }
    let described = hardware.described.disks.keys().map(|name| hardware.bus_of(name));
    if let Some(bus) = described.into_iter().find(|bus| !offer.disk_buses.contains(bus.name())) {
        let there = DiskBus::ALL.map(DiskBus::name).into_iter().filter(|bus| offer.disk_buses.contains(*bus));
        return Err(From::Annotation(ANNOTATION).refused("disk bus", &bus, "the emulator does not have", there));
    }
    if let Some(setting) = &hardware.cpu_setting {
        check_setting(setting, offer, accel)?;
    }
    if let Some(cpu) = &hardware.cpu {
        check_cpu(cpu, by(annotations.cpu_model.as_ref().map(|_| "VirtletCPUModel")), offer, accel)?;
    }
    if let Firmware::Uefi { secure_boot } = hardware.firmware {
        let there = offer.firmwares.contains("efi");
        let missing = match secure_boot {
            _ if !there => Some("uefi"),
            true if !offer.secure_boot => Some("uefi with secure boot"),
            _ => None,
        };
        if let Some(missing) = missing {
            let why = "libvirt does not find on this node (install package `ovmf`)";
            let there = ["bios"].into_iter().chain(there.then_some("uefi"));
            return Err(From::Handler(handler).refused("firmware", &missing, why, there));
        }
    }
    if hardware.tpm && !offer.tpm {
        let why = "libvirt cannot emulate on this node (install packages `swtpm` and `swtpm-tools`)";
        return Err(From::Handler(handler).refused("TPM", &"2.0", why, std::iter::empty()));
    }
    Ok(())
}

fn check_setting(setting: &CpuSetting, offer: &Offer, accel: Accelerator) -> Result<()> {
    let from = From::Annotation(CPU_SETTING);
    let model = match setting.mode {
        CpuMode::HostPassthrough => CpuModel::HostPassthrough,
        CpuMode::HostModel => CpuModel::HostModel,
        CpuMode::Maximum => CpuModel::Max,
        CpuMode::Custom => CpuModel::Named(setting.model.as_ref().map(|model| model.name.clone()).unwrap_or_default()),
    };
    // libvirt takes the nearest model that there is.
    let may_differ = setting.model.as_ref().is_some_and(|model| model.fallback == Some(Fallback::Allow));
    let is_known = matches!(&model, CpuModel::Named(name) if offer.cpu_models.contains_key(name));
    if !(may_differ && is_known) {
        check_cpu(&model, from, offer, accel)?;
    }
    Ok(())
}

fn check_topology(setting: &CpuSetting, vcpus: u16) -> Result<()> {
    match setting.topology.map(|topology| topology.vcpus()) {
        Some(places) if places != u64::from(vcpus) => {
            let what = format!("annotation {CPU_SETTING}: topology gives {places} vCPUs, the VM has {vcpus}");
            Err(Error::new(Kind::Invalid, what))
        }
        _ => Ok(()),
    }
}

fn check_cpu(cpu: &CpuModel, from: From<'_>, offer: &Offer, accel: Accelerator) -> Result<()> {
    let mode = match cpu {
        CpuModel::HostPassthrough => "host-passthrough",
        CpuModel::HostModel => "host-model",
        CpuModel::Max => "maximum",
        CpuModel::Named(name) if offer.cpu_models.get(name) == Some(&true) => return Ok(()),
        CpuModel::Named(name) => {
            let usable = offer.cpu_models.iter().filter(|(_, usable)| **usable).map(|(name, _)| name.as_str());
            let why = match offer.cpu_models.get(name) {
                Some(_) => format!("accelerator `{accel}` of this node cannot give a guest"),
                None => "the emulator does not know".to_owned(),
            };
            return Err(from.refused("CPU model", cpu, &why, usable));
        }
    };
    // Of the node's own CPU nothing is emulated, whatever an emulator makes of it.
    let of_node = *cpu == CpuModel::HostModel && accel == Accelerator::Qemu;
    if offer.cpu_modes.contains(mode) && !of_node {
        return Ok(());
    }
    let why = format!("accelerator `{accel}` of this node cannot give a guest");
    Err(from.refused("CPU model", cpu, &why, ["max, or a named model"].into_iter()))
}

impl From<'_> {
    fn refused<'a>(
        self,
        what: &str,
        wanted: &dyn fmt::Display,
        why: &str,
        there: impl Iterator<Item = &'a str>,
    ) -> Error {
        let (kind, who) = match self {
            Self::Annotation(name) => (Kind::Invalid, format!("annotation {name} wants")),
            Self::Handler(handler) => (Kind::State, format!("runtime handler `{}` wants", handler.name)),
        };
        let mut there: Vec<&str> = there.collect();
        let more = there.len().saturating_sub(MAX_LISTED);
        there.truncate(MAX_LISTED);
        let more = if more == 0 { String::new() } else { format!(" and {more} more") };
        let there = if there.is_empty() { "none".to_owned() } else { there.join(", ") };
        Error::new(kind, format!("{who} {what} `{wanted}`, which {why}; there is {there}{more}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::FirmwareKind;
    use crate::settings::{Given, MachineDefaults};

    fn offer() -> Offer {
        let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        Offer {
            machine: "pc-q35-10.0".into(),
            cpu_modes: names(&["custom", "host-model", "maximum"]),
            cpu_models: [("Westmere".into(), true), ("Broadwell".into(), false)].into(),
            disk_buses: names(&["fdc", "virtio", "scsi"]),
            ..Offer::default()
        }
    }

    fn handler(defaults: MachineDefaults) -> Handler {
        Handler { name: "lab".into(), defaults }
    }

    fn wishes(cpu: &str, bus: &str) -> MachineDefaults {
        let (cpu, bus) = (cpu.parse().expect("model"), bus.parse().expect("bus"));
        MachineDefaults { cpu_model: Given::Value(cpu), disk_bus: Given::Value(bus), ..MachineDefaults::default() }
    }

    #[test]
    fn a_handler_gives_defaults_and_the_pod_may_say_otherwise() {
        let mine =
            |handler, annotations| of(&handler, &annotations, Some(&offer()), Accelerator::Qemu, 2).expect("there");
        let plain = mine(Handler::default(), PodAnnotations::default());
        let pinned = Hardware { machine: "pc-q35-10.0".parse().expect("type"), ..Hardware::default() };
        assert_eq!(plain, pinned);
        let lab = || handler(wishes("Westmere", "scsi"));
        let cpu = Some(CpuModel::Named("Westmere".into()));
        assert_eq!(mine(lab(), PodAnnotations::default()), Hardware { cpu, disk_bus: DiskBus::Scsi, ..pinned.clone() });
        let annotations = PodAnnotations {
            disk_bus: Some(DiskBus::Virtio),
            cpu_model: Some(CpuModel::Max),
            ..PodAnnotations::default()
        };
        assert_eq!(mine(lab(), annotations), Hardware { cpu: Some(CpuModel::Max), ..pinned });
    }

    #[test]
    fn a_cpu_in_detail_takes_the_place_of_a_model_and_has_as_many_vcpus() {
        let detail = |yaml: &str| {
            let said = [("VirtletLibvirtCPUSetting", yaml), ("VirtletCPUModel", "Nehalem")];
            PodAnnotations::parse(&said.map(|(key, value)| (key.to_owned(), value.to_owned())).into()).expect("fine")
        };
        let of = |yaml: &str| of(&Handler::default(), &detail(yaml), Some(&offer()), Accelerator::Qemu, 2);
        let hardware = of("{model: Westmere, topology: {threads: 2}}").expect("there");
        assert!(hardware.cpu.is_none() && hardware.cpu_setting.is_some(), "{hardware:?}");
        of("{model: {value: Broadwell, fallback: allow}}").expect("libvirt takes the nearest");
        let told: Vec<String> = [
            "{model: Broadwell}",
            "{model: {value: Nehalem, fallback: allow}}",
            "{mode: host-passthrough}",
            "{mode: maximum, topology: {sockets: 2, cores: 2}}",
        ]
        .map(|yaml| of(yaml).expect_err(yaml).to_string())
        .into();
        insta::assert_snapshot!(told.join("\n"));
    }

    #[test]
    fn what_windows_asks_for_needs_kvm() {
        let windows = handler(MachineDefaults { hyperv: true, ..MachineDefaults::default() });
        let mine = |accel| of(&windows, &PodAnnotations::default(), Some(&offer()), accel, 2);
        assert!(mine(Accelerator::Kvm).expect("there").extras.hyperv);
        let refused = mine(Accelerator::Qemu).expect_err("emulated").to_string();
        assert_eq!(refused, "runtime handler `lab` wants `hyperv`, which needs KVM; this node emulates");
    }

    #[test]
    fn what_is_not_there_is_told_with_what_is() {
        use Accelerator::{Kvm, Qemu};
        let mut lines = Vec::new();
        for (cpu, bus, accel) in [
            ("Westmere", "sata", Qemu),
            ("Nehalem", "virtio", Qemu),
            ("Broadwell", "virtio", Kvm),
            ("host-passthrough", "virtio", Qemu),
            ("host-model", "virtio", Qemu),
        ] {
            let (handler, annotations) = (handler(wishes(cpu, bus)), PodAnnotations::default());
            lines.push(of(&handler, &annotations, Some(&offer()), accel, 2).expect_err(cpu).to_string());
        }
        let annotations = PodAnnotations { disk_bus: Some(DiskBus::Sata), ..PodAnnotations::default() };
        let refused = of(&Handler::default(), &annotations, Some(&offer()), Kvm, 2).expect_err("no such bus");
        assert_eq!(refused.kind(), Kind::Invalid);
        lines.push(refused.to_string());
        let machine = Given::Value("pc-q35-99".parse().expect("type"));
        let old = handler(MachineDefaults { machine, ..MachineDefaults::default() });
        let there = ["isapc", "pc", "pc-i440fx-9.2", "pc-q35-9.2", "q35"].map(str::to_owned).into();
        lines.push(no_machine_type(&old, &PodAnnotations::default(), &there).to_string());
        let many = (0..50).map(|version| format!("pc-q35-{version}")).collect();
        let long = no_machine_type(&old, &PodAnnotations::default(), &many).to_string();
        assert!(long.ends_with(" and 10 more"), "{long}");
        let secure = || MachineDefaults {
            firmware: Given::Value(FirmwareKind::Uefi),
            secure_boot: true,
            ..MachineDefaults::default()
        };
        let no_keys = Offer { firmwares: ["efi".to_owned()].into(), ..offer() };
        for offer in [offer(), no_keys.clone()] {
            let refused =
                of(&handler(secure()), &PodAnnotations::default(), Some(&offer), Kvm, 2).expect_err("no firmware");
            lines.push(refused.to_string());
        }
        let tpm = handler(MachineDefaults { tpm: true, ..MachineDefaults::default() });
        lines.push(of(&tpm, &PodAnnotations::default(), Some(&no_keys), Kvm, 2).expect_err("no swtpm").to_string());
        let with_tpm = Offer { tpm: true, ..no_keys.clone() };
        assert!(of(&tpm, &PodAnnotations::default(), Some(&with_tpm), Kvm, 2).expect("there").tpm);
        let all = Offer { secure_boot: true, ..no_keys };
        let hardware = of(&handler(secure()), &PodAnnotations::default(), Some(&all), Kvm, 2).expect("there");
        assert_eq!(hardware.firmware, Firmware::Uefi { secure_boot: true });
        insta::assert_snapshot!(lines.join("\n"), @"
        runtime handler `lab` wants disk bus `sata`, which the emulator does not have; there is virtio, scsi
        runtime handler `lab` wants CPU model `Nehalem`, which the emulator does not know; there is Westmere
        runtime handler `lab` wants CPU model `Broadwell`, which accelerator `kvm` of this node cannot give a guest; there is Westmere
        runtime handler `lab` wants CPU model `host-passthrough`, which accelerator `qemu` of this node cannot give a guest; there is max, or a named model
        runtime handler `lab` wants CPU model `host-model`, which accelerator `qemu` of this node cannot give a guest; there is max, or a named model
        annotation VirtletDiskDriver wants disk bus `sata`, which the emulator does not have; there is virtio, scsi
        runtime handler `lab` wants machine type `pc-q35-99`, which the emulator does not have; there is pc-q35-9.2, q35
        runtime handler `lab` wants firmware `uefi`, which libvirt does not find on this node (install package `ovmf`); there is bios
        runtime handler `lab` wants firmware `uefi with secure boot`, which libvirt does not find on this node (install package `ovmf`); there is bios, uefi
        runtime handler `lab` wants TPM `2.0`, which libvirt cannot emulate on this node (install packages `swtpm` and `swtpm-tools`); there is none
        ");
    }
}
