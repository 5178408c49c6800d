//! containerd, as the runtime that ours is measured beside and that it stands in front of: Debian's, and the newest, each with a state of its own.
//!
//! It runs in the cell as on a node: overlayfs, runc, the CNI configuration of the node. Its sandbox image is a tar made
//! here around one static program, since there is no registry.

use std::fmt::Write as _;
use std::fs;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result};
use nix::mount::{MntFlags, umount2};
use proto::cri::VersionRequest;
use serde_json::json;

use crate::case::Bed;
use crate::command::{command, run, sh};
use crate::cri::Cri;
use crate::daemon::Daemon;
use crate::peers::disk::sum;
use crate::wait::wait_for;

const READY_DEADLINE: Duration = Duration::from_secs(30);
/// The image that it has, of which sandboxes are made and containers may be.
pub const PAUSE: &str = "docker.io/library/pause:bench";

/// Where it looks for registries to pull from, in its own directory.
const REGISTRIES: &str = "registries";

/// Which containerd.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Release {
    /// 1.6 of Debian 12: the fastest there is.
    Debian,
    /// The newest, built by `tests/peers`.
    Newest,
}

/// A running containerd.
#[derive(Debug)]
pub struct Containerd {
    /// The daemon.
    pub daemon: Daemon,
    /// Its CRI endpoint.
    pub cri: Cri,
    socket: PathBuf,
    ctr: PathBuf,
    dir: PathBuf,
    log: PathBuf,
    level: &'static str,
}

impl Containerd {
    /// Starts one that uses the plugins in `plugins`, and gives it `pause` as its sandbox image.
    ///
    /// # Errors
    /// When it does not get ready.
    pub fn start(bed: &Bed, release: Release, plugins: &Path, pause: &Path) -> Result<Self> {
        // What no sandbox needs is off, so that neither is held up by it.
        Self::launch(bed, release, plugins, ("warn", pause, &[]))
    }

    /// [`Containerd::start`] with the words that the program is given. Each call that changes something is in the log.
    ///
    /// # Errors
    /// When it does not get ready.
    pub fn start_with(bed: &Bed, release: Release, plugins: &Path, (pause, words): (&Path, &[&str])) -> Result<Self> {
        Self::launch(bed, release, plugins, ("info", pause, words))
    }

