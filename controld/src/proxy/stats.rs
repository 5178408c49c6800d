//! Keeps file systems that kubelet cannot place from spoiling what it knows of the whole node.
//!
//! One `fs_id` whose mountpoint is not there makes kubelet's `/stats/summary` an error for all pods (tried with kubelet 1.36), and with it
//! metrics, HPA and eviction; by its source (1.37) so does one on a file system that it has no device for. So each mountpoint of a list of
//! usage, and of `ImageFsInfo`, is looked up, of whichever side it is, and an `fs_id` that fails is cut out of its encoded message.
//! Without one kubelet takes what is used as it is told, and knows of no capacity. All else stays as it came.
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
use nix::sys::stat::{major, stat};
use nix::sys::statfs::{BTRFS_SUPER_MAGIC, FsType, NFS_SUPER_MAGIC, OVERLAYFS_SUPER_MAGIC, TMPFS_MAGIC, statfs};
use tokio::time::timeout;

use super::kind::Kind;
use super::wire::{self, Malformed, Value};

/// How long a look at one mountpoint may take.
const LOOK: Duration = Duration::from_millis(500);
/// Looks at a time.
const AT_ONCE: usize = 16;
/// Bad mountpoints that are remembered as told. More would be told again.
const MOST_TOLD: usize = 1000;

/// File systems without a block device that kubelet's cAdvisor knows all the same, and ZFS.
const KNOWN: [FsType; 4] = [BTRFS_SUPER_MAGIC, NFS_SUPER_MAGIC, OVERLAYFS_SUPER_MAGIC, TMPFS_MAGIC];
const ZFS: u64 = 0x2fc1_2fc1;

/// `FilesystemUsage.fs_id`.
const FS_ID: u32 = 2;
/// And in it.
const MOUNTPOINT: u32 = 1;
/// `ImageFsInfoResponse.image_filesystems`.
const IMAGE_FILESYSTEMS: &[u32] = &[1];

/// Looks at mountpoints. Clones share what is known of them.
#[derive(Debug, Clone)]
pub(super) struct Looks {
    /// Whether kubelet can place a path. May take for ever.
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
        Self { look: has_place, known: Arc::default() }
    }
}

impl Looks {
    /// A list of usage without what kubelet cannot place. Lists of another kind, and what is no list, are as they were.
    pub(super) async fn checked(&self, kind: Kind, list: Bytes) -> Bytes {
        match to_usage(kind) {
            Some(path) => self.placed(list, path).await,
            None => list,
        }
    }

    /// An answer to `ImageFsInfo`, or a piece of it, likewise.
    pub(super) async fn image_fs_info(&self, answer: Bytes) -> Bytes {
        self.placed(answer, IMAGE_FILESYSTEMS).await
    }

    /// A message whose `FilesystemUsage`s are at `path`.
    async fn placed(&self, message: Bytes, path: &[u32]) -> Bytes {
        let path = [path, &[FS_ID]].concat();
        let Ok(mountpoints) = mountpoints(&message, &path) else { return message };
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
                "file system left out of answers: kubelet does not find it on this node, and would know the usage of nothing"
            );
        }
        if bad.is_empty() {
            return message;
        }
        let cut = wire::without(&message, &path, &mut |id| Ok(bad.contains(wire::text(id, &[MOUNTPOINT])?)));
        cut.map_or(message, Bytes::from)
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

/// Where each `ContainerStats.writable_layer` is in a list of usage.
fn to_usage(kind: Kind) -> Option<&'static [u32]> {
    match kind {
        Kind::ContainerStats => Some(&[1, 4]),
        // PodSandboxStats, linux, containers.
        Kind::SandboxStats => Some(&[1, 2, 5, 4]),
        Kind::Sandboxes | Kind::Containers | Kind::Images | Kind::Metrics => None,
    }
}

/// Whether kubelet finds a device for a path: a block device, or the kind of file system is one of those that it knows without.
fn has_place(path: &Path) -> bool {
    let (Ok(stat), Ok(found)) = (stat(path), statfs(path)) else { return false };
    let kind = found.filesystem_type();
    major(stat.st_dev) != 0 || KNOWN.contains(&kind) || u64::try_from(kind.0).is_ok_and(|kind| kind == ZFS)
}

/// All mountpoints of what is at `path`, each once.
fn mountpoints(message: &[u8], path: &[u32]) -> Result<BTreeSet<String>, Malformed> {
    let mut found = BTreeSet::new();
    wire::each(message, &[path, &[MOUNTPOINT]].concat(), &mut |value| {
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

    fn cut(of: &ContainerStats) -> ContainerStats {
        let writable_layer = of.writable_layer.clone().map(|layer| FilesystemUsage { fs_id: None, ..layer });
        ContainerStats { writable_layer, ..of.clone() }
    }

    #[tokio::test]
    async fn a_file_system_that_is_not_there_is_cut_out_and_all_else_stays() {
        let dir = tempfile::tempdir().expect("a directory");
        let there = dir.path().display().to_string();
        let good = stats("a", &there);
        let poison = stats("b", "/no/such/file/system");
        let mended = cut(&poison);
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

    #[tokio::test]
    async fn of_images_too() {
        let usage = |id: &str| stats(id, id).writable_layer.expect("usage");
        let info = |image_filesystems| ImageFsInfoResponse { image_filesystems, ..Default::default() }.encode_to_vec();
        let (there, gone) = (usage("/"), usage("/no/such/file/system"));
        let checked = Looks::default().image_fs_info(info(vec![gone.clone(), there.clone()]).into()).await;
        assert_eq!(checked, info(vec![FilesystemUsage { fs_id: None, ..gone }, there]));
    }

    #[test]
    fn what_kubelet_has_no_device_for_has_no_place() {
        assert!(has_place(Path::new("/")) && has_place(Path::new("/dev/shm")), "a disk or an overlay, and a tmpfs");
        assert!(!has_place(Path::new("/proc")) && !has_place(Path::new("/no/such")));
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
        let cut = |id, mountpoint| cut(&stats(id, mountpoint));
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
