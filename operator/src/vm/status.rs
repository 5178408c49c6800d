//! What is said of a VM.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::made::{TEMPLATE, hash};
use super::request::STOP;
use super::spec::template;
use super::step::Step;
use crate::names::NO_CLAIM;
use crate::objects::{Condition, MachineStatus, Meta as _, Vm, Vmi, condition};

/// Longest message, in characters.
const MAX_MESSAGE: usize = 1024;

/// `after` with all that people read.
pub(super) fn of(vm: &Vm, vmi: Option<&Vmi>, step: &Step, mut after: MachineStatus, now: &Time) -> MachineStatus {
    let own = vmi.filter(|vmi| vmi.is_of(vm.uid()));
    after.created = own.is_some();
    after.ready = own.is_some_and(|vmi| vmi.status.is_ready());
    after.observed_generation = vm.metadata.generation;
    after.desired_generation = vm.metadata.generation;
    after.printable_status = Some(printable(vm, own, step, &after).to_owned());
    let mut all = vec![match own {
        Some(vmi) => condition(&vmi.status.conditions, "Ready").map_or_else(
            || Condition::new("Ready", false, "GuestNotRunning", ""),
            |ready| {
                let [reason, message] = [&ready.reason, &ready.message].map(|text| text.as_deref().unwrap_or_default());
                Condition::new("Ready", ready.holds(), reason, message)
            },
        ),
        None => Condition::new("Ready", false, "VMINotExists", ""),
    }];
    if vmi.is_some() && own.is_none() {
        let text = "an instance that is not this VM's has its name; delete that instance";
        all.push(Condition::new("Failure", true, "NameTaken", text));
    } else if let Some(failure) = condition(&vm.status.conditions, "Failure")
        && own.is_none()
        && *step == Step::Start
        && failure.reason.as_deref() == Some(REFUSED)
    {
        all.push(failure.clone());
    }
    if let Some(paused) = own.and_then(|vmi| condition(&vmi.status.conditions, "Paused")).filter(|it| it.holds()) {
        all.push(paused.clone());
    }
    if own.is_some_and(|vmi| {
        !vmi.status.is_final() && vmi.annotation(TEMPLATE).is_some_and(|made_of| made_of != hash(&template(vm)))
    }) {
        let text = "the template was changed since it was started; restart it to have that";
        all.push(Condition::new(RESTART, true, "TemplateChanged", text));
    }
    after.conditions = all.into_iter().map(|condition| condition.since(&vm.status.conditions, now)).collect();
    after
}

const REFUSED: &str = "FailedCreate";
const RESTART: &str = "RestartRequired";

/// `status`, with what became of presets since its instance was made.
pub(super) fn with_presets(vm: &Vm, mut status: MachineStatus, changes: &[String], now: &Time) -> MachineStatus {
    if changes.is_empty() {
        return status;
    }
    let changes = format!("presets are not as when it was started: {}; restart it to have them", changes.join(", "));
    let of_template = condition(&status.conditions, RESTART);
    let (reason, message) = match of_template.and_then(|condition| condition.message.as_deref()) {
        Some(of_template) => ("TemplateChanged", format!("{of_template}; {changes}")),
        None => ("PresetsChanged", changes),
    };
    let message: String = message.chars().take(MAX_MESSAGE).collect();
    let condition = Condition::new(RESTART, true, reason, &message).since(&vm.status.conditions, now);
    status.conditions.retain(|other| other.type_ != RESTART);
    status.conditions.push(condition);
    status
}

/// `status`, with why no instance could be made.
pub(super) fn refused(vm: &Vm, mut status: MachineStatus, why: &str, now: &Time) -> MachineStatus {
    let failure = Condition::new("Failure", true, REFUSED, why).since(&vm.status.conditions, now);
    status.conditions.retain(|condition| condition.type_ != failure.type_);
    status.conditions.push(failure);
    status
}

/// The first that fits.
fn printable(vm: &Vm, own: Option<&Vmi>, step: &Step, after: &MachineStatus) -> &'static str {
    if vm.is_going() {
        return "Terminating";
    }
    let Some(vmi) = own else {
        let waits = after.start_failure.is_some() && matches!(step, Step::Wait(_));
        return match step {
            _ if waits => "CrashLoopBackOff",
            Step::Start => "Starting",
            _ => "Stopped",
        };
    };
    let status = &vmi.status;
    let holds = |name: &str| condition(&status.conditions, name).is_some_and(Condition::holds);
    let stops = after.state_change_requests.iter().any(|request| request.action == STOP);
    let pod_goes =
        condition(&status.conditions, "Ready").is_some_and(|ready| ready.reason.as_deref() == Some("PodTerminating"));
    if status.is_final() && !vmi.is_going() {
        return if after.start_failure.is_some() { "CrashLoopBackOff" } else { "Stopped" };
    }
    if vmi.is_going() || stops || pod_goes {
        return "Stopping";
    }
    if status.phase() == "Running" {
        return if holds("Paused") { "Paused" } else { "Running" };
    }
    let scheduled = condition(&status.conditions, "PodScheduled").filter(|condition| !condition.holds());
    let why = scheduled.and_then(|condition| condition.message.as_deref()).unwrap_or_default();
    let synchronized = condition(&status.conditions, "Synchronized").and_then(|condition| condition.reason.as_deref());
    match status.reason.as_deref() {
        _ if synchronized == Some(NO_CLAIM) => "ErrorPvcNotFound",
        _ if why.contains("persistentvolumeclaim") && why.contains("not found") => "ErrorPvcNotFound",
        _ if why.contains("unbound") && why.contains("PersistentVolumeClaims") => "WaitingForVolumeBinding",
        _ if scheduled.is_some_and(|condition| condition.reason.as_deref() == Some("Unschedulable")) => {
            "ErrorUnschedulable"
        }
        Some("ErrImagePull") => "ErrImagePull",
        Some("ImagePullBackOff") => "ImagePullBackOff",
        _ => "Starting",
    }
}
