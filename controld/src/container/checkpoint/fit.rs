//! Whether a checkpoint can go on as a pod of this node: all that differs is told, before anything is made. Pure.
//!
//! [`super::waking`] calls this twice: before anything is made, and when the pod has its network, which may give other MAC addresses than it
//! was asked for.

use std::collections::BTreeSet;

use serde::Deserialize;
use vmimage::digest::is_hex;
use vmspec::error::{Error, Kind, Result};
use vmspec::plan::Firmware;

use super::devices::Differs;
use super::manifest::{DiskMade, Emulator, Machine, Manifest, NicMade, VERSION};
use super::plan::{MEMORY, Of, ROOT, UEFI, disk_file};

/// Most bytes of a manifest: there are no more than 60 disks.
pub(super) const MAX_LEN: usize = 256 << 10;
/// Characters of a digest in the manifest.
const DIGEST: usize = 64;
/// Longest part of a manifest's word that an error shows, in characters.
const MAX_SHOWN: usize = 64;
/// Most differences that an error tells: a manifest may have thousands, and a status of gRPC has room for kilobytes.
const MAX_TOLD: usize = 32;

/// What there is where a checkpoint is to go on.
pub(super) struct Here<'a> {
    /// Of the image that the pod names now.
    pub(super) image_id: &'a str,
    pub(super) emulator: &'a Emulator,
    /// Machine types that the emulator has.
    pub(super) types: &'a BTreeSet<String>,
    /// As the pod is planned now.
    pub(super) machine: &'a Machine,
    /// As the pod's network has given them; `None` as long as it has none.
    pub(super) nics: Option<&'a [NicMade]>,
    /// Whether the guest learns other MAC addresses than it knows.
    pub(super) learns: bool,
    pub(super) disks: &'a [DiskMade],
    /// How many bytes a file may have.
    pub(super) room: &'a dyn Fn(&Of) -> Room,
}

/// How many bytes a file of a checkpoint has here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Room {
    Just(u64),
    AtMost(u64),
}

/// What says whether the rest can be understood.
#[derive(Deserialize)]
struct VersionOnly {
    version: u32,
}

/// A manifest, of a file's bytes.
///
/// # Errors
/// When no release, or a newer one, wrote it.
pub(super) fn parse(bytes: &[u8]) -> Result<Manifest> {
    if bytes.len() > MAX_LEN {
        let what = format!("the checkpoint's manifest is larger than the {MAX_LEN} bytes that it may have");
        return Err(Error::new(Kind::DataLoss, what));
    }
    let damaged = |cause| Error::because(Kind::DataLoss, "the checkpoint's manifest is damaged", cause);
    let VersionOnly { version } = serde_json::from_slice(bytes).map_err(damaged)?;
    if version != VERSION {
        let what = format!("the checkpoint is of version {version}, and this release reads version {VERSION}");
        return Err(Error::new(Kind::State, what));
    }
    serde_json::from_slice(bytes).map_err(damaged)
}

/// Whether it can.
///
/// # Errors
/// When it cannot; all reasons are told, up to a limit.
pub(super) fn check(manifest: &Manifest, here: &Here<'_>) -> Result<()> {
    let mut differs = files(manifest);
    differs.extend(manifest.files.iter().filter_map(|file| {
        let (name, bytes) = (shown(&file.name), file.bytes);
        match (here.room)(&file.of) {
            Room::Just(wanted) if wanted != bytes => {
                Some(format!("file `{name}` has {bytes} bytes, and the disk would have {wanted}"))
            }
            Room::AtMost(most) if bytes > most => {
                Some(format!("file `{name}` has {bytes} bytes, and such a machine's has no more than {most}"))
            }
            Room::Just(_) | Room::AtMost(_) => None,
        }
    }));
    differs.extend(emulator(&manifest.emulator, here.emulator));
    differs.extend(machine(&manifest.machine, here));
    if manifest.image_id != here.image_id {
        differs.push(format!("it is of image `{}`, and the pod has `{}`", shown(&manifest.image_id), here.image_id));
    }
    differs.extend(here.nics.into_iter().flat_map(|now| nics(&manifest.nics, now, here.learns)));
    differs.extend(disks(manifest, here.disks));
    if differs.is_empty() {
        return Ok(());
    }
    differs.truncate(MAX_TOLD);
    Err(Error::new(Kind::State, format!("the checkpoint cannot go on here: {}", differs.join("; "))))
}

