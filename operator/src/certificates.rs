//! The certificate by which the API server knows a server of ours, in a Secret that all replicas share.
//!
//! Whoever finds none, or one whose time has come, makes one: the API server takes one replica's and tells the others. A certificate is
//! used once the object by which the API server comes names its authority ([`Bundle`]), not before.

mod bundle;
mod kept;
mod material;

use std::fmt::Display;
use std::sync::Arc;
use std::time::Duration;

use common::Reason;
use futures_util::stream::{BoxStream, select};
use futures_util::{StreamExt as _, TryStreamExt as _};
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::jiff::Timestamp;
use kube::api::{PatchParams, PostParams};
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::watch_object;
use kube::{Api, Client};
use rustls::ServerConfig;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout};
use tracing::{info, warn};

pub(crate) use self::bundle::Bundle;
use self::kept::{Step, decide};
use self::material::Material;
pub(crate) use self::material::provider;
use crate::names::OPERATOR;
use crate::write::{is_missing, is_stale, is_there};

/// Of one call.
const CALL: Duration = Duration::from_secs(10);
/// Until it is looked again whether the certificate's time has come.
const LOOK: Duration = Duration::from_secs(3600);
/// Until it is looked again after somebody else was quicker, or a Secret was written.
const SOON: Duration = Duration::from_millis(100);
/// Until what failed is tried again.
const AGAIN: Duration = Duration::from_secs(5);
/// Between two certificates that one replica makes: with clocks that differ, two would make them all the time.
const PAUSE: Duration = Duration::from_secs(60);
/// API servers hear of another authority within this time.
const SETTLE: Duration = Duration::from_secs(10);

/// What a server shows who connects; nothing as long as there is no certificate.
pub(crate) type Current = watch::Receiver<Option<Arc<ServerConfig>>>;

/// Whose certificate it is, and where it is.
#[derive(Debug, Clone)]
pub(crate) struct Place {
    /// Of the server, and of the Secret.
    pub(crate) namespace: String,
    /// The Service by which the API server comes.
    pub(crate) service: String,
    /// The Secret with it.
    pub(crate) secret: &'static str,
    /// The object that tells the API server whom to trust.
    pub(crate) told_in: String,
}

/// Keeps the certificate.
pub(crate) struct Keeper<B> {
    secrets: Api<Secret>,
    bundles: Api<B>,
    place: Place,
    /// The server's name.
    host: String,
    current: watch::Sender<Option<Arc<ServerConfig>>>,
    used: Option<Material>,
    made: Option<Instant>,
    /// Authorities that the API server was to trust, and since when.
    trusted: Option<(String, Instant)>,
}

/// How a look ended.
#[derive(Debug, PartialEq, Eq)]
enum Look {
    Done,
    /// There is something else to see now.
    Again,
    /// API servers are to hear of other authorities first.
    Settles,
}

impl<B: Bundle> Keeper<B> {
    /// That of a server. Returns what is to be shown, too.
    pub(crate) fn new(client: Client, place: Place) -> (Self, Current) {
        let (current, shown) = watch::channel(None);
        let keeper = Self {
            secrets: Api::namespaced(client.clone(), &place.namespace),
            bundles: Api::all(client),
            host: format!("{}.{}.svc", place.service, place.namespace),
            place,
            current,
            used: None,
            made: None,
            trusted: None,
        };
        (keeper, shown)
    }

    /// Does so for ever.
    pub(crate) async fn keep(mut self) {
        let mut news = self.news();
        loop {
            let wait = match self.look(Timestamp::now()).await {
                Ok(Look::Done) => LOOK,
                Ok(Look::Again) => SOON,
                Ok(Look::Settles) => SETTLE,
                Err(error) => {
                    warn!(error = %common::Chain(&error), host = self.host, "the certificate is not kept; tries again");
                    AGAIN
                }
            };
            tokio::select! {
                _ = news.next() => {}
                () = sleep(wait) => {}
            }
        }
    }

