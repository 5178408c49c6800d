//! A guest that floods its console.

use std::fs;
use std::io::ErrorKind;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use proto::cri::ContainerState;
use tests::case::{Bed, Case};
use tests::command::sh;
use tests::cri;
use tests::node::{BOOT_DEADLINE, Node, SHUTDOWN, user_data};
use tests::wait::wait_for;

const DEADLINE: Duration = Duration::from_secs(480);
const GRACE: Duration = Duration::from_secs(3);
/// Bytes; the least that can be configured.
const LIMIT: u64 = 1 << 20;

pub(super) const CASES: &[Case] = &[
    Case { name: "vm::a_console_that_nobody_rotates_fills_no_disk", deadline: DEADLINE, run: flood },
    Case { name: "vm::the_last_words_of_a_guest_wait_for_room_in_its_log", deadline: DEADLINE, run: last_words },
];

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

/// User-data of a guest that prints, slowly, without end.
const TALKER: &str = "#!/bin/sh\n\
    while :; do echo still here, and with more than a few words to say >/dev/console; usleep 100000; done &\n";

fn last_words(bed: &Bed) -> Result<()> {
    let node = Node::start(bed)?;
    let image = node.pull(bed, "tiny.qcow2")?;
    let pod = node.pod("talker")?;
    sh(&format!("mount -t tmpfs -o size=1m small {}", pod.log_directory))?;
    let vm = node.start_pod(pod, &cri::container(&image, user_data(TALKER)))?;
    vm.wait_log("tiny: ready", BOOT_DEADLINE)?;
    let filler = Path::new(&vm.pod.log_directory).join("filler");
    let full = fs::write(&filler, vec![0; 2 << 20]).err().map(|error| error.kind());
    ensure!(full == Some(ErrorKind::StorageFull), "the log's file system is not full: {full:?}");
    // The log goes on for as long as its last page has room.
    let controld = bed.logs().join("controld.log");
    wait_for("log that cannot be written", BOOT_DEADLINE, || {
        Ok(fs::read_to_string(&controld)?.contains("console not copied to the pod's log").then_some(()))
    })?;
    node.cri.stop(&vm.container, SHUTDOWN)?;
    let state = node.cri.state(&vm.container)?;
    ensure!(state == ContainerState::ContainerExited, "a full log keeps the container from its end: {state:?}");
    ensure!(!vm.log_text()?.contains("tiny: stopping"), "there was room in the log");
    fs::remove_file(filler)?;
    vm.wait_log("tiny: stopping", BOOT_DEADLINE)?;
    let log = vm.log_text()?;
    ensure!(log.lines().all(|line| line.split(' ').nth(1) == Some("stdout")), "a line is cut:\n{log}");
    node.remove_vm(&vm, GRACE)
}
