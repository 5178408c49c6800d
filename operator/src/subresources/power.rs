//! Start, stop and restart: a request to the operator, by an annotation of the VM. Whether it would be refused is said now, by the
//! operator's own rules.

use std::time::Duration;

use hyper::StatusCode;
use kube::api::{Patch, PatchParams};
use kube::{Api, Client};
use serde_json::json;
use tokio::time::timeout;
use uuid::Uuid;

use super::asked::Options;
use super::refusal::Refusal;
use crate::group::Group;
use crate::names::{POWER_REQUEST, SUBRESOURCES};
use crate::objects::{Kind as _, MachineKind, Vm, Vmi};
use crate::verbs::Power;
use crate::vm::request;
use crate::write::is_stale;

/// All calls of one request.
const CALLS: Duration = Duration::from_secs(30);
/// Times that a VM is read again because somebody else wrote it meanwhile.
const ATTEMPTS: usize = 5;

/// Asks for it.
pub(super) async fn ask(
    client: &Client,
    group: Group,
    (namespace, name): (&str, &str),
    power: Power,
    options: &Options,
) -> Result<(), Refusal> {
    if power == Power::Start {
        options.check_start()?;
    }
    let (grace, dry_run) = (options.grace(power)?, options.is_dry()?);
    let vms: Api<Vm> = Api::namespaced_with(client.clone(), namespace, &group);
    let vmis: Api<Vmi> = Api::namespaced_with(client.clone(), namespace, &group);
    let id = Uuid::new_v4().to_string();
    let work = async {
        for _ in 0..ATTEMPTS {
            let vm = vms.get(name).await.map_err(|error| Refusal::of_call("read the VM", &error))?;
            let vmi = vmis.get_opt(name).await.map_err(|error| Refusal::of_call("read the VM's instance", &error))?;
            let asked = request::ask(&vm, vmi.as_ref(), power, grace, &id);
            let asked = asked.map_err(|why| Refusal::conflict(MachineKind::NAME, group, name, why))?;
            let patch = json!({"metadata": {
                "resourceVersion": vm.metadata.resource_version, "annotations": {POWER_REQUEST: asked},
            }});
            let params =
                PatchParams { dry_run, field_manager: Some(SUBRESOURCES.to_owned()), ..PatchParams::default() };
            match vms.patch(name, &params, &Patch::Merge(&patch)).await {
                Ok(_) => return Ok(()),
                // What it was answered by may not be so any more.
                Err(error) if is_stale(&error) => {}
                Err(error) => return Err(Refusal::of_write("ask for it", &error)),
            }
        }
        Err(Refusal::new(StatusCode::CONFLICT, "the VM is written all the time; try again"))
    };
    timeout(CALLS, work).await.unwrap_or_else(|_| Err(Refusal::late("the API server", CALLS.as_secs())))
}
