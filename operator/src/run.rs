//! The operator as a service: one of several writes, each answers to the API server for presets.

use std::net::SocketAddr;
use std::sync::Arc;

use kube::Client;
use kubevirt::render::Options;
use tokio::signal::unix::{SignalKind, signal};
use tracing::info;

use crate::group::Group;
use crate::leader::{Leadership, Lost};
use crate::metrics::Metrics;
use crate::serve::{listen, serve};
use crate::{controllers, webhook};

/// How it is to run.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Of our objects.
    pub group: Group,
    /// What the cluster has.
    pub options: Options,
    /// Namespace of the operator: of the Lease by which one of several writes, of the certificate, and of the Service.
    pub namespace: String,
    /// Name of the Service by which the API server comes for presets.
    pub service: String,
    /// Where the API server is answered; nowhere if nothing is said.
    pub webhook: Option<SocketAddr>,
    /// Who this operator is among them. Its pod's name, in a cluster.
    pub name: String,
    /// Where kubelet and Prometheus ask.
    pub listen: SocketAddr,
}

/// Why it ended.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// It cannot listen.
    #[error("cannot listen on {0}")]
    Listen(SocketAddr, #[source] std::io::Error),
    /// Signals cannot be had.
    #[error("signals cannot be had")]
    Signals(#[source] std::io::Error),
    /// Another one may write now.
    #[error(transparent)]
    Lost(#[from] Lost),
}

/// Serves until a signal says to end.
///
/// # Errors
/// See [`RunError`]. It is to be started again then.
pub async fn run(client: Client, settings: Settings) -> Result<(), RunError> {
    let metrics = Arc::new(Metrics::default());
    let open = |at| async move { listen(at).await.map_err(|cause| RunError::Listen(at, cause)) };
    let listener = open(settings.listen).await?;
    let asked = match settings.webhook {
        Some(at) => Some(open(at).await?),
        None => None,
    };
    let mut terminate = signal(SignalKind::terminate()).map_err(RunError::Signals)?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(RunError::Signals)?;
    let leadership = Leadership::new(client.clone(), &settings.namespace, settings.name.clone());
    let lead = async {
        leadership.gain().await;
        metrics.leads();
        let (group, options) = (settings.group, settings.options.clone());
        let work = controllers::run(client.clone(), group, options, Arc::clone(&metrics), Some(settings.name.clone()));
        tokio::select! {
            lost = leadership.keep() => Err(RunError::Lost(lost)),
            () = work => Ok(()),
        }
    };
    let presets = async {
        let Some(asked) = asked else {
            metrics.becomes_ready();
            return std::future::pending().await;
        };
        let names = (&*settings.namespace, &*settings.service);
        webhook::run(client.clone(), settings.group, asked, names, Arc::clone(&metrics)).await;
    };
    info!(group = %settings.group, name = settings.name, "serves");
    let ended = tokio::select! {
        ended = lead => ended,
        () = presets => Ok(()),
        () = serve(listener, metrics.clone()) => Ok(()),
        _ = terminate.recv() => Ok(()),
        _ = interrupt.recv() => Ok(()),
    };
    // What was under way is dropped by now, so another one may begin.
    leadership.give_back().await;
    ended
}
