//! VM pods with virtual functions, from CNI ADD to the guest's driver and back, by all our programs.

use std::fs;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use proto::cri::{Device, KeyValue};
use serde_json::json;
use tests::case::{Bed, Case};
use tests::command::sh;
use tests::cri;
use tests::http;
use tests::libvirt::only_qemu;
use tests::node::{BOOT_DEADLINE, Node, Vm};
use tests::sriov::Card;
use tests::wait::wait_for;

use super::setup::{self, MAC, claim_of, claims, plugin, tool_error};
use super::traffic::{Function, is_kept_apart};

/// A guest in an emulated node; 60 s alone.
const DEADLINE: Duration = Duration::from_secs(480);
const GRACE: Duration = Duration::from_secs(30);
/// The guest that has a driver for functions.
const GUEST: &str = "tiny-vf.qcow2";

pub(super) const CASES: &[Case] = &[
    Case { name: "sriov::a_pods_function_is_its_vms_and_comes_back", deadline: DEADLINE, run: by_libvirt },
    Case { name: "iommufd::a_pods_function_is_its_vms_and_comes_back", deadline: DEADLINE, run: by_descriptor },
    Case { name: "iommufd::a_vm_has_two_functions_beside_a_tap", deadline: DEADLINE, run: several },
    Case { name: "sriov::a_function_on_vfio_comes_by_its_name", deadline: DEADLINE, run: by_name },
    Case { name: "sriov::a_function_that_host_device_moved_is_its_vms", deadline: DEADLINE, run: moved },
];

/// A VM on the default network and `networks`, whose guest is up.
pub(super) fn boot(bed: &Bed, node: &Node, name: &str, networks: &str) -> Result<Vm> {
    let image = node.pull(bed, GUEST)?;
    let mut pod = node.pod(name)?;
    if !networks.is_empty() {
        pod.annotations.insert("virtlet.cloud/networks".to_owned(), networks.to_owned());
    }
    let vm = node.start_pod(pod, &cri::container(&image, [].into()))?;
    vm.wait_up()?;
    Ok(vm)
}

/// The arguments of the only QEMU.
fn argv() -> Result<String> {
    let words = fs::read(format!("/proc/{}/cmdline", only_qemu()?))?;
    Ok(String::from_utf8_lossy(&words).replace('\0', " "))
}

