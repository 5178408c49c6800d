//! A mirror of Simple Streams, made by its own tools: items described and written by `json2streams`, signed, copied by
//! `sstream-mirror`, and read back by `sstream-query`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Result;
use serde_json::{Value, json};

use super::disk::{Disk, sum};
use super::gpg::Key;
use crate::case::Bed;
use crate::command::{command, run};

const CONTENT: &str = "test.bed:released";

/// What its publisher has.
#[derive(Debug)]
pub struct Streams {
    dir: PathBuf,
    peer: PathBuf,
    items: Vec<Value>,
    /// Who signs.
    pub key: Key,
}

impl Streams {
    /// An empty one in `dir`; the key's home is `home`.
    ///
    /// # Errors
    /// When no key can be made.
    pub fn create(bed: &Bed, dir: &Path, home: &Path) -> Result<Self> {
        fs::create_dir_all(dir)?;
        let key = Key::create(home, "rsa2048")?;
        Ok(Self { dir: dir.to_owned(), peer: bed.config.peer("python")?, items: Vec::new(), key })
    }

    /// Adds a version of a product.
    ///
    /// # Errors
    /// When the disk cannot be copied.
    pub fn add(&mut self, product: &str, arch: &str, version: &str, disk: &Disk) -> Result<()> {
        let path = format!("{product}/{version}/{arch}/disk.img");
        let to = self.dir.join(&path);
        fs::create_dir_all(to.parent().unwrap_or(&self.dir))?;
        fs::copy(&disk.path, &to)?;
        self.items.push(json!({
            "content_id": CONTENT, "product_name": format!("test.bed:{product}:{arch}"), "version_name": version,
            "item_name": "disk.img", "ftype": "disk.img", "path": path, "size": disk.size()?,
            "sha256": sum("sha256sum", &disk.path)?, "arch": arch, "release": product, "aliases": product,
            "pubname": format!("{product}-{arch}-{version}"),
        }));
        Ok(())
    }

    /// Writes index and products, and signs both.
    ///
    /// # Errors
    /// When a tool fails.
    pub fn publish(&self) -> Result<()> {
        let items = self.dir.join("items");
        fs::write(&items, Value::from(self.items.clone()).to_string())?;
        run(self.tool("json2streams").arg(&items).arg(&self.dir))?;
        for entry in fs::read_dir(self.dir.join("streams/v1"))? {
            let plain = entry?.path();
            if plain.extension().is_some_and(|extension| extension == "json") {
                // A signed index leads to signed products, and images are of a kind that the tool has no option for.
                let text = fs::read_to_string(&plain)?.replace(".json\"", ".sjson\"");
                let text = text.replace("\"content-download\"", "\"image-downloads\"");
                let clear = self.dir.join("clear");
                fs::write(&clear, text)?;
                self.key.clearsign(&clear, &plain.with_extension("sjson"))?;
            }
        }
        Ok(())
    }

    /// Copies what is published at `url` into a directory, as a mirror's operator would.
    ///
    /// # Errors
    /// When `sstream-mirror` finds something wrong with it.
    pub fn mirror(&self, url: &str, to: &Path) -> Result<()> {
        let url = format!("{url}/streams/v1/index.sjson");
        run(self.tool("sstream-mirror").arg("--keyring").arg(self.key.export_ring()?).arg(url).arg(to)).map(drop)
    }

    /// What `sstream-query` finds at `url`.
    ///
    /// # Errors
    /// When it finds something wrong with it.
    pub fn queried(&self, url: &str) -> Result<Value> {
        let url = format!("{url}/streams/v1/index.sjson");
        let ring = self.key.export_ring()?;
        let said = run(self.tool("sstream-query").args(["--json", "--keyring"]).arg(ring).arg(url))?;
        Ok(serde_json::from_str(&said)?)
    }

    fn tool(&self, name: &str) -> Command {
        let lib = self.peer.join("lib");
        let mut python = command("/usr/bin/python3", [lib.join("bin").join(name)]);
        python.env("PYTHONPATH", lib).env("PYTHONDONTWRITEBYTECODE", "1");
        python
    }
}
