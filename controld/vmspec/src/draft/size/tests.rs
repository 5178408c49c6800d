use super::*;
use crate::MountOptions;
use crate::plan::{Disk, DiskBus, DiskFile, DiskSource, Extras, Firmware, Graphics, Hardware, Serial, Share};

#[derive(Debug, PartialEq, Eq)]
struct Size {
    cpus: Cpus,
    memory: Memory,
}

fn of(wanted: Wanted<'_>, accel: Accelerator, config: &MachineConfig) -> Result<Size> {
    let cpus = cpus(wanted, config)?;
    Ok(Size { cpus, memory: memory(wanted, cpus.boot, Parts::default(), accel, config)? })
}

fn resources(cpu_quota: i64, cpu_period: i64, memory_limit: i64) -> Resources {
    Resources { cpu_quota, cpu_period, memory_limit, ..Resources::default() }
}

#[test]
fn limits_become_vcpus_and_memory() {
    let config = MachineConfig { overhead: Some(50 * MIB), ..MachineConfig::default() };
    let mib = 1_i64 << 20;
    for (quota, period, limit, vcpus_annotated, vcpus, memory_mib) in [
        (0, 0, 0, None, 1, 1024),
        (-1, 100_000, 0, None, 1, 1024),
        (100_000, 100_000, 562 * mib, None, 1, 512),
        (150_000, 100_000, 563 * mib, None, 2, 512),
        (1, 0, 0, None, 1, 1024),
        (400_000, 100_000, 0, Some(3), 3, 1024),
        (i64::MAX, 1, 0, None, 255, 1024),
        (0, 0, -5, Some(2), 2, 1024),
    ] {
        let resources = resources(quota, period, limit);
        let wanted = Wanted { resources: Some(&resources), overhead: 0, vcpus: vcpus_annotated, ..Wanted::default() };
        let size = of(wanted, Accelerator::Kvm, &config).expect("fits");
        assert_eq!((size.cpus.boot, size.memory.boot / MIB), (vcpus, memory_mib), "{quota}/{period} {limit}");
    }
    for (list, vcpus) in [("8-15", 8), ("1", 1), ("0-1,4,6-7", 5), ("", 1), ("x", 1), ("3-1", 1), ("0-70000", 1)] {
        let own = Resources { cpuset_cpus: list.into(), ..resources(-1, 100_000, 0) };
        let wanted = Wanted { resources: Some(&own), ..Wanted::default() };
        assert_eq!(of(wanted, Accelerator::Kvm, &config).expect("fits").cpus.boot, vcpus, "{list}");
        // Those that a node gives to all pods which have none of their own.
        let shared = Resources { cpuset_cpus: list.into(), ..Resources::default() };
        let wanted = Wanted { resources: Some(&shared), ..Wanted::default() };
        assert_eq!(of(wanted, Accelerator::Kvm, &config).expect("fits").cpus.boot, 1, "{list}");
    }
    let nothing = of(Wanted::default(), Accelerator::Kvm, &config).expect("fits");
    assert_eq!(nothing, Size { cpus: Cpus::fixed(1), memory: Memory::fixed(1024 * MIB) });
}

#[test]
fn what_qemu_takes_comes_from_the_pods_overhead_first_and_then_from_the_limit() {
    use Accelerator::{Kvm, Qemu};
    for (limit, overhead, vcpus, accel, set, memory_mib) in [
        // 50 + 8 * vcpus + a 512th of the guest, and 192 under emulation.
        (1024, 0, 1, Kvm, None, 964),
        (1024, 0, 4, Kvm, None, 940),
        (1024, 0, 1, Qemu, None, 772),
        (1024, 40, 1, Kvm, None, 1004),
        (1024, 60, 1, Kvm, None, 1024),
        (1024, 59, 1, Kvm, None, 1022),
        // More than QEMU takes is not for the guest.
        (1024, 512, 1, Kvm, None, 1024),
        // A number takes the formula's place.
        (1024, 0, 4, Qemu, Some(0), 1024),
        (1024, 30, 4, Qemu, Some(100), 954),
    ] {
        let config = MachineConfig { overhead: set.map(|mib: u64| mib * MIB), ..MachineConfig::default() };
        let resources = resources(0, 0, limit << 20);
        let wanted =
            Wanted { resources: Some(&resources), overhead: overhead << 20, vcpus: Some(vcpus), ..Wanted::default() };
        let memory = of(wanted, accel, &config).expect("fits").memory.boot;
        assert_eq!(memory / MIB, memory_mib, "{limit} + {overhead}, {vcpus} vCPUs, {accel}, {set:?}");
        let qemu = QemuPart::of(vcpus, Parts::default(), accel, &config).beside(memory);
        let all = resources.memory_limit.cast_unsigned() + wanted.overhead;
        assert!(memory + qemu <= all, "{limit} + {overhead}: {memory} and {qemu} bytes");
    }
}

