//! How a guest without our agent comes by the volumes of its pod: it has the virtiofs device, and cloud-init mounts it.
//!
//! Directories are lines of the guest's `/etc/fstab`, by cloud-init's `mounts`. That makes a directory of each mount point, so single
//! files are mounted by a script at each boot. The same script, for all of them, stands where a user's script says
//! [`MARK`].

use std::fmt::Write as _;

use proto::agent::{SHARE_DIR, SHARE_TAG};
use serde_json::{Map, Value, json};

/// What Virtlet puts the mounting of volumes in the place of.
pub(super) const MARK: &str = "@virtlet-mount-script@";
/// A disk or share that is not there must not keep the guest from booting, which systemd otherwise has it do for 90 s.
const PATIENCE: &str = "nofail,x-systemd.device-timeout=10s";

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

/// A disk with a file system, and where the guest is to see that.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GuestDisk {
    /// udev's link to it.
    pub link: String,
    /// Absolute, and plain.
    pub path: String,
    pub file_system: &'static str,
    pub read_only: bool,
}

/// What of a cloud-config has them mounted: disks first, as a volume may be below one.
pub(super) fn cloud_config(mounts: &[GuestMount], disks: &[GuestDisk]) -> Map<String, Value> {
    let mut config = Map::new();
    let line = |GuestDisk { link, path, file_system, read_only }: &GuestDisk| {
        let mode = if *read_only { "ro" } else { "rw" };
        json!([link, path, file_system, format!("{mode},{PATIENCE}"), "0", "2"])
    };
    let mut lines: Vec<Value> = disks.iter().map(line).collect();
    if mounts.is_empty() {
        if !lines.is_empty() {
            config.insert("mounts".into(), lines.into());
        }
        return config;
    }
    let (by_script, by_table): (Vec<&GuestMount>, Vec<&GuestMount>) =
        ordered(mounts).into_iter().partition(|mount| mount.is_file || !is_of_table(&mount.path));
    lines.push(json!([SHARE_TAG, SHARE_DIR, "virtiofs", format!("rw,{PATIENCE}"), "0", "0"]));
    lines.extend(by_table.into_iter().map(|GuestMount { entry, path, read_only, .. }| {
        let mode = if *read_only { "ro" } else { "rw" };
        let options = format!("bind,{mode},nofail,x-systemd.requires-mounts-for={SHARE_DIR}");
        json!([format!("{SHARE_DIR}/{entry}"), path, "none", options, "0", "0"])
    }));
    config.insert("mounts".into(), lines.into());
    if !by_script.is_empty() {
        config.insert("bootcmd".into(), json!([["sh", "-c", script_of(&by_script)]]));
    }
    config
}

/// A script of any shell that mounts them; again is fine. Empty if there is nothing to mount.
pub(super) fn script(mounts: &[GuestMount]) -> String {
    if mounts.is_empty() { String::new() } else { script_of(&ordered(mounts)) }
}

fn script_of(mounts: &[&GuestMount]) -> String {
    let mut script = format!(
        "virtlet_share={SHARE_DIR}\n\
         [ -e \"$virtlet_share/0\" ] || {{ mkdir -p \"$virtlet_share\"; mount -t virtiofs {SHARE_TAG} \"$virtlet_share\"; }}\n\
         virtlet_bind() {{\n\
         \t[ \"$virtlet_share/$1\" -ef \"$2\" ] && return 0\n\
         \tif [ -d \"$virtlet_share/$1\" ]; then\n\
         \t\tmkdir -p \"$2\"\n\
         \telse\n\
         \t\tmkdir -p \"$(dirname \"$2\")\"\n\
         \t\t[ -e \"$2\" ] || : >\"$2\"\n\
         \tfi\n\
         \tmount -o bind \"$virtlet_share/$1\" \"$2\"\n\
         }}\n"
    );
    for GuestMount { entry, path, .. } in mounts {
        // A string of a shell ends at its quote alone.
        let _ = writeln!(script, "virtlet_bind {entry} '{}'", path.replace('\'', "'\\''"));
    }
    script
}

/// What lies deeper comes later.
fn ordered(mounts: &[GuestMount]) -> Vec<&GuestMount> {
    let mut all: Vec<&GuestMount> = mounts.iter().collect();
    all.sort_by_key(|mount| mount.path.matches('/').count());
    all
}

/// Whether a path can stand in `/etc/fstab` as it is, which is how cloud-init writes it.
fn is_of_table(path: &str) -> bool {
    path.chars().all(|c| c.is_ascii_graphic() && !matches!(c, '\\' | '#'))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mount(entry: u16, path: &str, read_only: bool, is_file: bool) -> GuestMount {
        GuestMount { entry, path: path.into(), read_only, is_file }
    }

    fn some() -> [GuestMount; 4] {
        [
            mount(0, "/data/inner", true, false),
            mount(1, "/data", false, false),
            mount(2, "/etc/a.conf", true, true),
            mount(3, "/with a ' quote", false, false),
        ]
    }

    #[test]
    fn disks_are_mounted_by_their_links_before_what_may_be_below_them() {
        let disk = GuestDisk {
            link: "/dev/disk/by-id/virtio-scratch".into(),
            path: "/scratch".into(),
            file_system: "ext4",
            read_only: false,
        };
        let alone = json!({"mounts": [[disk.link, "/scratch", "ext4", format!("rw,{PATIENCE}"), "0", "2"]]});
        assert_eq!(Value::Object(cloud_config(&[], std::slice::from_ref(&disk))), alone);
        let both = cloud_config(&[mount(0, "/scratch/in", false, false)], &[disk]);
        assert_eq!(both["mounts"].as_array().map(Vec::len), Some(3));
        assert_eq!(both["mounts"][0], alone["mounts"][0]);
    }

    #[test]
    fn directories_are_lines_of_the_table_and_files_are_a_script() {
        insta::assert_snapshot!(serde_json::to_string_pretty(&cloud_config(&some(), &[])).expect("JSON"));
        assert!(cloud_config(&[], &[]).is_empty());
        assert!(!cloud_config(&[mount(0, "/data", false, false)], &[]).contains_key("bootcmd"));
    }

    #[test]
    fn the_script_is_for_all_of_them() {
        insta::assert_snapshot!(script(&some()));
        assert_eq!(script(&[]), "");
    }

    #[test]
    fn any_shell_takes_the_script() {
        for shell in ["sh", "bash"] {
            let checked =
                std::process::Command::new(shell).args(["-n", "-c", &script(&some())]).output().expect("a shell");
            assert!(checked.status.success(), "{shell}: {}", String::from_utf8_lossy(&checked.stderr));
        }
    }
}
