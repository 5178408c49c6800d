//! containerd, as the runtime that ours is measured beside and that it stands in front of: Debian's, and the newest, each with a state of its own.
//!
//! It runs in the cell as on a node: overlayfs, runc, the CNI configuration of the node. Its sandbox image is a tar made
//! here around one static program, since there is no registry.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result};
use nix::mount::{MntFlags, umount2};
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
}

impl Containerd {
    /// Starts one that uses the plugins in `plugins`, and gives it `pause` as its sandbox image.
    ///
    /// # Errors
    /// When it does not get ready.
    pub fn start(bed: &Bed, release: Release, plugins: &Path, pause: &Path) -> Result<Self> {
        Self::start_with(bed, release, plugins, (pause, &[]))
    }

    /// [`Containerd::start`] with the words that the program is given.
    ///
    /// # Errors
    /// When it does not get ready.
    pub fn start_with(
        bed: &Bed,
        release: Release,
        plugins: &Path,
        (pause, words_of_pause): (&Path, &[&str]),
    ) -> Result<Self> {
        let name = name(release);
        let (program, ctr): (PathBuf, PathBuf) = match release {
            Release::Debian => ("/usr/bin/containerd".into(), "/usr/bin/ctr".into()),
            Release::Newest => (bed.config.peer("containerd")?, bed.config.peer("ctr")?),
        };
        let dir = bed.dir.join(name);
        fs::create_dir_all(&dir)?;
        let config = dir.join("config.toml");
        fs::write(&config, configuration(release, &dir, plugins))?;
        // The shim is looked for in PATH, and has to be of the same release.
        let shims = Path::new(&program).parent().context("containerd in the root directory")?;
        let path = format!("PATH={}:/usr/sbin:/usr/bin:/sbin:/bin", shims.display());
        let words =
            [path.as_str(), &program.to_string_lossy(), "--config", &config.to_string_lossy()].map(String::from);
        let mut daemon = Daemon::start(name, "/usr/bin/env", words, bed.logs().join(format!("{name}.log")))?;
        let socket = dir.join("containerd.sock");
        wait_for(&format!("listener on {}", socket.display()), READY_DEADLINE, || {
            daemon.still_runs()?;
            Ok(std::os::unix::net::UnixStream::connect(&socket).ok())
        })?;
        let cri = Cri::new(&socket)?;
        let containerd = Self { daemon, cri, socket, ctr, dir };
        containerd.import(&archive(&containerd.dir, PAUSE, pause, words_of_pause)?)?;
        Ok(containerd)
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

fn configuration(release: Release, dir: &Path, plugins: &Path) -> String {
    let (dir, plugins) = (dir.display(), plugins.display());
    let mut text = String::new();
    let version = match release {
        Release::Debian => 2,
        Release::Newest => 3,
    };
    // What no sandbox needs is off in both, so that neither is held up by it.
    let _infallible = write!(
        text,
        "version = {version}\nroot = '{dir}/root'\nstate = '{dir}/state'\n\
         [grpc]\naddress = '{dir}/containerd.sock'\n[ttrpc]\naddress = '{dir}/ttrpc.sock'\n[debug]\nlevel = 'warn'\n"
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
