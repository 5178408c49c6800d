//! Hashes of the bytes at each place that a promise covers, and the one function that compares them.

use std::collections::{BTreeMap, BTreeSet};

use md5::Md5;
use sha1::Sha1;
use sha2::digest::{Digest as _, DynDigest};
use sha2::{Sha256, Sha512};
use vmimage::digest::{Algorithm, Digest, hex};

use super::IngestError;
use crate::sources::provider::{Covers, HashAlg, ImageHash, Promise};

/// Where in the pass bytes are hashed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Place {
    /// As they come, if they are compressed.
    Hosted,
    /// Decompressed, if there is an archive around the disk.
    Archive,
    /// As they are stored.
    Content,
}

/// What is done with the bytes between source and disk.
#[derive(Debug, Clone, Copy)]
pub(super) struct Shape {
    pub(super) compressed: bool,
    pub(super) archived: bool,
}

impl Shape {
    /// The first place where the bytes are those that a promise covers.
    fn place(self, covers: Covers) -> Place {
        match covers {
            Covers::Hosted if self.compressed => Place::Hosted,
            Covers::Hosted | Covers::Unpacked if self.archived => Place::Archive,
            _ => Place::Content,
        }
    }

    /// Which hashes the promises need at a place. Content always has the one that it is stored under.
    pub(super) fn needed(self, promises: &[Promise], place: Place) -> BTreeSet<HashAlg> {
        let promised = promises.iter().filter(|promise| self.place(promise.covers) == place);
        let own = (place == Place::Content).then_some(HashAlg::Sha256);
        promised.map(|promise| promise.hash.alg()).chain(own).collect()
    }
}

/// Some hashes over the same bytes.
pub(super) struct Hashers(Vec<(HashAlg, Box<dyn DynDigest + Send>)>);

impl Hashers {
    pub(super) fn new(algorithms: impl IntoIterator<Item = HashAlg>) -> Self {
        let hasher = |alg| -> Box<dyn DynDigest + Send> {
            match alg {
                HashAlg::Md5 => Box::new(Md5::new()),
                HashAlg::Sha1 => Box::new(Sha1::new()),
                HashAlg::Sha256 => Box::new(Sha256::new()),
                HashAlg::Sha512 => Box::new(Sha512::new()),
            }
        };
        Self(algorithms.into_iter().map(|alg| (alg, hasher(alg))).collect())
    }

    pub(super) fn update(&mut self, bytes: &[u8]) {
        self.0.iter_mut().for_each(|(_, hasher)| hasher.update(bytes));
    }

    pub(super) fn finish(self, place: Place, sums: &mut Sums) {
        sums.0.extend(self.0.into_iter().map(|(alg, hasher)| ((place, alg), hasher.finalize().into_vec())));
    }
}

/// All hashes of a pass.
#[derive(Debug, Default)]
pub(super) struct Sums(BTreeMap<(Place, HashAlg), Vec<u8>>);

impl Sums {
    /// Compares every promise. Nothing is published that did not come through here.
    pub(super) fn verify(&self, promises: &[Promise], shape: Shape) -> Result<(), IngestError> {
        for Promise { hash, covers } in promises {
            // Without a hash there is nothing to compare, and what was not compared is not what was promised.
            let got = self.raw(shape.place(*covers), hash.alg()).ok_or(IngestError::Lost)?;
            if hex(got) != hash.hex() {
                let got = ImageHash::new(hash.alg(), &hex(got)).map_err(|_| IngestError::Lost)?;
                return Err(IngestError::Mismatch { wanted: hash.clone(), covers: *covers, got });
            }
        }
        Ok(())
    }

    pub(super) fn raw(&self, place: Place, alg: HashAlg) -> Option<&[u8]> {
        self.0.get(&(place, alg)).map(Vec::as_slice)
    }

    /// A hash of what is stored.
    pub(super) fn content(&self, algorithm: Algorithm) -> Option<Digest> {
        self.raw(Place::Content, algorithm.into()).map(|bytes| Digest::computed(algorithm, bytes))
    }
}
