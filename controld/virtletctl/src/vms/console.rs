//! `console`: our terminal and a VM's serial console through the API server, until the VM ends or the user leaves.

use std::time::Duration;

use tokio::time::timeout;

use super::reach::Vm;
use crate::cli::VmConsole;
use crate::cluster::stream::Stream;
use crate::console::{END_DEADLINE, Ended, at_terminal, show, type_in};
use crate::error::CtlError;

pub(super) async fn run(wanted: &VmConsole) -> Result<(), CtlError> {
    let vm = Vm::of(&wanted.vm.at, &wanted.vm.name).await?;
    let deadline = Duration::from_secs(60 * u64::from(wanted.timeout));
    let stream = vm.awaited("attach to the console of", "console", deadline).await?;
    let Stream { read, write, mut ended } = stream;
    at_terminal(&vm.whole(), async move |keys, leaves| {
        tokio::select! {
            shown = show(Some(read), tokio::io::stdout()) => {
                shown?;
                // It has said all it had to show.
                timeout(END_DEADLINE, &mut ended).await.unwrap_or(Ok(()))?;
                Ok(Ended::Machine)
            }
            () = type_in(keys, Some(write), leaves) => {
                // Past the deadline, what was typed last is lost.
                let _ = timeout(END_DEADLINE, &mut ended).await;
                Ok(Ended::User)
            }
        }
    })
    .await
}
