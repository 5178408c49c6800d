//! `wait`: until machines have ended, run, answer, or are gone.

use std::io::Write;
use std::net::IpAddr;
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
    let what = awaited(wanted.until, &name);
    let deadline = match wanted.timeout {
        Some(Duration::ZERO) => return now(client, &pod, text, wanted.until).await?.ok_or(CtlError::NotYet(what)),
        said => said.unwrap_or(SOON),
    };
    let come = async {
        match wanted.until {
            Until::Ready => {
                is_on(&pod)?;
                until(client, async || does_run(client, &pod).await).await?;
                let (container, address) = guest(client, &pod).await?;
                let guest = Guest { pod: &name, container: &container, address };
                ready::wait(client, guest, deadline).await?;
            }
            Until::Running => until(client, async || does_run(client, &pod).await).await?,
            Until::Removed => until(client, async || is_gone(client, &pod).await).await?,
            Until::Stopped => return Ok(exit_code(ended(client, &pod.container()?.id).await?)),
        }
        Ok(text.to_owned())
    };
    if wanted.timeout.is_none() && matches!(wanted.until, Until::Stopped | Until::Removed) {
        return come.await;
    }
    late(what, deadline, come).await
}

/// The same, if it is so already.
async fn now(client: &Client, pod: &Pod, text: &str, until: Until) -> Result<Option<String>, CtlError> {
    let is_so = match until {
        Until::Ready => {
            is_on(pod)?;
            does_run(client, pod).await?.is_some() && {
                let (container, address) = guest(client, pod).await?;
                ready::now(client, Guest { pod: &pod.name(), container: &container, address }).await
            }
        }
        Until::Running => does_run(client, pod).await?.is_some(),
        Until::Removed => is_gone(client, pod).await?.is_some(),
        Until::Stopped => return Ok(has_ended(client, &pod.container()?.id).await?.map(exit_code)),
    };
    Ok(is_so.then(|| text.to_owned()))
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

/// Refuses to wait for the guest of a machine that is off, and that nobody may start.
fn is_on(pod: &Pod) -> Result<(), CtlError> {
    match pod.container() {
        Ok(newest) if newest.state() == ContainerState::ContainerExited => Err(CtlError::NotRunning(pod.name())),
        _ => Ok(()),
    }
}

/// The container and the address of a guest, as they are now.
async fn guest(client: &Client, pod: &Pod) -> Result<(String, Option<IpAddr>), CtlError> {
    let pod = Node::read(client).await?.find(&pod.sandbox.id)?;
    let address = client.pod_ip(&pod.sandbox.id).await?.parse().ok();
    Ok((pod.running()?.id.clone(), address))
}

/// What is printed of a machine that has ended, or is gone.
fn exit_code(ended: Option<ContainerStatus>) -> String {
    ended.map_or_else(|| "-".into(), |status| status.exit_code.to_string())
}

/// Waits until a machine has ended; how, unless it is gone meanwhile.
pub(super) async fn ended(client: &Client, container: &str) -> Result<Option<ContainerStatus>, CtlError> {
    until(client, async || has_ended(client, container).await).await
}

async fn has_ended(client: &Client, container: &str) -> Result<Option<Option<ContainerStatus>>, CtlError> {
    match client.container(container).await {
        Ok(status) => Ok((status.state() == ContainerState::ContainerExited).then_some(Some(status))),
        Err(error) if error.code() == Some(Code::NotFound) => Ok(Some(None)),
        Err(error) => Err(error),
    }
}

async fn does_run(client: &Client, pod: &Pod) -> Result<Option<()>, CtlError> {
    let node = Node::read(client).await?;
    let newest = node.containers_of(&pod.sandbox).next();
    Ok(newest.is_some_and(|newest| newest.state() == ContainerState::ContainerRunning).then_some(()))
}

async fn is_gone(client: &Client, pod: &Pod) -> Result<Option<()>, CtlError> {
    let known = client.sandboxes().await?;
    Ok((!known.iter().any(|sandbox| sandbox.id == pod.sandbox.id)).then_some(()))
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
