//! A stand-in for vmwrapper, that goes wrong where a case wants it to.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use anyhow::Result;
use tests::case::Bed;
use tests::node::{self, Node};

/// Writes the stand-in: it answers libvirt's probes like the real one and does `body`, a shell's, for a pod's machine.
pub(super) fn write(bed: &Bed, body: &str) -> Result<()> {
    let script = format!(
        "#!/bin/sh\nreal={}\n[ -n \"$VIRTLET_TOKEN\" ] || exec \"$real\" \"$@\"\n{body}\n",
        bed.vmwrapper().display()
    );
    let path = bed.dir.join("stand-in");
    fs::write(&path, script)?;
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755))?;
    Ok(())
}

/// A node whose controld has the stand-in for vmwrapper, and `more` lines of configuration, while tapmanager only trusts
/// the real one.
pub(super) fn node(bed: &Bed, body: &str, more: &str) -> Result<Node> {
    write(bed, body)?;
    let mut node = Node::start(bed)?;
    let config = node::config(bed, more)
        .replace(&bed.vmwrapper().display().to_string(), &bed.dir.join("stand-in").display().to_string());
    node.controld.terminate()?;
    fs::write("/etc/virtlet/controld.toml", config)?;
    node.controld.start_again()?;
    node.wait_ready()?;
    Ok(node)
}
