//! PullImage of 1 GiB beside what else there is to fetch a file with, from the same server: curl, with a hash and a disk
//! behind it or without, skopeo, and pipes of shell tools.

use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use proto::cri::RemoveImageRequest;
use serde_json::json;
use tests::case::Bed;
use tests::command::{command, run, sh};
use tests::cri::spec;
use tests::image_node::RULES;
use tests::node::Node;
use tests::peers::disk::Disk;
use tests::peers::nginx::Nginx;
use tests::peers::registry::{Child, Packing, Registry};

use super::report::{Pair, Row};
use super::timed;

const PAIRS: usize = 5;
/// Pieces of the half-empty disk, half of each random.
const PIECES: usize = 16;
/// What a pull may need, as promised.
const MEMORY: f64 = 64.0;

/// A disk's name, how many of each 64 MiB of it are not empty, and its rows.
const KINDS: [(&str, usize, [&str; 3]); 2] = [
    (
        "random",
        64,
        [
            "pull of 1 GiB, random / curl -o /dev/null",
            "pull of 1 GiB, random / curl | sha256sum, to disk",
            "pull of 1 GiB, random / skopeo copy",
        ],
    ),
    (
        "half-empty",
        32,
        [
            "pull of 1 GiB, half-empty / curl -o /dev/null",
            "pull of 1 GiB, half-empty / curl | sha256sum, to disk",
            "pull of 1 GiB, half-empty / skopeo copy",
        ],
    ),
];

/// The node that pulls, and whom it asks.
struct Bench<'a> {
    dir: PathBuf,
    node: &'a Node,
    nginx: Nginx,
    registry: Registry,
}

/// Way of doing the same work; milliseconds.
type Baseline<'a> = &'a dyn Fn() -> Result<f64>;

pub(super) fn rows(bed: &Bed, node: &mut Node) -> Result<Vec<Row>> {
    let dir = bed.dir.join("pull");
    fs::create_dir(&dir)?;
    let registry = Registry::start(bed)?;
    ask_registry(node, &registry)?;
    let bench = Bench { node, nginx: Nginx::start(bed)?, registry, dir };
    let mut rows = Vec::new();
    for (kind, count, names) in KINDS {
        let disk = bench.create_disk(kind, count)?;
        rows.extend(bench.rows_of(kind, &disk, names)?);
        if kind == "half-empty" {
            rows.extend(bench.rows_of_zstd(&disk)?);
            rows.push(bench.row_of_memory(kind)?);
        }
        fs::remove_file(&disk.path)?;
        fs::remove_file(bench.nginx.root().join(kind))?;
    }
    Ok(rows)
}

/// Has the node ask it too, without TLS.
fn ask_registry(node: &mut Node, registry: &Registry) -> Result<()> {
    let mut config = OpenOptions::new().append(true).open("/etc/virtlet/controld.toml")?;
    writeln!(config, "[[images.providers]]\nid = 'oci'\ntype = 'oci'\nplain_http = ['{}']", registry.host)?;
    node.restart_controld()
}

