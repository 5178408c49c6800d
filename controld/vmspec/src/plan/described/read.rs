//! Reads what a machine is described with, as far as machines are made by it.

mod devices;
mod disks;
mod nics;

use std::collections::BTreeSet;

use proto::vm::{
    Chassis, Clock, CloudInit, Devices, Features, HyperV, RtcTimer, SimpleTimer, TickTimer, Timers, VmDescription,
};
use serde_json::{Map, Value};

use super::super::NoCpuSetting;
use super::super::cpu_setting::{Topology, features_of};
use super::super::machine_type::NoMachineType;
use super::{Described, DescribedClock, Shows, TickPolicy, Timer, TimerName, Track};

/// Longest names of a volume and of a key of a ConfigMap.
const MAX_VOLUME: usize = 63;
const MAX_KEY: usize = 253;
/// Most volumes with SSH keys.
const MAX_KEY_VOLUMES: usize = 16;
/// Longest text that a firmware shows.
const MAX_TEXT: usize = 128;
/// Longest name of a time zone.
const MAX_ZONE: usize = 64;
/// Longest name of a hypervisor: three registers of CPUID.
const MAX_VENDOR: usize = 12;
/// Last place among what a firmware tries.
const MAX_ORDER: u32 = 1000;
/// Most of each level of a topology.
const MAX_LEVEL: u16 = 255;
/// Fewest tries that libvirt takes.
const MIN_SPINLOCKS: u32 = 4095;
/// Most seconds that a clock is ahead or behind: some 68 years.
const MAX_AHEAD: i64 = 1 << 31;

/// Why no machine is made by a description. Has no value of it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotDescribed {
    #[error(
        "says {}, by which this release makes no machine; leave that out of the object that the pod is made of \
         (`virtletctl vm lint` names the fields)",
        .0.join(", ")
    )]
    Unbuilt(Vec<String>),
    #[error("`{0}` {1}")]
    Wrong(&'static str, &'static str),
    /// The disk's name, which was looked at.
    #[error("`disks[{0}].{1}` {2}")]
    OfDisk(String, &'static str, &'static str),
    #[error("`cpu.features`: {0}")]
    Features(NoCpuSetting),
}

type Result<T> = std::result::Result<T, NotDescribed>;

impl Described {
    /// # Errors
    /// When it says what no machine is made by, or something that is wrong.
    pub fn of(description: VmDescription) -> Result<Self> {
        let VmDescription { cpu, machine, firmware, chassis, clock, features, disks, devices, .. } =
            description.clone();
        let VmDescription { nics, cloud_init, ends_at_reboot, start_paused, .. } = description.clone();
        let (devices, other_devices) = self::devices::devices(devices.unwrap_or_default())?;
        let cpu = cpu.unwrap_or_default();
        let firmware = firmware.unwrap_or_default();
        // All that is not taken here.
        let rest = VmDescription {
            cpu: None,
            machine: None,
            firmware: None,
            chassis: None,
            clock: None,
            features: None,
            disks: Vec::new(),
            nics: Vec::new(),
            devices: Some(other_devices).filter(|devices| *devices != Devices::default()),
            cloud_init: None,
            ends_at_reboot: false,
            start_paused: false,
            ..description
        };
        let mut unbuilt = keys(&serde_json::to_value(rest).unwrap_or_default());
        let disks = or_unbuilt(self::disks::disks(disks), &mut unbuilt)?;
        let nics = or_unbuilt(self::nics::nics(&nics), &mut unbuilt)?;
        if !unbuilt.is_empty() {
            return Err(NotDescribed::Unbuilt(unbuilt));
        }
        let self::disks::Disks { root, root_volume, others: disks } = disks;
        let self::nics::Nics { mac, by_link: nics, dhcp } = nics;
        let orders = disks.values().chain([&root]).filter_map(|disk| disk.boot_order);
        let orders = orders.chain(nics.values().filter_map(|nic| nic.boot_order));
        holds(are_different(orders), "nics.bootOrder", "is that of another NIC, or of a disk")?;
        let slots = disks.values().chain([&root]).filter_map(|disk| disk.slot);
        let slots = slots.chain(nics.values().filter_map(|nic| nic.slot));
        holds(are_different(slots), "pciAddress", "is that of two disks or NICs")?;
        let chassis = chassis.unwrap_or_default();
        let Chassis { manufacturer, version, serial, asset, sku } = &chassis;
        for (text, field) in [
            (&firmware.serial, "firmware.serial"),
            (manufacturer, "chassis.manufacturer"),
            (version, "chassis.version"),
            (serial, "chassis.serial"),
            (asset, "chassis.asset"),
            (sku, "chassis.sku"),
        ] {
            let fits = text.chars().count() <= MAX_TEXT && !text.chars().any(char::is_control);
            holds(fits, field, "is longer than 128 characters, or has a control character")?;
        }
        let features_of_cpu = serde_json::to_value(&cpu.features).unwrap_or_default();
        Ok(Self {
            topology: cpu.topology.map(topology).transpose()?,
            cpu_features: features_of(&features_of_cpu).map_err(NotDescribed::Features)?,
            machine: machine.map(|machine| machine.parse().map_err(|_: NoMachineType| not_a_machine())).transpose()?,
            use_serial: firmware.use_serial,
            serial: firmware.serial,
            chassis,
            clock: clock.map(self::clock).transpose()?,
            features: self::features(features.unwrap_or_default())?,
            root,
            root_volume,
            disks,
            mac,
            nics,
            dhcp,
            devices,
            cloud_init: self::cloud_init(cloud_init.unwrap_or_default())?,
            ends_at_reboot,
            start_paused,
        })
    }
}

