//! A guest that floods its console.

use std::fs;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use tests::case::{Bed, Case};
use tests::node::{BOOT_DEADLINE, Node};

const GRACE: Duration = Duration::from_secs(3);
/// Bytes; the least that can be configured.
const LIMIT: u64 = 1 << 20;

pub(super) const CASES: &[Case] =
    &[Case { name: "vm::a_console_that_nobody_rotates_fills_no_disk", deadline: Duration::from_secs(300), run: flood }];

/// User-data of a guest that prints empty lines, each of which has 41 bytes in the log: more than twice the limit.
const FLOOD: &str = "#!/bin/sh\nyes '' | head -n 60000 >/dev/console\necho flood is over >/dev/console\n";

fn flood(bed: &Bed) -> Result<()> {
    let node = Node::configured(bed, "machine.console_log_mib = 1")?;
    let vm = node.start_vm(bed, "flood", FLOOD)?;
    vm.wait_log("flood is over", BOOT_DEADLINE)?;
    let mut logs = Vec::new();
    for entry in fs::read_dir(&vm.pod.log_directory)? {
        let entry = entry?;
        logs.push((entry.file_name(), entry.metadata()?.len()));
    }
    logs.sort();
    let name = vm.log.file_name().context("no name")?.to_owned();
    let mut older = name.clone();
    older.push(".1");
    let names: Vec<_> = logs.iter().map(|(name, _)| name).collect();
    ensure!(names == [&name, &older], "logs: {logs:?}");
    ensure!(logs.iter().all(|(_, length)| *length <= LIMIT), "logs: {logs:?}");
    node.remove_vm(&vm, GRACE)
}
