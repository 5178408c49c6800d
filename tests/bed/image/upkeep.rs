//! What virtletctl does with a store, through the real daemon: collecting what nobody needs, and doing without a network.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::{FileExt as _, PermissionsExt as _};
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use serde_json::json;
use tests::case::{Bed, Case};
use tests::command::{command, run};
use tests::cri;
use tests::http::get_from;
use tests::image_node::{ImageNode, STORE};
use tests::image_server::{Fault, ImageServer};
use tests::node::{CRI_SOCKET, Node};
use tests::peers::ADDRESS;
use tests::peers::disk::Disk;
use tests::peers::nginx::Nginx;
use tests::store_view::StoreView;
use tonic::Code;

use super::http::{killed_amid_pull, random_image, received};

const DEADLINE: Duration = Duration::from_secs(480);
/// Exit codes of virtletctl.
const UNREACHABLE: Option<i32> = Some(5);
const NOT_FOUND: Option<i32> = Some(3);
const ARM: &str = "vm-arm64";

pub(super) const CASES: &[Case] = &[
    Case { name: "image::gc_takes_what_nobody_needs", deadline: DEADLINE, run: gc },
    Case { name: "image::gc_leaves_what_a_container_needs", deadline: DEADLINE, run: leased },
    Case { name: "image::gc_takes_downloads_if_told", deadline: DEADLINE, run: partials },
    Case { name: "image::offline_is_as_configured", deadline: DEADLINE, run: offline },
];

/// Images with a name, a pin, or neither; of a handler that is gone; and a broken one.
fn gc(bed: &Bed) -> Result<()> {
    let handlers = format!("[images.handlers.{ARM}]\narchitecture = 'arm64'\n");
    let runtimes = format!("runtime_handlers = ['virtlet', '{ARM}']");
    let mut node = ImageNode::start(bed, &runtimes, &handlers)?;
    let server = ImageServer::start()?;
    let disks = bed.dir.join("disks");
    let names = ["named", "pinned", "orphan", "rotten"];
    let mut made = Vec::new();
    for (mark, name) in (1..).zip(names) {
        let disk = Disk::create(&disks, name, mark)?;
        server.offer(name, &disk.path, Fault::None);
        made.push(disk);
    }
    let [named, pinned, orphan, rotten] = made.as_slice() else { anyhow::bail!("not four disks") };
    let rules = names.map(|name| json!({"name": name, "url": server.url(name)}));
    node.translations(&json!({"translations": rules}))?;
    for name in ["named", "pinned", "rotten"] {
        node.pull(name)?;
    }
    node.pull_for("orphan", ARM, None)?;
    node.virtletctl_ok(&["image", "pin", "pinned"])?;
    node.virtletctl_ok(&["image", "rm", "pinned"])?;
    ensure!(node.status("pinned", "")?.is_none(), "it still has its name");
    turn_a_byte(rotten)?;
    let verified = node.virtletctl(&["image", "verify"])?;
    ensure!(verified.code == Some(4) && verified.stdout.contains(&format!("{} corrupt", rotten.id)), "{verified:?}");
    // From here on there is no such handler.
    node.reconfigure(bed, "", "")?;

    let has = |disks: &[&Disk]| -> Result<()> {
        let view = StoreView::look(Path::new(STORE))?;
        let mut expected: Vec<&str> = disks.iter().map(|disk| disk.id.trim_start_matches("sha256:")).collect();
        expected.sort_unstable();
        ensure!(view.data.iter().eq(&expected), "not {expected:?}: {view:?}");
        Ok(())
    };
    let quarantined = || Path::new(STORE).join("quarantine").join(rotten.id.trim_start_matches("sha256:")).exists();
    // Images, broken ones and names that are gone; what is left.
    let steps: [(&[&str], [u32; 3], &[&Disk]); 5] = [
        (&[], [0, 0, 0], &[named, pinned, orphan]),
        (&["--partials"], [0, 0, 0], &[named, pinned, orphan]),
        (&["--orphan-handlers"], [1, 0, 1], &[named, pinned]),
        (&["--quarantine"], [0, 1, 0], &[named, pinned]),
        (&["--partials", "--orphan-handlers", "--quarantine"], [0, 0, 0], &[named, pinned]),
    ];
    for (options, gone, left) in steps {
        let said = node.virtletctl_ok(&[&["image", "gc"], options].concat())?;
        let count = |what: &str| count_of(&said, what).with_context(|| format!("`{what}` in {said}"));
        let counted = [count("images")?, count("quarantine")?, count("names")?];
        ensure!(counted == gone, "{options:?}: {said}");
        has(left).with_context(|| format!("after {options:?}"))?;
        ensure!(quarantined() != options.contains(&"--quarantine"), "{options:?}: the broken one");
    }
    // What is left can be used, and a pin that is given up lets go at once.
    ensure!(node.status("named", "")?.is_some_and(|image| image.id == named.id), "`named` is gone");
    node.virtletctl_ok(&["image", "unpin", &pinned.id])?;
    has(&[named])?;
    StoreView::settled(Path::new(STORE))?.assert_no_orphans()
}

