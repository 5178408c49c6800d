//! The root overlay of a pod: `root.qcow2`, and `root.json` beside it with what it stands on.
//!
//! The image below is never written: the overlay names it with its format, and it stays root's (see [`crate::model::domain`]).
//! Which image that is, is told by its id. A pod keeps its disk as long as it wants the image by the same name: that the
//! name means another image by now, because it was published anew, is for pods to come. Where the image lies may change: QEMU is told each file of the chain, and does
//! not look at the name in the overlay. An overlay for another image, or for another container if it is to last no longer than that, is
//! made first and then put in the place of the old one, which is there until the Create that wanted it has succeeded.

use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt as _, chown};
use std::path::{Path, PathBuf};
use std::process::Stdio;

use common::off_reactor;
use common::small_file;
use proto::tap::QemuUser;
use serde::{Deserialize, Serialize};
use tokio::process::Command;
use vmspec::plan::RootLifetime;

use super::error::CREATE_DEADLINE;
use super::files::{io_error, remove_file, set_mode};
use super::{Folder, VolumeError, Volumes};

/// An overlay is for the user that QEMU runs as, and not for its group: on some distributions people are in that.
const OVERLAY_MODE: u32 = 0o600;

/// The image below an overlay. As `root.json` it has had this form since the first release, without a version.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Base {
    /// Id, `sha256:...`.
    pub image_id: String,
    pub path: PathBuf,
    /// `qcow2` or `raw`.
    pub format: String,
    /// Bytes that the guest sees of it.
    pub virtual_size: u64,
    /// The name by which the pod wanted it; empty if an earlier release wrote this.
    #[serde(default)]
    pub name: String,
}

/// The root disk for a Create under way, which ends by [`Root::keep`] or [`Root::undo`].
#[derive(Debug)]
#[must_use]
pub struct Root {
    files: Files,
    made: Made,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Made {
    /// It was there.
    Nothing,
    /// There was none.
    Overlay,
    /// There was one that is wanted no more, which lies beside it.
    Another,
}

/// Files of a folder.
#[derive(Debug, Clone)]
struct Files {
    overlay: PathBuf,
    made_of: PathBuf,
    half: PathBuf,
    old: PathBuf,
    /// In place of all of them, where a volume is the root disk.
    of_volume: PathBuf,
}

impl Volumes {
    /// What the root overlay of a pod is to stand on that wants `wanted`: what it stands on already, if that had the same
    /// name. Where a killed Create has put the overlay aside there is no note, so nothing has to be put in order first. Of a pod whose root
    /// disk is a volume: the image that it got the first time.
    pub async fn base(&self, folder: &Folder, wanted: Base) -> Base {
        let files = Files::of(folder);
        off_reactor(move || {
            let of_overlay = || files.note().filter(|_| files.overlay.exists());
            let stands_on = read_base(&files.of_volume).or_else(of_overlay).filter(|note| note.is_named_as(&wanted));
            stands_on.map(|base| base.beside(&wanted)).unwrap_or(wanted)
        })
        .await
    }

    /// Writes down which image a pod has whose root disk is a volume, for its further containers.
    ///
    /// # Errors
    /// When that cannot be written.
    pub async fn note_base(&self, folder: &Folder, base: &Base) -> Result<(), VolumeError> {
        let (path, base) = (Files::of(folder).of_volume, base.clone());
        off_reactor(move || Ok(small_file::write(&path, &base)?)).await
    }

    /// Makes the root overlay of a pod, or takes the one that it has if that stands on the same image and is to last.
    ///
    /// # Errors
    /// See [`VolumeError`]; then what was there before still is, and nothing else.
    pub async fn ensure_root(
        &self,
        folder: &Folder,
        base: &Base,
        size: u64,
        lifetime: RootLifetime,
        qemu: QemuUser,
    ) -> Result<Root, VolumeError> {
        let files = Files::of(folder);
        let (known, on) = (files.clone(), base.clone());
        let made = off_reactor(move || known.take_up(&on, lifetime)).await?;
        if made != Made::Nothing {
            let created = create(&files.half, base, size.max(base.virtual_size), qemu).await;
            let (new, on) = (files.clone(), base.clone());
            off_reactor(move || new.install(created, made, &on)).await?;
        }
        Ok(Root { files, made })
    }
}

impl Volumes {
    /// Where a layer is to be made that [`Self::install_root`] takes. Nothing is there.
    ///
    /// # Errors
    /// See [`VolumeError`].
    pub async fn half_root(&self, folder: &Folder) -> Result<PathBuf, VolumeError> {
        let files = Files::of(folder);
        off_reactor(move || files.tidy().map(|()| files.half)).await
    }

