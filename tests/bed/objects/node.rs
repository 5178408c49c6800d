//! KubeVirt's objects on a real node: a VirtualMachine that kubectl applies boots, is looked into, powered off, started, stopped, restarted
//! and deleted, all by requests that kubectl and virtctl send, while everything that looks after it is killed in turn; and a set of them that
//! an autoscaler has grown. What its pod does not say of it the node tells, and may tell nothing else.
//!
//! With `VIRTLET_VIRTCTL=PATH` in the environment, KubeVirt's own virtctl there is run against the same VM, too: see `virtctl`.

use std::net::IpAddr;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use tests::agent_image::tiny_with_agent;
use tests::case::{Bed, Case};
use tests::command::{TOOL_DEADLINE, finish};
use tests::controllers::Controllers;
use tests::daemon::Daemon;
use tests::emulator::of_one_thread;
use tests::http;
use tests::image_server::Fault;
use tests::kubelet::Kubelet;
use tests::metrics_server::MetricsServer;
use tests::node::BOOT_DEADLINE;
use tests::subresources_server::NAME;
use tests::wait::wait_for;

use super::streams::Asking;
use super::virtctl::Virtctl;
use super::{World, at, autoscaling, subresources, told};
use crate::kubelet::whole::{self, STEP_DEADLINE, is_empty};

/// A whole Kubernetes starts, and guests boot seven times.
const DEADLINE: Duration = Duration::from_secs(960);
/// The one Secret that is nobody's VM's: that of the server of subresources.
const CERTIFICATE: &str = "secret/virtlet-subresources-tls\n";

pub(super) const CASES: &[Case] = &[Case { name: "objects::a_virtual_machine_on_a_node", deadline: DEADLINE, run }];

