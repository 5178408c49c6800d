//! `tapmanager attach --conf`: a private daemon shows what it is asked for, and is gone with all that it made however it
//! ends.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};
use tests::case::{Bed, Case};
use tests::cni::Network;
use tests::command::{TOOL_DEADLINE, finish};
use tests::wait::wait_for;
use tests::world::World;

const DEADLINE: Duration = Duration::from_secs(480);
const BOOT_DEADLINE: Duration = Duration::from_secs(240);
const END_DEADLINE: Duration = Duration::from_secs(120);

pub(super) const CASES: &[Case] =
    &[Case { name: "net::a_private_daemon_leaves_nothing_however_it_ends", deadline: DEADLINE, run }];

fn run(bed: &Bed) -> Result<()> {
    let (temporary, good) = (bed.dir.join("temporary"), bed.dir.join("good.conflist"));
    fs::create_dir(&temporary)?;
    fs::write(&good, Network::BRIDGE.conflist().to_string())?;
    let bad = bed.dir.join("bad.conflist");
    fs::write(&bad, json!({"cniVersion": "1.0.0", "name": "bad", "plugins": [{"type": "no-such"}]}).to_string())?;
    let before = World::look()?;

    let shown = finish(&mut attach(bed, &temporary, &good), TOOL_DEADLINE)?;
    ensure!(shown.code == Some(0), "{shown:?}");
    let shown: Value = serde_json::from_str(&shown.stdout)?;
    let address = shown.pointer("/nics/0/addresses/0").and_then(Value::as_str);
    ensure!(address.is_some_and(|address| address.starts_with("10.77.0.")), "{shown:#}");
    ensure!(shown["explanation"].as_array().is_some_and(|lines| !lines.is_empty()), "{shown:#}");
    is_gone(&before, &temporary)?;

    let refused = finish(&mut attach(bed, &temporary, &bad), TOOL_DEADLINE)?;
    ensure!(refused.code == Some(69) && refused.stderr.contains("`no-such`"), "{refused:?}");
    is_gone(&before, &temporary)?;

    ensure!(interrupted(bed, &temporary, &good)? == Some(130), "not ended as one that is interrupted");
    is_gone(&before, &temporary)
}

fn attach(bed: &Bed, temporary: &Path, conf: &Path) -> Command {
    let mut command = Command::new(bed.program("tapmanager"));
    command.args(["attach", "--output", "json", "--conf"]).arg(conf).env("TMPDIR", temporary);
    command
}

/// The exit code of a shell that is interrupted while its guest boots.
fn interrupted(bed: &Bed, temporary: &Path, conf: &Path) -> Result<Option<i32>> {
    let guest = [bed.config.guest("tiny.vmlinuz")?, bed.config.guest("tiny.initrd")?];
    let guest = guest.map(|path: PathBuf| path.display().to_string()).join(",");
    let console = bed.logs().join("console");
    let mut shell = attach(bed, temporary, conf)
        .args(["--shell", "--no-kvm", "--guest", &guest])
        .stdin(Stdio::piped())
        .stdout(fs::File::create(&console)?)
        .stderr(fs::File::create(bed.logs().join("shell"))?)
        .spawn()
        .context("failed to start tapmanager")?;
    wait_for("word of the guest", BOOT_DEADLINE, || {
        ensure!(shell.try_wait()?.is_none(), "the shell ended by itself");
        Ok((fs::metadata(&console)?.len() > 0).then_some(()))
    })?;
    kill(Pid::from_raw(shell.id().cast_signed()), Signal::SIGINT)?;
    let status = wait_for("end of the shell", END_DEADLINE, || Ok(shell.try_wait()?))?;
    Ok(status.code())
}

/// The bridge stays, which is its plugin's way, as do host-local's notes.
fn is_gone(before: &World, temporary: &Path) -> Result<()> {
    ensure!(fs::read_dir(temporary)?.next().is_none(), "files are left in {}", temporary.display());
    before.assert_same_but(|thing| thing == "link cni0" || thing.starts_with("file /var/lib/cni/networks"))
}
