//! What networks a node has, and whether each plugin of theirs would be started: by looking at files alone.
//!
//! The toolkit calls it for `tapmanager networks` and `attach --conf`. It reads the files as the daemon does, and runs no
//! plugin.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use common::{Chain, Reason};
use serde::Serialize;

use super::NetworkList;
use super::conf::dir::{ConfError, Networks};
use super::plugin;
use crate::spawner::Allowed;

/// What there is.
#[derive(Debug, Serialize)]
pub(crate) struct Survey {
    /// In the order of their files; the first is the default network.
    pub(crate) networks: Vec<Surveyed>,
    /// Why files are none.
    pub(crate) broken: Vec<String>,
    /// Why there is no default network, if there is none.
    pub(crate) trouble: Option<String>,
}

/// A network.
#[derive(Debug, Serialize)]
pub(crate) struct Surveyed {
    pub(crate) name: String,
    /// In the order of ADD.
    pub(crate) plugins: Vec<SurveyedPlugin>,
    /// Programs that give addresses, which some of `plugins` start.
    pub(crate) ipam: Vec<SurveyedPlugin>,
    /// Where one of these, `host-local`, notes whose an address is.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) leases: Vec<PathBuf>,
}

/// A plugin of a network.
#[derive(Debug, Serialize)]
pub(crate) struct SurveyedPlugin {
    /// File name of its executable.
    #[serde(rename = "type")]
    pub(crate) kind: String,
    /// Which file it is, if there is one.
    pub(crate) path: Option<PathBuf>,
    /// Why it would not be started.
    pub(crate) trouble: Option<String>,
}

impl Survey {
    /// Of these directories.
    pub(crate) fn of(conf_dir: &Path, plugin_dirs: &[PathBuf]) -> Self {
        let told = |error: &ConfError| Chain(error).to_string();
        let networks = match Networks::read(conf_dir) {
            Ok(networks) => networks,
            Err(error) => return Self { networks: Vec::new(), broken: Vec::new(), trouble: Some(told(&error)) },
        };
        let allowed = Allowed::new(plugin_dirs);
        Self {
            networks: networks.lists.iter().map(|list| surveyed(list, plugin_dirs, &allowed)).collect(),
            broken: networks.broken.iter().map(|error| told(error)).collect(),
            trouble: networks.default_network(conf_dir).err().map(|error| told(&error)),
        }
    }

    /// Whether a pod without a network of its own could have one, as far as files tell.
    pub(crate) fn is_well(&self) -> bool {
        let default = self.networks.first();
        default
            .is_some_and(|network| network.plugins.iter().chain(&network.ipam).all(|plugin| plugin.trouble.is_none()))
    }
}

/// The first plugin of `list` that would not be started, and why.
pub(crate) fn plugin_in_trouble(list: &NetworkList, dirs: &[PathBuf]) -> Option<(String, String)> {
    let Surveyed { plugins, ipam, .. } = surveyed(list, dirs, &Allowed::new(dirs));
    plugins.into_iter().chain(ipam).find_map(|plugin| Some((plugin.kind, plugin.trouble?)))
}

fn surveyed(list: &NetworkList, dirs: &[PathBuf], allowed: &Allowed) -> Surveyed {
    let plugin = |kind: &str| SurveyedPlugin {
        kind: kind.to_owned(),
        path: plugin::find(kind, dirs).ok(),
        trouble: trouble(kind, dirs, allowed),
    };
    let ipam = |kind: &str| SurveyedPlugin {
        kind: kind.to_owned(),
        path: plugin::find(kind, dirs).ok(),
        trouble: match plugin::find(kind, dirs) {
            Ok(path) => not_executable(&path),
            Err(error) => Some(Chain(&error).to_string()),
        },
    };
    Surveyed {
        name: list.name().to_owned(),
        plugins: list.kinds().map(plugin).collect(),
        ipam: list.ipam_kinds().into_iter().map(ipam).collect(),
        leases: list.lease_dirs(),
    }
}

fn trouble(kind: &str, dirs: &[PathBuf], allowed: &Allowed) -> Option<String> {
    if let Err(error) = plugin::is_installed(kind, dirs, allowed) {
        return Some(Chain(&error).to_string());
    }
    not_executable(&plugin::find(kind, dirs).ok()?)
}

