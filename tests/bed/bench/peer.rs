//! The same machine as one of ours, without us: libvirt's own, with the plain emulator and, if guests see volumes, the plain virtiofsd.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::chown;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::Duration;

use anyhow::{Context as _, Result};
use proto::share::VIRTIOFSD_OPTIONS;
use tests::case::Bed;
use tests::libvirt::{only_qemu, virsh};
use tests::net_node::QEMU;
use tests::wait::wait_until;

use super::timed;

pub(super) const NAME: &str = "peer";
/// Below these everything belongs to one machine, but for the images.
const OURS: [&str; 3] = ["/run/virtlet/", "/var/lib/virtlet/volumes/", "/var/lib/virtlet/console/"];
const SOON: Duration = Duration::from_secs(10);

/// A machine that can be created.
pub(super) struct Peer {
    dir: PathBuf,
    /// Where it is described.
    xml: PathBuf,
    /// If its guest sees volumes.
    virtiofsd: Option<PathBuf>,
}

/// One that was.
pub(super) struct Running {
    virtiofsd: Option<Child>,
}

impl Peer {
    /// Copies what is the running machine's own, and describes a machine of that.
    pub(super) fn of(bed: &Bed, ours: &str) -> Result<Self> {
        let dir = bed.dir.join(NAME);
        let _earlier = fs::remove_dir_all(&dir);
        fs::create_dir(&dir)?;
        chown(&dir, Some(QEMU.uid), Some(QEMU.gid))?;
        let mut xml = ours.to_owned();
        let mut virtiofsd = None;
        if let Some((_, filesystem)) = ours.split_once("<filesystem ") {
            let (filesystem, _) = filesystem.split_once("</filesystem>").context("a file system without an end")?;
            let address = filesystem.lines().find(|line| line.contains("<address")).context("no address")?;
            let by = format!(
                "<driver type='virtiofs' queue='1024'/><source socket='{}'/><target dir='virtlet'/>{address}",
                dir.join("fs.sock").display()
            );
            xml = ours.replace(filesystem, &format!("type='mount' accessmode='passthrough'>{by}"));
            virtiofsd = Some(bed.config.peer("virtiofsd")?);
        }
        for path in own_paths(&xml.clone()) {
            let copy = dir.join(Path::new(path).file_name().context("a directory in the description")?);
            if let Some(disk) = disk(Path::new(path))? {
                fs::copy(disk, &copy)?;
                chown(&copy, Some(QEMU.uid), Some(QEMU.gid))?;
            }
            xml = xml.replace(path, &copy.display().to_string());
        }
        xml = replace_element(&xml, "metadata", "")?;
        xml = replace_element(&xml, "qemu:commandline", "")?;
        xml = replace_element(&xml, "name", &format!("<name>{NAME}</name>"))?;
        xml = replace_element(&xml, "uuid", "")?;
        xml = replace_element(&xml, "emulator", "<emulator>/usr/bin/qemu-system-x86_64</emulator>")?;
        let peer = Self { xml: dir.join("peer.xml"), dir, virtiofsd };
        fs::write(&peer.xml, xml)?;
        Ok(peer)
    }

    /// What its guest sees of the node.
    pub(super) fn shared(&self) -> PathBuf {
        self.dir.join("share")
    }

    /// What its serial port has said.
    pub(super) fn console(&self) -> PathBuf {
        self.dir.join("serial.log")
    }

    /// Microseconds of `virsh create`, beside a virtiofsd that runs.
    pub(super) fn create(&self) -> Result<(f64, Running)> {
        let _earlier = fs::remove_file(self.console());
        let virtiofsd = self.virtiofsd.as_deref().map(|program| self.share(program)).transpose()?;
        let (micros, _said) = timed(|| virsh(&format!("create {}", self.xml.display())))?;
        Ok((micros, Running { virtiofsd }))
    }

    fn share(&self, program: &Path) -> Result<Child> {
        let (socket, shared) = (self.dir.join("fs.sock"), self.shared());
        let _earlier = fs::remove_file(&socket);
        fs::create_dir_all(&shared)?;
        let mut virtiofsd = Command::new(program);
        virtiofsd.args(VIRTIOFSD_OPTIONS).arg("--socket-path").arg(&socket).arg("--shared-dir").arg(&shared);
        let virtiofsd = virtiofsd.spawn().context("virtiofsd does not start")?;
        wait_until("virtiofsd's socket", SOON, || socket.exists())?;
        chown(&socket, Some(QEMU.uid), Some(QEMU.gid))?;
        Ok(virtiofsd)
    }
}

impl Running {
    pub(super) fn remove(self) -> Result<()> {
        virsh(&format!("destroy {NAME}"))?;
        if let Some(mut virtiofsd) = self.virtiofsd {
            // It ends with its machine.
            virtiofsd.wait()?;
        }
        Ok(())
    }
}

/// Where the running machine's disk of this path can be read; nowhere if the path is not of a disk.
fn disk(path: &Path) -> Result<Option<PathBuf>> {
    let [name, unlinked] = [path.display().to_string(), format!("{} (deleted)", path.display())];
    for descriptor in fs::read_dir(format!("/proc/{}/fd", only_qemu()?))? {
        let descriptor = descriptor?.path();
        // The seed is unlinked as soon as QEMU has it open.
        let target = fs::read_link(&descriptor)?.display().to_string();
        if [&name, &unlinked].contains(&&target) && fs::metadata(&descriptor)?.is_file() {
            return Ok(Some(descriptor));
        }
    }
    Ok(None)
}

fn own_paths(xml: &str) -> BTreeSet<&str> {
    xml.split(['"', '\'']).filter(|text| OURS.iter().any(|dir| text.starts_with(dir))).collect()
}

fn replace_element(xml: &str, name: &str, by: &str) -> Result<String> {
    let (open, close) = (format!("<{name}>"), format!("</{name}>"));
    let (before, rest) = xml.split_once(&open).with_context(|| format!("no {open} in\n{xml}"))?;
    let (_, after) = rest.split_once(&close).with_context(|| format!("no {close} in\n{xml}"))?;
    Ok(format!("{before}{by}{after}"))
}
