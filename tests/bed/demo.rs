//! The whole chain once, in view: a pod's machine through the CRI socket, its address, its answer, its console, and
//! nothing left of it.
#![expect(clippy::print_stdout, reason = "it is shown")]

use std::fs;
use std::time::{Duration, Instant};

use anyhow::Result;
use tests::case::Bed;
use tests::cri;
use tests::image_server::Fault;
use tests::node::{BOOT_DEADLINE, Node, SHUTDOWN};
use tests::world::World;

pub(crate) const DEADLINE: Duration = Duration::from_secs(480);
const GRACE: Duration = Duration::from_secs(30);
const LAST_LINES: usize = 8;

/// Runs inside a cell.
pub(crate) fn run(bed: &Bed) -> Result<()> {
    step("starting virtlogd, libvirtd, tapmanager and controld in namespaces of their own");
    let node = Node::start(bed)?;
    let before = World::look()?;

    let image = node.images.offer("tiny.qcow2", &bed.config.guest("tiny.qcow2")?, Fault::None);
    step(&format!("PullImage {image}"));
    println!("    {}", node.cri.pull(&image)?);
    step("RunPodSandbox, CreateContainer, StartContainer");
    let started = Instant::now();
    let vm = node.start_pod(node.pod("demo")?, &cri::container(&image, [].into()))?;
    println!("    sandbox {}, container {}, {} ms", vm.sandbox, vm.container, started.elapsed().as_millis());
    println!("    pod IP {}", vm.ip);
    vm.wait_up()?;
    step(&format!("http://{}/cgi-bin/info, {:.1} s after the request", vm.ip, started.elapsed().as_secs_f32()));
    indented(vm.info()?.lines());

    step("StopContainer: the power button");
    node.cri.stop(&vm.container, SHUTDOWN)?;
    let status = node.cri.container(&vm.container)?;
    println!("    {} with exit code {}", status.reason, status.exit_code);
    vm.wait_log("tiny: stopping", BOOT_DEADLINE)?;
    step("last lines of the console, from the CRI log");
    let log = vm.log_text()?;
    let lines: Vec<&str> = log.lines().collect();
    indented(lines.iter().skip(lines.len().saturating_sub(LAST_LINES)).copied());

    step("RemoveContainer, StopPodSandbox, RemovePodSandbox, RemoveImage");
    node.remove_vm(&vm, GRACE)?;
    node.cri.remove_image(&image)?;
    fs::remove_dir_all(&vm.pod.log_directory)?;
    before.assert_same()?;
    step(
        "nothing is left: namespaces, links, taps, firewall rules, domains, files, processes and cgroups are as before",
    );
    Ok(())
}

fn step(what: &str) {
    println!("==> {what}");
}

fn indented<'a>(lines: impl Iterator<Item = &'a str>) {
    for line in lines {
        println!("    {line}");
    }
}