/// What is read; what no machine is made by is added to that, and then nothing is.
fn or_unbuilt<T: Default>(read: Result<T>, unbuilt: &mut Vec<String>) -> Result<T> {
    match read {
        Err(NotDescribed::Unbuilt(of_part)) => {
            unbuilt.extend(of_part);
            Ok(T::default())
        }
        read => read,
    }
}

const fn not_a_machine() -> NotDescribed {
    NotDescribed::Wrong("machine", "is neither `q35` nor `pc`, nor one version of them, as `pc-q35-10.0`")
}

/// Names of what is said; of a map with maps, those of its keys.
fn keys(rest: &Value) -> Vec<String> {
    let of = |map: &Map<String, Value>| map.iter().map(|(key, value)| (key.clone(), value.clone())).collect::<Vec<_>>();
    let mut all = Vec::new();
    for (key, value) in rest.as_object().map(of).unwrap_or_default() {
        match value {
            _ if key == "v" => {}
            Value::Object(parts) => all.extend(parts.keys().map(|part| format!("{key}.{part}"))),
            _ => all.push(key),
        }
    }
    all
}

fn are_different<T: Ord>(all: impl Iterator<Item = T>) -> bool {
    let mut seen = BTreeSet::new();
    all.into_iter().all(|one| seen.insert(one))
}

fn holds(fits: bool, field: &'static str, why: &'static str) -> Result<()> {
    if fits { Ok(()) } else { Err(NotDescribed::Wrong(field, why)) }
}

fn cloud_init(said: CloudInit) -> Result<CloudInit> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
    let is_name = |text: &str, most: usize| (1..=most).contains(&text.len()) && text.bytes().all(is_plain);
    let CloudInit { network_data, ssh_keys } = &said;
    let fits =
        network_data.as_ref().is_none_or(|data| is_name(&data.volume, MAX_VOLUME) && is_name(&data.key, MAX_KEY));
    holds(fits, "cloudInit.networkData", "has a name that no volume, or a key that no ConfigMap has")?;
    holds(ssh_keys.len() <= MAX_KEY_VOLUMES, "cloudInit.sshKeys", "are more than 16 volumes")?;
    let fits = ssh_keys.iter().all(|volume| is_name(volume, MAX_VOLUME));
    holds(fits, "cloudInit.sshKeys", "have a name that no volume has")?;
    Ok(said)
}

