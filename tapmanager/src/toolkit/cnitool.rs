//! The variables of cnitool, which authors of plugins have set: `CNI_PATH`, the directories of plugins, and `NETCONFPATH`, that
//! of network configurations.
//!
//! They count where a tool looks at the node's files itself, for `networks` and `attach --conf`, and there in place of what the
//! daemon's configuration says. The daemon reads neither.

use std::ffi::OsString;
use std::path::{PathBuf, absolute};

use crate::config::Config;

const CNI_PATH: &str = "CNI_PATH";
const NETCONFPATH: &str = "NETCONFPATH";

/// What they say.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Variables {
    /// In order; none if the variable is not set.
    plugin_dirs: Vec<PathBuf>,
    conf_dir: Option<PathBuf>,
}

impl Variables {
    /// Those of our environment.
    pub(super) fn of_environment() -> Self {
        Self::of(std::env::var_os(CNI_PATH), std::env::var_os(NETCONFPATH))
    }

    /// By their values. An empty one says nothing.
    fn of(path: Option<OsString>, conf: Option<OsString>) -> Self {
        // Written from here, as the daemon and its plugins are elsewhere. Only an empty path cannot be.
        let dirs = |value: &OsString| std::env::split_paths(value).filter_map(|dir| absolute(dir).ok()).collect();
        Self {
            plugin_dirs: path.as_ref().map(dirs).unwrap_or_default(),
            conf_dir: conf.and_then(|dir| absolute(dir).ok()),
        }
    }

    /// The daemon's configuration, with what they say in its place.
    pub(super) fn over(&self, config: Config) -> Config {
        let dirs = if self.plugin_dirs.is_empty() { &config.cni_plugin_dirs } else { &self.plugin_dirs };
        Config {
            cni_plugin_dirs: dirs.clone(),
            cni_conf_dir: self.conf_dir.clone().unwrap_or(config.cni_conf_dir),
            ..config
        }
    }

    /// What is said beside the networks, so that nobody takes them for the daemon's, or looks for a way to name others.
    pub(super) fn note(&self, well: bool) -> Option<String> {
        let set = [(CNI_PATH, !self.plugin_dirs.is_empty()), (NETCONFPATH, self.conf_dir.is_some())];
        let set: Vec<_> = set.iter().filter(|(_, is_set)| *is_set).map(|(name, _)| format!("`{name}`")).collect();
        match (set.is_empty(), well) {
            (false, _) => Some(format!("these are by {}, which the daemon does not read", set.join(" and "))),
            (true, false) => Some(format!("`{CNI_PATH}` and `{NETCONFPATH}` name other directories, as for cnitool")),
            (true, true) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn variables(path: &str, conf: &str) -> Variables {
        Variables::of(Some(path.into()), Some(conf.into()))
    }

    #[test]
    fn they_stand_in_place_of_what_the_daemon_has() {
        let config = |variables: &Variables| {
            let config = variables.over(Config::default());
            config.check().expect("usable");
            (config.cni_plugin_dirs, config.cni_conf_dir)
        };
        let (dirs, conf) = config(&Variables::default());
        assert_eq!((dirs, conf.clone()), (Config::default().cni_plugin_dirs, "/etc/cni/net.d".into()));
        let here = std::env::current_dir().expect("a directory");
        assert_eq!(
            config(&variables("/a/bin::bin", "net.d")),
            (vec!["/a/bin".into(), here.join("bin")], here.join("net.d"))
        );
        assert_eq!(config(&variables("/a", "")), (vec!["/a".into()], conf));
        for nothing in [variables("", ""), variables(":", ""), Variables::of(None, None)] {
            assert_eq!(nothing, Variables::default());
        }
    }

    #[test]
    fn what_is_shown_by_them_is_not_taken_for_the_daemons() {
        let note = |variables: &Variables, well| variables.note(well).unwrap_or_default();
        let both = "these are by `CNI_PATH` and `NETCONFPATH`, which the daemon does not read";
        assert_eq!(note(&variables("/a", "/b"), true), both);
        assert_eq!(note(&variables("", "/b"), false), "these are by `NETCONFPATH`, which the daemon does not read");
        let unset = "`CNI_PATH` and `NETCONFPATH` name other directories, as for cnitool";
        assert_eq!([true, false].map(|well| note(&Variables::default(), well)), ["", unset]);
    }
}
