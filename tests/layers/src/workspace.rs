//! The workspace as cargo describes it: packages, what they depend on, and where their sources begin.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use serde::Deserialize;

#[derive(Debug)]
pub(crate) struct Workspace {
    pub(crate) root: PathBuf,
    pub(crate) packages: Vec<Package>,
}

#[derive(Debug)]
pub(crate) struct Package {
    pub(crate) name: String,
    pub(crate) manifest: PathBuf,
    pub(crate) targets: Vec<Target>,
    /// Packages of this workspace that it depends on, with the features that it asks for. Tests may use everything.
    pub(crate) dependencies: Vec<Dependency>,
    /// Packages of others that it depends on.
    pub(crate) foreign: Vec<String>,
}

/// A library or a program.
#[derive(Debug)]
pub(crate) struct Target {
    /// As paths begin: with underscores.
    pub(crate) name: String,
    pub(crate) root: PathBuf,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Dependency {
    pub(crate) name: String,
    #[serde(default)]
    pub(crate) features: Vec<String>,
    kind: Option<String>,
    path: Option<PathBuf>,
}

impl Workspace {
    /// Asks cargo.
    pub(crate) fn read(manifest: &Path) -> Result<Self> {
        let output = Command::new("cargo")
            .args(["metadata", "--offline", "--no-deps", "--format-version", "1", "--manifest-path"])
            .arg(manifest)
            .output()
            .context("failed to start `cargo metadata`")?;
        ensure!(output.status.success(), "`cargo metadata`: {}", String::from_utf8_lossy(&output.stderr));
        let metadata = serde_json::from_slice(&output.stdout).context("failed to read what `cargo metadata` prints")?;
        Ok(Self::of(metadata))
    }

    fn of(metadata: Metadata) -> Self {
        let packages = metadata.packages.into_iter().map(|package| {
            let used = package.dependencies.into_iter().filter(|one| one.kind.as_deref() != Some("dev"));
            let (dependencies, foreign): (Vec<_>, Vec<_>) = used.partition(|one| one.path.is_some());
            Package {
                name: package.name,
                manifest: package.manifest_path,
                targets: package
                    .targets
                    .into_iter()
                    .filter(|target| target.kind.iter().any(|kind| kind == "lib" || kind == "bin"))
                    .map(|target| Target { name: target.name.replace('-', "_"), root: target.src_path })
                    .collect(),
                dependencies,
                foreign: foreign.into_iter().map(|one| one.name).collect(),
            }
        });
        Self { root: metadata.workspace_root, packages: packages.collect() }
    }
}

#[derive(Debug, Deserialize)]
struct Metadata {
    packages: Vec<MetadataPackage>,
    workspace_root: PathBuf,
}

#[derive(Debug, Deserialize)]
struct MetadataPackage {
    name: String,
    manifest_path: PathBuf,
    targets: Vec<MetadataTarget>,
    dependencies: Vec<Dependency>,
}

#[derive(Debug, Deserialize)]
struct MetadataTarget {
    name: String,
    kind: Vec<String>,
    src_path: PathBuf,
}
