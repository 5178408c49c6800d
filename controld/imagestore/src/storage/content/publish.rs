//! Puts received bytes into the content store, and gives them names. Called by pulls.

use std::sync::Arc;

use vmimage::digest::ImageId;
use vmimage::inspect::{DiskFormat, ImageInfo};

use super::disk::is_ours;
use super::index::{Bound, Entry};
use super::links::{link_name, record_name, target};
use super::record::{Giver, ImageRecord, RefRecord, VERSION, encode};
use super::{
    Alias, ContentStore, DiskError, Hold, Image, Key, Origin, Parent, Received, Sought, Step, allocated, is_regular,
    meta_name, now, obstructed,
};

/// Givers of one image that are remembered.
const MAX_GIVERS: usize = 32;

/// What is known of bytes that are to be stored.
#[derive(Debug)]
pub(crate) struct Facts {
    pub(crate) info: ImageInfo,
    /// See [`ImageRecord::flags`].
    pub(crate) flags: Vec<String>,
    pub(crate) aliases: Vec<Alias>,
    pub(crate) parent: Option<Parent>,
    pub(crate) giver: Option<Giver>,
    /// See [`ImageRecord::converted`].
    pub(crate) converted: bool,
}

impl From<ImageInfo> for Facts {
    fn from(info: ImageInfo) -> Self {
        Self { info, flags: Vec::new(), aliases: Vec::new(), parent: None, giver: None, converted: false }
    }
}

impl ContentStore {
    /// Puts received bytes into the content store under no name yet, held. If nobody names them, they go with the hold.
    pub(crate) fn keep(self: &Arc<Self>, received: Received, facts: Facts) -> Result<Hold, DiskError> {
        let id = id_of(self, &received)?;
        let there = self.is_trusted(&id)?;
        let _changing = self.lock();
        self.store(received, facts, &id, there)?;
        Ok(self.hold_locked(&id))
    }

    /// The image that a name stands for, or that one of its repository does that has the digest of the name, if its origin
    /// `counts`.
    pub(crate) fn had(&self, key: &Key, counts: impl Fn(&Origin) -> bool) -> Option<(ImageId, Origin)> {
        let index = self.read();
        index.had(key, counts).map(|bound| (bound.id.clone(), bound.record.origin.clone()))
    }

    /// Binds a name to an image that is here, without its source having been asked. `None` if it must be.
    pub(crate) fn adopt(&self, key: &Key, id: &ImageId, origin: Origin) -> Result<Option<Image>, DiskError> {
        // The digest of a layer does not say what it stands on, if it does that by name.
        if self.parent(id).is_some() && !self.is_bound_whole(key, id) {
            return Ok(None);
        }
        match self.is_bound_to(key, id) {
            true if !self.is_trusted(id)? => Ok(None),
            true => self.confirm(key, origin),
            false => self.reuse(key, id, origin),
        }
    }

    /// Whether that is what a name stands for.
    pub(crate) fn is_bound_to(&self, key: &Key, id: &ImageId) -> bool {
        self.read().refs.get(key).is_some_and(|bound| bound.id == *id)
    }

    /// The image that has all digests that were given for it: it need not be downloaded. One that has some of them may be
    /// another one.
    pub(crate) fn promised(&self, sought: &[Sought], provider: &str) -> Option<ImageId> {
        let index = self.read();
        let mut behind = sought.iter().map(|sought| index.behind(sought, provider));
        let first = behind.next()??;
        behind.all(|other| other == Some(first)).then(|| first.clone())
    }

    /// The format of an image that is here.
    pub(crate) fn format(&self, id: &ImageId) -> Option<DiskFormat> {
        self.read().images.get(id).map(|entry| entry.record.format)
    }

