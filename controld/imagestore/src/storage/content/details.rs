//! All that is known of an image, as `virtletctl image inspect` shows it.

use vmimage::digest::ImageId;

use super::{ContentStore, Handler, Image};

/// All that is known of an image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Details {
    /// As lists show it.
    pub image: Image,
    /// Bytes of the file.
    pub length: u64,
    /// What else was found in it that somebody who opens it must know.
    pub flags: Vec<String>,
    /// Other digests that lead to it, each with what it is of.
    pub aliases: Vec<String>,
    /// The images from this one down.
    pub chain: Vec<ImageId>,
    /// Its names, of all handlers.
    pub names: Vec<Name>,
    /// Who has disks on it.
    pub holders: Vec<String>,
    /// When its bytes were hashed last, in seconds since 1970.
    pub verified_at: u64,
}

/// A name of an image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Name {
    /// The reference.
    pub name: String,
    /// The handler's own name.
    pub handler: String,
    /// Where it came from, without secrets.
    pub source: Option<String>,
    /// The rule that said so.
    pub by: Option<String>,
    /// Id of the provider.
    pub provider: Option<String>,
    /// What it was resolved for.
    pub platform: Option<String>,
    /// Labels of the image's configuration.
    pub labels: Vec<(String, String)>,
    /// When it was pulled, in seconds since 1970.
    pub pulled_at: u64,
}

impl ContentStore {
    /// All that is known of what a text means under a handler, or as the id of an image that is only pinned.
    pub(crate) fn details(&self, text: &str, handler: &Handler) -> Option<Details> {
        let index = self.read();
        let data = self.disk.data.path();
        let image = match index.resolve(text, handler) {
            Some(id) => index.image(id, handler, data)?,
            None => {
                let pinned = index.pinned(text)?;
                index.nameless(data).into_iter().find(|image| image.id == *pinned)?
            }
        };
        let (id, entry) = index.images.get_key_value(&image.id)?;
        let names = entry.names.iter().map(|(key, record)| Name {
            name: key.image.to_string(),
            handler: index.known.name_of(&key.handler).to_owned(),
            source: record.origin.source.clone(),
            by: record.origin.by.clone(),
            provider: record.origin.provider.clone(),
            platform: record.origin.platform.clone(),
            labels: record.origin.labels.clone().into_iter().collect(),
            pulled_at: record.pulled_at,
        });
        let aliases = entry.record.aliases.iter().map(|alias| match &alias.provider {
            Some(provider) => format!("{} ({}, by {provider} alone)", alias.hash, alias.covers.name()),
            None => format!("{} ({})", alias.hash, alias.covers.name()),
        });
        Some(Details {
            image,
            length: entry.record.size,
            flags: entry.record.flags.clone(),
            aliases: aliases.collect(),
            chain: index.chain(id).unwrap_or_else(|_missing| vec![id.clone()]),
            names: names.collect(),
            holders: index.holders_of(id),
            verified_at: entry.record.verified_at,
        })
    }
}
