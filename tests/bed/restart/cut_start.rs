//! libvirtd dies between its first record of a machine and QEMU's start: the next one takes it for a start that goes on, for ever.

use std::fs;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use proto::cri::{ContainerConfig, ContainerState, Mount};
use tests::case::{Bed, Case};
use tests::cri;
use tests::libvirt::{domains, running_domains, virtiofsds};
use tests::node::{Node, user_data};
use tests::wait::wait_until;

use super::{DEADLINE, GRACE};

pub(super) const CASES: &[Case] =
    &[Case { name: "restart::a_start_that_libvirtds_death_cuts_off", deadline: DEADLINE, run: cut_off }];

/// The container has ended, and the pod gets another one, though libvirt lists the machine until it is restarted.
fn cut_off(bed: &Bed) -> Result<()> {
    let mut node = Node::configured(bed, "handlers.virtlet.guest_agent = true")?;
    let volume = bed.dir.join("volume");
    fs::create_dir(&volume)?;
    let host_path = volume.display().to_string();
    let mounts = vec![Mount { host_path, container_path: "/volume".into(), ..Mount::default() }];
    let container = ContainerConfig { mounts, ..cri::container(&node.pull(bed, "tiny.qcow2")?, user_data("")) };
    let vm = node.start_pod(node.pod("cut")?, &container)?;
    let name = running_domains()?.concat();
    die_amid_the_start_of(&mut node, &name)?;
    node.wait_ready()?;
    node.wait_state(&vm, ContainerState::ContainerExited, GRACE)?;
    wait_until("end of virtiofsd", GRACE, || virtiofsds().is_ok_and(|all| all.is_empty()))?;
    node.cri.stop(&vm.container, Duration::ZERO)?;

    let mut next = container;
    next.metadata.get_or_insert_default().attempt = 1;
    next.log_path = "next.log".into();
    let next = node.start_in(&vm.sandbox, &next, &vm.pod)?;
    next.wait_up()?;
    ensure!(running_domains()?.len() == 2, "libvirt has given up the start: {:?}", running_domains()?);

    // Another controld knows it as well, with its record and without.
    node.restart_controld()?;
    node.wait_state(&vm, ContainerState::ContainerExited, GRACE)?;
    node.cri.remove(&vm.container)?;
    node.restart_controld()?;
    ensure!(node.owners_known()?, "what libvirt waits for is taken for a machine of unknown owner");
    ensure!(domains()?.contains(&name), "{name}: {:?}", domains()?);

    node.libvirt.libvirtd.kill9()?;
    node.libvirt.libvirtd.start_again()?;
    node.libvirt.wait_ready()?;
    node.wait_ready()?;
    wait_until("end of the machine that was none", GRACE, || domains().is_ok_and(|all| !all.contains(&name)))?;
    ensure!(node.owners_known()?, "it is taken for a machine of unknown owner");
    next.info().context("the next guest")?;
    node.remove_vm(&next, GRACE)?;
    let left: Vec<_> =
        fs::read_dir("/run/libvirt/qemu")?.filter_map(|entry| entry.ok()?.file_name().into_string().ok()).collect();
    ensure!(!left.iter().any(|file| file.contains(&name)), "{left:?}");
    Ok(())
}

/// Kills libvirtd and the QEMU of `domain`, and starts libvirtd again as if it had died in the moment in question, which is too
/// short to be met: what it leaves is written here. virtiofsd is stopped before: it would end with its QEMU, and the one in question never
/// had any.
fn die_amid_the_start_of(node: &mut Node, domain: &str) -> Result<()> {
    let [status, pid] = ["xml", "pid"].map(|end| format!("/run/libvirt/qemu/{domain}.{end}"));
    let qemu = fs::read_to_string(&pid)?;
    node.libvirt.libvirtd.kill9()?;
    let waiting = virtiofsds()?;
    ensure!(!waiting.is_empty(), "no virtiofsd runs");
    for pid in waiting {
        kill(Pid::from_raw(pid), Signal::SIGSTOP)?;
    }
    kill(Pid::from_raw(qemu.trim().parse()?), Signal::SIGKILL)?;
    fs::remove_file(&pid)?;
    let lines = fs::read_to_string(&status)?;
    let lines = lines.lines().filter(|line| !line.starts_with("  <job ")).map(|line| match line {
        line if line.starts_with("<domstatus ") => {
            "<domstatus state='paused' reason='starting up' pid='0'>\n\
             <job type='none' async='start' phase='none' flags='0x0'/>"
        }
        line => line,
    });
    fs::write(&status, lines.collect::<Vec<_>>().join("\n"))?;
    node.libvirt.libvirtd.start_again()?;
    node.libvirt.wait_ready()
}
