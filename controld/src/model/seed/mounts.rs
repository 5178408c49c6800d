//! How a guest without our agent comes by the disks and volumes of its pod: it has the devices, and cloud-init mounts them.
//!
//! Disks with a file system and directories of the share are lines of the guest's `/etc/fstab`, by cloud-init's `mounts`. That makes a
//! directory of each mount point, so single files are mounted by a script at each boot, and links to disks are made then, too. The same
//! script, for all of them, stands where a user's script says [`MARK`].

mod script;

use proto::agent::{ANY_FILE_SYSTEM, SHARE_DIR, SHARE_TAG};
use serde_json::{Map, Value, json};

/// What Virtlet puts the mounting of volumes in the place of.
pub(super) const MARK: &str = "@virtlet-mount-script@";
/// A share that is not there must not keep the guest from booting, which systemd otherwise has it do for 90 s.
const PATIENCE: &str = "nofail,x-systemd.device-timeout=10s";
/// The same of a disk, which is there: a busy guest that is emulated has been seen to take 10 s from its boot to udev's link, and then
/// had no mount at all. What is `nofail` holds up nothing that does not ask for it.
const DISK_PATIENCE: &str = "nofail,x-systemd.device-timeout=90s";
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
}

/// What of a cloud-config has them there: disks first, as a volume may be below one. The table is written once for each instance, so a disk
/// whose partitions have to be looked for is not in it: udev may not have found them by then.
pub(super) fn cloud_config(mounts: &[GuestMount], disks: &[GuestDisk]) -> Map<String, Value> {
    let (linked, mounted): (Vec<&GuestDisk>, Vec<&GuestDisk>) =
        deeper_later(disks).into_iter().partition(|disk| disk.is_linked());
    let (disk_lines, disks_by_script): (Vec<&GuestDisk>, Vec<&GuestDisk>) =
        mounted.into_iter().partition(|disk| is_of_table(&disk.path) && disk.file_system != ANY_FILE_SYSTEM);
    let (share_lines, mounts_by_script): (Vec<&GuestMount>, Vec<&GuestMount>) =
        deeper_later(mounts).into_iter().partition(|mount| !mount.is_file && is_of_table(&mount.path));

    let mut lines: Vec<Value> = disk_lines.into_iter().map(disk_line).collect();
    if !mounts.is_empty() {
        lines.push(json!([SHARE_TAG, SHARE_DIR, "virtiofs", format!("rw,{PATIENCE}"), "0", "0"]));
    }
    lines.extend(share_lines.into_iter().map(share_line));
    let mut commands: Vec<Value> = linked.into_iter().map(link_command).collect();
    let script = script::of(&mounts_by_script, &disks_by_script);
    if !script.is_empty() {
        commands.push(json!(["sh", "-c", script]));
    }
    let parts = [("mounts", lines), ("bootcmd", commands)];
    let parts = parts.into_iter().filter(|(_, items)| !items.is_empty());
    parts.map(|(key, items)| (key.to_owned(), items.into())).collect()
}

/// A script of any shell that has them there, without udev; again is fine. Empty if there are none.
pub(super) fn script(mounts: &[GuestMount], disks: &[GuestDisk]) -> String {
    script::of(&deeper_later(mounts), &deeper_later(disks))
}

fn disk_line(disk: &GuestDisk) -> Value {
    let GuestDisk { link, path, file_system, .. } = disk;
    // What nobody writes to is not to be mended.
    let pass = if disk.read_only { "0" } else { "2" };
    json!([link, path, file_system, format!("{},{DISK_PATIENCE}", mode(disk.read_only)), "0", pass])
}

fn share_line(GuestMount { entry, path, read_only, .. }: &GuestMount) -> Value {
    let options = format!("bind,{},nofail,x-systemd.requires-mounts-for={SHARE_DIR}", mode(*read_only));
    json!([format!("{SHARE_DIR}/{entry}"), path, "none", options, "0", "0"])
}

/// cloud-init quotes each word for the shell that it gives all commands to.
fn link_command(GuestDisk { link, path, .. }: &GuestDisk) -> Value {
    json!(["sh", "-c", LINK, "virtlet", link, path])
}

const fn mode(read_only: bool) -> &'static str {
    if read_only { "ro" } else { "rw" }
}

/// In the order in which they can be mounted.
fn deeper_later<T: HasPath>(all: &[T]) -> Vec<&T> {
    let mut all: Vec<&T> = all.iter().collect();
    all.sort_by_key(|one| one.path().matches('/').count());
    all
}

/// Whether a path can stand in `/etc/fstab` as it is, which is how cloud-init writes it.
fn is_of_table(path: &str) -> bool {
    path.chars().all(|c| c.is_ascii_graphic() && !matches!(c, '\\' | '#'))
}

/// What a guest sees at a path.
trait HasPath {
    fn path(&self) -> &str;
}

// === impl GuestMount ===

impl HasPath for GuestMount {
    fn path(&self) -> &str {
        &self.path
    }
}

// === impl GuestDisk ===

impl GuestDisk {
    /// Whether the guest has a link to it, and mounts nothing of it by us.
    pub(super) fn is_linked(&self) -> bool {
        self.file_system.is_empty()
    }
}

impl HasPath for GuestDisk {
    fn path(&self) -> &str {
        &self.path
    }
}

#[cfg(test)]
mod tests;
