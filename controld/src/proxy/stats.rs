//! Keeps usage that kubelet cannot place from spoiling that of the whole node.
//!
//! One container whose `writable_layer.fs_id.mountpoint` is not there makes kubelet's `/stats/summary` an error for all pods (tried with
//! kubelet 1.36), and with it metrics, HPA and eviction. So each mountpoint of a list of usage is looked up (`statvfs`), of whichever side it
//! is, and a `writable_layer` on one that fails is cut out of its encoded message. All else stays as it came.
//!
//! A look has a thread and a deadline of its own, as one at a server that is away may never end. One that is late has failed: kubelet would
//! wait there for as long. Until it ends there is no second look at that mountpoint, so that each takes one thread.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use common::off_reactor;
use futures_util::StreamExt as _;
use futures_util::future::{BoxFuture, FutureExt as _, Shared};
use nix::sys::statvfs::statvfs;
use tokio::time::timeout;

use super::kind::Kind;
use super::wire::{self, Malformed, Value};

/// How long a look at one mountpoint may take.
const LOOK: Duration = Duration::from_millis(500);
/// Looks at a time.
const AT_ONCE: usize = 16;
/// Bad mountpoints that are remembered as told. More would be told again.
const MOST_TOLD: usize = 1000;

/// `ContainerStats.writable_layer`.
const WRITABLE: u32 = 4;
/// From it to the mountpoint.
const MOUNTPOINT: [u32; 2] = [2, 1];

/// Looks at mountpoints. Clones share what is known of them.
#[derive(Debug, Clone)]
pub(super) struct Looks {
    /// Whether there is a file system at a path. May take for ever.
    look: fn(&Path) -> bool,
    known: Arc<Mutex<Known>>,
}

#[derive(Debug, Default)]
struct Known {
    under_way: BTreeMap<String, Shared<BoxFuture<'static, bool>>>,
    /// Bad ones that somebody was told of.
    told: BTreeSet<String>,
}

impl Default for Looks {
    fn default() -> Self {
        Self { look: |path| statvfs(path).is_ok(), known: Arc::default() }
    }
}

impl Looks {
    /// A list of usage without what kubelet cannot place. Lists of another kind, and what is no list, are as they were.
    pub(super) async fn checked(&self, kind: Kind, list: Bytes) -> Bytes {
        let Some(path) = to_stats(kind) else { return list };
        let Ok(mountpoints) = mountpoints(&list, path) else { return list };
        let looks = mountpoints.into_iter().map(|mountpoint| async {
            let is_good = self.is_good(&mountpoint).await;
            (mountpoint, is_good)
        });
        let (good, bad): (Vec<_>, Vec<_>) = futures_util::stream::iter(looks)
            .buffer_unordered(AT_ONCE)
            .collect::<Vec<_>>()
            .await
            .into_iter()
            .partition(|(_, is_good)| *is_good);
        let names = |of: Vec<(String, bool)>| of.into_iter().map(|(name, _)| name).collect::<BTreeSet<_>>();
        let (good, bad) = (names(good), names(bad));
        for mountpoint in self.news(&good, &bad) {
            tracing::warn!(
                mountpoint,
                "usage left out of answers: no file system of this node is found there, and kubelet would answer for none"
            );
        }
        if bad.is_empty() {
            return list;
        }
        let layers = [path, &[WRITABLE]].concat();
        let cut = wire::without(&list, &layers, &mut |layer| Ok(bad.contains(wire::text(layer, &MOUNTPOINT)?)));
        cut.map_or(list, Bytes::from)
    }

    async fn is_good(&self, mountpoint: &str) -> bool {
        let look =
            self.known().under_way.entry(mountpoint.to_owned()).or_insert_with(|| self.begin(mountpoint)).clone();
        timeout(LOOK, look).await.unwrap_or_default()
    }

    /// A look that begins when it is first waited for, and goes on by itself.
    fn begin(&self, mountpoint: &str) -> Shared<BoxFuture<'static, bool>> {
        let (looks, mountpoint) = (self.clone(), mountpoint.to_owned());
        let look = off_reactor(move || {
            let is_good = (looks.look)(Path::new(&mountpoint));
            looks.known().under_way.remove(&mountpoint);
            is_good
        });
        look.boxed().shared()
    }

    /// Bad mountpoints that were not bad before, or not there.
    fn news(&self, good: &BTreeSet<String>, bad: &BTreeSet<String>) -> Vec<String> {
        let mut known = self.known();
        known.told.retain(|told| !good.contains(told));
        if known.told.len() > MOST_TOLD {
            known.told.clear();
        }
        bad.iter().filter(|mountpoint| known.told.insert((*mountpoint).clone())).cloned().collect()
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Where `ContainerStats` are in a list of usage.
fn to_stats(kind: Kind) -> Option<&'static [u32]> {
    match kind {
        Kind::ContainerStats => Some(&[1]),
        // PodSandboxStats, linux, containers.
        Kind::SandboxStats => Some(&[1, 2, 5]),
        Kind::Sandboxes | Kind::Containers | Kind::Images | Kind::Metrics => None,
    }
}

/// All mountpoints, each once.
fn mountpoints(list: &[u8], path: &[u32]) -> Result<BTreeSet<String>, Malformed> {
    let mut found = BTreeSet::new();
    wire::each(list, &[path, &[WRITABLE], &MOUNTPOINT].concat(), &mut |value| {
        if let Value::Bytes(bytes) = value {
            found.insert(std::str::from_utf8(bytes).map_err(|_| Malformed)?.to_owned());
        }
        Ok(())
    })?;
    found.remove("");
    Ok(found)
}

