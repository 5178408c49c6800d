//! What somebody asks of a VM by annotation: to start, to stop, to restart.

use serde::Deserialize;

use super::spec::Strategy;
use crate::objects::{Meta as _, Request, Vmi};

/// Most bytes of the annotation.
const MAX_BYTES: usize = 4096;

/// The annotation's value.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Asked {
    /// Which request it is: one that was answered is not answered again.
    pub(super) id: String,
    action: Power,
    #[serde(rename = "vmiUID")]
    vmi_uid: Option<String>,
    grace_period_seconds: Option<u32>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
enum Power {
    Start,
    Stop,
    Restart,
}

/// What comes of a request: what is to be done, one after the other, or why nothing is.
pub(super) type Answer = Result<Vec<Request>, &'static str>;

/// Actions of requests, as a VM's status has them: to start, to stop an instance, to set the strategy.
pub(super) const START: &str = "Start";
pub(super) const STOP: &str = "Stop";
pub(super) const RUN: &str = "SetAlways";
pub(super) const HALT: &str = "SetHalted";

pub(super) fn read(text: &str) -> Result<Asked, String> {
    if text.len() > MAX_BYTES {
        return Err(format!("longer than {MAX_BYTES} bytes"));
    }
    serde_json::from_str(text).map_err(|error| error.to_string())
}

/// What comes of one, by the strategy and the instance that there is.
pub(super) fn answer(asked: &Asked, strategy: Strategy, vmi: Option<&Vmi>, under_way: &[Request]) -> Answer {
    let live = vmi.filter(|vmi| !vmi.status.is_final() && !vmi.is_going());
    let has_failed = vmi.is_some_and(|vmi| vmi.status.phase() == "Failed");
    let is_other = |vmi: &Vmi| asked.vmi_uid.as_deref().is_some_and(|uid| uid != vmi.uid());
    let stop = |vmi: &Vmi| Request {
        action: STOP.to_owned(),
        uid: Some(vmi.uid().to_owned()),
        grace_period_seconds: asked.grace_period_seconds.map(i64::from),
    };
    // A run that waits is no run.
    let waits = live.is_none() && matches!(under_way, [start] if start.action == START);
    if waits && asked.action == Power::Stop {
        return Ok(Vec::new());
    }
    if !under_way.is_empty() {
        return Err("another request is under way");
    }
    if live.is_some_and(is_other) {
        return Err("the instance that it names is not there any more");
    }
    Ok(match (asked.action, strategy, live) {
        (Power::Start, Strategy::Halted, _) => vec![just(RUN)],
        (Power::Start, _, Some(_)) => return Err("it runs already"),
        (Power::Start, Strategy::Always, None) => return Err("strategy Always starts it by itself"),
        (Power::Start, Strategy::Once, None) => return Err("strategy Once does not start it again"),
        (Power::Start, Strategy::RerunOnFailure, None) if has_failed => {
            return Err("strategy RerunOnFailure starts it by itself after a failure");
        }
        (Power::Start, Strategy::Manual | Strategy::RerunOnFailure, None) => vec![just(START)],
        (Power::Stop, Strategy::Always | Strategy::Once, None) => vec![just(HALT)],
        (Power::Stop, _, None) => return Err("it does not run"),
        // Set first: with another strategy it would come again.
        (Power::Stop, Strategy::Always | Strategy::Once, Some(vmi)) => vec![just(HALT), stop(vmi)],
        (Power::Stop, _, Some(vmi)) => vec![stop(vmi)],
        (Power::Restart, Strategy::Halted | Strategy::Once, _) => {
            return Err("a VM of strategy Halted or Once is not restarted");
        }
        (Power::Restart, _, None) => return Err("it does not run"),
        (Power::Restart, _, Some(vmi)) => vec![stop(vmi), just(START)],
    })
}

/// A request that says nothing but what is to be done.
pub(super) fn just(action: &str) -> Request {
    Request { action: action.to_owned(), ..Request::default() }
}