    /// The image that was pulled last from a place, and how it would tell that it changed.
    pub(crate) fn known_at(&self, is_it: impl Fn(&ImageId, &Origin) -> bool) -> Option<(ImageId, Origin)> {
        let index = self.read();
        let from_there = index.refs.values().filter(|bound| is_it(&bound.id, &bound.record.origin));
        let newest = from_there.max_by_key(|bound| bound.record.pulled_at);
        newest.map(|bound| (bound.id.clone(), bound.record.origin.clone()))
    }

    /// Who gave an image: those of whom the image says so, and those of whom its names do, which earlier releases wrote alone.
    pub(crate) fn given(&self, id: &ImageId) -> Vec<Giver> {
        let index = self.read();
        let known = index.images.get(id).map(|entry| entry.record.given.clone()).unwrap_or_default();
        let named = index.refs.values().filter(|bound| bound.id == *id).map(|bound| &bound.record.origin);
        let named = named.filter_map(|origin| Some(Giver { site: origin.site.clone()?, host: origin.host.clone() }));
        known.into_iter().chain(named).collect()
    }

    /// The source says that a name still stands for what it did. `None` if that is not here any more.
    pub(crate) fn confirm(&self, key: &Key, origin: Origin) -> Result<Option<Image>, DiskError> {
        let _changing = self.lock();
        let bound = self.read().refs.get(key).cloned();
        let Some(bound) = bound else { return Ok(None) };
        if !self.is_there(&bound.id)? {
            return Ok(None);
        }
        // Nothing to write in the case that matters most, which so costs no more than the question to the source.
        if bound.record.origin == origin {
            return Ok(self.read().image(&bound.id, &key.handler, self.disk.data.path()));
        }
        self.bind(key, &bound.id, origin).map(Some)
    }

    /// Binds a name to an image that is here, or on its way out.
    pub(crate) fn reuse(&self, key: &Key, id: &ImageId, origin: Origin) -> Result<Option<Image>, DiskError> {
        self.bring_back(id)?;
        if !self.is_trusted(id)? {
            return Ok(None);
        }
        let _changing = self.lock();
        if !self.is_there(id)? {
            return Ok(None);
        }
        self.bind(key, id, origin).map(Some)
    }

    /// Stores bytes unless they are `there`. Whether they were stored.
    fn store(&self, received: Received, facts: Facts, id: &ImageId, there: bool) -> Result<bool, DiskError> {
        // Somebody else may have brought the same since that was looked up.
        if (there || self.verified().contains(id)) && self.is_there(id)? {
            self.enrich(id, &received, facts)?;
            return Ok(false);
        }
        self.place(received, facts, id)?;
        self.verified().insert(id.clone());
        Ok(true)
    }

    /// Gives the file its name and its record, or leaves neither.
    fn place(&self, mut received: Received, facts: Facts, id: &ImageId) -> Result<(), DiskError> {
        let data = &self.disk.data;
        // What lies there is not known as this image: a broken one of ours is replaced, anything else is not touched.
        if data.stat(id.hex())?.is_some_and(|there| !is_regular(&there) || !is_ours(&there)) {
            return Err(obstructed(data, id.hex()));
        }
        received.part.publish(id.hex())?;
        self.record(&received, facts, id).inspect_err(|_| {
            if self.read().is_unused(id) {
                self.discard(id);
            }
        })
    }

    fn record(&self, received: &Received, facts: Facts, id: &ImageId) -> Result<(), DiskError> {
        let data = &self.disk.data;
        data.sync()?;
        (self.after)(Step::Data)?;
        let record = ImageRecord {
            version: VERSION,
            size: received.length,
            format: facts.info.format,
            virtual_size: facts.info.virtual_size,
            flags: facts.flags,
            aliases: merged(Vec::new(), own_aliases(received).chain(facts.aliases)),
            parent: facts.parent,
            given: facts.giver.into_iter().collect(),
            converted: facts.converted,
            verified_at: now(),
        };
        self.disk.meta.write_record(&meta_name(id), &encode(&record))?;
        (self.after)(Step::Meta)?;
        let allocated = data.stat(id.hex())?.map_or(0, |stat| allocated(&stat));
        let mut index = self.write();
        // It has names already if its file was lost and came back.
        let names = index.images.remove(id).map(|entry| entry.names).unwrap_or_default();
        index.images.insert(id.clone(), Entry { record, allocated, names });
        Ok(())
    }

