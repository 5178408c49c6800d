//! Images of several runtime handlers: the same name is another image for another platform; what removal and collection
//! take, and from whom; what the metrics tell of it.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use serde_json::json;
use tests::case::{Bed, Case};
use tests::controld_metrics::{self, ADDRESS};
use tests::image_node::{ImageNode, STORE};
use tests::image_server::{Fault, ImageServer};
use tests::peers::disk::Disk;
use tests::peers::nginx::Nginx;
use tests::peers::openstack::Glance;
use tests::peers::registry::{Child, Packing, Registry};
use tests::peers::virt_builder::Repository;
use tests::store_view::StoreView;
use tonic::Code;

const DEADLINE: Duration = Duration::from_secs(480);
const AMD: &str = "virtlet";
const ARM: &str = "vm-arm64";
/// Two handlers: the default one, for the node's own platform, and one for another.
const HANDLERS: &str = "[images.handlers.virtlet]\nos = 'linux'\narchitecture = 'amd64'\n\
                        [images.handlers.vm-arm64]\nos = 'linux'\narchitecture = 'arm64'\n";
const KEYS: &str = "runtime_handlers = ['virtlet', 'vm-arm64']";

pub(super) const CASES: &[Case] = &[
    Case { name: "image::each_handler_has_its_platforms_image", deadline: DEADLINE, run: platforms },
    Case { name: "image::metrics_tell_what_each_handler_has", deadline: DEADLINE, run: metrics },
    Case { name: "image::removal_takes_what_the_handler_has", deadline: DEADLINE, run: removal },
];

fn platforms(bed: &Bed) -> Result<()> {
    let nginx = Nginx::start(bed)?;
    let registry = Registry::start(bed)?;
    let glance = Glance::start(bed)?;
    let disks = bed.dir.join("disks");
    let (amd, arm) = (Disk::create(&disks, "amd", 1)?, Disk::create(&disks, "arm", 2)?);
    nginx.put("amd.qcow2", &amd.path)?;
    nginx.put("arm.qcow2", &arm.path)?;
    let child = |disk, architecture| Child { disk, architecture, packing: Packing::Gzip, user: "" };
    let index = registry.push_index("vm:latest", &[child(&amd, "amd64"), child(&arm, "arm64")])?;
    glance.upload("vm", &amd, &json!({"architecture": "x86_64"}))?;
    glance.upload("vm", &arm, &json!({"architecture": "aarch64"}))?;
    let mut repository = Repository::create(&nginx.root().join("vb"), &bed.dir.join("gpg"))?;
    repository.add("vm", "x86_64", 1, &amd, "")?;
    repository.add("vm", "aarch64", 1, &arm, "")?;
    repository.publish()?;
    let sections = format!(
        "{HANDLERS}[[images.providers]]\nid = 'oci'\ntype = 'oci'\nplain_http = ['{}']\n\
         [[images.providers]]\nid = 'glance'\ntype = 'glance'\nendpoint = '{}'\n\
         [[images.providers]]\nid = 'vb'\ntype = 'virt-builder'\nuri = '{}'\nkeyring = '{}'\n",
        registry.host,
        glance.url(),
        nginx.plain("vb/index.asc"),
        repository.key.export()?.display()
    );
    let mut node = ImageNode::start(bed, KEYS, &sections)?;
    let by_rule =
        json!({"linux/amd64": {"url": nginx.plain("amd.qcow2")}, "linux/arm64": {"url": nginx.plain("arm.qcow2")}});
    node.translations(&json!({"translations": [
        {"name": "of-index", "url": format!("oci://{index}")},
        {"name": "of-rule", "url": nginx.plain("amd.qcow2"), "platforms": by_rule},
        {"name": "of-placeholder", "url": nginx.plain("{uname_arch}.qcow2")},
        {"name": "of-glance", "url": "glance+http://glance/vm"},
        {"name": "of-virt-builder", "url": "virt-builder://vb/vm"},
    ]}))?;
    nginx.put("x86_64.qcow2", &amd.path)?;
    nginx.put("aarch64.qcow2", &arm.path)?;
    let names = ["of-index", "of-rule", "of-placeholder", "of-glance", "of-virt-builder"];
    for name in names {
        ensure!(
            node.pull_for(name, ARM, None).with_context(|| format!("{name} for {ARM}"))? == arm.id,
            "{name}: not {ARM}'s"
        );
        ensure!(node.status(name, "")?.is_none(), "{name} is here for the default handler");
        ensure!(node.pull(name).with_context(|| name)? == amd.id, "{name}: not the default handler's");
    }
    for _life in 0..2 {
        for name in names {
            for (handler, id) in [("", &amd.id), (AMD, &amd.id), (ARM, &arm.id)] {
                let image =
                    node.status(name, handler)?.with_context(|| format!("{name} is not here for `{handler}`"))?;
                ensure!(image.id == *id, "{name} for `{handler}` is {}", image.id);
            }
        }
        let images = node.list()?;
        let mut of: Vec<_> =
            images.iter().map(|image| image.spec.as_ref().map_or("", |spec| &spec.runtime_handler)).collect();
        of.sort_unstable();
        ensure!(of == [AMD, ARM], "listed: {images:?}");
        ensure!(node.list_for("", ARM)?.len() == 1, "not one of {ARM}");
        node.restart()?;
    }
    let refused = node.pull_for("of-rule", "other", None).err().context("an unknown handler pulled")?;
    ensure!(refused.code() == Code::InvalidArgument, "{refused}");
    StoreView::settled(Path::new(STORE))?.assert_no_orphans()
}

