//! What befalls one side leaves the other as it is: under one kubelet containerd ends in three ways, then tapmanager, then libvirtd.
//!
//! While a side is away a pod of the other one comes to run and another one ends, and one of its own is taken away, which ends once it is
//! back. Two pods stay all the while, one of each kind. That no pod was made twice is read in the logs of both sides and of kubelet.

use std::collections::{BTreeSet, VecDeque};
use std::fs;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use tests::case::{Bed, Case};
use tests::cni;
use tests::containerd::Release;
use tests::kubelet::{Kubelet, gates};
use tests::pace;
use tests::wait::{wait_for, wait_until};
use tests::world::World;
use tonic::Code;

use super::told::Told;
use super::{Both, DEADLINE, POD_DEADLINE, container, idle_machine, of_the_node, runs, times_new, wait_runs};

/// In which a pod of the side that is well comes to run, and one ends that is given two seconds: some five each, of which kubelet takes
/// two to look at its directory and at what runs. Less than [`PATIENCE`].
const SOON: Duration = Duration::from_secs(15);
/// From then on the node is not ready, and kubelet makes and ends no pod until it is.
const PATIENCE: Duration = Duration::from_secs(20);
/// How long a side that is away may hold up a call that the other one answers, at most.
const HELD_UP: Duration = Duration::from_secs(1);
/// controld tries each second at least.
const BACK: Duration = Duration::from_secs(3);

/// By which kubelet hears of containers that end, and takes lists, in other ways than it does by itself.
const GATES: [&str; 3] = ["EventedPLEG", "CRIListStreaming", "PodAndContainerStatsFromCRI"];

pub(super) const CASES: &[Case] = &[
    Case { name: "proxy::what_befalls_one_side_leaves_the_other_as_it_is", deadline: DEADLINE, run: as_ever },
    Case { name: "proxy::what_befalls_one_side_is_no_other_by_events_and_streams", deadline: DEADLINE, run: by_events },
];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Machine,
    Container,
}

#[derive(Debug, Clone, Copy)]
enum Fault {
    /// containerd leaves, and a newer release comes in its place.
    Upgraded,
    Killed,
    /// Its socket is removed, and then it is killed.
    Unlinked,
    Tapmanager,
    Libvirtd,
}

const FAULTS: [Fault; 5] = [Fault::Upgraded, Fault::Killed, Fault::Unlinked, Fault::Tapmanager, Fault::Libvirtd];

/// What is on the node.
struct Stage {
    both: Both,
    kubelet: Kubelet,
    /// Image of machines that do not stay: they cost next to nothing.
    no_system: String,
    /// Those that do not stay, the oldest first.
    machines: VecDeque<String>,
    containers: VecDeque<String>,
    /// Of each kind so far, with the one that stays.
    made: [usize; 2],
}

fn as_ever(bed: &Bed) -> Result<()> {
    befallen(bed, Kubelet::start)
}

fn by_events(bed: &Bed) -> Result<()> {
    befallen(bed, |bed| {
        let kubelet = Kubelet::configured(bed, &gates(&GATES))?;
        kubelet.has_gates(&GATES)?;
        Ok(kubelet)
    })
}

fn befallen(bed: &Bed, start: fn(&Bed) -> Result<Kubelet>) -> Result<()> {
    let both = Both::with(bed, Release::Debian, "")?;
    let no_system = both.node.offer_no_system(bed)?;
    let kubelet = start(bed)?;
    // kubelet has just started, and starts programs.
    let world = World::settled()?;
    kubelet.apply("vm", &idle_machine("vm", &no_system))?;
    kubelet.apply("c", &container("c"))?;
    let (machines, containers) = (VecDeque::new(), VecDeque::new());
    let mut stage = Stage { both, kubelet, no_system, machines, containers, made: [1, 1] };
    wait_runs(&stage.kubelet, "vm", POD_DEADLINE)?;
    wait_runs(&stage.kubelet, "c", POD_DEADLINE)?;
    let new = ["vm", "c"].map(|name| times_new(&stage.kubelet, name).ok());
    for fault in FAULTS {
        stage.befallen_by(bed, fault).with_context(|| format!("{fault:?}"))?;
    }
    stage.made_once()?;
    ensure!(new == ["vm", "c"].map(|name| times_new(&stage.kubelet, name).ok()), "kubelet has taken a pod for gone");

    let Stage { both, kubelet, machines, containers, .. } = stage;
    for name in ["vm", "c"].into_iter().chain(machines.iter().chain(&containers).map(String::as_str)) {
        wait_runs(&kubelet, name, POD_DEADLINE)?;
        kubelet.delete(name)?;
    }
    wait_until("end of all", POD_DEADLINE, || both.ids().is_ok_and(|ids| ids.is_empty()))?;
    // The first pod makes the bridge.
    world.assert_same_but(|thing| of_the_node(thing) || thing == "link cni0")?;
    both.containerd.stop()
}

