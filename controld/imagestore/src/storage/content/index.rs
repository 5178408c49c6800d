//! The index: what the store has, in memory. It is changed after each change of the disk, under the disk's lock.
//!
//! A name is *usable* under its handler if that handler is configured, for the platform that the name was resolved for.
//! Other names are kept, as the handler may come back, but no lookup finds them.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;

use vmimage::digest::ImageId;
use vmimage::inspect::DiskFormat;
use vmimage::name::ImageRef;

use super::PINNED;
use super::key::{Handler, Key};
use super::record::{ImageRecord, RefRecord};

mod lookup;

/// Most images on top of each other.
pub(crate) const MAX_CHAIN: usize = 16;

/// An image of the store, as callers see it: one for each handler that it has a name for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Image {
    /// SHA-256 of its bytes.
    pub id: ImageId,
    /// The runtime handler that it was pulled for, by its name also where it is the default one. Empty if the image is
    /// only pinned and has no name.
    pub handler: String,
    /// `name:tag` of each tag it was pulled by.
    pub repo_tags: Vec<String>,
    /// `name@digest` of each name it was pulled by.
    pub repo_digests: Vec<String>,
    /// Bytes it takes on the disk; more than 0.
    pub size: u64,
    /// Bytes of the disk that a guest sees.
    pub virtual_size: u64,
    /// Its format: never to be guessed from its bytes again.
    pub format: DiskFormat,
    /// The file: of root, read-only for everybody, never changed.
    pub path: PathBuf,
    /// User that its configuration names, if it has one.
    pub user: Option<String>,
    /// Id of the provider that it came from.
    pub provider: Option<String>,
    /// Whether it is not to be removed to make room.
    pub pinned: bool,
    /// Whether nothing but a weak hash speaks for its bytes.
    pub weak: bool,
    /// Whether its handler is for another platform by now: it is found by no name until it is pulled again.
    pub stale: bool,
    /// The image below this one, if it is a layer.
    pub parent: Option<ImageId>,
    /// What is missing below it, as its child names it: without that it cannot be used.
    pub missing: Option<String>,
}

/// What is configured.
#[derive(Debug, Clone, Default)]
pub(crate) struct Known {
    /// The name of the default handler.
    pub(crate) default_handler: String,
    /// Platforms by handler.
    pub(crate) platforms: BTreeMap<Handler, String>,
    /// Names that pin their images.
    pub(crate) pinned: BTreeSet<ImageRef>,
}

/// One image.
#[derive(Debug, Clone)]
pub(crate) struct Entry {
    pub(crate) record: ImageRecord,
    pub(crate) allocated: u64,
    pub(crate) names: BTreeMap<Key, Arc<RefRecord>>,
}

/// What a name stands for.
#[derive(Debug, Clone)]
pub(crate) struct Bound {
    pub(crate) id: ImageId,
    pub(crate) record: Arc<RefRecord>,
}

#[derive(Debug, Default)]
pub(crate) struct Index {
    pub(crate) known: Known,
    pub(crate) images: BTreeMap<ImageId, Entry>,
    pub(crate) refs: BTreeMap<Key, Bound>,
    pub(crate) leases: BTreeMap<String, BTreeSet<ImageId>>,
    /// Images that work under way needs, and how many such works.
    pub(crate) holds: BTreeMap<ImageId, usize>,
}

impl Known {
    /// A handler's own name.
    pub(crate) fn name_of<'a>(&'a self, handler: &'a Handler) -> &'a str {
        if handler.is_default() { &self.default_handler } else { handler.name() }
    }
}

impl Index {
    /// Points `key` to an image, which must be here. Returns what it pointed to before, if that is another.
    pub(crate) fn bind(&mut self, key: &Key, bound: Bound) -> Option<ImageId> {
        let (id, record) = (bound.id.clone(), bound.record.clone());
        let before = self.refs.insert(key.clone(), bound).map(|before| before.id).filter(|before| *before != id);
        if let Some(entry) = before.as_ref().and_then(|before| self.images.get_mut(before)) {
            entry.names.remove(key);
        }
        if let Some(entry) = self.images.get_mut(&id) {
            entry.names.insert(key.clone(), record);
        }
        before
    }

    pub(crate) fn unbind(&mut self, key: &Key) {
        if let Some(entry) = self.refs.remove(key).and_then(|bound| self.images.get_mut(&bound.id)) {
            entry.names.remove(key);
        }
    }

    /// Whether nothing needs it: no name, no lease, no work under way, no image on top of it.
    pub(crate) fn is_unused(&self, id: &ImageId) -> bool {
        let named = self.images.get(id).is_some_and(|entry| !entry.names.is_empty());
        !named
            && !self.is_leased(id)
            && !self.holds.contains_key(id)
            && !self.images.values().any(|entry| entry.parent() == Some(id))
    }

    pub(crate) fn is_leased(&self, id: &ImageId) -> bool {
        self.leases.values().any(|images| images.contains(id))
    }

    /// Who has leases on an image. A pin is none.
    pub(crate) fn holders_of(&self, id: &ImageId) -> Vec<String> {
        let having = self.leases.iter().filter(|(holder, images)| *holder != PINNED && images.contains(id));
        having.map(|(holder, _)| holder.clone()).collect()
    }

    pub(crate) fn is_pinned(&self, id: &ImageId) -> bool {
        self.leases.get(PINNED).is_some_and(|pinned| pinned.contains(id))
    }

    /// All that nothing needs, at the end of the chains that go with it.
    pub(crate) fn unused(&self) -> Vec<ImageId> {
        let mut needed: BTreeSet<&ImageId> = self.leases.values().flatten().chain(self.holds.keys()).collect();
        needed.extend(self.images.iter().filter(|(_, entry)| !entry.names.is_empty()).map(|(id, _)| id));
        let mut ahead: Vec<&ImageId> = needed.iter().copied().collect();
        while let Some(id) = ahead.pop() {
            if let Some(parent) = self.images.get(id).and_then(Entry::parent)
                && needed.insert(parent)
            {
                ahead.push(parent);
            }
        }
        self.images.keys().filter(|id| !needed.contains(id)).cloned().collect()
    }

    /// The images from this one down, or what is missing.
    pub(crate) fn chain(&self, id: &ImageId) -> Result<Vec<ImageId>, String> {
        let mut chain = vec![id.clone()];
        let mut at = id;
        while let Some(parent) = self.images.get(at).and_then(|entry| entry.record.parent.as_ref()) {
            let below = parent.id.as_ref().filter(|below| self.images.contains_key(below));
            match below {
                Some(below) if chain.len() < MAX_CHAIN && !chain.contains(below) => {
                    chain.push(below.clone());
                    at = below;
                }
                _ => return Err(parent.named.clone()),
            }
        }
        Ok(chain)
    }
}

impl Entry {
    pub(crate) fn parent(&self) -> Option<&ImageId> {
        self.record.parent.as_ref()?.id.as_ref()
    }
}
