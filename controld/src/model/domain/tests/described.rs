//! Disks as pods describe them.

use std::collections::BTreeSet;

use proto::vm::VmDescription;
use vmspec::plan::{Below, Described, FileFormat, FileId, FilesDisk, OverlayDisk, VolumeDisk, VolumeFile};

use super::*;

/// A description of disks, and block volumes with these names.
fn with_described(machine: &str, disk_bus: DiskBus, description: &str, names: &[&str]) -> DomainSpec {
    let named = |name: &&str| Disk { name: (*name).to_owned(), ..disk(&format!("/dev/virtlet/{name}"), false) };
    let mut spec = with_disks(machine, disk_bus, names.iter().map(named).collect());
    let description = VmDescription::parse(description).expect("a description");
    spec.plan.hardware.described = Described::of(description).expect("built");
    let hardware = &spec.plan.hardware;
    spec.plan.disks.iter_mut().for_each(|disk| disk.read_only = hardware.is_cd(&disk.name));
    spec
}

#[test]
fn disks_are_as_they_are_described() {
    let description = r#"{"v":1,"disks":[
        {"name":"os","root":true,"bootOrder":2,"serial":"OS-1","cache":"writethrough","io":"threads","errorPolicy":"report"},
        {"name":"cd","kind":"cdrom","bootOrder":1},
        {"name":"drivers","kind":"cdrom","bus":"scsi"},
        {"name":"data","bus":"scsi","cache":"writethrough","errorPolicy":"enospace",
         "blockSize":{"custom":{"logical":512,"physical":4096,"discardGranularity":4096}}},
        {"name":"fast","io":"native","errorPolicy":"stop","bootOrder":7}]}"#;
    let names = ["cd", "drivers", "data", "fast", ""];
    let text = xml(&with_described("q35", DiskBus::Virtio, description, &names)).expect("describes");
    let controllers: Vec<_> = text.split("<controller ").skip(1).map(|part| part.lines().take(3).collect()).collect();
    let controllers: Vec<String> = controllers.into_iter().map(|lines: Vec<_>| lines.join("\n")).collect();
    insta::assert_snapshot!([disks_of(&text).join("\n\n"), controllers.join("\n")].join("\n\n"));
}

#[test]
fn a_disk_of_files_is_where_they_were_written() {
    let description =
        r#"{"v":1,"disks":[{"name":"config","kind":"cdrom","serial":"C","source":{"files":{"label":"app"}}}]}"#;
    let mut spec = with_described("q35", DiskBus::Virtio, description, &["config"]);
    let files = FilesDisk { volume: "/pods/u/config".into(), label: "app".into() };
    spec.plan.disks[0].source = DiskSource::Files(files);
    insta::assert_snapshot!(disks_of(&xml(&spec).expect("describes"))[2]);
    spec.files.clear();
    assert_eq!(xml(&spec).expect_err("not made").to_string(), "the disk of the files of volume `config` was not made");
}

