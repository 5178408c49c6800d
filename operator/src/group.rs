//! The API group of our objects: KubeVirt's own, or another one where KubeVirt itself is in the cluster.

use std::fmt;
use std::str::FromStr;

use kubevirt::{GROUP, OTHER_GROUP};

/// An API group.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum Group {
    /// `kubevirt.io`
    #[default]
    KubeVirt,
    /// `virtlet.k8s`
    Virtlet,
}

/// Version that objects are stored in.
pub const VERSION: &str = "v1";
/// Version of the same shape that manifests of older days have; deprecated, as with KubeVirt.
pub const OLD_VERSION: &str = "v1alpha3";

/// No such group.
#[derive(Debug, thiserror::Error)]
#[error("no group of ours; take {GROUP}, or {OTHER_GROUP} where KubeVirt itself is in the cluster")]
pub struct GroupError;

impl Group {
    /// Its name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::KubeVirt => GROUP,
            Self::Virtlet => OTHER_GROUP,
        }
    }

    /// As `apiVersion` of objects has it.
    #[must_use]
    pub fn api_version(self) -> String {
        format!("{}/{VERSION}", self.name())
    }
}

impl fmt::Display for Group {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Group {
    type Err = GroupError;

    fn from_str(name: &str) -> Result<Self, GroupError> {
        [Self::KubeVirt, Self::Virtlet].into_iter().find(|group| group.name() == name).ok_or(GroupError)
    }
}
