//! How a guest without our agent comes by the disks and volumes of its pod: it has the devices, and cloud-init mounts them.
//!
//! Disks with a file system and directories of the share are lines of the guest's `/etc/fstab`, by cloud-init's `mounts`. That makes a
//! directory of each mount point, so single files are mounted by a script at each boot, and links to disks are made then, too. The same
//! script, for all of them, stands where a user's script says [`MARK`].

mod script;

use std::path::Path;

use proto::agent::{ANY_FILE_SYSTEM, SHARE_DIR, SHARE_TAG};
use serde_json::{Map, Value, json};

use crate::MountOptions;

/// What Virtlet puts the mounting of volumes in the place of.
pub(super) const MARK: &str = "@virtlet-mount-script@";
/// Nothing of the node's makes a root or a device in the guest.
const HARMLESS: &str = "nosuid,nodev";
/// cloud-init makes all directories before it mounts anything, so what is mounted first hides those below it. mount(8) makes them
/// anew; systemd does without being told, at later boots.
const MKDIR: &str = ",X-mount.mkdir";
/// A share that is not there must not keep the guest from booting.
const NOFAIL: &str = "nofail";
/// The same of a disk, which is there, however late udev's link to it: systemd gives up after 90 s, counted from the start of the boot,
/// and then there is no mount until the next one. Emulated guests on busy nodes have taken that long. What is `nofail` holds up nothing
/// that does not ask for it, and a disk that is gone (a root that outlived its pod's) ends the wait by this.
const DISK_PATIENCE: &str = "nofail,x-systemd.device-timeout=15min";
/// Makes of its second argument a link to the first. What is no link is the guest's own: its kernel's node of another disk, say.
const LINK: &str = "if [ -e \"$2\" ] && [ ! -L \"$2\" ]; then echo \"$2 is no link to a disk, and stays what it is\" >&2; \
                    else mkdir -p \"$(dirname \"$2\")\" && ln -sfn \"$1\" \"$2\"; fi";

/// An entry of the share, and where the guest is to see it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GuestMount {
    /// Its name in the share.
    pub entry: u16,
    /// Absolute, and plain.
    pub path: String,
    pub read_only: bool,
    pub options: MountOptions,
    /// Whether it is no directory.
    pub is_file: bool,
}

/// A disk beside the root disk, and where the guest is to see it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GuestDisk {
    /// What it says that it is.
    pub serial: String,
    /// The number of the partition that is mounted; 0 is the whole disk.
    pub partition: u16,
    /// udev's link to it, or to its partition.
    pub link: String,
    /// Absolute, and plain.
    pub path: String,
    /// What of it is mounted there; empty stands for a link to the disk.
    pub file_system: &'static str,
    pub read_only: bool,
    /// Of what is mounted.
    pub options: MountOptions,
}

/// What of a cloud-config has them there, each after those above it.
///
/// The table is written once for each instance, so a disk whose partitions have to be looked for is not in it: udev may not have found them
/// by then. What is above or below something that the table cannot have is not in it either: the script comes before the table when a guest
/// boots first, and after it later.
pub(super) fn cloud_config(mounts: &[GuestMount], disks: &[GuestDisk]) -> Map<String, Value> {
    let all = in_order(mounts, disks);
    let (tabled, others): (Vec<Place<'_>>, Vec<Place<'_>>) =
        all.iter().copied().partition(|place| related_to(*place, &all).all(Place::is_of_table));
    let (links, scripted): (Vec<Place<'_>>, Vec<Place<'_>>) =
        others.into_iter().partition(|place| place.is_link() && related_to(*place, &all).count() == 1);

    let exec = Exec::of(mounts);
    let mut lines: Vec<Value> = Vec::new();
    if !mounts.is_empty() {
        let options = format!("rw,{HARMLESS}{},{NOFAIL}", exec.of_share());
        lines.push(json!([SHARE_TAG, SHARE_DIR, "virtiofs", options, "0", "0"]));
    }
    let is_below = |place: Place<'_>| related_to(place, &all).any(|one| place.is_below(one));
    lines.extend(tabled.into_iter().map(|place| place.line(exec, is_below(place))));
    let mut commands: Vec<Value> = links.into_iter().filter_map(Place::disk).map(link_command).collect();
    let script = script::of(&scripted, exec);
    if !script.is_empty() {
        commands.push(json!(["sh", "-c", script]));
    }
    let parts = [("mounts", lines), ("bootcmd", commands)];
    let parts = parts.into_iter().filter(|(_, items)| !items.is_empty());
    parts.map(|(key, items)| (key.to_owned(), items.into())).collect()
}

/// A script of any shell that has them there, without udev; again is fine. Empty if there are none.
pub(super) fn script(mounts: &[GuestMount], disks: &[GuestDisk]) -> String {
    script::of(&in_order(mounts, disks), Exec::of(mounts))
}

fn disk_line(disk: &GuestDisk, mkdir: &str) -> Value {
    let GuestDisk { link, path, file_system, .. } = disk;
    let options = disk.mount_options();
    // What nobody writes to is not to be mended.
    let pass = if disk.read_only { "0" } else { "2" };
    json!([link, path, file_system, format!("{options},{DISK_PATIENCE}{mkdir}"), "0", pass])
}

