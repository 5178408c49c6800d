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
use kube::api::DynamicObject;
use kube::runtime::watcher::{self, Event};
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
/// From a connection to the whole list.
const LIST_DEADLINE: Duration = Duration::from_secs(30);
/// Silence after which a watch is dead: the server ends one of its own accord, and the client restarts it, before that.
const WATCH_SILENCE: Duration = Duration::from_secs(360);
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
    Api(#[from] Box<watcher::Error>),
    /// Nothing came in time.
    #[error("no answer of the API server for {} s", silence.as_secs())]
    Silent {
        /// For how long.
        silence: Duration,
    },
    /// The stream of events ended, which it never should.
    #[error("watch ended")]
    Ended,
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

/// Lists, then watches.
async fn follow(
    client: Client,
    namespace: &str,
    mappings: &Mappings,
    listed: &watch::Sender<bool>,
) -> Result<std::convert::Infallible, WatchError> {
    let objects: Api<DynamicObject> = Api::namespaced_with(client, namespace, &crd::resource());
    let mut events = std::pin::pin!(watcher::watcher(objects, watcher::Config::default()));
    let mut list = None;
    let mut silence = LIST_DEADLINE;
    loop {
        let event = timeout(silence, events.next()).await.map_err(|_| WatchError::Silent { silence })?;
        let event = event.ok_or(WatchError::Ended)?.map_err(Box::new)?;
        if hear(event, &mut list, mappings) {
            silence = WATCH_SILENCE;
            if !listed.send_replace(true) {
                tracing::info!(count = mappings.names().len(), namespace, "image mappings of the cluster listed");
            }
        }
    }
}

/// Does what an event says. Whether it was the end of a list. `list` are the names that came in the current one.
fn hear(event: Event<DynamicObject>, list: &mut Option<BTreeSet<String>>, mappings: &Mappings) -> bool {
    match event {
        Event::Init => *list = Some(BTreeSet::new()),
        Event::InitApply(object) => {
            if let (Some(name), Some(list)) = (put(&object, mappings), list) {
                list.insert(name);
            }
        }
        Event::InitDone => {
            if let Some(list) = list.take() {
                mappings.retain(&list);
            }
            return true;
        }
        Event::Apply(object) => {
            put(&object, mappings);
        }
        Event::Delete(object) => {
            if let Some(name) = &object.metadata.name {
                mappings.remove(name);
            }
        }
    }
    false
}

fn put(object: &DynamicObject, mappings: &Mappings) -> Option<String> {
    let name = object.metadata.name.clone()?;
    // JSON is YAML, and no spec says as much as an empty one.
    let text = object.data.get("spec").map_or_else(|| "{}".to_owned(), ToString::to_string);
    mappings.put(&name, &text);
    Some(name)
}
