//! Calls about the node: who serves it, whether it can, and what kubelet has to agree on.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use prost::Message as _;
use proto::cri::{
    CgroupDriver as Driver, RuntimeConfigResponse, RuntimeHandler, StatusRequest, StatusResponse, VersionResponse,
};
use tokio::sync::OwnedSemaphorePermit;
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tonic::body::Body;
use tonic::codegen::http::Response;
use tonic::codegen::http::request::Parts;
use tonic::{Code, Status};
use tracing::Instrument as _;

use super::ask::{self, Question};
use super::frames::{self, Read};
use super::own::ended_in_bug;
use super::status::{self, Missing, Trouble};
use super::uses::{Uses, plain};
use super::wire;
use crate::api::edge::PassedOn;
use crate::config::CgroupDriver;

const STATUS: &str = "/runtime.v1.RuntimeService/Status";
const RUNTIME_CONFIG: &str = "/runtime.v1.RuntimeService/RuntimeConfig";

/// Asks the default, for as long as a list may take.
pub(super) async fn ask_default(uses: &Uses, question: Question) -> Result<Bytes, Status> {
    let call = question.call();
    let answer = uses.backend.within_deadline(call, ask::one(uses.backend.clone(), question)).await;
    answer.map(tonic::Response::into_inner)
}

/// The default's, so that containers keep the name of their runtime in pods' status.
pub(super) async fn version(uses: &Uses, parts: &Parts, request: Read) -> Result<Response<Body>, Status> {
    PassedOn::note(&parts.extensions);
    let question = Question::of(parts, request.message, false);
    let answer = match ask_default(uses, question).await.and_then(ask::understood::<VersionResponse>) {
        Ok((answer, _)) => {
            uses.saved.keep_version(&answer);
            answer
        }
        Err(status) => uses.saved.version().ok_or(status)?,
    };
    Ok(frames::answer(vec![answer]))
}

pub(super) async fn runtime_config(uses: &Uses, parts: &Parts) -> Result<Response<Body>, Status> {
    PassedOn::note(&parts.extensions);
    Ok(frames::answer(vec![driver(uses).await?]))
}

/// Asks for what kubelet manages cgroups with, and compares it with ours.
async fn driver(uses: &Uses) -> Result<Bytes, Status> {
    let asked = ask_default(uses, Question::new(RUNTIME_CONFIG, Bytes::new())).await;
    let (answer, config) = match asked.and_then(ask::understood::<RuntimeConfigResponse>) {
        Ok((answer, config)) => {
            if uses.saved.keep_runtime_config(&answer) {
                tracing::info!(cgroup_driver = ?driver_of(&config), "the container runtime's RuntimeConfig");
            }
            (answer, config)
        }
        // Of a runtime of before this call. kubelet goes by its own configuration then.
        Err(status) if status.code() == Code::Unimplemented => {
            uses.state.compare_drivers(None);
            return Err(status);
        }
        Err(status) => ask::understood(uses.saved.runtime_config().ok_or(status)?)?,
    };
    uses.state.compare_drivers(driver_of(&config));
    Ok(answer)
}

fn driver_of(config: &RuntimeConfigResponse) -> Option<CgroupDriver> {
    config.linux.map(|linux| match linux.cgroup_driver() {
        Driver::Systemd => CgroupDriver::Systemd,
        Driver::Cgroupfs => CgroupDriver::Cgroupfs,
    })
}

/// Both are told; the default's answer is the answer.
pub(super) async fn update_runtime_config(uses: &Uses, parts: Parts, request: Read) -> Result<Response<Body>, Status> {
    let question = Question::of(&parts, request.message.clone(), true);
    let ours = uses.own.call(plain(parts, request.body()));
    let (theirs, _ours) = tokio::join!(ask::one(uses.backend.clone(), question), ours);
    Ok(frames::answer(vec![theirs?.into_inner()]))
}

/// What a new connection is asked, so that an answer is kept and the two sides are compared before kubelet asks.
pub(super) async fn compare(uses: &Arc<Uses>) {
    if let Err(error) = driver(uses).await
        && error.code() != Code::Unimplemented
    {
        tracing::warn!(%error, "RuntimeConfig of the container runtime not read");
    }
    let question = Question::new(STATUS, StatusRequest { verbose: false }.encode_to_vec().into());
    if let Err(error) = ask_status(uses, question).await {
        tracing::warn!(%error, "Status of the container runtime not read");
    }
}

/// Asks for a Status that serves later, one at a time, in a task that goes on behind the deadline: of a default that takes longer each time
/// none would be known.
async fn ask_status(uses: &Arc<Uses>, question: Question) -> Result<Bytes, Status> {
    if let Some(refused) = uses.backend.refused() {
        return Err(refused);
    }
    let answer = async {
        let turn = uses.status_turn.clone().acquire_owned().await;
        let turn = turn.map_err(|_closed| Status::internal("Status is not asked for any more"))?;
        let task = begin_status(uses.clone(), question, turn);
        task.await.unwrap_or_else(|bug| Err(ended_in_bug("Status", &bug)))
    };
    uses.backend.within_deadline("Status", answer).await
}

fn begin_status(uses: Arc<Uses>, question: Question, turn: OwnedSemaphorePermit) -> JoinHandle<Result<Bytes, Status>> {
    tokio::spawn(
        async move {
            let latest = status::PATIENCE.max(uses.backend.deadline());
            let answer = timeout(latest, ask::one(uses.backend.clone(), question)).await;
            let answer =
                answer.map_err(|_elapsed| Status::deadline_exceeded("a Status of the container runtime never came"));
            let learned = learn(&uses, answer??.into_inner(), false);
            drop(turn);
            learned
        }
        .in_current_span(),
    )
}

