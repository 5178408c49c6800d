//! Settings of runtime handlers: what the machines of their pods are.

use std::collections::BTreeMap;

use crate::annotations::{AnnotationPolicy, PodAnnotations};
use crate::error::{Error, Kind, Result};
use crate::plan::{
    CdiEdits, Chipset, Clock, CpuModel, DiskBus, Extras, Firmware, FirmwareKind, Graphics, HostPath, MachineType,
    OnImageChange, RootLifetime, SharedFs, Watchdog,
};
use crate::seed_kind::{ConfigDelivery, NetworkConfig, SeedKind};
use proto::tap::DataPath;
use serde::Deserialize;

use super::MachineConfig;
use super::given::Given;
use super::problems::Problems;
use super::units::{self, MIB};

/// Least guest memory that may be named.
const LEAST_MEMORY: u64 = 16 * MIB;
/// Most guest memory that may be named: 16 TiB.
const MOST_MEMORY: u64 = MIB << 24;
const VCPUS: std::ops::RangeInclusive<u16> = 1..=255;

/// What the machines of a runtime handler's pods have unless a pod says otherwise.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct MachineDefaults {
    /// Machine type; default `q35`.
    pub machine: Given<MachineType>,
    /// CPU model; default all that the accelerator has.
    pub cpu_model: Given<CpuModel>,
    /// Bus of disks; default virtio.
    pub disk_bus: Given<DiskBus>,
    /// Whether several machines may write to one block volume, as cluster file systems do.
    pub shared_disks: bool,
    /// What the machine boots with; default SeaBIOS.
    pub firmware: Given<FirmwareKind>,
    /// Whether UEFI starts only what is signed.
    pub secure_boot: bool,
    /// Whether there is a TPM 2.0.
    pub tpm: bool,
    /// How the guest's screen is seen; default not at all.
    pub graphics: Given<Graphics>,
    /// What resets a guest that hangs; default nothing.
    pub watchdog: Given<Watchdog>,
    /// What the guest finds in its clock; default UTC.
    pub clock: Given<Clock>,
    /// Whether the guest finds what Windows asks a hypervisor for.
    pub hyperv: bool,
    /// Which annotations pods may have.
    pub annotations: AnnotationPolicy,
    /// What pods may show their guests of the node itself; default all that they ask for.
    pub host_path: Given<HostPath>,
    /// Whether pods may have devices of the node beside volumes and those of their networks; default yes.
    pub host_devices: Option<bool>,
    /// What becomes of CDI devices that ask for what no machine has; default they are refused.
    pub cdi_edits: Given<CdiEdits>,
    /// How long root disks last that are not volumes; default as long as their pods.
    pub root_lifetime: Given<RootLifetime>,
    /// What becomes of a persistent root disk with another image than the pod's; default the image is copied anew.
    pub root_on_image_change: Given<OnImageChange>,
    /// How links and taps are joined; default as tapmanager is configured.
    pub data_path: Given<DataPath>,
    /// Whether all images have our agent, so that pods may set sysctls of the guest's kernel.
    pub guest_agent: bool,
    /// Whether the agent runs the container's own command, which the machine lives as long as.
    pub run_command: bool,
    /// Whether pods begin with a checkpoint of their image's boot, which an earlier pod has left, if they can.
    pub warm: bool,
    /// How guests come by volumes; default virtiofs for guests that have our agent.
    pub shared_fs: Given<SharedFs>,
    /// How guests are told what their pods want of them; default NoCloud.
    pub seed: Given<SeedKind>,
    /// How guests come by ConfigMaps, Secrets and the like; default as by other volumes.
    pub config_delivery: Given<ConfigDelivery>,
    /// How guests come by their addresses; default as their NICs allow.
    pub network_config: Given<NetworkConfig>,
    /// Whether SSH keys of pods are credentials of systemd, too.
    pub credentials: bool,
    /// vCPUs of a container without a CPU limit; default `machine.default_vcpus`.
    pub default_vcpus: Option<u16>,
    /// vCPUs that a running machine can be given; default what it boots with.
    pub max_vcpus: Option<u16>,
    /// Guest memory of a container without a memory limit, in bytes; default `machine.default_memory_mib`.
    #[serde(rename = "default_memory_mib", deserialize_with = "units::optional_mib")]
    pub default_memory: Option<u64>,
    /// Least guest memory, in bytes; default `machine.min_memory_mib`.
    #[serde(rename = "min_memory_mib", deserialize_with = "units::optional_mib")]
    pub min_memory: Option<u64>,
    /// Most bytes of a disk that a pod may have made; default `machine.max_disk_gib`.
    #[serde(rename = "max_disk_gib", deserialize_with = "units::optional_gib")]
    pub max_disk: Option<u64>,
    /// Guest memory that a running guest can be given, in bytes; default what it boots with.
    #[serde(rename = "max_memory_mib", deserialize_with = "units::optional_mib")]
    pub max_memory: Option<u64>,
}