#[test]
fn each_part_of_a_machine_takes_its_memory_from_the_guest_when_it_is_made_and_when_it_is_resized() {
    let hardware = Hardware { tpm: true, ..Hardware::default() };
    let uefi = Hardware { firmware: Firmware::Uefi { secure_boot: false }, ..Hardware::default() };
    let screen = Extras { graphics: Some(Graphics::Vnc), ..Extras::default() };
    let share = Some(Share { mounts: Vec::new() });
    let all = Hardware { extras: screen.clone(), ..uefi.clone() };
    let with = |disks: u64, hardware: &Hardware, share: &Option<Share>| MachinePlan {
        disks: (0..disks).map(disk).collect(),
        hardware: hardware.clone(),
        share: share.clone(),
        memory: Memory { boot: 2048 * MIB, max: 4096 * MIB },
        ..plan()
    };
    let none = Hardware::default();
    for (plan, mib) in [
        (with(0, &none, &None), 0),
        (with(1, &none, &None), 8),
        (with(16, &none, &None), 8),
        (with(17, &none, &None), 16),
        (with(0, &none, &share), 8),
        (with(0, &hardware, &None), 24),
        (with(0, &uefi, &None), 24),
        (with(0, &Hardware { tpm: true, ..uefi.clone() }, &None), 24),
        (with(0, &Hardware { extras: screen, ..none.clone() }, &None), 32),
        (with(60, &all, &share), 96),
    ] {
        let parts = Parts::of_plan(&plan);
        assert_eq!(parts.bytes(), mib * MIB, "{parts:?}");
        // 50 + 8 + 2 and the parts, exactly.
        let resources = resources(0, 0, (1024 + 60 + mib.cast_signed()) << 20);
        let wanted = Wanted { resources: Some(&resources), ..Wanted::default() };
        for (config, taken) in [
            (MachineConfig::default(), 60 + mib),
            // A number takes the formula's place.
            (MachineConfig { overhead: Some(0), ..MachineConfig::default() }, 0),
        ] {
            let made = memory(wanted, 1, parts, Accelerator::Kvm, &config).expect("fits").boot;
            assert_eq!(made / MIB, 1084 + mib - taken, "{parts:?}");
            let now = Applied { vcpus: 1, memory: 2048 * MIB };
            let resized = again(&plan, now, 1 << 40, wanted, Accelerator::Kvm, &config).expect("fits");
            assert_eq!(resized.memory, made, "{parts:?}");
        }
    }
}

fn disk(number: u64) -> Disk {
    let file = DiskFile { dir: "/d".into(), size: number, file_system: None };
    Disk {
        name: String::new(),
        serial: Serial::of_name("d"),
        source: DiskSource::File(file),
        path: "/d".into(),
        read_only: false,
        options: MountOptions::default(),
    }
}

