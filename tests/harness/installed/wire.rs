//! What a case and its machine say to each other: one JSON message a line.

use serde::{Deserialize, Serialize};

pub(super) use crate::json_lines::send;

/// Has bash run a script.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Order {
    pub(super) script: String,
}

/// What the machine says.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub(super) enum Word {
    /// It has booted, and its first hand is there (`tests/guests/installed-root`).
    Booted,
    /// And all that its boot starts is started.
    Settled,
    /// Its agent runs.
    Up,
    /// A script has ended: with which code, unless a signal ended it, and what it said.
    Ended { code: Option<i32>, said: String },
}
