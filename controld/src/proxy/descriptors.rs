//! `ListMetricDescriptors` of both sides, each name once.
//!
//! kubelet reads descriptors once, at its start, and reads values by them from then on. So a default that does not answer just then is
//! spoken for by its last answer, which is kept over our restart. Without one kubelet is told that there is none; that a default lacks the
//! call (Unimplemented) is no such failure, and then ours are all.
//!
//! What of our metrics has no place beside the default's is [`super::unfit`]'s.

use bytes::Bytes;
use prost::Message as _;
use proto::cri::ListMetricDescriptorsResponse;
use tonic::body::Body;
use tonic::codegen::http::Response;
use tonic::{Code, Status};

use super::ask::{self, Question};
use super::frames;
use super::node::ask_default;
use super::side::Side;
use super::unfit::{Names, parted};
use super::uses::Uses;

const METRIC_DESCRIPTORS: &str = "/runtime.v1.RuntimeService/ListMetricDescriptors";

pub(super) async fn answer(uses: &Uses) -> Result<Response<Body>, Status> {
    let theirs = ask_default(uses, Question::new(METRIC_DESCRIPTORS, Bytes::new()));
    let (theirs, own) = tokio::join!(theirs, of_own(uses));
    // What is no message is as no answer.
    let theirs = match theirs.and_then(ask::understood::<ListMetricDescriptorsResponse>) {
        Ok((answer, _)) => answer,
        Err(status) if status.code() == Code::Unimplemented => Bytes::new(),
        Err(status) => uses.saved.descriptors().ok_or(status)?,
    };
    uses.saved.keep_descriptors(&theirs);
    let own = match own {
        Ok(own) => own,
        Err(status) => {
            uses.metrics.left_out("ListMetricDescriptors", Side::Ours);
            tracing::warn!(%status, "metrics of virtual machines are not described, and kubelet does not ask again");
            return Ok(frames::answer(vec![theirs]));
        }
    };
    let (added, unfit) = parted(&decoded(&theirs)?, own);
    uses.state.keep_unfit(unfit.into());
    Ok(frames::answer(vec![theirs, added.encode_to_vec().into()]))
}

async fn of_own(uses: &Uses) -> Result<ListMetricDescriptorsResponse, Status> {
    decoded(&uses.own.ask(Question::new(METRIC_DESCRIPTORS, Bytes::new())).await?)
}

fn decoded(answer: &Bytes) -> Result<ListMetricDescriptorsResponse, Status> {
    ListMetricDescriptorsResponse::decode(answer.clone()).map_err(|error| Status::internal(error.to_string()))
}

/// Metrics of ours whose values kubelet would read under other labels. It may have read descriptors before we started.
pub(super) async fn unfit(uses: &Uses) -> Names {
    if let Some(known) = uses.state.unfit() {
        return known;
    }
    let Some(theirs) = uses.saved.descriptors() else { return Names::default() };
    let (Ok(known), Ok(own)) = (decoded(&theirs), of_own(uses).await) else { return Names::default() };
    let unfit = Names::from(parted(&known, own).1);
    uses.state.keep_unfit(unfit.clone());
    unfit
}