/// A container's disk stands on the image, whatever becomes of its name and of the daemon, until the pod goes.
fn leased(bed: &Bed) -> Result<()> {
    let mut node = Node::start(bed)?;
    let image = node.pull(bed, "tiny.qcow2")?;
    let pod = node.pod("user")?;
    let sandbox = node.cri.run_sandbox(&pod)?;
    let container = node.cri.create(&sandbox, &cri::container(&image, [].into()), &pod)?;
    node.cri.remove_image(&image)?;
    let collected = || -> Result<BTreeSet<String>> {
        let mut virtletctl = command(bed.program("virtletctl"), ["--socket", CRI_SOCKET]);
        let said = run(virtletctl.args(["image", "gc", "--partials", "--orphan-handlers", "--quarantine"]))?;
        ensure!(count_of(&said, "images") == Some(0), "{said}");
        Ok(StoreView::look(Path::new(STORE))?.data)
    };
    for life in ["first", "second"] {
        let data = collected()?;
        ensure!(data.len() == 1, "{life} life of the daemon: {data:?}");
        node.restart_controld()?;
    }
    node.cri.remove(&container)?;
    ensure!(collected()?.len() == 1, "the pod's disk has lost what it stands on");
    node.cri.remove_sandbox(&sandbox)?;
    ensure!(collected()?.is_empty(), "nobody needs it any more");
    Ok(())
}

/// How many of a kind are gone, by the table that virtletctl prints.
fn count_of(said: &str, what: &str) -> Option<u32> {
    let mut words = said.lines().map(str::split_whitespace).find(|words| words.clone().next() == Some(what))?;
    words.nth(1)?.parse().ok()
}

fn turn_a_byte(disk: &Disk) -> Result<()> {
    let file = Path::new(STORE).join("data").join(disk.id.trim_start_matches("sha256:"));
    fs::set_permissions(&file, fs::Permissions::from_mode(0o644))?;
    fs::File::options().write(true).open(&file)?.write_all_at(b"x", disk.size()? / 2)?;
    Ok(fs::set_permissions(&file, fs::Permissions::from_mode(0o444))?)
}

/// A download that was broken off is kept for the next pull, unless somebody wants its room.
fn partials(bed: &Bed) -> Result<()> {
    let mut node = ImageNode::start(bed, "", "")?;
    let nginx = Nginx::start(bed)?;
    nginx.put("disk.qcow2", &random_image(&bed.dir.join("disks"), 16)?)?;
    node.translate("disk", &nginx.plain("slow/disk.qcow2"))?;
    // One that is under way is nobody's to collect.
    let (outcome, (under_way, still_there)) = killed_amid_pull(&node, "disk", || {
        let under_way = node.virtletctl_ok(&["image", "gc", "--partials"]);
        (under_way, received().map(|bytes| bytes > 0))
    })?;
    ensure!(outcome.is_err(), "it was whole already: {outcome:?}");
    let said = under_way?;
    ensure!(count_of(&said, "partials") == Some(0) && still_there?, "taken from under a pull: {said}");
    node.restart()?;
    let said = node.virtletctl_ok(&["image", "gc"])?;
    ensure!(count_of(&said, "partials") == Some(0) && received()? > 6 << 20, "it is gone: {said}");
    let said = node.virtletctl_ok(&["image", "gc", "--partials"])?;
    ensure!(count_of(&said, "partials") == Some(1) && received()? == 0, "it is still there: {said}");
    nginx.forget()?;
    node.pull("disk")?;
    let asked = nginx.asked(1)?;
    ensure!(asked[0].status == 200 && asked[0].range == "-", "asked {asked:?}");
    Ok(())
}