/// That each file that a checkpoint of such a machine has is there once, by our name for it, and no other: names lead to files.
fn files(manifest: &Manifest) -> Vec<String> {
    let mut wanted = vec![(MEMORY.to_owned(), Of::Memory), (ROOT.to_owned(), Of::Root)];
    let own = manifest.disks.iter().enumerate().filter(|(_, disk)| disk.image_id.is_none());
    wanted.extend(own.map(|(nth, disk)| (disk_file(nth), Of::Disk(disk.serial.clone()))));
    if matches!(manifest.machine.firmware, Firmware::Uefi { .. }) {
        wanted.push((UEFI.to_owned(), Of::Uefi));
    }
    let has: Vec<_> = manifest.files.iter().map(|file| (file.name.clone(), file.of.clone())).collect();
    let mut differs = Vec::new();
    differs.extend(wanted.iter().filter(|one| !has.contains(one)).map(|(name, _)| format!("it has no file `{name}`")));
    let strange = has
        .iter()
        .enumerate()
        .filter(|(nth, one)| !wanted.contains(one) || has.get(..*nth).is_some_and(|before| before.contains(one)));
    differs.extend(strange.map(|(_, (name, _))| format!("file `{}` is none of such a machine's", shown(name))));
    let undigested = manifest.files.iter().filter(|file| file.sha256.len() != DIGEST || !is_hex(&file.sha256));
    differs.extend(undigested.map(|file| format!("the digest of `{}` is none", shown(&file.name))));
    differs
}

/// QEMU reads what an earlier one has written, and not the other way round.
fn emulator(made: &Emulator, here: &Emulator) -> Vec<String> {
    let mut differs = Vec::new();
    match (version(&made.qemu), version(&here.qemu)) {
        (Some(made), Some(here)) if here >= made => {}
        (Some(_), Some(_)) => {
            differs.push(format!(
                "QEMU {} has written it, and the older {} here cannot read it",
                shown(&made.qemu),
                here.qemu
            ));
        }
        _ => differs.push(format!(
            "which QEMU has written it, or reads it, is not known: `{}` and `{}`",
            shown(&made.qemu),
            here.qemu
        )),
    }
    if made.accelerator != here.accelerator {
        differs.push(format!("its accelerator was `{}`, and is `{}` here", shown(&made.accelerator), here.accelerator));
    }
    differs
}

fn version(text: &str) -> Option<[u64; 3]> {
    let mut numbers = text.split('.').map(|number| number.parse().ok());
    let version = [numbers.next()??, numbers.next()??, numbers.next()??];
    numbers.next().is_none().then_some(version)
}

fn machine(made: &Machine, here: &Here<'_>) -> Vec<String> {
    let Machine { kind, firmware, disk_bus, cpu, cpu_setting, node_cpu, vcpus, max_vcpus, memory, max_memory, devices } =
        made;
    let now = here.machine;
    let mut differs = Vec::new();
    if !here.types.contains(kind.as_str()) {
        differs.push(format!("its machine type is `{kind}`, which the emulator here does not have"));
    }
    let mut compare = |what: &str, made: String, now: String| {
        if made != now {
            differs.push(format!("its {what} was `{}`, and would be `{}`", shown(&made), shown(&now)));
        }
    };
    compare("machine type", kind.to_string(), now.kind.to_string());
    compare("firmware", format!("{firmware:?}"), format!("{:?}", now.firmware));
    compare("disk bus", disk_bus.to_string(), now.disk_bus.to_string());
    let model = |cpu: &Option<String>| cpu.clone().unwrap_or_else(|| "all of the accelerator's".into());
    compare("CPU model", model(cpu), model(&now.cpu));
    if cpu_setting != &now.cpu_setting {
        compare("CPU in detail", "one".into(), "another".into());
    }
    let of_node = |cpu: &Option<String>| cpu.clone().unwrap_or_else(|| "none of a node's".into());
    compare("node's CPU", of_node(node_cpu), of_node(&now.node_cpu));
    compare("number of vCPUs", vcpus.to_string(), now.vcpus.to_string());
    compare("most vCPUs", max_vcpus.to_string(), now.max_vcpus.to_string());
    compare("memory in bytes", memory.to_string(), now.memory.to_string());
    compare("most memory in bytes", max_memory.to_string(), now.max_memory.to_string());
    for Differs { name, made, now } in devices.differing(&now.devices) {
        compare(&shown(&name), made, now);
    }
    differs
}

