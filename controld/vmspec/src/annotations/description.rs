//! The description of a machine in one annotation ([`proto::vm`]). What it says that no machine is made by is refused: a machine that lacks
//! what its pod says is worse than none.

use std::collections::BTreeMap;
use std::fmt;

use proto::vm::{ANNOTATION, DescriptionError, VmDescription};

use super::keys::CPU_SETTING;
use super::reader::Reader;
use super::{CpuSetting, Problem};
use crate::plan::{Described, NotDescribed};

/// Why a description is refused. Has no value of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum NotDescription {
    /// It says what no machine is made by, or what is wrong.
    Of(NotDescribed),
    /// It is of this version.
    Version(u32),
    /// It is too long, or none.
    Malformed,
}

/// Reads the description, if there is one. A CPU in detail that the pod has, too, may say the same things.
pub(super) fn read(
    all: &BTreeMap<String, String>,
    cpu: Option<&CpuSetting>,
    reader: &mut Reader<'_>,
) -> Option<Described> {
    let text = all.get(ANNOTATION).filter(|text| !text.is_empty())?;
    let described = VmDescription::parse(text).map_err(|error| match error {
        DescriptionError::Version(version) => NotDescription::Version(version),
        DescriptionError::TooLong | DescriptionError::Malformed(_) => NotDescription::Malformed,
    });
    match described.and_then(|description| Described::of(description).map_err(NotDescription::Of)) {
        Ok(described) if cpu.is_some() && (described.topology.is_some() || !described.cpu_features.is_empty()) => {
            reader.refuse(ANNOTATION, Problem::Together { other: CPU_SETTING.to_owned() });
            None
        }
        Ok(described) => Some(described),
        Err(why) => {
            reader.refuse(ANNOTATION, Problem::NotDescription(why));
            None
        }
    }
}

impl fmt::Display for NotDescription {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Of(why) => why.fmt(f),
            Self::Version(version) => {
                write!(f, "is of version {version}, which this release does not know; it takes a newer one on the node")
            }
            Self::Malformed => f.write_str("is no description of a machine; leave it out"),
        }
    }
}
