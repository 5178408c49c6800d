//! The default's sandboxes, decoded, for decisions about a pod.

use std::time::{Duration, Instant};

use bytes::Bytes;
use prost::Message as _;
use proto::cri::{ListPodSandboxResponse, PodSandbox};
use tonic::Status;
use tonic::metadata::MetadataMap;

use super::filter::{self, Sides};
use super::{Lists, Wanted};
use crate::proxy::kind::Kind;
use crate::proxy::side::Side;
use crate::proxy::unfit::Names;
use crate::proxy::wire;

impl Lists {
    /// As the last good list has them, with what changed through us since, and how old that list is; `None` before there was any.
    pub(in crate::proxy) fn last_sandboxes(&self) -> Option<(Vec<PodSandbox>, Duration)> {
        let last = self.0.sandboxes.good().answer(Instant::now())?;
        let items = filter::kept(Kind::Sandboxes, &[], wire::items(&last.list).ok()?, &last.gone).ok()?;
        Some((ListPodSandboxResponse::decode(&*items.concat()).ok()?.items, last.age))
    }

    /// As the default lists them, or, if it does not answer within the deadline, as the last good list has them.
    pub(in crate::proxy) async fn sandboxes(&self) -> Result<Vec<PodSandbox>, Status> {
        let wanted = Wanted {
            kind: Kind::Sandboxes,
            message: Bytes::new(),
            sides: Sides::One(Side::Default),
            metadata: MetadataMap::new(),
            streamed: false,
            unfit: Names::default(),
        };
        let listed = self.of_default(&wanted).await?;
        let list = ListPodSandboxResponse::decode(listed);
        Ok(list.map_err(|error| Status::internal(format!("the container runtime's list is none: {error}")))?.items)
    }
}
