//! Finds which of several layers has the disk.
//!
//! Most images have one layer. Of several, all but one must be small: those are fetched, verified and searched here, so
//! that what they do to `/disk` is known before the large one streams by ([`DiskLayer`]).

use std::collections::BTreeSet;
use std::io::{self, Read as _};
use std::time::Duration;

use bytes::{Buf as _, Bytes};
use common::Reason;
use tokio::time::timeout;
use vmimage::decode::{Compression, DecodeError, Decompressor, Keeper, Leash};
use vmimage::error::printable;

use super::layer::{DiskLayer, Scan, no_disk, several};
use super::manifest::{Descriptor, Manifest};
use super::session::Session;
use super::{Oci, ProviderError};

/// Largest layer that is looked through, as it is hosted.
const SMALL: u64 = 16 * 1024 * 1024;
/// Most bytes of such a layer without compression.
const SMALL_PLAIN: u64 = 1024 * 1024 * 1024;
/// How long looking through one may take.
const SCAN_DEADLINE: Duration = Duration::from_secs(300);
/// The manifest's annotation that names the one file that counts.
const PATH: &str = "virtlet.cloud/disk";

impl Oci {
    /// The layer with the disk, by its place.
    pub(super) async fn find_disk(
        &self,
        session: &Session,
        shown: &str,
        manifest: &Manifest,
    ) -> Result<(usize, DiskLayer), ProviderError> {
        let unusable = |cause| self.unusable(shown, cause);
        let named = manifest.annotations.get(PATH).map(|path| {
            let path = path.trim_start_matches("./").trim_start_matches('/');
            path.strip_prefix("disk/").unwrap_or(path).to_owned()
        });
        let layers = &manifest.layers;
        if let [_] = layers[..] {
            return Ok((0, DiskLayer { named, ..DiskLayer::default() }));
        }
        let mut large = layers.iter().enumerate().filter(|(_, layer)| layer.size > SMALL);
        let largest = match (large.next(), large.next()) {
            (Some((_, first)), Some((_, second))) => {
                let (first, second) = (printable(&first.digest), printable(&second.digest));
                return Err(unusable(Reason::new(format!(
                    "layers {first} and {second} are both too large to be looked through for the disk; put the disk \
                     into an image of its own (`FROM scratch`)"
                ))));
            }
            (largest, _) => largest.map(|(at, _)| at),
        };
        let broken = |layer: &Descriptor, cause: io::Error| {
            unusable(Reason::new(format!("layer {} cannot be used", printable(&layer.digest))).with(cause))
        };
        let mut scans = Vec::new();
        for (at, layer) in layers.iter().enumerate() {
            if Some(at) == largest {
                scans.push(Scan::default());
                continue;
            }
            let bytes = self.blob(session, shown, layer, usize::try_from(SMALL).unwrap_or(usize::MAX)).await?;
            // Whenever this is given up, so is its process.
            let keeper = Keeper::default();
            let (leash, decompressor) = (keeper.leash(), self.decompressor.clone());
            let scanning = tokio::task::spawn_blocking(move || scan(bytes, &decompressor, &leash));
            let scan = timeout(SCAN_DEADLINE, scanning).await;
            let scan = scan.unwrap_or_else(|_| Ok(Err(io::ErrorKind::TimedOut.into())));
            let scan = scan.unwrap_or_else(|panic| Err(io::Error::other(panic)));
            let of_layer = |cause: io::Error| match cause.downcast::<DecodeError>() {
                Ok(error) if error.is_ours() => ProviderError::Decoder(error),
                Ok(error) => broken(layer, io::Error::other(error)),
                Err(cause) => broken(layer, cause),
            };
            scans.push(scan.map_err(of_layer)?);
        }
        place(&scans, largest, named).map_err(unusable)
    }
}

