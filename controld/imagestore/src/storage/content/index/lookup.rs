//! Looks images up by what a caller says, and describes an image as a caller sees it.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use vmimage::digest::{Digest, ImageId, MIN_PREFIX, is_hex};
use vmimage::name::{ImageRef, Query, Version};

use super::{Bound, Entry, Image, Index};
use crate::storage::content::PINNED;
use crate::storage::content::key::{Handler, Key};
use crate::storage::content::record::{Cover, Origin, RefRecord, Sought};

/// Which names count in a search.
#[derive(Clone, Copy)]
struct Scope<'a> {
    handler: &'a Handler,
    /// Also those that are not usable, for removing them.
    all: bool,
}

impl Index {
    /// Whether a name of an image may be used as things are configured.
    pub(crate) fn is_usable(&self, key: &Key, record: &RefRecord) -> bool {
        let platform = self.known.platforms.get(&key.handler);
        platform.is_some_and(|platform| record.origin.platform.as_ref().is_none_or(|of| of == platform))
    }

    /// The image that a caller's text means under a handler, if it has a usable name there.
    pub(crate) fn resolve(&self, text: &str, handler: &Handler) -> Option<&ImageId> {
        self.look_up(text, Scope { handler, all: false })
    }

    /// The image that a caller's text means under a handler, by whatever name it has there.
    pub(crate) fn resolve_kept(&self, text: &str, handler: &Handler) -> Option<&ImageId> {
        self.look_up(text, Scope { handler, all: true })
    }

    /// All images that a caller's text means under whatever handler, by whatever name.
    pub(crate) fn resolve_everywhere(&self, text: &str) -> BTreeSet<ImageId> {
        let handlers: BTreeSet<&Handler> = self.refs.keys().map(|key| &key.handler).collect();
        handlers.into_iter().filter_map(|handler| self.resolve_kept(text, handler).cloned()).collect()
    }

    /// The image that has this digest, whether or not it has a name.
    pub(crate) fn present(&self, digest: &Digest) -> Option<&ImageId> {
        match digest.to_id() {
            Some(id) => self.images.get_key_value(&id).map(|(id, _)| id),
            None => self.images.iter().find(|(_, entry)| entry.record.has(digest)).map(|(id, _)| id),
        }
    }

    /// The image that a digest of a source leads to, whether or not it has a name.
    pub(crate) fn behind(&self, sought: &Sought, provider: &str) -> Option<&ImageId> {
        let stored = sought.covers == Cover::Content;
        let id = sought.hash.parse::<Digest>().ok().filter(|_| stored).and_then(|digest| digest.to_id());
        if let Some((id, _)) = id.and_then(|id| self.images.get_key_value(&id)) {
            return Some(id);
        }
        let answers = |entry: &Entry| entry.record.aliases.iter().any(|own| own.answers(sought, provider));
        self.images.iter().find(|(_, entry)| answers(entry)).map(|(id, _)| id)
    }

    fn look_up(&self, text: &str, scope: Scope<'_>) -> Option<&ImageId> {
        let found = match text.parse::<Query>() {
            Ok(Query::Id(id)) => self.listed(&id, scope),
            Ok(Query::Digest(digest)) => self.present(&digest).and_then(|id| self.listed(id, scope)),
            Ok(Query::Ref(image)) => self.by_ref(&image, scope),
            Err(_) => None,
        };
        found.or_else(|| self.by_prefix(text, scope))
    }

    fn counts(&self, key: &Key, record: &RefRecord, scope: Scope<'_>) -> bool {
        key.handler == *scope.handler && (scope.all || self.is_usable(key, record))
    }

    fn listed(&self, id: &ImageId, scope: Scope<'_>) -> Option<&ImageId> {
        let (id, entry) = self.images.get_key_value(id)?;
        entry.names.iter().any(|(key, record)| self.counts(key, record, scope)).then_some(id)
    }

    /// By the name as it was pulled, or by one of its tags and a digest of what it stands for.
    fn by_ref(&self, image: &ImageRef, scope: Scope<'_>) -> Option<&ImageId> {
        let key = Key::new(scope.handler, image);
        if let Some(bound) = self.refs.get(&key).filter(|bound| self.counts(&key, &bound.record, scope)) {
            return self.images.get_key_value(&bound.id).map(|(id, _)| id);
        }
        let digest = image.digest()?;
        let of_name = |key: &Key| key.image.name() == image.name();
        let by_content = self.present(digest).filter(|id| {
            let names = self.images.get(*id).map(|entry| &entry.names);
            names.into_iter().flatten().any(|(key, record)| of_name(key) && self.counts(key, record, scope))
        });
        by_content.or_else(|| {
            let found = self.refs.iter().find(|(key, bound)| {
                let manifest = bound.record.origin.manifest.as_ref();
                manifest == Some(digest) && of_name(key) && self.counts(key, &bound.record, scope)
            });
            found.and_then(|(_, bound)| self.images.get_key_value(&bound.id)).map(|(id, _)| id)
        })
    }

    /// What a name stands for, or one of its repository with the digest that it has, pulled last, whose origin is one that
    /// counts.
    pub(crate) fn had(&self, key: &Key, counts: impl Fn(&Origin) -> bool) -> Option<&Bound> {
        let usable = |key: &Key, bound: &Bound| self.is_usable(key, &bound.record) && counts(&bound.record.origin);
        if let Some(bound) = self.refs.get(key).filter(|bound| usable(key, bound)) {
            return Some(bound);
        }
        let digest = key.image.digest()?;
        let means = |bound: &Bound| {
            let manifest = bound.record.origin.manifest.as_ref();
            manifest == Some(digest) || self.present(digest) == Some(&bound.id)
        };
        let of_repository = |of: &Key| of.handler == key.handler && of.image.name() == key.image.name();
        let found = self.refs.iter().filter(|(of, bound)| of_repository(of) && means(bound) && usable(of, bound));
        found.map(|(_, bound)| bound).max_by_key(|bound| bound.record.pulled_at)
    }

