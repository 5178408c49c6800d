//! One of several operators is the one that writes: the holder of a Lease.
//!
//! Who holds it says so again and again. Who cannot do that in time is not the one any more, and must have ended before another takes
//! over: the process ends, and is started again.

use std::time::Duration;

use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use k8s_openapi::jiff::Timestamp;
use kube::api::PostParams;
use kube::core::ObjectMeta;
use kube::{Api, Client};
use tokio::time::{Instant, interval, timeout, timeout_at};
use tracing::{debug, info, warn};

use crate::names::{MANAGED_BY, OPERATOR};
use crate::write::{is_stale, is_there};

/// Who does not say for so long that it holds the lease does not.
const TERM: Duration = Duration::from_secs(15);
/// Who has not been able to say so for so long ends: before its term does, whatever clocks say.
const GIVE_UP: Duration = Duration::from_secs(10);
/// Between attempts.
const PERIOD: Duration = Duration::from_secs(2);
/// After one that failed while the lease is held.
const RETRY: Duration = Duration::from_millis(500);
/// Of one call.
const CALL: Duration = Duration::from_secs(5);

/// The lease was held, and is not any more.
#[derive(Debug, thiserror::Error)]
#[error("the lease `{OPERATOR}` was lost: it was not renewed for {} s, or somebody else has it", GIVE_UP.as_secs())]
pub struct Lost;

/// Whose the lease is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Holder {
    Us,
    Another,
    /// Somebody wrote it meanwhile, which may have been us: a call that was sent twice.
    Unknown,
}

/// A way to the lease.
#[derive(Clone)]
pub struct Leadership {
    leases: Api<Lease>,
    /// Who we are.
    name: String,
}

/// What was seen of another's lease, and since when it is the same.
struct Seen {
    version: Option<String>,
    since: Instant,
}

impl Leadership {
    /// That of this namespace, for a process of this name, which no other has.
    #[must_use]
    pub fn new(client: Client, namespace: &str, name: String) -> Self {
        Self { leases: Api::namespaced(client, namespace), name }
    }

    /// Waits until the lease is held. What is in the way is said when it is another than before: a namespace that is not there, or a right
    /// that is lacking, stays.
    pub async fn gain(&self) {
        let mut ticks = interval(PERIOD);
        let mut seen = None;
        let mut told = String::new();
        loop {
            ticks.tick().await;
            let why = match timeout(CALL, self.attempt(&mut seen)).await {
                Ok(Ok(Holder::Us)) => {
                    info!(lease = OPERATOR, name = self.name, "this operator is the one that writes");
                    return;
                }
                Ok(Ok(Holder::Another | Holder::Unknown)) => continue,
                Ok(Err(error)) => common::Chain(&error).to_string(),
                Err(_late) => format!("no answer within {} s", CALL.as_secs()),
            };
            if why != told {
                warn!(
                    lease = OPERATOR,
                    error = why,
                    "the lease is not to be had, and this operator does nothing; it is tried on"
                );
                told = why;
            }
        }
    }

    /// Says again and again that the lease is held. Returns when that is not so any more.
    pub async fn keep(&self) -> Lost {
        let mut ticks = interval(PERIOD);
        let mut said = Instant::now();
        let mut seen = None;
        while timeout_at(said + GIVE_UP, ticks.tick()).await.is_ok() {
            let began = Instant::now();
            match timeout_at((said + GIVE_UP).min(began + CALL), self.attempt(&mut seen)).await {
                // From when it was sent: others count from when it was done.
                Ok(Ok(Holder::Us)) => {
                    said = began;
                    continue;
                }
                Ok(Ok(Holder::Another)) => return Lost,
                Ok(Err(error)) => debug!(error = %common::Chain(&error), "the lease is not renewed"),
                Ok(Ok(Holder::Unknown)) => {}
                Err(_late) => {
                    ticks.reset_immediately();
                    continue;
                }
            }
            ticks.reset_after(RETRY);
        }
        Lost
    }

    /// Gives the lease back, so that another need not wait for the end of the term.
    pub async fn give_back(&self) {
        let given = async {
            let Some(mut lease) = self.leases.get_opt(OPERATOR).await? else { return Ok(()) };
            let spec = lease.spec.get_or_insert_default();
            if spec.holder_identity.as_deref() != Some(&self.name) {
                return Ok(());
            }
            spec.holder_identity = None;
            spec.lease_duration_seconds = Some(1);
            self.leases.replace(OPERATOR, &PostParams::default(), &lease).await.map(drop)
        };
        if let Ok(Err(error)) = timeout(CALL, given).await {
            let error: &kube::Error = &error;
            debug!(error = %common::Chain(error), "the lease is not given back");
        }
    }

    /// Takes or renews the lease, unless it is another's.
    async fn attempt(&self, seen: &mut Option<Seen>) -> Result<Holder, kube::Error> {
        let Some(mut lease) = self.leases.get_opt(OPERATOR).await? else {
            return held(self.leases.create(&PostParams::default(), &self.first()).await);
        };
        let version = lease.metadata.resource_version.clone();
        let spec = lease.spec.get_or_insert_default();
        let holder = spec.holder_identity.as_deref().unwrap_or_default();
        let is_ours = holder == self.name;
        if !is_ours && !holder.is_empty() {
            // Another's clock may be wrong: what counts is how long its lease has been the same here.
            let term =
                spec.lease_duration_seconds.and_then(|term| u64::try_from(term).ok()).map_or(TERM, Duration::from_secs);
            match seen {
                Some(seen) if seen.version == version => {
                    if seen.since.elapsed() < term {
                        return Ok(Holder::Another);
                    }
                }
                _ => {
                    *seen = Some(Seen { version, since: Instant::now() });
                    return Ok(Holder::Another);
                }
            }
        }
        let now = MicroTime(Timestamp::now());
        if !is_ours {
            spec.acquire_time = Some(now.clone());
            spec.lease_transitions = Some(spec.lease_transitions.unwrap_or_default().saturating_add(1));
        }
        spec.renew_time = Some(now);
        spec.holder_identity = Some(self.name.clone());
        spec.lease_duration_seconds = Some(TERM.as_secs().try_into().unwrap_or(i32::MAX));
        held(self.leases.replace(OPERATOR, &PostParams::default(), &lease).await)
    }

    fn first(&self) -> Lease {
        let now = MicroTime(Timestamp::now());
        Lease {
            metadata: ObjectMeta {
                name: Some(OPERATOR.to_owned()),
                labels: Some([(MANAGED_BY.to_owned(), OPERATOR.to_owned())].into()),
                ..ObjectMeta::default()
            },
            spec: Some(LeaseSpec {
                holder_identity: Some(self.name.clone()),
                lease_duration_seconds: Some(TERM.as_secs().try_into().unwrap_or(i32::MAX)),
                acquire_time: Some(now.clone()),
                renew_time: Some(now),
                lease_transitions: Some(0),
                ..LeaseSpec::default()
            }),
        }
    }
}

impl std::fmt::Debug for Leadership {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Leadership").field("name", &self.name).finish_non_exhaustive()
    }
}

/// Whose it is after a write: another may have been quicker.
fn held(written: Result<Lease, kube::Error>) -> Result<Holder, kube::Error> {
    match written {
        Ok(_) => Ok(Holder::Us),
        Err(error) if is_stale(&error) || is_there(&error) => Ok(Holder::Unknown),
        Err(error) => Err(error),
    }
}
