//! The XML itself.

mod cpu;
mod described;
mod disk_driver;
mod disks;
mod extras;
mod hardware;
mod io_threads;
mod places;

use self::disks::Other;
pub use self::disks::{GROUP_OF_ROOT, group_of};
use self::places::Places;
pub use self::places::{target_of, target_of_root};

use std::io;
use std::path::Path;

use quick_xml::Writer;
use quick_xml::events::{BytesStart, BytesText, Event};
use vmspec::Accelerator;
use vmspec::plan::{Graphics, MAX_DISKS, PanicModel};

use proto::agent::{EXIT_PORT, LOG_PORT, PORT as AGENT_PORT, SHARE_TAG, WARM_FAMILY};

use super::{DomainSpec, METADATA_NAMESPACE, NicPlace, Shared};

const QEMU_NAMESPACE: &str = "http://libvirt.org/schemas/domain/qemu/1.0";

const SHARE_SLOT: u8 = 0x0b;
const SERIAL_SLOT: u8 = 0x0c;
const RNG_SLOT: u8 = 0x0d;
const BALLOON_SLOT: u8 = 0x0e;
const PANIC_SLOT: u8 = 0x0f;

/// Requests that may be on their way to virtiofsd.
const SHARE_QUEUE: &str = "1024";

/// Name of the port of QEMU's agent as the guest sees it, and libvirt's word for the device.
const QGA_PORT: &str = "org.qemu.guest_agent.0";
const QGA_ALIAS: &str = "ua-qga";

