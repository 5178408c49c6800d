//! Why the plugin did not do what it was asked to, and how the runtime is told.
//!
//! Called by all of [`super`]. Codes below 100 are the specification's; those from 100 on are ours, and
//! `docs/sriov-plugin.md` lists them.

use std::error::Error as StdError;
use std::fmt;

use common::{Chain, Reason};
use rscni_plugin::error::Error;

/// What kind of failure it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Code {
    /// Nothing is known of this container.
    Unknown,
    /// The state directory, or an IPAM plugin's pipes.
    Io,
    /// Configuration, `CNI_ARGS` or pools.
    Config,
    /// The container's namespace.
    Netns,
    /// It may work soon.
    TryAgain,
    /// STATUS: no ADD can succeed.
    NotAvailable,
    /// Every VF is in use.
    Exhausted,
    /// There is no such PF or VF.
    NoDevice,
    /// The one VF that was named is in use, or its address is.
    InUse,
    /// A PF's settings.
    Settings,
    /// The kernel refused something else.
    Kernel,
    /// CHECK: something is not as ADD left it.
    Differs,
    /// An IPAM plugin did not answer as the specification says.
    Ipam,
}

/// Why a command failed.
#[derive(Debug)]
pub(super) enum Failure {
    /// We failed.
    Own(Code, Reason),
    /// The IPAM plugin did, and this is what it said.
    Delegate(Error),
}

// === impl Failure ===

impl Failure {
    /// In words.
    pub(super) fn new(code: Code, text: impl Into<String>) -> Self {
        Self::Own(code, Reason::new(text.into()))
    }

    /// For `map_err`: what was tried, and why it failed.
    pub(super) fn because<E: StdError + Send + Sync + 'static>(
        code: Code,
        text: impl Into<String>,
    ) -> impl FnOnce(E) -> Self {
        let text = text.into();
        move |cause| Self::Own(code, Reason::new(text).with(cause))
    }

    /// The same for causes of ports.
    pub(super) fn kernel(text: impl Into<String>) -> impl FnOnce(Box<dyn StdError + Send + Sync>) -> Self {
        let text = text.into();
        move |cause| Self::Own(Code::Kernel, Reason::new(text).with(Boxed(cause)))
    }

    /// Adds what could not be put right afterwards.
    pub(super) fn and(self, then: &Self) -> Self {
        match self {
            Self::Own(code, reason) => Self::new(code, format!("{}; {then}", Chain(&reason))),
            Self::Delegate(error) => Self::Delegate(Error::Custom(
                u32::from(&error),
                error.msg().to_owned(),
                format!("{}; {then}", error.details()),
            )),
        }
    }

    /// The kind; `None` if an IPAM plugin failed.
    #[cfg(test)]
    pub(super) fn code(&self) -> Option<Code> {
        match self {
            Self::Own(code, _) => Some(*code),
            Self::Delegate(_) => None,
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Own(_, reason) => write!(f, "{}", Chain(reason)),
            Self::Delegate(error) => write!(f, "IPAM plugin: {error}"),
        }
    }
}

impl From<Failure> for Error {
    fn from(failure: Failure) -> Self {
        let (code, reason) = match failure {
            Failure::Own(code, reason) => (code, reason),
            Failure::Delegate(error) => return error,
        };
        let details = Chain(&reason).to_string();
        let own = |code, text: &str, details| Self::Custom(code, text.to_owned(), details);
        match code {
            Code::Unknown => Self::NotExist(details),
            Code::Io => Self::IOFailure(details),
            Code::Config => Self::InvalidNetworkConfig(details),
            Code::Netns => Self::InvalidNetNS(details),
            Code::TryAgain => Self::TryAgainLater(details),
            Code::NotAvailable => Self::PluginNotAvailable(details),
            Code::Exhausted => own(100, "No free VF", details),
            Code::NoDevice => own(101, "No such PF or VF", details),
            Code::InUse => own(102, "VF or address is in use", details),
            Code::Settings => own(103, "PF refused a setting", details),
            Code::Kernel => own(104, "VF could not be set up or given back", details),
            Code::Differs => own(105, "Attachment is not as ADD left it", details),
            Code::Ipam => own(106, "IPAM plugin failed", details),
        }
    }
}

/// A boxed error is not an error itself.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
struct Boxed(Box<dyn StdError + Send + Sync>);
