//! A world made of sets, in which any verb can be told to fail.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use proto::tap::{Attach, Dns, Nic, NicKind, NicStats, PciAddress, PodId, PodNet, Tap, Vfio};
use tokio::sync::{Notify, Semaphore};
use tokio_util::sync::CancellationToken;

use super::super::names::{NetnsNames, NetnsOwner};
use super::super::world::{Checked, Culprit, NetnsState, Network, OfNetwork, Serving, World, WorldError};
use crate::cni::{Gate, Leftover, NetworkList, Ready, Unready};
use crate::faults::Faults;
use crate::journal::{Attachment, Record};
use crate::net::lent::Renamed;
use crate::net::{Choices, Finding, Joined, Opened, PassedThrough, Port, Reported};
use crate::vf::{self, Devices};

#[derive(Debug, Default)]
pub(crate) struct Fake {
    state: Mutex<State>,
    serving: Arc<AtomicUsize>,
    gate: Option<(&'static str, Semaphore)>,
    /// Something was freed.
    freed: Notify,
}

#[derive(Debug, Default)]
pub(crate) struct State {
    /// Verbs that were called.
    pub(crate) log: Vec<String>,
    /// Verbs that fail, with the places of the plugins that are to blame and whether they are absent.
    pub(crate) failing: BTreeMap<&'static str, Failure>,
    pub(crate) netns: BTreeSet<PathBuf>,
    pub(crate) other_files: BTreeSet<PathBuf>,
    /// Container and link of each ADD without DEL.
    pub(crate) added: BTreeSet<(String, String)>,
    /// What DEL was told of the result, by container and link.
    pub(crate) told: Vec<(String, bool)>,
    pub(crate) joined: BTreeSet<PathBuf>,
    /// What a check of the join finds.
    pub(crate) lost: Vec<String>,
    /// Whether that is not ours to make again.
    pub(crate) beyond: bool,
    /// What it finds besides that cuts nobody off.
    pub(crate) changed: Vec<String>,
    /// What the plugins were told is on record.
    pub(crate) collected: Vec<(String, Vec<String>)>,
    /// Resolvers that networks say, by network.
    pub(crate) dns: BTreeMap<String, Dns>,
    pub(crate) now: u64,
    /// What the result cache tells of.
    pub(crate) leftovers: Vec<Leftover>,
    /// What hangs until it is freed: `del`, `look` or `gc`, and the pod or network.
    pub(crate) hanging: BTreeSet<String>,
    /// Calls that panic, once.
    pub(crate) panicking: BTreeSet<&'static str>,
    /// Whether a DEL that failed finds its way after another name was given to its link.
    pub(crate) name_taken: bool,
    /// Links that were moved back without a DEL.
    pub(crate) sent_back: Vec<String>,
    /// What is told of ADDs.
    pub(crate) failed_adds: Vec<String>,
    /// Servers that run, to be ended from outside.
    pub(crate) servers: Vec<CancellationToken>,
    /// Links that are virtual functions.
    pub(crate) vf_links: BTreeSet<String>,
    /// Who has which of them.
    pub(crate) claimed: BTreeMap<PciAddress, PodId>,
    /// Those that a machine may have.
    pub(crate) handed_out: BTreeSet<PciAddress>,
    /// Those that are gone.
    pub(crate) vanished: BTreeSet<PciAddress>,
}

#[derive(Debug, Clone)]
pub(crate) struct Failure {
    culprits: Vec<Culprit>,
    /// How many calls succeed before.
    after: usize,
    times: usize,
}

impl Fake {
    /// ADD waits until a permit is put at its gate.
    pub(crate) fn gated() -> Self {
        Self::gated_at("add")
    }

    /// `verb` does; it is one of `add` and `remove_netns`.
    pub(crate) fn gated_at(verb: &'static str) -> Self {
        Self { gate: Some((verb, Semaphore::new(0))), ..Self::default() }
    }

    pub(crate) fn open_gate(&self) {
        self.open_gate_for(1);
    }

    /// So many may pass.
    pub(crate) fn open_gate_for(&self, count: usize) {
        self.gate.as_ref().expect("gated").1.add_permits(count);
    }