    /// Says something whenever one of both objects may be another one.
    fn news(&self) -> BoxStream<'static, ()> {
        let secret = watch_object(self.secrets.clone(), self.place.secret).map_ok(drop).default_backoff();
        let bundle = watch_object(self.bundles.clone(), &self.place.told_in).map_ok(drop).default_backoff();
        let told = |news: Result<(), _>| async move {
            news.inspect_err(
                |error| warn!(error = %common::Chain(error), "the certificate is not watched; tries again"),
            )
            .ok()
        };
        select(secret, bundle).filter_map(told).boxed()
    }

    /// Looks whether all is as it is to be, and does one thing about it if not.
    async fn look(&mut self, now: Timestamp) -> Result<Look, Reason> {
        // In this order: if the Secret is of an older day than this object, somebody patches that yet, or it is not as it was read.
        let bundle = call("read whom the API server trusts", self.bundles.get_opt(&self.place.told_in)).await?;
        let secret = call("read the certificate's Secret", self.secrets.get_opt(self.place.secret)).await?;
        match decide(secret.as_ref(), self.place.secret, &self.host, now)? {
            Step::Make(before) => self.make(secret, before, now).await,
            Step::Use(material, server) => {
                if let Some(bundle) = bundle.filter(|bundle| !bundle.names(&material.authorities))
                    && self.trust(&bundle, &material.authorities).await? == Look::Again
                {
                    return Ok(Look::Again);
                }
                Ok(self.show(material, server))
            }
        }
    }

    async fn make(&mut self, secret: Option<Secret>, before: Option<Material>, now: Timestamp) -> Result<Look, Reason> {
        if self.made.is_some_and(|made| made.elapsed() < PAUSE) {
            return Err(Reason::new(
                "the certificate is not good though it was made a moment ago: do the nodes' clocks differ?",
            ));
        }
        // Whoever deletes the Secret wants another authority; servers show the one before until the new one is trusted.
        let before = before.or_else(|| self.used.as_ref().map(Material::without_key));
        let made = Material::make(&self.host, now, before.as_ref())?;
        let is_new = secret.is_none();
        let secret = kept::with(secret, self.place.secret, &made);
        let params = PostParams { field_manager: Some(OPERATOR.to_owned()), ..PostParams::default() };
        let written = async {
            match is_new {
                true => unless(is_there, self.secrets.create(&params, &secret).await),
                false => unless(is_another, self.secrets.replace(self.place.secret, &params, &secret).await),
            }
        };
        if call("write the certificate's Secret", written).await? {
            self.made = Some(Instant::now());
            info!(secret = self.place.secret, host = self.host, "made a certificate");
        }
        Ok(Look::Again)
    }

    /// Has the API server trust another authority.
    async fn trust(&self, bundle: &B, authorities: &str) -> Result<Look, Reason> {
        let params = PatchParams { field_manager: Some(OPERATOR.to_owned()), ..PatchParams::default() };
        let (told_in, patch) = (&self.place.told_in, bundle.patch(authorities));
        let patched = async { unless(is_another, self.bundles.patch(told_in, &params, &patch).await) };
        if !call("tell the API server whom to trust", patched).await? {
            return Ok(Look::Again);
        }
        info!(told_in, "the API server trusts the certificate's authority");
        Ok(Look::Done)
    }

    /// Has servers show this one, once it has been trusted for long enough.
    fn show(&mut self, material: Material, server: Arc<ServerConfig>) -> Look {
        if let Some(used) = &self.used {
            if *used == material {
                return Look::Done;
            }
            // Nothing tells when all API servers have heard of other authorities.
            if used.authorities != material.authorities && !has_settled(&mut self.trusted, &material.authorities) {
                return Look::Settles;
            }
            info!(host = self.host, "uses a new certificate");
        }
        self.current.send_replace(Some(server));
        self.used = Some(material);
        Look::Done
    }
}

impl<B> std::fmt::Debug for Keeper<B> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Keeper").field("host", &self.host).finish_non_exhaustive()
    }
}

/// Whether these authorities are trusted for long enough, if they are those of before.
fn has_settled(trusted: &mut Option<(String, Instant)>, authorities: &str) -> bool {
    match trusted {
        Some((before, since)) if before == authorities => since.elapsed() >= SETTLE,
        _ => {
            *trusted = Some((authorities.to_owned(), Instant::now()));
            false
        }
    }
}

/// Whether it was written; not if somebody else was quicker.
fn unless<T>(is_late: fn(&kube::Error) -> bool, written: Result<T, kube::Error>) -> Result<bool, kube::Error> {
    match written {
        Ok(_) => Ok(true),
        Err(error) if is_late(&error) => Ok(false),
        Err(error) => Err(error),
    }
}

/// Whether the object is not the one that was read.
fn is_another(error: &kube::Error) -> bool {
    is_stale(error) || is_missing(error)
}

async fn call<T>(what: &str, call: impl Future<Output = Result<T, kube::Error>>) -> Result<T, Reason> {
    let failed = |why: &dyn Display| Reason::new(format!("failed to {what}{why}"));
    match timeout(CALL, call).await {
        Ok(Ok(done)) => Ok(done),
        Ok(Err(cause)) => Err(failed(&"").with(cause)),
        Err(_) => Err(failed(&format_args!(": no answer in {} s", CALL.as_secs()))),
    }
}

#[cfg(test)]
mod tests;
