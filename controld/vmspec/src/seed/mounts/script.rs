//! The script that mounts disks and volumes, and links to disks, in a guest of which nothing is known but that it has a shell: no udev, no
//! agent, busybox perhaps. A disk is found by its serial in `/sys`, where virtio disks have a file of it and those of SCSI and SATA a
//! page (SPC, "Unit Serial Number VPD page"), in which four bytes come before it.

use proto::agent::{SHARE_DIR, SHARE_TAG};

use super::{Exec, GuestDisk, GuestMount, HARMLESS, Place};

/// The kernel may look for disks while the script runs. A disk that is mounted anywhere is left where it is. Of one of which nobody says what is on it, the first partition is meant, if it has one.
const DISKS: &str = r#"virtlet_sys=/sys
virtlet_find() {
	for virtlet_block in "$virtlet_sys"/block/*; do
		if [ -e "$virtlet_block/serial" ]; then
			virtlet_serial=$(tr -d ' \n' <"$virtlet_block/serial")
		elif [ -e "$virtlet_block/device/vpd_pg80" ]; then
			virtlet_serial=$(tail -c +5 "$virtlet_block/device/vpd_pg80" | tr -d ' \000')
		else
			continue
		fi
		if [ "$virtlet_serial" = "$1" ]; then
			virtlet_node=/dev/${virtlet_block##*/}
			return 0
		fi
	done
	return 1
}
virtlet_disk() {
	for virtlet_try in 1 2 3 4 5 6 7 8 9 10; do
		virtlet_find "$1" && return 0
		sleep 1
	done
	echo "virtlet: no disk has the serial $1" >&2
	return 1
}
virtlet_link() {
	virtlet_disk "$1" || return 1
	[ "$virtlet_node" = "$2" ] && return 0
	if [ -e "$2" ] && [ ! -L "$2" ]; then
		echo "virtlet: $2 is no link to a disk, and stays what it is" >&2
		return 1
	fi
	mkdir -p "$(dirname "$2")"
	ln -sfn "$virtlet_node" "$2"
}
virtlet_mount() {
	virtlet_disk "$1" || return 1
	if [ "$3" = auto ] && [ -e "${virtlet_node}1" ]; then
		virtlet_node=${virtlet_node}1
	fi
	virtlet_node=$virtlet_node${5:-}
	grep -q "^$virtlet_node " /proc/mounts && return 0
	mkdir -p "$2"
	mount -t "$3" -o "$4" "$virtlet_node" "$2"
}
"#;

/// For these, in their order. Empty if there are none.
pub(super) fn of(all: &[Place<'_>], exec: Exec) -> String {
    let mut script = String::new();
    if all.iter().any(|place| matches!(place, Place::Disk(_))) {
        script += DISKS;
    }
    if all.iter().any(|place| matches!(place, Place::Share(_))) {
        script += &share(exec);
    }
    for place in all {
        script += &match place {
            Place::Share(mount) => {
                let GuestMount { entry, path, read_only, .. } = mount;
                format!("virtlet_bind {entry} {} {}{}\n", quoted(path), super::mode(*read_only), exec.of_bind(mount))
            }
            Place::Disk(disk) => disk_line(disk),
        };
    }
    script
}

fn disk_line(disk: &GuestDisk) -> String {
    let (serial, path) = (quoted(&disk.serial), quoted(&disk.path));
    match disk.file_system {
        "" => format!("virtlet_link {serial} {path}\n"),
        kind => {
            let partition = Some(disk.partition).filter(|number| *number != 0);
            let partition = partition.map(|number| format!(" {number}")).unwrap_or_default();
            format!("virtlet_mount {serial} {path} {kind} {}{partition}\n", disk.mount_options())
        }
    }
}

/// Binds have the flags that the share is mounted with. What the node has mounted below a volume that is read-only may be writable there.
fn share(exec: Exec) -> String {
    let of_share = exec.of_share();
    format!(
        "virtlet_share={SHARE_DIR}\n\
         [ -e \"$virtlet_share/0\" ] || {{ mkdir -p \"$virtlet_share\"; mount -t virtiofs -o {HARMLESS}{of_share} {SHARE_TAG} \"$virtlet_share\"; }}\n\
         virtlet_bind() {{\n\
         \t[ \"$virtlet_share/$1\" -ef \"$2\" ] && return 0\n\
         \tif [ -d \"$virtlet_share/$1\" ]; then\n\
         \t\tmkdir -p \"$2\"\n\
         \telse\n\
         \t\tmkdir -p \"$(dirname \"$2\")\"\n\
         \t\t[ -e \"$2\" ] || : >\"$2\"\n\
         \tfi\n\
         \tmount -o bind \"$virtlet_share/$1\" \"$2\" || return\n\
         \t[ \"$3\" = rw ] || mount -o \"remount,bind,$3,{HARMLESS}\" \"$2\"\n\
         }}\n"
    )
}

/// As one word of a shell, whose string ends at its quote alone.
fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "'\\''"))
}
