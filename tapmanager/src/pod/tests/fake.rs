//! A world made of sets, in which any verb can be told to fail.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use proto::tap::{Dns, Nic, PodNet};
use tokio::sync::Semaphore;

use super::super::world::{Network, Seen, Serving, World, WorldError};
use crate::cni::NetworkList;
use crate::faults::Faults;
use crate::journal::Record;
use crate::net::{Joined, Reported, Wish};
use crate::sys::packet::PacketSocket;

#[derive(Debug, Default)]
pub(crate) struct Fake {
    state: Mutex<State>,
    serving: Arc<AtomicUsize>,
    gate: Option<Semaphore>,
}

#[derive(Debug, Default)]
pub(crate) struct State {
    /// Verbs that were called.
    pub(crate) log: Vec<&'static str>,
    /// Verbs that fail, with the plugins that are to blame and whether they are absent. Once each.
    pub(crate) failing: BTreeMap<&'static str, Vec<(&'static str, bool)>>,
    pub(crate) netns: BTreeSet<PathBuf>,
    pub(crate) other_files: BTreeSet<PathBuf>,
    pub(crate) added: BTreeSet<PathBuf>,
    pub(crate) joined: BTreeSet<PathBuf>,
}

impl Fake {
    /// ADD waits until a permit is put at its gate.
    pub(crate) fn gated() -> Self {
        Self { gate: Some(Semaphore::new(0)), ..Self::default() }
    }

    pub(crate) fn open_gate(&self) {
        self.gate.as_ref().expect("gated").add_permits(1);
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no test panics with it")
    }

    pub(crate) fn fail(&self, verb: &'static str, culprits: &[(&'static str, bool)]) {
        self.state().failing.insert(verb, culprits.to_vec());
    }

    pub(crate) fn serving(&self) -> usize {
        self.serving.load(Ordering::SeqCst)
    }

    /// What lives in the kernel is gone, what lives on disks is not.
    pub(crate) fn reboot(&self) {
        let mut state = self.state();
        state.netns.clear();
        state.joined.clear();
    }

    fn verb(&self, verb: &'static str) -> Result<MutexGuard<'_, State>, WorldError> {
        let mut state = self.state();
        state.log.push(verb);
        match state.failing.remove(verb) {
            Some(culprits) => Err(WorldError::Fake { verb, culprits }),
            None => Ok(state),
        }
    }
}

pub(crate) fn network() -> NetworkList {
    let plugins = serde_json::json!([{ "type": "first" }, { "type": "second" }]);
    let list = serde_json::json!({ "name": "net", "cniVersion": "1.0.0", "plugins": plugins });
    serde_json::from_value(list).expect("a network")
}

pub(crate) fn nics() -> Vec<Nic> {
    vec![Nic {
        name: "eth0".parse().expect("name"),
        network: "pods".into(),
        data_path: proto::tap::DataPath::Tc,
        mac: "02:00:00:00:00:01".parse().expect("mac"),
        mtu: 1500,
        queues: 1,
        addresses: vec!["10.77.0.2/24".parse().expect("address")],
        routes: vec![],
    }]
}

impl World for Arc<Fake> {
    async fn default_network(&self) -> Result<NetworkList, WorldError> {
        self.verb("default_network").map(|_| network())
    }

    async fn look(&self, netns: &Path) -> Result<Seen, WorldError> {
        let state = self.verb("look")?;
        Ok(match (state.netns.contains(netns), state.other_files.contains(netns)) {
            (true, _) => Seen::Netns,
            (false, true) => Seen::OtherFile,
            (false, false) => Seen::Nothing,
        })
    }

    async fn create_netns(&self, netns: &Path) -> Result<(), WorldError> {
        assert!(self.verb("create_netns")?.netns.insert(netns.into()), "created twice");
        Ok(())
    }

    async fn remove_netns(&self, netns: &Path) -> Result<(), WorldError> {
        let mut state = self.verb("remove_netns")?;
        state.netns.remove(netns);
        state.other_files.remove(netns);
        state.joined.remove(netns);
        Ok(())
    }

    async fn add(&self, record: &Record) -> Result<Network, WorldError> {
        if let Some(gate) = &self.gate {
            gate.acquire().await.expect("open").forget();
        }
        // Half of it is done even if it fails.
        self.state().added.insert(record.netns.clone());
        drop(self.verb("add")?);
        let reported =
            Reported { network: "pods".into(), links: vec!["eth0".parse().expect("name")], addresses: vec![] };
        Ok(Network { raw: serde_json::json!({ "cniVersion": "1.0.0" }), reported, dns: Dns::default() })
    }

    async fn del(&self, record: &Record) -> Result<(), WorldError> {
        self.verb("del")?.added.remove(&record.netns);
        Ok(())
    }

    async fn join(&self, netns: &Path, _: &[Reported], _: &Wish, faults: &Arc<Faults>) -> Result<Joined, WorldError> {
        let mut state = self.verb("join")?;
        // Undone by itself when it fails, as the real one.
        faults.after("joined").map_err(|_| WorldError::Fake { verb: "join", culprits: vec![] })?;
        assert!(state.netns.contains(netns), "joined without a namespace");
        state.joined.insert(netns.into());
        Ok(Joined { nics: nics(), dhcp: vec![] })
    }

    async fn rejoin(&self, netns: &Path, _: &[Nic]) -> Result<Vec<Option<PacketSocket>>, WorldError> {
        assert!(self.verb("rejoin")?.netns.contains(netns), "rejoined without a namespace");
        Ok(vec![])
    }

    async fn unjoin(&self, netns: &Path) -> Result<(), WorldError> {
        self.verb("unjoin")?.joined.remove(netns);
        Ok(())
    }

    fn serve(&self, _: &Arc<PodNet>, _: &str, _: Vec<Option<PacketSocket>>) -> Serving {
        let serving = Arc::clone(&self.serving);
        serving.fetch_add(1, Ordering::SeqCst);
        Serving::start(|servers, cancel| {
            let cancel = cancel.clone();
            servers.spawn(async move {
                cancel.cancelled().await;
                serving.fetch_sub(1, Ordering::SeqCst);
            });
        })
    }

    async fn open_taps(&self, netns: &Path, nics: &[Nic]) -> Result<Vec<Opened>, WorldError> {
        assert!(self.verb("open_taps")?.netns.contains(netns), "opened without a namespace");
        let open = |_: &Nic| std::fs::File::open("/dev/null").expect("null").into();
        Ok(nics.iter().map(|nic| Opened { queues: vec![open(nic)], vhost: vec![] }).collect())
    }

    async fn ready(&self) -> Result<(), WorldError> {
        self.verb("ready").map(drop)
    }

    fn plugin_micros(&self) -> u64 {
        7
    }
}