/// A runtime handler.
#[derive(Debug, Clone, Default)]
pub struct Handler {
    pub name: String,
    pub defaults: MachineDefaults,
}

impl Handler {
    /// # Errors
    /// When a pod's annotations have some that pods of this runtime handler may not have.
    pub fn check_annotations(&self, all: &BTreeMap<String, String>) -> Result<()> {
        let problems: Vec<String> = (self.defaults.annotations.forbidden(all).into_iter())
            .map(|key| format!("annotation {key}: not allowed by runtime handler `{}`", self.name))
            .collect();
        if problems.is_empty() { Ok(()) } else { Err(Error::new(Kind::Denied, problems.join("; "))) }
    }
}

impl MachineDefaults {
    pub fn check(&self, name: &str, node: &MachineConfig, problems: &mut Problems) {
        let whose = format!("handler `{}`", name.escape_debug());
        self.machine.check("handlers.<name>.machine", &whose, problems);
        self.cpu_model.check("handlers.<name>.cpu_model", &whose, problems);
        self.disk_bus.check("handlers.<name>.disk_bus", &whose, problems);
        self.firmware.check("handlers.<name>.firmware", &whose, problems);
        self.graphics.check("handlers.<name>.graphics", &whose, problems);
        self.watchdog.check("handlers.<name>.watchdog", &whose, problems);
        self.clock.check("handlers.<name>.clock", &whose, problems);
        self.host_path.check("handlers.<name>.host_path", &whose, problems);
        self.cdi_edits.check("handlers.<name>.cdi_edits", &whose, problems);
        self.root_lifetime.check("handlers.<name>.root_lifetime", &whose, problems);
        self.root_on_image_change.check("handlers.<name>.root_on_image_change", &whose, problems);
        let is_q35 = self.machine.get().is_none_or(|machine| machine.chipset() == Chipset::Q35);
        if self.watchdog.get() == Some(&Watchdog::Itco) && !is_q35 {
            let problem = format!("is `itco` for {whose}, whose `machine` is not `q35`");
            problems.add("handlers.<name>.watchdog", problem);
        }
        self.data_path.check("handlers.<name>.data_path", &whose, problems);
        self.shared_fs.check("handlers.<name>.shared_fs", &whose, problems);
        self.seed.check("handlers.<name>.seed", &whose, problems);
        self.config_delivery.check("handlers.<name>.config_delivery", &whose, problems);
        self.network_config.check("handlers.<name>.network_config", &whose, problems);
        if self.warm && !self.guest_agent {
            let problem = format!("is true for {whose}, which needs `guest_agent = true` for that");
            problems.add("handlers.<name>.warm", problem);
        }
        let of_seed = matches!(self.seed.get(), Some(SeedKind::Ignition | SeedKind::None));
        if let Some((other, _)) = [
            ("run_command", self.run_command),
            ("credentials", self.credentials),
            ("a `seed` that is no disk", of_seed),
        ]
        .into_iter()
        .find(|(_, is_so)| self.warm && *is_so)
        {
            problems.add(
                "handlers.<name>.warm",
                format!("is true for {whose}, which has {other}: no pod of it starts warm"),
            );
        }
        let is_uefi = self.firmware.get() == Some(&FirmwareKind::Uefi);
        if self.secure_boot && !is_uefi {
            let problem = format!("is true for {whose}, whose `firmware` is not `uefi`");
            problems.add("handlers.<name>.secure_boot", problem);
        }
        // It is kept from the guest by the system management mode, which the other chipset does not have.
        if self.secure_boot && self.machine.get().is_some_and(|machine| machine.chipset() != Chipset::Q35) {
            let problem = format!("is true for {whose}, whose `machine` is not `q35`");
            problems.add("handlers.<name>.secure_boot", problem);
        }
        for (key, vcpus) in
            [("handlers.<name>.default_vcpus", self.default_vcpus), ("handlers.<name>.max_vcpus", self.max_vcpus)]
        {
            if let Some(vcpus) = vcpus.filter(|vcpus| !VCPUS.contains(vcpus)) {
                problems.add(key, format!("is {vcpus} for {whose}, and not within 1 to 255"));
            }
        }
        if self.max_disk == Some(0) {
            problems.add("handlers.<name>.max_disk_gib", format!("is 0 for {whose}, and not 1 or more"));
        }
        let node = &self.on(node);
        for (key, memory, least) in [
            ("handlers.<name>.min_memory_mib", self.min_memory, LEAST_MEMORY),
            ("handlers.<name>.default_memory_mib", self.default_memory, node.min_memory),
            ("handlers.<name>.max_memory_mib", self.max_memory, node.min_memory),
        ] {
            if let Some(memory) = memory.filter(|memory| !(least..=MOST_MEMORY).contains(memory)) {
                let (mib, least) = (memory / MIB, least / MIB);
                let problem = format!("is {mib} for {whose}, and not within {least} (the least guest) to 16777216");
                problems.add(key, problem);
            }
        }
        let boots = self.default_vcpus.unwrap_or(node.default_vcpus);
        if let Some(most) = self.max_vcpus.filter(|most| VCPUS.contains(most) && *most < boots) {
            let problem = format!("is {most} for {whose}, and below its default_vcpus, {boots}");
            problems.add("handlers.<name>.max_vcpus", problem);
        }
        let boots = self.default_memory.unwrap_or(node.default_memory);
        if self.min_memory.is_some() && self.default_memory.is_none() && boots < node.min_memory {
            let (least, boots) = (node.min_memory / MIB, boots / MIB);
            let problem = format!(
                "is {least} for {whose}, and above machine.default_memory_mib, {boots}; set default_memory_mib"
            );
            problems.add("handlers.<name>.min_memory_mib", problem);
        }
        if let Some(most) = self.max_memory.filter(|most| *most >= node.min_memory && *most < boots) {
            let problem = format!("is {} for {whose}, and below its default_memory_mib, {}", most / MIB, boots / MIB);
            problems.add("handlers.<name>.max_memory_mib", problem);
        }
    }

