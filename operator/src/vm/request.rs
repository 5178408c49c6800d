//! What somebody asks of a VM by annotation: to start, to stop, to restart.

use serde::{Deserialize, Serialize};

use super::spec::{Strategy, strategy};
use crate::names::POWER_REQUEST;
use crate::objects::{Meta as _, Request, Vm, Vmi};
use crate::verbs::Power;

/// Most bytes of the annotation.
const MAX_BYTES: usize = 4096;

/// The annotation's value.
#[derive(Debug, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Asked {
    /// Which request it is: one that was answered is not answered again.
    pub(super) id: String,
    action: Power,
    #[serde(rename = "vmiUID", skip_serializing_if = "Option::is_none")]
    vmi_uid: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    grace_period_seconds: Option<u32>,
}

/// What comes of a request: what is to be done, one after the other, or why nothing is.
pub(super) type Answer = Result<Vec<Request>, &'static str>;

/// Actions of requests, as a VM's status has them: to start, to stop an instance, to set the strategy.
pub(super) const START: &str = "Start";
pub(super) const STOP: &str = "Stop";
pub(super) const RUN: &str = "SetAlways";
pub(super) const HALT: &str = "SetHalted";

const UNDER_WAY: &str = "another request is under way";

pub(super) fn read(text: &str) -> Result<Asked, String> {
    if text.len() > MAX_BYTES {
        return Err(format!("longer than {MAX_BYTES} bytes"));
    }
    serde_json::from_str(text).map_err(|error| error.to_string())
}

/// The annotation's value that asks for this, of the run that there is now; or why it would be refused.
pub(crate) fn ask(
    vm: &Vm,
    vmi: Option<&Vmi>,
    power: Power,
    grace: Option<u32>,
    id: &str,
) -> Result<String, &'static str> {
    let own = vmi.filter(|vmi| vmi.is_of(vm.uid()));
    let asked = Asked {
        id: id.to_owned(),
        action: power,
        vmi_uid: own.filter(|_| power != Power::Start).map(|vmi| vmi.uid().to_owned()),
        grace_period_seconds: grace,
    };
    if vm.is_going() {
        return Err("VM is being deleted");
    }
    let before = vm.annotation(POWER_REQUEST).and_then(|text| read(text).ok());
    if before.is_some_and(|before| vm.status.last_request.as_deref() != Some(&*before.id)) {
        return Err(UNDER_WAY);
    }
    answer(&asked, strategy(&vm.spec.value()), own, &vm.status.state_change_requests)?;
    // Texts and a number.
    Ok(serde_json::to_string(&asked).unwrap_or_default())
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
        return Err(UNDER_WAY);
    }
    if live.is_some_and(is_other) {
        return Err("the instance that it names is not there any more");
    }
    Ok(match (asked.action, strategy, live) {
        (Power::Start, Strategy::Halted, _) => vec![just(RUN)],
        (Power::Start, _, Some(_)) => return Err("VM is already running"),
        (Power::Start, Strategy::Always, None) => return Err("strategy Always starts it by itself"),
        (Power::Start, Strategy::Once, None) => return Err("strategy Once does not start it again"),
        (Power::Start, Strategy::RerunOnFailure, None) if has_failed => {
            return Err("strategy RerunOnFailure starts it by itself after a failure");
        }
        (Power::Start, Strategy::Manual | Strategy::RerunOnFailure, None) => vec![just(START)],
        (Power::Stop, Strategy::Always | Strategy::Once, None) => vec![just(HALT)],
        (Power::Stop, _, None) => return Err("VM is not running"),
        // Set first: with another strategy it would come again.
        (Power::Stop, Strategy::Always | Strategy::Once, Some(vmi)) => vec![just(HALT), stop(vmi)],
        (Power::Stop, _, Some(vmi)) => vec![stop(vmi)],
        (Power::Restart, Strategy::Halted | Strategy::Once, _) => {
            return Err("a VM of strategy Halted or Once is not restarted");
        }
        (Power::Restart, _, None) => return Err("VM is not running"),
        (Power::Restart, _, Some(vmi)) => vec![stop(vmi), just(START)],
    })
}

/// A request that says nothing but what is to be done.
pub(super) fn just(action: &str) -> Request {
    Request { action: action.to_owned(), ..Request::default() }
}
