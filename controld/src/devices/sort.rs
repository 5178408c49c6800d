//! What a device node is to a machine, by its name alone. Pure.

use std::path::{Component, Path};

/// Nodes by which a process reaches what QEMU has anyway. Device plugins hand them out so that pods come to nodes that have them.
const TOKENS: [&str; 6] =
    ["/dev/vfio/vfio", "/dev/iommu", "/dev/kvm", "/dev/net/tun", "/dev/vhost-net", "/dev/vhost-vsock"];

/// A device node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Sort {
    /// It says where a pod may run, and nothing is given.
    Token,
    /// All that a process may have of an IOMMU group.
    Group(u32),
    /// One device, by the name of its file in `/dev/vfio/devices`.
    File(String),
    /// A disk, or nothing for a machine.
    Other,
}

impl Sort {
    pub(super) fn of(path: &str) -> Self {
        if TOKENS.contains(&path) {
            return Self::Token;
        }
        let mut parts = Vec::new();
        for part in Path::new(path).components() {
            match part {
                Component::RootDir => {}
                Component::Normal(part) => parts.push(part.to_str().unwrap_or_default()),
                _ => return Self::Other,
            }
        }
        match parts[..] {
            ["dev", "vfio", number] if is_digits(number) => number.parse().map_or(Self::Other, Self::Group),
            ["dev", "vfio", "devices", name] if name.strip_prefix("vfio").is_some_and(is_digits) => {
                Self::File(name.to_owned())
            }
            _ => Self::Other,
        }
    }
}

fn is_digits(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_node_is_known_by_its_name() {
        for path in ["/dev/vfio/vfio", "/dev/iommu", "/dev/kvm", "/dev/net/tun", "/dev/vhost-net", "/dev/vhost-vsock"] {
            assert_eq!(Sort::of(path), Sort::Token, "{path}");
        }
        // A device of its own, for one process.
        assert_eq!(Sort::of("/dev/vhost-vdpa-0"), Sort::Other);
        assert_eq!(Sort::of("/dev/vfio/12"), Sort::Group(12));
        assert_eq!(Sort::of("/dev/vfio/devices/vfio3"), Sort::File("vfio3".into()));
        for path in [
            "/dev/vhost-/../sda",
            "/dev/vhost-net/sda",
            "/dev/vfio/noiommu-0",
            "/dev/vfio/devices/noiommu-vfio0",
            "/dev/vfio/99999999999",
            "/dev/vfio/+1",
            "/dev/vfio/devices/vfio",
            "/dev/vfio/../kvm",
            "dev/vfio/",
            "/dev/loop3",
            "",
        ] {
            assert_eq!(Sort::of(path), Sort::Other, "{path}");
        }
    }
}
