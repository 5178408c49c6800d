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

/// How often a call was answered well, of all that the page tells.
#[must_use]
pub fn answered(page: &str, call: &str) -> u64 {
    let begin = format!("virtlet_call_duration_seconds_count{{call=\"{call}\",code=\"OK\"}} ");
    page.lines().find_map(|line| line.strip_prefix(&begin)?.parse().ok()).unwrap_or_default()
}
