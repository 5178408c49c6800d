//! The table of runtime handlers: the configuration of each, by name.

use std::collections::{BTreeMap, BTreeSet};

use vmimage::error::printable;
use vmimage::name::{IMPORT, ImageRef};

use super::StoreError;
use crate::sources::provider::Registry;
use crate::storage::config::HandlerConfig;
use crate::storage::content::{Handler, Known};

/// All handlers. There is always a default one, which is also meant by an empty name.
#[derive(Debug)]
pub(super) struct Handlers {
    default_name: String,
    default: (Handler, HandlerConfig),
    others: BTreeMap<String, (Handler, HandlerConfig)>,
}

impl Handlers {
    pub(super) fn new(
        default_name: String,
        mut configured: BTreeMap<String, HandlerConfig>,
    ) -> Result<Self, StoreError> {
        let checked =
            |name: &str| Handler::named(name).ok_or_else(|| StoreError::HandlerName { handler: printable(name) });
        checked(&default_name)?;
        let default = (Handler::default(), configured.remove(&default_name).unwrap_or_default());
        let others = configured.into_iter().map(|(name, config)| {
            let handler = checked(&name)?;
            Ok((name, (handler, config)))
        });
        Ok(Self { default, others: others.collect::<Result<_, StoreError>>()?, default_name })
    }

    /// Whether each provider that a handler names is there.
    pub(super) fn check_providers(&self, registry: &Registry) -> Result<(), StoreError> {
        // It may be one of the sources that are not used, for which there is a warning.
        if !registry.left_out().is_empty() {
            return Ok(());
        }
        let known = || registry.providers().iter().map(|provider| provider.id()).chain([IMPORT]);
        let default = std::iter::once((&self.default_name, &self.default));
        for (handler, (_, config)) in default.chain(&self.others) {
            let unknown = config.providers.iter().flatten().find(|id| !known().any(|known| known == id.as_str()));
            if let Some(id) = unknown {
                let (handler, provider) = (handler.clone(), printable(id));
                return Err(StoreError::HandlerProvider {
                    handler,
                    provider,
                    known: known().map(str::to_owned).collect(),
                });
            }
        }
        Ok(())
    }

    pub(super) fn find(&self, name: &str) -> Option<(&Handler, &HandlerConfig)> {
        let (handler, config) = match name == self.default_name || name.is_empty() {
            true => &self.default,
            false => self.others.get(name)?,
        };
        Some((handler, config))
    }

    /// Own names, the default one's first.
    pub(super) fn names(&self) -> Vec<String> {
        std::iter::once(&self.default_name).chain(self.others.keys()).cloned().collect()
    }

    pub(super) fn all(&self) -> Vec<&Handler> {
        std::iter::once(&self.default).chain(self.others.values()).map(|(handler, _)| handler).collect()
    }

    pub(super) fn name_of(&self, handler: &Handler) -> String {
        if handler.is_default() { self.default_name.clone() } else { handler.name().to_owned() }
    }

    /// Whether what was pulled for the default handler runs on machines of this one.
    pub(super) fn is_like_default(&self, handler: &Handler) -> bool {
        let own = self.others.get(handler.name());
        own.is_some_and(|(_, config)| config.platform == self.default.1.platform)
    }

    /// What the content store must know of them.
    pub(super) fn known(&self, pinned: BTreeSet<ImageRef>) -> Known {
        let all = std::iter::once(&self.default).chain(self.others.values());
        let platforms = all.map(|(handler, config)| (handler.clone(), config.platform.to_string())).collect();
        Known { default_handler: self.default_name.clone(), platforms, pinned }
    }
}
