//! Virtual CPUs that were plugged into a machine that runs: a Linux guest without a rule for that leaves them offline.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use common::Chain;
use streaming::Otherwise;
use tracing::Instrument as _;
use vmspec::error::Result;

use crate::container::uses::Uses;
use crate::guest::agents::Command;
use crate::model::Container;

/// How long a guest may take to see them.
const DEADLINE: Duration = Duration::from_secs(15);

/// Has an agent in the guest bring those with these numbers online, once there is one: the guest may still boot. Waits for nobody: the machine has them
/// whatever the guest does.
pub(super) fn bring_online(uses: &Arc<Uses>, container: &Container, numbers: Range<u16>) {
    let (agents, wanted) = (uses.agents.clone(), command(container, numbers));
    let asked = async move {
        let ended = async { agents.run(wanted?, Some(DEADLINE)).await };
        match ended.await {
            Ok(output) if output.code == 0 => tracing::info!("new vCPUs are online in the guest"),
            Ok(output) => tracing::info!(code = output.code, "new vCPUs were not brought online in the guest"),
            Err(error) => tracing::info!(error = %Chain(&error), "new vCPUs are left to the guest"),
        }
    };
    tokio::spawn(asked.in_current_span());
}

/// As root, whoever the container's commands are run as.
fn command(container: &Container, numbers: Range<u16>) -> Result<Command> {
    let as_root = Otherwise { user: "0".into(), working_dir: "/".into(), ..Otherwise::default() };
    let argv = ["sh", "-c", &script(numbers)].map(str::to_owned).to_vec();
    Command::of(container, argv)?.otherwise(&as_root)
}

/// The kernel shows one as soon as its firmware has told it.
fn script(numbers: Range<u16>) -> String {
    let numbers: Vec<_> = numbers.map(|number| number.to_string()).collect();
    let file = "/sys/devices/system/cpu/cpu$n/online";
    format!(
        "for n in {}; do until [ -e {file} ]; do sleep 1; done; [ \"$(cat {file})\" = 1 ] || echo 1 >{file} || exit; done",
        numbers.join(" ")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_script_is_one_that_a_shell_reads() {
        let text = script(2..4);
        assert!(text.starts_with("for n in 2 3; do until"), "{text}");
        let checked = std::process::Command::new("sh").args(["-n", "-c", &text]).status().expect("sh");
        assert!(checked.success(), "{text}");
    }
}
