//! The last good list of the default, and what is known to have changed since: pure, and told what time it is.
//!
//! kubelet takes what is not listed for gone, and what is listed for there. So a list that is answered from here is the last whole one, without what
//! was removed through us and with what was made through us after it was asked for. Turns, counted here, say what came after what: an answer that
//! was asked for before a removal does not bring back what was removed, however late it comes.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use bytes::Bytes;

use crate::proxy::kind::Kind;
use crate::proxy::wire::{self, Malformed};

#[cfg(test)]
mod tests;

/// Changes that are kept until the next whole list. A default whose lists never come while it is changed so often has no good one any more.
const MOST_CHANGES: usize = 10_000;
/// Bytes of what was made since, of all of it.
const MOST_MADE: usize = 4 << 20;

/// As much of an id as means one thing.
const SHORT: usize = 12;

/// What is known of one kind of the default's objects.
#[derive(Debug, Default)]
pub(in crate::proxy) struct LastGood {
    turn: u64,
    good: Option<Good>,
    /// Ids and names, with the turn of their removal.
    gone: BTreeMap<String, u64>,
    /// Items by their id, as a list would have them.
    made: BTreeMap<String, (u64, Bytes)>,
}

#[derive(Debug)]
struct Good {
    list: Bytes,
    asked: u64,
    at: Instant,
}

/// Ages of a last good list that somebody is to know of, each once: there is none from which on it would not be answered.
const NEWS: [Duration; 3] = [Duration::from_secs(30), Duration::from_secs(300), Duration::from_secs(3600)];

/// Which of [`NEWS`] have been told.
#[derive(Debug, Default)]
pub(in crate::proxy) struct Ages(usize);

impl Ages {
    /// Whether a list of this age is to be told of now.
    pub(in crate::proxy) fn is_news(&mut self, age: Duration) -> bool {
        let reached = NEWS.iter().filter(|news| age >= **news).count();
        let is = reached > self.0;
        self.0 = self.0.max(reached);
        is
    }

    /// The default answers again.
    pub(in crate::proxy) fn fresh(&mut self) {
        self.0 = 0;
    }
}

/// The turn in which a list was asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::proxy) struct Asked(u64);

/// What has been removed.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(in crate::proxy) struct Gone(BTreeSet<String>);

/// What there is to answer with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::proxy) struct Kept {
    pub(in crate::proxy) list: Bytes,
    /// To be left out of it.
    pub(in crate::proxy) gone: Gone,
    pub(in crate::proxy) age: Duration,
}

impl LastGood {
    /// A whole list is asked for now.
    pub(in crate::proxy) fn ask(&mut self) -> Asked {
        self.turn += 1;
        Asked(self.turn)
    }

    /// It has come.
    pub(in crate::proxy) fn keep(&mut self, asked: Asked, list: Bytes, now: Instant) {
        if self.good.as_ref().is_some_and(|good| good.asked > asked.0) {
            return;
        }
        self.gone.retain(|_, turn| *turn > asked.0);
        self.made.retain(|_, (turn, _)| *turn > asked.0);
        self.good = Some(Good { list, asked: asked.0, at: now });
    }

    /// The default has removed what is called so.
    pub(in crate::proxy) fn remove(&mut self, name: &str) {
        self.turn += 1;
        self.made.remove(name);
        self.gone.insert(name.to_owned(), self.turn);
        self.bound();
    }

    /// The default has made this, which a list shows as `item`.
    pub(in crate::proxy) fn make(&mut self, id: &str, item: Bytes) {
        self.turn += 1;
        self.made.insert(id.to_owned(), (self.turn, item));
        self.bound();
    }

    /// The list to answer with while none can be had; `None` before there was any.
    pub(in crate::proxy) fn answer(&self, now: Instant) -> Option<Kept> {
        let good = self.good.as_ref()?;
        let list = self.with_made(&good.list);
        let gone = Gone(self.gone.keys().cloned().collect());
        Some(Kept { list, gone, age: now.saturating_duration_since(good.at) })
    }

    /// A list with what was made since, unless it has it already: it may have been asked for before and looked at after.
    fn with_made(&self, list: &Bytes) -> Bytes {
        if self.made.is_empty() {
            return list.clone();
        }
        let items = wire::items(list).unwrap_or_default();
        let known: BTreeSet<_> =
            items.iter().filter_map(|item| wire::text(wire::content(item).ok()?, &[1]).ok()).collect();
        let made = self.made.iter().filter(|(id, _)| !known.contains(id.as_str())).map(|(_, (_, item))| &**item);
        std::iter::once(&**list).chain(made).collect::<Vec<_>>().concat().into()
    }

    /// How long ago the list came that is kept, and how long it is.
    pub(in crate::proxy) fn shown(&self, now: Instant) -> Option<(Duration, usize)> {
        self.good.as_ref().map(|good| (now.saturating_duration_since(good.at), good.list.len()))
    }

    /// A list of which it is not known any more what has changed is worse than none.
    fn bound(&mut self) {
        let made: usize = self.made.values().map(|(_, item)| item.len()).sum();
        if self.gone.len() + self.made.len() > MOST_CHANGES || made > MOST_MADE {
            (self.good, self.gone, self.made) = (None, BTreeMap::new(), BTreeMap::new());
        }
    }
}

impl Gone {
    /// Whether nothing has been removed.
    pub(in crate::proxy) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether an item of a list is among it: by its id, as a container by its sandbox, as an image by any of its names.
    pub(super) fn has(&self, kind: Kind, item: &[u8]) -> Result<bool, Malformed> {
        if self.is_empty() {
            return Ok(false);
        }
        let (ids, names): (&[u32], &[u32]) = match kind {
            Kind::Containers => (&[1, 2], &[1, 2]),
            Kind::Images => (&[1], &[1, 2, 3]),
            Kind::Sandboxes | Kind::ContainerStats | Kind::SandboxStats | Kind::Metrics => (&[1], &[1]),
        };
        for field in wire::fields(item) {
            let field = field?;
            if let wire::Value::Bytes(name) = field.value
                && names.contains(&field.number)
                && let Ok(name) = std::str::from_utf8(name)
                && (self.0.contains(name) || (ids.contains(&field.number) && self.has_beginning(name)))
            {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Whether a beginning of an id that is long enough to mean nothing else is among it: crictl prints 13 characters of one, and of an
    /// image's those behind `sha256:`. Names have their tag last, and are no ids.
    fn has_beginning(&self, id: &str) -> bool {
        let id = digits(id);
        let is_one = |gone: &&str| gone.len() >= SHORT && gone.bytes().all(|digit| digit.is_ascii_hexdigit());
        self.0.iter().map(|gone| digits(gone)).filter(is_one).any(|gone| id.starts_with(gone))
    }
}

/// Of an image's id what tools print.
fn digits(id: &str) -> &str {
    id.strip_prefix("sha256:").unwrap_or(id)
}
