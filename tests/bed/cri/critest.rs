//! critest, the conformance tests of CRI, as cri-tools release them: those of its specs that machines meet so far.
//!
//! [`critest_left_out`](super::critest_left_out) has the others.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use tests::agent_image::tiny_with_agent;
use tests::case::{Bed, Case};
use tests::cni;
use tests::command::{command, run as run_program};
use tests::critest;
use tests::image_node::RULES;
use tests::image_server::{Fault, HOST};
use tests::node::{CRI_SOCKET, Node};
use tests::pace::at_worst;
use tests::world::World;

/// The network of a node that has no other.
const EXAMPLE: &str = include_str!("../../../deploy/10-virtlet.conflist");
pub(super) const DEADLINE: Duration = Duration::from_secs(720);

pub(super) const CASES: &[Case] = &[
    Case { name: "cri::critest_without_images", deadline: DEADLINE, run: without_images },
    Case { name: "cri::critest_with_machines", deadline: DEADLINE, run: with_machines },
    Case { name: "cri::critest_in_guests", deadline: DEADLINE, run: in_guests },
    Case { name: "cri::critest_of_commands", deadline: DEADLINE, run: of_commands },
    Case { name: "cri::critest_benchmarks", deadline: DEADLINE, run: benchmarks },
];

/// The specs that run, by case, beside those of images.
pub(super) const LISTS: [&[&str]; 4] = [WITHOUT_IMAGES, WITH_MACHINES, IN_GUESTS, OF_COMMANDS];

/// Beginnings of their descriptions, after the one that all have.
pub(crate) const WITHOUT_IMAGES: &[&str] = &[
    "PodSandbox runtime should support basic operations on PodSandbox runtime should support running PodSandbox",
    "PodSandbox runtime should support basic operations on PodSandbox runtime should support stopping PodSandbox",
    "PodSandbox runtime should support basic operations on PodSandbox runtime should support removing PodSandbox",
    "PodSandbox runtime should support basic operations on PodSandbox runtime should support preserving PodSandbox attributes",
    "PodSandbox runtime should support metrics operations runtime should support returning metrics descriptors",
    "Runtime info runtime should support returning runtime info runtime should return version info",
    "Runtime info runtime should support returning runtime info runtime should return runtime conditions",
    "Idempotence StopPodSandbox should not return an error if not found",
    "Idempotence StopPodSandbox should not return an error if already stopped",
    "Idempotence RemovePodSandbox should not return an error if not found",
    "Idempotence StopContainer should not return an error if not found",
    "Idempotence RemoveContainer should not return an error if not found",
    "Idempotence RemoveImage should not return an error if not found",
];

pub(crate) const WITH_MACHINES: &[&str] = &[
    "Container runtime should support basic operations on container runtime should support creating container",
    "Container runtime should support basic operations on container runtime should support preserving container attributes",
    "Container runtime should support basic operations on container runtime should support starting container",
    "Container runtime should support basic operations on container runtime should support stopping container",
    "Container runtime should support basic operations on container runtime should support removing created container",
    "Container runtime should support basic operations on container runtime should support removing running container",
    "Container runtime should support basic operations on container runtime should support removing stopped container",
    "Container runtime should support basic operations on container runtime should support listing container stats",
    "Container runtime should support basic operations on container runtime should support listing stats for started containers",
    "Container runtime should support basic operations on container runtime should support listing stats for containers filtered by labels",
    "Idempotence StopContainer should not return an error if already stopped",
    "Networking runtime should support networking runtime should support port mapping with only container port",
    "Networking runtime should support networking runtime should support port mapping with host port and container port",
    "Security Context bucket runtime should return error if RunAsGroup is set without RunAsUser",
    "Security Context NamespaceOption runtime should support HostNetwork is false",
];