fn nics(made: &[NicMade], now: &[NicMade], learns: bool) -> Vec<String> {
    if made.len() != now.len() {
        return vec![format!("it had {} NICs, and would have {}", made.len(), now.len())];
    }
    let mut differs = Vec::new();
    for (nic, now) in made.iter().zip(now) {
        let (name, mac) = (shown(&nic.name), nic.mac);
        if nic.name != now.name {
            differs.push(format!("NIC `{name}` would be `{}`", now.name));
        }
        if let (Some(had), Some(has)) = (nic.queues, now.queues)
            && had != has
        {
            differs.push(format!("NIC `{name}` had {had} queues, and would have {has}"));
        }
        let is_others = made.iter().any(|other| other.mac == now.mac);
        if mac != now.mac && (!learns || is_others) {
            let why =
                if is_others { "another NIC of the guest has" } else { "the guest does not learn without our agent" };
            differs.push(format!(
                "NIC `{name}` has {mac}, and its network gives {}, which {why}; have a plugin of the network declare the capability `mac`",
                now.mac
            ));
        }
    }
    differs
}

fn disks(manifest: &Manifest, now: &[DiskMade]) -> Vec<String> {
    let made = &manifest.disks;
    if made.len() != now.len() {
        return vec![format!("it had {} disks beside the root disk, and would have {}", made.len(), now.len())];
    }
    let mut differs = Vec::new();
    for (disk, now) in made.iter().zip(now) {
        let serial = shown(&disk.serial);
        if disk.serial != now.serial {
            differs.push(format!("disk `{serial}` would be `{}`", now.serial));
        } else if disk.read_only != now.read_only {
            differs.push(format!("disk `{serial}` is read-only in one of checkpoint and pod"));
        } else if disk.image_id != now.image_id {
            differs.push(format!("disk `{serial}` would be of another image"));
        }
    }
    differs
}

/// A word of the manifest, which anybody may have written.
fn shown(text: &str) -> String {
    text.chars().flat_map(char::escape_default).take(MAX_SHOWN).collect()
}

#[cfg(test)]
mod tests {
    use super::super::devices::Devices;
    use super::super::manifest::PartMade;
    use super::super::manifest::tests::manifest;
    use super::*;

    const MAC: &str = "02:00:00:00:00:01";

    /// One that can go on.
    fn whole() -> Manifest {
        let file = |name: &str, of| PartMade { name: name.into(), of, bytes: 3, sha256: "0a".repeat(32) };
        let disk = Of::Disk("scratch".into());
        Manifest {
            files: vec![file(MEMORY, Of::Memory), file(ROOT, Of::Root), file("disk-0.raw", disk)],
            nics: vec![NicMade { name: "eth0".into(), mac: MAC.parse().expect("a MAC address"), queues: Some(2) }],
            ..manifest()
        }
    }

    /// What is said of one that was changed so, where the other could go on.
    fn said(change: impl FnOnce(&mut Manifest)) -> Result<()> {
        let (there, mut changed) = (whole(), whole());
        change(&mut changed);
        let types = ["q35".to_owned()].into();
        let here = Here {
            image_id: &there.image_id,
            emulator: &there.emulator,
            types: &types,
            machine: &there.machine,
            nics: Some(&there.nics),
            learns: false,
            disks: &there.disks,
            room: &|of| if *of == Of::Memory { Room::AtMost(4) } else { Room::Just(3) },
        };
        check(&changed, &here)
    }

