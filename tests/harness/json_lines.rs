//! One JSON message a line, as the bed and the machines that it boots speak to each other.

use std::io::Write;

use anyhow::{Context as _, Result};
use serde::Serialize;

pub(crate) fn send(wire: &mut impl Write, message: &impl Serialize) -> Result<()> {
    let mut line = serde_json::to_vec(message)?;
    line.push(b'\n');
    wire.write_all(&line).context("the wire between the bed and its machine is broken")
}
