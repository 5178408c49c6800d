//! What a pod's machine has, setting by setting, and who said so: the pod by an annotation or a field, its runtime handler, or the
//! node. Pure. For people: `virtletctl explain` of a pod that there is, `controld validate` of one that there is not.

mod guest;

use proto::tap::{DataPath, PodNet};
use serde::Serialize;

use crate::annotations::PodAnnotations;
use crate::plan::{
    Clock, Cpus, Described, Disk, DiskSource, Firmware, Hardware, Memory, OnImageChange, Passed, RootLifetime, Share,
    VolumeFile,
};
use crate::seed::{self, SeedKind};
use crate::settings::{Given, Handler, MachineDefaults};
use crate::{ContainerConfig, Resources, flexvolume};

const MIB: u64 = 1 << 20;

/// A setting of a machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Setting {
    pub name: &'static str,
    pub value: String,
    /// Who said so.
    pub from: String,
}

/// What was said of a machine.
#[derive(Debug, Clone, Copy)]
pub struct Said<'a> {
    pub annotations: &'a PodAnnotations,
    pub container: &'a ContainerConfig,
    pub handler: &'a Handler,
}

/// What was made of it.
#[derive(Debug, Clone, Copy)]
pub struct Made<'a> {
    pub cpus: Cpus,
    pub memory: Memory,
    /// Bytes of the huge pages that its memory is in, if it is.
    pub huge_page: Option<u64>,
    pub hardware: &'a Hardware,
    pub share: Option<&'a Share>,
    pub passed: &'a Passed,
    /// The pod's network, if there is one.
    pub net: Option<&'a PodNet>,
    /// Of these, those are told that are flexvolumes.
    pub disks: &'a [Disk],
    /// `None` is a disk of the pod's own.
    pub root: Option<Root>,
}

/// A volume as root disk.
#[derive(Debug, Clone, Copy)]
pub enum Root {
    Block {
        on_image_change: OnImageChange,
        as_is: bool,
    },
    /// A file in it.
    File,
    /// A layer on it.
    Overlay,
}

/// Every setting, in the order of the documents.
#[must_use]
pub fn explain(said: Said<'_>, made: Made<'_>) -> Vec<Setting> {
    let mut list = List { handler: said.handler, settings: Vec::new() };
    list.add(
        "runtime handler",
        said.handler.name.clone(),
        "pod field runtimeClassName, or else images.default_handler".into(),
    );
    size(&mut list, said, made);
    hardware(&mut list, said, made.hardware);
    devices(&mut list, made.passed);
    disk(&mut list, said, made.root);
    flexvolumes(&mut list, said.container, made.disks);
    network(&mut list, said.annotations, &said.handler.defaults);
    off_subnet(&mut list, said, made.net);
    guest::seed(&mut list, said);
    guest::guest(&mut list, said, made.share);
    list.settings
}

struct List<'a> {
    handler: &'a Handler,
    settings: Vec<Setting>,
}

impl List<'_> {
    fn add(&mut self, name: &'static str, value: String, from: String) {
        self.settings.push(Setting { name, value, from });
    }

    /// The first of those who can have said it.
    fn said(
        &mut self,
        name: &'static str,
        value: String,
        annotation: Option<&'static str>,
        by_handler: Option<&'static str>,
        otherwise: &str,
    ) {
        let by_handler = by_handler.map(|setting| self.by_handler(setting));
        let from = annotation.map(|key| format!("annotation {key}")).or(by_handler);
        self.add(name, value, from.unwrap_or_else(|| otherwise.to_owned()));
    }

    fn by_handler(&self, setting: &str) -> String {
        format!("runtime handler `{}`, {setting}", self.handler.name)
    }
}

