//! Tier `seed`: what cloud-init makes of the seeds that controld writes, by cloud-init itself, and without a guest.
//!
//! The seeds are made by the function of controld's that makes them for pods; suites of Debian have the versions of cloud-init.

mod forms;
mod networks;
mod rendered;

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context as _, Result};
use proto::tap::PodNet;
use tests::case::{Bed, Case};
use tests::command::command;
use vmspec::annotations::PodAnnotations;
use vmspec::seed::{ConfigDelivery, Seed, SeedInput, Sources, assemble};

/// The oldest of cloud-init that we care for, which our Debian guest has, and that of the newest release of Debian: a suite that moves on would be another one each day.
const SUITES: [&str; 2] = ["bookworm", "trixie"];

pub(crate) fn cases() -> impl Iterator<Item = Case> {
    [networks::CASES, forms::CASES].into_iter().flatten().copied()
}

/// What a pod's seed is made of here.
struct Pod<'a> {
    annotations: &'a [(&'a str, &'a str)],
    net: &'a PodNet,
    sources: &'a Sources,
    /// As `NAME=value`.
    env: &'a [String],
}

impl Pod<'_> {
    fn seed(&self) -> Result<Seed> {
        let annotations = self.annotations.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
        let annotations = PodAnnotations::parse(&annotations.collect())?;
        Ok(assemble(&SeedInput {
            pod_name: "vm",
            namespace: "default",
            uid: "6f0b",
            instance: None,
            hostname: "",
            hosts: "",
            annotations: &annotations,
            net: self.net,
            agent: None,
            kind: annotations.seed.unwrap_or_default(),
            network: annotations.network_config.unwrap_or_default(),
            delivery: ConfigDelivery::default(),
            credentials: false,
            sources: self.sources,
            env: self.env,
            mounts: &[],
            disks: &[],
            has_agent: false,
        })?)
    }
}

/// One of the versions of cloud-init.
struct CloudInit {
    peer: PathBuf,
    suite: &'static str,
    version: String,
}

impl CloudInit {
    fn all(bed: &Bed) -> Result<Vec<Self>> {
        let peer = bed.config.peer("cloud-init")?;
        let of = |suite: &'static str| {
            let file = peer.join(suite).with_extension("version");
            let version = fs::read_to_string(&file).with_context(|| file.display().to_string())?;
            Ok(Self { peer: peer.clone(), suite, version: version.trim().to_owned() })
        };
        SUITES.into_iter().map(of).collect()
    }

    /// Its Python, for one of the peer's own scripts.
    fn python(&self, script: &str) -> Command {
        let paths = [self.suite, "lib"].map(|dir| self.peer.join(dir).display().to_string()).join(":");
        let mut python = command("/usr/bin/python3", [self.peer.join(script)]);
        python.env("PYTHONPATH", paths).env("PYTHONDONTWRITEBYTECODE", "1");
        python
    }
}