#[test]
fn devices_are_as_they_are_described() {
    let description = r#"{"v":1,"machine":"pc-q35-9.2","firmware":{"useSerial":true},"devices":{"graphics":true,"video":{"type":"virtio"},
        "inputs":[{"name":"pen","type":"tablet"}],"watchdog":{"name":"dog","i6300esb":{"action":"poweroff"}},
        "panicDevices":[{"model":"isa"},{"model":"hyperv"}],"blockMultiQueue":false,"ioThreads":"auto"},
        "disks":[{"name":"cd","kind":"cdrom"},{"name":"data","bus":"scsi"}]}"#;
    let mut spec = with_described("q35", DiskBus::Virtio, description, &["cd", "data", "more", "last"]);
    spec.plan.cpus = Cpus::fixed(1);
    spec.plan.hardware.extras =
        Extras { graphics: Some(Graphics::Vnc), watchdog: Some(Watchdog::I6300esb), ..Extras::default() };
    spec.pvpanic_pci = true;
    let text = xml(&spec).expect("describes");
    let is_shown = |line: &&str| {
        let of = [
            "<iothreads",
            "<driver",
            "<bios",
            "<video",
            "<model",
            "<input",
            "<watchdog",
            "<panic",
            "\"usb\"",
            "slot=\"0x0d\"",
        ];
        of.iter().any(|part| line.contains(part)) || line.contains("\"scsi\" index")
    };
    insta::assert_snapshot!(text.lines().filter(is_shown).collect::<Vec<_>>().join("\n"));
    let virtio =
        description.replace(r#""type":"tablet""#, r#""type":"tablet","bus":"virtio""#).replace("auto", "shared");
    let mut spec = with_described("pc", DiskBus::Scsi, &virtio, &["cd"]);
    spec.plan.hardware.extras.watchdog = Some(Watchdog::I6300esb);
    let text = xml(&spec).expect("describes");
    insta::assert_snapshot!(text.lines().filter(is_shown).collect::<Vec<_>>().join("\n"));
}

