//! A whole node: libvirt, `tapmanager`, `controld`, an image server; and machines on it.

mod vm;

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result};
use proto::cri::{ContainerConfig, ContainerState, PodSandboxConfig, StatusRequest};
use proto::side::{OURS, SIDE};
use serde_json::Value;
use tonic::Request;
use tonic::metadata::MetadataValue;

use crate::case::Bed;
use crate::cni::{self, Network};
use crate::command::{Ended, TOOL_DEADLINE, command, finish};
use crate::cri::{self, Cri};
use crate::daemon::Daemon;
use crate::data_image::data_image;
use crate::emulator;
use crate::image_server::{Fault, ImageServer};
use crate::libvirt::{self, Libvirt};
use crate::net_node::NetNode;
use crate::pace::at_worst;
use crate::wait::wait_for;

pub use vm::Vm;

const CONFIG: &str = "/etc/virtlet/controld.toml";
/// `controld`'s socket.
pub const CRI_SOCKET: &str = "/run/virtlet/cri.sock";
const READY_DEADLINE: Duration = Duration::from_secs(60);
/// What is true of a node that lacks nothing but a network. Of kubelet's two conditions, that of libvirt holds for a while after its end.
const READY: [&str; 4] = ["RuntimeReady", "LibvirtConnected", "EmulatorStarts", "TapmanagerReady"];
/// The tiny guest takes four seconds to its lease; others take longer.
pub const BOOT_DEADLINE: Duration = Duration::from_secs(240);
/// What a guest is given to end in order, where a case shows that it does.
pub const SHUTDOWN: Duration = at_worst(Duration::from_secs(30));
/// Of a call of crictl: its own 2 s would cut answers off that a busy machine is late with.
pub const CRICTL_TIMEOUT: Duration = at_worst(Duration::from_secs(60));

/// The fixture.
#[derive(Debug)]
pub struct Node {
    /// libvirtd and virtlogd.
    pub libvirt: Libvirt,
    /// `tapmanager`.
    pub net: NetNode,
    /// `controld`.
    pub controld: Daemon,
    /// Images to pull.
    pub images: ImageServer,
    /// The CRI client.
    pub cri: Cri,
    dir: PathBuf,
    crictl: Option<PathBuf>,
}

/// What is said of machines, also where controld is in front of another runtime.
fn of_machines() -> Request<StatusRequest> {
    let mut request = Request::new(StatusRequest { verbose: false });
    request.metadata_mut().insert(SIDE, MetadataValue::from_static(OURS));
    request
}

impl Node {
    /// Starts a node on a bridge with masquerading, with Debian's plugins.
    ///
    /// # Errors
    /// When something does not get ready.
    pub fn start(bed: &Bed) -> Result<Self> {
        Self::configured(bed, "")
    }

    /// [`Node::start`] with more lines of `controld`'s configuration: top-level keys, then sections.
    ///
    /// # Errors
    /// When something does not get ready.
    pub fn configured(bed: &Bed, more: &str) -> Result<Self> {
        let network = Network { masquerade: true, ..Network::BRIDGE };
        Self::on(bed, &network.conflist(), &cni::debian_plugins(), more)
    }

    /// [`Node::configured`] on another network.
    ///
    /// # Errors
    /// When something does not get ready.
    pub fn on(bed: &Bed, conflist: &Value, plugins: &Path, more: &str) -> Result<Self> {
        cni::install(&conflist.to_string())?;
        let mut node = Self::launch(bed, plugins, more)?;
        node.wait_ready()?;
        Self::wait_emulator(bed)?;
        Ok(node)
    }

    /// [`Node::configured`] as a node is before its cluster has given it a network: ready but for that.
    ///
    /// # Errors
    /// When something does not get ready.
    pub fn without_network(bed: &Bed, more: &str) -> Result<Self> {
        let mut node = Self::launch(bed, &cni::debian_plugins(), more)?;
        node.wait_conditions(&READY)?;
        Self::wait_emulator(bed)?;
        Ok(node)
    }

    fn launch(bed: &Bed, plugins: &Path, more: &str) -> Result<Self> {
        let libvirt = Libvirt::start(bed)?;
        let net = NetNode::without_network(bed, plugins, "")?;
        let images = ImageServer::start()?;
        fs::write(CONFIG, config(bed, more))?;
        let log = bed.logs().join("controld.log");
        let controld = Daemon::start("controld", bed.program("controld"), ["run", "--config", CONFIG], log)?;
        let crictl = bed.config.peer("crictl").ok();
        let cri = Cri::new(Path::new(CRI_SOCKET))?;
        Ok(Self { libvirt, net, controld, images, cri, dir: bed.dir.clone(), crictl })
    }

