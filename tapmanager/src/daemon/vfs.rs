//! What is answered about virtual functions. Called by [`super::service`].
//!
//! [`Claims`] does all of it; here is what it takes from the wire, whose pods are named, and what its errors are to a program.

use common::Chain;
use proto::tap::{CollectReport, ErrorBody, PodId, Reply, VfClaim, VfHolder, VfRequest};
use sriov::settings::VfSettings;
use sriov::settings::input::{Input, InputError};
use tracing::warn;

use crate::pod::{Pods, World, bounded};
use crate::rpc::refusal;
use crate::vf::{Claims, Done, VfError, local};

/// Answers `request`.
pub(super) async fn answer<W: World>(claims: &Claims, pods: &Pods<W>, request: VfRequest) -> Result<Reply, ErrorBody> {
    let answered = work(claims, pods, request).await;
    answered.map_err(|error| refusal(error.code(), Chain(&error).to_string()))
}

async fn work<W: World>(claims: &Claims, pods: &Pods<W>, request: VfRequest) -> Result<Reply, VfError> {
    match request {
        VfRequest::List { after } => {
            let mut page = claims.list(after).await?;
            page.vfs.iter_mut().filter_map(|vf| vf.claim.as_mut()).for_each(|holder| name(pods, holder));
            page.trouble = bounded(page.trouble);
            Ok(Reply::Vfs(page))
        }
        VfRequest::Explain { vf } => {
            let mut detail = claims.explain(local(vf)).await?;
            detail.summary.claim.iter_mut().for_each(|holder| name(pods, holder));
            detail.explanation = bounded(detail.explanation);
            Ok(Reply::Vf(Box::new(detail)))
        }
        VfRequest::Claim(claim) => {
            let (vf, asked) = (local(claim.vf), asked(&claim)?);
            let taken = claims.claim_by_hand(vf, &claim.by, asked).await;
            taken.inspect_err(|error| warn!(%vf, error = %Chain(error), "virtual function not claimed by hand"))?;
            Ok(Reply::Vf(Box::new(claims.explain(vf).await?)))
        }
        VfRequest::Release { vf, force } => Ok(report(claims.release(local(vf), force).await?)),
        VfRequest::Repair => Ok(report(claims.repair(|pod| pods.view(pod).is_some()).await?)),
    }
}

fn report(Done { removed, kept }: Done) -> Reply {
    Reply::Collected(CollectReport { removed: bounded(removed), kept: bounded(kept) })
}

/// Names the pod that has a VF, if it is on record.
fn name<W: World>(pods: &Pods<W>, holder: &mut VfHolder) {
    let view = holder.owner.parse::<PodId>().ok().and_then(|pod| pods.view(&pod));
    holder.pod = view.map(|view| (view.request.namespace.clone(), view.request.name.clone()));
}

fn asked(claim: &VfClaim) -> Result<VfSettings, InputError> {
    let mac = claim.mac.map(|mac| mac.to_string());
    let input = Input {
        mac: mac.as_deref(),
        vlan: claim.vlan,
        qos: claim.vlan_qos,
        spoofchk: claim.spoofchk.as_deref(),
        trust: claim.trust.as_deref(),
        link_state: claim.link_state.as_deref(),
        max_rate: claim.max_tx_rate,
        ..Input::default()
    };
    input.settings()
}
