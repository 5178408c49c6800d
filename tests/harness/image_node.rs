//! A node that only keeps images: `controld` alone, without libvirt and network, which its image service does not need.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use proto::cri::{
    AuthConfig, Image, ImageFilter, ImageFsInfoRequest, ImageSpec, ImageStatusRequest, ListImagesRequest,
    PullImageRequest, RemoveImageRequest,
};
use proto::images::{RemoteImage, SearchRequest, VerifyRequest, VerifyResponse};
use serde_json::{Value, json};
use tonic::Status;

use crate::case::Bed;
use crate::command::{Ended, TOOL_DEADLINE, command, finish};
use crate::cri::Cri;
use crate::daemon::Daemon;
use crate::node::CRI_SOCKET;
use crate::peers;
use crate::wait::wait_for;

const CONFIG: &str = "/etc/virtlet/controld.toml";
/// Where translation files are.
pub const RULES: &str = "/etc/virtlet/images.d";
/// Root of the store.
pub const STORE: &str = "/var/lib/virtlet/images";
const READY_DEADLINE: Duration = Duration::from_secs(60);

/// The fixture.
#[derive(Debug)]
pub struct ImageNode {
    /// `controld`.
    pub controld: Daemon,
    /// The CRI client.
    pub cri: Cri,
    virtletctl: PathBuf,
}

impl ImageNode {
    /// Starts it. `keys` are lines of its configuration before any section, such as `images.allow_raw = true`.
    ///
    /// # Errors
    /// When it does not get ready.
    pub fn start(bed: &Bed, keys: &str, sections: &str) -> Result<Self> {
        peers::furnish()?;
        fs::create_dir_all(RULES)?;
        fs::write(CONFIG, config(bed, keys, sections))?;
        let log = bed.logs().join("controld.log");
        let controld = Daemon::start("controld", bed.program("controld"), ["run", "--config", CONFIG], log)?;
        let cri = Cri::new(Path::new(CRI_SOCKET))?;
        let mut node = Self { controld, cri, virtletctl: bed.program("virtletctl") };
        node.wait_ready()?;
        Ok(node)
    }

    /// Kills the daemon and starts it again with another configuration; see [`ImageNode::start`].
    ///
    /// # Errors
    /// When it does not get ready.
    pub fn reconfigure(&mut self, bed: &Bed, keys: &str, sections: &str) -> Result<()> {
        fs::write(CONFIG, config(bed, keys, sections))?;
        self.restart()
    }

    /// Waits until the image service answers.
    ///
    /// # Errors
    /// When the daemon ends, or stays silent.
    pub fn wait_ready(&mut self) -> Result<()> {
        wait_for("answer of the image service", READY_DEADLINE, || {
            self.controld.still_runs()?;
            let asked =
                self.cri.image_call(|mut client| async move { client.image_fs_info(ImageFsInfoRequest {}).await });
            Ok(asked.ok().map(drop))
        })
    }

    /// Kills the daemon and starts it again.
    ///
    /// # Errors
    /// When it does not get ready.
    pub fn restart(&mut self) -> Result<()> {
        self.controld.kill9()?;
        self.controld.start_again()?;
        self.wait_ready()
    }

    /// Lets a name stand for a URL, and no other name for anything.
    ///
    /// # Errors
    /// When the rule cannot be written.
    pub fn translate(&self, name: &str, url: &str) -> Result<()> {
        self.translations(&json!({"translations": [{"name": name, "url": url}]}))
    }