fn run(bed: &Bed) -> Result<()> {
    let way = told::kubeconfig(bed);
    // Its guests have two vCPUs.
    let settings = of_one_thread(bed)?
        + &format!("report_kubeconfig = '{}'\n[handlers.virtlet]\nguest_agent = true\ngraphics = 'vnc'", way.display());
    let (mut node, cluster, controllers) = whole::start(bed, &settings)?;
    let image = node.images.offer("agent.qcow2", &tiny_with_agent(bed)?, Fault::None);
    let mut world = World { bed, cluster, controllers };
    let mut server = subresources::start(&world)?;
    // Its pods would find no image, and now they are on no node yet.
    world.kubectl(&["delete", "deployment", NAME, "--cascade=foreground", "--timeout=300s"])?;
    let _kubelet = Kubelet::start_in(bed, &world.cluster)?;
    let mut operator = world.serve(&world.cluster.admin)?;
    let asking = Asking::of(bed, &world.cluster)?;
    let plane = &mut world.controllers;
    told::give_token(bed, &world.cluster, plane)?;
    plane.apply(&[whole::runtime_class(), vm(&image)])?;

    // It runs, as its object says.
    let first = running(plane, &mut operator, "")?;
    let shown = plane.kubectl(&["get", "vm", "db", "--no-headers"])?;
    ensure!(shown.contains("Running"), "{shown}");
    let pod = pod_of(plane)?;
    let ip: IpAddr = at(plane, "vmi", ".status.interfaces[0].ipAddress")?.parse().context("no address")?;
    let info = wait_for("answer of the guest", BOOT_DEADLINE, || Ok(http::get(ip, "/cgi-bin/info").ok()))?;
    ensure!(info.contains("cpus 2"), "not as its object says: {info}");
    whole::says(plane, &pod, "hostname; cat /sys/class/dmi/id/product_serial", "db\nserial-1\n")?;
    let uuid = plane.kubectl(&["exec", &pod, "--", "cat", "/sys/class/dmi/id/product_uuid"])?;
    told::knows_guest(plane)?;
    told::pauses(plane, |verb| asking.act(verb))?;
    told::forges_nothing(bed, plane, &pod)?;
    asking.shown(plane)?;
    // It has booted anew.
    wait_for("answer of the guest", BOOT_DEADLINE, || Ok(http::get(ip, "/cgi-bin/info").ok()))?;
    whole::says(plane, &pod, "cat /data/boots", "2\n")?;
    let virtctl = Virtctl::of(bed, &world.cluster);
    if let Some(virtctl) = &virtctl {
        virtctl.shows(plane, &pod, &image)?;
    }

    // Whoever looks after it is killed: it runs on.
    operator.kill9()?;
    operator.start_again()?;
    node.restart_controld()?;
    node.net.tapmanager.kill9()?;
    node.net.tapmanager.start_again()?;
    ensure!(http::get(ip, "/cgi-bin/info").is_ok(), "the guest is gone");
    ensure!(running(plane, &mut operator, "")? == first, "another run");

    // Powered off inside, it comes again, and knows itself by the same UUID.
    powers_off(plane, &pod)?;
    let second = running(plane, &mut operator, &first)?;
    let pod = pod_of(plane)?;
    whole::says(plane, &pod, "cat /sys/class/dmi/id/product_uuid", &uuid)?;

    // Requests stop and start it, and with another strategy it stays off once it is powered off.
    server.still_runs()?;
    asking.not_now("start", "VM is already running")?;
    asking.power("stop", r#"{"gracePeriod":0}"#)?;
    stopped(plane, &mut operator)?;
    ensure!(at(plane, "vm", ".spec.runStrategy")? == "Halted", "another strategy");
    asking.not_now("stop", "VM is not running")?;
    asking.not_now("restart", "is not restarted")?;
    // What it takes until there are figures of a set passes while this one runs a last time.
    let mut metrics = MetricsServer::start(bed, &world.cluster)?;
    autoscaling::begin(plane, &instance(&image))?;
    plane.kubectl(&["patch", "vm", "db", "--type=merge", "-p", r#"{"spec":{"runStrategy":"Manual"}}"#])?;
    asking.power("start", "{}")?;
    let third = running(plane, &mut operator, &second)?;
    asking.power("restart", r#"{"gracePeriodSeconds":0}"#)?;
    let fourth = running(plane, &mut operator, &third)?;
    let pod = pod_of(plane)?;
    whole::says(plane, &pod, "echo good night", "good night\n")?;
    powers_off(plane, &pod)?;
    // The VM's status follows its instance's.
    wait_for("end of the run", STEP_DEADLINE, || {
        operator.still_runs()?;
        let has_ended = at(plane, "vmi", ".status.phase")? == "Succeeded";
        Ok((has_ended && at(plane, "vm", ".status.printableStatus")? == "Stopped").then_some(()))
    })?;
    ensure!(at(plane, "vmi", ".metadata.uid")? == fourth, "another run");
    asking.not_now("restart", "VM is not running")?;
    if let Some(virtctl) = &virtctl {
        let mut now = |not: &str| running(plane, &mut operator, not);
        virtctl.powers(&fourth, &mut now)?;
    }
    autoscaling::grown(plane, &mut operator)?;
    metrics.still_runs()?;

    autoscaling::end(plane)?;
    plane.kubectl(&["delete", "vm", "db", "--wait=false"])?;
    wait_for("end of all", STEP_DEADLINE, || {
        operator.still_runs()?;
        let left = plane.kubectl(&["get", "vm,vmi,vmirs,secrets", "-o", "name"])?;
        Ok((left == CERTIFICATE && is_empty(plane)?).then_some(()))
    })
}

fn vm(image: &str) -> Value {
    let mut spec = instance(image);
    spec["domain"]["cpu"] = json!({"cores": 1, "threads": 2});
    spec["domain"]["firmware"] = json!({"serial": "serial-1"});
    json!({
        "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine", "metadata": {"name": "db"},
        "spec": {"runStrategy": "Always", "template": {"metadata": {"labels": {"app": "db"}}, "spec": spec}},
    })
}

fn instance(image: &str) -> Value {
    json!({
        "domain": {
            "memory": {"guest": "160Mi"}, "devices": {"disks": [{"name": "root", "disk": {"bus": "virtio"}}]},
        },
        "terminationGracePeriodSeconds": 10,
        "volumes": [{"name": "root", "containerDisk": {"image": image, "imagePullPolicy": "IfNotPresent"}}],
    })
}

/// Uid of the instance that runs, and is not this one.
fn running(plane: &mut Controllers, operator: &mut Daemon, not: &str) -> Result<String> {
    let mut last = Vec::new();
    let uid = wait_for("VM that runs", STEP_DEADLINE, || {
        operator.still_runs()?;
        last.clear();
        for (kind, path) in [("vmi", ".metadata.uid"), ("vmi", ".status.phase"), ("vm", ".status.printableStatus")] {
            last.push(at(plane, kind, path)?);
        }
        let runs = last.get(1..) == Some(&["Running".to_owned(), "Running".to_owned()]);
        Ok(last.first().filter(|uid| runs && *uid != not).cloned())
    });
    uid.with_context(|| format!("at last {last:?}: {}", plane.kubectl(&["get", "events"]).unwrap_or_default()))
}

/// Has a guest power itself off. Whether the command's end still comes out of it is of no matter.
fn powers_off(plane: &Controllers, pod: &str) -> Result<()> {
    finish(&mut plane.command(&["exec", pod, "--", "sh", "-c", "poweroff & exit 0"]), TOOL_DEADLINE).map(drop)
}

fn stopped(plane: &mut Controllers, operator: &mut Daemon) -> Result<()> {
    wait_for("VM that is stopped", STEP_DEADLINE, || {
        operator.still_runs()?;
        let is_gone = at(plane, "vmi", ".metadata.uid")?.is_empty();
        Ok((is_gone && at(plane, "vm", ".status.printableStatus")? == "Stopped" && is_empty(plane)?).then_some(()))
    })
}

fn pod_of(plane: &mut Controllers) -> Result<String> {
    let pods = plane.kubectl(&[
        "get",
        "pods",
        "-l",
        "vm.kubevirt.io/name=db,vmi.kubevirt.io/id=db,app=db",
        "-o",
        "jsonpath={.items[*].metadata.name}",
    ])?;
    ensure!(!pods.is_empty() && !pods.contains(' '), "not one pod: {pods:?}");
    Ok(pods)
}
