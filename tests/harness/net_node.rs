//! A node with a network and no machines: `tapmanager`, and CNI plugins.

use std::fs;
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use proto::tap::{
    Arm, Attach, Client, CollectReport, Dns, Hello, List, PodId, PodNet, PodSummary, QemuUser, Reply, Request,
    ServerStatus, Token,
};

use serde_json::Value;

use crate::case::Bed;
use crate::cni;
use crate::daemon::Daemon;
use crate::pace::at_worst;
use crate::wait::wait_for;

/// Who QEMU is: Debian's libvirt gives it this user, whatever passwd says.
pub const QEMU: QemuUser = QemuUser { uid: 64055, gid: 64055 };

const CONFIG: &str = "/etc/virtlet/tapmanager.toml";
const RUN_DIR: &str = "/run/virtlet";
const JOURNAL: &str = "/var/lib/virtlet/net/pods";
const READY_DEADLINE: Duration = Duration::from_secs(20);
const RECOVERY_DEADLINE: Duration = Duration::from_secs(60);
/// A call that hangs ends with its case.
const CALL_DEADLINE: Duration = at_worst(Duration::from_secs(90));

/// The daemon, wherever it runs, as controld sees it.
#[derive(Debug, Clone)]
pub struct Taps {
    client: Client,
}

/// A node whose `tapmanager` is a process.
#[derive(Debug)]
pub struct NetNode {
    /// The daemon.
    pub tapmanager: Daemon,
    taps: Taps,
}

impl NetNode {
    /// Starts `tapmanager` on a network, with the plugins in `plugins`, and introduces itself as controld would.
    ///
    /// # Errors
    /// When it does not get ready.
    pub fn start(bed: &Bed, conflist: &str, plugins: &Path) -> Result<Self> {
        Self::configured(bed, conflist, plugins, "")
    }

    /// [`NetNode::start`] with more lines of configuration.
    ///
    /// # Errors
    /// When it does not get ready.
    pub fn configured(bed: &Bed, conflist: &str, plugins: &Path, more: &str) -> Result<Self> {
        cni::install(conflist)?;
        Self::without_network(bed, plugins, more)
    }

    /// [`NetNode::configured`] with nothing in the directory of networks, where others will put something.
    ///
    /// # Errors
    /// When it does not answer.
    pub fn without_network(bed: &Bed, plugins: &Path, more: &str) -> Result<Self> {
        fs::write(CONFIG, config(bed, plugins, more))?;
        let log = bed.logs().join("tapmanager.log");
        let tapmanager = Daemon::start("tapmanager", bed.program("tapmanager"), ["run", "--config", CONFIG], log)?;
        let mut node = Self { tapmanager, taps: Taps::default() };
        node.wait_ready()?;
        Ok(node)
    }

    /// Has another daemon take over, with other lines of configuration.
    ///
    /// # Errors
    /// When the daemon does not leave, or the next one does not get ready.
    pub fn reconfigure(&mut self, bed: &Bed, plugins: &Path, more: &str) -> Result<()> {
        self.tapmanager.terminate()?;
        fs::write(CONFIG, config(bed, plugins, more))?;
        self.tapmanager.start_again()?;
        self.wait_ready()?;
        self.wait_recovered()
    }

    /// Waits until the daemon answers, and introduces itself as controld would.
    ///
    /// # Errors
    /// When it ends, or stays silent.
    pub fn wait_ready(&mut self) -> Result<()> {
        let daemon = &mut self.tapmanager;
        self.taps.hello(|| daemon.still_runs())
    }
}

impl Deref for NetNode {
    type Target = Taps;

    fn deref(&self) -> &Taps {
        &self.taps
    }
}

impl Default for Taps {
    fn default() -> Self {
        Self::of(Path::new(RUN_DIR))
    }
}

impl Taps {
    /// The daemon whose sockets are in `run_dir`.
    #[must_use]
    pub fn of(run_dir: &Path) -> Self {
        Self { client: Client::new(run_dir.join("control.sock"), CALL_DEADLINE) }
    }

    /// Waits until the daemon answers, and introduces itself as controld would. `lives` fails when it ended.
    ///
    /// # Errors
    /// When it ends, or stays silent.
    pub fn hello(&self, mut lives: impl FnMut() -> Result<()>) -> Result<()> {
        let hello = Request::Hello(Hello { client: "bed".into(), qemu: Some(QEMU) });
        wait_for("answer of tapmanager", READY_DEADLINE, || {
            lives()?;
            Ok(self.client.call(&hello).ok())
        })?;
        Ok(())
    }

