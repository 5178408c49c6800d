//! The metrics of a case's controld.

use anyhow::Result;

use crate::command::sh;

/// Where it serves them, if its configuration says `metrics.address = 'ADDRESS'`.
pub const ADDRESS: &str = "127.0.0.1:9464";

/// What a scrape tells.
///
/// # Errors
/// When it is not answered.
pub fn page() -> Result<String> {
    sh(&format!("curl -sS --fail-with-body http://{ADDRESS}/metrics"))
}
