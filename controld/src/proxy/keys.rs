//! Which side a pod or an image is for, by what kubelet says of it: the specification's section 2, pure.
//!
//! A runtime handler is the key that fails safe: on a node without us it is refused by name. The annotation and the beginning of an
//! image's name are Virtlet's, and a runtime without this proxy passes over them.

use std::collections::BTreeSet;

use tonic::Status;
use vmspec::annotations::IMAGE_HANDLER;

use super::side::Side;
use super::wire::{self, Malformed};
use crate::config::Config;

#[cfg(test)]
mod tests;

/// Virtlet's annotation of pods.
const TARGET: &str = "kubernetes.io/target-runtime";

/// Fields of an `ImageSpec`.
const IMAGE: u32 = 1;
const IMAGE_ANNOTATIONS: u32 = 2;
const RUNTIME_HANDLER: u32 = 19;

/// What a sandbox is told by.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(super) struct SandboxKeys<'a> {
    handler: &'a str,
    target: &'a str,
}

/// What an image is told by.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(super) struct ImageKeys<'a> {
    pub(super) name: &'a str,
    handler: &'a str,
    target: &'a str,
}

/// The keys that are ours.
#[derive(Debug, Clone)]
pub(super) struct Keys {
    handlers: BTreeSet<String>,
    targets: Vec<String>,
    prefixes: Vec<String>,
}

/// Keys that lead nowhere.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum Refusal {
    #[error(
        "annotation `{TARGET}` is `{named}`, which is no runtime of this node; it may be {known}, and without it a pod is of containers"
    )]
    UnknownTarget { named: String, known: String },
    #[error(
        "annotation `{TARGET}` is `{named}`, and `proxy.target_runtimes` names no value that this node knows; leave it out"
    )]
    NoTargets { named: String },
    #[error(
        "runtime handler `{handler}` is of the container runtime, and annotation `{TARGET}` is `{target}`, which is of virtual \
         machines; leave one of them out"
    )]
    Disagree { handler: String, target: String },
    #[error(transparent)]
    Malformed(#[from] Malformed),
}

impl From<Refusal> for Status {
    fn from(refusal: Refusal) -> Self {
        Self::invalid_argument(refusal.to_string())
    }
}

impl<'a> SandboxKeys<'a> {
    /// Of a request whose pod is in field `config`, and its handler in field `handler`.
    pub(super) fn read(request: &'a [u8], config: u32, handler: u32) -> Result<Self, Malformed> {
        const ANNOTATIONS: u32 = 7;
        Ok(Self {
            handler: wire::text(request, &[handler])?,
            target: wire::entry(request, &[config, ANNOTATIONS], TARGET)?.unwrap_or_default(),
        })
    }

    /// The runtime handler, if one is named.
    pub(super) fn handler(&self) -> Option<&'a str> {
        Some(self.handler).filter(|handler| !handler.is_empty())
    }
}

impl<'a> ImageKeys<'a> {
    /// Of the image spec at `path`.
    pub(super) fn read(request: &'a [u8], path: &[u32]) -> Result<Self, Malformed> {
        let at = |field: u32| [path, &[field]].concat();
        let annotation = |key| wire::entry(request, &at(IMAGE_ANNOTATIONS), key);
        let handler = match wire::text(request, &at(RUNTIME_HANDLER))? {
            // In the place of the field, for clients that have none; as our own image service has it.
            "" => annotation(IMAGE_HANDLER)?.unwrap_or_default(),
            named => named,
        };
        let target = annotation(TARGET)?.unwrap_or_default();
        Ok(Self { name: wire::text(request, &at(IMAGE))?, handler, target })
    }

    /// Of a pull, which also says which pod it is for.
    pub(super) fn of_pull(request: &'a [u8]) -> Result<Self, Malformed> {
        const POD: u32 = 3;
        let mut keys = Self::read(request, &[1])?;
        if keys.target.is_empty() {
            keys.target = SandboxKeys::read(request, POD, u32::MAX)?.target;
        }
        Ok(keys)
    }
}

impl Keys {
    /// As they are configured.
    pub(super) fn new(config: &Config) -> Self {
        let proxy = &config.proxy;
        Self {
            handlers: config.handler_names(),
            targets: proxy.target_runtimes.clone(),
            prefixes: proxy.image_prefixes.clone(),
        }
    }

    /// Names of our runtime handlers.
    pub(super) fn handlers(&self) -> &BTreeSet<String> {
        &self.handlers
    }

    /// Who has this pod.
    pub(super) fn sandbox(&self, keys: &SandboxKeys<'_>) -> Result<Side, Refusal> {
        match (self.by_handler(keys.handler), self.by_target(keys.target)?) {
            (Some(Side::Default), Some(Side::Ours)) => {
                Err(Refusal::Disagree { handler: keys.handler.into(), target: keys.target.into() })
            }
            (Some(side), _) | (None, Some(side)) => Ok(side),
            (None, None) => Ok(Side::Default),
        }
    }

    /// Who has this image; `None` if nothing but its name tells. An annotation of another runtime is no key: a pod that runs with one was
    /// made before us, and its containers are made anew of their images.
    pub(super) fn image(&self, keys: &ImageKeys<'_>) -> Option<Side> {
        let by_target = self.by_target(keys.target).unwrap_or_default();
        let by_name = || self.has_prefix(keys.name).then_some(Side::Ours);
        self.by_handler(keys.handler).or(by_target).or_else(by_name)
    }

    /// Whether a name is that of an image of ours.
    pub(super) fn has_prefix(&self, name: &str) -> bool {
        self.prefixes.iter().any(|prefix| name.starts_with(prefix))
    }

    fn by_handler(&self, handler: &str) -> Option<Side> {
        // One that nobody has is the default's, too: its error names what is configured there.
        let side = if self.handlers.contains(handler) { Side::Ours } else { Side::Default };
        (!handler.is_empty()).then_some(side)
    }

    fn by_target(&self, target: &str) -> Result<Option<Side>, Refusal> {
        if target.is_empty() {
            return Ok(None);
        }
        if self.targets.iter().any(|ours| ours == target) {
            return Ok(Some(Side::Ours));
        }
        let (named, known) = (shown(target), self.targets.iter().map(|known| format!("`{known}`")));
        Err(match known.collect::<Vec<_>>().join(" or ") {
            none if none.is_empty() => Refusal::NoTargets { named },
            known => Refusal::UnknownTarget { named, known },
        })
    }
}

/// Of a text that anybody may have written, what fits an error.
pub(super) fn shown(text: &str) -> String {
    common::shown(text, 64)
}
