//! A guest that is signed from its first loader to its kernel, as those of distributions are, on firmware that starts nothing else.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Result;
use proto::cri::LinuxContainerResources;
use tests::case::Bed;
use tests::command::{command, run};
use tests::cri;
use tests::image_server::Fault;
use tests::node::{BOOT_DEADLINE, Node};

use super::FIRMWARE;

/// Whose signed GRUB looks there for what to do. Not quiet: the kernel tells of its lockdown as of other things.
const GRUB: &str =
    "linux /vmlinuz console=ttyS0,115200n8 no_timer_check mitigations=off random.trust_cpu=on\ninitrd /initrd\nboot\n";
/// What GRUB needs beside a firmware with System Management Mode to load a kernel.
const MEMORY: i64 = 512 << 20;
/// Makes a disk `$1` of one file system that the firmware reads, of shim `$2`, GRUB `$3`, its configuration `$4`, kernel `$5` and initrd `$6`.
const DISK: &str = "set -o pipefail; export MTOOLS_SKIP_CHECK=1
truncate -s 50M $1.raw
echo start=2048, size=98304, type=ef | sfdisk -q -X dos $1.raw
mformat -i $1.raw@@1M -T 98304 -h 64 -s 32 ::
mmd -i $1.raw@@1M ::/EFI ::/EFI/BOOT ::/EFI/debian
mcopy -i $1.raw@@1M $2 ::/EFI/BOOT/BOOTX64.EFI
mcopy -i $1.raw@@1M $3 ::/EFI/BOOT/grubx64.efi
mcopy -i $1.raw@@1M $4 ::/EFI/debian/grub.cfg
mcopy -i $1.raw@@1M $5 ::/vmlinuz
mcopy -i $1.raw@@1M $6 ::/initrd
qemu-img convert -O qcow2 $1.raw $1";

pub(super) fn boots(bed: &Bed) -> Result<()> {
    let node = Node::configured(bed, FIRMWARE)?;
    let image = node.images.offer("signed.qcow2", &disk(bed)?, Fault::None);
    node.cri.pull(&image)?;
    let mut container = cri::container(&image, [].into());
    let resources = LinuxContainerResources { memory_limit_in_bytes: MEMORY, ..Default::default() };
    container.linux.get_or_insert_default().resources = Some(resources);
    let pod = node.pod("signed")?;
    let vm = node.start_in(&node.cri.run_sandbox_for(&pod, "secure")?, &container, &pod)?;
    for line in [
        "secureboot: Secure boot enabled",
        "Kernel is locked down from EFI Secure Boot",
        // The tiny guest's modules are without their signatures.
        "Loading of unsigned module is rejected",
        "tiny: ready",
    ] {
        vm.wait_log(line, BOOT_DEADLINE)?;
    }
    node.remove_vm(&vm, Duration::ZERO)
}

fn disk(bed: &Bed) -> Result<PathBuf> {
    let (image, grub) = (bed.dir.join("signed.qcow2"), bed.dir.join("grub.cfg"));
    fs::write(&grub, GRUB)?;
    let guest = |name| bed.config.guest(name);
    let files =
        [image.clone(), guest("shim.efi")?, guest("grub.efi")?, grub, guest("tiny.vmlinuz")?, guest("tiny.initrd")?];
    let words = ["-ec", DISK, "disk"].map(PathBuf::from).into_iter().chain(files);
    run(&mut command("bash", words))?;
    Ok(image)
}
