//! Translation rules from a cluster: its VirtletImageMapping objects, kept in the image store as they change.
//!
//! Optional, and never in the way: the daemon waits at most [`FIRST_LIST`] for the first list, and goes on without. What
//! was once learnt stays while the API server is away; the next list corrects it. A session is one client, one list and
//! the watch that follows it; whatever fails ends it, and the next one reads the kubeconfig again, as credentials change.
//!
//! Objects are taken as they come, not by their type: one that the schema would refuse spoils only itself, and the image
//! store says so in the log. No object is ever logged, as one may hold keys.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;

use futures_util::StreamExt as _;
use imagestore::Mappings;
use kube::api::{DynamicObject, ListParams, WatchEvent, WatchParams};
use kube::{Api, Client};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout};

pub mod crd;
#[cfg(test)]
mod tests;

use common::Chain;

use crate::cluster::{AccessError, access};
use crate::config::ImagesConfig;

/// How long the daemon's start waits for the rules.
const FIRST_LIST: Duration = Duration::from_secs(5);
/// For each page of the list.
const LIST_DEADLINE: Duration = Duration::from_secs(30);
/// Silence after which a watch is dead: the server ends one of its own accord, and the client restarts it, before that.
const WATCH_SILENCE: Duration = Duration::from_secs(360);
/// Most objects of one answer.
const PAGE: u32 = 500;
/// Pause after a first failure; it doubles up to [`LONGEST_PAUSE`].
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// Begins to keep `mappings` as the cluster has them, if the operator wants that, and waits a little for the first list:
/// until then a name may go by another rule.
pub async fn start(config: &ImagesConfig, mappings: &Mappings) -> Option<Watching> {
    if !config.kube_mappings {
        return None;
    }
    let cluster = Cluster { kubeconfig: config.kubeconfig.clone(), namespace: config.kube_namespace.clone() };
    let mut watching = Watching::start(cluster, mappings.clone());
    if !watching.listed(FIRST_LIST).await {
        tracing::warn!("image mappings of the cluster not known yet; names go by other rules until they are");
    }
    Some(watching)
}

/// Which cluster, and where in it.
#[derive(Debug)]
struct Cluster {
    /// How to reach it; by default as `kubectl` would, and then as a pod of it would.
    kubeconfig: Option<PathBuf>,
    /// The namespace whose objects count.
    namespace: String,
}