/// What a Status that is one tells. That of a question without info is what serves later.
fn learn(uses: &Uses, answer: Bytes, verbose: bool) -> Result<Bytes, Status> {
    let (answer, told) = ask::understood::<StatusResponse>(answer)?;
    uses.state.compare_handlers(&status::handlers(&told), uses.keys.handlers());
    uses.saved.status_came();
    if !verbose {
        uses.saved.keep_status(answer.clone());
    }
    Ok(answer)
}

/// The default's with ours behind it. Before there was one of it, kubelet has an error for as long as the last one would serve: it has patience
/// with errors, and none with a condition that is false. People who ask for all that there is are shown it.
pub(super) async fn status(uses: &Arc<Uses>, parts: &Parts, request: Read) -> Result<Response<Body>, Status> {
    let verbose = StatusRequest::decode(request.message.clone()).is_ok_and(|request| request.verbose);
    let question = Question::of(parts, request.message.clone(), false);
    // Asks libvirt and tapmanager.
    let own = uses.own.ask_for_list(Question::new(STATUS, request.message));
    let theirs = async {
        if !verbose {
            return ask_status(uses, question).await;
        }
        // With all that people are shown, which takes longer and serves nobody later.
        learn(uses, ask_default(uses, question).await?, verbose)
    };
    let (theirs, own) = tokio::join!(theirs, own);
    let theirs = theirs.map_err(|failed| missing(uses, &failed));
    let theirs = match status::of_default(theirs, uses.saved.status()) {
        Ok(theirs) => theirs,
        Err(missing) if verbose => status::down(&missing, None),
        Err(missing) => return Err(Status::unavailable(missing.to_string())),
    };
    let own = match own {
        Ok(own) => {
            StatusResponse::decode(own).map_err(|error| Trouble { reason: "Bug".into(), message: error.to_string() })
        }
        Err(failed) => Err(Trouble { reason: "NoAnswer".into(), message: failed.message().into() }),
    };
    let (trouble, info, handlers) = match own {
        Ok(own) => (status::of_own(&own), own.info, own.runtime_handlers),
        Err(trouble) => (Some(trouble), HashMap::new(), Vec::new()),
    };
    let trouble = trouble.or_else(|| uses.state.trouble());
    let info = if verbose { shown(uses, info) } else { HashMap::new() };
    Ok(frames::answer(vec![theirs, status::ours(trouble.as_ref(), listed(uses, handlers), info)]))
}

/// How long there has been no Status: the runtime is away for so long, or since one failed or was late none has come.
fn missing(uses: &Uses, failed: &Status) -> Missing {
    let fails = uses.saved.status_failed(Instant::now()).elapsed();
    match uses.backend.away() {
        Some(away) => Missing { since: fails.max(away.since.elapsed()), why: away.why, is_away: true },
        None => Missing { since: fails, why: failed.message().to_owned(), is_away: false },
    }
}

/// Our handlers, also while our own Status has none; without those that the default has, too.
fn listed(uses: &Uses, told: Vec<RuntimeHandler>) -> Vec<RuntimeHandler> {
    let told: BTreeMap<_, _> = told.into_iter().map(|handler| (handler.name.clone(), handler)).collect();
    let names = uses.keys.handlers().iter().filter(|name| !uses.state.has_twice(name));
    let handler = |name: &String| {
        told.get(name)
            .cloned()
            .unwrap_or_else(|| RuntimeHandler { name: name.clone(), features: Some(Default::default()) })
    };
    names.map(handler).collect()
}

/// What `crictl info` and `virtletctl proxy status` show: our own facts, and what is known of the default.
fn shown(uses: &Uses, mut info: HashMap<String, String>) -> HashMap<String, String> {
    let away = uses.backend.away();
    let lists: BTreeMap<_, _> = uses
        .lists
        .shown()
        .into_iter()
        .map(|(name, kept)| {
            (name, kept.map(|(age, bytes)| serde_json::json!({ "ageSeconds": age.as_secs(), "bytes": bytes })))
        })
        .collect();
    let proxy = serde_json::json!({
        "runtimeEndpoint": format!("unix://{}", uses.backend.socket().display()),
        "up": away.is_none(),
        "awaySeconds": away.as_ref().map(|away| away.since.elapsed().as_secs()),
        "why": away.map(|away| away.why),
        "lastGoodLists": lists,
        "handlers": uses.keys.handlers(),
        "trouble": uses.state.trouble().map(|trouble| trouble.message),
    });
    info.insert("virtletProxy".into(), proxy.to_string());
    info
}

/// That the default serves a version of CRI that no kubelet speaks any more is not for us to say; that we do not is.
pub(super) fn too_old() -> Response<Body> {
    Status::unimplemented("CRI v1alpha2 is not spoken here; use kubelet 1.26 or later").into_http()
}

/// Keeps the `Version` that a new connection has answered, and tells of one that is another than before.
pub(super) fn keep_version(uses: &Uses, version: &Bytes) {
    if wire::check(version).is_err() || !uses.saved.keep_version(version) {
        return;
    }
    let text = |field| wire::text(version, &[field]).unwrap_or_default();
    tracing::info!(name = text(2), version = text(3), "the container runtime's version");
}