impl Bench<'_> {
    /// A qcow2 in which every cluster is allocated; of each 64 MiB, `count` are such that nothing compresses, and the
    /// rest is empty.
    fn create_disk(&self, kind: &str, count: usize) -> Result<Disk> {
        let (raw, path) = (self.dir.join("raw"), self.dir.join(kind));
        let of = raw.display();
        let pieces = (0..PIECES).map(|piece| piece * 64);
        for seek in pieces {
            sh(&format!("dd if=/dev/urandom of={of} bs=1M count={count} seek={seek} conv=notrunc status=none"))?;
        }
        sh(&format!("truncate -s 1G {of}"))?;
        sh(&format!("qemu-img convert -f raw -O qcow2 -S 0 {of} {}", path.display()))?;
        fs::remove_file(raw)?;
        self.nginx.put(kind, &path)?;
        Ok(Disk { path, id: String::new() })
    }

    fn rows_of(&self, kind: &str, disk: &Disk, names: [&'static str; 3]) -> Result<Vec<Row>> {
        let url = self.nginx.plain(kind);
        let (name, file) = (url.trim_start_matches("http://"), self.dir.join("fetched"));
        let at = file.display();
        // Not measured: brings the file into the page cache.
        sh(&format!("curl -sSf -o /dev/null {url}"))?;
        let discarded: Baseline<'_> = &|| shell(&format!("curl -sSf -o /dev/null {url}"));
        let hashed: Baseline<'_> = &|| shell(&format!("curl -sSf {url} | tee {at} | sha256sum >/dev/null; sync {at}"));
        let mut rows = vec![self.row(names[0], 1.5, name, discarded)?, self.row(names[1], 0.35, name, hashed)?];
        let child = Child { disk, architecture: "amd64", packing: Packing::Tar, user: "" };
        let pushed = self.registry.push(&format!("{kind}:latest"), &child)?;
        let rule = json!({"translations": [{"name": "of-registry", "url": format!("oci://{pushed}")}]});
        fs::create_dir_all(RULES)?;
        fs::write(Path::new(RULES).join("bench.json"), rule.to_string())?;
        let layout = self.dir.join("layout");
        let to = layout.display();
        let skopeo: Baseline<'_> = &|| {
            let took = shell(&format!(
                "skopeo --insecure-policy copy -q --preserve-digests --dest-oci-accept-uncompressed-layers \
                 --src-tls-verify=false docker://{pushed} oci:{to}:latest"
            ))?;
            fs::remove_dir_all(&layout)?;
            Ok(took)
        };
        rows.push(self.row(names[2], 0.35, "of-registry", skopeo)?);
        fs::remove_file(file)?;
        Ok(rows)
    }

    fn rows_of_zstd(&self, disk: &Disk) -> Result<[Row; 2]> {
        let packed = disk.path.with_extension("zst");
        run(command("zstd", ["-q", "-f", "-o"]).arg(&packed).arg(&disk.path))?;
        self.nginx.put("packed.zst", &packed)?;
        fs::remove_file(packed)?;
        let url = self.nginx.plain("packed.zst");
        let name = url.trim_start_matches("http://");
        sh(&format!("curl -sSf -o /dev/null {url}"))?;
        let file = self.dir.join("fetched");
        let at = file.display();
        let piped: Baseline<'_> = &|| shell(&format!("curl -sSf {url} | zstd -dc | openssl sha256 >/dev/null"));
        let stored: Baseline<'_> =
            &|| shell(&format!("curl -sSf {url} | zstd -dc | tee {at} | openssl sha256 >/dev/null; sync {at}"));
        let rows = [
            self.row("half-empty .zst / curl | zstd -d | openssl sha256", Some(1.3), name, piped)?,
            self.row("(half-empty .zst / the same, to disk)", None, name, stored)?,
        ];
        fs::remove_file(file)?;
        Ok(rows)
    }

    /// The most that the whole daemon ever has of memory while it pulls.
    fn row_of_memory(&self, kind: &str) -> Result<Row> {
        let url = self.nginx.plain(kind);
        let name = url.trim_start_matches("http://");
        let pid = self.node.controld.pid()?;
        let mut pairs = Vec::new();
        for _pair in 0..PAIRS {
            // The kernel's word for: forget the peak.
            fs::write(format!("/proc/{pid}/clear_refs"), "5")?;
            self.pull(name)?;
            let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
            let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).context("no peak in /proc")?;
            let kib: f64 = peak.trim().trim_end_matches(" kB").parse()?;
            pairs.push(Pair { ours: kib / 1024.0, baseline: MEMORY });
        }
        Ok(Row { name: "controld's peak RSS in a pull of 1 GiB / 64 MiB", unit: "MiB", target: Some(1.0), pairs })
    }

    fn row(
        &self,
        name: &'static str,
        target: impl Into<Option<f64>>,
        image: &str,
        baseline: Baseline<'_>,
    ) -> Result<Row> {
        let mut pairs = Vec::new();
        for _pair in 0..PAIRS {
            let ours = self.pull(image)?;
            pairs.push(Pair { ours, baseline: baseline()? });
        }
        Ok(Row { name, unit: "ms", target: target.into(), pairs })
    }

    /// Milliseconds of a pull; the image goes again.
    fn pull(&self, image: &str) -> Result<f64> {
        let (micros, _id) = timed(|| self.node.cri.pull(image))?;
        let request = RemoveImageRequest { image: Some(spec(image)) };
        self.node.cri.image_call(|mut client| async move { client.remove_image(request).await })?;
        Ok(micros / 1000.0)
    }
}

/// Milliseconds of a line of shell.
fn shell(line: &str) -> Result<f64> {
    Ok(timed(|| run(&mut command("bash", ["-euo", "pipefail", "-c", line])))?.0 / 1000.0)
}