impl Stage {
    fn befallen_by(&mut self, bed: &Bed, fault: Fault) -> Result<()> {
        let (ill, well) = fault.sides();
        for kind in [ill, well] {
            self.stock(kind)?;
        }
        let before = self.told()?;
        let begun = Instant::now();
        fault.begin(self, &before)?;
        let (made, ended, late) = (self.make(well)?, self.take(well)?, self.take(ill)?);
        self.answers(well, &before)?;
        if ill == Kind::Container {
            self.without_containerd(begun, &before)?;
        }
        // A list is as long as it was, though the side does not answer.
        let mut same = vec!["vm", "c"];
        same.extend((ill == Kind::Container).then_some(&*late));
        wait_for("pod that comes to run and one that ends meanwhile", SOON, || {
            let told = self.told()?;
            told.stay(&same, &before)?;
            let is_done = runs(&self.kubelet, &made)? && told.has_ended(&ended) && self.tried(&late, &before)?;
            // A machine that is too busy for this to be seen in 20 s.
            let is_over = ill == Kind::Container && self.both.told("RuntimeReady", true).is_err();
            Ok((is_done || is_over).then_some(()))
        })
        .with_context(|| format!("{made}, {ended} or a try to end {late}: {:?}", self.told()))?;
        if ill == Kind::Machine {
            self.without_machines()?;
        }

        fault.end(self, bed)?;
        if ill == Kind::Container {
            let id = before.container("c")?;
            wait_until("call that containerd answers", BACK, || self.both.node.cri.container(&id).is_ok())?;
        }
        wait_for("both pods, and the end of the one whose side was away", POD_DEADLINE, || {
            let told = self.told()?;
            told.stay(&["vm", "c"], &before)?;
            let are_done = runs(&self.kubelet, &made)? && told.has_ended(&ended) && told.has_ended(&late);
            Ok(are_done.then_some(()))
        })
        .with_context(|| format!("{made}, {ended} or {late}: {:?}", self.told()))?;
        for kind in ["RuntimeReady", "NetworkReady", "VirtletReady"] {
            wait_until(kind, POD_DEADLINE, || self.both.told(kind, true).is_ok())?;
        }
        Ok(())
    }

    /// Has kubelet make another pod of this kind; its name.
    fn make(&mut self, kind: Kind) -> Result<String> {
        let (prefix, made) = match kind {
            Kind::Machine => ("vm", &mut self.made[0]),
            Kind::Container => ("c", &mut self.made[1]),
        };
        let name = format!("{prefix}{made}");
        *made += 1;
        self.pods(kind).push_back(name.clone());
        let pod = if kind == Kind::Machine { idle_machine(&name, &self.no_system) } else { container(&name) };
        self.kubelet.apply(&name, &pod)?;
        Ok(name)
    }

    fn pods(&mut self, kind: Kind) -> &mut VecDeque<String> {
        match kind {
            Kind::Machine => &mut self.machines,
            Kind::Container => &mut self.containers,
        }
    }

    /// Sees to it that there is one of this kind to be taken away.
    fn stock(&mut self, kind: Kind) -> Result<()> {
        if self.pods(kind).is_empty() {
            let name = self.make(kind)?;
            wait_runs(&self.kubelet, &name, POD_DEADLINE)?;
        }
        Ok(())
    }

    /// Takes the oldest pod of this kind away; its name.
    fn take(&mut self, kind: Kind) -> Result<String> {
        let name = self.pods(kind).pop_front().context("no such pod is left")?;
        self.kubelet.delete(&name)?;
        Ok(name)
    }

    fn told(&self) -> Result<Told> {
        Told::by(&self.both.node.cri)
    }

    /// Whether an end of the pod has failed: that kubelet wants, or, of which kubelet hears half a minute later, that of a machine.
    fn tried(&self, name: &str, before: &Told) -> Result<bool> {
        let (ids, by_kubelet, of_machines) =
            (before.ids(name), self.kubelet.daemon.log()?, self.both.node.controld.log()?);
        let refused = by_kubelet
            .lines()
            .filter(|line| line.contains("\"Stop") && line.contains(" from runtime service failed\""));
        let mut failed = refused.chain(of_machines.lines().filter(|line| line.contains("machine not destroyed")));
        Ok(failed.any(|line| ids.iter().any(|id| line.contains(id))))
    }