    /// Writes the one translation file as it is given.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn translations(&self, document: &Value) -> Result<()> {
        Ok(fs::write(Path::new(RULES).join("bed.json"), document.to_string())?)
    }

    /// Pulls an image for the default handler; its id.
    ///
    /// # Errors
    /// The daemon's.
    pub fn pull(&self, name: &str) -> Result<String, Status> {
        self.pull_for(name, "", None)
    }

    /// Pulls an image for a handler, with a pod's pull secret; its id.
    ///
    /// # Errors
    /// The daemon's.
    pub fn pull_for(&self, name: &str, handler: &str, auth: Option<AuthConfig>) -> Result<String, Status> {
        let request = PullImageRequest { image: Some(spec(name, handler)), auth, ..Default::default() };
        self.cri.image_call(|mut client| async move { client.pull_image(request).await }).map(|answer| answer.image_ref)
    }

    /// The image of a name or id, under a handler.
    ///
    /// # Errors
    /// The daemon's.
    pub fn status(&self, name: &str, handler: &str) -> Result<Option<Image>, Status> {
        let request = ImageStatusRequest { image: Some(spec(name, handler)), verbose: false };
        self.cri.image_call(|mut client| async move { client.image_status(request).await }).map(|answer| answer.image)
    }

    /// All images, of all handlers.
    ///
    /// # Errors
    /// The daemon's.
    pub fn list(&self) -> Result<Vec<Image>, Status> {
        self.list_for("", "")
    }

    /// Images that a filter lets pass.
    ///
    /// # Errors
    /// The daemon's.
    pub fn list_for(&self, name: &str, handler: &str) -> Result<Vec<Image>, Status> {
        let request = ListImagesRequest { filter: Some(ImageFilter { image: Some(spec(name, handler)) }) };
        self.cri.image_call(|mut client| async move { client.list_images(request).await }).map(|answer| answer.images)
    }

    /// Removes an image by name or id, under a handler or under all.
    ///
    /// # Errors
    /// The daemon's.
    pub fn remove(&self, name: &str, handler: &str) -> Result<(), Status> {
        let request = RemoveImageRequest { image: Some(spec(name, handler)) };
        self.cri.image_call(|mut client| async move { client.remove_image(request).await }).map(drop)
    }

    /// What the providers have whose name begins with `prefix`.
    ///
    /// # Errors
    /// The daemon's.
    pub fn search(&self, prefix: &str) -> Result<Vec<RemoteImage>, Status> {
        let request = SearchRequest { query: prefix.into(), ..Default::default() };
        self.cri.admin_call(|mut client| async move { Ok(client.search(request).await?.into_inner().images) })
    }

    /// Hashes all images again; the verdicts.
    ///
    /// # Errors
    /// The daemon's.
    pub fn verify(&self) -> Result<Vec<VerifyResponse>, Status> {
        let request = VerifyRequest::default();
        self.cri.admin_call(|mut client| async move {
            let mut verdicts = client.verify(request).await?.into_inner();
            let mut all = Vec::new();
            while let Some(verdict) = verdicts.message().await? {
                all.push(verdict);
            }
            Ok(all)
        })
    }

    /// Runs virtletctl to its end.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn virtletctl(&self, args: &[&str]) -> Result<Ended> {
        finish(command(&self.virtletctl, ["--socket", CRI_SOCKET]).args(args), TOOL_DEADLINE)
    }

    /// What virtletctl printed, which must have succeeded.
    ///
    /// # Errors
    /// When it did not.
    pub fn virtletctl_ok(&self, args: &[&str]) -> Result<String> {
        let ended = self.virtletctl(args)?;
        ensure!(ended.code == Some(0), "virtletctl {args:?}: {:?}: {}{}", ended.code, ended.stdout, ended.stderr);
        Ok(ended.stdout)
    }

    /// Most memory that the daemon ever had, in bytes.
    ///
    /// # Errors
    /// When it does not run.
    pub fn peak_memory(&self) -> Result<u64> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.controld.pid()?))?;
        let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).context("no peak in /proc")?;
        Ok(peak.trim().trim_end_matches(" kB").parse::<u64>()? << 10)
    }
}

fn spec(image: &str, handler: &str) -> ImageSpec {
    ImageSpec { image: image.into(), runtime_handler: handler.into(), ..Default::default() }
}

fn config(bed: &Bed, keys: &str, sections: &str) -> String {
    format!(
        "vmwrapper = '{}'\ncgroup_driver = 'cgroupfs'\nmachine.accel = 'qemu'\n\
         images.protocol = 'http'\n\
         log.level = 'info,controld=debug,imagestore=debug'\n{keys}\n{sections}\n",
        bed.vmwrapper().display()
    )
}