fn size(list: &mut List<'_>, said: Said<'_>, made: Made<'_>) {
    let (annotations, defaults) = (said.annotations, &said.handler.defaults);
    let resources = said.container.resources.as_ref();
    let vcpus = made.cpus.boot.to_string();
    let default = "node, machine.default_vcpus";
    match (annotations.vcpus, resources.and_then(Resources::cpus)) {
        (None, Some(_)) => list.add("vCPUs", vcpus, "pod field resources.limits.cpu, rounded up".into()),
        (by_pod, _) => list.said(
            "vCPUs",
            vcpus,
            by_pod.map(|_| "VirtletVCPUCount"),
            defaults.default_vcpus.map(|_| "default_vcpus"),
            default,
        ),
    }
    let (by_pod, by_handler) = (
        annotations.max_vcpus.map(|_| "virtlet.cloud/max-vcpus"),
        defaults.max_vcpus.filter(|max| *max == made.cpus.max).map(|_| "max_vcpus"),
    );
    list.said("most vCPUs", made.cpus.max.to_string(), by_pod, by_handler, "what it boots with");
    let memory = format!("{} MiB", made.memory.boot / MIB);
    let limit = resources.map(|resources| resources.memory_limit).filter(|limit| *limit > 0);
    match (made.huge_page, limit) {
        (Some(size), _) => {
            list.add("guest memory", memory, format!("pod field resources.limits.hugepages, of {} KiB", size / 1024));
        }
        (None, Some(limit)) => {
            let from = "pod field resources.limits.memory";
            let limit = limit / (1 << 20);
            list.add("guest memory", memory, format!("{from}, {limit} MiB, less what QEMU takes of it"));
        }
        (None, None) => {
            let by_handler = defaults.default_memory.map(|_| "default_memory_mib");
            list.said("guest memory", memory, None, by_handler, "node, machine.default_memory_mib");
        }
    }
    let by_pod = annotations.max_memory.map(|_| "virtlet.cloud/max-memory");
    let by_handler = defaults.max_memory.filter(|_| made.memory.max > made.memory.boot).map(|_| "max_memory_mib");
    let most = format!("{} MiB", made.memory.max / MIB);
    list.said("most guest memory", most, by_pod, by_handler, "what it boots with");
}

fn hardware(list: &mut List<'_>, said: Said<'_>, hardware: &Hardware) {
    let (annotations, defaults) = (said.annotations, &said.handler.defaults);
    let newest = "default, in the version that was QEMU's newest for the pod's first container";
    let by_pod = annotations.described.machine.as_ref().map(|_| "virtlet.k8s/vm");
    list.said("machine type", hardware.machine.to_string(), by_pod, given(&defaults.machine, "machine"), newest);
    let (cpu, by_pod) = match (&hardware.cpu_setting, &hardware.cpu) {
        (Some(setting), _) => {
            let model = setting.model.as_ref().map_or(setting.mode.word(), |model| model.name.as_str());
            (format!("{model}, in detail"), Some("VirtletLibvirtCPUSetting"))
        }
        (None, Some(cpu)) => (cpu.to_string(), annotations.cpu_model.as_ref().map(|_| "VirtletCPUModel")),
        (None, None) => ("all that the accelerator has".to_owned(), None),
    };
    list.said("CPU", cpu, by_pod, given(&defaults.cpu_model, "cpu_model"), "default");
    let by_pod = annotations.disk_bus.map(|_| "VirtletDiskDriver");
    list.said("disk bus", hardware.disk_bus.to_string(), by_pod, given(&defaults.disk_bus, "disk_bus"), "default");
    let firmware = match hardware.firmware {
        Firmware::Bios => "bios",
        Firmware::Uefi { secure_boot: false } => "uefi",
        Firmware::Uefi { secure_boot: true } => "uefi with secure boot",
    };
    list.said("firmware", firmware.to_owned(), None, given(&defaults.firmware, "firmware"), "default");
    let extras = &hardware.extras;
    let others = [
        ("shared disks", hardware.shared_disks.then(|| "true".to_owned()), "shared_disks"),
        ("TPM", hardware.tpm.then(|| "2.0".to_owned()), "tpm"),
        ("graphics", extras.graphics.map(|graphics| graphics.to_string()), "graphics"),
        ("watchdog", extras.watchdog.map(|watchdog| watchdog.to_string()), "watchdog"),
        ("clock", (extras.clock != Clock::Utc).then(|| extras.clock.to_string()), "clock"),
        ("hyperv", extras.hyperv.then(|| "true".to_owned()), "hyperv"),
    ];
    for (name, value, setting) in others {
        if let Some(value) = value {
            let from = list.by_handler(setting);
            list.add(name, value, from);
        }
    }
    for (name, value) in described(&hardware.described) {
        list.add(name, value, "annotation virtlet.k8s/vm".into());
    }
}

