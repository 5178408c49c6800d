//! By what the server knows its clients, and they it: the certificate as it is kept, and the authority of front proxies as the cluster names
//! it. Both change while the server runs.

use std::sync::Arc;

use common::Reason;
use futures_util::{StreamExt as _, TryStreamExt as _};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::watch_object;
use kube::{Api, Client};
use rustls::ServerConfig;
use tokio::sync::watch;
use tracing::{info, warn};

use super::figures::Figures;
use super::front_proxy::FrontProxy;
use crate::certificates::Current;

/// Where the cluster says by what front proxies are known.
const NAMESPACE: &str = "kube-system";
const MAP: &str = "extension-apiserver-authentication";

/// A door: TLS, and who is believed.
#[derive(Debug)]
pub(super) struct Door {
    pub(super) tls: Arc<ServerConfig>,
    pub(super) proxy: Arc<FrontProxy>,
}

/// The door as it is; none as long as one half is missing.
pub(super) type Now = watch::Receiver<Option<Arc<Door>>>;

/// Watches over both halves for ever.
pub(super) async fn keep(
    client: Client,
    mut certificate: Current,
    door: watch::Sender<Option<Arc<Door>>>,
    figures: Arc<Figures>,
) {
    let api: Api<ConfigMap> = Api::namespaced(client, NAMESPACE);
    let maps = watch_object(api, MAP).default_backoff().map_err(|error| {
        warn!(error = %common::Chain(&error), map = MAP, "the authority of front proxies is not watched; tries again");
    });
    let mut maps = maps.boxed();
    let mut proxy = None;
    loop {
        tokio::select! {
            map = maps.next() => match map {
                // As of yet.
                Some(Err(())) => continue,
                Some(Ok(map)) => proxy = read(map.as_ref()),
                None => return,
            },
            changed = certificate.changed() => if changed.is_err() {
                return;
            },
        }
        let shown = certificate.borrow_and_update().clone();
        let next = shown.zip(proxy.clone()).and_then(|(shown, proxy): (_, Arc<FrontProxy>)| {
            let tls = proxy.server(&shown).inspect_err(|error| warn!(error = %common::Chain(error), "no TLS"));
            tls.ok().map(|tls| Arc::new(Door { tls, proxy }))
        });
        figures.has_door(next.is_some());
        info!(open = next.is_some(), "the API server may come");
        door.send_replace(next);
    }
}

fn read(map: Option<&ConfigMap>) -> Option<Arc<FrontProxy>> {
    let read = map.map_or_else(|| Err(Reason::new("there is no such ConfigMap")), FrontProxy::read);
    let read = read.inspect_err(|error| {
        warn!(error = %common::Chain(error), namespace = NAMESPACE, map = MAP, "no front proxy is believed");
    });
    read.ok().map(Arc::new)
}