/// What a scraper sees of pulls for two handlers, and of removals.
/// What Grafana would ask for is in the page, with the labels that it groups by.
fn dashboard(page: &str) -> Result<()> {
    let dashboard: serde_json::Value = serde_json::from_str(include_str!("../../../deploy/grafana-dashboard.json"))?;
    let panels = dashboard.pointer("/panels").and_then(|panels| panels.as_array()).context("no panels")?;
    let targets = panels.iter().filter_map(|panel| panel.get("targets")?.as_array()).flatten();
    let queries: Vec<&str> = targets.filter_map(|target| target.get("expr")?.as_str()).collect();
    ensure!(queries.len() > 20, "{} queries", queries.len());
    let series = |metric: &str| -> Vec<&str> {
        let of_metric = |line: &&str| line.strip_prefix(metric).is_some_and(|rest| rest.starts_with(['{', ' ']));
        page.lines().filter(of_metric).collect()
    };
    let words = |text: &str| -> Vec<String> {
        let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
        text.split(|c: char| !is_word(c)).filter(|word| !word.is_empty()).map(str::to_owned).collect()
    };
    for query in queries {
        let groups = query.split("by (").skip(1).filter_map(|rest| rest.split(')').next());
        let mut labels: Vec<String> = groups.flat_map(words).collect();
        // Prometheus' own.
        labels.retain(|label| label != "instance");
        let metrics: Vec<String> = words(query).into_iter().filter(|word| word.starts_with("virtlet_")).collect();
        ensure!(!metrics.is_empty(), "`{query}` asks for nothing of ours");
        for metric in metrics {
            let found = series(&metric);
            ensure!(!found.is_empty(), "`{query}`: no `{metric}` in\n{page}");
            for label in &labels {
                let has = found.iter().any(|line| line.contains(&format!("{label}=\"")));
                ensure!(has, "`{query}`: no label `{label}` in {found:?}");
            }
        }
    }
    Ok(())
}

