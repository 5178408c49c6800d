//! Which image stands on which. Called by pulls, and whenever an image gets a name that another image waits for.
//!
//! An edge is part of the upper image's record, and keeps the lower image as long as the upper one is here. Invariants:
//! an edge leads to an image of the format that the upper one declares; no image stands on itself; an edge is not
//! changed while the lower image is here, as machines have disks on the whole chain.

use std::sync::Arc;

use vmimage::digest::ImageId;
use vmimage::inspect::{DiskFormat, ParentRef};
use vmimage::name::ImageRef;

use super::index::{Index, MAX_CHAIN};
use super::record::{ImageRecord, Parent, RefRecord, VERSION, encode};
use super::{ContentStore, DiskError, Hold, Key, Origin, Sought, Step, meta_name};

/// Why an image cannot stand on another.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Misfit {
    /// It says that the other is of another format.
    Format { declared: DiskFormat, found: DiskFormat },
    /// It would stand on itself.
    Cycle,
    /// It stands on yet another.
    Taken { by: ImageId },
    /// Either is not here any more.
    Gone,
}

impl ContentStore {
    /// What an image says that it stands on.
    pub(crate) fn parent(&self, id: &ImageId) -> Option<Parent> {
        self.read().images.get(id)?.record.parent.clone()
    }

    /// Whether a name is bound to an image under which nothing is missing.
    pub(crate) fn is_bound_whole(&self, key: &Key, id: &ImageId) -> bool {
        let index = self.read();
        let bound = index.refs.get(key).filter(|bound| index.is_usable(key, &bound.record));
        bound.is_some_and(|bound| bound.id == *id) && index.chain(id).is_ok()
    }

    /// Keeps the image that has a digest, whoever it is from, if it is here and sound.
    pub(crate) fn hold_promised(
        self: &Arc<Self>,
        sought: &[Sought],
        provider: &str,
    ) -> Result<Option<Hold>, DiskError> {
        match self.promised(sought, provider) {
            Some(id) => self.hold_trusted(&id),
            None => Ok(None),
        }
    }

    /// Keeps the image that a name stands for, from one provider if that is asked for, if it is here and sound.
    pub(crate) fn hold_named(self: &Arc<Self>, key: &Key, provider: Option<&str>) -> Result<Option<Hold>, DiskError> {
        let found = self.remembered(key);
        let found = found.filter(|(_, origin)| provider.is_none() || origin.provider.as_deref() == provider);
        match found {
            Some((image, _)) => self.hold_trusted(&image.id),
            None => Ok(None),
        }
    }

    /// Puts an image on another one. Fine if it stands there already.
    pub(crate) fn stand(&self, id: &ImageId, on: &ImageId) -> Result<Result<(), Misfit>, DiskError> {
        let _changing = self.lock();
        self.stand_locked(id, on)
    }

    /// Completes the images that wait for what a name stands for from now on. For whoever has the lock of changes.
    pub(super) fn complete(&self, key: &Key, id: &ImageId, origin: &Origin) -> Result<(), DiskError> {
        let waiting = self.read().waiting_for(key, id, origin);
        for upper in waiting {
            match self.stand_locked(&upper, id)? {
                Ok(()) => tracing::info!(image = %upper, on = %id, "what an image stands on arrived"),
                Err(misfit) => tracing::warn!(image = %upper, on = %id, ?misfit, "image cannot stand on what it names"),
            }
        }
        Ok(())
    }

    fn stand_locked(&self, id: &ImageId, on: &ImageId) -> Result<Result<(), Misfit>, DiskError> {
        let record = match self.read().fit(id, on) {
            Ok(Some(record)) => record,
            Ok(None) => return Ok(Ok(())),
            Err(misfit) => return Ok(Err(misfit)),
        };
        self.disk.meta.write_record(&meta_name(id), &encode(&record))?;
        if let Some(entry) = self.write().images.get_mut(id) {
            entry.record = record;
        }
        (self.after)(Step::Stood)?;
        Ok(Ok(()))
    }
}

impl Index {
    /// The record of an image once it stands on another; `None` if it does already.
    fn fit(&self, id: &ImageId, on: &ImageId) -> Result<Option<ImageRecord>, Misfit> {
        let record = self.images.get(id).map(|entry| &entry.record).ok_or(Misfit::Gone)?;
        let below = self.images.get(on).map(|entry| &entry.record).ok_or(Misfit::Gone)?;
        let parent = record.parent.as_ref().ok_or(Misfit::Gone)?;
        match &parent.id {
            Some(before) if before == on => return Ok(None),
            Some(before) if self.images.contains_key(before) => return Err(Misfit::Taken { by: before.clone() }),
            _ => {}
        }
        if let Some(declared) = parent.format.filter(|declared| *declared != below.format) {
            return Err(Misfit::Format { declared, found: below.format });
        }
        if self.reaches(on, id) {
            return Err(Misfit::Cycle);
        }
        let parent = Parent { id: Some(on.clone()), ..parent.clone() };
        Ok(Some(ImageRecord { version: VERSION, parent: Some(parent), ..record.clone() }))
    }

    /// Whether an image is another, or stands on it.
    fn reaches(&self, from: &ImageId, to: &ImageId) -> bool {
        let down = std::iter::successors(Some(from), |at| self.images.get(*at)?.parent());
        // Records could be anything; a chain that is whole ends sooner.
        down.take(MAX_CHAIN).any(|at| at == to)
    }

    /// Images under which something is missing that a name stands for from now on: by the digest that they give, or by
    /// a name for the same handler from the provider that they are from.
    fn waiting_for(&self, key: &Key, id: &ImageId, origin: &Origin) -> Vec<ImageId> {
        let arrived = self.images.get(id).map(|entry| &entry.record);
        let waiting = self.images.iter().filter(|(_, entry)| {
            let Some(parent) = &entry.record.parent else { return false };
            if parent.id.as_ref().is_some_and(|below| self.images.contains_key(below)) {
                return false;
            }
            match ParentRef::parse(&parent.named) {
                Some(ParentRef::Hash(digest)) => {
                    digest.to_id().as_ref() == Some(id) || arrived.is_some_and(|record| record.has(&digest))
                }
                Some(named @ ParentRef::Named { .. }) => {
                    let is_it = named.to_string().parse::<ImageRef>().is_ok_and(|name| name == key.image);
                    let from_there = |(of, record): (&Key, &Arc<RefRecord>)| {
                        of.handler == key.handler && record.origin.provider == origin.provider
                    };
                    is_it && entry.names.iter().any(from_there)
                }
                None => false,
            }
        });
        waiting.map(|(id, _)| id.clone()).collect()
    }
}
