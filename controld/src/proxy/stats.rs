//! Keeps usage that kubelet cannot place from spoiling that of the whole node.
//!
//! One container whose `writable_layer.fs_id.mountpoint` is not there makes kubelet's `/stats/summary` an error for all pods (tried with
//! kubelet 1.36), and with it metrics, HPA and eviction. So each mountpoint of a list of usage is looked up, of whichever side it is, and a
//! `writable_layer` on one that is not there is cut out of its encoded message. All else stays as it came.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use bytes::{BufMut as _, Bytes};
use common::off_reactor;
use prost::encoding::{WireType, encode_key, encode_varint};
use tokio::time::timeout;

use super::kind::Kind;
use super::wire::{self, Malformed, Value};

/// How long all mountpoints of a list may take: one may be of a server that is away. Then nothing is known of them, and nothing is cut.
const LOOK: Duration = Duration::from_millis(500);
/// Mountpoints that are looked up; a runtime has one for each snapshotter.
const MOST: usize = 64;

/// `ContainerStats.writable_layer`.
const WRITABLE: u32 = 4;
/// From it to the mountpoint.
const MOUNTPOINT: [u32; 2] = [2, 1];

/// A list of usage without what kubelet cannot place. Lists of another kind, and what is no list, are as they were.
pub(super) async fn checked(kind: Kind, list: Bytes) -> Bytes {
    let Some(path) = to_stats(kind) else { return list };
    let Ok(mountpoints) = mountpoints(&list, path) else { return list };
    let asked: Vec<_> = mountpoints.into_iter().take(MOST).collect();
    let look = off_reactor(move || {
        let there = |path: &String| PathBuf::from(path).try_exists().unwrap_or(true);
        asked
            .into_iter()
            .map(|path| (there(&path), path))
            .map(|(there, path)| (path, there))
            .collect::<BTreeMap<_, _>>()
    });
    let Ok(there) = timeout(LOOK, look).await else {
        tracing::warn!("file systems of containers not looked up within {} ms", LOOK.as_millis());
        return list;
    };
    if there.values().all(|there| *there) {
        return list;
    }
    for (mountpoint, _) in there.iter().filter(|(_, there)| !**there) {
        tracing::warn!(
            mountpoint,
            "usage left out of an answer: there is no such file system on this node, and kubelet would answer for none"
        );
    }
    without(&list, path, &|mountpoint| there.get(mountpoint) == Some(&false)).map_or(list, Bytes::from)
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

fn mountpoints(list: &[u8], path: &[u32]) -> Result<std::collections::BTreeSet<String>, Malformed> {
    let mut found = std::collections::BTreeSet::new();
    wire::each(list, &[path, &[WRITABLE], &MOUNTPOINT].concat(), &mut |value| {
        if let Value::Bytes(bytes) = value {
            found.insert(std::str::from_utf8(bytes).map_err(|_| Malformed)?.to_owned());
        }
        Ok(())
    })?;
    found.remove("");
    Ok(found)
}

/// A message without each writable layer, below messages at `path`, whose mountpoint is `bad`.
fn without(message: &[u8], path: &[u32], bad: &dyn Fn(&str) -> bool) -> Result<Vec<u8>, Malformed> {
    let mut kept = Vec::with_capacity(message.len());
    for field in wire::fields(message) {
        let field = field?;
        match (path.split_first(), field.value) {
            (Some((wanted, rest)), Value::Bytes(inner)) if *wanted == field.number => {
                let inner = without(inner, rest, bad)?;
                encode_key(field.number, WireType::LengthDelimited, &mut kept);
                encode_varint(inner.len() as u64, &mut kept);
                kept.put_slice(&inner);
            }
            (None, Value::Bytes(layer)) if field.number == WRITABLE && bad(wire::text(layer, &MOUNTPOINT)?) => {}
            _ => kept.put_slice(field.whole),
        }
    }
    Ok(kept)
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
        let checked = |kind, list: Vec<u8>| super::checked(kind, Bytes::from(list));
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
}
