//! A daemon for one network configuration, in a directory of its own. Called by `attach --conf`.
//!
//! The daemon is this program as a child process, confined as on a node, so that a configuration that works here works
//! there. It keeps its state, sockets, namespaces and configuration in one temporary directory, so it neither sees nor
//! removes what the node's daemon has. What plugins keep elsewhere stays. The daemon reports readiness as it would to
//! systemd. It is in a process group of its own: Ctrl-C at the terminal is for the tool, which detaches the pod first.

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tokio::net::UnixDatagram;
use tokio::process::{Child, Command};
use tokio::time::timeout;

use super::error::ToolError;
use super::leavings::{NETNS_DIR, PREFIX, STATE_DIR, io_at, remove, sweep};
use super::text::printable;
use crate::cni::{ConfError, NetworkList, plugin_in_trouble, read_network, read_network_named};
use crate::config::Config;

/// How long the daemon may take to listen. It has nothing to recover.
const START_DEADLINE: Duration = Duration::from_secs(30);
/// How long it may take to go: it waits 30 s for requests, then 30 s for pods.
const STOP_DEADLINE: Duration = Duration::from_secs(70);
/// How many lines of its log are shown when it fails.
const LOG_TAIL: usize = 10;
/// Where `vmwrapper` is looked for beside the configured place: with this program.
const VMWRAPPER: &str = "vmwrapper";
/// The file of its network.
const INSTALLED: &str = "network.conflist";

/// A private daemon that listens.
#[derive(Debug)]
pub(super) struct Private {
    dir: PathBuf,
    config: Config,
    daemon: Child,
}

impl Private {
    /// Starts it with `conf`, a file or the name of a network of the node, as its only network; the rest is as in `node`.
    pub(super) async fn start(node: Config, conf: &Path) -> Result<Self, ToolError> {
        if !nix::unistd::geteuid().is_root() {
            return Err(ToolError::NotRoot);
        }
        let dir = make_dir()?;
        match Self::start_in(&dir, node, conf).await {
            Ok(private) => Ok(private),
            Err(error) => {
                // Nothing was attached.
                remove(&dir)?;
                Err(error)
            }
        }
    }

    async fn start_in(dir: &Path, node: Config, conf: &Path) -> Result<Self, ToolError> {
        let list = network(conf, &node.cni_conf_dir)?;
        if let Some((plugin, problem)) = plugin_in_trouble(&list, &node.cni_plugin_dirs) {
            return Err(ToolError::Plugin { plugin, network: list.name().to_owned(), problem });
        }
        let config = config(dir, node);
        install(&list, &config.cni_conf_dir)?;
        let file = dir.join("tapmanager.toml");
        let text = toml::to_string(&config).map_err(|error| io_at("write", &file, io::Error::other(error)))?;
        fs::write(&file, text).map_err(|cause| io_at("write", &file, cause))?;
        let notify = dir.join("notify.sock");
        let readiness = UnixDatagram::bind(&notify).map_err(|cause| io_at("bind", &notify, cause))?;
        let log = dir.join("tapmanager.log");
        let mut daemon = spawn(&file, &notify, &log)?;
        let ready = timeout(START_DEADLINE, async {
            tokio::select! {
                ready = told_ready(&readiness) => ready.map_err(|cause| io_at("read", &notify, cause)),
                ended = daemon.wait() => Err(ended_early(ended, &log)),
            }
        })
        .await;
        match ready {
            Ok(Ok(())) => Ok(Self { dir: dir.to_owned(), config, daemon }),
            Ok(Err(error)) => Err(error),
            Err(_late) => {
                stop(&mut daemon).await?;
                let what = format!("was not ready within {} s", START_DEADLINE.as_secs());
                Err(ToolError::Private { what, log: tail(&log) })
            }
        }
    }

    /// What it runs with.
    pub(super) const fn config(&self) -> &Config {
        &self.config
    }

    /// Ends it and removes the directory, unless `gone` says that the pod is still there.
    pub(super) async fn end(mut self, gone: Result<(), ToolError>) -> Result<(), ToolError> {
        let stopped = stop(&mut self.daemon).await;
        let gone = gone.map_err(|cause| ToolError::Kept { dir: self.dir.clone(), cause: Box::new(cause) });
        gone?;
        stopped?;
        remove(&self.dir)
    }
}

/// Directory and below it everything; only ours, but QEMU's user may pass through to the socket.
fn make_dir() -> Result<PathBuf, ToolError> {
    let base = std::env::temp_dir();
    sweep(&base);
    let name = format!("{PREFIX}{}", std::process::id());
    let dir = base.join(name);
    fs::create_dir(&dir).map_err(|cause| io_at("create", &dir, cause))?;
    fs::set_permissions(&dir, fs::Permissions::from_mode(0o711)).map_err(|cause| io_at("open", &dir, cause))?;
    Ok(dir)
}