fn offline(bed: &Bed) -> Result<()> {
    let mut node = ImageNode::start(bed, "", "")?;
    let mut nginx = Nginx::start(bed)?;
    let disks = bed.dir.join("disks");
    let (old, new) = (Disk::create(&disks, "old", 1)?, Disk::create(&disks, "new", 2)?);
    nginx.put("disk.qcow2", &old.path)?;
    nginx.put("other.qcow2", &new.path)?;
    let rules = ["disk", "other"].map(|name| json!({"name": name, "url": nginx.plain(&format!("{name}.qcow2"))}));
    node.translations(&json!({"translations": rules}))?;
    node.pull("disk")?;
    nginx.stop()?;

    // never: the pull fails and says whom it could not ask; what is here stays. virtletctl may say otherwise.
    let refused = node.pull("disk").err().context("pulled from nobody")?;
    ensure!(refused.code() == Code::Unknown && refused.message().contains(ADDRESS), "{refused}");
    ensure!(node.status("disk", "")?.is_some_and(|image| image.id == old.id), "the image is gone");
    let by_hand =
        |node: &ImageNode, mode: &str, name: &str| node.virtletctl(&["image", "pull", "--offline", mode, name]);
    for (mode, name, code) in [
        ("never", "disk", UNREACHABLE),
        ("auto", "disk", Some(0)),
        ("always", "disk", Some(0)),
        ("auto", "other", UNREACHABLE),
        ("always", "other", UNREACHABLE),
    ] {
        let ended = by_hand(&node, mode, name)?;
        ensure!(ended.code == code, "--offline {mode} {name}: {ended:?}");
        ensure!(code != Some(0) || ended.stdout.contains(&old.id), "--offline {mode} {name}: {ended:?}");
    }

    // auto: what was pulled last, if nobody answers.
    node.reconfigure(bed, "images.offline = 'auto'", "")?;
    ensure!(node.pull("disk")? == old.id, "another image");
    ensure!(node.controld.log()?.contains("source out of reach"), "not a word that it may be old");
    let refused = node.pull("other").err().context("pulled from nobody")?;
    ensure!(refused.code() == Code::Unknown && refused.message().contains(ADDRESS), "{refused}");
    // But an answer is an answer.
    nginx.start_again()?;
    fs::remove_file(nginx.root().join("disk.qcow2"))?;
    let refused = node.pull("disk").err().context("pulled what is not there any more")?;
    ensure!(refused.code() == Code::NotFound, "{refused}");
    ensure!(by_hand(&node, "auto", "disk")?.code == NOT_FOUND, "it is not there any more");
    nginx.put("disk.qcow2", &new.path)?;

    // always: nobody is asked, though there is something newer.
    node.reconfigure(bed, "images.offline = 'always'", "")?;
    nginx.forget()?;
    ensure!(node.pull("disk")? == old.id, "the newer image");
    ensure!(node.pull(&format!("disk@{}", old.id))? == old.id, "another image by digest");
    let refused = node.pull("other").err().context("pulled from nobody")?;
    ensure!(refused.code() == Code::Unavailable && refused.message().contains("offline"), "{refused}");
    // One request of ours, that the log is written by: the only one in it.
    get_from(ADDRESS.parse()?, 8080, "/").err().context("a directory is shown")?;
    let asked = nginx.asked(1)?;
    ensure!(asked.len() == 1 && asked[0].path == "/", "asked {asked:?}");
    node.reconfigure(bed, "", "")?;
    ensure!(node.pull("disk")? == new.id, "the old image");
    StoreView::settled(Path::new(STORE))?.assert_no_orphans()
}