    /// Takes what was made at [`Self::half_root`] for the root overlay of a pod, which stands on this image. It is for QEMU's user already.
    ///
    /// # Errors
    /// See [`VolumeError`]; then what was there before still is, and nothing else.
    pub async fn install_root(&self, folder: &Folder, base: &Base) -> Result<Root, VolumeError> {
        let (files, on) = (Files::of(folder), base.clone());
        off_reactor(move || {
            let made = if files.overlay.exists() { Made::Another } else { Made::Overlay };
            files.install(Ok(()), made, &on)?;
            Ok(Root { files, made })
        })
        .await
    }
}

impl Folder {
    /// Where the pod's root overlay is, if it has one.
    #[must_use]
    pub fn overlay(&self) -> PathBuf {
        Files::of(self).overlay
    }

    /// Where the pod's flexvolumes that are files are, each in a directory of its own.
    #[must_use]
    pub fn flexvolumes(&self) -> PathBuf {
        self.path.join("flexvolumes")
    }
}

// === impl Base ===

impl Base {
    /// An unknown name is taken for the same: the other answer costs a disk.
    fn is_named_as(&self, wanted: &Self) -> bool {
        self.name.is_empty() || self.name == wanted.name
    }

    /// The same, known by the name that is wanted now, and where images lie now, named by their ids.
    fn beside(self, wanted: &Self) -> Self {
        let path = self.path.file_name().map_or_else(|| self.path.clone(), |file| wanted.path.with_file_name(file));
        Self { path, name: wanted.name.clone(), ..self }
    }
}

// === impl Root ===

impl Root {
    /// The overlay.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.files.overlay
    }

    /// Whether it is the one that the pod had.
    #[must_use]
    pub fn was_there(&self) -> bool {
        self.made == Made::Nothing
    }

    /// It is on record now: what it has replaced goes.
    ///
    /// # Errors
    /// When that stays; the next Create removes it.
    pub async fn keep(self) -> Result<(), VolumeError> {
        match self.made {
            Made::Another => off_reactor(move || remove_file(&self.files.old)).await,
            Made::Nothing | Made::Overlay => Ok(()),
        }
    }

    /// Nobody wants it: what this call has made goes, and what it has replaced is there again.
    ///
    /// # Errors
    /// When that did not work out.
    pub fn undo(self) -> Result<(), VolumeError> {
        let Files { overlay, made_of, old, .. } = &self.files;
        match self.made {
            Made::Nothing => Ok(()),
            Made::Overlay => remove_file(overlay).and_then(|()| remove_file(made_of)),
            Made::Another => {
                // The overlay itself says what it stands on.
                remove_file(made_of)?;
                std::fs::rename(old, overlay).map_err(io_error("put back", overlay))
            }
        }
    }
}

// === impl Files ===

impl Files {
    fn of(folder: &Folder) -> Self {
        let file = |name: &str| folder.path.join(name);
        Self {
            overlay: file("root.qcow2"),
            made_of: file("root.json"),
            half: file("root.qcow2.new"),
            old: file("root.qcow2.old"),
            of_volume: file("volume-root.json"),
        }
    }

    /// Puts the folder in order, and takes up the overlay that stands on this image, if it is to last. What has to be made
    /// otherwise is said.
    fn take_up(&self, base: &Base, lifetime: RootLifetime) -> Result<Made, VolumeError> {
        self.tidy()?;
        if !self.overlay.exists() {
            return Ok(Made::Overlay);
        }
        if lifetime == RootLifetime::Container || !self.stands_on(base) {
            return Ok(Made::Another);
        }
        // Earlier releases let QEMU's group write it.
        set_mode(&self.overlay, OVERLAY_MODE)?;
        self.describe(base)?;
        Ok(Made::Nothing)
    }

    /// Puts what was created in its place, or nothing if that fails.
    fn install(&self, created: Result<(), VolumeError>, made: Made, base: &Base) -> Result<(), VolumeError> {
        if let Err(error) = created.and_then(|()| self.put_in(made == Made::Another)) {
            // The error that matters is the first one; the next call tidies up too.
            let _ = self.tidy();
            return Err(error);
        }
        self.describe(base).inspect_err(|_| {
            // As above.
            let _ = Root { files: self.clone(), made }.undo();
        })
    }

