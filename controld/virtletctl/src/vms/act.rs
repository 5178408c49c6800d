//! What is done to VMs by one call each: start, stop and restart, which the operator does by and by, and what a node does at once.

use std::io::Write;

use hyper::Method;
use serde_json::{Map, Value, json};

use super::names::{self, Kind, Named};
use crate::cli::{VmAct, VmFreeze, VmNames, VmStart, VmStop};
use crate::cluster::{Ask, Cluster};
use crate::error::{CtlError, none_of};

/// Something to be done.
#[derive(Debug)]
pub(super) struct Act {
    /// Whose subresource it is.
    of: Kind,
    verb: &'static str,
    /// What has come of it, in a word.
    done: &'static str,
}

pub(super) const START: Act = Act { of: Kind::Machine, verb: "start", done: "start requested" };
pub(super) const STOP: Act = Act { of: Kind::Machine, verb: "stop", done: "stop requested" };
pub(super) const RESTART: Act = Act { of: Kind::Machine, verb: "restart", done: "restart requested" };
pub(super) const PAUSE: Act = Act { of: Kind::Instance, verb: "pause", done: "paused" };
pub(super) const UNPAUSE: Act = Act { of: Kind::Instance, verb: "unpause", done: "unpaused" };
pub(super) const RESET: Act = Act { of: Kind::Instance, verb: "reset", done: "reset" };
pub(super) const SOFT_REBOOT: Act = Act { of: Kind::Instance, verb: "softreboot", done: "reboot requested" };
pub(super) const FREEZE: Act = Act { of: Kind::Instance, verb: "freeze", done: "frozen" };
pub(super) const UNFREEZE: Act = Act { of: Kind::Instance, verb: "unfreeze", done: "unfrozen" };

type Done = Result<(), Vec<CtlError>>;

pub(super) async fn start(wanted: &VmStart, out: &mut (dyn Write + Send)) -> Done {
    let said = wanted.paused.then_some(("paused", json!(true)));
    all(&START, &wanted.vms, said, wanted.dry_run, out).await
}

/// `STOP` or `RESTART`.
pub(super) async fn stop(act: &Act, wanted: &VmStop, out: &mut (dyn Write + Send)) -> Done {
    let key = if act.verb == STOP.verb { "gracePeriod" } else { "gracePeriodSeconds" };
    let seconds = wanted.grace_period.or(wanted.force.then_some(0));
    all(act, &wanted.vms, seconds.map(|seconds| (key, json!(seconds))), wanted.dry_run, out).await
}

pub(super) async fn act(act: &Act, wanted: &VmAct, out: &mut (dyn Write + Send)) -> Done {
    all(act, &wanted.vms, None, wanted.dry_run, out).await
}

pub(super) async fn freeze(wanted: &VmFreeze, out: &mut (dyn Write + Send)) -> Done {
    let said = wanted.unfreeze_timeout.map(|time| ("unfreezeTimeout", json!(format!("{}s", time.as_secs().max(1)))));
    all(&FREEZE, &wanted.vms, said, wanted.dry_run, out).await
}

/// Does it to each, and goes on after an error.
async fn all(
    act: &Act,
    vms: &VmNames,
    said: Option<(&str, Value)>,
    dry_run: bool,
    out: &mut (dyn Write + Send),
) -> Done {
    let named = names::read(&vms.names).map_err(|error| vec![error])?;
    let cluster = Cluster::connect(&vms.at).await.map_err(|error| vec![error.into()])?;
    let mut body: Map<String, Value> = said.into_iter().map(|(key, value)| (key.to_owned(), value)).collect();
    if dry_run {
        body.insert("dryRun".into(), json!(["All"]));
    }
    let mut errors = Vec::new();
    for one in &named {
        match do_to(&cluster, act, one, body.clone().into()).await {
            Ok(()) => {
                let dry = if dry_run { " (dry run)" } else { "" };
                let told = writeln!(out, "{}/{} {}{dry}", act.of.singular(), one.name, act.done);
                told.and_then(|()| out.flush()).map_err(|cause| vec![cause.into()])?;
            }
            Err(error) => errors.push(error),
        }
    }
    none_of(errors)
}

async fn do_to(cluster: &Cluster, act: &Act, one: &Named, body: Value) -> Result<(), CtlError> {
    let Act { of, verb, .. } = *act;
    // An instance has its VM's name, so the other way is fine.
    if of == Kind::Machine && one.kind.is_some_and(|kind| kind != Kind::Machine) || one.kind == Some(Kind::ReplicaSet) {
        let text = format!("`{verb}` is for {}s, and `{}` is none; leave the kind out", of.singular(), one.name);
        return Err(CtlError::Usage(text));
    }
    let namespace = one.namespace.as_deref().unwrap_or(cluster.namespace());
    let path = cluster.subresource(namespace, of.plural(), &one.name, verb);
    let action = format!("{verb} `{namespace}/{}`", one.name);
    let ask = Ask { action: &action, method: Method::PUT, path: &path, accept: None, body: Some(body) };
    Ok(cluster.call(ask).await.map(drop)?)
}
