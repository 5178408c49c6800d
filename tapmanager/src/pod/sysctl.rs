//! Settings of a pod's namespace: their names as paths, and the writing of them. Called by [`super::request`] to check
//! names, and by the kernel's [`super::World`] to set them.
//!
//! The kernel shows every task the `/proc/sys/net` of its own namespace, whichever mount of `/proc` it looks through, so
//! a short thread inside the namespace writes there. What is not a namespace's own is not shown in there at all, or
//! cannot be written. Settings hold for the namespace's own stack, for what plugins do in it, and not for the guest's.

use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use crate::sys::netns::{Netns, NetnsError};

const ROOT: &str = "/proc/sys";
/// All that is a namespace's own is below.
const OURS: &str = "net";
/// Longest name: five parts, one of which is a link's name, with room.
const MAX_NAME: usize = 128;

/// A setting was not set.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SysctlError {
    #[error(transparent)]
    Netns(#[from] NetnsError),
    #[error("the kernel refuses sysctl `{name}` = `{value}` in the pod's namespace")]
    Refused {
        name: String,
        value: String,
        #[source]
        cause: io::Error,
    },
}

/// The file below `/proc/sys` that a name means; `None` if it is no name, or none of the network.
///
/// As sysctl(8) has it: the first separator, `.` or `/`, separates, and the other one stands for it inside a part, as in
/// `net.ipv4.conf.eth0/1.arp_notify` or `net/ipv4/conf/eth0.1/arp_notify`.
pub(super) fn path(name: &str) -> Option<PathBuf> {
    let separator = name.chars().find(|c| matches!(c, '.' | '/'))?;
    if name.len() > MAX_NAME
        || !name.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'/' | b'-' | b'_'))
    {
        return None;
    }
    let mut path = PathBuf::from(ROOT);
    let mut parts = 0;
    for part in name.split(separator) {
        let part = if separator == '.' { part.replace('/', ".") } else { part.to_owned() };
        if part.is_empty() || part.starts_with('.') || (parts == 0 && part != OURS) {
            return None;
        }
        path.push(part);
        parts += 1;
    }
    (parts > 1).then_some(path)
}

/// Sets all of `sysctls` in the namespace, in the order of their names.
pub(super) async fn set(netns: &Netns, sysctls: &BTreeMap<String, String>) -> Result<(), SysctlError> {
    let sysctls = sysctls.clone();
    netns.visit(move || sysctls.into_iter().try_for_each(|(name, value)| set_here(name, value))).await?
}

fn set_here(name: String, value: String) -> Result<(), SysctlError> {
    let written =
        path(&name).ok_or_else(|| io::Error::from(io::ErrorKind::InvalidInput)).and_then(|path| write(&path, &value));
    written.map_err(|cause| SysctlError::Refused { name, value, cause })
}

/// In one piece: a second one would be another setting.
fn write(path: &Path, value: &str) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).open(path)?;
    if file.write(value.as_bytes())? == value.len() { Ok(()) } else { Err(io::ErrorKind::InvalidInput.into()) }
}

#[cfg(test)]
mod tests;