#[test]
fn a_machine_with_many_disks_on_pci_has_the_memory_that_it_boots_with() {
    let config = MachineConfig::default();
    let sized = |disks, disk_bus, limit: i64| {
        let parts = Parts::of(&Hardware { disk_bus, ..Hardware::default() }, false, disks);
        let resources = resources(0, 0, limit << 20);
        let wanted = Wanted { resources: Some(&resources), overhead: 64 * MIB, ..Wanted::default() };
        memory(wanted, 1, parts, Accelerator::Kvm, &config).map_err(|refused| refused.to_string())
    };

    let refused = sized(60, DiskBus::Virtio, 300).expect_err("less than it boots with");
    assert_eq!(
        refused,
        "memory limit of 300 MiB and RuntimeClass `overhead.podFixed` of 64 MiB are less than the 565 MiB that QEMU has while a \
         firmware finds 60 disks; raise one of them, or set annotation VirtletDiskDriver: scsi"
    );
    assert!(sized(60, DiskBus::Virtio, 501).is_ok());
    assert!(sized(60, DiskBus::Scsi, 300).is_ok());
    assert!(sized(16, DiskBus::Virtio, 160).is_ok());
}

#[test]
fn too_little_memory_is_refused_with_the_arithmetic() {
    for (set, overhead, wanted) in [
        (
            Some(80),
            0,
            "memory limit of 100 MiB leaves 20 MiB for the guest after 80 MiB for QEMU, of which RuntimeClass \
             `overhead.podFixed` pays 0 MiB, and the least is 64 MiB; raise the limit or `overhead.podFixed`, or set \
             `machine.overhead_mib`",
        ),
        (
            None,
            5,
            "leaves 46 MiB for the guest after 58 MiB for QEMU, of which RuntimeClass `overhead.podFixed` pays 5",
        ),
    ] {
        let config = MachineConfig { overhead: set.map(|mib: u64| mib * MIB), ..MachineConfig::default() };
        let resources = resources(0, 0, 100 << 20);
        let asked = Wanted { resources: Some(&resources), overhead: overhead << 20, vcpus: None, ..Wanted::default() };
        let error = of(asked, Accelerator::Kvm, &config).expect_err("too little");
        assert_eq!(error.kind(), Kind::Invalid);
        assert!(error.to_string().contains(wanted), "{error}");
    }
    let resources = resources(0, 0, 512);
    let asked = Wanted { resources: Some(&resources), ..Wanted::default() };
    let error = of(asked, Accelerator::Kvm, &MachineConfig::default()).expect_err("a number without its unit");
    assert!(error.to_string().starts_with("memory limit of 512 bytes leaves 0 MiB for the guest"), "{error}");
}

#[test]
fn huge_pages_are_all_of_a_guests_memory() {
    let config = MachineConfig { overhead: Some(100 * MIB), ..MachineConfig::default() };
    let pages = HugePages { size: 2 * MIB, bytes: 512 * MIB };
    let handler = MachineDefaults { max_memory: Some(2048 * MIB), ..MachineDefaults::default() };
    let with = |huge_pages, limit: i64| Resources { huge_pages: Some(huge_pages), ..resources(0, 0, limit << 20) };
    for (limit, overhead) in [(0, 0), (100, 0), (40, 60), (900, 0)] {
        let resources = with(pages, limit);
        let wanted = Wanted {
            resources: Some(&resources),
            overhead: overhead * MIB,
            // Meant for pods that can grow.
            handler: Some(&handler),
            ..Wanted::default()
        };
        let size = of(wanted, Accelerator::Kvm, &config).expect("fits");
        assert_eq!(size.memory, Memory::fixed(512 * MIB), "{limit}");
        let error =
            of(Wanted { max_memory: Some(1024 * MIB), ..wanted }, Accelerator::Kvm, &config).expect_err("grows");
        assert!(error.to_string().contains("virtlet.cloud/max-memory"), "{error}");
    }
    for (pages, limit, why) in [
        (pages, 99, "are less than the 100 MiB that QEMU takes beside its guest's huge pages"),
        (HugePages { bytes: 2 * MIB, ..pages }, 0, "2 MiB in huge pages are less than the 64 MiB"),
    ] {
        let resources = with(pages, limit);
        let wanted = Wanted { resources: Some(&resources), ..Wanted::default() };
        let error = of(wanted, Accelerator::Kvm, &config).expect_err("too little");
        assert!(error.to_string().contains(why), "{error}");
    }
    let plan = MachinePlan { huge_page: Some(2 * MIB), memory: Memory::fixed(512 * MIB), ..plan() };
    let now = Applied { vcpus: 1, memory: 512 * MIB };
    let again = |resources: &Resources, plan: &MachinePlan| {
        let wanted = Wanted { resources: Some(resources), ..Wanted::default() };
        again(plan, now, 100 << 20, wanted, Accelerator::Kvm, &config)
    };
    assert_eq!(again(&with(pages, 200), &plan).expect("the limit is QEMU's"), now);
    for (resources, plan) in [
        (with(HugePages { bytes: 1024 * MIB, ..pages }, 200), &plan),
        (with(HugePages { size: 1 << 30, ..pages }, 200), &plan),
        (with(pages, 200), &self::plan()),
    ] {
        let error = again(&resources, plan).expect_err("it has others");
        assert!(error.to_string().contains("huge pages of a running machine cannot be changed"), "{error}");
    }
}

