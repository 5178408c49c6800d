//! controld killed at each system call by which a pull changes the store: the next life finds the old image or the new
//! one, whole, and nothing else; and pulls again.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use tests::case::{Bed, Case};
use tests::image_node::{ImageNode, STORE};
use tests::image_server::{Fault, ImageServer};
use tests::peers::disk::Disk;
use tests::store_view::StoreView;
use tests::wait::{wait_for, wait_until};

const DEADLINE: Duration = Duration::from_secs(480);
const ATTACH_DEADLINE: Duration = Duration::from_secs(120);
/// A pull has fewer calls of one kind, or the loop would never end.
const TOO_MANY: usize = 40;
/// What changes names or makes things last. Writes of the file's bytes come before all that.
const CALLS: [&str; 4] = ["/^(rename|link|symlink)", "/^unlink", "/^f(data)?sync$", "ftruncate,fchmod"];

pub(super) const CASES: &[Case] = &[Case {
    name: "image::killed_at_any_step_of_a_pull_it_is_the_old_image_or_the_new",
    deadline: DEADLINE,
    run: steps,
}];

fn steps(bed: &Bed) -> Result<()> {
    let mut node = ImageNode::start(bed, "", "")?;
    let server = ImageServer::start()?;
    let disks = bed.dir.join("disks");
    let versions = [Disk::create(&disks, "one", 1)?, Disk::create(&disks, "two", 2)?];
    node.translate("disk", &server.url("disk"))?;
    let mut turns = versions.iter().cycle();
    let mut old = turns.next().context("no disks")?;
    server.offer("disk", &old.path, Fault::None);
    node.pull("disk")?;
    let mut deaths = 0;
    for calls in CALLS {
        for nth in 1.. {
            ensure!(nth < TOO_MANY, "{calls}: killed {nth} times");
            let new = turns.next().context("no disks")?;
            server.offer("disk", &new.path, Fault::None);
            let step = format!("killed at call {nth} of {calls}");
            let survived = killed_at(&mut node, calls, nth).with_context(|| step.clone())?;
            if survived {
                old = new;
                break;
            }
            deaths += 1;
            let view = StoreView::look(Path::new(STORE)).with_context(|| step.clone())?;
            view.assert_no_orphans().with_context(|| step.clone())?;
            let images = node.list()?;
            ensure!(images.len() == 1, "{step}: {} images", images.len());
            let id = &images[0].id;
            ensure!(*id == old.id || *id == new.id, "{step}: neither the old image nor the new: {id}");
            ensure!(node.pull("disk").with_context(|| step.clone())? == new.id, "{step}: another image afterwards");
            let view = StoreView::settled(Path::new(STORE)).with_context(|| step.clone())?;
            ensure!(view.data.len() == 1, "{step}: the old image is still there");
            old = new;
        }
    }
    ensure!(deaths >= 8, "only {deaths} steps were found");
    Ok(())
}

/// Pulls while the daemon is killed at the `nth` of `calls`; starts it again. Whether the pull survived.
fn killed_at(node: &mut ImageNode, calls: &str, nth: usize) -> Result<bool> {
    let mut strace = attach(node, calls, nth)?;
    let outcome = node.pull("disk");
    let survived = outcome.is_ok();
    if survived {
        // Detaches.
        nix::sys::signal::kill(
            nix::unistd::Pid::from_raw(strace.id().cast_signed()),
            nix::sys::signal::Signal::SIGINT,
        )?;
    }
    wait_for("end of strace", ATTACH_DEADLINE, || Ok(strace.try_wait()?))?;
    if survived {
        node.controld.still_runs()?;
        return Ok(true);
    }
    if node.controld.still_runs().is_ok() {
        bail!("refused, and not killed: {outcome:?}");
    }
    node.restart()?;
    Ok(false)
}

/// Has strace kill the daemon at the `nth` of `calls` that one of its threads makes.
fn attach(node: &ImageNode, calls: &str, nth: usize) -> Result<Child> {
    let pid = node.controld.pid()?;
    let strace = Command::new("strace")
        .args(["-f", "-qq", "-o", "/dev/null", "-p", &pid.to_string()])
        .args(["-e", &format!("trace={calls}"), "-e", &format!("inject={calls}:signal=KILL:when={nth}")])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .context("failed to start strace")?;
    let own = format!("TracerPid:\t{}\n", strace.id());
    let traced = || {
        let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
        tasks
            .into_iter()
            .all(|task| std::fs::read_to_string(task.path().join("status")).is_ok_and(|status| status.contains(&own)))
    };
    wait_until("strace at all threads", ATTACH_DEADLINE, traced)?;
    Ok(strace)
}
