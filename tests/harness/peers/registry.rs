//! docker-registry, and disks pushed to it by skopeo: container disks as OCI layouts that we make, since the tools that
//! usually make them run containers.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use serde_json::{Value, json};

use super::disk::{Disk, sum};
use super::tokens::Tokens;
use super::{ADDRESS, furnish, listening};
use crate::case::Bed;
use crate::command::{command, run};
use crate::daemon::Daemon;

const PORT: u16 = 5000;
const PRIVATE_PORT: u16 = 5001;
const TOKEN_PORT: u16 = 5002;
/// `user` with password `secret`, by bcrypt: the registry knows nothing else.
const USERS: &str = "user:$2b$05$bRzqkDmHjmmaAWFvsbYwlO9pLUL8YKC.5KW9TTjP7XMUV12fAZCsK\n";
/// The user and password above, as skopeo takes them.
const CREDENTIALS: &str = "user:secret";

/// A registry.
#[derive(Debug)]
pub struct Registry {
    /// The process.
    pub daemon: Daemon,
    /// Host and port.
    pub host: String,
    credentials: Option<&'static str>,
    dir: PathBuf,
}

/// How a layer is packed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Packing {
    /// A plain tar file.
    Tar,
    /// The usual one.
    Gzip,
    /// The newer one.
    Zstd,
}

/// A disk in an image for a platform.
#[derive(Debug)]
pub struct Child<'a> {
    /// The disk.
    pub disk: &'a Disk,
    /// Architecture as OCI names it.
    pub architecture: &'a str,
    /// How its layer is packed.
    pub packing: Packing,
    /// Who its processes run as, as OCI's `config.User` says it; nobody in particular if empty.
    pub user: &'a str,
}

impl Registry {
    /// Starts one that lets everybody in.
    ///
    /// # Errors
    /// When it does not listen.
    pub fn start(bed: &Bed) -> Result<Self> {
        Self::at(bed, PORT, None, None)
    }

    /// Starts one that lets `user` in, with password `secret`.
    ///
    /// # Errors
    /// When it does not listen.
    pub fn private(bed: &Bed) -> Result<Self> {
        let users = bed.dir.join("users");
        fs::write(&users, USERS)?;
        let auth = json!({"htpasswd": {"realm": "images", "path": users}});
        Self::at(bed, PRIVATE_PORT, Some(CREDENTIALS), Some(auth))
    }

    /// Starts one that lets in whoever has a token of that service.
    ///
    /// # Errors
    /// When it does not listen.
    pub fn with_tokens(bed: &Bed, tokens: &Tokens) -> Result<Self> {
        Self::at(bed, TOKEN_PORT, Some(CREDENTIALS), Some(tokens.auth()))
    }

    fn at(bed: &Bed, port: u16, credentials: Option<&'static str>, auth: Option<Value>) -> Result<Self> {
        furnish()?;
        let dir = bed.dir.join(format!("registry-{port}"));
        fs::create_dir_all(&dir)?;
        let mut config = json!({
            "version": "0.1",
            "log": {"accesslog": {"disabled": false}, "level": "error"},
            "storage": {"filesystem": {"rootdirectory": dir.join("data")}},
            "http": {"addr": format!("{ADDRESS}:{port}"), "secret": "of the case"},
        });
        if let Some(auth) = auth {
            config["auth"] = auth;
        }
        // JSON is YAML.
        let file = dir.join("config.yml");
        fs::write(&file, config.to_string())?;
        let words = ["serve".into(), file.into_os_string()];
        let log = bed.logs().join(format!("registry-{port}.log"));
        let daemon = Daemon::start("docker-registry", "/usr/bin/docker-registry", words, log)?;
        let mut registry = Self { daemon, host: format!("{ADDRESS}:{port}"), credentials, dir };
        listening(&mut registry.daemon, port)?;
        Ok(registry)
    }

    /// Pushes an image of one platform under `NAME:TAG`; its name to pull.
    ///
    /// # Errors
    /// When a tool fails.
    pub fn push(&self, name: &str, child: &Child<'_>) -> Result<String> {
        let layout = self.layout()?;
        let manifest = layout.manifest(child)?;
        layout.write_index(&json!([manifest]))?;
        self.copy(&layout, name, false)
    }

