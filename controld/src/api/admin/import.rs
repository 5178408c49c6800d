//! An image that a caller sends in pieces, from the socket to the store.
//!
//! The store holds the caller up while its disk is behind, and gives up a caller that sends nothing for too long. A
//! caller that goes has the whole call dropped, and with it what came.

use std::pin::pin;
use std::time::Duration;

use imagestore::{Feed, Image, Upload};
use proto::images::import_request::Part;
use proto::images::{ImportHead, ImportRequest};
use tokio::time::timeout;
use tonic::{Status, Streaming};
use vmspec::error::{Error, Kind};

use super::convert;
use crate::api::status;
use crate::images::Images;

/// A caller has the head before it calls. For what follows, the store has a deadline.
const HEAD_DEADLINE: Duration = Duration::from_secs(60);

/// Takes the image that comes.
pub(super) async fn take(images: &Images, mut pieces: Streaming<ImportRequest>) -> Result<Image, Status> {
    let first = timeout(HEAD_DEADLINE, pieces.message()).await;
    let silent = |_elapsed| status::of(&Error::new(Kind::Deadline, "no head of the import came within a minute"));
    let Some(ImportRequest { part: Some(Part::Head(head)) }) = first.map_err(silent)?? else {
        return Err(invalid("an import begins with its head"));
    };
    let (request, declared) = convert::import_request(&head).map_err(|error| status::of(&error))?;
    let (feed, upload) = Upload::new(length(&head));
    let mut import = pin!(images.import(request, upload, declared));
    let imported = tokio::select! {
        // It is refused, and no more pieces are waited for.
        imported = &mut import => imported,
        sent = pump(pieces, feed) => {
            // What is wrong with the pieces is why the store has not got them.
            sent?;
            import.await
        }
    };
    imported.map_err(|error| status::of(&error))
}

/// Hands the pieces on, until they end or nobody wants them any more.
async fn pump(mut pieces: Streaming<ImportRequest>, feed: Feed) -> Result<(), Status> {
    loop {
        match pieces.message().await?.map(|message| message.part) {
            Some(Some(Part::Piece(piece))) => {
                if !feed.push(piece.into()).await {
                    // The store says why.
                    return Ok(());
                }
            }
            Some(Some(Part::End(_))) => {
                feed.end().await;
                return Ok(());
            }
            Some(Some(Part::Head(_))) => return Err(invalid("an import has one head")),
            // Of a later version, and perhaps a part of the file.
            Some(None) => return Err(invalid("a piece of the import is of an unknown kind")),
            None => return Err(invalid("the import ended before it was whole")),
        }
    }
}

fn length(head: &ImportHead) -> Option<u64> {
    (head.length > 0).then_some(head.length)
}

fn invalid(what: &'static str) -> Status {
    status::of(&Error::new(Kind::Invalid, what))
}