#[test]
fn disks_of_several_buses_have_a_place_each_and_what_there_was_stays() {
    let names: Vec<String> = (0..40).map(|nth| format!("d{nth}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    for (machine, bus) in [
        ("q35", DiskBus::Virtio),
        ("q35", DiskBus::Scsi),
        ("q35", DiskBus::Sata),
        ("pc", DiskBus::Virtio),
        ("pc", DiskBus::Scsi),
        ("pc", DiskBus::Sata),
    ] {
        let buses = ["virtio", "scsi", "sata"].into_iter().cycle();
        let said = names.iter().zip(buses).map(|(name, bus)| format!(r#"{{"name":"{name}","bus":"{bus}"}}"#));
        let description = format!(r#"{{"v":1,"disks":[{}]}}"#, said.collect::<Vec<_>>().join(","));
        let of = |count: usize| xml(&with_described(machine, bus, &description, &names[..count])).expect("describes");
        let text = of(40);
        let addresses: Vec<_> = text.lines().map(str::trim).filter(|line| line.starts_with("<address ")).collect();
        let places = |bus: &str| {
            let disks = disks_of(&text).into_iter().filter(|disk| disk.contains(&format!("bus=\"{bus}\"")));
            let of_disks = disks.filter_map(|disk| disk.lines().find(|line| line.contains("<address ")));
            of_disks.collect::<Vec<_>>()
        };
        for bus in ["virtio", "scsi", "sata"] {
            let (all, different) = (places(bus), places(bus).into_iter().collect::<BTreeSet<_>>());
            assert_eq!(all.len(), different.len(), "{machine} {bus}");
        }
        let on_pci: Vec<_> = addresses
            .iter()
            .filter(|line| line.contains("type=\"pci\""))
            .map(|line| line.replace(" multifunction=\"on\"", ""))
            .collect();
        assert_eq!(on_pci.len(), on_pci.iter().collect::<BTreeSet<_>>().len(), "{machine} {bus:?}");
        let before = of(39);
        let mut rest = text.lines();
        for line in before.lines() {
            assert!(rest.any(|other| other == line), "{machine} {bus:?}: no `{line}` in {text}");
        }
    }
}

#[test]
fn disks_in_volumes_and_layers_on_them_are_as_they_were_found() {
    let file = |format| VolumeFile {
        dir: "/pods/u/volumes/kubernetes.io~csi/pvc-1/mount".into(),
        id: FileId { device: DeviceNumber { major: 8, minor: 1 }, inode: 7 },
        format,
    };
    let layer = |name: &str, below| OverlayDisk { overlay: format!("/volumes/u/overlay-{name}.qcow2").into(), below };
    let device = BlockDevice { node: "/dev/loop3".into(), number: DeviceNumber { major: 7, minor: 3 } };
    let description = r#"{"v":1,"disks":[{"name":"data","serial":"D","source":{"diskImage":{}}},{"name":"cd","kind":"cdrom","source":{"diskImage":{}}},
        {"name":"golden","cache":"none","source":{"overlay":{}}},{"name":"lun","bus":"scsi","source":{"overlay":{}}}]}"#;
    let mut spec = with_described("q35", DiskBus::Virtio, description, &["data", "cd", "golden", "lun"]);
    let of = [
        VolumeDisk::File(file(FileFormat::Raw)),
        VolumeDisk::File(file(FileFormat::Raw)),
        VolumeDisk::Overlay(layer("golden", Below::File(file(FileFormat::Qcow2)))),
        VolumeDisk::Overlay(layer("lun", Below::Block(device))),
    ];
    for (disk, of) in spec.plan.disks.iter_mut().zip(of) {
        disk.source = DiskSource::Volume(of);
    }
    spec.disks[3] = DiskNow { io: AsyncIo::Threads, sectors: Some(Sectors { logical: 4096, physical: 4096 }) };
    let mut shown = disks_of(&xml(&spec).expect("describes"))[2..].join("\n\n");
    for root in [
        VolumeDisk::File(file(FileFormat::Qcow2)),
        VolumeDisk::Overlay(layer("root", Below::File(file(FileFormat::Raw)))),
    ] {
        let disk = DiskNow { io: AsyncIo::Native, sectors: None };
        spec.root = Some(RootNow { disk, slice: Slice { offset: 0, size: 1 << 30 }, uuid: None });
        spec.plan.root.volume = Some(root);
        shown = format!("{shown}\n\n{}", disks_of(&xml(&spec).expect("describes"))[0]);
    }
    insta::assert_snapshot!(shown);
}

#[test]
fn nics_have_the_order_and_the_number_that_are_said() {
    let mut spec = spec();
    spec.env.nics = vec![NicPlace { slot: 0x1e, boot_order: Some(1), acpi_index: None }, NicPlace::at(0x10)];
    let place = NicPlace { slot: 0x11, boot_order: Some(2), acpi_index: Some(7) };
    spec.hostdevs =
        vec![Hostdev { device: PassedDevice::Pci("0000:3b:02.1".parse().expect("address")), place, rom: false }];
    let text = xml(&spec).expect("describes");
    assert!(text.contains(r#"name="VIRTLET_NICS" value="0x1e/boot=2,0x10""#), "{text}");
    let hostdev = text.split("<hostdev").nth(1).expect("one");
    assert!(hostdev.contains(r#"<boot order="3"/>"#) && hostdev.contains(r#"<acpi index="7"/>"#), "{hostdev}");
    assert!(!hostdev.contains("<rom"), "{hostdev}");
}

#[test]
fn what_a_machine_is_to_be_without_is_not_there_and_disks_have_slots() {
    let description = r#"{"v":1,"devices":{"serialConsole":false,"memBalloon":false},"disks":[
        {"name":"os","root":true,"pciAddress":"0000:00:10.0"},{"name":"data","pciAddress":"0000:00:1e.0"}]}"#;
    for machine in ["q35", "pc"] {
        let text = xml(&with_described(machine, DiskBus::Virtio, description, &["data", "more"])).expect("describes");
        assert!(!text.contains("<serial type") && text.contains(r#"<memballoon model="none"/>"#), "{text}");
        let disks = disks_of(&text);
        assert!(
            disks[0].contains(r#"bus="0x00" slot="0x10""#) && disks[2].contains(r#"bus="0x00" slot="0x1e""#),
            "{text}"
        );
        let before = xml(&with_described(machine, DiskBus::Virtio, r#"{"v":1}"#, &["more"])).expect("describes");
        let place = |disk: &str| disk.lines().find(|line| line.contains("<address ")).map(str::to_owned);
        assert_eq!(place(disks[3]), place(disks_of(&before)[2]), "others are where they would be");
    }
}
