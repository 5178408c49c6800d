//! critest through the proxy: with the container runtime's own handler each spec ends as against that runtime alone, and with ours what
//! the tier `cri` says of machines holds.
//!
//! Images come from a registry of the bed, to which containerd goes whatever registry a name has.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::path::Path;
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, ensure};
use serde_json::json;
use tests::case::{Bed, Case};
use tests::critest::{self, Outcome};
use tests::image_server::{Fault, HOST};
use tests::node::CRI_SOCKET;
use tests::peers::busybox::{self, WEB_SERVER};
use tests::peers::registry::Registry;

use super::Both;
use crate::cri::critest::{WITH_MACHINES, WITHOUT_IMAGES, translate};

const DEADLINE: Duration = Duration::from_secs(720);
const EXAMPLE: &str = include_str!("../../../deploy/10-virtlet.conflist");
const NRI: &str = "/run/nri/nri.sock";
/// How the names of all specs begin.
const OF_ALL: &str = "[k8s.io] ";

pub(super) const CASES: &[Case] = &[
    Case { name: "proxy::critest_of_containers_ends_as_without_it", deadline: DEADLINE, run: of_containers },
    Case { name: "proxy::critest_of_machines_passes_behind_it", deadline: DEADLINE, run: of_machines },
];

/// Beginnings of specs, in lanes that run side by side: specs of one lane use the same names of images, or ports.
const LANES: [&[&str]; 3] = [
    &["Idempotence", "Image", "Networking", "Streaming", "Runtime info"],
    &["Container", "Multiple Containers", "PodSandbox"],
    &["Security Context"],
];
/// What hooks into all that happens, and so runs alone.
const ALONE: &[&str] = &["NRI"];

/// Beginnings of specs that cannot run in a cell, with or without the proxy.
const LEFT_OUT: &[(&str, &str)] = &[
    ("AppArmor", "a cell has no profiles of its own"),
    ("Image Manager public image with digest", "the digest is that of somebody else's image"),
    ("Security Context NoNewPrivs", "its image is a program with a set-user-ID bit that is somebody else's"),
    (
        "Security Context bucket runtime should support MaskedPaths",
        "Debian's busybox finds `ls` in itself, and does not look for the file that is masked",
    ),
];

/// What containerd does not do yet, whoever asks, and is lucky to pass: the beginning of the specs, which critest itself leaves out with these
/// words when they fail.
const DISCREPANCY: (&str, &str) = ("NRI plugin synchronization", "spec discrepancy: containerd los");

/// Races that containerd or critest wins or loses, whoever asks and the less time there is the more often: the beginning of the spec, what
/// is said of it when it is lost, and why. A spec that is lost so shows nothing, on either side, and runs again.
const RACES: &[(&str, &str, &str)] = &[
    (
        "Image Identifier Consistency",
        "container is still running, to stop first",
        "critest removes a container that it has not stopped: its command ends by itself, soon",
    ),
    (
        "NRI RunPodSandbox contract should fail RunPodSandbox and clean up",
        "MUST be cleaned up after a failed RunPodSandbox",
        "seen of containerd alone, beside two busy loops",
    ),
];
/// So often a spec runs again that was lost to a race: one that is lost each time has a fault.
const TURNS: usize = 3;

/// Names without their registries, and what is in them beside busybox. Each name is an image of its own, but for those of one mark.
const IMAGES: &[(&str, &str, Holds)] = &[
    ("e2e-test-images/busybox:1", "default", Holds::Shell),
    ("e2e-test-images/nginx:1.14-2", "web", Holds::Server(80)),
    ("e2e-test-images/httpd:2.4.39-4", "httpd", Holds::Server(80)),
    ("k8s-staging-cri-tools/hostnet-nginx-amd64:latest", "hostnet", Holds::Server(12003)),
    ("k8s-staging-cri-tools/test-image-latest:latest", "latest", Holds::Shell),
    ("k8s-staging-cri-tools/test-image-tag:test", "tag", Holds::Shell),
    ("k8s-staging-cri-tools/test-image-tag:all", "all", Holds::Shell),
    ("k8s-staging-cri-tools/test-image-1:latest", "1", Holds::Shell),
    ("k8s-staging-cri-tools/test-image-2:latest", "2", Holds::Shell),
    ("k8s-staging-cri-tools/test-image-3:latest", "3", Holds::Shell),
    ("k8s-staging-cri-tools/test-image-tags:1", "tags", Holds::Shell),
    ("k8s-staging-cri-tools/test-image-tags:2", "tags", Holds::Shell),
    ("k8s-staging-cri-tools/test-image-tags:3", "tags", Holds::Shell),
    ("k8s-staging-cri-tools/test-image-user-uid:latest", "uid", Holds::User("1002")),
    ("k8s-staging-cri-tools/test-image-user-username:latest", "username", Holds::User("www-data")),
    ("k8s-staging-cri-tools/test-image-user-uid-group:latest", "uid-group", Holds::User("1003:users")),
    ("k8s-staging-cri-tools/test-image-user-username-group:latest", "username-group", Holds::User("www-data:100")),
    ("k8s-staging-cri-tools/test-image-predefined-group:latest", "predefined-group", Holds::User("1000")),
    ("pause:3.9", "pause", Holds::Shell),
];