/// What starts commands in the guest.
const IN_GUESTS: &[&str] = &[
    "Container runtime should support basic operations on container runtime should support execSync [Conformance]",
    "Container runtime should support basic operations on container runtime should support execSync with timeout",
    "Image Volume [Feature:ImageVolume] should return image digest in ContainerStatus mounts",
    "Image Volume [Feature:ImageVolume] should correctly mount image and enforce read-only",
    "Image Volume [Feature:ImageVolume] subPath should fail when subPath does not exist in the image",
    "Streaming runtime should support streaming interfaces runtime should support exec with tty=false and stdin=false",
    "Streaming runtime should support streaming interfaces runtime should support exec with tty=true and stdin=true",
    "Streaming runtime should support streaming interfaces runtime should support portforward [Conformance]",
    "Networking runtime should support networking runtime should support set hostname",
    "Networking runtime should support networking runtime should support DNS config",
    "Container runtime should support adding volume and device runtime should support starting container with volume [Conformance]",
    "Container runtime should support adding volume and device runtime should support starting container with volume when",
    "Container Mount Propagation runtime should support mount propagation mount with 'rprivate'",
    "Container Mount Propagation runtime should support mount propagation mount with 'rslave'",
    "Container Mount Readonly runtime should support readonly mounts should reject",
    "Container Mount Readonly runtime should support readonly mounts should support recursive",
    "Security Context NamespaceOption runtime should support HostIpc is false",
    "Security Context NamespaceOption runtime should support PodPID",
    "Security Context bucket runtime should support Privileged is true",
    "Security Context bucket runtime should support SupplementalGroups",
    "Security Context bucket runtime should support RunAsUser",
    "Security Context bucket runtime should support RunAsUserName",
    "Security Context bucket runtime should support adding ALL capabilities",
    "Security Context SeccompProfilePath should support seccomp unconfined on the container",
    "Security Context SeccompProfilePath should support nil profile, which is unconfined",
    "Security Context SeccompProfilePath runtime should not block setting host name with unconfined seccomp and SYS_ADMIN",
    "Security Context SeccompProfilePath runtime should ignore a seccomp profile that blocks setting hostname when privileged",
];

/// What the container's own command is for.
const OF_COMMANDS: &[&str] = &[
    "Container runtime should support log runtime should support starting container with log",
    "Container runtime should support log runtime should support reopening container log",
    "PodSandbox runtime should support sysctls should support safe sysctls",
    "PodSandbox runtime should support sysctls should support unsafe sysctls",
    "Security Context bucket runtime should support RunAsGroup",
    "Security Context bucket runtime should support that ReadOnlyRootfs is false",
    "Security Context bucket runtime should support that ReadOnlyRootfs is true",
    "Streaming runtime should support streaming interfaces runtime should support attach",
];

fn without_images(bed: &Bed) -> Result<()> {
    let _node = Node::start(bed)?;
    let before = World::look()?;
    run(bed, WITHOUT_IMAGES, &json!({}))?;
    before.assert_same_but(|thing| thing == "link cni0")
}

fn with_machines(bed: &Bed) -> Result<()> {
    // With host ports.
    let conflist = serde_json::from_str(EXAMPLE)?;
    let node = Node::on(bed, &conflist, &cni::debian_plugins(), "")?;
    let before = World::look()?;
    let image = node.images.offer("tiny.qcow2", &bed.config.guest("tiny.qcow2")?, Fault::None);
    run(bed, WITH_MACHINES, &json!({"defaultTestContainerImage": image, "webServerTestImage": image}))?;
    // portmap leaves its chains of the whole node, and host-local what it keeps beside addresses.
    let stays = |thing: &str| {
        let lasting =
            ["", "/lock", "/last_reserved_ip.0"].map(|file| format!("file /var/lib/cni/networks/virtlet{file}"));
        let of_node = ["link virtlet0", "file /var/lib/virtlet/images"].iter().any(|stays| thing.starts_with(stays));
        of_node || thing.contains("CNI-") || lasting.iter().any(|lasting| lasting == thing)
    };
    before.assert_same_but(stays)
}

fn in_guests(bed: &Bed) -> Result<()> {
    let node = Node::configured(bed, "images.regexp_translations = true\nhandlers.virtlet.guest_agent = true")?;
    let image = node.images.offer("agent.qcow2", &with_programs(bed, &tiny_with_agent(bed)?)?, Fault::None);
    let built_in = "^[^/]+/(e2e-test-images/nginx|k8s-staging-cri-tools/test-image-tag)(:.*)?$";
    translate(built_in, &format!("http://{HOST}/agent.qcow2"))?;
    let images = json!({"defaultTestContainerImage": image, "webServerTestImage": image});
    let handler: &[&OsStr] = &["--runtime-handler".as_ref(), "virtlet".as_ref()];
    run_with(bed, handler, IN_GUESTS, &images)?;
    // Over SPDY until here.
    let sessions: Vec<_> = IN_GUESTS.iter().copied().filter(|spec| spec.starts_with("Streaming")).collect();
    run_with(bed, &["--websocket-exec".as_ref(), "--websocket-portforward".as_ref()], &sessions, &images)
}

/// The image with what critest looks for in a volume that has it: on its first partition, from which the guest boots, too.
fn with_programs(bed: &Bed, image: &Path) -> Result<PathBuf> {
    let with = bed.dir.join("programs.qcow2");
    let script = format!(
        "set -e; cd {}; export MTOOLS_SKIP_CHECK=1; qemu-img convert -O raw {} programs.raw; mmd -i programs.raw@@1M ::/bin\n\
         printf '#!/bin/sh\\nexec ls \"$@\"\\n' >program\n\
         for name in sh ls; do mcopy -i programs.raw@@1M program ::/bin/$name; done\n\
         qemu-img convert -O qcow2 programs.raw {}; rm programs.raw",
        bed.dir.display(),
        image.display(),
        with.display(),
    );
    run_program(&mut command("/bin/bash", ["-c", &script]))?;
    Ok(with)
}