    fn launch(
        bed: &Bed,
        release: Release,
        plugins: &Path,
        (level, pause, words_of_pause): (&'static str, &Path, &[&str]),
    ) -> Result<Self> {
        let dir = bed.dir.join(name(release));
        fs::create_dir_all(&dir)?;
        let socket = dir.join("containerd.sock");
        let log = bed.logs().join(format!("{}.log", name(release)));
        let daemon = run_in(bed, release, &dir, (plugins, level, &log))?;
        let cri = Cri::new(&socket)?;
        let mut containerd = Self { daemon, cri, socket, ctr: ctr(bed, release)?, dir, log, level };
        containerd.wait_listening()?;
        containerd.import(&archive(&containerd.dir, PAUSE, pause, words_of_pause)?)?;
        Ok(containerd)
    }

    /// Once it has ended, starts another release in its place: at the same socket, with all that it had, as where its package is upgraded.
    ///
    /// # Errors
    /// When that one does not get ready.
    pub fn upgrade(&mut self, bed: &Bed, release: Release, plugins: &Path) -> Result<()> {
        self.daemon = run_in(bed, release, &self.dir, (plugins, self.level, &self.log))?;
        self.ctr = ctr(bed, release)?;
        self.wait_ready()
    }

    /// Starts it again after it has ended.
    ///
    /// # Errors
    /// When it does not get ready.
    pub fn restart(&mut self) -> Result<()> {
        self.daemon.start_again()?;
        self.wait_ready()
    }

    fn wait_listening(&mut self) -> Result<()> {
        wait_for(&format!("listener on {}", self.socket.display()), READY_DEADLINE, || {
            self.daemon.still_runs()?;
            Ok(UnixStream::connect(&self.socket).ok().map(drop))
        })
    }

    /// It listens before it has read what it has.
    fn wait_ready(&mut self) -> Result<()> {
        wait_for("containerd that answers", READY_DEADLINE, || {
            self.daemon.still_runs()?;
            let asked = VersionRequest::default();
            Ok(self.cri.call(|mut client| async move { client.version(asked).await }).ok().map(drop))
        })
    }

    /// For which pods it was asked to make a sandbox, over all its lives, by their UIDs; one of [`Containerd::start_with`].
    ///
    /// # Errors
    /// When the log cannot be read.
    pub fn sandboxes_asked_for(&self) -> Result<Vec<String>> {
        Ok(self.daemon.log()?.lines().filter_map(asked_for).map(str::to_owned).collect())
    }

    /// Gives it the image of an archive.
    ///
    /// # Errors
    /// When it does not take it.
    pub fn import(&self, archive: &Path) -> Result<()> {
        let (socket, archive) = (self.socket.to_string_lossy(), archive.to_string_lossy());
        run(&mut command(&self.ctr, ["--address", &*socket, "--namespace", "k8s.io", "images", "import", &*archive]))?;
        Ok(())
    }

    /// Has it pull from this registry, whichever one an image's name has. The newest one alone can.
    ///
    /// # Errors
    /// When that cannot be written.
    pub fn pull_from(&self, host: &str) -> Result<()> {
        let hosts = self.dir.join(REGISTRIES).join("_default");
        fs::create_dir_all(&hosts)?;
        let text = format!("[host.'http://{host}']\ncapabilities = ['pull', 'resolve']\n");
        Ok(fs::write(hosts.join("hosts.toml"), text)?)
    }

    /// Where it listens.
    #[must_use]
    pub fn socket(&self) -> &Path {
        &self.socket
    }

    /// Where it will listen, to be told to others before it runs.
    #[must_use]
    pub fn socket_of(bed: &Bed, release: Release) -> PathBuf {
        bed.dir.join(name(release)).join("containerd.sock")
    }

    /// Ends it, and unmounts what it mounted. Its sandboxes have to be gone.
    ///
    /// # Errors
    /// When it does not leave.
    pub fn stop(mut self) -> Result<()> {
        self.daemon.terminate()?;
        let mounts = fs::read_to_string("/proc/mounts")?;
        let points = mounts.lines().filter_map(|line| line.split(' ').nth(1)).map(Path::new);
        // The last mounted lies on top.
        for point in points.filter(|point| point.starts_with(&self.dir)).collect::<Vec<_>>().into_iter().rev() {
            umount2(point, MntFlags::MNT_DETACH).with_context(|| format!("failed to unmount {}", point.display()))?;
        }
        Ok(())
    }
}

const fn name(release: Release) -> &'static str {
    match release {
        Release::Debian => "containerd-debian",
        Release::Newest => "containerd-newest",
    }
}

fn program(bed: &Bed, release: Release) -> Result<PathBuf> {
    match release {
        Release::Debian => Ok("/usr/bin/containerd".into()),
        Release::Newest => bed.config.peer("containerd"),
    }
}

fn ctr(bed: &Bed, release: Release) -> Result<PathBuf> {
    Ok(program(bed, release)?.with_file_name("ctr"))
}

/// A daemon that has its state in `dir`, and its socket.
fn run_in(bed: &Bed, release: Release, dir: &Path, (plugins, level, log): (&Path, &str, &Path)) -> Result<Daemon> {
    let config = dir.join("config.toml");
    fs::write(&config, configuration(release, dir, plugins, level))?;
    let program = program(bed, release)?;
    // The shim is looked for in PATH, and has to be of the same release.
    let shims = program.parent().context("containerd in the root directory")?;
    let path = format!("PATH={}:/usr/sbin:/usr/bin:/sbin:/bin", shims.display());
    let words = [path.as_str(), &program.to_string_lossy(), "--config", &config.to_string_lossy()].map(String::from);
    Daemon::start(name(release), "/usr/bin/env", words, log)
}

/// The pod's UID, in a line that says that a sandbox is to be made for it. Releases print a message of CRI in two ways, of which
/// the newer one may have more than one blank between fields.
fn asked_for(line: &str) -> Option<&str> {
    let (_, asked) = line.split_once("msg=\"RunPodSandbox for ")?;
    if [" returns sandbox id ", " failed, error"].iter().any(|end| asked.contains(end)) {
        return None;
    }
    let older = asked.split_once("Uid:").and_then(|(_, rest)| rest.split_once(','));
    let newer = asked.split_once("uid:\\\"").and_then(|(_, rest)| rest.split_once("\\\""));
    older.or(newer).map(|(uid, _)| uid)
}

