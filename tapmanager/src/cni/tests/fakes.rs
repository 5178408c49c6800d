//! A node in a temporary directory, whose plugins are shell scripts that log what they are told.

use std::fs::{self, File};
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::{LazyLock, mpsc};
use std::thread;
use std::time::Duration;

use common::Chain;
use nix::fcntl::{Flock, FlockArg};
use nix::sys::stat::Mode;
use nix::unistd::mkfifo;
use proto::tap::{IfName, PodId};
use serde_json::{Value, json};

use super::super::{CapabilityArgs, Cni, NetworkList, Places, Target};
use crate::spawner::Spawner;

/// A deadline that no test reaches.
pub(super) const LONG: Duration = Duration::from_secs(60);

static POD: LazyLock<PodId> = LazyLock::new(|| "0123456789abcdef0123456789abcdef".parse().unwrap());
static LINK: LazyLock<IfName> = LazyLock::new(|| "eth0".parse().unwrap());

pub(super) struct Node {
    dir: tempfile::TempDir,
}

impl Node {
    pub(super) fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("bin")).unwrap();
        Self { dir }
    }

    pub(super) fn path(&self, name: &str) -> String {
        self.dir.path().join(name).to_str().unwrap().to_owned()
    }

    /// A plugin that logs its command and input, then does `script`.
    pub(super) fn plugin(&self, name: &str, script: &str) {
        let log = self.path("log");
        let record = format!(r#"{{ printf '%s ' "$CNI_COMMAND" {name}; cat; echo; }} >> {log}"#);
        self.plugin_without_log(name, &format!("{record}\n{script}"));
    }

    pub(super) fn plugin_without_log(&self, name: &str, script: &str) {
        // Written by a process of its own: were it open for writing here, a child that another test starts at that moment
        // would hold it open too, and running it would end in ETXTBSY.
        let mut writer = Command::new("/bin/sh");
        writer.args(["-c", r#"cat > "$0" && chmod 755 "$0""#, &self.path(&format!("bin/{name}"))]);
        let mut writer = writer.stdin(Stdio::piped()).spawn().unwrap();
        write!(writer.stdin.take().unwrap(), "#!/bin/sh\n{script}\n").unwrap();
        assert!(writer.wait().unwrap().success());
    }

    pub(super) fn chmod(&self, name: &str, mode: u32) {
        fs::set_permissions(self.path(&format!("bin/{name}")), fs::Permissions::from_mode(mode)).unwrap();
    }

    pub(super) fn fifo(&self, name: &str) {
        mkfifo(Path::new(&self.path(name)), Mode::S_IRWXU).unwrap();
    }

    #[expect(clippy::unused_self, reason = "reads like the others")]
    pub(super) fn network(&self, conf: Value) -> NetworkList {
        conf.try_into().unwrap()
    }

    pub(super) fn cni(&self, limit: Duration) -> Cni {
        let places = Places {
            conf_dir: self.dir.path().join("net.d"),
            plugin_dirs: vec![self.dir.path().join("bin")],
            cache_dir: self.dir.path().join("cache"),
            instance: "0123abcd".to_owned(),
        };
        let spawner = Spawner::in_process(&places.plugin_dirs, &self.dir.path().join("plugins.lock")).expect("spawner");
        Cni::new(places, limit, None, spawner)
    }

    #[expect(clippy::unused_self, reason = "reads like the others")]
    pub(super) fn target(&self) -> Target<'static> {
        Target {
            container_id: &POD,
            netns: Path::new("/run/netns/x"),
            ifname: &LINK,
            args: vec![("K8S_POD_NAMESPACE", "default".to_owned()), ("K8S_POD_NAME", "web-0".to_owned())],
            capabilities: CapabilityArgs::default(),
        }
    }

    pub(super) fn log(&self) -> String {
        fs::read_to_string(self.path("log")).unwrap().trim_end().to_owned()
    }

    /// The error of an ADD of a network of these plugins, with its causes.
    pub(super) async fn add_error(&self, plugins: &[&str], limit: Duration) -> String {
        let list = self.network(chain("1.0.0", plugins));
        let error = self.cni(limit).add(&list, &self.target(), None).await.expect_err("the plugin fails");
        Chain(&error).to_string()
    }

    /// Passes once all processes that had the lock are gone; the kernel closes a killed process' files a moment after.
    pub(super) fn expect_unlocked(&self, name: &str) {
        let file = File::options().create(true).append(true).open(self.path(name)).unwrap();
        let (done, unlocked) = mpsc::channel();
        thread::spawn(move || done.send(Flock::lock(file, FlockArg::LockExclusive).is_ok()));
        assert_eq!(unlocked.recv_timeout(Duration::from_secs(10)), Ok(true), "a process of the plugin's lives on");
    }
}

/// A network of plugins that have nothing but their type.
pub(super) fn chain(version: &str, plugins: &[&str]) -> Value {
    let plugins: Vec<_> = plugins.iter().map(|kind| json!({"type": kind})).collect();
    json!({"cniVersion": version, "name": "net", "plugins": plugins})
}