fn metrics(bed: &Bed) -> Result<()> {
    let server = ImageServer::start()?;
    let disk = Disk::create(&bed.dir.join("disks"), "one", 1)?;
    server.offer("one", &disk.path, Fault::None);
    let mut node = ImageNode::start(bed, &format!("{KEYS}\nmetrics.address = '{ADDRESS}'"), HANDLERS)?;
    node.translate("one", &server.url("one"))?;
    // The images of both handlers, what their pulls came to, and how many images the store has bytes for.
    let seen = |of_amd: u64, of_arm: u64, what: &str| -> Result<()> {
        let page = scrape()?;
        let images = [AMD, ARM].map(|handler| value(&page, &format!("virtlet_images{{handler=\"{handler}\"}}")));
        ensure!(images == [Some(of_amd), Some(of_arm)], "{what}: {page}");
        let bytes = value(&page, "virtlet_image_store_bytes").context("no bytes")?;
        ensure!((bytes > 0) == (of_amd + of_arm > 0), "{what}: {page}");
        ensure!(value(&page, "virtlet_image_store_unused_bytes") == Some(bytes), "{what}: {page}");
        Ok(())
    };
    seen(0, 0, "nothing pulled")?;
    node.pull("one")?;
    seen(1, 0, "pulled")?;
    node.pull_for("one", ARM, None)?;
    node.virtletctl_ok(&["image", "pull", "one", "--handler", ARM])?;
    seen(1, 1, "pulled for both")?;
    let absent = node.pull_for("absent", ARM, None).err().context("what is not there was pulled")?;
    let page = scrape()?;
    for (outcome, [of_amd, of_arm]) in [("changed", [1, 1]), ("unchanged", [0, 1]), ("failed", [0, 1])] {
        for (handler, count) in [(AMD, of_amd), (ARM, of_arm)] {
            let labels = format!("handler=\"{handler}\",outcome=\"{outcome}\"");
            let found = value(&page, &format!("virtlet_image_pulls_ended_total{{{labels}}}"));
            ensure!(found == Some(count), "{labels}: {found:?} is not {count} (`{absent}`):\n{page}");
        }
    }
    dashboard(&page)?;
    let length = disk.path.metadata()?.len();
    let came = value(&page, &format!("virtlet_image_pulls_downloaded_bytes_total{{handler=\"{AMD}\"}}"));
    ensure!(came == Some(length), "{came:?} bytes came of {length}");
    node.remove("one", ARM)?;
    seen(1, 0, "removed for one")?;
    node.restart()?;
    seen(1, 0, "after a restart")?;
    node.remove("one", "")?;
    seen(0, 0, "removed")
}

fn scrape() -> Result<String> {
    let page = controld_metrics::page()?;
    ensure!(page.ends_with("# EOF\n"), "{page}");
    Ok(page)
}

/// The figure of a series.
fn value(page: &str, series: &str) -> Option<u64> {
    page.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' ')?.parse().ok())
}

/// Names, ids and handlers to remove by, and who has what afterwards.
fn removal(bed: &Bed) -> Result<()> {
    let server = ImageServer::start()?;
    let disks = bed.dir.join("disks");
    let (one, two) = (Disk::create(&disks, "one", 1)?, Disk::create(&disks, "two", 2)?);
    server.offer("one", &one.path, Fault::None);
    server.offer("two", &two.path, Fault::None);
    let node = ImageNode::start(bed, KEYS, HANDLERS)?;
    // `a` and `b` are one image; `c` is another.
    let rules = [("a", "one"), ("b", "one"), ("c", "two")];
    let rules = rules.map(|(name, file)| json!({"name": name, "url": server.url(file)}));
    node.translations(&json!({"translations": rules}))?;
    let (a, b, c) = ("a", "b", "c");
    let one_id = one.id.as_str();
    // What is removed, under which handler; what the default handler and the other one have afterwards.
    let rows: [(&str, &str, &[&str], &[&str]); 8] = [
        (a, "", &[c], &[c]),
        (a, AMD, &[c], &[a, b, c]),
        (a, ARM, &[a, b, c], &[c]),
        (one_id, "", &[c], &[c]),
        (one_id, ARM, &[a, b, c], &[c]),
        (c, AMD, &[a, b], &[a, b, c]),
        ("absent", "", &[a, b, c], &[a, b, c]),
        ("sha256:0000000000000000000000000000000000000000000000000000000000000000", "", &[a, b, c], &[a, b, c]),
    ];
    for (what, from, of_amd, of_arm) in rows {
        for name in [a, b, c] {
            node.pull(name)?;
            node.pull_for(name, ARM, None)?;
        }
        let row = format!("`{what}` removed from `{from}`");
        node.remove(what, from).with_context(|| row.clone())?;
        node.remove(what, from).with_context(|| format!("{row} again"))?;
        for (handler, expected) in [(AMD, of_amd), (ARM, of_arm)] {
            for name in [a, b, c] {
                let is_here = node.status(name, handler)?.is_some();
                ensure!(is_here == expected.contains(&name), "{row}: `{name}` for {handler} is here: {is_here}");
            }
        }
        let view = StoreView::settled(Path::new(STORE)).with_context(|| row.clone())?;
        view.assert_no_orphans().with_context(|| row.clone())?;
        let is_needed = |disk: &Disk| view.data.iter().any(|hex| disk.id.ends_with(hex.as_str()));
        ensure!(is_needed(&two) == [of_amd, of_arm].concat().contains(&c), "{row}: content of `c`");
        ensure!(is_needed(&one) == [of_amd, of_arm].concat().contains(&a), "{row}: content of `a`");
    }
    Ok(())
}