    /// Whether the guest of a pod with these annotations is known to have our agent.
    #[must_use]
    pub fn has_agent(&self, annotations: &PodAnnotations) -> bool {
        annotations.guest_agent || self.guest_agent || annotations.run_command.unwrap_or(self.run_command)
    }

    /// How long the root disk of a pod with these annotations lasts, if it is no volume.
    #[must_use]
    pub fn root_lifetime(&self, annotations: &PodAnnotations) -> RootLifetime {
        annotations.root_lifetime.or(self.root_lifetime.get().copied()).unwrap_or_default()
    }

    /// How the guest of a pod with these annotations comes by its addresses.
    #[must_use]
    pub fn network_config(&self, annotations: &PodAnnotations) -> NetworkConfig {
        annotations.network_config.or(self.network_config.get().copied()).unwrap_or_default()
    }

    /// How it is told what its pod wants of it.
    #[must_use]
    pub fn seed_kind(&self, annotations: &PodAnnotations) -> SeedKind {
        annotations.seed.or(self.seed.get().copied()).unwrap_or_default()
    }

    /// How it comes by ConfigMaps, Secrets and the like.
    #[must_use]
    pub fn delivery(&self, annotations: &PodAnnotations) -> ConfigDelivery {
        annotations.config_delivery.or(self.config_delivery.get().copied()).unwrap_or_default()
    }

