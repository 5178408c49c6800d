//! `mounts` of a user's cloud-config that name a volume's disk by the path that the pod has for it, as Virtlet's users write them. That
//! path is a link that is made while the guest boots: too late for `/etc/fstab`, and where our agent makes it, for cloud-init, too. udev's
//! own link to the disk stands there instead.

use common::Reason;
use serde_json::Value;

use super::join;
use super::mounts::GuestDisk;
use crate::annotations::{Format, UserData};

/// User-data that names disks by udev's links. Byte for byte what it was if there is nothing to replace.
///
/// # Errors
/// When there are `mounts` and it is no document that can be written anew.
pub(super) fn by_id(user: UserData, disks: &[GuestDisk]) -> Result<UserData, Reason> {
    let disks: Vec<&GuestDisk> = disks.iter().filter(|disk| disk.is_linked()).collect();
    let (Format::CloudConfig(keys) | Format::Map(keys)) = user.format() else { return Ok(user) };
    if disks.is_empty() || !keys.contains("mounts") {
        return Ok(user);
    }
    let cannot = "user-data has `mounts`, in which volumes cannot be looked for";
    let map = user.map().map_err(|problem| Reason::new(format!("{cannot}: {problem}")))?;
    let mut map = map.unwrap_or_default();
    let mut is_changed = false;
    for line in map.get_mut("mounts").and_then(Value::as_array_mut).into_iter().flatten() {
        let Some(first) = line.as_array_mut().and_then(|fields| fields.first_mut()) else { continue };
        if let Some(link) = first.as_str().and_then(|device| link_of(device, &disks)) {
            *first = link.into();
            is_changed = true;
        }
    }
    if is_changed { join::cloud_config(&map) } else { Ok(user) }
}

/// The link for a pod's name of a disk, or of a partition as the kernel would name it.
fn link_of(device: &str, disks: &[&GuestDisk]) -> Option<String> {
    if let Some(disk) = disks.iter().find(|disk| disk.path == device) {
        return Some(disk.link.clone());
    }
    disks.iter().find_map(|disk| {
        let rest = device.strip_prefix(&disk.path)?;
        // The kernel puts a `p` between two numbers.
        let number = if disk.path.ends_with(|c: char| c.is_ascii_digit()) { rest.strip_prefix('p')? } else { rest };
        let is_number = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
        is_number.then(|| format!("{}-part{number}", disk.link))
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::seed::tests::disk;

    fn disks() -> Vec<GuestDisk> {
        vec![disk("testpvc", "/dev/testpvc", ""), disk("d0", "/dev/d0", ""), disk("scratch", "/scratch", "ext4")]
    }

    fn user(text: &str) -> UserData {
        UserData::of_file(text.as_bytes()).expect(text)
    }

    #[test]
    fn a_volume_is_mounted_by_udevs_link_to_its_disk() {
        let text = "mounts:\n- [/dev/testpvc, /a]\n- [/dev/testpvc2, /b, ext4]\n- [/dev/d0p1, /c]\n- [/dev/d01, /d]\n\
                    - [LABEL=x, /e]\n- [/scratch, /f]\n- /dev/testpvc\n- [1]\n- []\nruncmd: [[ls, /dev/testpvc]]\n";
        for text in [text.to_owned(), format!("#cloud-config\n{text}")] {
            let by_id = by_id(user(&text), &disks()).expect("replaced");
            assert!(by_id.for_cloud_init().starts_with(b"#cloud-config\n{"));
            let map = by_id.map().expect("YAML").expect("a map");
            let mounts = json!([
                ["/dev/disk/by-id/virtio-testpvc", "/a"],
                ["/dev/disk/by-id/virtio-testpvc-part2", "/b", "ext4"],
                ["/dev/disk/by-id/virtio-d0-part1", "/c"],
                ["/dev/d01", "/d"],
                ["LABEL=x", "/e"],
                ["/scratch", "/f"],
                "/dev/testpvc",
                [1],
                [],
            ]);
            assert_eq!((&map["mounts"], &map["runcmd"]), (&mounts, &json!([["ls", "/dev/testpvc"]])));
        }
    }

    #[test]
    fn a_disk_of_this_very_name_comes_before_a_partition() {
        let mut disks = disks();
        disks.push(GuestDisk {
            link: "/dev/disk/by-id/virtio-other".into(),
            path: "/dev/testpvc1".into(),
            ..disks[0].clone()
        });
        let by_id = by_id(user("mounts: [[/dev/testpvc1, /a]]"), &disks).expect("replaced");
        assert_eq!(by_id.map().expect("YAML").expect("a map")["mounts"][0][0], "/dev/disk/by-id/virtio-other");
    }

    #[test]
    fn what_names_no_volume_stays_byte_for_byte() {
        for text in [
            "#cloud-config\n# mine\nmounts: [[/dev/vdb, /a]]\n",
            "#cloud-config\nmounts: ~\n",
            "#cloud-config\nruncmd: [[mount, /dev/testpvc, /a]]\nx: .inf\n",
            "#!/bin/sh\nmounts: [[/dev/testpvc, /a]]\n",
            "## template: jinja\n#cloud-config\nmounts: [[/dev/testpvc, /a]]\n",
        ] {
            assert_eq!(by_id(user(text), &disks()).expect(text), user(text));
        }
        let named = "#cloud-config\nmounts: [[/dev/testpvc, /a]]\nx: .inf\n";
        assert_eq!(by_id(user(named), &[]).expect("none to look for"), user(named));
        let refusal = by_id(user(named), &disks()).expect_err("refused").to_string();
        assert_eq!(refusal, "user-data has `mounts`, in which volumes cannot be looked for: not valid YAML: line 3");
    }
}
