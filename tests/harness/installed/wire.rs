//! What a case and its machine say to each other: one JSON message a line.

use std::io::Write;

use anyhow::{Context as _, Result};
use serde::{Deserialize, Serialize};

/// Has bash run a script.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Order {
    pub(super) script: String,
}

/// What the machine says.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Word {
    /// It has booted.
    Up,
    /// A script has ended: with which code, unless a signal ended it, and what it said.
    Ended { code: Option<i32>, said: String },
}

pub(super) fn send(wire: &mut impl Write, message: &impl Serialize) -> Result<()> {
    let mut line = serde_json::to_vec(message)?;
    line.push(b'\n');
    wire.write_all(&line).context("the wire between the case and its machine is broken")
}