/// What is described of a machine, in a few words each.
fn described(said: &Described) -> impl Iterator<Item = (&'static str, String)> {
    let topology =
        said.topology.map(|it| format!("{} sockets of {} cores of {} threads", it.sockets, it.cores, it.threads));
    let of_cpu = said.cpu_features.iter().map(|feature| format!("{} {}", feature.policy.word(), feature.name));
    let of_cpu = of_cpu.collect::<Vec<_>>().join(", ");
    let is_there = |text: String| (!text.is_empty()).then_some(text);
    let words = |value: serde_json::Value| value.as_object().filter(|map| !map.is_empty()).map(|_| value.to_string());
    let [chassis, features] = [serde_json::to_value(&said.chassis), serde_json::to_value(&said.features)]
        .map(|made| words(made.unwrap_or_default()));
    let clock = said.clock.as_ref().and_then(|clock| words(serde_json::to_value(clock).unwrap_or_default()));
    [
        ("CPU topology", topology),
        ("CPU features", is_there(of_cpu)),
        ("serial number", is_there(said.serial.clone())),
        ("chassis", chassis),
        ("clock", clock),
        ("platform", features),
        ("root disk", words(serde_json::to_value(&said.root).unwrap_or_default())),
        ("disks", words(serde_json::to_value(&said.disks).unwrap_or_default())),
        ("DHCP", words(serde_json::to_value(&said.dhcp).unwrap_or_default())),
        ("NICs", words(serde_json::to_value(&said.nics).unwrap_or_default())),
        ("address of eth0", said.mac.map(|mac| mac.to_string())),
        ("devices", words(serde_json::to_value(&said.devices).unwrap_or_default())),
        ("firmware", said.use_serial.then(|| "writes to the serial console".to_owned())),
        ("at a start", said.start_paused.then(|| "the guest waits, paused".to_owned())),
        ("at a reboot", said.ends_at_reboot.then(|| "the machine ends".to_owned())),
    ]
    .into_iter()
    .filter_map(|(name, value)| value.map(|value| (name, value)))
}

fn disk(list: &mut List<'_>, said: Said<'_>, root: Option<Root>) {
    let (annotations, defaults) = (said.annotations, &said.handler.defaults);
    match root {
        None => overlay(list, said),
        Some(Root::File) => {
            let value = format!("`{}` in volume {}", VolumeFile::NAME, annotations.described.root_volume);
            list.add("root disk", value, "annotation virtlet.k8s/vm".into());
        }
        Some(Root::Overlay) => {
            let volume = &annotations.described.root_volume;
            let value =
                format!("a layer on volume {volume}, which goes with the container; nothing is written to the volume");
            list.add("root disk", value, "annotation virtlet.k8s/vm".into());
        }
        Some(Root::Block { as_is: true, .. }) => {
            let value = "the block volume at `/`, as it is: no image is copied to it".to_owned();
            list.add("root disk", value, "annotation virtlet.cloud/root-device".into());
        }
        Some(Root::Block { on_image_change, .. }) => {
            let value = "the block volume at `/`, to which the image is copied once".to_owned();
            list.add("root disk", value, "pod field volumeDevices, devicePath `/`".into());
            let value = match on_image_change {
                OnImageChange::Reimage => "reimage: it is copied over what is there",
                OnImageChange::Keep => "keep: the VM boots what is there",
                OnImageChange::Error => "error: the VM does not start",
            };
            let by_handler = given(&defaults.root_on_image_change, "root_on_image_change");
            list.said("at another image", value.to_owned(), None, by_handler, "default");
        }
    }
    let otherwise = if root.is_some_and(|root| !matches!(root, Root::Overlay)) {
        "that of the root disk"
    } else {
        "made of the pod's UID"
    };
    let (uuid, by_pod) = match annotations.system_uuid {
        Some(uuid) => (uuid.to_string(), Some("VirtletSystemUUID")),
        None => (otherwise.to_owned(), None),
    };
    list.said("system UUID", uuid, by_pod, None, "default");
}

fn overlay(list: &mut List<'_>, said: Said<'_>) {
    let (annotations, defaults) = (said.annotations, &said.handler.defaults);
    match annotations.root_volume_size {
        // What there is already is not known here, and it is never less.
        Some(bytes) => {
            let value = format!("{} MiB, or what the image or the disk had if that is more", bytes.div_ceil(MIB));
            list.add("root disk", value, "annotation VirtletRootVolumeSize".into());
        }
        None => list.add("root disk", "as large as the image says".into(), "default".into()),
    }
    let lasts = match defaults.root_lifetime(annotations) {
        RootLifetime::Pod => "as long as the pod",
        RootLifetime::Container => "as long as a container: one that is restarted begins with what the image has",
    };
    let by_pod = annotations.root_lifetime.map(|_| "virtlet.cloud/root-lifetime");
    let by_handler = given(&defaults.root_lifetime, "root_lifetime");
    list.said("root disk lasts", lasts.to_owned(), by_pod, by_handler, "default");
}

