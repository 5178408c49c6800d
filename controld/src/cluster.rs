//! The way to the cluster's API server: by a kubeconfig, with deadlines.

use std::path::{Path, PathBuf};
use std::time::Duration;

use common::off_reactor;
use kube::Client;
use kube::config::{InferConfigError, KubeConfigOptions, Kubeconfig, KubeconfigError};
use tokio::runtime::Handle;
use tokio::sync::Semaphore;

const CONNECT_DEADLINE: Duration = Duration::from_secs(10);
/// How many clients are made at once: a program that hangs keeps its thread, also when nobody waits for it any more.
static CLIENTS: Semaphore = Semaphore::const_new(4);

/// Why no way is known.
#[derive(Debug, thiserror::Error)]
pub enum AccessError {
    /// The named kubeconfig cannot be used.
    #[error("failed to read kubeconfig `{}`", path.display())]
    Kubeconfig {
        path: PathBuf,
        #[source]
        cause: Box<KubeconfigError>,
    },
    /// There is none where one is looked for.
    #[error("no cluster is known: name a kubeconfig")]
    Unknown(#[source] Box<InferConfigError>),
    /// What it says is of no use.
    #[error("failed to make a client of the cluster")]
    Client(#[source] Box<kube::Error>),
}

/// Where the cluster is, and as whom we come. The server may be silent for `silence`. Without a kubeconfig: as `kubectl` would find one,
/// and then as a pod of the cluster would.
///
/// # Errors
/// See [`AccessError`]. Nothing is asked of the server.
pub(crate) async fn access(kubeconfig: Option<&Path>, silence: Duration) -> Result<kube::Config, AccessError> {
    let mut config = match kubeconfig {
        Some(path) => {
            let unusable = |cause| AccessError::Kubeconfig { path: path.to_owned(), cause: Box::new(cause) };
            let file = Kubeconfig::read_from(path).map_err(unusable)?;
            kube::Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await.map_err(unusable)?
        }
        None => kube::Config::infer().await.map_err(|cause| AccessError::Unknown(Box::new(cause)))?,
    };
    config.connect_timeout = Some(CONNECT_DEADLINE);
    config.read_timeout = Some(silence);
    config.write_timeout = Some(CONNECT_DEADLINE);
    Ok(config)
}

/// A client of the cluster that [`access`] leads to, made off the reactor: a kubeconfig may name a program that fetches a token, which is waited for.
///
/// # Errors
/// See [`AccessError`]. Nothing is asked of the server.
pub(crate) async fn client(kubeconfig: Option<&Path>, silence: Duration) -> Result<Client, AccessError> {
    // Fails only if it was closed, which nobody does.
    let turn = CLIENTS.acquire().await.ok();
    let (kubeconfig, runtime) = (kubeconfig.map(Path::to_owned), Handle::current());
    let made = off_reactor(move || {
        let _turn = turn;
        runtime.block_on(async {
            let config = access(kubeconfig.as_deref(), silence).await?;
            Client::try_from(config).map_err(|cause| AccessError::Client(Box::new(cause)))
        })
    });
    made.await
}