    async fn pass_gate(&self, verb: &str) {
        if let Some((_, gate)) = self.gate.as_ref().filter(|(gated, _)| *gated == verb) {
            gate.acquire().await.expect("open").forget();
        }
    }

    /// Lets go on what hangs.
    pub(crate) fn free(&self, wanted: impl Fn(&str) -> bool) {
        self.state().hanging.retain(|what| !wanted(what));
        self.freed.notify_waiters();
    }

    async fn hang(&self, what: String) {
        loop {
            let freed = self.freed.notified();
            {
                let mut state = self.state();
                if !state.hanging.contains(&what) {
                    return;
                }
                state.log.push(format!("hangs {what}"));
            }
            freed.await;
        }
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no test panics with it")
    }

    /// The next call fails.
    pub(crate) fn fail(&self, verb: &'static str, culprits: &[(usize, bool)]) {
        self.fail_from(verb, culprits, 0, 1);
    }

    /// After so many calls, so many calls fail.
    pub(crate) fn fail_from(&self, verb: &'static str, culprits: &[(usize, bool)], after: usize, times: usize) {
        let culprits = culprits.iter().map(|&(place, absent)| Culprit { place, absent }).collect();
        self.state().failing.insert(verb, Failure { culprits, after, times });
    }

    pub(crate) fn serving(&self) -> usize {
        self.serving.load(Ordering::SeqCst)
    }

    /// What lives in the kernel is gone, what lives on disks is not.
    pub(crate) fn reboot(&self) {
        let mut state = self.state();
        state.netns.clear();
        state.joined.clear();
        state.lost.clear();
    }