    /// Waits until libvirt knows the emulator. controld, which has no records, has touched it by now.
    fn wait_emulator(bed: &Bed) -> Result<()> {
        if !Path::new(emulator::NAMED).exists() {
            libvirt::answered_for(&bed.vmwrapper())?;
        }
        Ok(())
    }

    /// Kills `controld`, starts it again and waits until it is ready.
    ///
    /// # Errors
    /// When it does not end, or does not get ready.
    pub fn restart_controld(&mut self) -> Result<()> {
        self.controld.kill9()?;
        self.controld.start_again()?;
        self.wait_ready()
    }

    /// Waits until `controld` says that runtime and network are ready.
    ///
    /// # Errors
    /// When it ends, or does not get ready: the error has its last word.
    pub fn wait_ready(&mut self) -> Result<()> {
        self.wait_conditions(&[&READY[..], &["NetworkReady", "CniReady"]].concat())
    }

    fn wait_conditions(&mut self, needed: &[&str]) -> Result<()> {
        // controld's word about the network holds over a restart of tapmanager.
        self.net.wait_ready()?;
        let mut said = String::new();
        wait_for("ready node", READY_DEADLINE, || {
            self.controld.still_runs()?;
            let answer = self.cri.call(|mut client| async move { client.status(of_machines()).await });
            let conditions = match answer {
                Ok(answer) => answer.status.context("no status")?.conditions,
                Err(not_yet) => {
                    said = not_yet.to_string();
                    return Ok(None);
                }
            };
            said = format!("{conditions:?}");
            let ready = |kind: &&str| conditions.iter().any(|condition| condition.r#type == *kind && condition.status);
            Ok(needed.iter().all(ready).then_some(()))
        })
        .context(said)
    }

    /// Whether `controld` knows the owners of all that carries its mark.
    ///
    /// # Errors
    /// When it does not answer, or does not say.
    pub fn owners_known(&self) -> Result<bool> {
        let answer = self.cri.call(|mut client| async move { client.status(of_machines()).await })?;
        let conditions = answer.status.context("no status")?.conditions;
        let condition = conditions.into_iter().find(|condition| condition.r#type == "OwnersKnown");
        Ok(condition.context("no such condition")?.status)
    }

    /// Offers a guest image and pulls it; the image's name.
    ///
    /// # Errors
    /// When it was not built, or the pull fails.
    pub fn pull(&self, bed: &Bed, file: &str) -> Result<String> {
        let name = self.images.offer(file, &bed.config.guest(file)?, Fault::None);
        self.cri.pull(&name)?;
        Ok(name)
    }

    /// Offers an image in which there is no system; its name. A machine of it costs no boot, and hears no button.
    ///
    /// # Errors
    /// When it cannot be made.
    pub fn offer_no_system(&self, bed: &Bed) -> Result<String> {
        Ok(self.images.offer("data.qcow2", &data_image(&bed.dir, "data", "nothing", false)?, Fault::None))
    }

    /// [`Node::offer_no_system`], and pulls it.
    ///
    /// # Errors
    /// When it cannot be made, or the pull fails.
    pub fn pull_no_system(&self, bed: &Bed) -> Result<String> {
        let name = self.offer_no_system(bed)?;
        self.cri.pull(&name)?;
        Ok(name)
    }

    /// A pod of this name, with its log directory made as kubelet would.
    ///
    /// # Errors
    /// When the directory cannot be made.
    pub fn pod(&self, name: &str) -> Result<PodSandboxConfig> {
        let logs = self.dir.join("podlogs").join(name);
        fs::create_dir_all(&logs)?;
        Ok(cri::pod(name, &logs))
    }

    /// Runs a pod of the tiny guest, pulled, and waits for nothing. `script` is its user-data, if not empty.
    ///
    /// # Errors
    /// When a call fails.
    pub fn start_vm(&self, bed: &Bed, name: &str, script: &str) -> Result<Vm> {
        let image = self.pull(bed, "tiny.qcow2")?;
        self.start_pod(self.pod(name)?, &cri::container(&image, user_data(script)))
    }

    /// Runs a pod with a container, and waits for nothing.
    ///
    /// # Errors
    /// When a call fails.
    pub fn start_pod(&self, pod: PodSandboxConfig, container: &ContainerConfig) -> Result<Vm> {
        // kubelet hands the pod's annotations on with the sandbox.
        let mut pod = pod;
        pod.annotations.extend(container.annotations.clone());
        let sandbox = self.cri.run_sandbox(&pod).context("RunPodSandbox")?;
        self.start_in(&sandbox, container, &pod)
    }

    /// Starts a machine in a sandbox that there is.
    ///
    /// # Errors
    /// When a call fails.
    pub fn start_in(&self, sandbox: &str, container: &ContainerConfig, pod: &PodSandboxConfig) -> Result<Vm> {
        let id = self.cri.create(sandbox, container, pod).context("CreateContainer")?;
        self.cri.start(&id).context("StartContainer")?;
        let network = self.cri.sandbox(sandbox)?.network.context("a sandbox without a network")?;
        let log = Path::new(&pod.log_directory).join(&container.log_path);
        let machine = self.cri.machine(&id)?;
        Ok(Vm { sandbox: sandbox.to_owned(), container: id, machine, ip: network.ip.parse()?, log, pod: pod.clone() })
    }

    /// [`Node::start_vm`], and waits until the guest answers.
    ///
    /// # Errors
    /// When it does not in time.
    pub fn boot_vm(&self, bed: &Bed, name: &str, script: &str) -> Result<Vm> {
        let vm = self.start_vm(bed, name, script)?;
        vm.wait_up()?;
        Ok(vm)
    }

    /// Waits until a container is in `state`.
    ///
    /// # Errors
    /// When it is not in time.
    pub fn wait_state(&self, vm: &Vm, state: ContainerState, deadline: Duration) -> Result<()> {
        wait_for(&format!("state {state:?} of the container"), deadline, || {
            Ok((self.cri.state(&vm.container)? == state).then_some(()))
        })
    }

    /// Removes a pod as kubelet would: container stopped and removed, sandbox stopped and removed.
    ///
    /// # Errors
    /// When a call fails.
    pub fn remove_vm(&self, vm: &Vm, grace: Duration) -> Result<()> {
        self.cri.stop(&vm.container, grace).context("StopContainer")?;
        self.cri.remove(&vm.container).context("RemoveContainer")?;
        self.cri.remove_sandbox(&vm.sandbox).context("StopPodSandbox, RemovePodSandbox")
    }

    /// Runs crictl against this node.
    ///
    /// # Errors
    /// When it was not built, or cannot be started.
    pub fn crictl(&self, args: &[&str]) -> Result<Ended> {
        let crictl = self.crictl.as_ref().context("no crictl; run `make setup`")?;
        let (endpoint, timeout) = (format!("unix://{CRI_SOCKET}"), format!("{}s", CRICTL_TIMEOUT.as_secs()));
        let mut command =
            command(crictl, ["--runtime-endpoint", &endpoint, "--image-endpoint", &endpoint, "--timeout", &timeout]);
        finish(command.args(args), TOOL_DEADLINE)
    }
}

/// Annotations that give a machine a user-data script.
#[must_use]
pub fn user_data(script: &str) -> HashMap<String, String> {
    if script.is_empty() {
        HashMap::new()
    } else {
        [("VirtletCloudInitUserDataScript".to_owned(), script.to_owned())].into()
    }
}

/// Contents of `controld`'s configuration file. Machines are emulated unless `more` says otherwise.
#[must_use]
pub fn config(bed: &Bed, more: &str) -> String {
    let accel = if more.contains("machine.accel") { "" } else { "machine.accel = 'qemu'\n" };
    // As long as the life of a token lets it be, where no case shows what happens at its end.
    let start = if more.contains("machine.start_deadline_s") { "" } else { "machine.start_deadline_s = 110\n" };
    // Without it no guest sees volumes, and most cases have none.
    let virtiofsd = bed
        .config
        .peer("virtiofsd")
        .map_or_else(|_| String::new(), |path| format!("virtiofsd = '{}'\n", path.display()));
    let fswrapper = bed.program("fswrapper").display().to_string();
    format!(
        "vmwrapper = '{}'\nfswrapper = '{fswrapper}'\n{virtiofsd}cgroup_driver = 'cgroupfs'\n{accel}{start}machine.press_interval_s = 2\n\
         images.protocol = 'http'\nimages.network.allow_loopback = true\n\
         log.level = 'info,controld=debug,imagestore=debug,streaming=debug'\n{more}\n",
        bed.vmwrapper().display()
    )
}
