//! Calls about the node: who serves it, whether it can, and what kubelet has to agree on.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use bytes::Bytes;
use prost::Message as _;
use proto::cri::{CgroupDriver as Driver, RuntimeConfigResponse, RuntimeHandler, StatusRequest, StatusResponse};
use tonic::body::Body;
use tonic::codegen::http::Response;
use tonic::codegen::http::request::Parts;
use tonic::{Code, Status};

use super::ask::{self, Question};
use super::calls;
use super::frames::{self, Read};
use super::status::{self, Missing, Trouble};
use super::uses::{Uses, metadata, plain};
use super::wire;
use crate::config::CgroupDriver;

pub(super) const VERSION: &str = "/runtime.v1.RuntimeService/Version";
const STATUS: &str = "/runtime.v1.RuntimeService/Status";
const RUNTIME_CONFIG: &str = "/runtime.v1.RuntimeService/RuntimeConfig";
const UPDATE_RUNTIME_CONFIG: &str = "/runtime.v1.RuntimeService/UpdateRuntimeConfig";

/// Asks the default, for as long as a list may take.
pub(super) async fn ask_default(uses: &Uses, question: Question) -> Result<Bytes, Status> {
    let call = calls::name(question.path);
    let answer = uses.backend.within_deadline(call, ask::one(uses.backend.clone(), question)).await;
    answer.map(tonic::Response::into_inner)
}

/// The default's, so that containers keep the name of their runtime in pods' status.
pub(super) async fn version(uses: &Uses, parts: &Parts, request: Read) -> Result<Response<Body>, Status> {
    let question = Question { path: VERSION, message: request.message, metadata: metadata(parts, false) };
    let answer = match ask_default(uses, question).await {
        Ok(answer) => {
            uses.saved.keep_version(&answer);
            answer
        }
        Err(status) => uses.saved.version().ok_or(status)?,
    };
    Ok(frames::answer(vec![answer]))
}

pub(super) async fn runtime_config(uses: &Uses) -> Result<Response<Body>, Status> {
    Ok(frames::answer(vec![driver(uses).await?]))
}

/// Asks for what kubelet manages cgroups with, and compares it with ours.
async fn driver(uses: &Uses) -> Result<Bytes, Status> {
    let answer = match ask_default(uses, Question::new(RUNTIME_CONFIG, Bytes::new())).await {
        Ok(answer) => {
            uses.saved.keep_runtime_config(&answer);
            answer
        }
        // Of a runtime of before this call. kubelet goes by its own configuration then.
        Err(status) if status.code() == Code::Unimplemented => return Err(status),
        Err(status) => uses.saved.runtime_config().ok_or(status)?,
    };
    let linux = RuntimeConfigResponse::decode(answer.clone()).ok().and_then(|config| config.linux);
    match linux.map(|linux| linux.cgroup_driver()) {
        Some(Driver::Systemd) => uses.state.compare_drivers(CgroupDriver::Systemd),
        Some(Driver::Cgroupfs) => uses.state.compare_drivers(CgroupDriver::Cgroupfs),
        None => {}
    }
    Ok(answer)
}

/// Both are told; the default's answer is the answer.
pub(super) async fn update_runtime_config(uses: &Uses, parts: Parts, request: Read) -> Result<Response<Body>, Status> {
    let question =
        Question { path: UPDATE_RUNTIME_CONFIG, message: request.message.clone(), metadata: metadata(&parts, true) };
    let ours = uses.own.call(plain(parts, request.body()));
    let (theirs, _ours) = tokio::join!(ask::one(uses.backend.clone(), question), ours);
    Ok(frames::answer(vec![theirs?.into_inner()]))
}

/// What a new connection is asked, so that an answer is kept and the two sides are compared before kubelet asks.
pub(super) async fn compare(uses: &Uses) {
    if let Err(error) = driver(uses).await
        && error.code() != Code::Unimplemented
    {
        tracing::warn!(%error, "RuntimeConfig of the container runtime not read");
    }
    let question = Question::new(STATUS, StatusRequest { verbose: false }.encode_to_vec().into());
    match ask_default(uses, question).await {
        Ok(answer) => learn(uses, answer),
        Err(error) => tracing::warn!(%error, "Status of the container runtime not read"),
    }
}

/// Keeps a Status that is one.
fn learn(uses: &Uses, answer: Bytes) {
    let Ok(handlers) = status::handlers(&answer) else {
        tracing::warn!("Status of the container runtime is not understood, and not kept");
        return;
    };
    uses.state.compare_handlers(&handlers, uses.keys.handlers());
    uses.saved.keep_status(answer);
}

pub(super) async fn status(uses: &Uses, parts: &Parts, request: Read) -> Result<Response<Body>, Status> {
    let verbose = StatusRequest::decode(request.message.clone()).is_ok_and(|request| request.verbose);
    let question = Question { path: STATUS, message: request.message.clone(), metadata: metadata(parts, false) };
    let (theirs, own) = tokio::join!(ask_default(uses, question), uses.own.ask(Question::new(STATUS, request.message)));
    let theirs = match theirs {
        Ok(answer) => {
            // That of a question without info is what serves later.
            if !verbose {
                learn(uses, answer.clone());
            }
            Ok(answer)
        }
        Err(failed) => Err(missing(uses, &failed)),
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
    let last = uses.saved.status().map(|(last, _)| last);
    let theirs = status::of_default(theirs, last);
    Ok(frames::answer(vec![theirs, status::ours(trouble.as_ref(), listed(uses, handlers), info)]))
}

/// How long there has been no Status. One that failed while the runtime is there is as old as the last good one.
fn missing(uses: &Uses, failed: &Status) -> Missing {
    if let Some(away) = uses.backend.away() {
        return Missing { since: away.since.elapsed(), why: away.why };
    }
    let since = uses.saved.status().map_or(Duration::ZERO, |(_, at)| at.elapsed());
    Missing { since, why: failed.message().to_owned() }
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
    if !uses.saved.keep_version(version) {
        return;
    }
    let text = |field| wire::text(version, &[field]).unwrap_or_default();
    tracing::info!(name = text(2), version = text(3), "the container runtime's version");
}
