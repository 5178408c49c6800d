//! Runtime handlers: the machines of their pods, and how long they stay so.

mod browser;
mod extras;
mod signed;

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use proto::cri::{ContainerConfig, PodSandboxConfig};
use tests::case::{Bed, Case};
use tests::command::sh;
use tests::cri;
use tests::emulator::of_one_thread;
use tests::image_server::Fault;
use tests::libvirt::virsh;
use tests::net_node::latest_record;
use tests::node::{self, BOOT_DEADLINE, Node, Vm, user_data};

use super::checkpoint;
use super::seeds::again;

const DEADLINE: Duration = Duration::from_secs(480);
const LAB: &str = "[handlers.lab]\nmachine = 'pc'\ncpu_model = 'Opteron_G2'\ndisk_bus = 'scsi'\ndata_path = 'bridge'\n\
                   default_vcpus = 2\n[handlers.future]\nmachine = 'pc-q35-99'\n";
/// Tells on the console what the guest finds itself on.
const TELL: &str =
    "#!/bin/sh\ngrep -m1 'model name' /proc/cpuinfo >/dev/console\nls /sys/block | xargs echo on >/dev/console\n";

const FIRMWARE: &str =
    "[handlers.uefi]\nfirmware = 'uefi'\ntpm = true\n[handlers.secure]\nfirmware = 'uefi'\nsecure_boot = true\n";
/// What UEFI's shell does with a disk that has no loader: it starts the kernel.
const STARTUP: &str =
    "\\vmlinuz initrd=\\initrd console=ttyS0,115200n8 quiet no_timer_check mitigations=off random.trust_cpu=on\r\n";
const TELL_FIRMWARE: &str = "#!/bin/sh\n[ -d /sys/firmware/efi ] && echo booted by UEFI, TPM $(cat /sys/class/tpm/tpm0/tpm_version_major) >/dev/console\n";
/// Where libvirt keeps the state of TPMs.
const SWTPM: &str = "/var/lib/libvirt/swtpm";
/// Where the disks of pods are, each pod's in a folder of its UID.
const VOLUMES: &str = "/var/lib/virtlet/volumes";
/// A machine type that is not the newest of any QEMU that the bed has.
const OLD_TYPE: &str = "pc-q35-6.2";

pub(super) const CASES: &[Case] = &[
    Case { name: "vm::a_machine_is_as_its_handler_says", deadline: DEADLINE, run: as_its_handler_says },
    Case { name: "vm::a_handler_adds_a_screen_and_decides_what_pods_may_say", deadline: DEADLINE, run: extras::adds },
    Case { name: "vm::a_page_in_a_browser_has_screen_and_console", deadline: DEADLINE, run: browser::shows },
    Case { name: "vm::a_guest_boots_by_uefi", deadline: DEADLINE, run: boots_by_uefi },
    Case { name: "vm::a_signed_guest_boots_securely", deadline: DEADLINE, run: signed::boots },
    Case {
        name: "vm::a_pod_keeps_its_machine_type_while_the_emulator_has_it",
        deadline: DEADLINE,
        run: keeps_its_type,
    },
];