/// Why a machine cannot be described.
#[derive(Debug, thiserror::Error)]
pub enum DomainError {
    /// A text that XML cannot hold.
    #[error("{what} has a character that XML cannot hold")]
    Character { what: &'static str },
    /// More disks than have a place.
    #[error("the machine has {0} disks beside its root disk, and there are places for {MAX_DISKS}")]
    Disks(usize),
    /// A disk of files that was not made.
    #[error("the disk of the files of volume `{0}` was not made")]
    Files(String),
    /// A path that is no text.
    #[error("path `{0}` is not UTF-8")]
    Path(String),
    /// The writer failed.
    #[error("failed to write XML")]
    Write(#[from] io::Error),
}

/// The description of a machine.
///
/// # Errors
/// When a name or path does not fit into XML.
pub fn xml(spec: &DomainSpec) -> Result<String, DomainError> {
    let mut doc = Doc { writer: Writer::new_with_indent(Vec::new(), b' ', 2) };
    let kind = match spec.accel {
        Accelerator::Kvm => "kvm",
        Accelerator::Qemu => "qemu",
    };
    doc.nest("domain", &[("type", kind), ("xmlns:qemu", QEMU_NAMESPACE)], |doc| {
        identity(doc, spec)?;
        machine(doc, spec)?;
        doc.nest("devices", &[], |doc| devices(doc, spec))?;
        commandline(doc, spec)
    })?;
    // Only ever given `&str`.
    Ok(String::from_utf8_lossy(&doc.writer.into_inner()).into_owned())
}

fn identity(doc: &mut Doc, spec: &DomainSpec) -> Result<(), DomainError> {
    doc.text("name", &[], &spec.plan.domain)?;
    let id = spec.plan.id.uuid().to_string();
    doc.text("uuid", &[], &id)?;
    // Another one than that of the container before: a guest that finds its disk in another machine draws new random numbers.
    doc.text("genid", &[], &id)?;
    doc.nest("metadata", &[], |doc| {
        let instance = spec.instance.to_string();
        doc.leaf(
            "virtlet:machine",
            &[
                ("xmlns:virtlet", METADATA_NAMESPACE),
                ("instance", &instance),
                ("sandbox", &spec.sandbox),
                ("pod-uid", &spec.pod_uid),
            ],
        )
    })
}

fn machine(doc: &mut Doc, spec: &DomainSpec) -> Result<(), DomainError> {
    let (memory, cpus) = (spec.plan.memory, spec.plan.cpus);
    doc.text("memory", &[("unit", "KiB")], &(memory.max / 1024).to_string())?;
    if memory.boot < memory.max {
        doc.text("currentMemory", &[("unit", "KiB")], &(memory.boot / 1024).to_string())?;
    }
    if let Some(bytes) = spec.locked_memory {
        // libvirt takes it for QEMU's RLIMIT_MEMLOCK, too. The limit of the cgroup, which QEMU leaves, is of no matter.
        doc.nest("memtune", &[], |doc| doc.text("hard_limit", &[("unit", "KiB")], &(bytes / 1024).to_string()))?;
    }
    memory_backing(doc, spec)?;
    let now = cpus.boot.to_string();
    let vcpus: &[_] =
        if cpus.boot < cpus.max { &[("placement", "static"), ("current", &now)] } else { &[("placement", "static")] };
    doc.text("vcpu", vcpus, &cpus.max.to_string())?;
    if let Some(count) = io_threads::count(&spec.plan) {
        doc.text("iothreads", &[], &count.to_string())?;
    }
    if let Some(nodes) = &spec.memory_nodes {
        // QEMU takes huge pages at once, before it is in the pod's cgroup.
        doc.nest("numatune", &[], |doc| doc.leaf("memory", &[("mode", "strict"), ("nodeset", nodes)]))?;
    }
    doc.nest("sysinfo", &[("type", "smbios")], |doc| {
        doc.nest("system", &[], |doc| {
            doc.text("entry", &[("name", "manufacturer")], "virtlet")?;
            doc.text("entry", &[("name", "product")], "VM pod")?;
            let serial = &spec.plan.hardware.described.serial;
            doc.text("entry", &[("name", "serial")], if serial.is_empty() { &spec.pod_uid } else { serial })?;
            if spec.waits { doc.text("entry", &[("name", "family")], WARM_FAMILY) } else { Ok(()) }
        })?;
        described::chassis(doc, &spec.plan.hardware.described.chassis)
    })?;
    firmware_files(doc, spec)?;
    hardware::boot(doc, spec)?;
    cpu::cpu(doc, spec)?;
    described::clock(doc, spec)?;
    doc.text("on_poweroff", &[], "destroy")?;
    doc.text("on_reboot", &[], if spec.plan.hardware.described.ends_at_reboot { "destroy" } else { "restart" })?;
    doc.text("on_crash", &[], "destroy")?;
    doc.nest("pm", &[], |doc| {
        doc.leaf("suspend-to-mem", &[("enabled", "no")])?;
        doc.leaf("suspend-to-disk", &[("enabled", "no")])
    })
}

fn firmware_files(doc: &mut Doc, spec: &DomainSpec) -> Result<(), DomainError> {
    if spec.firmware.is_empty() {
        return Ok(());
    }
    doc.nest("sysinfo", &[("type", "fwcfg")], |doc| {
        spec.firmware
            .iter()
            .try_for_each(|entry| doc.leaf("entry", &[("name", entry.name), ("file", path(&entry.file)?)]))
    })
}

fn memory_backing(doc: &mut Doc, spec: &DomainSpec) -> Result<(), DomainError> {
    if spec.plan.huge_page.is_none() && spec.share.is_none() {
        return Ok(());
    }
    doc.nest("memoryBacking", &[], |doc| {
        if let Some(size) = spec.plan.huge_page {
            let size = (size / 1024).to_string();
            doc.nest("hugepages", &[], |doc| doc.leaf("page", &[("size", &size), ("unit", "KiB")]))?;
        }
        if spec.share.is_some() {
            doc.leaf("source", &[("type", "memfd")])?;
            doc.leaf("access", &[("mode", "shared")])?;
        }
        Ok(())
    })
}

fn devices(doc: &mut Doc, spec: &DomainSpec) -> Result<(), DomainError> {
    doc.text("emulator", &[], path(&spec.vmwrapper)?)?;
    let others = u8::try_from(spec.plan.disks.len()).ok().filter(|others| usize::from(*others) <= MAX_DISKS);
    let others = others.ok_or(DomainError::Disks(spec.plan.disks.len()))?;
    let places = Places::of(&spec.plan.hardware, &spec.plan.disks);
    hardware::controllers(doc, &spec.plan, &places)?;
    disks::root(doc, spec)?;
    if let Some(seed) = &spec.seed {
        disks::seed(doc, &spec.plan.hardware, path(seed)?)?;
    }
    let others = (0..others).zip(&spec.plan.disks).zip(&spec.disks).zip(&places.of_disks);
    for (((nth, disk), now), place) in others {
        disks::other(doc, spec, &Other { nth, disk, now: *now, place: *place })?;
    }
    if let Some(share) = &spec.share {
        filesystem(doc, share)?;
    }
    let described = &spec.plan.hardware.described.devices;
    if !described.no_serial {
        serial(doc, &spec.console_socket, &spec.console_log)?;
    }
    channel(doc, &spec.qga_socket, "org.virtlet.qga.0", "1", Some(QGA_ALIAS))?;
    channel(doc, &spec.agent_socket, AGENT_PORT, "2", None)?;
    if spec.plan.guest.command.is_some() {
        file_channel(doc, &spec.command_log, LOG_PORT, "3")?;
        file_channel(doc, &spec.command_end, EXIT_PORT, "4")?;
    }
    if spec.plan.hardware.tpm {
        hardware::tpm(doc)?;
    }
    let extras = &spec.plan.hardware.extras;
    if extras.graphics.is_some_and(Graphics::is_vnc) {
        extras::screen(doc, &spec.plan.hardware, &spec.screen_socket)?;
    }
    extras::tablet(doc, &spec.plan.hardware)?;
    if let Some(watchdog) = extras.watchdog {
        extras::watchdog(doc, watchdog, &spec.plan.hardware.described.devices)?;
    }
    for hostdev in &spec.hostdevs {
        hardware::hostdev(doc, hostdev)?;
    }
    extras::rng(doc, &spec.plan.hardware)?;
    balloon(doc, spec)?;
    if spec.pvpanic_pci {
        doc.nest("panic", &[("model", "pvpanic")], |doc| doc.pci(0, PANIC_SLOT))?;
    } else {
        doc.leaf("panic", &[("model", "isa")])?;
    }
    // Beside that one, if it is another.
    let mut more = described.panic.iter().filter(|model| spec.pvpanic_pci || **model != PanicModel::Isa);
    more.try_for_each(|model| doc.leaf("panic", &[("model", model.word())]))
}

fn serial(doc: &mut Doc, socket: &Path, log: &Path) -> Result<(), DomainError> {
    let (socket, log) = (path(socket)?, path(log)?);
    doc.nest("serial", &[("type", "unix")], |doc| {
        doc.leaf("source", &[("mode", "bind"), ("path", socket)])?;
        doc.leaf("log", &[("file", log), ("append", "on")])?;
        doc.leaf("target", &[("type", "isa-serial"), ("port", "0")])
    })
}

/// Gives memory that the guest has freed back to the node. What the balloon holds is not the guest's, however little it has: it would be
/// killed at its cgroup's limit. Huge pages are the guest's for as long as it runs, and so is memory that is pinned for a device.
fn balloon(doc: &mut Doc, spec: &DomainSpec) -> Result<(), DomainError> {
    if spec.plan.hardware.described.devices.no_balloon {
        // libvirt gives one to a machine that says nothing.
        return doc.leaf("memballoon", &[("model", "none")]);
    }
    let is_pinned = !spec.hostdevs.is_empty() || spec.locked_memory.is_some();
    let reporting = if spec.plan.huge_page.is_some() || is_pinned { "off" } else { "on" };
    let balloon = [("model", "virtio"), ("autodeflate", "off"), ("freePageReporting", reporting)];
    doc.nest("memballoon", &balloon, |doc| {
        doc.leaf("stats", &[("period", "10")])?;
        doc.pci(0, BALLOON_SLOT)
    })
}

fn filesystem(doc: &mut Doc, share: &Shared) -> Result<(), DomainError> {
    let (dir, fswrapper) = (path(&share.dir)?, path(&share.fswrapper)?);
    doc.nest("filesystem", &[("type", "mount"), ("accessmode", "passthrough")], |doc| {
        doc.leaf("driver", &[("type", "virtiofs"), ("queue", SHARE_QUEUE)])?;
        doc.leaf("binary", &[("path", fswrapper)])?;
        doc.leaf("source", &[("dir", dir)])?;
        doc.leaf("target", &[("dir", SHARE_TAG)])?;
        doc.pci(0, SHARE_SLOT)
    })
}

/// A virtio-serial port with a socket at our end.
fn channel(doc: &mut Doc, socket: &Path, name: &str, port: &str, alias: Option<&str>) -> Result<(), DomainError> {
    let socket = path(socket)?;
    doc.nest("channel", &[("type", "unix")], |doc| {
        doc.leaf("source", &[("mode", "bind"), ("path", socket)])?;
        doc.leaf("target", &[("type", "virtio"), ("name", name)])?;
        if let Some(alias) = alias {
            doc.leaf("alias", &[("name", alias)])?;
        }
        doc.leaf("address", &[("type", "virtio-serial"), ("controller", "0"), ("bus", "0"), ("port", port)])
    })
}

/// A virtio-serial port with a file at our end, which virtlogd writes.
fn file_channel(doc: &mut Doc, file: &Path, name: &str, port: &str) -> Result<(), DomainError> {
    let file = path(file)?;
    doc.nest("channel", &[("type", "file")], |doc| {
        doc.leaf("source", &[("path", file), ("append", "on")])?;
        doc.leaf("target", &[("type", "virtio"), ("name", name)])?;
        doc.leaf("address", &[("type", "virtio-serial"), ("controller", "0"), ("bus", "0"), ("port", port)])
    })
}

fn commandline(doc: &mut Doc, spec: &DomainSpec) -> Result<(), DomainError> {
    let env = &spec.env;
    let slots: Vec<String> = env.nics.iter().map(placed).collect();
    let (slots, deadline) = (slots.join(","), env.deadline.as_millis().to_string());
    let variables = [
        ("VIRTLET_HANDOFF", path(&env.handoff)?),
        ("VIRTLET_TOKEN", env.token.as_str()),
        ("VIRTLET_EMULATOR", path(&env.emulator)?),
        ("VIRTLET_NICS", &slots),
        ("VIRTLET_NIC_BUS", hardware::root_bus(&spec.plan.hardware)),
        ("VIRTLET_DEADLINE_MS", &deadline),
    ];
    doc.nest("qemu:commandline", &[], |doc| {
        // libvirt refuses an SMBIOS UUID that is not the domain's; QEMU takes the last one that it is given.
        doc.leaf("qemu:arg", &[("value", "-smbios")])?;
        doc.leaf("qemu:arg", &[("value", &format!("type=1,uuid={}", spec.smbios_uuid()))])?;
        for (name, value) in variables {
            doc.leaf("qemu:env", &[("name", name), ("value", value)])?;
        }
        Ok(())
    })?;
    doc.nest("qemu:override", &[], |doc| {
        doc.nest("qemu:device", &[("alias", QGA_ALIAS)], |doc| {
            let name = [("name", "name"), ("type", "string"), ("value", QGA_PORT)];
            doc.nest("qemu:frontend", &[], |doc| doc.leaf("qemu:property", &name))
        })
    })
}

/// A NIC's place as vmwrapper reads it. As with disks, in front of all that say one the root disk is if nobody says where that is.
fn placed(NicPlace { slot, boot_order, acpi_index }: &NicPlace) -> String {
    let order = boot_order.map(|order| format!("/boot={}", order.saturating_add(1))).unwrap_or_default();
    let index = acpi_index.map(|index| format!("/index={index}")).unwrap_or_default();
    format!("{slot:#x}{order}{index}")
}

/// The document in the making. Every text goes through here and is looked at.
struct Doc {
    writer: Writer<Vec<u8>>,
}

impl Doc {
    fn nest(
        &mut self,
        name: &'static str,
        attributes: &[(&'static str, &str)],
        inside: impl FnOnce(&mut Self) -> Result<(), DomainError>,
    ) -> Result<(), DomainError> {
        let start = element(name, attributes)?;
        let end = start.to_end().into_owned();
        self.writer.write_event(Event::Start(start.borrow()))?;
        inside(self)?;
        Ok(self.writer.write_event(Event::End(end))?)
    }

    fn leaf(&mut self, name: &'static str, attributes: &[(&'static str, &str)]) -> Result<(), DomainError> {
        Ok(self.writer.write_event(Event::Empty(element(name, attributes)?))?)
    }

    fn text(&mut self, name: &'static str, attributes: &[(&'static str, &str)], text: &str) -> Result<(), DomainError> {
        check(name, text)?;
        self.nest(name, attributes, |doc| Ok(doc.writer.write_event(Event::Text(BytesText::new(text)))?))
    }

