//! What bed and node say to each other: one JSON message a line.

use std::sync::{Mutex, MutexGuard, PoisonError};

use serde::{Deserialize, Serialize};

use crate::cost::Cost;
pub(super) use crate::json_lines::send;

/// The name of no case, in the first message of the node.
pub(super) const READY: &str = "";

/// Runs the case, and answers with its [`Outcome`].
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Order {
    pub(super) case: String,
}

/// How a case ended.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Outcome {
    pub(super) case: String,
    /// With what it failed; else what it printed.
    pub(super) ended: Result<String, String>,
    pub(super) cost: Cost,
}

pub(super) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