/// What kubelet allocated; no line if that is nothing.
fn devices(list: &mut List<'_>, passed: &Passed) {
    let joined = |words: Vec<String>| words.join(", ");
    if !passed.devices.is_empty() {
        let devices = joined(passed.devices.iter().map(ToString::to_string).collect());
        list.add("devices of the node", devices, "kubelet, from a device plugin or CDI".into());
    }
    if !passed.tokens.is_empty() {
        let tokens = joined(passed.tokens.clone());
        list.add(
            "device nodes not given",
            tokens,
            "kubelet; they say where the pod may run, and QEMU has what it needs".into(),
        );
    }
}

/// The disks that are flexvolumes, if there are some.
fn flexvolumes(list: &mut List<'_>, container: &ContainerConfig, disks: &[Disk]) {
    let of_mount = |mount| {
        let name = flexvolume::name(mount)?;
        let disk = disks.iter().find(|disk| disk.path == mount.container_path)?;
        let what = match &disk.source {
            DiskSource::File(file) => format!("a file of {} MiB", file.size / MIB),
            DiskSource::Rbd(image) => format!("image {} of Ceph", image.name()),
            DiskSource::Block(device) => device.node.display().to_string(),
            DiskSource::Mounted(mounted) => mounted.device.node.display().to_string(),
            DiskSource::Image(_) | DiskSource::Files(_) | DiskSource::Volume(_) => return None,
        };
        let on = match disk.source.mounted() {
            None => "a link to the disk".to_owned(),
            Some(on) if on.partition == 0 => on.file_system.word().to_owned(),
            Some(on) => format!("{} of partition {}", on.file_system.word(), on.partition),
        };
        Some(format!("{name}: {what}, {on}"))
    };
    let told: Vec<_> = container.mounts.iter().filter_map(of_mount).collect();
    if !told.is_empty() {
        list.add("flexvolumes", told.join("; "), "pod field volumes, flexVolume, or a PersistentVolume's".into());
    }
}

fn network(list: &mut List<'_>, annotations: &PodAnnotations, defaults: &MachineDefaults) {
    let handler_path = given(&defaults.data_path, "data_path");
    let path = annotations.data_path.or(defaults.data_path.get().copied());
    let path = path.map_or("as tapmanager is configured", DataPath::name);
    let by_pod = annotations.data_path.map(|_| "virtlet.cloud/data-path");
    list.said("data path", path.to_owned(), by_pod, handler_path, "node, tapmanager's data_path");
    let (held, by_pod) = match annotations.anti_spoof {
        Some(held) => (held.to_string(), Some("virtlet.cloud/anti-spoof")),
        None => ("as tapmanager is configured".to_owned(), None),
    };
    list.said("anti-spoofing", held, by_pod, None, "node, tapmanager's anti_spoof");
    let config = defaults.network_config(annotations).to_string();
    let by_pod = annotations.network_config.map(|_| "virtlet.cloud/network-config or VirtletForceDHCPNetworkConfig");
    list.said("network-config", config, by_pod, given(&defaults.network_config, "network_config"), "default");
    if !annotations.networks.is_empty() {
        let count = annotations.networks.len();
        let key = Some("virtlet.cloud/networks");
        list.said("networks", format!("the default one and {count} more"), key, None, "");
    }
}

/// Of the routes that the guest is told, those that it may not have; no line if there are none.
fn off_subnet(list: &mut List<'_>, Said { annotations, handler, .. }: Said<'_>, net: Option<&PodNet>) {
    let fate = match handler.defaults.seed_kind(annotations) {
        SeedKind::NoCloud => "set only by a cloud-init that uses netplan",
        SeedKind::ConfigDrive => "not told, since `network_data.json` has no words for them",
        SeedKind::None | SeedKind::Ignition => return,
    };
    let wish = handler.defaults.network_config(annotations);
    let nics = net.map(|net| seed::off_subnet(net, wish)).unwrap_or_default();
    if !nics.is_empty() {
        let value = format!("of {}: {fate}", nics.join(", "));
        list.add("routes outside of the subnet", value, "network, by its gateways".into());
    }
    let nics = net.map(|net| seed::on_link(net, wish)).unwrap_or_default();
    if !nics.is_empty() && handler.defaults.seed_kind(annotations) == SeedKind::NoCloud {
        let value = format!(
            "of {}: no NIC comes up by a cloud-init that uses ifupdown's or sysconfig's files",
            nics.join(", ")
        );
        list.add("routes without a gateway", value, "network, by its routes".into());
    }
}

fn given<T>(value: &Given<T>, setting: &'static str) -> Option<&'static str> {
    value.get().map(|_| setting)
}
