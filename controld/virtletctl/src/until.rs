//! `wait`: until machines have ended, run, answer, or are gone.

use std::io::Write;
use std::time::Duration;

use futures_util::future::join_all;
use proto::cri::{ContainerState, ContainerStatus};
use tokio::time::{sleep, timeout};
use tonic::Code;

use super::cli::Wait;
use super::client::Client;
use super::condition::Until;
use super::error::{CtlError, none_of};
use super::find::{Node, Pod};
use super::ready::{self, Guest, late};
use super::text::shown;

/// How often one looks all the same: some changes are no event.
const LOOK_AGAIN: Duration = Duration::from_secs(5);
/// After the events have ended, as they do when controld restarts.
const PAUSE: Duration = Duration::from_secs(1);
/// For one look and its answer, if one is not to wait.
const LOOK: Duration = Duration::from_secs(5);
/// For what comes soon or never, if nobody says how long.
const SOON: Duration = Duration::from_secs(300);

/// Waits for all of the pods at once. Prints, as docker does, the exit codes of machines that were waited for to end, else the
/// names as the user wrote them.
pub(super) async fn run(client: &Client, wanted: &Wait, out: &mut (dyn Write + Send)) -> Result<(), Vec<CtlError>> {
    let node = Node::read(client).await.map_err(|error| vec![error])?.within(&wanted.pods.within);
    let names = node.some_names(wanted.pods.names.clone()).map_err(|error| vec![error])?;
    let waiting = names.iter().map(|text| one(client, &node, text, wanted));
    let mut failed = Vec::new();
    for done in join_all(waiting).await {
        match done.and_then(|line| Ok(writeln!(out, "{}", shown(&line))?)) {
            Ok(()) => {}
            Err(error) => failed.push(error),
        }
    }
    none_of(failed)
}

/// The line that is printed then.
async fn one(client: &Client, node: &Node, text: &str, wanted: &Wait) -> Result<String, CtlError> {
    let pod = match node.find_sure(text) {
        Err(CtlError::NoPod { .. } | CtlError::ShortBeginning { .. }) if wanted.until == Until::Removed => {
            return Ok(text.to_owned());
        }
        found => found?,
    };
    let name = pod.name();
    let deadline = match wanted.timeout {
        Some(Duration::ZERO) => LOOK,
        said => said.unwrap_or(SOON),
    };
    let come = async {
        match wanted.until {
            Until::Ready => {
                if pod.container().is_ok_and(|newest| newest.state() == ContainerState::ContainerExited) {
                    return Err(CtlError::NotRunning(name.clone()));
                }
                runs(client, &pod).await?;
                let pod = Node::read(client).await?.find(&pod.sandbox.id)?;
                let address = client.pod_ip(&pod.sandbox.id).await?.parse().ok();
                let guest = Guest { pod: &name, container: &pod.running()?.id, address };
                ready::wait(client, guest, deadline).await?;
            }
            Until::Running => runs(client, &pod).await?,
            Until::Removed => is_gone(client, &pod).await?,
            Until::Stopped => {
                let ended = ended(client, &pod.container()?.id).await?;
                return Ok(ended.map_or_else(|| "-".into(), |status| status.exit_code.to_string()));
            }
        }
        Ok(text.to_owned())
    };
    if wanted.timeout.is_none() && matches!(wanted.until, Until::Stopped | Until::Removed) {
        return come.await;
    }
    late(awaited(wanted.until, &name), deadline, come).await
}

/// What did not come, if it does not.
fn awaited(until: Until, pod: &str) -> String {
    match until {
        Until::Running => format!("the start of the machine of pod `{pod}`"),
        Until::Ready => format!("an answer of the guest of `{pod}`"),
        Until::Stopped => format!("the end of the machine of pod `{pod}`"),
        Until::Removed => format!("the removal of pod `{pod}`"),
    }
}

/// Waits until a machine has ended; how, unless it is gone meanwhile.
pub(super) async fn ended(client: &Client, container: &str) -> Result<Option<ContainerStatus>, CtlError> {
    until(client, async || match client.container(container).await {
        Ok(status) => Ok((status.state() == ContainerState::ContainerExited).then_some(Some(status))),
        Err(error) if error.code() == Some(Code::NotFound) => Ok(Some(None)),
        Err(error) => Err(error),
    })
    .await
}

async fn runs(client: &Client, pod: &Pod) -> Result<(), CtlError> {
    until(client, async || {
        let node = Node::read(client).await?;
        let newest = node.containers_of(&pod.sandbox).next();
        Ok(newest.is_some_and(|newest| newest.state() == ContainerState::ContainerRunning).then_some(()))
    })
    .await
}

async fn is_gone(client: &Client, pod: &Pod) -> Result<(), CtlError> {
    until(client, async || {
        let known = client.sandboxes().await?;
        Ok((!known.iter().any(|sandbox| sandbox.id == pod.sandbox.id)).then_some(()))
    })
    .await
}

/// Looks at each event, and now and then, until something is found.
async fn until<T>(client: &Client, mut look: impl AsyncFnMut() -> Result<Option<T>, CtlError>) -> Result<T, CtlError> {
    // Before the first look, so that nothing is missed in between.
    let mut events = client.events().await?;
    loop {
        match look().await {
            Ok(Some(found)) => return Ok(found),
            Ok(None) => {}
            // controld restarts; machines run on.
            Err(error) if error.code() == Some(Code::Unavailable) => {}
            Err(error) => return Err(error),
        }
        match timeout(LOOK_AGAIN, events.next()).await {
            Ok(Ok(Some(_))) | Err(_) => {}
            Ok(Ok(None) | Err(_)) => {
                sleep(PAUSE).await;
                if let Ok(again) = client.events().await {
                    events = again;
                }
            }
        }
    }
}