#[test]
fn no_limit_is_too_large_to_reckon_with() {
    let resources = resources(0, 0, i64::MAX);
    for set in [None, Some(u64::MAX)] {
        let config = MachineConfig { overhead: set, ..MachineConfig::default() };
        let wanted = Wanted { resources: Some(&resources), overhead: u64::MAX, vcpus: None, ..Wanted::default() };
        // What matters is that it ends: with a size or with a refusal.
        assert_eq!(of(wanted, Accelerator::Qemu, &config).is_ok(), set.is_none(), "{set:?}");
    }
}

#[test]
fn a_handler_gives_the_size_that_nothing_else_says() {
    let node = MachineConfig { overhead: Some(100 * MIB), ..MachineConfig::default() };
    let lab = MachineDefaults {
        default_vcpus: Some(2),
        max_vcpus: Some(4),
        default_memory: Some(513 * MIB),
        max_memory: Some(1025 * MIB),
        ..MachineDefaults::default()
    };
    let limits = resources(600_000, 100_000, 2100 << 20);
    let small = MachineDefaults { max_vcpus: None, max_memory: None, ..lab.clone() };
    for (handler, resources, max_vcpus, cpus, memory_mib) in [
        (Some(&lab), None, None, (2, 4), (513, 1024)),
        (Some(&small), None, None, (2, 2), (513, 513)),
        (None, None, None, (1, 1), (1024, 1024)),
        // What the pod says counts, and is not held to the most of its handler.
        (Some(&lab), Some(&limits), None, (6, 6), (2000, 2000)),
        (Some(&lab), None, Some(3), (2, 3), (513, 1024)),
    ] {
        let wanted = Wanted { resources, max_vcpus, handler, ..Wanted::default() };
        let size = of(wanted, Accelerator::Kvm, &node).expect("fits");
        assert_eq!((size.cpus.boot, size.cpus.max), cpus);
        assert_eq!((size.memory.boot / MIB, size.memory.max / MIB), memory_mib);
    }
}

fn plan() -> MachinePlan {
    let root = crate::plan::RootDisk { overlay: "/r".into(), images: Vec::new(), persistent: None, volume: None };
    MachinePlan {
        passed: Default::default(),
        guest: crate::plan::Guest::default(),
        share: None,
        disks: Vec::new(),
        id: crate::MachineId::from(uuid::Uuid::nil()),
        domain: "vm".into(),
        cpus: Cpus { boot: 1, max: 3 },
        memory: Memory { boot: 400 * MIB, max: 800 * MIB },
        hardware: Hardware::default(),
        root,
        huge_page: None,
        smbios: None,
        cgroup: None,
    }
}