fn as_its_handler_says(bed: &Bed) -> Result<()> {
    let mut node = Node::configured(bed, &(of_one_thread(bed)? + LAB))?;
    let image = node.pull(bed, "tiny.qcow2")?;
    let told = node.crictl(&["info"])?;
    for word in ["lab", "pc-q35-99", "Opteron_G2"] {
        ensure!(told.stdout.contains(word), "no {word}: {told:?}");
    }

    let pod = node.pod("future")?;
    let sandbox = node.cri.run_sandbox_for(&pod, "future")?;
    let refused = node.cri.create(&sandbox, &cri::container(&image, [].into()), &pod).err().context("created")?;
    for words in ["runtime handler `future`", "machine type `pc-q35-99`", "there is pc-q35-"] {
        ensure!(refused.message().contains(words), "{refused}");
    }
    node.cri.remove_sandbox(&sandbox)?;

    // What a container was created as it stays, whatever becomes of its handler until it starts.
    let lab = create(&node, "lab", &image, TELL, &[])?;
    let sata = [("VirtletDiskDriver", "sata")];
    let other = create(&node, "", &image, TELL, &sata)?;
    node.controld.terminate()?;
    let changed = LAB.replace("'pc'", "'q35'").replace("'scsi'", "'virtio'").replace("Opteron_G2", "qemu64");
    fs::write("/etc/virtlet/controld.toml", node::config(bed, &changed))?;
    node.controld.start_again()?;
    node.wait_ready()?;
    node.cri.start(&lab.container)?;
    node.cri.start(&other.container)?;
    let machine = ensure_machine(&lab, "pc-i440fx-", &["<model fallback='forbid'>Opteron_G2</model>", "bus='scsi'"])?;
    ensure_machine(&other, "pc-q35-", &["<cpu mode='maximum'", "bus='sata'"])?;
    let record = latest_record(&lab.sandbox)?;
    ensure!(record.to_string().contains(r#""data_path":"bridge""#), "{record}");
    lab.wait_up()?;
    ensure!(lab.info()?.contains("cpus 2") && lab.info()?.contains("seed nocloud"), "{}", lab.info()?);
    lab.wait_log("Opteron 22xx", BOOT_DEADLINE)?;
    lab.wait_log("on sda sdb", BOOT_DEADLINE)?;
    // The tiny guest's kernel has no driver for AHCI; its firmware has, and has found the kernel.
    other.wait_up()?;

    // A restart of controld costs no machine anything.
    node.restart_controld()?;
    ensure!(ensure_machine(&lab, "pc-i440fx-", &["Opteron_G2"])? == machine, "another machine");
    node.remove_vm(&lab, Duration::ZERO)?;
    node.remove_vm(&other, Duration::ZERO)
}

/// An update of QEMU is a note of an older one: QEMU has the machine types of many releases.
fn keeps_its_type(bed: &Bed) -> Result<()> {
    let node = Node::start(bed)?;
    let image = node.pull(bed, "tiny.qcow2")?;
    let container = cri::container(&image, [].into());
    let vm = node.start_pod(node.pod("typed")?, &container)?;
    let newest = ensure_machine(&vm, "pc-q35-", &[])?;
    let note = Path::new(VOLUMES).join(&vm.pod.metadata.as_ref().context("no name")?.uid).join("machine.json");
    let noted = fs::read_to_string(&note).with_context(|| note.display().to_string())?;
    ensure!(noted == format!(r#"{{"version":1,"asked":"q35","machine":"{newest}"}}"#), "{noted}");
    ensure!(newest != OLD_TYPE, "there is no newer type than {OLD_TYPE}");

    fs::write(&note, noted.replace(&newest, OLD_TYPE))?;
    let vm = again(&node, &vm, &container, 1)?;
    ensure!(ensure_machine(&vm, "pc-q35-", &[])? == OLD_TYPE, "not the pod's own");
    vm.wait_up()?;

    // One that is not there any more, and one of another chipset than the handler's.
    for (attempt, lost) in [(2, noted.replace(&newest, "pc-q35-1.99")), (3, noted.replace(r#""q35""#, r#""pc""#))] {
        fs::write(&note, lost.replace(&newest, OLD_TYPE))?;
        let vm = again(&node, &vm, &container, attempt)?;
        ensure!(ensure_machine(&vm, "pc-q35-", &[])? == newest, "{lost}");
        ensure!(fs::read_to_string(&note)? == noted, "{}", fs::read_to_string(&note)?);
        node.cri.stop(&vm.container, Duration::ZERO)?;
    }
    node.cri.remove_sandbox(&vm.sandbox)?;
    ensure!(!note.exists(), "{} is left", note.display());
    Ok(())
}

fn boots_by_uefi(bed: &Bed) -> Result<()> {
    let node = Node::configured(bed, FIRMWARE)?;
    let image = node.images.offer("uefi.qcow2", &for_uefi(bed)?, Fault::None);
    node.cri.pull(&image)?;
    let uefi = create(&node, "uefi", &image, TELL_FIRMWARE, &[])?;
    let secure = create(&node, "secure", &image, "", &[])?;
    for (vm, word) in [(&uefi, "<loader readonly='yes' type='pflash'"), (&secure, "secure='yes'")] {
        node.cri.start(&vm.container)?;
        let variables = variables_of(vm)?;
        ensure!(variables.metadata()?.mode() & 0o077 == 0, "{} is open to others", variables.display());
        let kept = format!("{}</nvram>", variables.display());
        ensure_machine(vm, "pc-q35-", &["<os firmware='efi'>", word, &kept])?;
    }
    // What is not signed does not start: neither a shell nor the kernel.
    uefi.wait_up()?;
    uefi.wait_log("booted by UEFI, TPM 2", BOOT_DEADLINE)?;
    ensure!(secure.info().is_err(), "an unsigned loader was started");
    checkpoint::is_refused(bed, &node, &uefi, "it has a TPM")?;
    checkpoint::is_made(bed, &node, &secure, &["manifest.json", "memory", "root.qcow2", "uefi.fd"])?;
    node.cri.stop(&uefi.container, Duration::ZERO)?;
    node.cri.remove(&uefi.container)?;
    let variables = variables_of(&uefi)?;
    let remembered = fs::read(&variables)?;
    let mut container = cri::container(&image, user_data(TELL_FIRMWARE));
    container.metadata.get_or_insert_default().attempt = 1;
    let id = node.cri.create(&uefi.sandbox, &container, &uefi.pod)?;
    ensure!(fs::read(&variables)? == remembered, "the pod's UEFI variables are not those that its first VM left");
    node.cri.start(&id)?;
    let uefi = Vm { machine: node.cri.machine(&id)?, container: id, ..uefi };
    uefi.wait_up()?;
    node.remove_vm(&uefi, Duration::ZERO)?;
    node.remove_vm(&secure, Duration::ZERO)?;
    ensure!(!variables.exists(), "{} is left", variables.display());
    let left = fs::read_dir(SWTPM)?.count();
    ensure!(left == 0, "{left} files are left in {SWTPM}");
    Ok(())
}

fn variables_of(vm: &Vm) -> Result<PathBuf> {
    Ok(Path::new(VOLUMES).join(&vm.pod.metadata.as_ref().context("no name")?.uid).join("uefi.fd"))
}

/// The tiny guest's image, whose kernel UEFI finds.
fn for_uefi(bed: &Bed) -> Result<PathBuf> {
    let [raw, script, image] = ["uefi.raw", "startup.nsh", "uefi.qcow2"].map(|name| bed.dir.join(name));
    fs::write(&script, STARTUP)?;
    let tiny = bed.config.guest("tiny.qcow2")?;
    sh(&format!("qemu-img convert -O raw {} {}", tiny.display(), raw.display()))?;
    // The file system of its loader is at 1 MiB.
    let mcopy = format!("mcopy -i {}@@1M {} ::/startup.nsh", raw.display(), script.display());
    sh(&format!("env MTOOLS_SKIP_CHECK=1 {mcopy}"))?;
    sh(&format!("qemu-img convert -O qcow2 {} {}", raw.display(), image.display()))?;
    Ok(image)
}

/// A container of a handler's pod that is not started.
fn create(node: &Node, handler: &str, image: &str, script: &str, more: &[(&str, &str)]) -> Result<Vm> {
    create_with(node, handler, cri::container(image, user_data(script)), more)
}

/// The same of a container that has volumes.
fn create_with(node: &Node, handler: &str, mut container: ContainerConfig, more: &[(&str, &str)]) -> Result<Vm> {
    container.annotations.extend(more.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())));
    let annotations = container.annotations.clone();
    let name = if handler.is_empty() { "plain" } else { handler };
    let pod = PodSandboxConfig { annotations, ..node.pod(name)? };
    let sandbox = node.cri.run_sandbox_for(&pod, handler)?;
    let id = node.cri.create(&sandbox, &container, &pod)?;
    let ip = node.cri.sandbox(&sandbox)?.network.context("a sandbox without a network")?.ip.parse()?;
    let log = Path::new(&pod.log_directory).join(&container.log_path);
    let machine = node.cri.machine(&id)?;
    Ok(Vm { sandbox, container: id, machine, ip, log, pod })
}

/// The machine type of a VM that runs, with its version.
fn ensure_machine(vm: &Vm, begins: &str, parts: &[&str]) -> Result<String> {
    let domain = vm.domain()?;
    let xml = virsh(&format!("dumpxml {domain}"))?;
    let machine = xml.split("machine='").nth(1).and_then(|rest| rest.split('\'').next()).context("no machine type")?;
    let version = machine.strip_prefix(begins).with_context(|| format!("{machine} is no {begins}"))?;
    ensure!(version.starts_with(|c: char| c.is_ascii_digit()), "{machine} has no version");
    for part in parts {
        ensure!(xml.contains(part), "no {part} in {xml}");
    }
    Ok(machine.to_owned())
}
