//! Calls for images: by their keys ([`super::keys`]), and for what has none, by who has it.
//!
//! | call | an image without a key |
//! |---|---|
//! | `PullImage` | ours if the pod that it is for has a sandbox of ours, else the default's |
//! | `ImageStatus` | the default's answer if it has the image, else ours |
//! | `RemoveImage` | both remove it |
//! | `ListImages` | both list it ([`sides`]) |
//!
//! `ImageFsInfo` is [`super::filesystems`].

use prost::Message as _;
use proto::cri::{ListPodSandboxRequest, ListPodSandboxResponse};
use tonic::Status;
use tonic::body::Body;
use tonic::codegen::http::Response;
use tonic::codegen::http::request::Parts;

use super::ask::Question;
use super::containers::{answered, inspected};
use super::frames::{self, Read};
use super::keys::ImageKeys;
use super::kind::Kind;
use super::lists::filter::Sides;
use super::relay;
use super::side::Side;
use super::uses::{Uses, plain};
use super::wire::{self, Malformed};

const STATUS: &str = "/runtime.v1.ImageService/ImageStatus";
const REMOVE: &str = "/runtime.v1.ImageService/RemoveImage";

/// Whose images a list is of.
pub(super) fn sides(uses: &Uses, request: &[u8]) -> Result<Sides, Status> {
    let keys = ImageKeys::read(request, &[1, 1]).map_err(malformed)?;
    Ok(uses.keys.image(&keys)?.map_or(Sides::Both, Sides::One))
}

pub(super) async fn pull(uses: &Uses, parts: Parts, request: Read) -> Result<Response<Body>, Status> {
    let keys = ImageKeys::of_pull(&request.message).map_err(malformed)?;
    let side = match uses.keys.image(&keys)? {
        Some(side) => side,
        None => of_pod(uses, wire::text(&request.message, &[3, 1, 2]).map_err(malformed)?).await,
    };
    match side {
        Side::Ours => Ok(uses.own.call(plain(parts, request.body())).await),
        Side::Default => {
            Ok(relay::forward(&uses.backend, &uses.metrics, uses.call(&parts), parts, request.body()).await)
        }
    }
}

/// Whose sandbox the pod with this uid has: kubelet runs the sandbox before it pulls.
async fn of_pod(uses: &Uses, uid: &str) -> Side {
    if uid.is_empty() {
        return Side::Default;
    }
    let all = ListPodSandboxRequest::default().encode_to_vec().into();
    let listed = uses.own.ask(Question::new(Kind::Sandboxes.path(), all)).await;
    let listed = listed.ok().and_then(|listed| ListPodSandboxResponse::decode(listed).ok()).unwrap_or_default();
    let mut pods = listed.items.iter().filter_map(|sandbox| sandbox.metadata.as_ref());
    if pods.any(|pod| pod.uid == uid) { Side::Ours } else { Side::Default }
}

pub(super) async fn status(uses: &Uses, parts: Parts, request: Read) -> Result<Response<Body>, Status> {
    let keys = ImageKeys::read(&request.message, &[1]).map_err(malformed)?;
    match uses.keys.image(&keys)? {
        Some(Side::Ours) => return Ok(uses.own.call(plain(parts, request.body())).await),
        Some(Side::Default) => {
            let call = uses.call(&parts);
            return Ok(relay::forward(&uses.backend, &uses.metrics, call, parts, request.body()).await);
        }
        None => {}
    }
    let theirs = inspected(uses, &parts, STATUS, &request).await;
    if let Ok(answer) = &theirs
        && has_image(answer.get_ref())
    {
        return theirs.map(answered);
    }
    let own = uses.own.ask(Question::new(STATUS, request.message)).await;
    match (theirs, own) {
        // A default that is away may have one of that name. No container is made of ours meanwhile, as it is away for that as well.
        (_, Ok(own)) if has_image(&own) => Ok(frames::answer(vec![own])),
        (theirs, _) => theirs.map(answered),
    }
}

fn has_image(status: &[u8]) -> bool {
    wire::is_there(status, &[1]).unwrap_or_default()
}

/// Each side that has it removes it: one that has not says that all is well.
pub(super) async fn remove(uses: &Uses, parts: Parts, request: Read) -> Result<Response<Body>, Status> {
    let keys = ImageKeys::read(&request.message, &[1]).map_err(malformed)?;
    let side = uses.keys.image(&keys)?;
    if side == Some(Side::Ours) {
        return Ok(uses.own.call(plain(parts, request.body())).await);
    }
    let theirs = inspected(uses, &parts, REMOVE, &request);
    let answer = if side.is_none() {
        let ours = uses.own.call(plain(parts.clone(), request.body()));
        let (theirs, ours) = tokio::join!(theirs, ours);
        match Status::from_header_map(ours.headers()) {
            Some(failed) if failed.code() != tonic::Code::Ok && theirs.is_ok() => Err(failed),
            _ => theirs,
        }
    } else {
        theirs.await
    }?;
    uses.lists.removed(Kind::Images, keys.name);
    Ok(answered(answer))
}

fn malformed(error: Malformed) -> Status {
    Status::invalid_argument(error.to_string())
}
