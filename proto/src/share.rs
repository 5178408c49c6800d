//! What `fswrapper` is to share with a guest: `controld` writes it to the file [`FILE`] of the directory that libvirt is told to share,
//! and `fswrapper` reads it there, before it covers the directory with what the guest is to see: an entry for each mount, named
//! by its number from 0.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

/// Name of the file.
pub const FILE: &str = "share.json";
/// Name of the file beside it, in which `fswrapper` says its process id, which virtiofsd keeps.
pub const PID_FILE: &str = "pid";
/// Name of a link beside it to `fswrapper`, by which libvirt starts it: so it knows of which share it is asked what its virtiofsd can.
pub const WRAPPER: &str = "fswrapper";
/// Most mounts of a share.
pub const MAX_MOUNTS: usize = 256;
/// How virtiofsd runs, beside its socket and directory. The guest's root makes no device nodes and gives files no capabilities: on the
/// node, they would be the node's. File handles would leave it the capability to open any file of a file system by its number, so it
/// has a descriptor for each file that the guest knows. File systems below an entry are told apart, so that no two files have one number.
pub const VIRTIOFSD_OPTIONS: [&str; 8] = [
    "--sandbox=namespace",
    "--seccomp=kill",
    "--modcaps=-mknod:-setfcap",
    "--inode-file-handles=never",
    "--announce-submounts",
    "--xattr",
    "--cache=auto",
    "--log-level=warn",
];
/// Most bytes of the file: all mounts, with paths as long as Linux takes them.
const MAX_FILE: u64 = 4 << 20;

/// A share.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Share {
    /// The real virtiofsd.
    pub virtiofsd: PathBuf,
    /// What the guest is to see, in the order of the entries.
    pub mounts: Vec<Bind>,
}

/// A directory or file of the node that a guest is to see.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Bind {
    /// Where it is on the node. Symbolic links are followed.
    pub source: PathBuf,
    /// Whether the guest may only read it.
    pub read_only: bool,
    /// Whether it may only read what is mounted below it on the node, too: then [`Self::follows`] is not set.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub recursive: bool,
    /// Whether what is mounted below it on the node later is seen, too.
    pub follows: bool,
    /// Whether kubelet fills it, as it does a Secret: its files are links then, which each user of the guest is to be able to follow.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub filled: bool,
}

impl Share {
    /// Reads what stands in the directory `dir`.
    ///
    /// # Errors
    /// When it cannot be read, is too long, or says something else.
    pub fn read(dir: &Path) -> io::Result<Self> {
        let mut bytes = Vec::new();
        File::open(dir.join(FILE))?.take(MAX_FILE + 1).read_to_end(&mut bytes)?;
        if bytes.len() as u64 > MAX_FILE {
            return Err(invalid(format!("is longer than {MAX_FILE} bytes")));
        }
        let share: Self = serde_json::from_slice(&bytes).map_err(invalid)?;
        if share.mounts.len() > MAX_MOUNTS {
            return Err(invalid(format!("has {} mounts, the limit is {MAX_MOUNTS}", share.mounts.len())));
        }
        Ok(share)
    }

    /// What is to stand in the file.
    ///
    /// # Errors
    /// When a path is no text.
    pub fn encode(&self) -> io::Result<Vec<u8>> {
        serde_json::to_vec(self).map_err(invalid)
    }
}

/// Whether this is what a virtiofsd says that it can, as QEMU's specification of such programs has it.
///
/// # Errors
/// When it is not JSON, or not of a file system.
pub fn check_capabilities(said: &[u8]) -> io::Result<()> {
    #[derive(Deserialize)]
    struct Capabilities {
        r#type: String,
        #[serde(default, rename = "features")]
        _features: Vec<String>,
    }
    let Capabilities { r#type, .. } = serde_json::from_slice(said).map_err(invalid)?;
    if r#type == "fs" { Ok(()) } else { Err(invalid(format!("is of type `{}`, not `fs`", r#type.escape_debug()))) }
}

fn invalid(why: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn share(mounts: usize) -> Share {
        let bind = Bind { source: "/srv/a b".into(), read_only: true, recursive: true, follows: false, filled: true };
        Share { virtiofsd: "/usr/libexec/virtiofsd".into(), mounts: vec![bind; mounts] }
    }

    #[test]
    fn what_was_written_is_read() {
        let dir = tempfile::tempdir().expect("dir");
        std::fs::write(dir.path().join(FILE), share(2).encode().expect("text")).expect("written");
        assert_eq!(Share::read(dir.path()).expect("read"), share(2));
    }

    #[test]
    fn what_a_virtiofsd_can_is_told_from_other_texts() {
        for said in [r#"{"type": "fs"}"#, r#"{"type":"fs","features":["migrate-precopy"],"more":[1]}"#] {
            check_capabilities(said.as_bytes()).expect("taken");
        }
        for other in ["", "virtiofsd 1.2", "{}", r#"{"type":"gpu"}"#, r#"{"type":"fs","features":"all"}"#] {
            check_capabilities(other.as_bytes()).expect_err(other);
        }
    }

    #[test]
    fn what_is_no_share_is_refused() {
        let dir = tempfile::tempdir().expect("dir");
        let refused = |content: &[u8]| {
            std::fs::write(dir.path().join(FILE), content).expect("written");
            Share::read(dir.path()).expect_err("refused").to_string()
        };
        let many = refused(&share(MAX_MOUNTS + 1).encode().expect("text"));
        assert_eq!(many, "has 257 mounts, the limit is 256");
        assert_eq!(refused(&vec![b' '; 5 << 20]), "is longer than 4194304 bytes");
        assert!(refused(b"{}").contains("missing field"), "no fields");
        assert!(refused(br#"{"virtiofsd":"/x","mounts":[],"more":1}"#).contains("unknown field"), "another field");
        std::fs::remove_file(dir.path().join(FILE)).expect("removed");
        assert_eq!(Share::read(dir.path()).expect_err("absent").kind(), io::ErrorKind::NotFound);
    }
}
