//! What is to be done about a VM, by what is known of it and of its instance. Pure: the table of strategies is here.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::runtime::events::EventType;

use super::request::{self, HALT, RUN, START, STOP, just};
use super::spec::{Strategy, strategy};
use super::status;
use super::step::Step;
use crate::backoff;
use crate::names::{POWER_REQUEST, VMI_FINALIZER};
use crate::objects::{MachineStatus, Meta as _, Request, Vm, Vmi};

/// What is to be done, and to be said.
#[derive(Debug)]
pub(super) struct Verdict {
    pub(super) step: Step,
    pub(super) status: MachineStatus,
    pub(super) events: Vec<(EventType, &'static str, String)>,
}

/// `vmi` is the instance with the VM's name, whosever it is.
pub(super) fn decide(vm: &Vm, vmi: Option<&Vmi>, now: &Time) -> Verdict {
    let own = vmi.filter(|vmi| vmi.is_of(vm.uid()));
    let strategy = strategy(&vm.spec.value());
    let mut events = Vec::new();
    let mut after = vm.status.clone();
    note_failure(&mut after, strategy, own, now);
    let forget = ask(vm, strategy, own, &mut after, &mut events);
    after.state_change_requests = left(&vm.status.state_change_requests, after.state_change_requests, strategy, own);
    let step = if vm.is_going() {
        end(vm, own)
    } else if !vm.has_finalizer(VMI_FINALIZER) {
        Step::Claim
    } else if forget {
        Step::Forget
    } else if vmi.is_some() && own.is_none() {
        Step::Nothing
    } else if let Some(request) = after.state_change_requests.first() {
        by_request(request, own, &after, now)
    } else {
        by_strategy(vm, strategy, own, &mut after, now)
    };
    // That of a strategy for which an instance has to be made once is noted when that is there.
    if own.is_some() || !matches!(strategy, Strategy::RerunOnFailure | Strategy::Once) {
        after.run_strategy = Some(strategy.word().to_owned());
    }
    let status = status::of(vm, vmi, &step, after, now);
    Verdict { step, status, events }
}

/// Answers what is asked for by annotation. Returns whether the annotation is to go.
fn ask(
    vm: &Vm,
    strategy: Strategy,
    own: Option<&Vmi>,
    after: &mut MachineStatus,
    events: &mut Vec<(EventType, &'static str, String)>,
) -> bool {
    let Some(text) = vm.annotation(POWER_REQUEST) else { return false };
    let asked = match request::read(text) {
        Ok(asked) => asked,
        Err(why) => {
            events.push((
                EventType::Warning,
                "InvalidRequest",
                format!("annotation {POWER_REQUEST} asks nothing: {why}"),
            ));
            return true;
        }
    };
    if after.last_request.as_ref() == Some(&asked.id) {
        return true;
    }
    match request::answer(&asked, strategy, own, &after.state_change_requests) {
        Ok(requests) => after.state_change_requests = requests,
        Err(why) => events.push((EventType::Warning, "Conflict", format!("request `{}` is refused: {why}", asked.id))),
    }
    after.last_request = Some(asked.id);
    false
}

/// Requests without those that are done. Of new ones none is.
fn left(before: &[Request], mut all: Vec<Request>, strategy: Strategy, own: Option<&Vmi>) -> Vec<Request> {
    let is_live = own.is_some_and(|vmi| !vmi.status.is_final() && !vmi.is_going());
    let is_done = |request: &Request| match request.action.as_str() {
        HALT => strategy == Strategy::Halted,
        RUN => strategy == Strategy::Always,
        // One that has ended goes, too: with another strategy it would be a failure to run again after.
        STOP => own.is_none_or(|vmi| request.uid.as_deref() != Some(vmi.uid())),
        // Whoever halts it wants no start that waits.
        START => is_live || strategy == Strategy::Halted,
        // Of another release.
        _ => true,
    };
    if all == before {
        while all.first().is_some_and(is_done) {
            all.remove(0);
        }
    }
    all
}

fn note_failure(after: &mut MachineStatus, strategy: Strategy, own: Option<&Vmi>, now: &Time) {
    let is_new = after.run_strategy.as_deref().is_some_and(|before| before != strategy.word());
    match own {
        _ if is_new => after.start_failure = None,
        Some(vmi) if vmi.status.has_run() => after.start_failure = None,
        Some(vmi) if vmi.status.phase() == "Failed" && !vmi.is_going() => {
            after.start_failure = Some(backoff::after(after.start_failure.as_ref(), vmi, now));
        }
        _ => {}
    }
}

/// Of a VM that is deleted.
fn end(vm: &Vm, own: Option<&Vmi>) -> Step {
    let keeps_instances = vm.has_finalizer("orphan");
    match own {
        Some(vmi) if !keeps_instances => {
            if vmi.is_going() {
                Step::Nothing
            } else {
                Step::Stop { grace: None }
            }
        }
        _ if vm.has_finalizer(VMI_FINALIZER) => Step::Release,
        _ => Step::Nothing,
    }
}

fn by_request(request: &Request, own: Option<&Vmi>, after: &MachineStatus, now: &Time) -> Step {
    let grace = request.grace_period_seconds.and_then(|grace| u32::try_from(grace).ok());
    match (request.action.as_str(), own) {
        (HALT, _) => Step::Set(Strategy::Halted.word()),
        (RUN, _) => Step::Set(Strategy::Always.word()),
        (_, Some(vmi)) if vmi.is_going() => Step::Nothing,
        (STOP, Some(_)) => Step::Stop { grace },
        (START, Some(_)) => Step::Stop { grace: None },
        (START, None) => start(after, now),
        _ => Step::Nothing,
    }
}

fn by_strategy(vm: &Vm, strategy: Strategy, own: Option<&Vmi>, after: &mut MachineStatus, now: &Time) -> Step {
    let is_new = vm.status.run_strategy.as_deref() != Some(strategy.word());
    let phase = own.map(|vmi| vmi.status.phase());
    match (strategy, own) {
        (_, Some(vmi)) if vmi.is_going() => Step::Nothing,
        (Strategy::Always, None) => start(after, now),
        (Strategy::RerunOnFailure | Strategy::Once, None) if is_new => start(after, now),
        // The run that follows is noted before anything of this one is gone.
        (Strategy::RerunOnFailure, Some(_)) if phase == Some("Failed") => {
            after.state_change_requests = vec![just(START)];
            Step::Nothing
        }
        (Strategy::Always | Strategy::RerunOnFailure, Some(vmi)) if vmi.status.is_final() => Step::Stop { grace: None },
        (Strategy::Halted, Some(_)) => Step::Stop { grace: None },
        _ => Step::Nothing,
    }
}

fn start(after: &MachineStatus, now: &Time) -> Step {
    backoff::left(after.start_failure.as_ref(), now).map_or(Step::Start, Step::Wait)
}

#[cfg(test)]
mod tests;
