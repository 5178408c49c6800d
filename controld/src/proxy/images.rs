//! Calls for images: by their keys ([`super::keys`]), and for what has none, by who has it.
//!
//! | call | an image without a key |
//! |---|---|
//! | `PullImage` | ours if the pod that it is for has a sandbox of ours, else the default's |
//! | `ImageStatus` | the default's answer if it has the image, else ours |
//! | `RemoveImage` | both remove it; by an id that ours has, ours alone |
//! | `ListImages` | both list it ([`sides`]) |
//!
//! A side that does not answer is not one that has nothing: kubelet pulls what it is told is not there, and what the default has once
//! pulled is its own from then on. So ours is waited for within the deadline of common answers, the default within that of lists, and
//! what they then have not said is an error. But when ours has said that it has no such image, what the default says is all the answer,
//! and is waited for as if there were no other side: one that pulls may be slow, and kubelet waits for minutes.
//!
//! A default may also refuse what it cannot make an image's name of: to CRI-O an id that begins with `sha256:` is a short name, and an error
//! if no registries are configured for those. kubelet collects images by their ids, so by one that ours has the default is not asked.
//!
//! `ImageFsInfo` is [`super::filesystems`].

use std::pin::pin;

use tokio_util::task::AbortOnDropHandle;
use tonic::body::Body;
use tonic::codegen::http::Response;
use tonic::codegen::http::request::Parts;
use tonic::{Code, Status};
use tracing::Instrument as _;

use super::ask::Question;
use super::containers::{IMAGE_STATUS, answered, has_image, has_ours, inspected, there};
use super::frames::{self, Read};
use super::keys::{ImageKeys, shown};
use super::kind::Kind;
use super::lists::filter::Sides;
use super::own::ended_in_bug;
use super::side::Side;
use super::uses::{Uses, plain};
use super::wire;
use super::{pods, relay};
use crate::api::edge::PassedOn;

const REMOVE: &str = "/runtime.v1.ImageService/RemoveImage";

/// Whose images a list is of.
pub(super) fn sides(uses: &Uses, request: &[u8]) -> Result<Sides, Status> {
    let keys = ImageKeys::read(request, &[1, 1]).map_err(wire::refused)?;
    Ok(uses.keys.image(&keys).map_or(Sides::Both, Sides::One))
}

pub(super) async fn pull(uses: &Uses, parts: Parts, request: Read) -> Result<Response<Body>, Status> {
    let keys = ImageKeys::of_pull(&request.message).map_err(wire::refused)?;
    let side = match uses.keys.image(&keys) {
        Some(side) => side,
        None => pods::side(uses, wire::text(&request.message, &[3, 1, 2]).map_err(wire::refused)?).await?,
    };
    match side {
        Side::Ours => Ok(uses.own.call(plain(parts, request.body())).await),
        Side::Default => Ok(relay::forward(&uses.backend, parts, request.body()).await),
    }
}

pub(super) async fn status(uses: &Uses, parts: Parts, request: Read) -> Result<Response<Body>, Status> {
    let keys = ImageKeys::read(&request.message, &[1]).map_err(wire::refused)?;
    match uses.keys.image(&keys) {
        Some(Side::Ours) => return Ok(uses.own.call(plain(parts, request.body())).await),
        Some(Side::Default) => {
            return Ok(relay::forward(&uses.backend, parts, request.body()).await);
        }
        None => {}
    }
    let (own, question) = (uses.own.clone(), Question::new(IMAGE_STATUS, request.message.clone()));
    let own = AbortOnDropHandle::new(tokio::spawn(async move { own.ask(question).await }.in_current_span()));
    let mut theirs = pin!(inspected(uses, &parts, &request));
    let in_time = match uses.backend.in_time(uses.call(&parts), theirs.as_mut()).await {
        // Which does not wait for ours.
        Ok(Ok(answer)) if has_image(answer.get_ref()) => {
            PassedOn::note(&parts.extensions);
            return Ok(answered(answer));
        }
        in_time => in_time,
    };
    let own = own.await.unwrap_or_else(|bug| Err(ended_in_bug("ImageStatus", &bug)));
    let theirs = match (in_time, &own) {
        (Ok(theirs), _) => theirs,
        (Err(_late), Ok(own)) if !has_image(own) => theirs.await,
        (Err(late), _) => Err(late),
    };
    match (theirs, own) {
        // A default that is away may have one of that name. No container is made of ours meanwhile, as it is away for that as well.
        (_, Ok(own)) if has_image(&own) => Ok(frames::answer(vec![own])),
        // Ours may have it.
        (Ok(_), Err(failed)) => Err(failed),
        (theirs, _) => {
            PassedOn::note(&parts.extensions);
            theirs.map(answered)
        }
    }
}

/// Each side that has it removes it: one that has not says that all is well. Where ours cannot be asked, the default's word counts for
/// what it had, so that its images are collected whatever machines do.
pub(super) async fn remove(uses: &Uses, parts: Parts, request: Read) -> Result<Response<Body>, Status> {
    let keys = ImageKeys::read(&request.message, &[1]).map_err(wire::refused)?;
    let side = uses.keys.image(&keys);
    if side == Some(Side::Ours) || (side.is_none() && has_ours(uses, keys.name).await) {
        return Ok(uses.own.call(plain(parts, request.body())).await);
    }
    let is_known = async || side.is_some() || there(uses, keys.name).await.unwrap_or_default();
    let theirs = async {
        let had = is_known().await;
        let answer = inspected(uses, &parts, &request).await?;
        uses.lists.removed(Kind::Images, keys.name);
        Ok((answered(answer), had))
    };
    let ours = async {
        if side.is_some() {
            return Ok(());
        }
        uses.own.ask(Question::new(REMOVE, request.message.clone())).await.map(drop)
    };
    match tokio::join!(theirs, ours) {
        (Ok((answer, true)), Err(failed)) if is_no_answer(&failed) => {
            tracing::debug!(image = shown(keys.name), error = %failed, "image removed at the container runtime alone");
            Ok(answer)
        }
        (Ok(_), Err(failed)) => Err(failed),
        (theirs, _) => theirs.map(|(answer, _)| answer),
    }
}

/// Whether a side could not be asked, and has not refused.
fn is_no_answer(status: &Status) -> bool {
    matches!(status.code(), Code::Unavailable | Code::DeadlineExceeded | Code::Internal)
}