    /// Pushes an index of images, one for each platform, under `NAME:TAG`; its name to pull.
    ///
    /// # Errors
    /// When a tool fails.
    pub fn push_index(&self, name: &str, children: &[Child<'_>]) -> Result<String> {
        let layout = self.layout()?;
        let manifests: Vec<Value> = children.iter().map(|child| layout.manifest(child)).collect::<Result<_>>()?;
        let index = json!({
            "schemaVersion": 2, "mediaType": "application/vnd.oci.image.index.v1+json", "manifests": manifests,
        });
        let descriptor = layout.blob_of(&index, "application/vnd.oci.image.index.v1+json")?;
        layout.write_index(&json!([descriptor]))?;
        self.copy(&layout, name, true)
    }

    /// Pushes a container image of one layer, a plain tar archive, under `NAME:TAG`, with these settings as OCI's `config` has them; its
    /// name to pull.
    ///
    /// # Errors
    /// When a tool fails.
    pub fn push_container(&self, name: &str, layer: &Path, settings: &Value) -> Result<String> {
        let layout = self.layout()?;
        let tar = layout.dir.join("layer.tar");
        fs::copy(layer, &tar)?;
        layout.write_index(&json!([layout.image("amd64", tar, Packing::Tar, settings)?]))?;
        self.copy(&layout, name, false)
    }

    /// Digest of what stands under `NAME:TAG`, as skopeo reads it.
    ///
    /// # Errors
    /// When skopeo fails.
    pub fn digest(&self, name: &str) -> Result<String> {
        let mut skopeo = command("skopeo", ["inspect", "--tls-verify=false", "--format", "{{.Digest}}"]);
        if let Some(credentials) = self.credentials {
            skopeo.args(["--creds", credentials]);
        }
        Ok(run(skopeo.arg(format!("docker://{}/{name}", self.host)))?.trim().to_owned())
    }

    /// How many requests of a method the registry's log has for blobs or manifests of a repository, but for skopeo's: of the last one of
    /// those nothing may be written down yet when skopeo has ended.
    ///
    /// # Errors
    /// When the log is gone.
    pub fn asked(&self, method: &str, what: &str) -> Result<usize> {
        let request = format!("\"{method} /v2/");
        let counts = |line: &&str| line.contains(&request) && line.contains(what) && !line.contains("\"skopeo/");
        Ok(self.daemon.log()?.lines().filter(counts).count())
    }

    fn layout(&self) -> Result<Layout> {
        let dir = tempfile::Builder::new().prefix("layout-").tempdir_in(&self.dir)?.keep();
        fs::create_dir_all(dir.join("blobs/sha256"))?;
        fs::write(dir.join("oci-layout"), json!({"imageLayoutVersion": "1.0.0"}).to_string())?;
        Ok(Layout { dir })
    }

    fn copy(&self, layout: &Layout, name: &str, all: bool) -> Result<String> {
        // Without `--preserve-digests` it packs what is plain.
        let words = ["--insecure-policy", "copy", "--quiet", "--preserve-digests", "--dest-tls-verify=false"];
        let mut skopeo = command("skopeo", words);
        if all {
            skopeo.arg("--all");
        }
        if let Some(credentials) = self.credentials {
            skopeo.args(["--dest-creds", credentials]);
        }
        let to = format!("{}/{name}", self.host);
        run(skopeo.arg(format!("oci:{}", layout.dir.display())).arg(format!("docker://{to}")))?;
        Ok(to)
    }
}

/// An OCI layout on disk.
struct Layout {
    dir: PathBuf,
}

impl Layout {
    /// An image whose one layer has the disk at `disk/disk.img`, owned by QEMU's user of KubeVirt; its descriptor.
    fn manifest(&self, child: &Child<'_>) -> Result<Value> {
        let tree = self.dir.join(format!("tree-{}", child.architecture));
        fs::create_dir_all(tree.join("disk"))?;
        fs::copy(&child.disk.path, tree.join("disk/disk.img"))?;
        let tar = self.dir.join("layer.tar");
        let (tree, shown) = (tree.display().to_string(), tar.display().to_string());
        run(&mut command("tar", ["--owner=107", "--group=107", "--mtime=@0", "-C", &tree, "-cf", &shown, "disk"]))?;
        let settings = if child.user.is_empty() { json!({}) } else { json!({"User": child.user}) };
        self.image(child.architecture, tar, child.packing, &settings)
    }

    /// An image of one layer, whose tar archive is moved or packed; its descriptor.
    fn image(&self, architecture: &str, tar: PathBuf, packing: Packing, settings: &Value) -> Result<Value> {
        let diff_id = format!("sha256:{}", sum("sha256sum", &tar)?);
        let shown = tar.display().to_string();
        let (packed, kind) = match packing {
            Packing::Tar => (tar, "application/vnd.oci.image.layer.v1.tar"),
            Packing::Gzip => {
                run(&mut command("gzip", ["-n", "-f", &shown]))?;
                (self.dir.join("layer.tar.gz"), "application/vnd.oci.image.layer.v1.tar+gzip")
            }
            Packing::Zstd => {
                run(&mut command("zstd", ["-q", "-f", "--rm", &shown]))?;
                (self.dir.join("layer.tar.zst"), "application/vnd.oci.image.layer.v1.tar+zstd")
            }
        };
        let layer = self.blob(&packed, kind)?;
        let config = json!({
            "architecture": architecture, "os": "linux", "config": settings,
            "rootfs": {"type": "layers", "diff_ids": [diff_id]},
        });
        let config = self.blob_of(&config, "application/vnd.oci.image.config.v1+json")?;
        let kind = "application/vnd.oci.image.manifest.v1+json";
        let manifest = json!({"schemaVersion": 2, "mediaType": kind, "config": config, "layers": [layer]});
        let mut descriptor = self.blob_of(&manifest, kind)?;
        descriptor["platform"] = json!({"os": "linux", "architecture": architecture});
        Ok(descriptor)
    }

    fn write_index(&self, manifests: &Value) -> Result<()> {
        let index = json!({"schemaVersion": 2, "manifests": manifests});
        Ok(fs::write(self.dir.join("index.json"), index.to_string())?)
    }

    fn blob_of(&self, document: &Value, kind: &str) -> Result<Value> {
        let file = self.dir.join("document");
        fs::write(&file, document.to_string())?;
        self.blob(&file, kind)
    }

    /// Moves a file to where its digest belongs; its descriptor.
    fn blob(&self, file: &Path, kind: &str) -> Result<Value> {
        let (digest, size) = (sum("sha256sum", file)?, fs::metadata(file)?.len());
        fs::rename(file, self.dir.join("blobs/sha256").join(&digest)).context("failed to move a blob")?;
        Ok(json!({"mediaType": kind, "digest": format!("sha256:{digest}"), "size": size}))
    }
}