    /// Adds what a second source knows of an image that is here.
    fn enrich(&self, id: &ImageId, received: &Received, facts: Facts) -> Result<(), DiskError> {
        let Some(before) = self.read().images.get(id).map(|entry| entry.record.clone()) else { return Ok(()) };
        let aliases = merged(before.aliases.clone(), own_aliases(received).chain(facts.aliases));
        let found = facts.parent.filter(|parent| parent.id.is_some());
        let given = with_giver(before.given.clone(), facts.giver);
        let record =
            ImageRecord { version: VERSION, aliases, parent: found.or(before.parent.clone()), given, ..before.clone() };
        if record != before {
            self.disk.meta.write_record(&meta_name(id), &encode(&record))?;
            if let Some(entry) = self.write().images.get_mut(id) {
                entry.record = record;
            }
        }
        Ok(())
    }

    fn bind(&self, key: &Key, id: &ImageId, origin: Origin) -> Result<Image, DiskError> {
        let names = self.disk.bindings(&key.handler)?;
        let new = !self.read().refs.contains_key(key);
        let image = key.image.to_string();
        let record =
            RefRecord { version: VERSION, image, id: Some(id.clone()), origin: origin.clone(), pulled_at: now() };
        let linked = names.refs.write_record(&record_name(&key.image), &encode(&record)).and_then(|()| {
            (self.after)(Step::Ref)?;
            names.links.replace_link(&link_name(&key.image), &target(names.to_data, id))
        });
        if let Err(error) = linked {
            if new {
                let _ = names.refs.remove(&record_name(&key.image));
            }
            return Err(error);
        }
        // From here on the name is bound: what fails now is told, but not undone.
        let displaced = self.write().bind(key, Bound { id: id.clone(), record: record.into() });
        names.links.sync()?;
        (self.after)(Step::Link)?;
        if let Some(displaced) = displaced {
            self.drop_unused(&displaced)?;
            (self.after)(Step::Displaced)?;
        }
        self.complete(key, id, &origin)?;
        let gone = || obstructed(&self.disk.data, id.hex());
        self.read().image(id, &key.handler, self.disk.data.path()).ok_or_else(gone)
    }

    /// Takes back what [`ContentStore::place`] put there. What cannot be removed is swept at the next start.
    fn discard(&self, id: &ImageId) {
        self.write().images.remove(id);
        for removed in [self.disk.data.remove(id.hex()), self.disk.meta.remove(&meta_name(id))] {
            if let Err(error) = removed {
                tracing::warn!(%error, "image left behind until the next start");
            }
        }
    }
}

/// Received bytes are named by their SHA-256.
fn id_of(content: &ContentStore, received: &Received) -> Result<ImageId, DiskError> {
    received.sha256.to_id().ok_or_else(|| obstructed(&content.disk.data, "part"))
}

/// Digests of the stored bytes that were computed as they came.
fn own_aliases(received: &Received) -> impl Iterator<Item = Alias> {
    received.sha512.iter().map(Alias::of_content)
}

/// The last ones are kept: one that is forgotten sends its bytes once more.
fn with_giver(mut given: Vec<Giver>, giver: Option<Giver>) -> Vec<Giver> {
    given.extend(giver.filter(|giver| !given.contains(giver)));
    given.split_off(given.len().saturating_sub(MAX_GIVERS))
}

fn merged(mut aliases: Vec<Alias>, more: impl Iterator<Item = Alias>) -> Vec<Alias> {
    for alias in more {
        if !aliases.contains(&alias) {
            aliases.push(alias);
        }
    }
    aliases
}
