//! A store of ten thousand images: how long its scan takes at start, and to list them.

use std::fs::{self, File, Permissions};
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};
use imagestore::{Config, Protocol, Store};
use tests::case::Bed;
use tests::image_server::Fault;
use tests::node::Node;
use tests::peers::disk::Disk;

use super::report::{Pair, Row};
use super::{p50, timed};

const IMAGES: usize = 10_000;
const PAIRS: usize = 5;
const LISTS: usize = 21;
/// As promised, in milliseconds.
const SCAN: f64 = 1000.0;
const LIST: f64 = 5.0;

pub(super) fn rows(bed: &Bed, node: &mut Node) -> Result<Vec<Row>> {
    let disk = Disk::create(&bed.dir.join("disks"), "disk", 1)?;
    let name = node.images.offer("0", &disk.path, Fault::None);
    let mut config = Config::new(bed.dir.join("many"));
    config.protocol = Protocol::Http;
    config.net.policy.allow_loopback = true;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let one = Store::open(config.clone())?;
    runtime.block_on(one.pull(&name))?;
    drop(one);
    multiply(&config.root)?;

    let (mut scans, mut lists) = (Vec::new(), Vec::new());
    for _pair in 0..PAIRS {
        let (micros, store) = timed(|| Store::open(config.clone()))?;
        ensure!(store.findings().is_empty(), "made wrongly: {:?}", store.findings().first());
        scans.push(Pair { ours: micros / 1000.0, baseline: SCAN });
        let list = || {
            let (micros, images) = timed(|| store.list(""))?;
            ensure!(images.len() == IMAGES, "{} images", images.len());
            Ok(micros / 1000.0)
        };
        let samples = (0..LISTS).map(|_| list()).collect::<Result<_>>()?;
        lists.push(Pair { ours: p50(samples)?, baseline: LIST });
    }
    fs::remove_dir_all(&config.root)?;
    Ok(vec![
        Row { name: "scan of 10,000 images at start / 1 s", unit: "ms", target: Some(1.0), pairs: scans },
        Row { name: "list of 10,000 images, in the store / 5 ms", unit: "ms", target: Some(1.0), pairs: lists },
    ])
}

/// Makes many of the one image that was pulled, by its own records. Their content is holes: neither a scan nor a list
/// looks into it.
fn multiply(root: &Path) -> Result<()> {
    let (meta, record, link) =
        (only(&root.join("meta"))?, only(&root.join("refs/_default"))?, only(&root.join("links"))?);
    let hex = meta.file_stem().and_then(|name| name.to_str()).context("no name")?.to_owned();
    let length = fs::metadata(root.join("data").join(&hex))?.len();
    let (meta_text, record_text) = (fs::read_to_string(&meta)?, fs::read_to_string(&record)?);
    // The name ends in `/0`, and so do its forms: `%0`, before the tag or not.
    let of =
        |text: &str, n: usize| text.replace("8081/0", &format!("8081/{n}")).replace("8081%0", &format!("8081%{n}"));
    let name = |path: &Path, n: usize| -> Result<PathBuf> {
        let file = path.file_name().and_then(|name| name.to_str()).context("no name")?;
        Ok(path.with_file_name(of(file, n)))
    };
    for n in 1..IMAGES {
        let digest = format!("{n:064x}");
        let data = root.join("data").join(&digest);
        File::create(&data)?.set_len(length)?;
        fs::set_permissions(&data, Permissions::from_mode(0o444))?;
        fs::write(root.join("meta").join(format!("{digest}.json")), &meta_text)?;
        fs::write(name(&record, n)?, of(&record_text.replace(&hex, &digest), n))?;
        symlink(format!("../data/{digest}"), name(&link, n)?)?;
    }
    Ok(())
}

fn only(dir: &Path) -> Result<PathBuf> {
    let entries: Vec<PathBuf> = fs::read_dir(dir)?.map(|entry| Ok(entry?.path())).collect::<Result<_>>()?;
    ensure!(entries.len() == 1, "not one thing in {}: {entries:?}", dir.display());
    Ok(entries.into_iter().next().unwrap_or_default())
}
