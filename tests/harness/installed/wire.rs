//! What a case and its machine say to each other: one JSON message a line.

use serde::{Deserialize, Serialize};

pub(super) use crate::json_lines::send;

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
