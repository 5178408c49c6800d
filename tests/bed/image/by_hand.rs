//! What no rule and no provider leads to: files, URLs with capitals, and images of a registry that nobody configured; and lists
//! of checksums as coreutils write them.

use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use serde_json::json;
use tests::case::{Bed, Case};
use tests::command::{command, run};
use tests::image_node::{ImageNode, STORE};
use tests::peers::disk::Disk;
use tests::peers::nginx::Nginx;
use tests::peers::registry::{Child, Packing, Registry};
use tests::store_view::StoreView;
use tonic::Code;

const DEADLINE: Duration = Duration::from_secs(480);

pub(super) const CASES: &[Case] = &[
    Case { name: "image::images_come_by_hand", deadline: DEADLINE, run: by_hand },
    Case { name: "image::lists_of_checksums_are_kept_to", deadline: DEADLINE, run: lists },
];

fn by_hand(bed: &Bed) -> Result<()> {
    let (registry, nginx) = (Registry::start(bed)?, Nginx::start(bed)?);
    let mut node = ImageNode::start(bed, "", "")?;
    let disks = bed.dir.join("disks");
    let [one, two, three] = [("one", 1), ("two", 2), ("three", 3)].map(|(name, mark)| Disk::create(&disks, name, mark));
    let (one, two, three) = (one?, two?, three?);

    let name = registry.push("vm:1", &Child { disk: &one, architecture: "amd64", packing: Packing::Gzip, user: "" })?;
    ensure!(node.pull(&name)? == one.id, "{name}: another image");
    let refused = node.pull(&format!("{}/none:1", registry.host)).err().context("the registry has no such image")?;
    ensure!(refused.code() == Code::NotFound, "{refused}");

    nginx.put("Dir/Two.qcow2", &two.path)?;
    let pulled = node.virtletctl_ok(&["image", "pull", &format!("{}?a=B", nginx.plain("Dir/Two.qcow2"))])?;
    ensure!(pulled.trim() == two.id, "{pulled}");

    let packed = three.packed("xz", ".xz")?;
    let (packed, out) = (packed.to_str().context("UTF-8")?, bed.dir.join("out"));
    let taken = node.virtletctl_ok(&["image", "import", packed, "localhost/three"])?;
    ensure!(taken.trim() == three.id, "{taken}");
    ensure!(node.pull("localhost/three")? == three.id, "a pod has another one");
    node.restart()?;
    ensure!(node.pull("localhost/three:latest")? == three.id, "it is forgotten");
    node.virtletctl_ok(&["image", "save", "localhost/three", out.to_str().context("UTF-8")?])?;
    ensure!(fs::read(&out)? == fs::read(&three.path)?, "another disk came back");

    let gone = node.virtletctl_ok(&["image", "prune", "--force"])?;
    ensure!(gone.contains(&one.id) && gone.contains(&two.id) && !gone.contains(&three.id), "{gone}");
    node.virtletctl_ok(&["image", "prune", "--force", "--all"])?;
    ensure!(node.list()?.is_empty(), "something stays");
    node.reconfigure(bed, "images.import = false", "")?;
    let refused = node.virtletctl(&["image", "import", packed, "x/y"])?;
    ensure!(refused.code == Some(1) && refused.stderr.contains("`images.import` is off"), "{refused:?}");
    StoreView::settled(Path::new(STORE))?.assert_no_orphans()
}

fn lists(bed: &Bed) -> Result<()> {
    let node = ImageNode::start(bed, "", "")?;
    let nginx = Nginx::start(bed)?;
    let disks = bed.dir.join("disks");
    let (old, new) = (Disk::create(&disks, "old", 1)?, Disk::create(&disks, "new", 2)?);
    nginx.put("Image.qcow2", &old.path)?;
    let write = |tool: &str, tag: &[&str]| -> Result<()> {
        let list = run(command(tool, tag).arg("Image.qcow2").current_dir(nginx.root()))?;
        Ok(fs::write(nginx.root().join("SUMS"), list)?)
    };
    let rule = json!({"name": "image", "url": nginx.plain("Image.qcow2"), "checksums": nginx.plain("SUMS")});
    node.translations(&json!({"translations": [rule]}))?;
    for (tool, tag) in
        [("sha256sum", &[][..]), ("sha512sum", &["--binary"]), ("sha256sum", &["--tag"]), ("sha512sum", &["--tag"])]
    {
        write(tool, tag)?;
        ensure!(node.pull("image")? == old.id, "{tool} {tag:?}");
    }
    write("md5sum", &[])?;
    let refused = node.pull("image").err().context("taken by MD5")?;
    ensure!(refused.message().contains("it has no SHA-256 or SHA-512 of `Image.qcow2`"), "{refused}");
    write("sha256sum", &[])?;
    nginx.put("Image.qcow2", &new.path)?;
    node.remove("image", "")?;
    let refused = node.pull("image").err().context("not what the list says")?;
    ensure!(refused.message().starts_with("DigestMismatch"), "{refused}");
    write("sha256sum", &[])?;
    ensure!(node.pull("image")? == new.id, "another image");
    StoreView::settled(Path::new(STORE))?.assert_no_orphans()
}