fn by_libvirt(bed: &Bed) -> Result<()> {
    there_and_back(bed, |argv| argv.contains(r#""driver":"vfio-pci","host":"0000:01:10.0""#))
}

fn by_descriptor(bed: &Bed) -> Result<()> {
    let through = r#""iommufd":"vwiommu","id":"vwnet0","bus":"pcie.0","addr":"0x10""#;
    there_and_back(bed, |argv| argv.contains("\"qom-type\":\"iommufd\"") && argv.contains(through))
}

/// A guest drives the function, with the address that CNI gave, whatever daemon dies meanwhile; and all is as it was.
fn there_and_back(bed: &Bed, is_right: impl Fn(&str) -> bool) -> Result<()> {
    let card = Card::set_up()?;
    sh(&format!("ip address add 10.50.0.1/24 dev {}", card.pf()))?;
    // Else its driver chooses another one each time.
    card.set(0, "mac 02:00:00:00:50:02")?;
    card.bind(0, None)?;
    let mut node = setup::node(bed, &[("fast", plugin(&card, "10.50.0", json!({"mac": MAC})))])?;
    let before = card.snapshot()?;

    let vm = boot(bed, &node, "one", "")?;
    let info = vm.info()?;
    ensure!(info.contains(MAC) && info.contains("igbvf"), "not the function with its address:\n{info}");
    ensure!(is_right(&argv()?), "{}", argv()?);
    // By KVM in the emulated node, with the processor that this has.
    ensure!(argv()?.contains("-accel kvm") && argv()?.contains("-cpu host"), "{}", argv()?);
    ensure!(card.driver(0)?.as_deref() == Some("vfio-pci"), "{:?}", card.driver(0)?);
    let told = card.told(0)?;
    let held = (&told["address"], &told["spoofchk"], &told["trust"]) == (&json!(MAC), &json!(true), &json!(false));
    ensure!(held, "{told}");
    let claim = claim_of(&card, 0)?;
    ensure!(claims()? == 1 && claim.contains("\"in_use\""), "{claim}");

    node.net.tapmanager.kill9()?;
    node.controld.kill9()?;
    vm.info().context("the guest without daemons")?;
    node.net.tapmanager.start_again()?;
    node.net.wait_ready()?;
    node.controld.start_again()?;
    node.wait_ready()?;
    vm.info().context("the guest after a restart of both")?;
    ensure!(claim_of(&card, 0)? == claim, "the claim changed");

    node.remove_vm(&vm, GRACE)?;
    ensure!(claims()? == 0, "{} claims are left", claims()?);
    before.holds(&card.snapshot()?)
}

/// NICs in the order of the networks, all by one descriptor of `/dev/iommu`; the card has the VLAN of each.
fn several(bed: &Bed) -> Result<()> {
    let card = Card::set_up()?;
    for vf in [0, 1] {
        card.set(vf, &format!("mac 02:00:00:00:50:{:02x}", vf + 2))?;
        card.bind(vf, None)?;
    }
    let networks = [
        ("pods", setup::bridge()),
        ("tagged", plugin(&card, "10.51.0", json!({"mac": MAC, "vlan": 100}))),
        ("plain", plugin(&card, "10.52.0", json!({"mac": "02:00:00:00:50:11"}))),
    ];
    let node = setup::node(bed, &networks)?;
    let before = card.snapshot()?;

    let vm = boot(bed, &node, "three", "tagged, plain@fast0")?;
    let info = vm.info().context("by the tap")?;
    for mac in [MAC, "02:00:00:00:50:11"] {
        ensure!(info.contains(mac), "no {mac} in\n{info}");
    }
    // The guest names its links as its drivers load; their places are those of the networks.
    let argv = argv()?;
    for (place, slot) in ["0x10", "0x11", "0x12"].iter().enumerate() {
        let nic = argv.split(&format!(r#""id":"vwnet{place}""#)).nth(1).with_context(|| argv.clone())?;
        ensure!(nic.split('}').next().is_some_and(|rest| rest.contains(slot)), "NIC {place} is not at {slot}: {argv}");
    }
    ensure!(claims()? == 2, "{} claims", claims()?);
    let vlans = [0, 1].map(|vf| card.told(vf).map(|told| told["vlan_list"].to_string()));
    ensure!(matches!(&vlans, [Ok(tagged), Ok(plain)] if tagged.contains("100") && plain == "[{}]"), "{vlans:?}");
    ensure!(argv.matches(r#""qom-type":"iommufd""#).count() == 1, "{argv}");
    let tagged = Function { vlan: 100, subnet: "10.51.0" };
    is_kept_apart(&card, &tagged, &Function { vlan: 0, subnet: "10.52.0" })?;

    node.remove_vm(&vm, GRACE)?;
    ensure!(claims()? == 0, "{} claims are left", claims()?);
    before.holds(&card.snapshot()?)
}

/// By the reference plugin `host-device`, which finds its link's name in the host by its alias when it takes it back.
fn moved(bed: &Bed) -> Result<()> {
    let card = Card::set_up()?;
    sh(&format!("ip address add 10.50.0.1/24 dev {}", card.pf()))?;
    card.set(2, &format!("mac {MAC}"))?;
    card.bind(2, None)?;
    let keys = json!({"type": "host-device", "pciBusID": card.address(2)?});
    let node = setup::node(bed, &[("fast", plugin(&card, "10.50.0", keys))])?;
    let before = card.snapshot()?;

    let vm = boot(bed, &node, "moved", "")?;
    let info = vm.info()?;
    ensure!(info.contains(MAC) && info.contains("igbvf"), "not the function with its address:\n{info}");
    let told = card.told(2)?;
    ensure!((&told["address"], &told["spoofchk"]) == (&json!(MAC), &json!(true)), "{told}");
    node.remove_vm(&vm, GRACE)?;
    ensure!(claims()? == 0, "{} claims are left", claims()?);
    before.holds(&card.snapshot()?)
}

/// A device plugin has bound it, and names it to the network and to the container. Another function is the container's alone, and
/// no network's.
fn by_name(bed: &Bed) -> Result<()> {
    let card = Card::set_up()?;
    card.bind(3, Some("vfio-pci"))?;
    card.bind(5, Some("vfio-pci"))?;
    let (vf, other, alone) = (card.address(3)?, card.address(4)?, card.address(5)?);
    let fast = plugin(&card, "10.50.0", json!({"capabilities": {"deviceID": true}}));
    let node = setup::node(bed, &[("pods", setup::bridge()), ("fast", fast)])?;
    sh(&format!("ip address add 10.50.0.1/24 dev {}", card.pf()))?;
    let before = card.snapshot()?;

    let mut pod = node.pod("named")?;
    let ask = json!([{"name": "fast", "deviceID": vf}]).to_string();
    pod.annotations.insert("virtlet.cloud/networks".to_owned(), ask);
    let image = node.pull(bed, GUEST)?;
    let mut container = cri::container(&image, [].into());
    let node_of = |vf: usize| -> Result<Device> {
        let group = format!("/dev/vfio/{}", card.group(vf)?);
        Ok(Device { host_path: group.clone(), container_path: group, permissions: "mrw".into() })
    };
    container.devices = vec![node_of(3)?, node_of(5)?];
    let variable = |key: &str, value: &str| KeyValue { key: key.into(), value: value.into() };
    let allocated = |vf: &str, alone: &str| {
        vec![variable("PCIDEVICE_EXAMPLE_COM_FAST", vf), variable("PCIDEVICE_EXAMPLE_COM_ALONE", alone)]
    };

    let sandbox = node.cri.run_sandbox(&pod).context("RunPodSandbox")?;
    for (envs, should) in [(allocated(&other, &alone), &vf), (allocated(&vf, &other), &alone)] {
        container.envs = envs;
        let Err(refused) = node.cri.create(&sandbox, &container, &pod) else { bail!("another device than was given") };
        let said = refused.message();
        ensure!(said.contains(should) && said.contains(&other), "not both addresses: {said}");
    }

    container.envs = allocated(&vf, &alone);
    let machine = node.cri.create(&sandbox, &container, &pod).context("CreateContainer")?;
    node.cri.start(&machine).context("StartContainer")?;
    let by_function = "10.50.0.10".parse()?;
    let ask = || Ok(http::get(by_function, "/cgi-bin/info").ok());
    let info = wait_for("HTTP answer by the function", BOOT_DEADLINE, ask)?;
    // Nobody named an address, and the card holds its guest to one nevertheless.
    let laid_down = card.told(3)?["address"].as_str().context("no address")?.to_owned();
    ensure!(laid_down != "00:00:00:00:00:00" && info.contains(&laid_down), "{laid_down}:\n{info}");
    // The other one is behind the NICs, and the guest's driver has it.
    ensure!(info.matches("igbvf").count() == 2, "not both functions:\n{info}");
    let argv = argv()?;
    ensure!(argv.contains(&format!(r#""driver":"vfio-pci","host":"{alone}""#)), "{argv}");
    // What runs keeps its function, whoever asks.
    let kept = tool_error(bed, &["release", &vf, "--force"])?;
    ensure!(kept.contains("is open in a process"), "{kept}");
    ask()?.context("the guest, after its function was asked back")?;
    node.cri.stop(&machine, GRACE)?;
    node.cri.remove(&machine)?;
    node.cri.remove_sandbox(&sandbox)?;
    ensure!(claims()? == 0, "{} claims are left", claims()?);
    before.holds(&card.snapshot()?)
}