    /// Gives a pod its network.
    ///
    /// # Errors
    /// What `tapmanager` says.
    pub fn attach(&self, pod: &PodId) -> Result<PodNet> {
        self.attach_as(attach(pod))
    }

    /// Gives a pod the network that is asked for.
    ///
    /// # Errors
    /// What `tapmanager` says.
    pub fn attach_as(&self, ask: Attach) -> Result<PodNet> {
        match self.client.call(&Request::Attach(ask))? {
            Reply::Attached(net) => Ok(net),
            other => bail!("not an answer to attach: {other:?}"),
        }
    }

    /// Mints the token of a pod's next start.
    ///
    /// # Errors
    /// What `tapmanager` says.
    pub fn arm(&self, pod: &PodId) -> Result<Token> {
        match self.client.call(&Request::Arm(Arm { pod: pod.clone(), qemu: None, iommufd: None }))? {
            Reply::Armed { token, hostdevs: _ } => Ok(token),
            other => bail!("not an answer to arm: {other:?}"),
        }
    }

    /// Takes a pod's network away.
    ///
    /// # Errors
    /// What `tapmanager` says.
    pub fn detach(&self, pod: &PodId) -> Result<()> {
        self.client.call(&Request::Detach { pod: pod.clone() })?;
        Ok(())
    }

    /// The daemon's own word on itself.
    ///
    /// # Errors
    /// What `tapmanager` says.
    pub fn status(&self) -> Result<ServerStatus> {
        match self.client.call(&Request::Status)? {
            Reply::Status(status) => Ok(status),
            other => bail!("not an answer to status: {other:?}"),
        }
    }

    /// All pods on record; no case has more than a page of them.
    ///
    /// # Errors
    /// What `tapmanager` says.
    pub fn pods(&self) -> Result<Vec<PodSummary>> {
        match self.client.call(&Request::List(List::default()))? {
            Reply::Pods(page) => Ok(page.pods),
            other => bail!("not an answer to list: {other:?}"),
        }
    }

    /// Waits until the pods of an earlier daemon are taken up, or taken away.
    ///
    /// # Errors
    /// What `tapmanager` says.
    pub fn wait_recovered(&self) -> Result<()> {
        wait_for("recovery of all pods", RECOVERY_DEADLINE, || Ok((self.status()?.recovering == 0).then_some(())))
    }

    /// What `tapmanager` removes and keeps of that which no pod on record has.
    ///
    /// # Errors
    /// What `tapmanager` says.
    pub fn collect(&self) -> Result<CollectReport> {
        match self.client.call(&Request::Collect)? {
            Reply::Collected(report) => Ok(report),
            other => bail!("not an answer to collect: {other:?}"),
        }
    }

    /// The client of the control socket.
    #[must_use]
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// The socket of vmwrapper.
    #[must_use]
    pub fn handoff_socket(&self) -> PathBuf {
        Path::new(RUN_DIR).join("handoff.sock")
    }
}

/// What controld would ask for a pod.
#[must_use]
pub fn attach(pod: &PodId) -> Attach {
    Attach {
        namespace: "default".into(),
        name: format!("pod-{pod}"),
        uid: "00000000-0000-4000-8000-000000000000".into(),
        hostname: format!("vm-{pod}"),
        dns: Some(Dns {
            servers: vec![[10, 96, 0, 10].into()],
            searches: vec!["default.svc.cluster.test".into(), "svc.cluster.test".into()],
            options: vec!["ndots:5".into()],
        }),
        ..Attach::new(pod.clone())
    }
}

/// What `tapmanager` has on record of a pod: the last line of its notes.
///
/// # Errors
/// When there is none.
pub fn latest_record(pod: &str) -> Result<Value> {
    let path = Path::new(JOURNAL).join(format!("{pod}.note"));
    let notes = fs::read_to_string(&path).with_context(|| format!("no notes {}", path.display()))?;
    Ok(serde_json::from_str(notes.lines().next_back().context("no note of the pod")?)?)
}

/// The id of the `n`-th pod of a case.
///
/// # Errors
/// Never: every number makes an id.
pub fn pod_id(n: u32) -> Result<PodId> {
    format!("{n:032x}").parse().context("a number that is no id")
}

/// Contents of `tapmanager`'s configuration file.
#[must_use]
pub fn config(bed: &Bed, plugins: &Path, more: &str) -> String {
    format!(
        "vmwrapper = '{}'\ncni_plugin_dirs = ['{}']\nlog_level = 'debug'\n{more}\n",
        bed.vmwrapper().display(),
        plugins.display()
    )
}
