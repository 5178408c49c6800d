//! What the store has, in memory. Always what the disk says: changed after each change of the disk, under its lock.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use super::record::ImageRecord;
use crate::inspect::DiskFormat;
use crate::name::{Digest, ImageId, ImageRef, Query, Version, is_hex};

/// Fewest hex characters that are taken for the beginning of an id.
const MIN_PREFIX: usize = 8;

/// An image of the store, as callers see it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Image {
    /// SHA-256 of its bytes.
    pub id: ImageId,
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
}

/// One image.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) record: ImageRecord,
    pub(crate) allocated: u64,
    pub(crate) names: BTreeSet<ImageRef>,
}

#[derive(Debug, Default)]
pub(crate) struct Index {
    pub(crate) images: BTreeMap<ImageId, Entry>,
    pub(crate) refs: BTreeMap<ImageRef, ImageId>,
    pub(crate) leases: BTreeMap<String, BTreeSet<ImageId>>,
}

impl Index {
    /// Points `image` to `id`, which must be here. Returns what it pointed to before, if that is another.
    pub(crate) fn bind(&mut self, image: &ImageRef, id: &ImageId) -> Option<ImageId> {
        let before = self.refs.insert(image.clone(), id.clone()).filter(|before| before != id);
        if let Some(entry) = before.as_ref().and_then(|before| self.images.get_mut(before)) {
            entry.names.remove(image);
        }
        if let Some(entry) = self.images.get_mut(id) {
            entry.names.insert(image.clone());
        }
        before
    }

    pub(crate) fn unbind(&mut self, image: &ImageRef) {
        if let Some(entry) = self.refs.remove(image).and_then(|id| self.images.get_mut(&id)) {
            entry.names.remove(image);
        }
    }

    /// Whether neither a name nor a lease needs it.
    pub(crate) fn is_unused(&self, id: &ImageId) -> bool {
        let named = self.images.get(id).is_some_and(|entry| !entry.names.is_empty());
        !named && !self.leases.values().any(|images| images.contains(id))
    }

    /// The image that a caller's text means, if it is listed.
    pub(crate) fn resolve(&self, text: &str) -> Option<&ImageId> {
        let found = match text.parse::<Query>() {
            Ok(Query::Id(id)) => self.listed(&id),
            Ok(Query::Digest(digest)) => self.by_digest(&digest),
            Ok(Query::Ref(image)) => self.by_ref(&image),
            Err(_) => None,
        };
        found.or_else(|| self.by_prefix(text))
    }

    /// The image that has this digest, listed or not.
    pub(crate) fn present(&self, digest: &Digest) -> Option<&ImageId> {
        match digest.to_id() {
            Some(id) => self.images.get_key_value(&id).map(|(id, _)| id),
            None => self.images.iter().find(|(_, entry)| entry.record.aliases.contains(digest)).map(|(id, _)| id),
        }
    }

    fn listed(&self, id: &ImageId) -> Option<&ImageId> {
        self.images.get_key_value(id).filter(|(_, entry)| !entry.names.is_empty()).map(|(id, _)| id)
    }

    fn by_digest(&self, digest: &Digest) -> Option<&ImageId> {
        self.present(digest).and_then(|id| self.listed(id))
    }

    /// By the name as it was pulled, or by one of its tags and the digest of what it stands for.
    fn by_ref(&self, image: &ImageRef) -> Option<&ImageId> {
        self.refs.get(image).or_else(|| {
            let id = self.by_digest(image.digest()?)?;
            let names = &self.images.get(id)?.names;
            names.iter().any(|name| name.name() == image.name()).then_some(id)
        })
    }

    fn by_prefix(&self, text: &str) -> Option<&ImageId> {
        let prefix = text.strip_prefix("sha256:").unwrap_or(text);
        if !is_hex(prefix) || prefix.len() < MIN_PREFIX {
            return None;
        }
        let mut found =
            self.images.iter().filter(|(id, entry)| id.hex().starts_with(prefix) && !entry.names.is_empty());
        match (found.next(), found.next()) {
            (Some((id, _)), None) => Some(id),
            _ => None,
        }
    }

    pub(crate) fn image(&self, id: &ImageId, data: &Path) -> Option<Image> {
        let (id, entry) = self.images.get_key_value(id)?;
        Some(shown(id, entry, data))
    }

    pub(crate) fn list(&self, data: &Path) -> Vec<Image> {
        let listed = self.images.iter().filter(|(_, entry)| !entry.names.is_empty());
        listed.map(|(id, entry)| shown(id, entry, data)).collect()
    }
}

fn shown(id: &ImageId, entry: &Entry, data: &Path) -> Image {
    let mut repo_tags = Vec::new();
    let mut repo_digests = BTreeSet::new();
    for name in &entry.names {
        match name.version() {
            Version::Tag(_) => {
                repo_tags.push(name.to_string());
                repo_digests.insert(format!("{}@{id}", name.name()));
            }
            Version::Digest(_) => {
                repo_digests.insert(name.to_string());
            }
        }
    }
    Image {
        id: id.clone(),
        repo_tags,
        repo_digests: repo_digests.into_iter().collect(),
        // A file of nothing but zeros takes no blocks; callers may count on more than 0.
        size: if entry.allocated == 0 { entry.record.size } else { entry.allocated },
        virtual_size: entry.record.virtual_size,
        format: entry.record.format,
        path: data.join(id.hex()),
    }
}