fn topology(said: proto::vm::Topology) -> Result<Topology> {
    let level = |number: u32| {
        let level = u16::try_from(number).ok().filter(|level| (1..=MAX_LEVEL).contains(level));
        level.ok_or(NotDescribed::Wrong("cpu.topology", "has a level that is not from 1 to 255"))
    };
    Ok(Topology { sockets: level(said.sockets)?, dies: 1, cores: level(said.cores)?, threads: level(said.threads)? })
}

fn clock(said: Clock) -> Result<DescribedClock> {
    let zone = said.timezone.map(zone).transpose()?;
    let ahead = said.utc.map(|utc| utc.offset_seconds.unwrap_or_default());
    holds(zone.is_none() || ahead.is_none(), "clock", "has both a time zone and UTC")?;
    let fits = ahead.is_none_or(|seconds| (-MAX_AHEAD..=MAX_AHEAD).contains(&seconds));
    holds(fits, "clock.utc.offsetSeconds", "is more than 2^31")?;
    let Timers { hpet, kvm, pit, rtc, hyperv } = said.timer.unwrap_or_default();
    let timers = [
        hpet.map(|timer| tick(TimerName::Hpet, timer, "clock.timer.hpet.tickPolicy")),
        kvm.map(|timer| Ok(simple(TimerName::Kvm, timer))),
        pit.map(|timer| tick(TimerName::Pit, timer, "clock.timer.pit.tickPolicy")),
        rtc.map(self::rtc),
        hyperv.map(|timer| Ok(simple(TimerName::Hyperv, timer))),
    ];
    let timers = timers.into_iter().flatten().collect::<Result<_>>()?;
    Ok(DescribedClock { shows: zone.map(Shows::Zone).or(ahead.map(Shows::Utc)), timers })
}

/// By its name in the time zone database: libvirt looks for a file that is called so.
fn zone(name: String) -> Result<String> {
    let plain = |part: &str| {
        part.starts_with(|c: char| c.is_ascii_alphabetic())
            && part.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_+-".contains(&byte))
    };
    holds(name.len() <= MAX_ZONE && name.split('/').all(plain), "clock.timezone", "is no name of a time zone")?;
    Ok(name)
}

fn simple(name: TimerName, timer: SimpleTimer) -> Timer {
    Timer { name, present: timer.present, tick_policy: None, track: None }
}

fn tick(name: TimerName, timer: TickTimer, field: &'static str) -> Result<Timer> {
    let tick_policy = timer.tick_policy.as_deref().map(|word| policy(word, field)).transpose()?;
    Ok(Timer { name, present: timer.present, tick_policy, track: None })
}

fn rtc(timer: RtcTimer) -> Result<Timer> {
    let tick_policy =
        timer.tick_policy.as_deref().map(|word| policy(word, "clock.timer.rtc.tickPolicy")).transpose()?;
    let track = timer.track.as_deref().map(|word| {
        Track::of(word).ok_or(NotDescribed::Wrong("clock.timer.rtc.track", "is neither `guest` nor `wall`"))
    });
    Ok(Timer { name: TimerName::Rtc, present: timer.present, tick_policy, track: track.transpose()? })
}

fn policy(word: &str, field: &'static str) -> Result<TickPolicy> {
    TickPolicy::of(word).ok_or(NotDescribed::Wrong(field, "is none of `delay`, `catchup`, `merge` and `discard`"))
}

fn features(said: Features) -> Result<Features> {
    let HyperV { spinlocks, vendorid, .. } = said.hyperv.clone().unwrap_or_default();
    let tries = spinlocks.and_then(|spinlocks| spinlocks.spinlocks);
    holds(
        tries.is_none_or(|tries| tries >= MIN_SPINLOCKS),
        "features.hyperv.spinlocks.spinlocks",
        "is less than 4095",
    )?;
    if let Some(name) = vendorid.and_then(|vendor| vendor.vendorid) {
        let plain = |byte: u8| (byte.is_ascii_graphic() || byte == b' ') && byte != b',';
        let fits = !name.is_empty() && name.len() <= MAX_VENDOR && name.bytes().all(plain);
        let why = "is not 1 to 12 printable ASCII characters without a comma";
        holds(fits, "features.hyperv.vendorid.vendorid", why)?;
    }
    Ok(said)
}
