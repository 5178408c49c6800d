//! `doctor`: looks at what a node needs to run pods as machines, and says what mends it. It changes nothing.
//!
//! It needs no daemon. What only a daemon's program knows (its settings, libvirt, CNI) it asks the program for, under a
//! deadline ([`facts`]); what daemons answer is one more thing to look at. Then each group of checks judges files of the node
//! ([`host`]) and those answers, on a thread of its own with a deadline: a file system that hangs holds up its group alone. A
//! check that cannot be made is a warning that says why.
//!
//! The tests give a group a tree of files and answers; only [`run`] looks at the real node.

mod apparmor;
mod cgroups;
mod cni;
mod devices;
mod facts;
mod finding;
mod host;
mod kernel;
mod kubelet;
mod kvm;
mod leases;
mod libvirt;
mod memory;
mod modules;
mod print;
mod program;
mod proxy;
mod selinux;
mod setup;
mod sockets;
mod space;
mod status;
mod units;

pub(super) use self::facts::{Settings, runtime, settings, socket_of};
pub(super) use self::host::Host;
pub(super) use self::kubelet::{Told as Kubelet, is_same, told as kubelet};
pub(super) use self::program::find as find_program;
use std::io::Write;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;

use self::facts::Facts;
use self::finding::{Finding, State};
use super::cli;
use super::error::CtlError;

/// How long a group may take: it only reads files, and asks the kernel.
const DEADLINE: Duration = Duration::from_secs(10);

/// Checks that are made together.
#[derive(Debug, Clone, Copy)]
struct Group {
    /// Stands for all of its checks if none could be made.
    name: &'static str,
    look: fn(&Host, &Facts) -> Vec<Finding>,
}

/// In the order of the table.
const GROUPS: [Group; 16] = [
    Group { name: "config", look: setup::look },
    Group { name: "kernel", look: kernel::look },
    Group { name: "kvm", look: kvm::look },
    Group { name: "hugepages", look: memory::look },
    Group { name: "sriov", look: devices::look },
    Group { name: "cgroup", look: cgroups::look },
    Group { name: "apparmor", look: apparmor::look },
    Group { name: "selinux", look: selinux::look },
    Group { name: "libvirt", look: libvirt::look },
    Group { name: "cni", look: cni::look },
    Group { name: "kubelet", look: kubelet::look },
    Group { name: "proxy", look: proxy::look },
    Group { name: "space", look: space::look },
    Group { name: "unit", look: units::look },
    Group { name: "socket", look: sockets::look },
    Group { name: "status", look: status::look },
];

/// Looks at this node and prints what was found.
///
/// # Errors
/// When a check failed, or nothing can be printed.
pub(super) async fn run(wanted: &cli::Doctor, socket: &Path, out: &mut (dyn Write + Send)) -> Result<(), CtlError> {
    let facts = Facts::gather(wanted, socket).await;
    let mut findings = Vec::new();
    if !nix::unistd::geteuid().is_root() {
        findings.push(Finding::warning(
            "root",
            "not run as root: much is not shown to others",
            "sudo virtletctl doctor",
        ));
    }
    findings.extend(examine(Host::new("/"), facts, &GROUPS, DEADLINE).await);
    out.write_all(print::text(&findings, wanted.output.form())?.as_bytes())?;
    out.flush()?;
    match findings.iter().filter(|finding| finding.state == State::Failure).count() {
        0 => Ok(()),
        failed => Err(CtlError::Unwell { failed, all: findings.len() }),
    }
}

/// Lets all groups look at the same time; their findings come in order.
async fn examine(host: Host, facts: Facts, groups: &[Group], deadline: Duration) -> Vec<Finding> {
    let facts = Arc::new(facts);
    let looks = groups.iter().map(|group| {
        let (Group { name, look }, host, facts) = (*group, host.clone(), facts.clone());
        async move {
            let looking = tokio::task::spawn_blocking(move || look(&host, &facts));
            match tokio::time::timeout(deadline, looking).await {
                Ok(Ok(found)) => found,
                Ok(Err(bug)) => vec![Finding::unknown(name, format!("the check ended in a bug: {bug}"))],
                Err(_late) => {
                    vec![Finding::unknown(name, format!("the check did not end within {} s", deadline.as_secs()))]
                }
            }
        }
    });
    join_all(looks).await.concat()
}

#[cfg(test)]
mod tests;