fn of_commands(bed: &Bed) -> Result<()> {
    let node = Node::configured(bed, "handlers.virtlet.run_command = true")?;
    let image = node.images.offer("agent.qcow2", &tiny_with_agent(bed)?, Fault::None);
    let before = World::look()?;
    let handler: &[&OsStr] = &["--runtime-handler".as_ref(), "virtlet".as_ref()];
    run_with(bed, handler, OF_COMMANDS, &json!({"defaultTestContainerImage": image, "webServerTestImage": image}))?;
    before.assert_same_but(|thing| thing == "link cni0" || thing.starts_with("file /var/lib/virtlet/images"))
}

/// All five benchmarks come to their end, with a figure for each step of each thing. How fast they are depends on the host.
fn benchmarks(bed: &Bed) -> Result<()> {
    let node = Node::start(bed)?;
    let image = node.images.offer("tiny.qcow2", &bed.config.guest("tiny.qcow2")?, Fault::None);
    let (params, figures) = (bed.dir.join("params.yaml"), bed.dir.join("figures"));
    fs::create_dir(&figures)?;
    let seconds = at_worst(Duration::from_secs(120)).as_secs();
    let wanted = json!({
        "containersNumber": 4, "containersNumberParallel": 2, "containerBenchmarkTimeoutSeconds": seconds,
        "podsNumber": 8, "podsNumberParallel": 4, "podContainerStartBenchmarkTimeoutSeconds": seconds,
        "imagesNumber": 3, "imagesNumberParallel": 1, "imageBenchmarkTimeoutSeconds": seconds,
        "imagePullingBenchmarkImage": image,
    });
    fs::write(&params, wanted.to_string())?;
    let args = [
        "-benchmark".as_ref(),
        "--benchmarking-params-file".as_ref(),
        params.as_os_str(),
        "--benchmarking-output-dir".as_ref(),
        figures.as_os_str(),
    ];
    let report = critest(bed, &args, &json!({"defaultTestContainerImage": image}))?;
    ensure!(report.passed == 5, "{} of 5 benchmarks: {}", report.passed, report.said);
    for (file, things, steps) in
        [("container", 4, 5), ("pod", 8, 4), ("image_lifecycle", 3, 3), ("image_listing", 3, 1)]
    {
        let file = figures.join(format!("{file}_benchmark_data.json"));
        let text = fs::read(&file).with_context(|| format!("no {}", file.display()))?;
        let data: Value = serde_json::from_slice(&text)?;
        let points = data["datapoints"].as_array().context("no data")?;
        let is_whole = |point: &Value| {
            let took = point["operationsDurationsNs"].as_array();
            took.is_some_and(|took| took.len() == steps && took.iter().all(|ns| ns.as_i64().is_some_and(|ns| ns > 0)))
        };
        ensure!(points.len() == things && points.iter().all(is_whole), "{}: {data}", file.display());
    }
    Ok(())
}

/// What critest has run.
struct Report {
    passed: usize,
    said: String,
}

/// Leads names that critest has built in to images of the bed's.
pub(crate) fn translate(regexp: &str, url: &str) -> Result<()> {
    fs::create_dir_all(RULES)?;
    let rules = json!({"translations": [{"regexp": regexp, "url": url}]});
    Ok(fs::write(format!("{RULES}/critest.json"), rules.to_string())?)
}

/// Has critest run these specs, of which each has to pass.
pub(super) fn run(bed: &Bed, specs: &[&str], images: &Value) -> Result<()> {
    run_with(bed, &[], specs, images)
}

fn run_with(bed: &Bed, more: &[&OsStr], specs: &[&str], images: &Value) -> Result<()> {
    let focus = critest::focus(specs);
    let report = critest(bed, &[&["--ginkgo.focus".as_ref(), focus.as_ref()], more].concat(), images)?;
    // A spec that cri-tools renamed would otherwise be missing and nobody would know.
    ensure!(report.passed >= specs.len(), "{} of {}: {}", report.passed, specs.len(), report.said);
    Ok(())
}

/// Runs critest, none of whose specs may fail.
fn critest(bed: &Bed, args: &[&OsStr], images: &Value) -> Result<Report> {
    let ran = critest::run(bed, "critest", Path::new(CRI_SOCKET), args, images, DEADLINE)?;
    let failed: Vec<_> = ran.specs.iter().filter(|(_, outcome)| !outcome.passed() && !outcome.skipped()).collect();
    ensure!(failed.is_empty(), "critest: {failed:#?}");
    ensure!(ran.ended.code == Some(0), "critest: {}", ran.ended.stdout);
    Ok(Report { passed: ran.specs.values().filter(|outcome| outcome.passed()).count(), said: ran.ended.stdout })
}
