//! vmwrapper's cost: what it adds to the exec of its emulator, beside the least C that does the same.

use std::path::Path;
use std::process::Command;

use anyhow::{Result, ensure};
use tests::case::Bed;
use tests::node::Node;

use super::report::{Pair, Row};
use super::{baseline, handoff_server, p50, timed};

const ROUNDS: usize = 9;
const SPAWNS: usize = 150;
/// QEMU gets about as many from libvirt.
const ARGUMENTS: usize = 200;

pub(super) fn rows(bed: &Bed, _node: &mut Node) -> Result<Vec<Row>> {
    let socket = bed.dir.join("handoff.sock");
    handoff_server::start(&socket)?;
    let emulator = baseline(bed, "nop")?;
    let programs = [emulator.clone(), bed.vmwrapper(), baseline(bed, "cshim")?];
    let args: Vec<String> =
        (0..ARGUMENTS).map(|n| format!("{{\"driver\":\"virtio-device\",\"id\":\"dev{n}\"}}")).collect();

    let mut pairs = Vec::new();
    for _round in 0..ROUNDS {
        let mut samples = [const { Vec::new() }; 3];
        for _spawn in 0..SPAWNS {
            for (program, samples) in programs.iter().zip(&mut samples) {
                samples.push(spawn(program, &args, &emulator, &socket)?);
            }
        }
        let [nothing, ours, theirs] = samples;
        let nothing = p50(nothing)?;
        pairs.push(Pair { ours: p50(ours)? - nothing, baseline: p50(theirs)? - nothing });
    }
    Ok(vec![Row { name: "vmwrapper with hand-off, less exec / C shim", unit: "us", target: Some(1.3), pairs }])
}

/// Microseconds from posix_spawn to the end of the process.
fn spawn(program: &Path, args: &[String], emulator: &Path, socket: &Path) -> Result<f64> {
    let mut command = Command::new(program);
    command.args(args).env_clear().env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin").env("LC_ALL", "C").env("HOME", "/");
    command.env("VIRTLET_HANDOFF", socket).env("VIRTLET_TOKEN", "07070707070707070707070707070707");
    command.env("VIRTLET_EMULATOR", emulator).env("VIRTLET_NICS", "0x10");
    let (micros, status) = timed(|| command.status())?;
    ensure!(status.success(), "{} ended with {status}", program.display());
    Ok(micros)
}
