//! Names of pods' namespaces, which tell the daemon that made each. Pure.
//!
//! The name is `virtlet-<instance>-<pod>` in `netns_dir`, with the [`InstanceId`] of the daemon. Earlier releases named
//! them `virtlet-<pod>`; a pod keeps the name that is on its record.

use std::path::{Path, PathBuf};

use proto::tap::PodId;

use crate::instance::InstanceId;

/// What the name of each namespace of ours, or of a daemon like this one, begins with.
const LABEL: &str = "virtlet-";

/// Names in one directory by one daemon.
#[derive(Debug, Clone)]
pub(crate) struct NetnsNames {
    dir: PathBuf,
    prefix: String,
}

/// Whose namespace it is by its name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum NetnsOwner {
    /// This daemon made it for this pod.
    ThisDaemon(PodId),
    /// Another daemon, or a release that did not write its name.
    Unknown,
}

impl NetnsNames {
    /// Of the daemon `instance`, in `dir`.
    pub(crate) fn new(dir: PathBuf, instance: &InstanceId) -> Self {
        Self { dir, prefix: format!("{LABEL}{instance}-") }
    }

    pub(super) fn dir(&self) -> &Path {
        &self.dir
    }

    /// Where the namespace of a new pod is mounted.
    pub(super) fn path(&self, pod: &PodId) -> PathBuf {
        self.dir.join(format!("{}{}", self.prefix, pod.as_str()))
    }

    /// Whose a file in the directory is; `None` if its name is not of our kind at all.
    pub(super) fn owner(&self, path: &Path) -> Option<NetnsOwner> {
        let name = path.file_name()?.to_str()?;
        let named = name.strip_prefix(LABEL)?;
        // A pod's id may be as long as an id can be, and an instance stands before it.
        let after_instance =
            named.split_once('-').filter(|(instance, _)| InstanceId::try_from((*instance).to_owned()).is_ok());
        let is_pod = |text: &str| text.parse::<PodId>().is_ok();
        if !is_pod(named) && !after_instance.is_some_and(|(_, pod)| is_pod(pod)) {
            return None;
        }
        let ours = name.strip_prefix(&self.prefix).and_then(|pod| pod.parse().ok());
        Some(ours.map_or(NetnsOwner::Unknown, NetnsOwner::ThisDaemon))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_says_whose_it_is() {
        let instance = InstanceId::try_from("0123abcd".to_owned()).expect("an instance");
        let names = NetnsNames::new("/run/netns".into(), &instance);
        let pod: PodId = "p-1".parse().expect("pod id");
        assert_eq!(names.path(&pod), Path::new("/run/netns/virtlet-0123abcd-p-1"));
        let longest = "a".repeat(PodId::MAX_LEN);
        let (of_another, too_long) = (format!("virtlet-89abcdef-{longest}"), format!("virtlet-89abcdef-{longest}a"));
        for (name, owner) in [
            ("virtlet-0123abcd-p-1", Some(NetnsOwner::ThisDaemon(pod))),
            ("virtlet-89abcdef-p-1", Some(NetnsOwner::Unknown)),
            ("virtlet-p-1", Some(NetnsOwner::Unknown)),
            ("virtlet-0123abcd", Some(NetnsOwner::Unknown)),
            ("virtlet-0123abcd-", Some(NetnsOwner::Unknown)),
            (&of_another, Some(NetnsOwner::Unknown)),
            (&too_long, None),
            ("virtlet-", None),
            ("virtlet-..", None),
            ("cni-1234", None),
        ] {
            assert_eq!(names.owner(&Path::new("/run/netns").join(name)), owner, "{name}");
        }
    }
}
