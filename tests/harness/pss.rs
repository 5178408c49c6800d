//! Memory that processes take.

use std::fs;

use anyhow::{Context as _, Result};

/// KiB that processes of these names take, shared pages divided by those who share them.
///
/// # Errors
/// When the kernel does not say.
pub fn pss(programs: &[&str]) -> Result<f64> {
    let mut sum = 0.0;
    for process in fs::read_dir("/proc")?.filter_map(Result::ok) {
        let Ok(name) = fs::read_to_string(process.path().join("comm")) else { continue };
        if !programs.contains(&name.trim()) {
            continue;
        }
        // One that ends meanwhile takes nothing.
        let Ok(rollup) = fs::read_to_string(process.path().join("smaps_rollup")) else { continue };
        let line = rollup.lines().find_map(|line| line.strip_prefix("Pss:")).context("no Pss")?;
        sum += line.trim().trim_end_matches("kB").trim().parse::<f64>()?;
    }
    Ok(sum)
}