    fn verb(&self, verb: &'static str) -> Result<MutexGuard<'_, State>, WorldError> {
        self.verb_on(verb, verb.to_owned())
    }

    fn verb_on(&self, verb: &'static str, line: String) -> Result<MutexGuard<'_, State>, WorldError> {
        let mut state = self.state();
        state.log.push(line);
        if state.panicking.remove(verb) {
            drop(state);
            panic!("{verb} panics as the test wants");
        }
        let Some(failure) = state.failing.get_mut(verb) else { return Ok(state) };
        if failure.after > 0 {
            failure.after -= 1;
            return Ok(state);
        }
        failure.times -= 1;
        let culprits = failure.culprits.clone();
        if failure.times == 0 {
            state.failing.remove(verb);
        }
        Err(WorldError::Fake { verb, culprits })
    }
}

/// The network of this name, of two plugins of one kind, which is Multus' if that is its name.
pub(crate) fn network(name: &str) -> NetworkList {
    let kind = if name == "multus" { name } else { "plugin" };
    let plugins = serde_json::json!([{ "type": kind }, { "type": kind }]);
    let list = serde_json::json!({ "name": name, "cniVersion": "1.0.0", "plugins": plugins });
    serde_json::from_value(list).expect("a network")
}

/// What each link of the networks becomes.
/// The virtual function that the link at `place` is, if it is one.
pub(crate) fn vf_at(place: usize) -> PciAddress {
    format!("0000:01:10.{place}").parse().expect("address")
}

pub(crate) fn nic(place: usize, name: &str) -> Nic {
    Nic {
        name: name.parse().expect("name"),
        network: "net".into(),
        kind: NicKind::Tap(Tap { data_path: proto::tap::DataPath::Tc, queues: 1 }),
        mac: format!("02:00:00:00:00:{:02x}", place + 1).parse().expect("mac"),
        mtu: 1500,
        addresses: vec![format!("10.77.{place}.2/24").parse().expect("address")],
        routes: vec![],
    }
}

fn key(record: &Record, attachment: &Attachment) -> (String, String) {
    (record.pod().as_str().to_owned(), attachment.ifname.as_str().to_owned())
}

impl World for Arc<Fake> {
    async fn networks(&self, request: &Attach) -> Result<Vec<NetworkList>, WorldError> {
        drop(self.verb("networks")?);
        let named = request.networks.iter().map(|ask| ask.network.as_deref().unwrap_or("net"));
        let named: Vec<_> = named.collect();
        Ok(if named.is_empty() { vec![network("net")] } else { named.into_iter().map(network).collect() })
    }

    async fn configured(&self) -> Vec<NetworkList> {
        vec![network("net")]
    }

    async fn look(&self, netns: &Path) -> Result<NetnsState, WorldError> {
        let name = netns.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        self.hang(format!("look {}", name.rsplit('-').next().unwrap_or_default())).await;
        let state = self.verb("look")?;
        Ok(match (state.netns.contains(netns), state.other_files.contains(netns)) {
            (true, _) => NetnsState::Present,
            (false, true) => NetnsState::OtherFile,
            (false, false) => NetnsState::Absent,
        })
    }

    async fn create_netns(&self, netns: &Path) -> Result<(), WorldError> {
        assert!(self.verb("create_netns")?.netns.insert(netns.into()), "created twice");
        Ok(())
    }

    async fn remove_netns(&self, netns: &Path) -> Result<(), WorldError> {
        self.pass_gate("remove_netns").await;
        let mut state = self.verb("remove_netns")?;
        state.netns.remove(netns);
        state.other_files.remove(netns);
        state.joined.remove(netns);
        Ok(())
    }

    async fn namespaces(&self, names: &NetnsNames) -> Result<Vec<(PathBuf, NetnsOwner)>, WorldError> {
        let state = self.verb("namespaces")?;
        Ok(state.netns.iter().filter_map(|path| Some((path.clone(), names.owner(path)?))).collect())
    }

    async fn sysctls(&self, netns: &Path, _: &BTreeMap<String, String>) -> Result<(), WorldError> {
        assert!(self.verb("sysctls")?.netns.contains(netns), "set without a namespace");
        Ok(())
    }

    async fn add(
        &self,
        record: &Record,
        attachment: &Attachment,
        gate: Option<Gate<'_>>,
    ) -> Result<Network, WorldError> {
        if let Some(gate) = gate
            && !gate.await
        {
            self.state().log.push(format!("add {}", attachment.ifname));
            return Err(WorldError::Fake { verb: "add", culprits: vec![] });
        }
        self.pass_gate("add").await;
        // Half of it is done even if it fails.
        self.state().added.insert(key(record, attachment));
        let name = attachment.network.name().to_owned();
        let dns = self.verb_on("add", format!("add {}", attachment.ifname))?.dns.get(&name).cloned();
        let links = vec![attachment.ifname.clone()];
        let reported = Reported { network: name, links, ..Reported::default() };
        let raw = serde_json::json!({ "cniVersion": "1.0.0", "link": attachment.ifname });
        Ok(Network { raw, reported: vec![reported], dns: dns.unwrap_or_default() })
    }

    async fn del(&self, record: &Record, attachment: &Attachment, seen: NetnsState) -> Result<(), WorldError> {
        let key = key(record, attachment);
        self.hang(format!("del {}", key.0)).await;
        let mut state = self.verb_on("del", format!("del {}", attachment.ifname))?;
        assert_eq!(seen == NetnsState::Present, state.netns.contains(&record.netns), "told wrongly of the namespace");
        let out = state.claimed.values().any(|owner| owner == record.pod());
        assert!(!out, "DEL while a machine has what the plugin made");
        if let Some(result) = &attachment.result {
            assert_eq!(result["link"], attachment.ifname.as_str(), "the result of another network");
        }
        state.told.push((attachment.ifname.as_str().to_owned(), attachment.result.is_some()));
        state.added.remove(&key);
        Ok(())
    }

    async fn make_way(&self, _: &Record, _: &Attachment) -> Result<Option<Renamed>, WorldError> {
        let mut state = self.state();
        if !std::mem::take(&mut state.name_taken) {
            return Ok(None);
        }
        state.log.push("make_way".to_owned());
        Ok(Some(Renamed { was: "up0".to_owned(), becomes: "up0-1".parse().expect("a name") }))
    }

    async fn send_back(&self, record: &Record, attachment: &Attachment) -> Result<Option<Renamed>, WorldError> {
        let mut state = self.state();
        if state.netns.contains(&record.netns) {
            state.sent_back.push(attachment.ifname.to_string());
        }
        Ok(None)
    }

    async fn check_network(&self, _: &Record, attachment: &Attachment) -> Result<Checked, WorldError> {
        self.verb_on("check_network", format!("check {}", attachment.ifname)).map(|_| Checked::Well)
    }

    async fn join(
        &self,
        netns: &Path,
        reported: &[Reported],
        _: Choices,
        faults: &Arc<Faults>,
    ) -> Result<Joined, WorldError> {
        let mut state = self.verb("join")?;
        // Undone by itself when it fails, as the real one.
        faults.after("joined").map_err(|_| WorldError::Fake { verb: "join", culprits: vec![] })?;
        assert!(state.netns.contains(netns), "joined without a namespace");
        state.joined.insert(netns.into());
        let links = reported.iter().flat_map(|reported| &reported.links).enumerate();
        let mut passed_through = Vec::new();
        let mut nics: Vec<Nic> = links.map(|(place, link)| nic(place, link.as_str())).collect();
        for (place, nic) in nics.iter_mut().enumerate().filter(|(_, nic)| state.vf_links.contains(nic.name.as_str())) {
            let device = vf_at(place);
            nic.kind = NicKind::Vfio(Vfio { device });
            let link = Some(nic.name.clone());
            let (vf, network) = (vf::local(device), nic.network.clone());
            passed_through.push(PassedThrough {
                vf,
                network,
                link,
                mac: nic.mac,
                asked: sriov::settings::VfSettings::default(),
            });
        }
        Ok(Joined { nics, ports: vec![], passed_through, notes: vec![] })
    }

    async fn rejoin(&self, netns: &Path, _: &[Nic]) -> Result<Vec<Option<Port>>, WorldError> {
        let state = self.verb("rejoin")?;
        assert!(state.netns.contains(netns), "rejoined without a namespace");
        if state.lost.is_empty() { Ok(vec![]) } else { Err(WorldError::Fake { verb: "rejoin", culprits: vec![] }) }
    }

    async fn check_join(&self, _: &Record, net: &PodNet) -> Result<Vec<Finding>, WorldError> {
        let state = self.verb("check_join")?;
        assert!(state.netns.contains(&net.netns), "checked without a namespace");
        let found = |line: &String| Finding { line: line.clone(), breaks: true, ours: !state.beyond };
        let told = |line: &String| Finding { line: line.clone(), breaks: false, ours: false };
        Ok(state.lost.iter().map(found).chain(state.changed.iter().map(told)).collect())
    }

    async fn repair(&self, netns: &Path, _: &[Nic], _: Choices, _: &Arc<Faults>) -> Result<(), WorldError> {
        let mut state = self.verb("repair")?;
        assert!(state.netns.contains(netns), "repaired without a namespace");
        assert!(!state.beyond, "what is not ours was repaired");
        state.lost.clear();
        Ok(())
    }

    async fn unjoin(&self, netns: &Path) -> Result<(), WorldError> {
        self.verb("unjoin")?.joined.remove(netns);
        Ok(())
    }

    fn serve(&self, _: &Arc<PodNet>, _: &Attach, _: Vec<Option<Port>>) -> Serving {
        let serving = Arc::clone(&self.serving);
        serving.fetch_add(1, Ordering::SeqCst);
        let killed = CancellationToken::new();
        self.state().servers.push(killed.clone());
        Serving::start(|servers| {
            servers.spawn(|cancel| async move {
                tokio::select! {
                    () = cancel.cancelled() => {}
                    () = killed.cancelled() => {}
                }
                serving.fetch_sub(1, Ordering::SeqCst);
            });
        })
    }

    async fn claim(&self, record: &Record, vfs: &[PassedThrough]) -> Result<(), WorldError> {
        // Half of it is done even if it fails.
        let all = vfs.iter().map(|vf| (vf::wire(vf.vf), record.pod().clone()));
        self.state().claimed.extend(all);
        drop(self.verb("claim")?);
        Ok(())
    }

    async fn give_back(&self, pod: &PodId) -> Result<(), WorldError> {
        if !self.state().claimed.values().any(|owner| owner == pod) {
            return Ok(());
        }
        let mut state = self.verb("give_back")?;
        let own: Vec<PciAddress> = state.claimed.iter().filter(|(_, owner)| *owner == pod).map(|(vf, _)| *vf).collect();
        for vf in own {
            state.claimed.remove(&vf);
            state.handed_out.remove(&vf);
        }
        Ok(())
    }

    async fn hand_out(&self, pod: &PodId, net: &PodNet, by_descriptor: bool) -> Result<Vec<PciAddress>, WorldError> {
        let mut state = self.verb("hand_out")?;
        let all: Vec<PciAddress> = net.vfio().map(|vfio| vfio.device).collect();
        assert!(all.iter().all(|vf| state.claimed.get(vf) == Some(pod)), "handed out and not claimed");
        state.handed_out.extend(all.iter().copied());
        Ok(if by_descriptor { Vec::new() } else { all })
    }

    async fn check_vfs(&self, _: &PodId, net: &PodNet) -> Vec<Finding> {
        let state = self.state();
        net.vfio()
            .filter(|vfio| state.vanished.contains(&vfio.device))
            .map(|_| Finding { line: "a VF is gone".to_owned(), breaks: true, ours: false })
            .collect()
    }

    fn vf_owners(&self) -> BTreeSet<PodId> {
        self.state().claimed.values().cloned().collect()
    }

    fn open_devices(&self, _: &PodId, _: &PodNet) -> Result<Option<Devices>, WorldError> {
        Ok(None)
    }

    fn open_taps(&self, netns: &Path, nics: &[Nic]) -> Result<Vec<Opened>, WorldError> {
        assert!(self.verb("open_taps")?.netns.contains(netns), "opened without a namespace");
        let open = |_: &Nic| std::fs::File::open("/dev/null").expect("null").into();
        Ok(nics.iter().map(|nic| Opened { queues: vec![open(nic)], vhost: vec![] }).collect())
    }

    async fn stats(&self, _: &Path, nics: &[Nic]) -> Result<Vec<NicStats>, WorldError> {
        drop(self.verb("stats")?);
        let count = |nic: &Nic| NicStats {
            name: nic.name.clone(),
            rx_bytes: 1,
            rx_packets: 2,
            rx_errors: 3,
            rx_dropped: 4,
            tx_bytes: 5,
            tx_packets: 6,
            tx_errors: 7,
            tx_dropped: 8,
        };
        Ok(nics.iter().map(count).collect())
    }

    async fn leftovers(&self) -> Result<Vec<Leftover>, WorldError> {
        Ok(self.verb("leftovers")?.leftovers.clone())
    }

    async fn del_leftover(&self, leftover: &Leftover) -> Result<(), WorldError> {
        self.hang(format!("del {}", leftover.pod.as_str())).await;
        let mut state = self.verb_on("del_leftover", format!("del_leftover {}", leftover.pod.as_str()))?;
        state.leftovers.retain(|left| left != leftover);
        Ok(())
    }

    async fn gc(&self, network: &OfNetwork) -> Result<Checked, WorldError> {
        self.hang(format!("gc {}", network.network.name())).await;
        let mut state = self.verb_on("gc", format!("gc {}", network.network.name()))?;
        let valid = network.valid.iter().map(|(pod, link)| format!("{}/{link}", pod.as_str())).collect();
        state.collected.push((network.network.name().to_owned(), valid));
        Ok(Checked::Well)
    }

    async fn ready(&self) -> Ready {
        Ready { outcome: self.verb("ready").map(drop).map_err(|_| Unready::Fake), unanswered: None }
    }

    fn known_ready(&self) -> Ready {
        Ready { outcome: Err(Unready::NotAsked), unanswered: None }
    }

    fn plugin_micros(&self) -> u64 {
        7
    }

    fn failed_adds(&self) -> Vec<String> {
        self.state().failed_adds.clone()
    }

    fn now(&self) -> u64 {
        self.state().now
    }
}