    /// Puts in order what a killed Create left.
    fn tidy(&self) -> Result<(), VolumeError> {
        remove_file(&self.half)?;
        if self.old.exists() && !self.overlay.exists() {
            return std::fs::rename(&self.old, &self.overlay).map_err(io_error("put back", &self.overlay));
        }
        remove_file(&self.old)
    }

    /// Puts the new overlay in its place.
    fn put_in(&self, there: bool) -> Result<(), VolumeError> {
        // It is no more true from here on, and the overlay itself says what it stands on.
        remove_file(&self.made_of)?;
        if there {
            std::fs::rename(&self.overlay, &self.old).map_err(io_error("put aside", &self.overlay))?;
        }
        std::fs::rename(&self.half, &self.overlay).map_err(io_error("name", &self.overlay))
    }

    /// What the overlay stands on, by the note beside it; `None` if that is lost or torn.
    fn note(&self) -> Option<Base> {
        read_base(&self.made_of)
    }

    /// Whether the overlay stands on this image, wherever that lies.
    fn stands_on(&self, base: &Base) -> bool {
        match self.note() {
            Some(described) => described.image_id == base.image_id,
            // Lost or torn. Images are named by their ids.
            None => backing_of(&self.overlay).is_ok_and(|backing| {
                backing.is_some_and(|backing| Path::new(&backing).file_name() == base.path.file_name())
            }),
        }
    }

    /// Writes down what the overlay stands on, if that is not there already. What a power failure tears is told by the overlay.
    fn describe(&self, base: &Base) -> Result<(), VolumeError> {
        let path = &self.made_of;
        let text = serde_json::to_vec(base).map_err(|error| io_error("describe", path)(error.into()))?;
        if std::fs::read(path).is_ok_and(|there| there == text) {
            // Earlier releases let everybody read it.
            return set_mode(path, 0o600);
        }
        Ok(small_file::write_unflushed(path, base)?)
    }
}

/// A note of an image; `None` if it is not there or torn.
fn read_base(path: &Path) -> Option<Base> {
    serde_json::from_slice(&std::fs::read(path).ok()?).ok()
}

/// The name in an overlay of the file that it stands on (QEMU, `docs/interop/qcow2.txt`, "Header").
fn backing_of(overlay: &Path) -> io::Result<Option<String>> {
    /// Longest name, by the format.
    const MAX_NAME: u32 = 1023;
    let file = File::open(overlay)?;
    let mut header = [0; 20];
    file.read_exact_at(&mut header, 0)?;
    let [b'Q', b'F', b'I', 0xfb, _, _, _, _, o0, o1, o2, o3, o4, o5, o6, o7, l0, l1, l2, l3] = header else {
        return Err(io::ErrorKind::InvalidData.into());
    };
    let offset = u64::from_be_bytes([o0, o1, o2, o3, o4, o5, o6, o7]);
    let length = u32::from_be_bytes([l0, l1, l2, l3]);
    if offset == 0 {
        return Ok(None);
    }
    if length > MAX_NAME {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let mut name = vec![0; usize::try_from(length).unwrap_or_default()];
    file.read_exact_at(&mut name, offset)?;
    Ok(Some(String::from_utf8_lossy(&name).into_owned()))
}

/// Makes an overlay, which is QEMU's user's.
pub(super) async fn create(path: &Path, base: &Base, size: u64, qemu: QemuUser) -> Result<(), VolumeError> {
    let mut command = Command::new("qemu-img");
    // `-u`: the image below is known, and qemu-img is not to look into it.
    command.args(["create", "-q", "-u", "-f", "qcow2", "-F", &base.format, "-o", "cluster_size=65536"]);
    command.arg("-b").arg(&base.path).arg(path).arg(size.to_string());
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).kill_on_drop(true);
    let ran = tokio::time::timeout(CREATE_DEADLINE, command.output()).await;
    let output = ran
        .map_err(|_elapsed| VolumeError::Deadline { path: path.to_owned() })?
        .map_err(io_error("run qemu-img for", path))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        let said = said.lines().last().unwrap_or("no reason given").to_owned();
        if said.contains("No space left on device") {
            return Err(io_error("write", path)(io::Error::from_raw_os_error(libc::ENOSPC)));
        }
        return Err(VolumeError::QemuImg { path: path.to_owned(), said });
    }
    set_mode(path, OVERLAY_MODE)?;
    chown(path, Some(qemu.uid), Some(qemu.gid)).map_err(io_error("give QEMU's user", path))
}
