//! A store on a small file system.

use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use serde_json::json;
use tests::case::{Bed, Case};
use tests::command::sh;
use tests::image_node::{ImageNode, STORE};
use tests::image_server::{Fault, ImageServer};
use tests::peers::disk::Disk;
use tests::store_view::StoreView;
use tonic::Code;

const DEADLINE: Duration = Duration::from_secs(480);

pub(super) const CASES: &[Case] =
    &[Case { name: "image::a_full_disk_refuses_and_goes_on_serving", deadline: DEADLINE, run: full }];

/// What does not fit is refused: by its announced length, and when it turns out so only on the way.
fn full(bed: &Bed) -> Result<()> {
    fs::create_dir_all(STORE)?;
    sh(&format!("mount -t tmpfs -o size=24m,mode=711 small {STORE}"))?;
    let node = ImageNode::start(bed, "images.allow_raw = true", "")?;
    let server = ImageServer::start()?;
    let disks = bed.dir.join("disks");
    let small = Disk::create(&disks, "small", 1)?;
    let large = disks.join("large.raw");
    sh(&format!("dd if=/dev/urandom of={} bs=1M count=40 status=none", large.display()))?;
    let packed = disks.join("packed");
    // Packs to little, and is not zeros.
    fs::write(&packed, b"0123456789abcdef".repeat(40 << 16))?;
    sh(&format!("gzip -f {}", packed.display()))?;
    server.offer("small", &small.path, Fault::None);
    server.offer("large", &large, Fault::None);
    server.offer("packed", &packed.with_extension("gz"), Fault::None);
    server.offer("endless", &large, Fault::Endless);
    let rules = ["small", "large", "packed", "endless"].map(|name| json!({"name": name, "url": server.url(name)}));
    node.translations(&json!({"translations": rules}))?;
    node.pull("small").context("what fits")?;
    for name in ["large", "packed", "endless"] {
        let refused = node.pull(name).err().with_context(|| format!("`{name}` was pulled"))?;
        ensure!(refused.code() == Code::ResourceExhausted, "{name}: {refused}");
        ensure!(node.status("small", "")?.is_some_and(|image| image.id == small.id), "`small` is gone after {name}");
        ensure!(node.status(name, "")?.is_none(), "`{name}` is here");
        StoreView::settled(Path::new(STORE)).with_context(|| format!("after {name}"))?.assert_no_orphans()?;
    }
    node.remove("small", "")?;
    ensure!(node.pull("small")? == small.id, "what fits does not any more");
    Ok(())
}
