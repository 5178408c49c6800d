//! `bed node-agent`, in a node: the bed's hand in there.

use std::fs::{self, File, OpenOptions};
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::sync::Mutex;
use std::time::Duration;

use anyhow::{Context as _, Result};

use super::wire::{Order, Outcome, READY, locked, send};
use crate::cost::{Cost, Ran};
use crate::pace;
use crate::wait::wait_for;

/// The node has one port.
const PORTS: &str = "/sys/class/virtio-ports";
/// Of the root of its cgroups.
const CONTROLLERS: &str = "/sys/fs/cgroup/cgroup.subtree_control";
const PORT_DEADLINE: Duration = Duration::from_secs(20);

/// Runs what it is told to by `run`, as much at a time as it is told.
///
/// # Errors
/// When there is no wire, or it breaks.
pub(crate) fn serve(run: impl Fn(&str) -> Ran + Sync) -> Result<()> {
    // The driver adds its ports when the device has told it of them, and numbers them by device.
    let name = wait_for("virtio-serial port", PORT_DEADLINE, || {
        Ok(fs::read_dir(PORTS)?.next().transpose()?.map(|entry| entry.file_name()))
    })?;
    pace::check()?;
    // A cell has the controllers that its parent passes on.
    fs::write(CONTROLLERS, "+cpu +cpuset +io +memory +pids").context("the node has no cgroups of version 2")?;
    let reads = OpenOptions::new().read(true).write(true).open(Path::new("/dev").join(name))?;
    let writes = Mutex::new(reads.try_clone()?);
    let say = |outcome: &Outcome| send(&mut *locked::<File>(&writes), outcome);
    say(&Outcome { case: READY.to_owned(), ended: Ok(String::new()), cost: Cost::default() })?;
    std::thread::scope(|scope| {
        for line in BufReader::new(reads).lines() {
            let Order { case } = serde_json::from_str(&line?)?;
            let (say, run) = (&say, &run);
            scope.spawn(move || {
                let Ran { outcome, cost } = run(&case);
                say(&Outcome { case, ended: outcome.map_err(|failed| format!("{failed:#}")), cost })
            });
        }
        Ok(())
    })
}
