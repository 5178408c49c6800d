//! What is written in a pod's folder: `owner.json`, whose it is, and `kept.json`, that nobody knows.
//!
//! ```json
//! {"version":1,"instance":"<uuid>","epoch":12,"commits":345,"pod_uid":"...","namespace":"default","name":"web"}
//! {"version":1,"since":1700000000,"why":"..."}
//! ```

use std::time::{SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::model::PodName;

/// Version of both files.
pub const FORMAT: u32 = 1;
pub(super) const VERSION: u32 = FORMAT;

/// Whose a folder is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Owner {
    version: u32,
    /// The controld that made it.
    pub instance: Uuid,
    /// The last of its lives that gave it to a container; see [`crate::orphans::instance`].
    pub epoch: u64,
    /// Number of a transaction of the database that has the pod's sandbox: the last one when a container was given the folder.
    /// 0 is what releases wrote that did not count.
    #[serde(default)]
    pub commits: u64,
    pub pod_uid: String,
    pub namespace: String,
    pub name: String,
}

/// That a folder's owner is not known.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Kept {
    version: u32,
    /// When that was found, in seconds since the epoch.
    pub since: u64,
    /// Why, for people.
    pub why: String,
}

impl Owner {
    /// A pod as the owner of what this life of an instance makes, once the database has `commits` transactions.
    #[must_use]
    pub fn new(instance: Uuid, (epoch, commits): (u64, u64), pod_uid: &str, namespace: &str, name: &str) -> Self {
        Self {
            version: VERSION,
            instance,
            epoch,
            commits,
            pod_uid: pod_uid.to_owned(),
            namespace: namespace.to_owned(),
            name: name.to_owned(),
        }
    }
}

impl Kept {
    /// From now on, for this reason.
    #[must_use]
    pub fn new(why: String) -> Self {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        Self { version: VERSION, since, why }
    }
}

impl From<&Owner> for PodName {
    fn from(owner: &Owner) -> Self {
        Self { uid: owner.pod_uid.clone(), namespace: owner.namespace.clone(), name: owner.name.clone() }
    }
}