fn configuration(release: Release, dir: &Path, plugins: &Path, level: &str) -> String {
    let (dir, plugins) = (dir.display(), plugins.display());
    let mut text = String::new();
    let version = match release {
        Release::Debian => 2,
        Release::Newest => 3,
    };
    let _infallible = write!(
        text,
        "version = {version}\nroot = '{dir}/root'\nstate = '{dir}/state'\n\
         [grpc]\naddress = '{dir}/containerd.sock'\n[ttrpc]\naddress = '{dir}/ttrpc.sock'\n[debug]\nlevel = '{level}'\n"
    );
    // AppArmor and negative OOM scores are refused in a cell.
    let plugin = match release {
        Release::Debian => format!(
            "[plugins.'io.containerd.grpc.v1.cri']\nsandbox_image = '{PAUSE}'\ndisable_apparmor = true\n\
             restrict_oom_score_adj = true\ndisable_tcp_service = true\n\
             [plugins.'io.containerd.grpc.v1.cri'.cni]\nbin_dir = '{plugins}'\nconf_dir = '/etc/cni/net.d'\n\
             [plugins.'io.containerd.internal.v1.opt']\npath = '{dir}/opt'\n"
        ),
        Release::Newest => format!(
            "[plugins.'io.containerd.cri.v1.runtime']\ndisable_apparmor = true\nrestrict_oom_score_adj = true\n\
             [plugins.'io.containerd.cri.v1.runtime'.cni]\nbin_dirs = ['{plugins}']\nconf_dir = '/etc/cni/net.d'\n\
             [plugins.'io.containerd.cri.v1.images'.pinned_images]\nsandbox = '{PAUSE}'\n\
             [plugins.'io.containerd.cri.v1.images'.registry]\nconfig_path = '{dir}/{REGISTRIES}'\n\
             [plugins.'io.containerd.internal.v1.opt']\npath = '{dir}/opt'\n"
        ),
    };
    text + &plugin
}

/// An image archive as `docker save` writes it, with one static program in it that starts with `words`.
///
/// # Errors
/// When it cannot be written.
pub fn archive(dir: &Path, name: &str, program: &Path, words: &[&str]) -> Result<PathBuf> {
    archive_of(dir, name, (program, &["pause"]), words)
}

/// [`archive`] of a program that is there under these names, as paths below the root; it starts as the first one.
///
/// # Errors
/// When it cannot be written.
pub fn archive_of(dir: &Path, name: &str, (program, names): (&Path, &[&str]), words: &[&str]) -> Result<PathBuf> {
    let first = names.first().context("a program without a name")?;
    let parts = dir.join(format!("image-{}", first.replace('/', "-")));
    let root = parts.join("root");
    for at in names {
        let at = root.join(at);
        fs::create_dir_all(at.parent().context("a program without a directory")?)?;
        fs::copy(program, &at)?;
    }
    let layer = parts.join("layer.tar");
    sh(&format!("tar -C {} -cf {} .", root.display(), layer.display()))?;
    let digest = sum("sha256sum", &layer)?;
    let config = json!({
        "architecture": "amd64", "os": "linux", "config": {"Entrypoint": [format!("/{first}")], "Cmd": words},
        "rootfs": {"type": "layers", "diff_ids": [format!("sha256:{digest}")]}, "history": [],
    });
    fs::write(parts.join("config.json"), config.to_string())?;
    let manifest = json!([{"Config": "config.json", "RepoTags": [name], "Layers": ["layer.tar"]}]);
    fs::write(parts.join("manifest.json"), manifest.to_string())?;
    let archive = parts.join("image.tar");
    sh(&format!("tar -C {} -cf {} manifest.json config.json layer.tar", parts.display(), archive.display()))?;
    Ok(archive)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_either_release_a_call_for_a_sandbox_is_told_from_its_end() {
        let lines = [
            r#"time="2026-11-29T07:00:00Z" level=info msg="RunPodSandbox for &PodSandboxMetadata{Name:c-node1,Uid:4f,Namespace:default,Attempt:0,}""#,
            r#"time="2026-11-29T07:00:00Z" level=info msg="RunPodSandbox for &PodSandboxMetadata{Name:c-node1,Uid:4f,Namespace:default,Attempt:0,} returns sandbox id \"0a\"""#,
            r#"time="2026-11-29T07:00:00.1Z" level=info msg="RunPodSandbox for name:\"c-node1\"  uid:\"5e\"  namespace:\"default\"  attempt:1""#,
            r#"time="2026-11-29T07:00:00.1Z" level=error msg="RunPodSandbox for name:\"c-node1\"  uid:\"5e\"  namespace:\"default\" failed, error" error="x""#,
            r#"time="2026-11-29T07:00:00.1Z" level=info msg="StopPodSandbox for \"0a\"""#,
        ];
        assert_eq!(lines.iter().filter_map(|line| asked_for(line)).collect::<Vec<_>>(), ["4f", "5e"]);
    }
}