#[derive(Debug, Clone, Copy)]
enum Holds {
    Shell,
    /// One that serves a page at this port.
    Server(u16),
    /// A shell that runs as this user.
    User(&'static str),
}

/// What came of specs, by their names.
type Outcomes = BTreeMap<String, Outcome>;

fn of_containers(bed: &Bed) -> Result<()> {
    let both = Both::on(bed, &serde_json::from_str(EXAMPLE)?, "")?;
    let registry = Registry::start(bed)?;
    push(bed, &registry)?;
    both.containerd.pull_from(&registry.host)?;

    let lane = |lane: usize, specs: &'static [&'static str]| -> Result<[Outcomes; 2]> {
        let alone = ran(bed, &format!("alone{lane}"), both.containerd.socket(), specs)?;
        Ok([alone, ran(bed, &format!("behind{lane}"), Path::new(CRI_SOCKET), specs)?])
    };
    let mut outcomes = thread::scope(|scope| {
        let lane = &lane;
        let running: Vec<_> =
            LANES.iter().enumerate().map(|(number, specs)| scope.spawn(move || lane(number, specs))).collect();
        let ended = running.into_iter().map(|lane| lane.join().map_err(|_| anyhow!("a lane panicked"))?);
        ended.collect::<Result<Vec<_>>>()
    })?;
    outcomes.push(lane(LANES.len(), ALONE)?);
    let (alone, behind): (Vec<_>, Vec<_>) = outcomes.into_iter().map(|[alone, behind]| (alone, behind)).unzip();
    let alone = settled(bed, &both, ("alone", both.containerd.socket()), alone.into_iter().flatten().collect())?;
    let behind = settled(bed, &both, ("behind", Path::new(CRI_SOCKET)), behind.into_iter().flatten().collect())?;
    compared(&critest::specs(bed)?, &alone, &behind)?;
    ensure!(both.ids()?.is_empty(), "left: {:?}", both.ids()?);
    both.containerd.stop()
}

/// What came of each spec that begins so and is not left out.
fn ran(bed: &Bed, name: &str, socket: &Path, specs: &[&str]) -> Result<Outcomes> {
    let left_out: Vec<_> = LEFT_OUT.iter().map(|(begins, _)| *begins).collect();
    let (focus, skip) = (critest::focus(specs), critest::focus(&left_out));
    let args: [&OsStr; 6] = [
        "--ginkgo.focus".as_ref(),
        focus.as_ref(),
        "--ginkgo.skip".as_ref(),
        skip.as_ref(),
        "--nri-socket".as_ref(),
        NRI.as_ref(),
    ];
    let images = json!({"defaultTestContainerImage": "registry.k8s.io/e2e-test-images/busybox:1"});
    let ran = critest::run(bed, name, socket, &args, &images, DEADLINE)?;
    let asked = |spec: &String| {
        let begins = |with: &&str| spec.strip_prefix(OF_ALL).is_some_and(|spec| spec.starts_with(with));
        specs.iter().any(begins) && !left_out.iter().any(begins)
    };
    Ok(ran.specs.into_iter().filter(|(spec, _)| asked(spec)).collect())
}

/// The same once what was lost to a race has run again.
fn settled(bed: &Bed, both: &Both, (name, socket): (&str, &Path), mut outcomes: Outcomes) -> Result<Outcomes> {
    for turn in 0..TURNS {
        let lost = outcomes.iter().filter(|(spec, outcome)| is_lost(spec, outcome));
        let lost: Vec<_> = lost.map(|(spec, _)| spec.clone()).collect();
        let names: Vec<_> = lost.iter().filter_map(|spec| spec.strip_prefix(OF_ALL)).collect();
        if names.is_empty() {
            break;
        }
        // Its pod is left, where critest or containerd has lost it.
        for sandbox in both.sandboxes()? {
            both.node.cri.remove_sandbox(&sandbox.id)?;
        }
        let again = ran(bed, &format!("{name}-again{turn}"), socket, &names)?;
        outcomes.extend(again.into_iter().filter(|(spec, _)| lost.contains(spec)));
    }
    Ok(outcomes)
}