    /// Calls of the side that is well do not wait for the other one. Each is made three times and the quickest counts: what holds them up
    /// holds up all of them, and what else the machine is busy with does not.
    fn answers(&self, well: Kind, before: &Told) -> Result<()> {
        let id = before.container(if well == Kind::Machine { "vm" } else { "c" })?;
        let calls: [(&str, &dyn Fn() -> Result<()>); 3] = [
            ("ContainerStatus", &|| self.both.node.cri.container(&id).map(drop)),
            ("lists", &|| self.both.ids().map(drop)),
            ("Status", &|| self.both.conditions().map(drop)),
        ];
        for (call, ask) in calls {
            let mut took = Vec::new();
            for _ in 0..3 {
                let begun = pace::now();
                ask().context(call)?;
                took.push(begun.elapsed());
            }
            ensure!(took.iter().any(|took| *took < HELD_UP), "{call} is held up: {took:?}");
        }
        Ok(())
    }

    /// kubelet is told so by a condition that it passes over.
    fn without_machines(&self) -> Result<()> {
        wait_until("word that there can be no machines", POD_DEADLINE, || {
            self.both.told("VirtletReady", false).is_ok()
        })?;
        self.both.told("NetworkReady", true)?;
        self.both.told("RuntimeReady", true)
    }

    /// Calls of containers are refused, and the node is as it was for a while.
    fn without_containerd(&self, begun: Instant, before: &Told) -> Result<()> {
        let id = before.container("c")?;
        wait_for("refusal of a call by the id of a container", BACK, || {
            let refused = self.both.node.cri.container(&id).err();
            let Some(status) = refused.and_then(|error| error.downcast::<tonic::Status>().ok()) else {
                return Ok(None);
            };
            // Anything else might say that it is gone.
            ensure!(status.code() == Code::Unavailable, "{status}");
            Ok(Some(()))
        })?;
        self.both.told("VirtletReady", true)?;
        let is_ready = self.both.told("RuntimeReady", true);
        if begun.elapsed() < PATIENCE { is_ready } else { Ok(()) }
    }

    /// Each pod had one sandbox.
    fn made_once(&self) -> Result<()> {
        let [machines, containers] = self.made;
        let asked = self.both.containerd.sandboxes_asked_for()?;
        let pods: BTreeSet<_> = asked.iter().collect();
        ensure!(pods.len() == containers && asked.len() == containers, "of {containers} pods: {asked:?}");
        let ready = self.both.node.controld.log()?.matches("sandbox ready").count();
        ensure!(ready == machines, "{ready} sandboxes of {machines} machines");
        Ok(())
    }
}

impl Fault {
    /// Which side it befalls, and which one is well.
    const fn sides(self) -> (Kind, Kind) {
        match self {
            Self::Upgraded | Self::Killed | Self::Unlinked => (Kind::Container, Kind::Machine),
            Self::Tapmanager | Self::Libvirtd => (Kind::Machine, Kind::Container),
        }
    }

    fn begin(self, stage: &mut Stage, before: &Told) -> Result<()> {
        let Both { containerd, node } = &mut stage.both;
        match self {
            Self::Upgraded => containerd.daemon.terminate().map(drop),
            Self::Killed => containerd.daemon.kill9(),
            Self::Unlinked => {
                fs::remove_file(containerd.socket())?;
                // Over the connection that there is.
                node.cri.container(&before.container("c")?).context("without a socket")?;
                containerd.daemon.kill9()
            }
            Self::Tapmanager => node.net.tapmanager.kill9(),
            Self::Libvirtd => node.libvirt.libvirtd.kill9(),
        }
    }

    fn end(self, stage: &mut Stage, bed: &Bed) -> Result<()> {
        let Both { containerd, node } = &mut stage.both;
        match self {
            Self::Upgraded => containerd.upgrade(bed, Release::Newest, &cni::debian_plugins()),
            Self::Killed | Self::Unlinked => containerd.restart(),
            Self::Tapmanager => {
                node.net.tapmanager.start_again()?;
                node.wait_ready()
            }
            Self::Libvirtd => {
                node.libvirt.libvirtd.start_again()?;
                node.libvirt.wait_ready()?;
                node.wait_ready()
            }
        }
    }
}
