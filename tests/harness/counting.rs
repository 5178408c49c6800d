//! A guest that counts on its console, so that a line that is lost, doubled or torn shows.

use anyhow::{Result, ensure};

/// User-data of a guest that counts some two hundred lines a second.
pub const SCRIPT: &str = "#!/bin/sh\n\
    (i=0; while [ $i -lt 100000 ]; do i=$((i+1)); echo \"count $i.\"; usleep 5000; done) >/dev/console 2>&1 &\n";

/// The numbers in a log.
#[must_use]
pub fn counts(log: &str) -> Vec<usize> {
    let of = |line: &str| line.split("count ").nth(1)?.split('.').next()?.parse().ok();
    log.lines().filter_map(of).collect()
}

/// Each number up to the last is there, once, in order; how many.
///
/// # Errors
/// Says which is not.
pub fn complete(log: &str) -> Result<usize> {
    let counts = counts(log);
    for (index, count) in counts.iter().enumerate() {
        ensure!(*count == index + 1, "line {index} of the count is {count}");
    }
    Ok(counts.len())
}
