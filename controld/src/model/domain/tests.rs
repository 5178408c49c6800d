use super::*;
use crate::model::MachineId;
use crate::model::plan::{Cpus, Layer, Memory, RootDisk};

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
            nic_slots: vec![0x10, 0x11],
            deadline: Duration::from_secs(10),
        },
        seed: Some("/run/virtlet/seed/x.iso".into()),
        console_socket: "/run/virtlet/console/x.sock".into(),
        agent_socket: "/run/virtlet/console/x.agent".into(),
        console_log: "/var/lib/virtlet/console/x/serial.log".into(),
        pvpanic_pci: true,
    }
}

fn plan() -> MachinePlan {
    MachinePlan {
        id: MachineId::from(Uuid::from_u128(0x0011_2233_4455_6677_8899_aabb_ccdd_eeff)),
        domain: "virtlet-0011223344556-main".into(),
        cpus: Cpus::fixed(2),
        memory: Memory::fixed(256 << 20),
        root: RootDisk {
            overlay: "/var/lib/virtlet/volumes/uid-1/root.qcow2".into(),
            images: vec![layer("00ff", "qcow2")],
        },
        smbios: None,
        cgroup: None,
    }
}

#[test]
fn an_emulated_machine() {
    insta::assert_snapshot!(xml(&spec()).expect("describes"));
}

#[test]
fn a_libvirt_without_the_panic_device_of_pci_gets_the_other() {
    let text = xml(&DomainSpec { pvpanic_pci: false, ..spec() }).expect("describes");
    assert!(text.contains("<panic model=\"isa\"/>") && !text.contains("pvpanic"), "{text}");
}

#[test]
fn a_machine_with_kvm_a_uuid_of_its_own_and_no_seed() {
    let plan = MachinePlan { smbios: Some(Uuid::from_u128(9)), ..plan() };
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
fn a_restarted_container_is_the_same_machine_to_its_guest() {
    let plan = MachinePlan { id: MachineId::from(Uuid::from_u128(99)), ..plan() };
    let restarted = DomainSpec { plan, ..spec() };
    assert_eq!(restarted.smbios_uuid(), spec().smbios_uuid());
    assert_ne!(DomainSpec { pod_uid: "uid-2".into(), ..spec() }.smbios_uuid(), spec().smbios_uuid());
}

#[test]
fn no_two_devices_share_an_address_and_the_nics_slots_are_free() {
    let text = xml(&spec()).expect("describes");
    let mut addresses: Vec<&str> =
        text.lines().filter(|line| line.contains("type=\"pci\" domain")).map(str::trim).collect();
    assert_eq!(addresses.len(), 9, "every device has one");
    addresses.sort_unstable();
    addresses.dedup();
    assert_eq!(addresses.len(), 9, "no two are the same");
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
fn machine_names_are_short_and_plain() {
    let id = Uuid::from_u128(0x0011_2233_4455_6677_8899_aabb_ccdd_eeff);
    assert_eq!(name(id, "main"), "virtlet-0011223344556-main");
    assert_eq!(name(id, "My_App/../x\u{e9}"), "virtlet-0011223344556-my-app----x-");
    assert_eq!(name(id, &"a".repeat(100)).len(), 8 + 13 + 1 + 24);
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