    /// The usable names under a handler of the image that a digest means.
    pub(crate) fn names_of(&self, digest: &str, handler: &Handler) -> Vec<Key> {
        let names = self.resolve(digest, handler).and_then(|id| self.images.get(id)).map(|entry| &entry.names);
        let usable =
            names.into_iter().flatten().filter(|(key, record)| self.counts(key, record, Scope { handler, all: false }));
        usable.map(|(key, _)| key.clone()).collect()
    }

    fn by_prefix(&self, text: &str, scope: Scope<'_>) -> Option<&ImageId> {
        let prefix = prefix(text)?;
        let begin = |id: &&ImageId| id.hex().starts_with(prefix);
        let mut found = self.images.keys().filter(begin).filter_map(|id| self.listed(id, scope));
        match (found.next(), found.next()) {
            (Some(id), None) => Some(id),
            _ => None,
        }
    }

    /// The image that is pinned and has this id, or alone among those an id that begins so. It may have no name.
    pub(crate) fn pinned(&self, text: &str) -> Option<&ImageId> {
        let prefix = prefix(text)?;
        let mut found = self.leases.get(PINNED)?.iter().filter(|id| id.hex().starts_with(prefix));
        match (found.next(), found.next()) {
            (Some(id), None) => Some(id),
            _ => None,
        }
    }

    /// Images that are pinned and have no name under a handler that there is.
    pub(crate) fn nameless(&self, data: &Path) -> Vec<Image> {
        let pinned = self.leases.get(PINNED).into_iter().flatten().filter_map(|id| self.images.get_key_value(id));
        let is_nameless =
            |entry: &Entry| !entry.names.keys().any(|key| self.known.platforms.contains_key(&key.handler));
        pinned.filter(|(_, entry)| is_nameless(entry)).map(|(id, entry)| self.plain(id, entry, "", data)).collect()
    }

    /// The image as its names under a handler show it.
    pub(crate) fn image(&self, id: &ImageId, handler: &Handler, data: &Path) -> Option<Image> {
        let (id, entry) = self.images.get_key_value(id)?;
        self.shown(id, entry, handler, data)
    }

    /// All images by id and handler.
    pub(crate) fn list(&self, data: &Path) -> Vec<Arc<Image>> {
        let mut images = Vec::with_capacity(self.images.len());
        for (id, entry) in &self.images {
            let mut before = None;
            for Key { handler, .. } in entry.names.keys() {
                // Names are in the order of their handlers.
                if before != Some(handler) {
                    images.extend(self.shown(id, entry, handler, data).map(Arc::new));
                }
                before = Some(handler);
            }
        }
        images
    }

    fn shown(&self, id: &ImageId, entry: &Entry, handler: &Handler, data: &Path) -> Option<Image> {
        let known = &self.known;
        let names = || entry.names.iter().filter(|(key, _)| key.handler == *handler);
        if !known.platforms.contains_key(handler) || names().next().is_none() {
            return None;
        }
        let stale = !names().any(|(key, record)| self.is_usable(key, record));
        let mut image = Image { weak: true, stale, ..self.plain(id, entry, known.name_of(handler), data) };
        for (key, record) in names().filter(|(key, record)| stale || self.is_usable(key, record)) {
            let (name, origin) = (&key.image, &record.origin);
            image.repo_digests.push(match (name.version(), &origin.manifest) {
                (Version::Digest(_), _) => name.to_string(),
                (Version::Tag(_), Some(manifest)) => format!("{}@{manifest}", name.name()),
                (Version::Tag(_), None) => format!("{}@{id}", name.name()),
            });
            if name.digest().is_none() {
                image.repo_tags.push(name.to_string());
            }
            image.user = image.user.or_else(|| origin.user.clone());
            image.provider = image.provider.or_else(|| origin.provider.clone());
            image.weak &= origin.weak;
            image.pinned |= known.pinned.contains(name);
        }
        image.repo_digests.sort_unstable();
        image.repo_digests.dedup();
        Some(image)
    }

    /// What is known of an image without its names.
    fn plain(&self, id: &ImageId, entry: &Entry, handler: &str, data: &Path) -> Image {
        Image {
            id: id.clone(),
            handler: handler.to_owned(),
            repo_tags: Vec::new(),
            repo_digests: Vec::new(),
            // A file of nothing but zeros takes no blocks; callers may count on more than 0.
            size: if entry.allocated == 0 { entry.record.size } else { entry.allocated },
            virtual_size: entry.record.virtual_size,
            format: entry.record.format,
            path: data.join(id.hex()),
            user: None,
            provider: None,
            pinned: self.is_pinned(id),
            weak: false,
            stale: false,
            parent: entry.parent().cloned(),
            missing: entry.record.parent.as_ref().and_then(|_| self.chain(id).err()),
        }
    }
}

/// What a text says an id begins with.
fn prefix(text: &str) -> Option<&str> {
    let prefix = text.strip_prefix("sha256:").unwrap_or(text);
    (is_hex(prefix) && prefix.len() >= MIN_PREFIX).then_some(prefix)
}