    /// The node's settings of machines, as they are for these.
    #[must_use]
    pub fn on(&self, node: &MachineConfig) -> MachineConfig {
        MachineConfig {
            min_memory: self.min_memory.unwrap_or(node.min_memory),
            max_disk: self.max_disk.or(node.max_disk),
            ..node.clone()
        }
    }

    /// What the machines boot with.
    #[must_use]
    pub fn boots_with(&self) -> Firmware {
        match self.firmware.get() {
            Some(FirmwareKind::Uefi) => Firmware::Uefi { secure_boot: self.secure_boot },
            Some(FirmwareKind::Bios) | None => Firmware::Bios,
        }
    }

    /// The devices beside the usual ones.
    #[must_use]
    pub fn extras(&self) -> Extras {
        Extras {
            clock: self.clock.get().copied().unwrap_or_default(),
            hyperv: self.hyperv,
            watchdog: self.watchdog.get().copied(),
            graphics: self.graphics.get().copied().filter(|graphics| graphics.is_vnc()),
        }
    }

    /// What is set, for people.
    #[must_use]
    pub fn shown(&self) -> BTreeMap<&'static str, String> {
        let mib = |bytes: Option<u64>| bytes.map(|bytes| (bytes / MIB).to_string());
        let list = |names: &[String]| (!names.is_empty()).then(|| names.join(" "));
        let number = |count: Option<u16>| count.map(|count| count.to_string());
        let all = [
            ("machine", self.machine.get().map(ToString::to_string)),
            ("cpu_model", self.cpu_model.get().map(ToString::to_string)),
            ("disk_bus", self.disk_bus.get().map(ToString::to_string)),
            ("shared_disks", self.shared_disks.then(|| "true".to_owned())),
            ("firmware", self.firmware.get().map(|kind| kind.name().to_owned())),
            ("secure_boot", self.secure_boot.then(|| "true".to_owned())),
            ("tpm", self.tpm.then(|| "true".to_owned())),
            ("graphics", self.graphics.get().map(ToString::to_string)),
            ("watchdog", self.watchdog.get().map(ToString::to_string)),
            ("clock", self.clock.get().map(ToString::to_string)),
            ("hyperv", self.hyperv.then(|| "true".to_owned())),
            ("annotations.allow", list(&self.annotations.allow)),
            ("annotations.deny", list(&self.annotations.deny)),
            ("host_path", self.host_path.get().map(ToString::to_string)),
            ("host_devices", self.host_devices.map(|given| given.to_string())),
            ("cdi_edits", self.cdi_edits.get().map(ToString::to_string)),
            ("root_lifetime", self.root_lifetime.get().map(ToString::to_string)),
            ("root_on_image_change", self.root_on_image_change.get().map(ToString::to_string)),
            ("data_path", self.data_path.get().map(|path| path.name().to_owned())),
            ("guest_agent", self.guest_agent.then(|| "true".to_owned())),
            ("run_command", self.run_command.then(|| "true".to_owned())),
            ("warm", self.warm.then(|| "true".to_owned())),
            ("shared_fs", self.shared_fs.get().map(ToString::to_string)),
            ("seed", self.seed.get().map(ToString::to_string)),
            ("config_delivery", self.config_delivery.get().map(ToString::to_string)),
            ("network_config", self.network_config.get().map(ToString::to_string)),
            ("credentials", self.credentials.then(|| "true".to_owned())),
            ("default_vcpus", number(self.default_vcpus)),
            ("max_vcpus", number(self.max_vcpus)),
            ("default_memory_mib", mib(self.default_memory)),
            ("min_memory_mib", mib(self.min_memory)),
            ("max_memory_mib", mib(self.max_memory)),
            ("max_disk_gib", self.max_disk.map(|bytes| (bytes / units::GIB).to_string())),
        ];
        all.into_iter().filter_map(|(key, value)| Some((key, value?))).collect()
    }
}
