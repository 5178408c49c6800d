//! What a machine is doing, for the report of a case that has waited for it in vain: a guest that hangs is told from one that computes, and
//! from one whose QEMU has died.

use std::fs;

use super::{pid_file, virsh};

/// Lines of a log that are shown of a machine that has ended.
const LAST_WORDS: usize = 8;

/// Whether libvirt has a QEMU of a domain: it removes the file as soon as it sees the end of one.
#[must_use]
pub fn has_qemu(domain: &str) -> bool {
    pid_file(domain).exists()
}

/// Where the machine stands and its processors are, on one line, or how it has ended.
#[must_use]
pub fn doing(domain: &str) -> String {
    if !has_qemu(domain) {
        return format!("no machine; what libvirt has logged of it last, and QEMU:\n{}", last_words(domain));
    }
    let said = |line: String| virsh(&line).unwrap_or_else(|failed| format!("{failed:#}"));
    let state = said(format!("domstate --reason {domain}"));
    let registers = said(format!("qemu-monitor-command --hmp {domain} info registers -a"));
    let vcpus: Vec<_> = registers.lines().filter(|line| line.contains("RIP=")).map(str::trim).collect();
    format!("machine: {}; vCPUs: {}", state.trim(), vcpus.join("; "))
}

/// The end of what libvirt has logged of a machine: how QEMU has ended, and what it said.
fn last_words(domain: &str) -> String {
    let path = format!("/var/log/libvirt/qemu/{domain}.log");
    let log = fs::read_to_string(&path).unwrap_or_else(|none| format!("no log {path}: {none}"));
    let lines: Vec<_> = log.lines().collect();
    lines.iter().skip(lines.len().saturating_sub(LAST_WORDS)).map(|line| format!("{line}\n")).collect()
}