fn not_executable(path: &Path) -> Option<String> {
    let looked = match fs::metadata(path) {
        Ok(found) if found.permissions().mode() & 0o111 != 0 => return None,
        Ok(_) => Reason::new(format!("`{}` is not executable; chmod 755 makes it so", path.display())),
        Err(cause) => Reason::new(format!("failed to look at `{}`", path.display())).with(cause),
    };
    Some(Chain(&looked).to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node() -> (tempfile::TempDir, PathBuf, Vec<PathBuf>) {
        let dir = tempfile::tempdir().expect("tempdir");
        let (conf, bin) = (dir.path().join("net.d"), dir.path().join("bin"));
        for made in [&conf, &bin] {
            fs::create_dir(made).expect("directory");
        }
        chmod(&bin, 0o755);
        (dir, conf, vec![bin])
    }

    fn chmod(path: &Path, mode: u32) {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("chmod");
    }

    #[test]
    fn a_plugin_that_would_not_be_started_is_told_with_the_reason() {
        let (_dir, conf, bin) = node();
        let list = r#"{"cniVersion": "1.0.0", "name": "net", "plugins": [
            {"type": "well"}, {"type": "absent"}, {"type": "plain"}, {"type": "open"}]}"#;
        fs::write(conf.join("10-net.conflist"), list).expect("written");
        for (name, mode) in [("well", 0o755), ("plain", 0o644), ("open", 0o757)] {
            fs::write(bin[0].join(name), "").expect("written");
            chmod(&bin[0].join(name), mode);
        }
        let survey = Survey::of(&conf, &bin);
        assert!(!survey.is_well() && survey.trouble.is_none() && survey.broken.is_empty(), "{survey:?}");
        let troubles: Vec<_> = survey.networks[0].plugins.iter().map(|plugin| plugin.trouble.as_deref()).collect();
        for (trouble, wanted) in [(1, "none of the plugin directories"), (2, "not executable"), (3, "chmod o-w")] {
            assert!(troubles[trouble].is_some_and(|text| text.contains(wanted)), "{troubles:?}");
        }
        assert_eq!(troubles[0], None);
        assert_eq!(survey.networks[0].plugins[0].path, Some(bin[0].join("well")));
    }

    #[test]
    fn plugins_that_give_addresses_are_told_too() {
        let (_dir, conf, bin) = node();
        let list = r#"{"cniVersion": "1.0.0", "name": "net", "plugins": [
            {"type": "ptp", "ipam": {"type": "absent"}}, {"type": "ptp", "ipam": {}}, {"type": "ptp", "ipam": {"type": "ptp"}},
            {"type": "ptp", "ipam": {"type": "absent"}}]}"#;
        fs::write(conf.join("10-net.conflist"), list).expect("written");
        for plugin in ["ptp", "daemons"] {
            fs::write(bin[0].join(plugin), "").expect("written");
            chmod(&bin[0].join(plugin), 0o755);
        }
        let survey = Survey::of(&conf, &bin);
        assert!(!survey.is_well(), "each ADD would fail: {survey:?}");
        let told: Vec<_> = survey.networks[0].ipam.iter().map(|it| (it.kind.as_str(), it.trouble.is_some())).collect();
        assert_eq!(told, [("absent", true), ("ptp", false)]);
        let elsewhere = r#"{"cniVersion": "1.0.0", "name": "net", "type": "daemons", "ipam": {"type": "absent"}}"#;
        fs::write(conf.join("05-net.conf"), elsewhere).expect("written");
        assert!(Survey::of(&conf, &bin).is_well(), "a daemon may give its addresses");
    }

    #[test]
    fn where_host_local_keeps_addresses_is_told() {
        let (_dir, conf, bin) = node();
        let told = |plugins: &str| {
            let list = format!(r#"{{"cniVersion": "1.0.0", "name": "net", "plugins": [{plugins}]}}"#);
            fs::write(conf.join("10-net.conflist"), list).expect("written");
            Survey::of(&conf, &bin).networks[0].leases.clone()
        };
        let usual = r#"{"type": "ptp", "ipam": {"type": "host-local"}}"#;
        let of_its_own = r#"{"type": "bridge", "ipam": {"type": "host-local", "dataDir": "/srv/leases"}}"#;
        let [one, other] = ["/var/lib/cni/networks/net", "/srv/leases/net"].map(PathBuf::from);
        assert_eq!(told(&format!("{usual}, {of_its_own}, {usual}")), [one, other]);
        assert!(told(r#"{"type": "ptp", "ipam": {"type": "dhcp", "dataDir": "/x"}}"#).is_empty());
        assert!(told(r#"{"type": "daemons", "ipam": {"type": "host-local"}}"#).is_empty());
    }

    #[test]
    fn broken_files_do_not_hide_what_is_well() {
        let (_dir, conf, bin) = node();
        let none = Survey::of(&conf, &bin);
        assert!(none.trouble.is_some_and(|trouble| trouble.contains("install a CNI network")));
        fs::write(conf.join("05-broken.conf"), "{").expect("written");
        let broken = Survey::of(&conf, &bin);
        assert!(broken.trouble.is_some() && broken.broken.len() == 1);
        fs::write(conf.join("10-net.conf"), r#"{"cniVersion": "1.0.0", "name": "net", "type": "well"}"#)
            .expect("written");
        fs::write(bin[0].join("well"), "").expect("written");
        chmod(&bin[0].join("well"), 0o755);
        let survey = Survey::of(&conf, &bin);
        assert!(survey.is_well() && survey.trouble.is_none() && survey.broken.len() == 1, "{survey:?}");
    }
}
