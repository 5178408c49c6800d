//! Why a network could not be added, removed, checked or collected.

use std::env;
use std::fmt;

use common::Reason;

use super::conf::NetworkList;
use super::plugin::{Command, PluginError};

/// Why a network could not be added, removed, checked or collected.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CniError {
    /// An argument that cannot be told to plugins.
    #[error("`{name}` cannot be told to CNI plugins: it holds `;`, `=` or a control character")]
    Argument {
        /// Name of the argument.
        name: String,
    },
    /// A plugin directory that cannot be told to plugins.
    #[error("the CNI plugin directories cannot be told to plugins")]
    PluginDirs(#[source] env::JoinPathsError),
    /// A plugin failed.
    #[error("CNI plugin `{kind}` of network `{network}` failed at {command}")]
    Plugin {
        /// Name of the network.
        network: String,
        /// File name of the plugin.
        kind: String,
        /// Its position in the network, from 0: a network may have plugins of one name.
        place: usize,
        /// What it was asked to do.
        command: Command,
        /// What came of it.
        #[source]
        cause: Box<PluginError>,
    },
    /// It is not clear which device a network is about.
    #[error("the network's device cannot be told")]
    Device(#[source] Reason),
    /// Several plugins failed.
    #[error("{}", Each(.0))]
    Several(Vec<CniError>),
    /// The network names several versions, and no one fits all plugins.
    #[error("the plugins of network `{network}` have no CNI version in common; set one `cniVersion` that all speak")]
    NoCommonVersion {
        /// Name of the network.
        network: String,
    },
    /// The network's version has no CHECK.
    #[error("network `{network}` is of CNI version {version}, which has no CHECK; 0.4.0 and later have")]
    NoCheck {
        /// Name of the network.
        network: String,
        /// Its version.
        version: &'static str,
    },
    /// Plugins are not asked to collect.
    #[error("network `{network}` is not collected by its plugins: {why}")]
    NoGc {
        /// Name of the network.
        network: String,
        /// Why not.
        why: &'static str,
    },
    /// What the pod needs is nobody's.
    #[error(
        "network `{network}` has no plugin that declares the capability `{capability}`, which the pod's {what} need; \
         add such a plugin to the network, or leave this out of the pod"
    )]
    Incapable {
        /// Name of the network.
        network: String,
        /// As plugins declare it.
        capability: &'static str,
        /// What it is for.
        what: &'static str,
    },
    /// The result cache.
    #[error(transparent)]
    Cache(Reason),
    /// What Multus left.
    #[error(transparent)]
    Multus(Reason),
}

impl CniError {
    /// Of the plugin at `place` of a network.
    pub(super) fn plugin(list: &NetworkList, place: usize, command: Command, cause: PluginError) -> Self {
        let kind = list.kinds().nth(place).unwrap_or_default().to_owned();
        Self::Plugin { network: list.name().to_owned(), kind, place, command, cause: Box::new(cause) }
    }

    /// Fine if there are none.
    pub(super) fn all(mut errors: Vec<Self>) -> Result<(), Self> {
        match errors.len() {
            0 | 1 => errors.pop().map_or(Ok(()), Err),
            _ => Err(Self::Several(errors)),
        }
    }

    /// Of how many of the network's plugins ADD was begun, if this is why ADD as a whole failed.
    pub(crate) fn begun(&self, list: &NetworkList) -> usize {
        match self {
            Self::Plugin { place, command: Command::Add, cause, .. } => place + usize::from(!cause.is_not_begun()),
            // Kept and read after the last of them.
            Self::Cache(_) | Self::Multus(_) => list.kinds().count(),
            _ => 0,
        }
    }

    /// Whether a plugin failed, or the kernel did that should have started it.
    pub(super) const fn is_of_plugin(&self) -> bool {
        match self {
            Self::Plugin { cause, .. } => !cause.is_withheld(),
            _ => false,
        }
    }

    /// Whether a plugin's deadline is the cause, or one of the causes.
    pub(crate) fn is_deadline(&self) -> bool {
        match self {
            Self::Plugin { cause, .. } => cause.is_deadline(),
            Self::Several(errors) => errors.iter().any(Self::is_deadline),
            _ => false,
        }
    }
}

/// Several errors with their causes: a chain of sources has room for one only.
struct Each<'a>(&'a [CniError]);

impl fmt::Display for Each<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, error) in self.0.iter().enumerate() {
            f.write_str(if at == 0 { "" } else { "; and " })?;
            write!(f, "{error}")?;
            let mut cause = std::error::Error::source(error);
            while let Some(error) = cause {
                write!(f, ": {error}")?;
                cause = error.source();
            }
        }
        Ok(())
    }
}
