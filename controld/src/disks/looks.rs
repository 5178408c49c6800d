//! How many threads are at volumes, or at directories of checkpoints, at once: so many at those of one file server or file system, so that
//! one that hangs keeps others from nothing, and so many at all. Volumes of several are a set with places of its own: as long as one of the
//! set hangs, a thread there would keep places of the others, at which nothing hangs.
//!
//! A thread whose volume hangs is there until the kernel lets it go, however often that is tried again. What a directory is on is read in the
//! kernel's list of mounts: who asks the directory itself hangs as well.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use common::off_reactor;
use procfs::process::{MountInfo, Process};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Places.
#[derive(Debug)]
pub(crate) struct Looks {
    all: Arc<Semaphore>,
    most_of_one: usize,
    /// Of each set of servers and file systems that somebody is at, or waits for.
    of_each: Mutex<BTreeMap<BTreeSet<String>, Weak<Semaphore>>>,
}

/// A place, as long as this is there.
#[derive(Debug)]
pub(crate) struct Look {
    _places: Vec<OwnedSemaphorePermit>,
}

impl Looks {
    /// So many of one set, and at all.
    pub(crate) fn new(most_of_one: usize, most: usize) -> Self {
        Self { all: Arc::new(Semaphore::new(most)), most_of_one, of_each: Mutex::default() }
    }

    /// Waits for a place at what is mounted at `dirs`, or above them.
    pub(crate) async fn begin(&self, dirs: Vec<PathBuf>) -> Look {
        self.at(off_reactor(move || hosts(&dirs)).await).await
    }

    async fn at(&self, hosts: BTreeSet<String>) -> Look {
        let of_set = (!hosts.is_empty()).then(|| self.places(hosts));
        let mut places = Vec::new();
        // Those of all last: who waits for one of a set keeps others from nothing.
        for semaphore in of_set.into_iter().chain([self.all.clone()]) {
            // None is ever closed.
            places.extend(semaphore.acquire_owned().await.ok());
        }
        Look { _places: places }
    }

    fn places(&self, hosts: BTreeSet<String>) -> Arc<Semaphore> {
        let mut of_each = self.of_each.lock().unwrap_or_else(PoisonError::into_inner);
        of_each.retain(|_, places| places.strong_count() > 0);
        if let Some(places) = of_each.get(&hosts).and_then(Weak::upgrade) {
            return places;
        }
        let places = Arc::new(Semaphore::new(self.most_of_one));
        of_each.insert(hosts, Arc::downgrade(&places));
        places
    }
}

/// What directories are on.
fn hosts(dirs: &[PathBuf]) -> BTreeSet<String> {
    if dirs.is_empty() {
        return BTreeSet::new();
    }
    // Where the kernel does not say, each is its own.
    let mounted = Process::myself().and_then(|process| process.mountinfo()).map(|all| all.0).unwrap_or_default();
    dirs.iter().map(|dir| host(dir, &mounted)).collect()
}

/// The server of a directory's file system, or else the file system by its number.
fn host(dir: &Path, mounted: &[MountInfo]) -> String {
    // Of those at one point the latest is seen.
    let on = mounted.iter().filter(|mount| dir.starts_with(&mount.mount_point));
    let Some(on) = on.max_by_key(|mount| mount.mount_point.components().count()) else {
        return dir.to_string_lossy().into_owned();
    };
    let server = on.mount_source.as_deref().and_then(|source| source.split_once(":/"));
    server.map_or_else(|| on.majmin.clone(), |(server, _)| server.to_owned())
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;
    use procfs::FromRead as _;
    use procfs::process::MountInfos;

    use super::*;

    fn begun(looks: &Looks, hosts: &[&str]) -> Option<Look> {
        looks.at(hosts.iter().map(|host| (*host).to_owned()).collect()).now_or_never()
    }

    #[test]
    fn what_hangs_leaves_others_their_places() {
        let looks = Looks::new(2, 4);
        // One of the two hangs.
        let [Some(first), Some(_second)] = [begun(&looks, &["a", "b"]), begun(&looks, &["b", "a"])] else {
            panic!("room")
        };
        assert!(begun(&looks, &["a", "b"]).is_none(), "a third");
        let alone = [begun(&looks, &["a"]), begun(&looks, &["b"])].map(|look| look.expect("room of its own"));
        assert!(begun(&looks, &["c"]).is_none(), "more than there are at all");
        drop(alone);
        let none = begun(&looks, &[]).expect("no volume");
        begun(&looks, &["c"]).expect("room again");
        assert_eq!(looks.of_each.lock().expect("held").len(), 2, "nobody is at a alone, or b, any more");
        drop((first, none));
        begun(&looks, &["a", "b"]).expect("a place that was given back");
    }

    #[test]
    fn a_directory_is_on_a_server_or_on_a_file_system() {
        let list = "1 0 8:1 / / rw - ext4 /dev/sda1 rw\n\
                    2 1 0:50 / /pods/u/nfs rw - nfs4 server:/export/a rw\n\
                    3 1 0:51 / /pods/v/nfs rw - nfs4 server:/export/b rw\n\
                    4 1 0:52 / /pods/u/ceph rw - ceph 10.0.0.1:6789,10.0.0.2:6789:/ rw\n\
                    5 1 8:16 / /pods/u/csi rw - ext4 /dev/sdb rw\n";
        let mounted = MountInfos::from_read(list.as_bytes()).expect("a list").0;
        let of = |dir: &str| host(Path::new(dir), &mounted);
        assert_eq!([of("/pods/u/nfs"), of("/pods/v/nfs/deep")], ["server", "server"]);
        assert_eq!(of("/pods/u/ceph"), "10.0.0.1:6789,10.0.0.2:6789");
        assert_eq!([of("/pods/u/csi/mount"), of("/pods/u/nfs-of-node")], ["8:16", "8:1"]);
        assert_eq!(host(Path::new("/pods/u"), &[]), "/pods/u");
    }
}
