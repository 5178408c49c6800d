//! What only the description says of a domain. What a VM has in any case is left out of it.

use proto::vm::{Clock, Cpu, Features, Firmware, RtcTimer, State, TickTimer, Topology};
use vmspec::annotations::keys::SYSTEM_UUID;

use super::Draft;

/// The machine type that a VM has unless its handler says another.
const MACHINE: &str = "q35";
/// Of what a description may say only where the node's owner lets it.
const ALLOWED: &str = "the RuntimeClass's handler on the node has to allow annotation virtlet.k8s/vm by name";
/// Of a screen, which is the handler's to give.
const SCREEN: &str = "the RuntimeClass's handler on the node has to have graphics = \"vnc\"";

pub(super) fn of(draft: &mut Draft<'_>) {
    cpu(draft);
    firmware(draft);
    platform(draft);
    devices(draft);
    let domain = &draft.spec.domain;
    if domain.reboot_policy.as_deref() == Some("Terminate") {
        draft.description.ends_at_reboot = true;
    }
    if draft.spec.architecture.as_deref() == Some("arm64") {
        let at = draft.instance.at.field("architecture");
        draft.found.warn(&at, "nodes of this release are amd64");
    }
    if draft.spec.start_strategy.is_some() {
        draft.description.start_paused = true;
    }
}

fn cpu(draft: &mut Draft<'_>) {
    let cpu = &draft.spec.domain.cpu;
    let (sockets, cores, threads) = cpu.topology();
    // One socket of cores is what a guest sees of a number of vCPUs.
    let topology = (sockets > 1 || threads > 1).then_some(Topology { sockets, cores, threads });
    if !cpu.features.is_empty() {
        let at = draft.domain("cpu").field("features");
        draft.found.warn(&at, ALLOWED);
    }
    let described = Cpu { topology, features: cpu.features.clone() };
    draft.description.cpu = Some(described).filter(|cpu| *cpu != Cpu::default());
}

fn firmware(draft: &mut Draft<'_>) {
    let domain = &draft.spec.domain;
    let at = draft.domain("firmware");
    if let Some(uuid) = &domain.firmware.uuid {
        draft.annotate(SYSTEM_UUID, uuid.clone(), &at.field("uuid"));
    }
    let loader = domain.firmware.bootloader.as_ref();
    let use_serial = loader.and_then(|loader| loader.bios.as_ref()).is_some_and(|bios| bios.use_serial);
    let firmware = Firmware { serial: domain.firmware.serial.clone().unwrap_or_default(), use_serial };
    draft.description.firmware = Some(firmware).filter(|firmware| *firmware != Firmware::default());
    if let Some(machine) = domain.machine.name.as_ref().filter(|name| *name != MACHINE) {
        if machine == "pc" || machine.starts_with("pc-i440fx-") {
            let at = draft.domain("machine").field("type");
            draft.found.warn(&at, ALLOWED);
        }
        draft.description.machine = Some(machine.clone());
    }
    draft.description.chassis = domain.chassis.clone().filter(|chassis| *chassis != proto::vm::Chassis::default());
}

fn platform(draft: &mut Draft<'_>) {
    let domain = &draft.spec.domain;
    draft.description.clock = domain.clock.clone().map(without_defaults).filter(|clock| *clock != Clock::default());
    let is_secure = domain.firmware.efi().is_some_and(crate::types::Efi::is_secure);
    let features = domain.features.clone().map(|features| beyond(features, is_secure));
    draft.description.features = features.filter(|features| *features != Features::default());
}

/// A clock without what every VM's is: UTC, an RTC that catches up, and no HPET.
fn without_defaults(mut clock: Clock) -> Clock {
    clock.utc.take_if(|utc| utc.offset_seconds.is_none_or(|seconds| seconds == 0));
    if let Some(timer) = &mut clock.timer {
        let has = |policy: &Option<String>| policy.as_deref().is_none_or(|policy| policy == "catchup");
        timer
            .rtc
            .take_if(|rtc: &mut RtcTimer| has(&rtc.tick_policy) && rtc.present != Some(false) && rtc.track.is_none());
        timer.hpet.take_if(|hpet: &mut TickTimer| hpet.present == Some(false));
    }
    clock.timer.take_if(|timer| *timer == proto::vm::Timers::default());
    clock
}

/// Features beyond those of every VM: ACPI and APIC, and SMM with secure boot.
fn beyond(mut features: Features, is_secure: bool) -> Features {
    let is_on = |state: &mut State| state.enabled != Some(false);
    features.acpi.take_if(is_on);
    features.apic.take_if(|apic| apic.enabled != Some(false) && !apic.end_of_interrupt);
    features.smm.take_if(|smm| is_secure == is_on(smm));
    features.kvm.take_if(|kvm| !kvm.hidden);
    features.hyperv.take_if(|hyperv| *hyperv == proto::vm::HyperV::default());
    features
}

fn devices(draft: &mut Draft<'_>) {
    let devices = &draft.spec.domain.devices;
    let threads = draft.spec.domain.io_threads_policy.clone();
    let is = |said: Option<bool>, other: bool| said.filter(|said| *said == other);
    let mut inputs = devices.inputs.clone();
    if devices.autoattach_input_device == Some(true) && inputs.is_empty() {
        inputs.push(proto::vm::Input { name: "default".to_owned(), bus: "usb".to_owned(), kind: "tablet".to_owned() });
    }
    if inputs.iter().any(|input| input.bus != "virtio") {
        let at = draft.device("inputs");
        draft.found.warn(&at, ALLOWED);
    }
    let described = proto::vm::Devices {
        pod_interface: draft.description.devices.as_ref().and_then(|devices| devices.pod_interface),
        // A screen is the handler's to give, and so is none.
        graphics: is(devices.autoattach_graphics_device, true),
        video: devices.video.clone(),
        serial_console: is(devices.autoattach_serial_console, false),
        mem_balloon: is(devices.autoattach_mem_balloon, false),
        inputs,
        watchdog: devices.watchdog.clone(),
        panic_devices: devices.panic_devices.clone(),
        network_multi_queue: is(devices.network_interface_multiqueue, false),
        block_multi_queue: is(devices.block_multi_queue, false),
        virtio_transitional: is(devices.use_virtio_transitional, true),
        io_threads: threads,
    };
    for (field, is_there) in
        [("autoattachGraphicsDevice", described.graphics.is_some()), ("video", described.video.is_some())]
    {
        if is_there {
            let at = draft.device(field);
            draft.found.warn(&at, SCREEN);
        }
    }
    if described.virtio_transitional.is_some() {
        let at = draft.device("useVirtioTransitional");
        draft.described(&at);
    }
    draft.description.devices = Some(described).filter(|devices| *devices != proto::vm::Devices::default());
}
