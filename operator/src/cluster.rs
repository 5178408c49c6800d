//! The cluster as commands ask it: by a kubeconfig, or from a pod of it. Each call has a deadline.

use std::path::Path;
use std::time::Duration;

use kube::api::{ApiResource, DynamicObject, GroupVersionKind, TypeMeta};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client, Config};
use serde_json::Value;

/// An API server that is there answers within this.
const CALL_DEADLINE: Duration = Duration::from_secs(30);

const CONNECT_DEADLINE: Duration = Duration::from_secs(10);
/// An API server that is there says something of a watch within this: a bookmark each minute.
const SILENCE: Duration = Duration::from_secs(150);

/// What a cluster was asked, or was to be.
#[derive(Debug, thiserror::Error)]
pub enum ClusterError {
    /// Nobody says where it is.
    #[error("no cluster is known; set KUBECONFIG, or name a file by --kubeconfig")]
    Unknown(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// It answered otherwise.
    #[error("failed to {action}")]
    Call {
        action: String,
        #[source]
        cause: Box<kube::Error>,
    },
    /// It did not answer in time.
    #[error("failed to {action}: no answer within {} s", deadline.as_secs())]
    Deadline { action: String, deadline: Duration },
}

/// A client of the cluster that a kubeconfig names: this one, that of the environment, or that of the pod that this runs in.
///
/// # Errors
/// When there is none, or it cannot be read.
pub async fn connect(kubeconfig: Option<&Path>, context: Option<&str>) -> Result<Client, ClusterError> {
    client(kubeconfig, context, Some(SILENCE)).await
}

/// The same for streams, of which nothing may come for as long as they last. Whoever asks for one is told at once why there is none: kube
/// would ask again for minutes where a node has no place for another (429).
///
/// # Errors
/// As with [`connect`].
pub async fn connect_for_streams(kubeconfig: Option<&Path>, context: Option<&str>) -> Result<Client, ClusterError> {
    client(kubeconfig, context, None).await
}

async fn client(
    kubeconfig: Option<&Path>,
    context: Option<&str>,
    silence: Option<Duration>,
) -> Result<Client, ClusterError> {
    let unknown = |cause: Box<dyn std::error::Error + Send + Sync>| ClusterError::Unknown(cause);
    let mut config = if kubeconfig.is_none() && context.is_none() {
        Config::infer().await.map_err(|cause| unknown(cause.into()))?
    } else {
        let file =
            kubeconfig.map_or_else(Kubeconfig::read, Kubeconfig::read_from).map_err(|cause| unknown(cause.into()))?;
        let options = KubeConfigOptions { context: context.map(str::to_owned), ..KubeConfigOptions::default() };
        Config::from_custom_kubeconfig(file, &options).await.map_err(|cause| unknown(cause.into()))?
    };
    config.connect_timeout = Some(CONNECT_DEADLINE);
    config.read_timeout = silence;
    // What a peer does not take, a stream waits for by a deadline of its own.
    config.write_timeout = silence.and(Some(CONNECT_DEADLINE));
    config.default_retry = silence.is_some();
    Client::try_from(config).map_err(|cause| unknown(cause.into()))
}

/// What a call comes to; `action` is what is tried, for an error.
pub(crate) async fn call<T>(
    action: impl FnOnce() -> String,
    work: impl Future<Output = kube::Result<T>>,
) -> Result<T, ClusterError> {
    match tokio::time::timeout(CALL_DEADLINE, work).await {
        Ok(Ok(done)) => Ok(done),
        Ok(Err(cause)) => Err(ClusterError::Call { action: action(), cause: Box::new(cause) }),
        Err(_) => Err(ClusterError::Deadline { action: action(), deadline: CALL_DEADLINE }),
    }
}

/// Where the API has objects such as this one, which has an `apiVersion` and a `kind`.
pub(crate) fn api_of(client: &Client, object: &Value) -> Api<DynamicObject> {
    let text = |key: &str| object[key].as_str().unwrap_or_default().to_owned();
    let types = TypeMeta { api_version: text("apiVersion"), kind: text("kind") };
    let kind = GroupVersionKind::try_from(types).unwrap_or_else(|_| GroupVersionKind::gvk("", "v1", &text("kind")));
    let resource = ApiResource::from_gvk(&kind);
    match object["metadata"]["namespace"].as_str() {
        Some(namespace) => Api::namespaced_with(client.clone(), namespace, &resource),
        None => Api::all_with(client.clone(), &resource),
    }
}

/// An object in words: its kind, and its name with its namespace.
pub(crate) fn words_of(object: &Value) -> String {
    let metadata = &object["metadata"];
    let (kind, name) = (object["kind"].as_str().unwrap_or_default(), metadata["name"].as_str().unwrap_or_default());
    match metadata["namespace"].as_str() {
        Some(namespace) => format!("{kind} `{namespace}/{name}`"),
        None => format!("{kind} `{name}`"),
    }
}