/// As on the node, but apart from it.
fn config(dir: &Path, node: Config) -> Config {
    let beside = std::env::current_exe().ok().and_then(|itself| Some(itself.parent()?.join(VMWRAPPER)));
    let vmwrapper = match beside {
        Some(beside) if !node.vmwrapper.exists() && beside.exists() => beside,
        _ => node.vmwrapper.clone(),
    };
    Config {
        state_dir: dir.join(STATE_DIR),
        run_dir: dir.join("run"),
        netns_dir: dir.join(NETNS_DIR),
        cni_conf_dir: dir.join("net.d"),
        cni_cache_dir: dir.join("cni"),
        // It knows one pod: by its word, all others on the network would be gone.
        cni_gc: false,
        vmwrapper,
        // The guest is started by this program.
        qemu_uid: Some(nix::unistd::geteuid().as_raw()),
        qemu_gid: Some(nix::unistd::getegid().as_raw()),
        ..node
    }
}

/// The network that `conf` names: a file with the plugins that stand beside it, or, by its name, a network of `dir`.
fn network(conf: &Path, dir: &Path) -> Result<NetworkList, ToolError> {
    let known = ["conflist", "conf", "json"].iter().any(|known| conf.extension() == Some(OsStr::new(known)));
    let is_name = !known && conf.parent() == Some(Path::new("")) && !conf.exists();
    if let Some(name) = conf.to_str().filter(|_| is_name) {
        let absent = |cause: ConfError| ToolError::NoNetwork { name: name.to_owned(), cause: cause.into() };
        return read_network_named(name, dir).map_err(absent);
    }
    if !known {
        return Err(ToolError::ConfName(conf.to_owned()));
    }
    let path = conf.to_owned();
    // Here and not by the daemon, which would speak of its copy.
    read_network(conf).map_err(|error| match error {
        ConfError::Read { cause, .. } => ToolError::File { path, cause },
        ConfError::Refused { cause, .. } => ToolError::Conf { path, cause: cause.into() },
        other => ToolError::Conf { path, cause: other.into() },
    })
}

/// Puts the network into `dir`.
fn install(list: &NetworkList, dir: &Path) -> Result<(), ToolError> {
    fs::create_dir(dir).map_err(|cause| io_at("create", dir, cause))?;
    let at = dir.join(INSTALLED);
    let text = serde_json::to_vec(list).map_err(|error| io_at("write", &at, io::Error::other(error)))?;
    fs::write(&at, text).map_err(|cause| io_at("write", &at, cause))
}

fn spawn(config: &Path, notify: &Path, log: &Path) -> Result<Child, ToolError> {
    let to = fs::File::create(log).map_err(|cause| io_at("create", log, cause))?;
    let failed = |cause| ToolError::Process { action: "start", program: "tapmanager".to_owned(), cause };
    Command::new(std::env::current_exe().map_err(failed)?)
        .args(["run", "--config"])
        .arg(config)
        .env("NOTIFY_SOCKET", notify)
        .stdin(Stdio::null())
        .stdout(to.try_clone().map_err(failed)?)
        .stderr(to)
        .process_group(0)
        .spawn()
        .map_err(failed)
}

/// Waits for what sd_notify(3) calls readiness.
async fn told_ready(socket: &UnixDatagram) -> io::Result<()> {
    let mut message = [0; 512];
    loop {
        let length = socket.recv(&mut message).await?;
        let text = message.get(..length).unwrap_or_default();
        if text.split(|byte| *byte == b'\n').any(|line| line == b"READY=1") {
            return Ok(());
        }
    }
}

fn ended_early(ended: io::Result<ExitStatus>, log: &Path) -> ToolError {
    match ended {
        Ok(status) => ToolError::Private { what: format!("ended, {status}"), log: tail(log) },
        Err(cause) => ToolError::Process { action: "wait for", program: "tapmanager".to_owned(), cause },
    }
}

async fn stop(daemon: &mut Child) -> Result<(), ToolError> {
    let failed = |cause| ToolError::Process { action: "stop", program: "tapmanager".to_owned(), cause };
    // Without a pid it has been waited for already.
    let Some(pid) = daemon.id() else { return Ok(()) };
    kill(Pid::from_raw(pid.cast_signed()), Signal::SIGTERM).map_err(|errno| failed(errno.into()))?;
    match timeout(STOP_DEADLINE, daemon.wait()).await {
        Ok(ended) => ended.map(drop).map_err(failed),
        Err(_late) => daemon.kill().await.map_err(failed),
    }
}

