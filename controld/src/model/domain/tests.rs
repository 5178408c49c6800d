use proto::agent::{EXIT_PORT, LOG_PORT};
use vmspec::plan::{
    BlockDevice, Clock, CpuSetting, Cpus, DeviceNumber, Disk, DiskBus, DiskFile, DiskImage, DiskSource, Extras,
    FileSystem, Firmware, Graphics, Guest, GuestCommand, Hardware, Layer, Memory, OnDisk, OnImageChange,
    PersistentRoot, RbdImage, RootDisk, Serial, Watchdog,
};
use vmspec::{MachineId, MountOptions};

use super::*;

mod described;

fn layer(hex: &str, format: &str) -> Layer {
    Layer { path: format!("/var/lib/virtlet/images/data/{hex}").into(), format: format.into() }
}

fn spec() -> DomainSpec {
    DomainSpec {
        plan: plan(),
        sandbox: "5ad0".into(),
        pod_uid: "uid-1".into(),
        instance: Uuid::from_u128(1),
        accel: Accelerator::Qemu,
        vmwrapper: "/usr/lib/virtlet/vmwrapper".into(),
        env: WrapperEnv {
            handoff: "/run/virtlet/handoff.sock".into(),
            token: Token::from_random([7; 16]),
            emulator: "/usr/bin/qemu-system-x86_64".into(),
            nics: vec![NicPlace::at(0x10), NicPlace::at(0x11)],
            deadline: Duration::from_secs(10),
        },
        seed: Some("/run/virtlet/seed/x.iso".into()),
        files: [("config".to_owned(), "/run/virtlet/seed/x.files0.iso".into())].into(),
        firmware: Vec::new(),
        console_socket: "/run/virtlet/console/x.sock".into(),
        share: None,
        root: None,
        disks: Vec::new(),
        memory_nodes: None,
        qga_socket: "/run/virtlet/console/x.agent".into(),
        agent_socket: "/run/virtlet/console/x.exec".into(),
        screen_socket: "/run/virtlet/screen/x/vnc.sock".into(),
        console_log: "/var/lib/virtlet/console/x/serial.log".into(),
        command_log: "/var/lib/virtlet/console/x/command.log".into(),
        command_end: "/var/lib/virtlet/console/x/end".into(),
        uefi_variables: "/var/lib/virtlet/nvram/x.fd".into(),
        pvpanic_pci: true,
        waits: false,
        hostdevs: Vec::new(),
        locked_memory: None,
    }
}

fn plan() -> MachinePlan {
    MachinePlan {
        passed: Default::default(),
        guest: Guest::default(),
        share: None,
        disks: Vec::new(),
        id: MachineId::from(Uuid::from_u128(0x0011_2233_4455_6677_8899_aabb_ccdd_eeff)),
        domain: "virtlet-0011223344556-main".into(),
        cpus: Cpus::fixed(2),
        memory: Memory::fixed(256 << 20),
        hardware: Hardware::default(),
        root: RootDisk {
            overlay: "/var/lib/virtlet/volumes/uid-1/root.qcow2".into(),
            images: vec![layer("00ff", "qcow2")],
            persistent: None,
            volume: None,
        },
        huge_page: None,
        smbios: None,
        cgroup: None,
    }
}

#[test]
fn an_emulated_machine() {
    insta::assert_snapshot!(xml(&spec()).expect("describes"));
}