/// Why a session ended.
#[derive(Debug, thiserror::Error)]
pub enum SessionError {
    /// No way to it is known.
    #[error(transparent)]
    Access(#[from] AccessError),
    /// No client can be made of it.
    #[error("failed to make a client of the cluster")]
    Client(#[source] Box<kube::Error>),
    /// What is known of the cluster does not lead to it, or not us.
    #[error("failed to watch image mappings of the cluster at `{server}`")]
    Server {
        /// Its URL.
        server: String,
        #[source]
        cause: WatchError,
    },
}

/// Why a watch ended.
#[derive(Debug, thiserror::Error)]
pub enum WatchError {
    /// The API server, or the way to it.
    #[error(transparent)]
    Api(#[from] ApiError),
    /// Nothing came in time.
    #[error("no answer of the API server for {} s", silence.as_secs())]
    Silent {
        /// For how long.
        silence: Duration,
    },
}

/// What the API server, or the way to it, failed in.
#[derive(Debug, thiserror::Error)]
pub enum ApiError {
    #[error("failed to perform initial object list: {0}")]
    List(#[source] Box<kube::Error>),
    #[error("failed to start watching object: {0}")]
    Start(#[source] Box<kube::Error>),
    #[error("watch stream failed: {0}")]
    Stream(#[source] Box<kube::Error>),
    /// Among others, that it has forgotten the version that the watch went on from: the next list has another.
    #[error("error returned by apiserver during watch: {0}")]
    Said(#[source] Box<kube::core::Status>),
    /// Without it there is nothing to go on from.
    #[error("no metadata.resourceVersion in watch result (does resource support watch?)")]
    NoVersion,
}

/// Whether the settings say how to reach the cluster whose rules are wanted, if any are. Does not ask it.
///
/// # Errors
/// When they name a kubeconfig that cannot be used, or none where there must be one.
pub async fn check(config: &ImagesConfig) -> Result<(), SessionError> {
    if config.kube_mappings {
        access(config.kubeconfig.as_deref(), WATCH_SILENCE).await?;
    }
    Ok(())
}

/// The watch. Dropping it ends it; the rules stay as they are.
#[derive(Debug)]
pub struct Watching {
    task: JoinHandle<()>,
    listed: watch::Receiver<bool>,
}

impl Watching {
    fn start(cluster: Cluster, mappings: Mappings) -> Self {
        let (said, listed) = watch::channel(false);
        let task = tokio::spawn(async move { keep(&cluster, &mappings, &said).await });
        Self { task, listed }
    }

    /// Waits until the rules were listed once, or `deadline`. Whether they were.
    async fn listed(&mut self, deadline: Duration) -> bool {
        matches!(timeout(deadline, self.listed.wait_for(|listed| *listed)).await, Ok(Ok(_)))
    }
}

impl Drop for Watching {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// One session after the other, for ever.
async fn keep(cluster: &Cluster, mappings: &Mappings, listed: &watch::Sender<bool>) {
    let mut pause = FIRST_PAUSE;
    loop {
        let began = Instant::now();
        let Err(error) = session(cluster, mappings, listed).await;
        // One that lasted was a sound one: the server was restarted, say.
        if began.elapsed() > LONGEST_PAUSE {
            pause = FIRST_PAUSE;
        }
        let known = mappings.names().len();
        tracing::warn!(error = %Chain(&error), known, again_in = ?pause, "image mappings of the cluster not watched");
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

async fn session(
    cluster: &Cluster,
    mappings: &Mappings,
    listed: &watch::Sender<bool>,
) -> Result<std::convert::Infallible, SessionError> {
    let config = access(cluster.kubeconfig.as_deref(), WATCH_SILENCE).await?;
    let server = config.cluster_url.to_string();
    let client = Client::try_from(config).map_err(|cause| SessionError::Client(Box::new(cause)))?;
    let Err(cause) = follow(client, &cluster.namespace, mappings, listed).await;
    Err(SessionError::Server { server, cause })
}

/// Lists, then watches. A watch that the server ends goes on where it stopped.
async fn follow(
    client: Client,
    namespace: &str,
    mappings: &Mappings,
    listed: &watch::Sender<bool>,
) -> Result<std::convert::Infallible, WatchError> {
    let objects: Api<DynamicObject> = Api::namespaced_with(client, namespace, &crd::resource());
    let mut version = list(&objects, mappings).await?;
    if !listed.send_replace(true) {
        tracing::info!(count = mappings.names().len(), namespace, "image mappings of the cluster listed");
    }
    let asked = WatchParams::default();
    loop {
        let watch = within(WATCH_SILENCE, objects.watch(&asked, &version)).await?;
        let mut events = std::pin::pin!(watch.map_err(|cause| ApiError::Start(Box::new(cause)))?);
        while let Some(event) = within(WATCH_SILENCE, events.next()).await? {
            version = hear(event.map_err(|cause| ApiError::Stream(Box::new(cause)))?, mappings)?;
        }
    }
}

/// Takes all objects, and forgets what is not among them. The version that a watch goes on from.
async fn list(objects: &Api<DynamicObject>, mappings: &Mappings) -> Result<String, WatchError> {
    let mut names = BTreeSet::new();
    let mut page = ListParams::default().limit(PAGE);
    loop {
        let listed = within(LIST_DEADLINE, objects.list(&page)).await?;
        let listed = listed.map_err(|cause| ApiError::List(Box::new(cause)))?;
        names.extend(listed.items.iter().filter_map(|object| put(object, mappings)));
        page.continue_token = listed.metadata.continue_.filter(|token| !token.is_empty());
        if page.continue_token.is_none() {
            let version = known(listed.metadata.resource_version)?;
            mappings.retain(&names);
            return Ok(version);
        }
    }
}

async fn within<T>(silence: Duration, answer: impl Future<Output = T>) -> Result<T, WatchError> {
    timeout(silence, answer).await.map_err(|_| WatchError::Silent { silence })
}

fn known(version: Option<String>) -> Result<String, ApiError> {
    version.filter(|version| !version.is_empty()).ok_or(ApiError::NoVersion)
}

/// Does what an event says. The version that it leads to.
fn hear(event: WatchEvent<DynamicObject>, mappings: &Mappings) -> Result<String, ApiError> {
    match event {
        WatchEvent::Added(object) | WatchEvent::Modified(object) => {
            put(&object, mappings);
            known(object.metadata.resource_version)
        }
        WatchEvent::Deleted(object) => {
            if let Some(name) = &object.metadata.name {
                mappings.remove(name);
            }
            known(object.metadata.resource_version)
        }
        WatchEvent::Bookmark(mark) => known(Some(mark.metadata.resource_version)),
        WatchEvent::Error(status) => Err(ApiError::Said(status)),
    }
}

fn put(object: &DynamicObject, mappings: &Mappings) -> Option<String> {
    let name = object.metadata.name.clone()?;
    // JSON is YAML, and no spec says as much as an empty one.
    let text = object.data.get("spec").map_or_else(|| "{}".to_owned(), ToString::to_string);
    mappings.put(&name, &text);
    Some(name)
}
