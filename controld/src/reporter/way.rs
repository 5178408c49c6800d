//! The way to the API server: few calls at a time, each with a deadline; and one line in the log when it is lost, and one when it is found.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use common::Chain;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::jiff::Timestamp;
use kube::api::{Patch, PatchParams};
use kube::{Api, Client};
use serde_json::json;
use tokio::sync::Semaphore;
use tokio::time::timeout;

use super::report::Report;
use crate::cluster::{AccessError, client};
use crate::model::PodName;

/// Pods that are told of at a time.
const AT_A_TIME: usize = 4;
/// For all of one: to read it, and to patch it.
const DEADLINE: Duration = Duration::from_secs(30);
/// As who it is told, in the pod's managed fields.
const MANAGER: &str = "virtlet-reporter";

/// The way.
#[derive(Debug)]
pub(super) struct Way {
    kubeconfig: PathBuf,
    client: Mutex<Option<Clients>>,
    turns: Semaphore,
    is_lost: AtomicBool,
}

/// [`Client`], which says nothing of itself.
#[derive(Clone)]
struct Clients(Client);

/// Why something was not told.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Untold {
    /// There is no such pod any more.
    Gone,
    /// It may be told later.
    Failed,
    /// So may this. The server is there, and does not take it of this pod; the log has not that.
    Refused(String),
}

#[derive(Debug, thiserror::Error)]
enum Error {
    #[error(transparent)]
    Access(#[from] AccessError),
    #[error("failed to {action} pod `{namespace}/{name}`")]
    Call {
        action: &'static str,
        namespace: String,
        name: String,
        #[source]
        cause: Box<kube::Error>,
    },
    #[error("the API server did not answer within {} s", DEADLINE.as_secs())]
    Late,
    #[error("another pod has its name")]
    Another,
}

impl Way {
    pub(super) fn new(kubeconfig: PathBuf) -> Self {
        Self { kubeconfig, client: Mutex::default(), turns: Semaphore::new(AT_A_TIME), is_lost: AtomicBool::new(false) }
    }

    /// Tells the server what it does not have yet. `there` is what the pod has, if that is known. Returns what it has then.
    ///
    /// # Errors
    /// See [`Untold`].
    pub(super) async fn tell(&self, pod: &PodName, report: &Report, there: Option<Report>) -> Result<Report, Untold> {
        // Fails only if it was closed, which nobody does.
        let _turn = self.turns.acquire().await;
        let told = timeout(DEADLINE, self.try_tell(pod, report, there)).await;
        match told.unwrap_or(Err(Error::Late)) {
            Ok(told) => {
                if self.is_lost.swap(false, Ordering::Relaxed) {
                    tracing::info!("the cluster is told of VMs again");
                }
                Ok(told)
            }
            Err(Error::Another) => Err(Untold::Gone),
            Err(Error::Call { cause, .. }) if code(&cause) == Some(404) => Err(Untold::Gone),
            Err(error) if error.is_of_pod() => Err(Untold::Refused(Chain(&error).to_string())),
            Err(error) => {
                // Credentials change, and a connection may be one that is dead.
                self.keep(None);
                if !self.is_lost.swap(true, Ordering::Relaxed) {
                    let kubeconfig = self.kubeconfig.display();
                    tracing::warn!(
                        error = %Chain(&error), %kubeconfig,
                        "the cluster is not told of VMs, as whether they are paused; tries again (`report_kubeconfig`)"
                    );
                }
                Err(Untold::Failed)
            }
        }
    }

    async fn try_tell(&self, pod: &PodName, report: &Report, there: Option<Report>) -> Result<Report, Error> {
        let pods: Api<Pod> = Api::namespaced(self.client().await?, &pod.namespace);
        let failed = |action| {
            let (namespace, name) = (pod.namespace.clone(), pod.name.clone());
            move |cause| Error::Call { action, namespace, name, cause: Box::new(cause) }
        };
        let there = match there {
            Some(there) => there,
            None => {
                // Of a node's own pods it may do this and no more. It is refused for another pod.
                let (nothing, params) = (json!({"metadata": {"uid": pod.uid}}), params(true));
                let found = pods.patch_status(&pod.name, &params, &Patch::Strategic(nothing)).await;
                let found = match found {
                    Err(error) if code(&error) == Some(422) => return Err(Error::Another),
                    found => found.map_err(failed("read"))?,
                };
                if found.metadata.uid.as_ref() != Some(&pod.uid) {
                    return Err(Error::Another);
                }
                Report::on(&found)
            }
        };
        if report.is_in(&there) {
            return Ok(there);
        }
        let params = params(false);
        let patch = |report: &Report| Patch::Strategic(report.patch(pod, &there, now()));
        match pods.patch_status(&pod.name, &params, &patch(report)).await {
            // All annotations of a pod together may be so long, and are others' too: what it does not take counts as told until it is another.
            Err(error) if code(&error) == Some(422) && report.has_other_guest(&there) => {
                let less = report.with_guest_of(&there);
                if !less.is_in(&there) {
                    pods.patch_status(&pod.name, &params, &patch(&less)).await.map_err(failed("patch"))?;
                }
                let (namespace, name) = (&pod.namespace, &pod.name);
                tracing::warn!(namespace, name, error = %Chain(&error), "a pod does not take what its guest tells");
            }
            done => drop(done.map_err(failed("patch"))?),
        }
        Ok(report.over(there))
    }

    async fn client(&self) -> Result<Client, AccessError> {
        let kept = self.client.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some(Clients(client)) = kept {
            return Ok(client);
        }
        let client = client(Some(&self.kubeconfig), DEADLINE).await?;
        self.keep(Some(Clients(client.clone())));
        Ok(client)
    }

    fn keep(&self, client: Option<Clients>) {
        *self.client.lock().unwrap_or_else(PoisonError::into_inner) = client;
    }
}

impl Error {
    /// Whether the server is there and lets the node in, and refuses this all the same.
    fn is_of_pod(&self) -> bool {
        matches!(self, Self::Call { cause, .. } if code(cause).is_some_and(|code| (400..500).contains(&code) && code != 401))
    }
}

impl std::fmt::Debug for Clients {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Client")
    }
}

fn params(dry_run: bool) -> PatchParams {
    PatchParams { dry_run, field_manager: Some(MANAGER.to_owned()), ..PatchParams::default() }
}

fn code(error: &kube::Error) -> Option<u16> {
    match error {
        kube::Error::Api(status) => Some(status.code),
        _ => None,
    }
}

/// In whole seconds, as the API has it.
fn now() -> Timestamp {
    let now = Timestamp::now();
    Timestamp::from_second(now.as_second()).unwrap_or(now)
}

#[cfg(test)]
pub(super) mod tests;
