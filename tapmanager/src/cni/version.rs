//! Versions of the CNI specification that this runtime speaks, for [`super::conf`] and [`super::result`].

use std::fmt;

/// A version of the CNI specification, older ones less than newer ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum SpecVersion {
    /// 0.3.0: results list interfaces and addresses.
    V030,
    /// 0.3.1.
    V031,
    /// 0.4.0: CHECK, and the result of ADD is handed to DEL.
    V040,
    /// 1.0.0: addresses no longer tell their family.
    V100,
    /// 1.1.0: STATUS and GC; a configuration may name several versions.
    V110,
}

impl SpecVersion {
    /// All of them, oldest first.
    pub(crate) const ALL: [Self; 5] = [Self::V030, Self::V031, Self::V040, Self::V100, Self::V110];

    /// The version as it stands in `cniVersion`.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::V030 => "0.3.0",
            Self::V031 => "0.3.1",
            Self::V040 => "0.4.0",
            Self::V100 => "1.0.0",
            Self::V110 => "1.1.0",
        }
    }

    /// `None` for a version that this runtime does not speak.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|version| version.as_str() == text)
    }

    /// Whether plugins know CHECK, and take the result of ADD at DEL.
    pub(crate) fn has_check(self) -> bool {
        self >= Self::V040
    }

    /// Whether plugins know STATUS and GC.
    pub(crate) fn has_status_and_gc(self) -> bool {
        self >= Self::V110
    }

    /// Whether each address of a result says if it is of IPv4 or IPv6.
    pub(crate) fn tells_family(self) -> bool {
        self < Self::V100
    }
}

impl fmt::Display for SpecVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