/// Where the disk is, given what each layer does; nothing is known of `unknown`.
fn place(scans: &[Scan], unknown: Option<usize>, named: Option<String>) -> Result<(usize, DiskLayer), Reason> {
    let stack = |scans: &[Scan]| {
        let mut stack = Scan::default();
        scans.iter().for_each(|scan| stack.cover(scan));
        stack
    };
    if let Some(at) = unknown {
        let (below, above) = (stack(&scans[..at]).files, stack(&scans[at + 1..]));
        // What is above is seen for certain, and the large layer may have another.
        if let (Some(name), None) = (above.files.first(), &named) {
            return Err(several(&[printable(name), "of a large layer".into()]));
        }
        return Ok((at, DiskLayer { below, above, named }));
    }
    let seen = stack(scans).files;
    let taken: BTreeSet<_> = seen.iter().filter(|name| named.as_ref().is_none_or(|named| named == *name)).collect();
    let name = match (taken.first(), taken.len()) {
        (Some(name), 1) => (*name).clone(),
        (None, _) => return Err(no_disk()),
        _ => {
            return Err(several(&taken.iter().take(3).map(|name| printable(name)).collect::<Vec<_>>()));
        }
    };
    // The topmost layer that has it is the one whose file is seen.
    let at = scans.iter().rposition(|scan| scan.files.contains(&name)).ok_or_else(no_disk)?;
    let (below, above) = (stack(&scans[..at]).files, stack(&scans[at + 1..]));
    Ok((at, DiskLayer { below, above, named }))
}

/// Looks through a layer as it is hosted.
fn scan(bytes: Bytes, decompressor: &Decompressor, leash: &Leash) -> io::Result<Scan> {
    match Compression::of(&bytes) {
        Some(by) => {
            let plain = decompressor.open(by, bytes.reader(), leash).map_err(io::Error::other)?;
            let mut plain = plain.take(SMALL_PLAIN);
            let scan = Scan::of(&mut plain)?;
            if plain.limit() == 0 { Err(io::Error::other("too large without compression")) } else { Ok(scan) }
        }
        None => Scan::of(&bytes[..]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layer(files: &[&str], removed: &[&str], opaque: bool) -> Scan {
        let set = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        Scan { files: set(files), removed: set(removed), opaque }
    }

    #[test]
    fn the_disk_is_in_the_layer_whose_file_is_seen() {
        let none = || layer(&[], &[], false);
        let has = |name| layer(&[name], &[], false);
        let removes = |name| layer(&[], &[name], false);
        let opaque = || layer(&[], &[], true);
        for (case, scans, expected) in [
            ("one", vec![has("a"), none()], Ok(0)),
            ("on top", vec![none(), has("a")], Ok(1)),
            ("replaced", vec![has("a"), has("a"), none()], Ok(1)),
            ("removed and another", vec![has("a"), removes("a"), has("b")], Ok(2)),
            ("removed and another in one layer", vec![has("a"), layer(&["b"], &["a"], false)], Ok(1)),
            ("opaque and another", vec![has("a"), layer(&["b"], &[], true)], Ok(1)),
            ("removed and again", vec![has("a"), removes("a"), has("a")], Ok(2)),
            ("a whiteout works downwards alone", vec![layer(&["a"], &["a"], false)], Ok(0)),
            ("two", vec![has("a"), has("b")], Err("more than one")),
            ("none", vec![none(), none()], Err("no file")),
            ("removed", vec![has("a"), removes("a")], Err("no file")),
            ("opaque", vec![has("a"), opaque()], Err("no file")),
            ("removed before", vec![removes("a"), has("a"), has("b")], Err("more than one")),
        ] {
            match (place(&scans, None, None), expected) {
                (Ok((at, _)), Ok(wanted)) => assert_eq!(at, wanted, "{case}"),
                (Err(error), Err(part)) => assert!(error.to_string().contains(part), "{case}: {error}"),
                (got, wanted) => panic!("{case}: {got:?}, not {wanted:?}"),
            }
        }
        let two = [has("a"), has("b")];
        assert_eq!(place(&two, None, Some("a".into())).expect("named").0, 0);
        assert!(place(&two, None, Some("c".into())).is_err());
    }

    #[test]
    fn a_large_layer_is_judged_when_it_streams() {
        let scans = [layer(&["old"], &[], false), Scan::default(), layer(&[], &["x"], false)];
        let (at, disk) = place(&scans, Some(1), None).expect("placed");
        assert_eq!(at, 1);
        assert_eq!(disk.below, BTreeSet::from(["old".to_owned()]));
        assert_eq!(disk.above, scans[2]);
        let scans = [Scan::default(), layer(&["x"], &[], false)];
        assert!(place(&scans, Some(0), None).is_err());
    }
}
