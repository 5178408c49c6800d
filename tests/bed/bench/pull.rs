//! PullImage of 1 GiB beside curl, from the same server.

use std::fs;
use std::path::Path;

use anyhow::Result;
use proto::cri::RemoveImageRequest;
use tests::case::Bed;
use tests::command::sh;
use tests::cri::spec;
use tests::image_server::Fault;
use tests::node::Node;

use super::report::{Pair, Row};
use super::timed;

const PAIRS: usize = 7;
const FILE: &str = "random.qcow2";

pub(super) fn rows(bed: &Bed, node: &mut Node) -> Result<Vec<Row>> {
    let image = bed.dir.join(FILE);
    create_image(&image)?;
    let name = node.images.offer(FILE, &image, Fault::None);
    // Not measured: brings the file into the page cache.
    curl(&name)?;

    let mut pairs = Vec::new();
    for _pair in 0..PAIRS {
        let ours = pull(node, &name)?;
        pairs.push(Pair { ours: ours / 1000.0, baseline: curl(&name)? / 1000.0 });
    }
    fs::remove_file(image)?;
    Ok(vec![Row { name: "pull of 1 GiB / curl -o /dev/null", unit: "ms", target: Some(2.0), pairs }])
}

/// A qcow2 in which every cluster is allocated and nothing can be compressed.
fn create_image(image: &Path) -> Result<()> {
    let raw = image.with_extension("raw");
    sh(&format!("dd if=/dev/urandom of={} bs=1M count=1024 status=none", raw.display()))?;
    sh(&format!("qemu-img convert -f raw -O qcow2 {} {}", raw.display(), image.display()))?;
    Ok(fs::remove_file(raw)?)
}

fn pull(node: &Node, name: &str) -> Result<f64> {
    let (micros, _id) = timed(|| node.cri.pull(name))?;
    let request = RemoveImageRequest { image: Some(spec(name)) };
    node.cri.image_call(|mut client| async move { client.remove_image(request).await })?;
    Ok(micros)
}

fn curl(name: &str) -> Result<f64> {
    Ok(timed(|| sh(&format!("curl --silent --fail --output /dev/null http://{name}")))?.0)
}
