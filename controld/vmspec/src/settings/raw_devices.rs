//! Which block devices of the node pods may name themselves.

use std::path::{Component, Path};

use crate::annotations::matches;
use serde::Deserialize;

use super::problems::Problems;

/// Names below `/dev`, in which `*` is any letters but `/`. None unless the administrator says so.
///
/// They count for what a pod names by a `hostPath` or a flexvolume. Not for block volumes, which an administrator made.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(transparent)]
pub struct RawDevices(Vec<String>);

impl RawDevices {
    /// Whether the device with this node may be a disk of a pod.
    #[must_use]
    pub fn may_be(&self, node: &Path) -> bool {
        let Some(name) = node.strip_prefix("/dev").ok().and_then(Path::to_str) else { return false };
        let is_it = |pattern: &String| {
            let (pattern, name): (Vec<&str>, Vec<&str>) = (pattern.split('/').collect(), name.split('/').collect());
            pattern.len() == name.len() && pattern.iter().zip(name).all(|(pattern, part)| matches(pattern, part))
        };
        self.0.iter().any(is_it)
    }

    pub fn check(&self, problems: &mut Problems) {
        let is_plain = |pattern: &String| {
            !pattern.is_empty() && Path::new(pattern).components().all(|part| matches!(part, Component::Normal(_)))
        };
        if let Some(other) = self.0.iter().find(|pattern| !is_plain(pattern)) {
            let problem = format!("has `{}`, which is no name below `/dev`", other.escape_debug());
            problems.add("raw_devices", problem);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(patterns: &[&str]) -> RawDevices {
        RawDevices(patterns.iter().map(|&pattern| pattern.into()).collect())
    }

    #[test]
    fn devices_are_told_by_their_names_below_dev() {
        let config = named(&["loop*", "mapper/vg-*"]);
        for (node, so) in [
            ("/dev/loop0", true),
            ("/dev/mapper/vg-a", true),
            ("/dev/mapper/other", false),
            ("/dev/loop/0", false),
            ("/dev/sda", false),
            ("/etc/loop0", false),
            ("/dev", false),
        ] {
            assert_eq!(config.may_be(Path::new(node)), so, "{node}");
        }
        assert!(!named(&[]).may_be(Path::new("/dev/loop0")));
    }

    #[test]
    fn what_is_no_name_below_dev_is_a_problem() {
        for (pattern, fine) in [("loop*", true), ("vg/*", true), ("/dev/loop*", false), ("../sda", false), ("", false)]
        {
            let mut problems = Problems::default();
            named(&[pattern]).check(&mut problems);
            assert_eq!(problems.is_empty(), fine, "{pattern}");
        }
    }
}