    /// A file that stays whose it is.
    fn unlabelled_source(&mut self, file: &str) -> Result<(), DomainError> {
        self.nest("source", &[("file", file)], |doc| doc.leaf("seclabel", &[("model", "dac"), ("relabel", "no")]))
    }

    fn pci(&mut self, bus: u8, slot: u8) -> Result<(), DomainError> {
        self.pci_function(bus, slot, 0)
    }

    /// A slot of the root bus that vmwrapper counts.
    fn slot(&mut self, slot: usize) -> Result<(), DomainError> {
        let slot = format!("{slot:#04x}");
        let bus = ("bus", "0x00");
        self.leaf("address", &[("type", "pci"), ("domain", "0x0000"), bus, ("slot", &slot), ("function", "0x0")])
    }

    /// A function of a slot of the root bus that has several devices.
    fn pci_of_several(&mut self, slot: u8, function: u8) -> Result<(), DomainError> {
        let (slot, number) = (format!("{slot:#04x}"), format!("{function:#x}"));
        let mut address =
            vec![("type", "pci"), ("domain", "0x0000"), ("bus", "0x00"), ("slot", &*slot), ("function", &number)];
        address.extend((function == 0).then_some(("multifunction", "on")));
        self.leaf("address", &address)
    }

    fn pci_function(&mut self, bus: u8, slot: u8, function: u8) -> Result<(), DomainError> {
        let (bus, slot, function) = (format!("{bus:#04x}"), format!("{slot:#04x}"), format!("{function:#x}"));
        let address = [("type", "pci"), ("domain", "0x0000"), ("bus", &bus), ("slot", &slot), ("function", &function)];
        self.leaf("address", &address)
    }
}

fn element<'a>(name: &'static str, attributes: &[(&'static str, &'a str)]) -> Result<BytesStart<'a>, DomainError> {
    let mut element = BytesStart::new(name);
    for (key, value) in attributes {
        check(key, value)?;
        element.push_attribute((*key, *value));
    }
    Ok(element)
}

/// XML 1.0, production `Char`; the writer escapes what is special but passes what is forbidden.
fn check(what: &'static str, text: &str) -> Result<(), DomainError> {
    let allowed = |c: char| matches!(c, '\t' | '\n' | '\r' | ' '..='\u{fffd}' | '\u{10000}'..);
    if text.chars().all(allowed) { Ok(()) } else { Err(DomainError::Character { what }) }
}

fn path(path: &Path) -> Result<&str, DomainError> {
    path.to_str().ok_or_else(|| DomainError::Path(path.display().to_string()))
}
