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

/// Why something was not told. The log has it.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Untold {
    /// There is no such pod any more.
    Gone,
    /// It may be told later.
    Failed,
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
                let found = match pods.get_status(&pod.name).await {
                    // A kubelet may read pods, and not their status alone.
                    Err(error) if code(&error) == Some(403) => pods.get(&pod.name).await,
                    found => found,
                };
                let found = found.map_err(failed("read"))?;
                if found.metadata.uid.as_ref() != Some(&pod.uid) {
                    return Err(Error::Another);
                }
                Report::on(&found)
            }
        };
        if report.is_in(&there) {
            return Ok(there);
        }
        let patch = report.patch(pod, &there, now());
        let params = PatchParams { field_manager: Some(MANAGER.to_owned()), ..PatchParams::default() };
        pods.patch_status(&pod.name, &params, &Patch::Strategic(patch)).await.map_err(failed("patch"))?;
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

impl std::fmt::Debug for Clients {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Client")
    }
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
