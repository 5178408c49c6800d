//! Somebody who types into a client that is attached to a guest's console.

use std::fs::{self, File};
use std::io::Write as _;
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result};

use crate::case::Bed;
use crate::node::BOOT_DEADLINE;
use crate::wait::wait_for;

/// Types a command until its answer is on the screen: a line typed before the client is attached reaches no guest.
///
/// # Errors
/// When no answer comes.
pub fn answers(bed: &Bed, client: &mut Command) -> Result<()> {
    let screen = bed.dir.join("screen");
    let mut attached = client
        .stdin(Stdio::piped())
        .stdout(File::create(&screen)?)
        .stderr(File::create(bed.logs().join("attached.log"))?)
        .spawn()?;
    let mut keyboard = attached.stdin.take().context("no pipe")?;
    let answered = wait_for("answer on the console", BOOT_DEADLINE, || {
        writeln!(keyboard, "echo answer-$((40 + 2))")?;
        Ok(fs::read_to_string(&screen)?.contains("answer-42").then_some(()))
    });
    drop(keyboard);
    attached.kill()?;
    attached.wait()?;
    answered
}