#[test]
fn a_running_machine_has_what_it_can_be_given() {
    let config = MachineConfig { overhead: Some(100 * MIB), ..MachineConfig::default() };
    let now = Applied { vcpus: 2, memory: 400 * MIB };
    let before = 500 << 20;
    for (quota, limit_mib, vcpus, memory_mib) in [
        (0, 0, 2, 400),
        // The quota holds a machine with more vCPUs.
        (50_000, 500, 2, 400),
        (300_000, 500, 3, 400),
        (0, 900, 2, 800),
        (0, 300, 2, 200),
    ] {
        let resources = resources(quota, 100_000, limit_mib << 20);
        let wanted = Wanted { resources: Some(&resources), ..Wanted::default() };
        let size = again(&plan(), now, before, wanted, Accelerator::Kvm, &config).expect("fits");
        assert_eq!((size.vcpus, size.memory / MIB), (vcpus, memory_mib), "{quota} {limit_mib}");
    }
    let first = resources(0, 100_000, 4000 << 20);
    let wanted = Wanted { resources: Some(&first), ..Wanted::default() };
    let size = again(&plan(), now, 0, wanted, Accelerator::Kvm, &config).expect("a limit where there was none");
    assert_eq!(size, now);
    for (quota, limit_mib, why) in [
        (400_000, 0, "4 vCPUs are more than the 3 that the running machine can be given"),
        (0, 1000, "900 MiB of guest memory are more than the 800 MiB"),
        (0, 120, "leaves 20 MiB for the guest"),
    ] {
        let resources = resources(quota, 100_000, limit_mib << 20);
        let wanted = Wanted { resources: Some(&resources), ..Wanted::default() };
        let error = again(&plan(), now, before, wanted, Accelerator::Kvm, &config).expect_err("too much");
        assert!(error.to_string().contains(why), "{error}");
    }
}

#[test]
fn the_most_of_a_machine_is_not_below_what_it_boots_with() {
    let resources = resources(200_000, 100_000, 500 << 20);
    let config = MachineConfig { overhead: Some(100 * MIB), ..MachineConfig::default() };
    let wanted = |max_vcpus, max_memory| Wanted {
        resources: Some(&resources),
        max_vcpus: Some(max_vcpus),
        max_memory: Some(max_memory),
        ..Wanted::default()
    };
    let size = of(wanted(4, 1 << 30), Accelerator::Kvm, &config).expect("fits");
    let all = (Cpus { boot: 2, max: 4 }, Memory { boot: 400 * MIB, max: 1 << 30 });
    assert_eq!((size.cpus, size.memory), all);
    for (max_vcpus, max_memory, why) in [
        (1, 1 << 30, "annotation virtlet.cloud/max-vcpus: 1 is below what the machine boots with, 2 vCPUs"),
        (2, 1 << 20, "annotation virtlet.cloud/max-memory: 0 is below"),
    ] {
        let error = of(wanted(max_vcpus, max_memory), Accelerator::Kvm, &config).expect_err("too little");
        assert!(error.to_string().contains(why), "{error}");
    }
}

#[test]
fn a_limit_is_found_that_gives_a_guest_what_it_is_to_have() {
    for (mib, vcpus, disks, uefi, overhead) in [
        (128, 1, 0, false, 128),
        (977, 1, 2, true, 128),
        (1024, 2, 0, false, 0),
        (65_536, 16, 20, true, 128),
        (1 << 20, 255, 3, false, 64),
    ] {
        let config = MachineConfig::default();
        let guest = Guest { memory: mib * MIB, vcpus, disks, uefi };
        let (gets, limit) = guest.limit(overhead * MIB);
        assert!((mib * MIB..mib * MIB + GRAIN).contains(&gets), "{gets}");
        let limited = resources(0, 0, i64::try_from(limit).expect("fits"));
        let wanted = Wanted { resources: Some(&limited), overhead: overhead * MIB, ..Wanted::default() };
        let parts = Parts { disks, on_pci: disks, firmware: uefi, ..Parts::default() };
        let has = memory(wanted, vcpus, parts, Accelerator::Kvm, &config).expect("fits");
        assert_eq!(has, Memory::fixed(gets), "{guest:?} {overhead}");
        let pages = HugePages { size: GRAIN, bytes: gets };
        let beside = i64::try_from(Guest { memory: gets, ..guest }.limit_beside()).expect("fits");
        let in_pages = Resources { huge_pages: Some(pages), ..resources(0, 0, beside) };
        let wanted = Wanted { resources: Some(&in_pages), ..Wanted::default() };
        let has = memory(wanted, vcpus, parts, Accelerator::Kvm, &config).expect("fits");
        assert_eq!(has, Memory::fixed(gets), "in huge pages");
    }
    let most = Guest { memory: u64::MAX, vcpus: u16::MAX, disks: 64, uefi: true };
    assert!(most.limit(0).1 >= most.limit(u64::MAX).1, "no overflow");
}
