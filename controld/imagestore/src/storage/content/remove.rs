//! Removing an image by its name or id: it loses its names, and its file if nothing else needs it.

use std::collections::BTreeSet;

use vmimage::digest::ImageId;
use vmimage::name::{ImageRef, Query};

use super::index::Index;
use super::{ContentStore, DiskError, Handler, Key};

/// A name under a runtime handler.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Binding {
    /// The reference.
    pub name: String,
    /// The handler's own name.
    pub handler: String,
}

/// What became of an image that was to go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Removed {
    /// Which.
    pub id: ImageId,
    /// The names that it lost.
    pub names: Vec<Binding>,
    /// Who needs its file; `None` if the file went.
    pub kept: Option<Keepers>,
}

/// What keeps the file of an image.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Keepers {
    /// Names that it still has.
    pub names: Vec<Binding>,
    /// Whether it is pinned.
    pub pinned: bool,
    /// Who has disks on it.
    pub holders: Vec<String>,
    /// The images that stand on it.
    pub above: Vec<ImageId>,
    /// Whether a pull under way needs it.
    pub busy: bool,
    /// Whether it cannot be read who needs it.
    pub unknown: bool,
}

/// Which of its names an image loses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Losing {
    /// All of them, as CRI has it.
    All,
    /// The one that it was called by, as docker has it; all of them if it was called by its id.
    Called,
}

impl ContentStore {
    /// Takes names of all handlers, or of one, from the images that `text` means. A file stays while something needs it.
    pub(crate) fn remove(
        &self,
        text: &str,
        handler: Option<&Handler>,
        losing: Losing,
    ) -> Result<Vec<Removed>, DiskError> {
        let _changing = self.lock();
        let (ids, names) = {
            let index = self.read();
            let ids: BTreeSet<ImageId> = match handler {
                Some(handler) => index.resolve_kept(text, handler).cloned().into_iter().collect(),
                None => index.resolve_everywhere(text),
            };
            let is_meant = |key: &&Key| handler.is_none_or(|only| key.handler == *only);
            let names_of = |id: &ImageId| -> Vec<Key> {
                let entry = index.images.get(id).into_iter();
                let names = entry.flat_map(|entry| entry.names.keys()).filter(is_meant).cloned().collect();
                match losing {
                    Losing::All => names,
                    Losing::Called => called(text, names),
                }
            };
            let names: Vec<Vec<Key>> = ids.iter().map(names_of).collect();
            (ids, names)
        };
        self.unbind(&names.concat())?;
        ids.iter().try_for_each(|id| self.drop_unused(id))?;
        let index = self.read();
        let removed = ids.into_iter().zip(names).map(|(id, names)| Removed {
            names: names.iter().map(|key| index.bound(key)).collect(),
            kept: index.keepers(&id, !self.leases_known),
            id,
        });
        Ok(removed.collect())
    }
}

/// Those of an image's names that a text means which the image was found by.
fn called(text: &str, names: Vec<Key>) -> Vec<Key> {
    let Ok(Query::Ref(image)) = text.parse() else { return names };
    let having = |is: &dyn Fn(&ImageRef) -> bool| names.iter().filter(|key| is(&key.image)).cloned().collect();
    let own: Vec<Key> = having(&|name| *name == image);
    match image.digest() {
        _ if !own.is_empty() => own,
        // Its tags in that repository.
        Some(_) => having(&|name| name.name() == image.name()),
        // The beginning of an id can look like a name.
        None => names,
    }
}

impl Index {
    fn bound(&self, key: &Key) -> Binding {
        Binding { name: key.image.to_string(), handler: self.known.name_of(&key.handler).to_owned() }
    }

    /// What keeps an image; `None` if it is not here.
    fn keepers(&self, id: &ImageId, unknown: bool) -> Option<Keepers> {
        let entry = self.images.get(id)?;
        let above = self.images.iter().filter(|(_, entry)| entry.parent() == Some(id));
        Some(Keepers {
            names: entry.names.keys().map(|key| self.bound(key)).collect(),
            pinned: self.is_pinned(id),
            holders: self.holders_of(id),
            above: above.map(|(id, _)| id.clone()).collect(),
            busy: self.holds.contains_key(id),
            unknown,
        })
    }
}