#[test]
fn a_described_machine() {
    let described = serde_json::json!({
        "topology": {"sockets": 1, "dies": 1, "cores": 1, "threads": 2},
        "cpu_features": [{"name": "aes", "policy": "disable"}],
        "serial": "S-1 & <more>", "chassis": {"manufacturer": "us", "asset": "42"},
        "clock": {
            "shows": {"zone": "Europe/Rome"},
            "timers": [{"name": "rtc", "tick_policy": "delay", "track": "wall"}, {"name": "hypervclock", "present": true}],
        },
        "features": {
            "apic": {"endOfInterrupt": true}, "pvspinlock": {"enabled": false}, "smm": {}, "kvm": {"hidden": true},
            "hyperv": {
                "relaxed": {}, "vapic": {"enabled": false}, "spinlocks": {"spinlocks": 8191},
                "synic": {}, "synictimer": {"direct": {}}, "tlbflush": {"extended": {"enabled": false}},
                "vendorid": {"vendorid": "a maker"},
            },
        },
        "ends_at_reboot": true,
    });
    let mut spec = spec();
    spec.plan.hardware.described = serde_json::from_value(described).expect("a description");
    // Of vCPUs that may come later, too.
    spec.plan.cpus.max = 6;
    insta::assert_snapshot!(xml(&spec).expect("describes"));
    spec.plan.hardware.described = serde_json::from_value(serde_json::json!({
        "clock": {"shows": {"utc": -3600}}, "features": {"acpi": {"enabled": false}, "apic": {"enabled": false}},
    }))
    .expect("a description");
    let text = xml(&spec).expect("describes");
    assert!(text.contains(r#"<clock offset="variable" adjustment="-3600" basis="utc">"#), "{text}");
    assert!(!text.contains("<acpi") && !text.contains("<apic") && text.contains("<on_reboot>restart"), "{text}");
}

#[test]
fn a_libvirt_without_the_panic_device_of_pci_gets_the_other() {
    let text = xml(&DomainSpec { pvpanic_pci: false, ..spec() }).expect("describes");
    assert!(text.contains("<panic model=\"isa\"/>") && !text.contains("pvpanic"), "{text}");
}

#[test]
fn a_machine_with_kvm_a_uuid_of_its_own_and_no_seed() {
    let plan = MachinePlan { smbios: Some(Uuid::from_u128(9)), huge_page: Some(2 << 20), ..plan() };
    let spec = DomainSpec { accel: Accelerator::Kvm, plan, seed: None, ..spec() };
    insta::assert_snapshot!(xml(&spec).expect("describes"));
}

#[test]
fn what_a_machine_may_be_given_later_is_there_from_the_start() {
    let plan =
        MachinePlan { cpus: Cpus { boot: 1, max: 4 }, memory: Memory { boot: 128 << 20, max: 512 << 20 }, ..plan() };
    let text = xml(&DomainSpec { plan, ..spec() }).expect("describes");
    for line in [
        "<memory unit=\"KiB\">524288</memory>",
        "<currentMemory unit=\"KiB\">131072</currentMemory>",
        "<vcpu placement=\"static\" current=\"1\">4</vcpu>",
        "<topology sockets=\"1\" cores=\"4\" threads=\"1\"/>",
    ] {
        assert!(text.contains(line), "no {line} in {text}");
    }
}

#[test]
fn what_libvirt_passes_through_stands_where_vmwrapper_would_put_it() {
    let hostdev = |device: &str, slot| Hostdev {
        device: PassedDevice::Pci(device.parse().expect("address")),
        place: NicPlace::at(slot),
        rom: false,
    };
    let hostdevs = vec![hostdev("0000:01:10.0", 0x10), hostdev("10000:e1:1f.7", 0x12)];
    let text = xml(&DomainSpec { hostdevs, ..spec() }).expect("describes");
    let (_, part) = text.split_once("<hostdev").expect("a device");
    let (part, _) = part.split_once("<rng").expect("what follows");
    insta::assert_snapshot!(part);
}

#[test]
fn devices_that_kubelet_allocated_stand_behind_the_nics() {
    let part = PassedDevice::Mdev(Uuid::from_u128(7));
    let card = PassedDevice::Pci("0000:65:00.0".parse().expect("address"));
    let hostdevs = vec![
        Hostdev { device: card, place: NicPlace::at(0x12), rom: true },
        Hostdev { device: part, place: NicPlace::at(0x13), rom: true },
    ];
    let text = xml(&DomainSpec { hostdevs, ..spec() }).expect("describes");
    let (_, part) = text.split_once("<hostdev").expect("a device");
    let (part, rest) = part.split_once("<rng").expect("what follows");
    insta::assert_snapshot!(part);
    assert!(rest.contains("freePageReporting=\"off\""), "{rest}");
}

#[test]
fn what_the_firmware_shows_is_named_and_lies_in_a_file() {
    let entry = FirmwareEntry { name: "opt/com.coreos/config", file: "/run/virtlet/seed/x.ignition".into() };
    let text = xml(&DomainSpec { firmware: vec![entry], seed: None, ..spec() }).expect("describes");
    let (_, part) = text.split_once("  <sysinfo type=\"fwcfg\">\n").expect("an element");
    let (part, _) = part.split_once("  </sysinfo>").expect("its end");
    assert_eq!(part.trim(), r#"<entry name="opt/com.coreos/config" file="/run/virtlet/seed/x.ignition"/>"#);
}

#[test]
fn memory_that_may_be_locked_is_said() {
    let text = xml(&DomainSpec { locked_memory: Some(1 << 30), ..spec() }).expect("describes");
    assert!(text.contains("<hard_limit unit=\"KiB\">1048576</hard_limit>"), "{text}");
    assert!(!xml(&spec()).expect("describes").contains("memtune"));
}

fn with(machine: &str, cpu: Option<&str>, disk_bus: DiskBus) -> DomainSpec {
    let cpu = cpu.map(|cpu| cpu.parse().expect("model"));
    let machine = machine.parse().expect("type");
    let hardware = Hardware { machine, cpu, disk_bus, ..Hardware::default() };
    DomainSpec { plan: MachinePlan { hardware, ..plan() }, ..spec() }
}

#[test]
fn a_machine_of_the_other_chipset_with_a_named_cpu_and_scsi() {
    insta::assert_snapshot!(xml(&with("pc-i440fx-10.0", Some("Westmere"), DiskBus::Scsi)).expect("describes"));
}

#[test]
fn uefi_has_variables_of_its_own_and_may_boot_securely() {
    let shown = |secure_boot| {
        let firmware = Firmware::Uefi { secure_boot };
        let hardware = Hardware { firmware, ..Hardware::default() };
        let text = xml(&DomainSpec { plan: MachinePlan { hardware, ..plan() }, ..spec() }).expect("describes");
        let (_, part) = text.split_once("  </sysinfo>\n").expect("smbios");
        part.split_once("  <cpu").expect("CPU").0.to_owned()
    };
    insta::assert_snapshot!([false, true].map(shown).join("\n"));
}

#[test]
fn what_a_handler_gives_beside_the_usual_devices() {
    let (clock, graphics) = (Clock::Localtime, Some(Graphics::Vnc));
    for (machine, watchdog) in [("q35", Watchdog::Itco), ("pc", Watchdog::I6300esb)] {
        let mut spec = with(machine, None, DiskBus::Virtio);
        spec.plan.hardware.extras = Extras { clock, hyperv: true, watchdog: Some(watchdog), graphics };
        let text = xml(&spec).expect("described");
        let part = |from: &str, to: &str| {
            let rest = text.get(text.find(from).expect(from)..).expect("text");
            rest.get(..rest.find(to).expect(to) + to.len()).expect("text").to_owned()
        };
        let parts = [
            part("<features>", "</features>"),
            part("<clock", "</clock>"),
            part("<graphics", "</video>"),
            part("<rng", "</rng>"),
            part("<watchdog", if watchdog == Watchdog::Itco { "/>" } else { "</watchdog>" }),
        ];
        insta::assert_snapshot!(parts.join("\n"));
    }
}

#[test]
fn memory_may_be_of_some_of_the_nodes_nodes() {
    let text = xml(&DomainSpec { memory_nodes: Some("0,2-3".into()), ..spec() }).expect("describes");
    let expected = "  <numatune>\n    <memory mode=\"strict\" nodeset=\"0,2-3\"/>\n  </numatune>\n";
    assert!(text.contains(expected), "{text}");
    assert!(!xml(&spec()).expect("describes").contains("numatune"));
}

#[test]
fn a_cpu_may_be_said_in_detail() {
    let said = serde_json::json!({
        "match": "exact", "check": "partial", "vendor": "Intel",
        "model": { "value": "Westmere", "fallback": "forbid", "vendorid": "GenuineIntel" },
        "topology": { "cores": 1, "threads": 2 }, "cache": { "level": 3, "mode": "emulate" },
        "features": [{ "name": "aes", "policy": "disable" }],
    });
    let mut spec = spec();
    for said in [said, serde_json::json!({ "mode": "maximum", "cache": { "mode": "disable" } })] {
        spec.plan.hardware.cpu_setting = Some(CpuSetting::of(&said).expect("a CPU"));
        let text = xml(&spec).expect("described");
        let (from, to) = (text.find("<cpu").expect("begins"), text.find("</cpu>").expect("ends"));
        insta::assert_snapshot!(text.get(from..to).expect("text"));
    }
}

#[test]
fn a_tpm_is_emulated() {
    let hardware = Hardware { tpm: true, ..Hardware::default() };
    let text = xml(&DomainSpec { plan: MachinePlan { hardware, ..plan() }, ..spec() }).expect("describes");
    let (_, tpm) = text.split_once("<tpm").expect("a TPM");
    let words: Vec<&str> = tpm.split("</tpm>").next().expect("its end").split_whitespace().collect();
    assert_eq!(words.join(" "), r#"model="tpm-crb"> <backend type="emulator" version="2.0"/>"#);
    assert!(!xml(&spec()).expect("describes").contains("<tpm"));
}

#[test]
fn disks_are_plugged_where_their_bus_is() {
    let shown = |machine, bus| {
        let text = xml(&with(machine, None, bus)).expect("describes");
        let parts = ["<controller", "<disk", "<target", "<address", "<model"];
        let lines = text.lines().map(str::trim).filter(|line| parts.iter().any(|part| line.starts_with(part)));
        format!("{machine} {bus}\n{}", lines.collect::<Vec<_>>().join("\n"))
    };
    let all = [("pc", DiskBus::Virtio), ("pc", DiskBus::Sata), ("q35", DiskBus::Sata), ("q35", DiskBus::Scsi)];
    insta::assert_snapshot!(all.map(|(machine, bus)| shown(machine, bus)).join("\n\n"));
}

#[test]
fn cpus_are_modes_of_libvirt() {
    for (cpu, accel, wanted) in [
        (None, Accelerator::Kvm, r#"<cpu mode="host-passthrough" check="none" migratable="off">"#),
        (None, Accelerator::Qemu, r#"<cpu mode="maximum" check="none">"#),
        (Some("max"), Accelerator::Kvm, r#"<cpu mode="maximum" check="none">"#),
        (Some("host-model"), Accelerator::Kvm, r#"<cpu mode="host-model" check="none">"#),
        (Some("host-passthrough"), Accelerator::Kvm, r#"<cpu mode="host-passthrough" check="none" migratable="off">"#),
    ] {
        let text = xml(&DomainSpec { accel, ..with("q35", cpu, DiskBus::Virtio) }).expect("describes");
        assert!(text.contains(wanted), "{cpu:?} {accel}: {text}");
        // Guests have machines of their own where the host's whole CPU is theirs, or libvirt's model of it.
        for nested in ["vmx", "svm"] {
            let feature = format!(r#"<feature policy="optional" name="{nested}"/>"#);
            assert_eq!(text.contains(&feature), cpu == Some("host-model"), "{cpu:?}: {text}");
        }
    }
}

#[test]
fn a_restarted_container_is_the_same_machine_to_its_guest() {
    let plan = MachinePlan { id: MachineId::from(Uuid::from_u128(99)), ..plan() };
    let restarted = DomainSpec { plan, ..spec() };
    assert_eq!(restarted.smbios_uuid(), spec().smbios_uuid());
    assert_ne!(DomainSpec { pod_uid: "uid-2".into(), ..spec() }.smbios_uuid(), spec().smbios_uuid());
}

#[test]
fn no_two_devices_share_an_address_and_the_nics_slots_are_free() {
    let chipsets =
        ["q35", "pc"].map(|machine| DomainSpec { seed: spec().seed, ..with(machine, None, DiskBus::Virtio) });
    for (spec, count) in chipsets.into_iter().zip([9, 6]) {
        devices_have_addresses(&spec, count);
    }
}

fn devices_have_addresses(spec: &DomainSpec, count: usize) {
    let text = xml(spec).expect("describes");
    let mut addresses: Vec<&str> =
        text.lines().filter(|line| line.contains("type=\"pci\" domain")).map(str::trim).collect();
    assert_eq!(addresses.len(), count, "every device has one");
    addresses.sort_unstable();
    addresses.dedup();
    assert_eq!(addresses.len(), count, "no two are the same");
    for slot in 0x10..=0x1e {
        assert!(!text.contains(&format!("bus=\"0x00\" slot=\"{slot:#04x}\"")), "slot {slot:#x} is taken");
    }
    assert!(!text.contains("<interface"));
}

#[test]
fn names_are_escaped_and_what_xml_cannot_hold_is_refused() {
    let text = xml(&DomainSpec { pod_uid: "a'\"<&>b".into(), ..spec() }).expect("describes");
    assert!(text.contains("a&apos;&quot;&lt;&amp;&gt;b"), "{text}");
    for bad in ["a\u{1}", "a\0", "a\u{fffe}", "a\u{1b}[2J"] {
        let refused = xml(&DomainSpec { pod_uid: bad.into(), ..spec() });
        assert!(matches!(refused, Err(DomainError::Character { what: "pod-uid" })), "{bad:?}");
    }
}

#[test]
fn every_image_below_the_root_disk_is_named_and_the_last_one_ends_the_chain() {
    let mut spec = spec();
    spec.plan.root.images.extend([layer("11ee", "qcow2"), layer("22dd", "raw")]);
    let xml = xml(&spec).expect("described");
    let (_, chain) = xml.split_once("<backingStore").expect("a chain");
    let (chain, _) = chain.split_once("<target").expect("the disk goes on");
    insta::assert_snapshot!(format!("<backingStore{chain}"));
}

#[test]
fn a_command_has_files_for_its_output_and_its_end() {
    let command = GuestCommand { argv: vec!["true".into()], read_only_root: false };
    let guest = Guest { command: Some(command), ..Guest::default() };
    let text = xml(&DomainSpec { plan: MachinePlan { guest, ..plan() }, ..spec() }).expect("describes");
    let ports: Vec<_> = text.split("<channel type=\"file\">").skip(1).collect();
    assert_eq!(ports.len(), 2, "{text}");
    for (port, (file, name)) in ports.iter().zip([("command.log", LOG_PORT), ("end", EXIT_PORT)]) {
        let (port, _) = port.split_once("</channel>").expect("its end");
        assert!(port.contains(&format!("/x/{file}\" append=\"on\"")) && port.contains(name), "{port}");
    }
}

#[test]
fn a_machine_whose_guest_sees_volumes() {
    let share = Shared { dir: "/run/virtlet/share/x".into(), fswrapper: "/usr/lib/virtlet/fswrapper".into() };
    let spec = DomainSpec { share: Some(share), ..spec() };
    let all = xml(&spec).expect("describes");
    let part = |name: &str| {
        let (begin, end) = (format!("<{name}"), format!("</{name}>"));
        let from = all.find(&begin).expect("begins");
        let to = all[from..].find(&end).expect("ends");
        all[from..from + to + end.len()].to_owned()
    };
    insta::assert_snapshot!([part("memoryBacking"), part("filesystem")].join("\n"));
    let huge = MachinePlan { huge_page: Some(2 << 20), ..plan() };
    let text = xml(&DomainSpec { plan: huge, ..spec }).expect("describes");
    assert!(text.contains("<hugepages>") && text.contains("<access mode=\"shared\"/>"), "{text}");
}

fn disk(path: &str, read_only: bool) -> Disk {
    let device = BlockDevice { node: "/dev/loop3".into(), number: DeviceNumber { major: 7, minor: 3 } };
    Disk {
        name: String::new(),
        serial: Serial::of_path(path),
        source: DiskSource::Block(device),
        path: path.into(),
        read_only,
        options: MountOptions::default(),
    }
}

#[test]
fn a_disk_in_an_emptydir_is_a_descriptor_that_libvirt_is_given() {
    let file = DiskFile { dir: "/pods/u/scratch".into(), size: 1 << 30, file_system: Some(FileSystem::Ext4) };
    let source = DiskSource::File(file);
    let disk = Disk {
        name: String::new(),
        serial: Serial::of_name("scratch"),
        source,
        path: "/scratch".into(),
        read_only: false,
        options: MountOptions::default(),
    };
    let mut spec = with_disks("q35", DiskBus::Virtio, vec![disk]);
    insta::assert_snapshot!(disks_of(&xml(&spec).expect("describes"))[2]);
    spec.disks[0].io = AsyncIo::Threads;
    let text = xml(&spec).expect("describes");
    assert!(
        disks_of(&text)[2].contains("cache=\"writeback\"") && disks_of(&text)[2].contains("io=\"threads\""),
        "{text}"
    );
}

#[test]
fn block_volumes_are_shared_where_the_handler_says_so_and_nothing_else_is() {
    let file = DiskFile { dir: "/pods/u/scratch".into(), size: 1 << 30, file_system: Some(FileSystem::Ext4) };
    let scratch = Disk {
        name: String::new(),
        serial: Serial::of_name("scratch"),
        source: DiskSource::File(file),
        path: "/scratch".into(),
        read_only: false,
        options: MountOptions::default(),
    };
    let mut spec = with_disks("q35", DiskBus::Virtio, vec![disk("/dev/a", false), disk("/dev/b", true), scratch]);
    assert!(!xml(&spec).expect("describes").contains("<shareable"));
    spec.plan.hardware.shared_disks = true;
    let text = xml(&spec).expect("describes");
    let shared: Vec<_> = disks_of(&text).iter().map(|disk| disk.contains("<shareable/>")).collect();
    assert_eq!(shared, [false, false, true, true, false], "{text}");
    assert!(disks_of(&text)[2..4].iter().all(|disk| disk.contains("cache=\"none\"")), "{text}");
}

#[test]
fn an_image_that_is_a_volume_is_a_disk_that_nobody_writes_to() {
    let image = DiskImage { id: "sha256:00".into(), file: layer("00", "qcow2"), below: vec![layer("11", "raw")] };
    let disk = Disk {
        name: String::new(),
        serial: Serial::of_path("/models"),
        source: DiskSource::Image(image),
        path: "/models".into(),
        read_only: true,
        options: MountOptions::default(),
    };
    let text = xml(&with_disks("q35", DiskBus::Virtio, vec![disk])).expect("describes");
    insta::assert_snapshot!(disks_of(&text)[2]);
}

#[test]
fn an_image_of_a_cluster_names_its_secret_and_has_none() {
    let disk = |user: Option<&str>| {
        let image = RbdImage {
            monitors: ["10.0.0.1", "[fd00::1]:3300"].map(|text| text.parse().expect("monitor")).into(),
            pool: "rbd".into(),
            image: "web".into(),
            user: user.map(str::to_owned),
            dir: "/pods/u/web".into(),
            on: Some(OnDisk { partition: 1, file_system: FileSystem::Ext4 }),
        };
        Disk {
            name: String::new(),
            serial: Serial::of_name("web"),
            source: DiskSource::Rbd(image),
            path: "/web".into(),
            read_only: user.is_none(),
            options: MountOptions::default(),
        }
    };
    let mut shown = Vec::new();
    for (user, bus) in [(Some("admin"), DiskBus::Virtio), (None, DiskBus::Scsi)] {
        let text = xml(&with_disks("q35", bus, vec![disk(user)])).expect("describes");
        shown.push(disks_of(&text)[2].to_owned());
    }
    insta::assert_snapshot!(shown.join("\n\n"));
}

fn with_disks(machine: &str, disk_bus: DiskBus, disks: Vec<Disk>) -> DomainSpec {
    let mut spec = with(machine, None, disk_bus);
    spec.disks = vec![DiskNow { io: AsyncIo::IoUring, sectors: None }; disks.len()];
    spec.plan.disks = disks;
    spec
}

fn disks_of(text: &str) -> Vec<&str> {
    text.split("<disk ").skip(1).filter_map(|disk| disk.split_once("</disk>")).map(|(disk, _)| disk).collect()
}

#[test]
fn block_volumes_are_disks_of_their_own_on_each_bus() {
    for (name, machine, bus) in [
        ("virtio", "q35", DiskBus::Virtio),
        ("scsi", "q35", DiskBus::Scsi),
        ("sata", "q35", DiskBus::Sata),
        ("virtio_pci", "pc", DiskBus::Virtio),
    ] {
        let read_only = bus != DiskBus::Sata;
        let mut spec = with_disks(machine, bus, vec![disk("/dev/testpvc", false), disk("/dev/other", read_only)]);
        spec.disks[1] = DiskNow { io: AsyncIo::Native, sectors: Some(Sectors { logical: 4096, physical: 8192 }) };
        let text = xml(&spec).expect("describes");
        insta::assert_snapshot!(format!("two_block_volumes_{name}"), disks_of(&text)[2..].join("\n\n"));
    }
}

#[test]
fn a_persistent_root_is_a_slice_of_its_device_and_gives_the_machine_its_uuid() {
    let mut shown = Vec::new();
    for (machine, bus, offset, sectors) in [
        ("q35", DiskBus::Virtio, 1 << 20, Some(Sectors { logical: 4096, physical: 4096 })),
        ("q35", DiskBus::Scsi, 512, None),
        ("pc", DiskBus::Sata, 0, Some(Sectors { logical: 4096, physical: 4096 })),
    ] {
        let mut spec = with(machine, None, bus);
        spec.plan.root.persistent = Some(PersistentRoot {
            device: BlockDevice { node: "/dev/loop3".into(), number: DeviceNumber { major: 7, minor: 3 } },
            volume: "pvc-1".into(),
            virtual_size: 32 << 20,
            on_image_change: OnImageChange::Reimage,
            as_is: offset == 0,
            converted: false,
        });
        let slice = Slice { offset, size: (64 << 20) - offset };
        let disk = DiskNow { io: AsyncIo::IoUring, sectors };
        spec.root = Some(RootNow { disk, slice, uuid: Some(Uuid::from_u128(0xd15c)) });
        let text = xml(&spec).expect("describes");
        assert!(text.contains("uuid=00000000-0000-0000-0000-00000000d15c"), "{text}");
        assert!(!text.contains("root.qcow2"), "{text}");
        shown.push(disks_of(&text)[0].to_owned());
        spec.plan.smbios = Some(Uuid::from_u128(0xabcd));
        assert!(xml(&spec).expect("describes").contains("uuid=00000000-0000-0000-0000-00000000abcd"));
    }
    insta::assert_snapshot!(shown.join("\n\n"));
}

#[test]
fn what_was_there_stays_where_it_is_when_disks_are_added() {
    for (machine, bus) in
        [("q35", DiskBus::Virtio), ("q35", DiskBus::Scsi), ("q35", DiskBus::Sata), ("pc", DiskBus::Virtio)]
    {
        let before = xml(&with(machine, None, bus)).expect("describes");
        let after = xml(&with_disks(machine, bus, vec![disk("/dev/a", false)])).expect("describes");
        let mut rest = after.lines();
        for line in before.lines() {
            assert!(rest.any(|other| other == line), "{machine} {bus:?}: no `{line}` in {after}");
        }
    }
}

#[test]
fn as_many_disks_as_there_may_be_have_a_place_each() {
    for (machine, bus, most) in [
        ("q35", DiskBus::Virtio, 60),
        ("q35", DiskBus::Scsi, 60),
        ("q35", DiskBus::Sata, 60),
        ("pc", DiskBus::Virtio, 48),
        ("pc", DiskBus::Sata, 60),
    ] {
        let disks: Vec<_> = (0..most).map(|n| disk(&format!("/dev/disk{n}"), false)).collect();
        let text = xml(&with_disks(machine, bus, disks)).expect("describes");
        let addresses: Vec<_> = text.lines().map(str::trim).filter(|line| line.starts_with("<address ")).collect();
        let places: std::collections::BTreeSet<_> =
            addresses.iter().map(|line| line.replace(" multifunction=\"on\"", "")).collect();
        assert_eq!(addresses.len(), places.len(), "{machine} {bus:?}");
        let targets: std::collections::BTreeSet<_> =
            text.lines().filter(|line| line.contains("<target dev=")).collect();
        assert_eq!((disks_of(&text).len(), targets.len()), (most + 2, most + 2), "{machine} {bus:?}");
        assert!(
            text.contains(&format!("dev=\"{}\"", target_of(&spec().plan.hardware, 27, &disk("/dev/x", false))))
                || bus != DiskBus::Virtio
        );
    }
    let many = vec![disk("/dev/x", false); 61];
    let error = xml(&with_disks("q35", DiskBus::Virtio, many)).expect_err("too many").to_string();
    assert_eq!(error, "the machine has 61 disks beside its root disk, and there are places for 60");
    assert_eq!(target_of(&spec().plan.hardware, 24, &disk("/dev/x", false)), "vdaa");
}