    fn of_screen() -> Devices {
        serde_json::from_str(r#"{"graphics":"vnc"}"#).expect("read")
    }

    #[test]
    fn a_manifest_is_read_as_it_was_written_or_is_none() {
        let bytes = serde_json::to_vec(&whole()).expect("JSON");
        assert_eq!(parse(&bytes).expect("read"), whole());
        let newer = br#"{"version":2,"all":"else"}"#;
        let long = [bytes.as_slice(), &vec![b' '; MAX_LEN]].concat();
        let cut = &bytes[..bytes.len() - 1];
        for (bytes, kind, why) in [
            (newer.as_slice(), Kind::State, "of version 2"),
            (long.as_slice(), Kind::DataLoss, "larger than"),
            (cut, Kind::DataLoss, "damaged"),
            (br#"{"version":1}"#.as_slice(), Kind::DataLoss, "damaged"),
            (b"".as_slice(), Kind::DataLoss, "damaged"),
        ] {
            let refused = parse(bytes).expect_err(why);
            assert!(refused.kind() == kind && refused.to_string().contains(why), "{why}: {refused}");
        }
    }

    #[test]
    fn one_that_is_as_it_was_goes_on() {
        said(|_| ()).expect("it can");
        said(|manifest| manifest.files[0].bytes = 4).expect("there is room");
        said(|manifest| manifest.emulator.qemu = "9.2.10".into()).expect("of an earlier QEMU");
        said(|manifest| manifest.emulator.libvirt = "12.0.0".into()).expect("libvirt's form is older");
    }

    #[test]
    fn a_guest_that_learns_takes_other_addresses_and_no_other_nics() {
        let made = whole().nics;
        let other = NicMade { mac: "02:00:00:00:00:02".parse().expect("a MAC address"), ..made[0].clone() };
        let now = [other];
        assert_eq!(nics(&made, &now, true), [""; 0]);
        assert_eq!((nics(&made, &now, false).len(), nics(&made, &[], true).len()), (1, 1));
        let second = NicMade {
            name: "net1".into(),
            mac: "02:00:00:00:00:03".parse().expect("a MAC address"),
            ..made[0].clone()
        };
        let swapped = [NicMade { mac: second.mac, ..made[0].clone() }, NicMade { mac: made[0].mac, ..second.clone() }];
        let told = nics(&[made[0].clone(), second], &swapped, true);
        assert!(told.len() == 2 && told[0].contains("another NIC of the guest has"), "{told:?}");
        let unsaid = [NicMade { queues: None, ..made[0].clone() }];
        assert_eq!(nics(&unsaid, &made, false), [""; 0], "of an earlier release");
    }

    #[test]
    fn all_that_differs_is_told() {
        type Change = fn(&mut Manifest);
        let cases: &[(Change, &str)] = &[
            (|m| m.image_id = "sha256:1".into(), "of image `sha256:1`"),
            (|m| m.emulator.qemu = "10.1.0".into(), "QEMU 10.1.0 has written it, and the older 10.0.2"),
            (|m| m.emulator.qemu = "10.10.0".into(), "older"),
            (|m| m.emulator.qemu = String::new(), "is not known"),
            (|m| m.emulator.qemu = "10.0.2.1".into(), "is not known"),
            (|m| m.emulator.accelerator = "qemu".into(), "accelerator was `qemu`"),
            (|m| m.machine.kind = "pc-q35-10.0".parse().expect("a type"), "machine type is `pc-q35-10.0`"),
            (|m| m.machine.firmware = Firmware::Uefi { secure_boot: false }, "firmware was"),
            (|m| m.machine.disk_bus = vmspec::plan::DiskBus::Sata, "disk bus was `sata`"),
            (|m| m.machine.cpu = Some("Westmere".into()), "CPU model was `Westmere`"),
            (|m| m.machine.node_cpu = Some("x".into()), "node's CPU was `x`"),
            (|m| m.machine.vcpus = 2, "number of vCPUs was `2`"),
            (|m| m.machine.max_vcpus = 2, "most vCPUs was `2`"),
            (|m| m.machine.memory = 1, "memory in bytes was `1`"),
            (|m| m.machine.max_memory = 1, "most memory in bytes was `1`"),
            (|m| m.machine.devices = of_screen(), "graphics was `vnc`, and would be `the usual`"),
            (|m| m.nics.clear(), "it had 0 NICs"),
            (
                |m| m.nics[0].mac = "02:00:00:00:00:02".parse().expect("a MAC address"),
                "its network gives 02:00:00:00:00:01",
            ),
            (|m| m.nics[0].name = "net1".into(), "NIC `net1` would be `eth0`"),
            (|m| m.nics[0].queues = Some(1), "NIC `eth0` had 1 queues, and would have 2"),
            (|m| drop(m.disks.pop()), "it had 1 disks"),
            (|m| m.disks.reverse(), "disk `model` would be `scratch`"),
            (|m| m.disks[0].read_only = true, "read-only in one"),
            (|m| m.disks[1].image_id = Some("sha256:2".into()), "another image"),
            (|m| drop(m.files.pop()), "it has no file `disk-0.raw`"),
            (|m| m.files[1].name = "../root\n".into(), r"file `../root\n` is none"),
            (|m| m.files[0].bytes = 5, "`memory` has 5 bytes, and such a machine's has no more than 4"),
            (|m| m.files[2].bytes = 4, "`disk-0.raw` has 4 bytes, and the disk would have 3"),
            (|m| m.files[0].sha256 = "0A".repeat(32), "the digest of `memory` is none"),
        ];
        for (change, why) in cases {
            let refused = said(*change).expect_err(why);
            assert!(refused.kind() == Kind::State && refused.to_string().contains(why), "{why}: {refused}");
        }
        let twice = said(|m| m.files.push(m.files[0].clone())).expect_err("twice");
        assert!(twice.to_string().contains("file `memory` is none"), "{twice}");
        let both = said(|m| (m.machine.vcpus, m.image_id) = (2, "sha256:1".into())).expect_err("both").to_string();
        assert!(both.contains("vCPUs") && both.contains("image"), "{both}");
    }
}