fn tail(log: &Path) -> String {
    let text = fs::read_to_string(log).unwrap_or_default();
    let lines: Vec<String> = text.lines().map(printable).collect();
    lines.get(lines.len().saturating_sub(LOG_TAIL)..).unwrap_or_default().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_of_the_node_is_shared_but_what_is_read() {
        let dir = Path::new("/d");
        let node = Config { cni_gc: true, ..Config::default() };
        let config = config(dir, node.clone());
        let written = [&config.state_dir, &config.run_dir, &config.netns_dir, &config.cni_cache_dir];
        for path in written.into_iter().chain([&config.cni_conf_dir]) {
            assert!(path.starts_with(dir), "{}", path.display());
        }
        assert!(!config.cni_gc);
        assert_eq!(config.cni_plugin_dirs, node.cni_plugin_dirs);
        assert_eq!(config.multus_dir, node.multus_dir, "what Multus makes is known by what it leaves there");
        config.check().expect("usable");
    }

    #[test]
    fn a_network_is_installed_with_what_stands_beside_it_and_what_is_none_is_refused_by_its_name() {
        let dir = tempfile::tempdir().expect("tempdir");
        let write = |name: &str, text: &str| write(dir.path(), name, text);
        let single = write("one.conf", r#"{"cniVersion": "1.0.0", "name": "one", "type": "ptp"}"#);
        let list = write("two.conflist", r#"{"cniVersion": "1.1.0", "name": "two", "plugins": [{"type": "bridge"}]}"#);
        write("two/more.conf", r#"{"type": "tuning"}"#);
        for (file, name, kinds) in [(&single, "one", ["ptp"].as_slice()), (&list, "two", &["bridge", "tuning"])] {
            let to = dir.path().join(format!("{name}-net.d"));
            install(&network(file, Path::new("/none")).expect("read"), &to).expect("installed");
            let network = read_network_named(name, &to).expect("a network");
            assert_eq!(network.kinds().collect::<Vec<_>>(), kinds);
        }
        let misnamed = write("one.conflist", r#"{"cniVersion": "1.0.0", "name": "one", "type": "ptp"}"#);
        for (file, code, wanted) in [
            (dir.path().join("none.conflist"), 66, "failed to read"),
            (write("my.yaml", "{}"), 65, "does not end in"),
            (write("bad.conf", "{"), 78, "bad.conf` is no network configuration: it is not JSON"),
            (misnamed, 78, "belongs into a *.conf"),
        ] {
            let error = network(&file, Path::new("/none")).expect_err("refused");
            assert_eq!(error.exit_code(), code, "{}", error.line());
            assert!(error.line().contains(wanted), "{}", error.line());
        }
    }

    #[test]
    fn a_name_is_that_of_a_network_of_the_node() {
        let dir = tempfile::tempdir().expect("tempdir");
        let list = r#"{"cniVersion": "1.0.0", "name": "lab", "plugins": [{"type": "bridge"}]}"#;
        write(dir.path(), "20-lab.conflist", list);
        assert_eq!(network(Path::new("lab"), dir.path()).expect("found").name(), "lab");
        let error = network(Path::new("web"), dir.path()).expect_err("no such network");
        assert_eq!(error.exit_code(), 69);
        let line = error.line().replace(&dir.path().display().to_string(), "DIR");
        insta::assert_snapshot!(line, @"`web` is no file, and no network that is configured: `DIR` has no network `web`, but `lab`; install it, or name one of these; `NETCONFPATH` names another directory of networks, as for cnitool");
        // What looks like a file is one.
        for (file, code) in [("lab.conf", 66), ("./lab", 65)] {
            assert_eq!(network(Path::new(file), dir.path()).expect_err(file).exit_code(), code, "{file}");
        }
    }

    #[tokio::test]
    async fn a_plugin_that_would_not_be_started_is_told_before_a_daemon_is() {
        let dir = tempfile::tempdir().expect("tempdir");
        let conf = write(dir.path(), "lab.conf", r#"{"cniVersion": "1.0.0", "name": "lab", "type": "no-such"}"#);
        let node = Config { cni_plugin_dirs: vec!["/a".into(), "/b".into()], ..Config::default() };
        let error = Private::start_in(&dir.path().join("never"), node, &conf).await.expect_err("refused");
        assert_eq!(error.exit_code(), 69);
        insta::assert_snapshot!(error.line(), @"plugin `no-such` of network `lab` cannot be started: it is in none of the plugin directories (/a, /b); install it there; `CNI_PATH` names other directories of plugins, as for cnitool");
    }

    fn write(dir: &Path, name: &str, text: &str) -> PathBuf {
        let file = dir.join(name);
        fs::create_dir_all(file.parent().expect("a parent")).expect("directory");
        fs::write(&file, text).expect("write");
        file
    }

    #[tokio::test]
    async fn readiness_is_told_among_other_things() {
        let dir = tempfile::tempdir().expect("tempdir");
        let path = dir.path().join("s");
        let socket = UnixDatagram::bind(&path).expect("bind");
        let daemon = UnixDatagram::unbound().expect("socket");
        daemon.send_to(b"STATUS=READY=1 soon", &path).await.expect("send");
        daemon.send_to(b"STATUS=x\nREADY=1\n", &path).await.expect("send");
        told_ready(&socket).await.expect("ready");
        assert!(socket.try_recv(&mut [0; 1]).is_err(), "both were read");
    }
}