#[cfg(test)]
mod tests {
    use prost::Message as _;
    use proto::cri::*;

    use super::*;

    fn stats(id: &str, mountpoint: &str) -> ContainerStats {
        let fs_id = Some(FilesystemIdentifier { mountpoint: mountpoint.into() });
        ContainerStats {
            attributes: Some(ContainerAttributes { id: id.into(), ..Default::default() }),
            writable_layer: Some(FilesystemUsage { fs_id, timestamp: 7, ..Default::default() }),
            swap: Some(SwapUsage { timestamp: 9, ..Default::default() }),
            ..Default::default()
        }
    }

    #[tokio::test]
    async fn a_layer_on_nothing_is_cut_out_and_all_else_stays() {
        let dir = tempfile::tempdir().expect("a directory");
        let there = dir.path().display().to_string();
        let good = stats("a", &there);
        let poison = stats("b", "/no/such/file/system");
        let mended = ContainerStats { writable_layer: None, ..poison.clone() };
        let list = ListContainerStatsResponse { stats: vec![good.clone(), poison.clone()] };
        let wanted = ListContainerStatsResponse { stats: vec![good.clone(), mended.clone()] };
        let looks = Looks::default();
        let checked = |kind, list: Vec<u8>| looks.checked(kind, Bytes::from(list));
        assert_eq!(checked(Kind::ContainerStats, list.encode_to_vec()).await, wanted.encode_to_vec());
        let pods = |containers| {
            let linux = Some(LinuxPodSandboxStats { containers, ..Default::default() });
            ListPodSandboxStatsResponse { stats: vec![PodSandboxStats { linux, ..Default::default() }] }.encode_to_vec()
        };
        let listed = checked(Kind::SandboxStats, pods(vec![poison.clone(), good.clone()])).await;
        assert_eq!(listed, pods(vec![mended, good.clone()]));
        // Nothing to cut: the same bytes, unknown fields with them.
        let raw =
            [ListContainerStatsResponse { stats: vec![good] }.encode_to_vec(), vec![0xfa, 0x7d, 1, b'x']].concat();
        assert_eq!(checked(Kind::ContainerStats, raw.clone()).await, raw);
        let unknown =
            [ListContainerStatsResponse { stats: vec![poison] }.encode_to_vec(), vec![0xfa, 0x7d, 1, b'x']].concat();
        assert!(checked(Kind::ContainerStats, unknown).await.ends_with(&[0xfa, 0x7d, 1, b'x']));
        assert_eq!(checked(Kind::ContainerStats, vec![0x0a, 9]).await, [0x0a, 9][..], "not ours to judge");
    }
    /// Until this is set, looks at one mountpoint do not end.
    static ENDS: (Mutex<bool>, std::sync::Condvar) = (Mutex::new(false), std::sync::Condvar::new());
    static LOOKS: std::sync::atomic::AtomicUsize = std::sync::atomic::AtomicUsize::new(0);

    /// As of a server that is away, and one that has no such thing.
    fn look(path: &Path) -> bool {
        if path == Path::new("/away") {
            LOOKS.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
            let ends = ENDS.0.lock().expect("a lock");
            drop(ENDS.1.wait_while(ends, |ends| !*ends).expect("a lock"));
        }
        path != Path::new("/failing")
    }

    #[tokio::test]
    async fn a_look_that_hangs_takes_one_thread_and_spoils_its_own_mountpoint_alone() {
        let looks = Looks { look, known: Arc::default() };
        // More than any bound on their number, and the bad one behind them.
        let good = (0..300).map(|number| stats("a", &format!("/good/{number}")));
        let cut = |id, mountpoint| ContainerStats { writable_layer: None, ..stats(id, mountpoint) };
        let bad = [stats("b", "/away"), stats("c", "/failing"), stats("d", "/away"), stats("e", "/zzz")];
        let list = ListContainerStatsResponse { stats: good.clone().chain(bad).collect() }.encode_to_vec();
        let bad = [cut("b", "/away"), cut("c", "/failing"), cut("d", "/away"), stats("e", "/zzz")];
        let wanted = ListContainerStatsResponse { stats: good.chain(bad).collect() };
        for _ in 0..3 {
            let checked = looks.checked(Kind::ContainerStats, Bytes::from(list.clone())).await;
            assert!(ListContainerStatsResponse::decode(checked).expect("a list") == wanted);
        }
        assert_eq!(LOOKS.load(std::sync::atomic::Ordering::SeqCst), 1);
        *ENDS.0.lock().expect("a lock") = true;
        ENDS.1.notify_all();
        let pending = looks.known().under_way.get("/away").cloned();
        if let Some(pending) = pending {
            assert!(pending.await);
        }
        assert!(looks.is_good("/away").await);
    }

    #[test]
    fn a_bad_mountpoint_is_told_of_once_until_it_is_good_again() {
        let looks = Looks::default();
        let set = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<BTreeSet<_>>();
        let news = |good: &[&str], bad: &[&str]| looks.news(&set(good), &set(bad));
        assert_eq!(news(&["/a"], &["/b"]), ["/b"]);
        assert!(news(&["/a"], &["/b"]).is_empty() && news(&["/a"], &[]).is_empty(), "a list of others says nothing");
        assert_eq!(news(&[], &["/b", "/c"]), ["/c"]);
        assert!(news(&["/b"], &[]).is_empty());
        assert_eq!(news(&[], &["/b"]), ["/b"]);
    }
}
