//! What cases leave among the links of an emulated node, which end with nothing: [`crate::cell`] has it swept away.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result};

use crate::command::sh;

const LINKS: &str = "/sys/class/net";

/// The names of the machine's links.
pub(crate) fn links() -> Result<Vec<String>> {
    let names = fs::read_dir(LINKS)?.map(|entry| Ok(entry?.file_name()));
    names.map(|name: Result<_>| name?.into_string().ok().context("a link whose name is no text")).collect()
}

/// Removes all links but those that are `known` and those of devices, and the firewall.
pub(crate) fn but(known: &[String]) -> Result<()> {
    for link in links()?.iter().filter(|link| !known.contains(link)) {
        let at = Path::new(LINKS).join(link);
        // Gone with its peer, perhaps.
        if at.exists() && !at.join("device").exists() {
            sh(&format!("ip link del {link}"))?;
        }
    }
    sh("nft flush ruleset")?;
    Ok(())
}
