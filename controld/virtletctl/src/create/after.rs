//! What `run` does once the machine has started: it ends, waits for the guest, shows the console, or stays until the machine ends.

use std::time::Duration;

use proto::cri::ContainerState;

use super::super::client::Client;
use super::super::error::CtlError;
use super::super::interrupt::Interrupt;
use super::super::ready::{self, Guest};
use super::super::{cli, console, until, wait};
use super::Started;

/// As the command line says.
#[derive(Debug)]
pub(super) struct After {
    ready: Option<Duration>,
    attaches: bool,
    /// The pod goes when this ends.
    pub(super) removes: bool,
}

impl After {
    /// Refuses what nobody would be left to do.
    pub(super) fn of(wanted: &cli::Run) -> Result<Self, CtlError> {
        if wanted.rm && wanted.detach {
            let what =
                "with -d nobody is left to remove the pod; leave -d out, or remove it later by `virtletctl rm -f`";
            return Err(CtlError::Usage(what.into()));
        }
        Ok(Self { ready: wanted.wait, attaches: wanted.attaches(), removes: wanted.rm })
    }

    /// Stays as long as is wanted; with `--rm`, an exit code of the machine's is ours.
    pub(super) async fn stay(
        &self,
        client: &Client,
        pod: &str,
        started: &Started,
        interrupt: &Interrupt,
    ) -> Result<(), CtlError> {
        let stay = async {
            if let Some(deadline) = self.ready {
                let guest = Guest { pod, container: &started.container, address: started.ip.parse().ok() };
                ready::wait(client, guest, deadline).await?;
            }
            if self.attaches {
                console::attach_to(client, &started.container, pod).await?;
            } else if self.removes {
                let what = "waiting for the machine to end; Ctrl-C removes it";
                wait::told(what, until::ended(client, &started.container)).await?;
            }
            Ok::<(), CtlError>(())
        };
        tokio::select! {
            stayed = stay => stayed?,
            signal = interrupt.fired() => return Err(CtlError::Interrupted(signal)),
        }
        if !self.removes {
            return Ok(());
        }
        let status = client.container(&started.container).await?;
        match (status.state(), u8::try_from(status.exit_code)) {
            (ContainerState::ContainerExited, code) if status.exit_code != 0 => {
                Err(CtlError::Exited(code.unwrap_or(u8::MAX)))
            }
            _ => Ok(()),
        }
    }
}
