//! The identity of this daemon: eight random hex digits, kept in `<state_dir>/instance`.
//!
//! The names of its namespaces and its entries of the CNI result cache carry it. So two daemons on one node tell theirs
//! apart, and a daemon does not take over what another state directory's daemon made. Read at the start of the daemon,
//! which draws it if there is none. The daemon never changes a file that it does not understand: it then works under an
//! instance that is forgotten when it ends; on a newer release's it does not start. All functions block on the disk.
//!
//! [`common::small_file`] is not used: for it a file of another version is an error. This daemon starts all the same,
//! and says what the consequence is.

use std::fmt;
use std::fs::{self, File};
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::durable::{self, DurableError, Existing, Keep};

const FILE: &str = "instance";
/// Version of the file.
pub(crate) const FORMAT: u32 = 1;
const VERSION: u32 = FORMAT;
const RANDOM: &str = "/dev/urandom";
const DIGITS: usize = 8;

/// Eight lower-case hex digits.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub(crate) struct InstanceId(String);

/// Why there is no instance, or none that lasts.
#[derive(Debug, thiserror::Error)]
pub(crate) enum InstanceError {
    #[error("failed to read `{}`", path.display())]
    Read {
        path: PathBuf,
        #[source]
        cause: io::Error,
    },
    #[error(transparent)]
    Keep(#[from] DurableError),
    #[error(
        "`{}` is not understood and left alone; namespaces of pods are named anew at each start; install the release \
         that wrote it, or remove it", path.display()
    )]
    NotUnderstood {
        path: PathBuf,
        #[source]
        cause: FormError,
    },
}

/// What is wrong with the file.
#[derive(Debug, thiserror::Error)]
pub(crate) enum FormError {
    #[error(transparent)]
    Json(#[from] serde_json::Error),
    #[error("its version is {theirs}, this program knows {VERSION}")]
    Version { theirs: u32 },
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Note {
    version: u32,
    instance: InstanceId,
}

/// Only the version, so that a newer file is called newer whatever else it holds.
#[derive(Deserialize)]
struct VersionOnly {
    version: u32,
}

// === impl InstanceId ===

impl InstanceError {
    /// Whether a newer release wrote the file.
    pub(crate) const fn is_newer(&self) -> bool {
        matches!(self, Self::NotUnderstood { cause: FormError::Version { theirs }, .. } if *theirs > VERSION)
    }
}

impl InstanceId {
    /// The instance of `state_dir`, which is drawn if there is none yet. The second part says why it will not last.
    pub(crate) fn of(state_dir: &Path) -> Result<(Self, Option<InstanceError>), InstanceError> {
        match Self::peek(state_dir) {
            Ok(Some(instance)) => Ok((instance, None)),
            Err(error @ InstanceError::NotUnderstood { .. }) => Ok((Self::draw()?, Some(error))),
            Err(error) => Err(error),
            Ok(None) => {
                let drawn = Self::draw()?;
                let note = serde_json::json!(Note { version: VERSION, instance: drawn.clone() });
                durable::write(state_dir, FILE, format!("{note}\n").as_bytes(), Existing::Keep, Keep::ForGood)?;
                durable::flush(state_dir, FILE)?;
                Ok((drawn, None))
            }
        }
    }

    /// The instance of `state_dir`, if there is one.
    pub(crate) fn peek(state_dir: &Path) -> Result<Option<Self>, InstanceError> {
        let path = state_dir.join(FILE);
        match fs::read(&path) {
            Ok(bytes) => parse(&bytes).map(Some).map_err(|cause| InstanceError::NotUnderstood { path, cause }),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(cause) => Err(InstanceError::Read { path, cause }),
        }
    }

    fn draw() -> Result<Self, InstanceError> {
        let mut bytes = [0; DIGITS / 2];
        let read = File::open(RANDOM).and_then(|mut random| random.read_exact(&mut bytes));
        read.map_err(|cause| InstanceError::Read { path: RANDOM.into(), cause })?;
        Ok(Self(format!("{:08x}", u32::from_ne_bytes(bytes))))
    }
}

impl TryFrom<String> for InstanceId {
    type Error = &'static str;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        let fits = text.len() == DIGITS && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
        if fits { Ok(Self(text)) } else { Err("an instance is 8 lower-case hex digits") }
    }
}

impl From<InstanceId> for String {
    fn from(instance: InstanceId) -> Self {
        instance.0
    }
}

impl fmt::Display for InstanceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

fn parse(bytes: &[u8]) -> Result<InstanceId, FormError> {
    let VersionOnly { version } = serde_json::from_slice(bytes)?;
    if version != VERSION {
        return Err(FormError::Version { theirs: version });
    }
    Ok(serde_json::from_slice::<Note>(bytes)?.instance)
}

#[cfg(test)]
mod tests {
    use common::Chain;

    use super::*;

    /// As this release writes it. Stays as it is for ever.
    const FIRST_RELEASE: &str = include_str!("instance/fixtures/v1.json");

    #[test]
    fn an_instance_is_drawn_once_for_a_state_directory() {
        let [one, other] = [(); 2].map(|()| tempfile::tempdir().expect("tempdir"));
        let of = |dir: &tempfile::TempDir| InstanceId::of(dir.path()).expect("an instance");
        let (first, remark) = of(&one);
        assert!(remark.is_none());
        assert_eq!(of(&one).0, first);
        assert_ne!(of(&other).0, first, "one in four thousand million");
    }

    #[test]
    fn the_first_release_is_understood_for_ever() {
        let dir = tempfile::tempdir().expect("tempdir");
        std::fs::write(dir.path().join(FILE), FIRST_RELEASE).expect("written");
        let (instance, remark) = InstanceId::of(dir.path()).expect("an instance");
        assert_eq!((instance.to_string().as_str(), remark.is_none()), ("0123abcd", true));
        assert_eq!(format!("{}\n", serde_json::json!(Note { version: VERSION, instance })), FIRST_RELEASE);
    }

    #[test]
    fn what_is_not_understood_is_left_alone_and_worked_without() {
        for (text, wanted) in [
            ("", "EOF"),
            (r#"{"version":2,"instance":{}}"#, "its version is 2"),
            (r#"{"version":1,"instance":"../../../"}"#, "8 lower-case hex digits"),
        ] {
            let dir = tempfile::tempdir().expect("tempdir");
            std::fs::write(dir.path().join(FILE), text).expect("written");
            let (_, remark) = InstanceId::of(dir.path()).expect("works");
            let remark = Chain(&remark.expect("told")).to_string();
            assert!(remark.contains(wanted), "{remark}");
            assert_eq!(std::fs::read_to_string(dir.path().join(FILE)).expect("there"), text);
        }
    }
}
