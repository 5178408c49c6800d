//! Descriptors of `/dev/vhost-net`, with which the kernel itself moves frames between a tap and its guest.
//!
//! Opened at a hand-off beside the queues, one for each, so that QEMU's user needs no right to the device.

use std::fs::OpenOptions;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;

/// The device.
pub(crate) const DEVICE: &str = "/dev/vhost-net";

/// Opens the device at `path` `count` times; none if the node has no such device.
pub(crate) fn open(path: &Path, count: usize) -> io::Result<Vec<OwnedFd>> {
    let open = |_| OpenOptions::new().read(true).write(true).open(path).map(OwnedFd::from);
    match (0..count).map(open).collect() {
        Err(error) if is_absent(&error) => Ok(Vec::new()),
        opened => opened,
    }
}

/// No node, or one that no module stands behind.
fn is_absent(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotFound || matches!(error.raw_os_error(), Some(libc::ENODEV | libc::ENXIO))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_without_the_device_does_without() {
        let dir = tempfile::tempdir().expect("a directory");
        assert!(open(&dir.path().join("vhost-net"), 3).expect("none").is_empty());
    }

    #[test]
    fn one_descriptor_for_each_queue() {
        let file = tempfile::NamedTempFile::new().expect("a file");
        assert_eq!(open(file.path(), 3).expect("opened").len(), 3);
    }

    #[test]
    fn another_failure_is_not_passed_over() {
        let dir = tempfile::tempdir().expect("a directory");
        assert!(open(dir.path(), 1).is_err(), "a directory is no device");
    }
}