fn share_line(mount: &GuestMount, exec: Exec, mkdir: &str) -> Value {
    let GuestMount { entry, path, read_only, .. } = mount;
    // A bind has the flags of the share, but mount(8) takes away those that are not named when it makes one read-only.
    let (mode, exec) = (mode(*read_only), exec.of_bind(mount));
    let options = format!("bind,{mode},{HARMLESS}{exec},nofail,x-systemd.requires-mounts-for={SHARE_DIR}{mkdir}");
    json!([format!("{SHARE_DIR}/{entry}"), path, "none", options, "0", "0"])
}

/// cloud-init quotes each word for the shell that it gives all commands to.
fn link_command(GuestDisk { link, path, .. }: &GuestDisk) -> Value {
    json!(["sh", "-c", LINK, "virtlet", link, path])
}

const fn mode(read_only: bool) -> &'static str {
    if read_only { "ro" } else { "rw" }
}

/// Whether a file would be on a disk that cloud-init mounts, and that can be written to. One on a volume of the node's is not: it
/// would stay there.
pub(super) fn is_on_disk(path: &str, mounts: &[GuestMount], disks: &[GuestDisk]) -> bool {
    // The deepest above it has it, and of those at one path the volume.
    let above = in_order(mounts, disks).into_iter().rfind(|place| Path::new(path).starts_with(place.path()));
    above.and_then(Place::disk).is_some_and(|disk| !disk.is_linked() && !disk.read_only)
}

/// In the order in which they can be mounted: what is above comes first; beside each other, disks do.
fn in_order<'a>(mounts: &'a [GuestMount], disks: &'a [GuestDisk]) -> Vec<Place<'a>> {
    let mut all: Vec<Place<'_>> = disks.iter().map(Place::Disk).chain(mounts.iter().map(Place::Share)).collect();
    all.sort_by_key(|place| place.path().components().count());
    all
}

/// Itself and those that are above or below it, or below the same one.
fn related_to<'a>(place: Place<'a>, order: &[Place<'a>]) -> impl Iterator<Item = Place<'a>> {
    let top = order.iter().find(|above| place.path().starts_with(above.path())).map_or(place.path(), |top| top.path());
    order.iter().copied().filter(move |one| one.path().starts_with(top))
}

/// Whether a path can stand in `/etc/fstab` as it is, which is how cloud-init writes it.
fn is_of_table(path: &str) -> bool {
    path.chars().all(|c| c.is_ascii_graphic() && !matches!(c, '\\' | '#'))
}

/// What a guest sees at a path.
#[derive(Debug, Clone, Copy)]
enum Place<'a> {
    Share(&'a GuestMount),
    Disk(&'a GuestDisk),
}

/// How programs of volumes are held. Each user of the guest can go by the share itself, too, so that has the option if one of its entries is
/// to have it, and the binds of others say that they have not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Exec {
    /// All start.
    Free,
    /// Those start that are not forbidden.
    Held,
}

// === impl Exec ===

impl Exec {
    fn of(mounts: &[GuestMount]) -> Self {
        if mounts.iter().any(|mount| mount.options.noexec) { Self::Held } else { Self::Free }
    }

    /// What the share's options go on with.
    const fn of_share(self) -> &'static str {
        match self {
            Self::Free => "",
            Self::Held => ",noexec",
        }
    }

    /// The same of a bind. All else that a mount may have, the share has.
    const fn of_bind(self, mount: &GuestMount) -> &'static str {
        match self {
            Self::Free => "",
            Self::Held if mount.options.noexec => ",noexec",
            Self::Held => ",exec",
        }
    }
}

// === impl Place ===

impl<'a> Place<'a> {
    fn path(self) -> &'a Path {
        Path::new(match self {
            Self::Share(mount) => &mount.path,
            Self::Disk(disk) => &disk.path,
        })
    }

    const fn disk(self) -> Option<&'a GuestDisk> {
        match self {
            Self::Share(_) => None,
            Self::Disk(disk) => Some(disk),
        }
    }

    fn is_link(self) -> bool {
        self.disk().is_some_and(GuestDisk::is_linked)
    }

    fn is_of_table(self) -> bool {
        match self {
            Self::Share(mount) => !mount.is_file && is_of_table(&mount.path),
            Self::Disk(disk) => !disk.is_linked() && disk.file_system != ANY_FILE_SYSTEM && is_of_table(&disk.path),
        }
    }

    fn is_below(self, other: Self) -> bool {
        self.path() != other.path() && self.path().starts_with(other.path())
    }

    fn line(self, exec: Exec, is_below: bool) -> Value {
        let mkdir = if is_below { MKDIR } else { "" };
        match self {
            Self::Share(mount) => share_line(mount, exec, mkdir),
            Self::Disk(disk) => disk_line(disk, mkdir),
        }
    }
}

// === impl GuestDisk ===

impl GuestDisk {
    /// Whether the guest has a link to it, and mounts nothing of it by us.
    pub(super) fn is_linked(&self) -> bool {
        self.file_system.is_empty()
    }

    /// What mount(8) is told of it.
    fn mount_options(&self) -> String {
        let words = std::iter::once(mode(self.read_only)).chain(self.options.words());
        words.collect::<Vec<_>>().join(",")
    }
}

#[cfg(test)]
mod tests;
