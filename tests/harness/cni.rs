//! The networks that cases run on, and the plugins called by hand.

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, bail};
use serde_json::{Value, json};

use crate::case::Bed;

/// Name of the network that [`Network`] describes.
pub const NETWORK: &str = "vtnet";
/// The subnet of [`Network`].
pub const SUBNET: &str = "10.77.0.0/24";

/// A way to connect pods.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Network {
    /// The main plugin.
    pub kind: Kind,
    /// Whether traffic that leaves the node is masqueraded.
    pub masquerade: bool,
    /// Whether a bridge sends frames back to where they came from.
    pub hairpin: bool,
}

/// Main plugins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// All pods on a bridge of the node.
    Bridge,
    /// A point-to-point link for each pod.
    Ptp,
}

impl Network {
    /// A bridge, nothing more.
    pub const BRIDGE: Self = Self { kind: Kind::Bridge, masquerade: false, hairpin: false };

    /// The network's configuration list.
    #[must_use]
    pub fn conflist(&self) -> Value {
        let ipam = json!({
            "type": "host-local",
            "ranges": [[{"subnet": SUBNET}], [{"subnet": "fd00:77::/64"}]],
            "routes": [{"dst": "0.0.0.0/0"}, {"dst": "::/0"}],
        });
        let plugin = match self.kind {
            Kind::Bridge => json!({
                "type": "bridge", "bridge": "cni0", "isGateway": true, "mtu": 1450,
                "ipMasq": self.masquerade, "hairpinMode": self.hairpin, "ipam": ipam,
            }),
            Kind::Ptp => json!({"type": "ptp", "mtu": 1450, "ipMasq": self.masquerade, "ipam": ipam}),
        };
        json!({"cniVersion": "1.0.0", "name": NETWORK, "plugins": [plugin]})
    }
}

/// Makes `conflist` the node's default network.
///
/// # Errors
/// When the file cannot be written.
pub fn install(conflist: &str) -> Result<PathBuf> {
    let path = Path::new("/etc/cni/net.d/10-vtnet.conflist").to_owned();
    fs::write(&path, conflist).with_context(|| format!("failed to write {}", path.display()))?;
    Ok(path)
}

/// Debian's plugins.
#[must_use]
pub fn debian_plugins() -> PathBuf {
    "/usr/lib/cni".into()
}

/// A plugin of the bed's own: the shape of clouds, where the gateway is a permanent neighbour and answers nobody.
pub const ROUTED: (&str, &str) = ("routed", include_str!("cni/routed.sh"));

/// A directory of the case with the plugins of `base`, to which more can be added.
///
/// # Errors
/// When it cannot be made.
pub fn own_dir(bed: &Bed, base: &Path) -> Result<PathBuf> {
    let dir = bed.dir.join("plugins");
    fs::create_dir(&dir)?;
    for plugin in fs::read_dir(base)? {
        let plugin = plugin?.path();
        symlink(&plugin, dir.join(plugin.file_name().context("a plugin without a name")?))?;
    }
    Ok(dir)
}

/// A directory of the case with the plugins of `base`, and one more.
///
/// # Errors
/// When it cannot be made.
pub fn with_plugin(bed: &Bed, base: &Path, (name, text): (&str, &str)) -> Result<PathBuf> {
    let dir = own_dir(bed, base)?;
    let file = dir.join(name);
    fs::write(&file, text)?;
    fs::set_permissions(&file, fs::Permissions::from_mode(0o755))?;
    Ok(dir)
}

/// Runs CHECK of the network's only plugin, as a runtime would: with the result of its ADD.
///
/// # Errors
/// When the plugin says that the pod is not as ADD left it.
pub fn check(plugins: &Path, network: &Network, pod: &str, netns: &Path, result: &Value) -> Result<()> {
    let caller = Caller { plugins, list: &network.conflist(), id: pod, netns };
    caller.call("CHECK", 0, Some(result))?;
    Ok(())
}

/// Somebody who calls the plugins of a list themselves, as a runtime of processes would.
#[derive(Debug, Clone, Copy)]
pub struct Caller<'a> {
    /// Directory of the plugins.
    pub plugins: &'a Path,
    /// The configuration list.
    pub list: &'a Value,
    /// Container id.
    pub id: &'a str,
    /// Where the container's namespace is mounted.
    pub netns: &'a Path,
}

impl Caller<'_> {
    /// ADD of every plugin; the last one's result.
    ///
    /// # Errors
    /// What a plugin says.
    pub fn add(&self) -> Result<Value> {
        let mut result = None;
        for at in 0..self.count() {
            result = Some(serde_json::from_str(&self.call("ADD", at, result.as_ref())?)?);
        }
        result.context("a list without plugins")
    }

    /// DEL of every plugin, in reverse.
    ///
    /// # Errors
    /// What a plugin says.
    pub fn del(&self, result: &Value) -> Result<()> {
        (0..self.count()).rev().try_for_each(|at| self.call("DEL", at, Some(result)).map(drop))
    }

    fn count(&self) -> usize {
        self.list["plugins"].as_array().map_or(0, Vec::len)
    }

    fn call(&self, verb: &str, at: usize, previous: Option<&Value>) -> Result<String> {
        let mut config = self.list["plugins"].get(at).cloned().context("a list without plugins")?;
        for key in ["cniVersion", "name"] {
            config[key] = self.list[key].clone();
        }
        if let Some(previous) = previous {
            config["prevResult"] = previous.clone();
        }
        let kind = config["type"].as_str().context("a plugin without a type")?.to_owned();
        let mut child = Command::new(self.plugins.join(&kind))
            .env_clear()
            .env("CNI_COMMAND", verb)
            .env("CNI_CONTAINERID", self.id)
            .env("CNI_NETNS", self.netns)
            .env("CNI_IFNAME", "eth0")
            .env("CNI_PATH", self.plugins)
            .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .with_context(|| format!("failed to start plugin `{kind}`"))?;
        child.stdin.take().context("no pipe")?.write_all(config.to_string().as_bytes())?;
        let output = child.wait_with_output()?;
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        if !output.status.success() {
            bail!("{verb} of `{kind}` failed: {said}");
        }
        Ok(said)
    }
}