/// Whether a spec was lost to a race.
fn is_lost(spec: &str, outcome: &Outcome) -> bool {
    let begins = |with: &str| spec.strip_prefix(OF_ALL).is_some_and(|name| name.starts_with(with));
    !outcome.passed() && RACES.iter().any(|(with, words, _)| begins(with) && outcome.said.contains(words))
}

/// Whether critest leaves a spec out because of what containerd does not do yet.
fn is_discrepancy(name: &str, outcome: &Outcome) -> bool {
    let (begins, words) = DISCREPANCY;
    outcome.skipped() && name.starts_with(begins) && outcome.said.contains(words)
}

/// Every spec ended alike, and none failed: what fails on both sides shows nothing.
fn compared(all: &[String], alone: &Outcomes, behind: &Outcomes) -> Result<()> {
    let mut wrong = Vec::new();
    for spec in all {
        let name = spec.strip_prefix(OF_ALL).context("a spec with another beginning")?;
        if LEFT_OUT.iter().any(|(begins, _)| name.starts_with(begins)) {
            continue;
        }
        match (alone.get(spec), behind.get(spec)) {
            (Some(one), Some(other)) if one == other && (one.passed() || one.skipped()) => {}
            (Some(one), Some(other)) if [one, other].iter().all(|side| side.passed() || is_discrepancy(name, side)) => {
            }
            (one, other) => wrong.push(format!("{spec}: alone {one:?}, behind controld {other:?}")),
        }
    }
    ensure!(wrong.is_empty(), "{}", wrong.join("\n"));
    ensure!(LEFT_OUT.iter().all(|(begins, _)| all.iter().any(|spec| spec.contains(begins))), "left out for nothing");
    Ok(())
}

fn push(bed: &Bed, registry: &Registry) -> Result<()> {
    let layer = busybox::layer(&bed.dir)?;
    for (name, mark, holds) in IMAGES {
        let mut settings = json!({"Labels": {"mark": mark}, "Env": ["PATH=/bin:/usr/sbin"], "Cmd": ["sh"]});
        match holds {
            Holds::Shell => {}
            // As the server that is asked for names its first process.
            Holds::Server(port) => settings["Entrypoint"] = json!([WEB_SERVER, "master process", port.to_string()]),
            Holds::User(user) => settings["User"] = json!(user),
        }
        if matches!(holds, Holds::Server(_)) {
            settings["Cmd"] = json!([]);
        }
        registry.push_container(name, &layer, &settings)?;
    }
    Ok(())
}

/// The lists of tier `cri` whose specs need no command in a guest.
fn of_machines(bed: &Bed) -> Result<()> {
    let both = Both::on(bed, &serde_json::from_str(EXAMPLE)?, "images.regexp_translations = true\n")?;
    both.node.images.offer("tiny.qcow2", &bed.config.guest("tiny.qcow2")?, Fault::None);
    // critest names no handler with an image, and takes no name with a port behind its first part.
    let image = "virtlet.cloud/tiny:1";
    translate("^tiny(:.*)?$", &format!("http://{HOST}/tiny.qcow2"))?;
    let specs = [WITHOUT_IMAGES, WITH_MACHINES].concat();
    let focus = critest::focus(&specs);
    let args: [&OsStr; 4] =
        ["--ginkgo.focus".as_ref(), focus.as_ref(), "--runtime-handler".as_ref(), "virtlet".as_ref()];
    let images = json!({"defaultTestContainerImage": image, "webServerTestImage": image});
    let ran = critest::run(bed, "critest", Path::new(CRI_SOCKET), &args, &images, DEADLINE)?;
    let failed: Vec<_> = ran.specs.iter().filter(|(_, outcome)| !outcome.passed() && !outcome.skipped()).collect();
    ensure!(failed.is_empty(), "{failed:#?}");
    let passed = ran.specs.values().filter(|outcome| outcome.passed()).count();
    ensure!(passed >= specs.len(), "{passed} of {} passed", specs.len());
    ensure!(both.ids()?.is_empty(), "left: {:?}", both.ids()?);
    both.containerd.stop()
}
