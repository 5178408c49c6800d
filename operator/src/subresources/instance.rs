//! What is done to an instance by the node that it is on: through its pod, by the commands that nodes keep for that.

use std::time::Duration;

use hyper::StatusCode;
use kube::{Api, Client};
use serde_json::{Map, Value, json};
use tokio::time::timeout;

use super::asked::Options;
use super::front_proxy::User;
use super::pod::{Ask, Pod, Stream, not_running};
use super::refusal::Refusal;
use crate::group::Group;
use crate::objects::{InstanceKind, Kind as _, Meta as _, Vm, VmPod, Vmi};
use crate::verbs::{Act, Tell};
use crate::vmi::pod_name;

/// All calls until the pod is known.
const CALLS: Duration = Duration::from_secs(20);
/// Longest word of a node that it has done something, longest answer, of which a value is made that takes many times as much, and longest
/// picture; each with what to do where that is too short.
const MAX_DONE: (usize, &str) = (64 << 10, "whether it was done, the VM itself shows");
const MAX_ANSWER: (usize, &str) = (1 << 20, "`kubectl exec` of the command in the VM's pod has no such bound");
const MAX_PICTURE: (usize, &str) =
    (8 << 20, "give the screen fewer pixels, or take the picture by `virtletctl vnc --screenshot` on the VM's node");
/// Longest name of a user that nodes log.
const MAX_USER: usize = 256;

/// The way to the API server: for calls, and for streams that may be silent.
#[derive(Clone)]
pub(super) struct Clients {
    pub(super) calls: Client,
    pub(super) streams: Client,
}

/// An instance that runs.
pub(super) struct Running<'a> {
    spec: Value,
    pod: Pod<'a>,
    user: &'a str,
}

/// Finds an instance that runs; that of a VM, if it is asked for by that. One that is awaited is asked for again until it runs.
pub(super) async fn find<'a>(
    clients: &'a Clients,
    group: Group,
    (namespace, name): (&'a str, &'a str),
    (of_machine, is_awaited): (bool, bool),
    user: &'a User,
) -> Result<Running<'a>, Refusal> {
    let work = async {
        let vmis: Api<Vmi> = Api::namespaced_with(clients.calls.clone(), namespace, &group);
        let of = (InstanceKind::NAME, group.name(), name);
        let not_running = |is_awaited, why: &str| not_running(is_awaited, of, why);
        let vmi = if of_machine {
            let vms: Api<Vm> = Api::namespaced_with(clients.calls.clone(), namespace, &group);
            let vm = vms.get(name).await.map_err(|error| Refusal::of_call("read the VM", &error))?;
            let vmi = vmis.get_opt(name).await.map_err(|error| Refusal::of_call("read its instance", &error))?;
            let own = vmi.filter(|vmi| vmi.is_of(vm.uid()));
            own.ok_or_else(|| not_running(is_awaited, "the VM has no instance"))?
        } else {
            vmis.get(name).await.map_err(|error| Refusal::of_call("read the instance", &error))?
        };
        if vmi.status.phase() != "Running" {
            // Of one that has ended there is nothing to wait for.
            let is_awaited = is_awaited && !vmi.status.is_final();
            return Err(not_running(is_awaited, &format!("it is {}", vmi.status.phase())));
        }
        let pods: Api<VmPod> = Api::namespaced(clients.calls.clone(), namespace);
        let pod = pods.get_opt(&pod_name(&vmi)).await.map_err(|error| Refusal::of_call("read its pod", &error))?;
        let pod = pod.filter(|pod| pod.is_of(vmi.uid()) && !pod.is_over());
        let pod = pod.ok_or_else(|| not_running(is_awaited, "its pod is gone"))?;
        let pod = Pod { client: &clients.streams, namespace, name: pod.name().to_owned(), of, is_awaited };
        Ok(Running { spec: vmi.spec.value(), pod, user: &user.name })
    };
    timeout(CALLS, work).await.unwrap_or_else(|_| Err(Refusal::late("the API server", CALLS.as_secs())))
}

impl Running<'_> {
    /// Has it done.
    pub(super) async fn act(&self, act: Act, options: &Options) -> Result<(), Refusal> {
        let mut words = self.words(act.command());
        match act {
            Act::Pause if self.is_probed() => {
                let text =
                    "it has a liveness probe, which would fail while it is paused; guestAgentPing alone would do";
                return Err(self.pod.conflict(text));
            }
            Act::Freeze => words.extend(options.thaws_after()?.map(|seconds| format!("--timeout={seconds}"))),
            _ => {}
        }
        if options.is_dry()? { Ok(()) } else { self.pod.run(&words, MAX_DONE).await.map(drop) }
    }

    /// What the node knows of it, as an object of KubeVirt's.
    pub(super) async fn tell(&self, tell: Tell) -> Result<Value, Refusal> {
        let said = self.pod.run(&self.words(tell.command()), MAX_ANSWER).await?;
        let mut object: Map<String, Value> = serde_json::from_slice(&said).map_err(|error| {
            let text = format!("the node's answer is not what it is to be: {error}");
            Refusal::new(StatusCode::INTERNAL_SERVER_ERROR, text)
        })?;
        object.insert("kind".to_owned(), json!(tell.kind()));
        object.insert("apiVersion".to_owned(), json!(format!("{}/v1", self.pod.of.1)));
        Ok(object.into())
    }

    /// Its screen, as a PNG.
    pub(super) async fn screenshot(&self, moves_cursor: bool) -> Result<Vec<u8>, Refusal> {
        let mut words = self.words("virtlet:screenshot");
        words.extend(moves_cursor.then(|| "--move-cursor".to_owned()));
        self.pod.run(&words, MAX_PICTURE).await
    }

    /// Its console. What came before is in its pod's log.
    pub(super) async fn console(&self) -> Result<Stream, Refusal> {
        if self.spec.pointer("/domain/devices/autoattachSerialConsole") == Some(&json!(false)) {
            let text = "the VM has no serial console: its autoattachSerialConsole is false";
            return Err(self.pod.conflict(text));
        }
        self.pod.open(&Ask::Attach).await
    }

    /// Its screen as it changes, and what comes of that first: without it a refusal would come too late.
    pub(super) async fn vnc(&self, takes: bool) -> Result<(Stream, hyper::body::Bytes), Refusal> {
        let mut words = self.words("virtlet:vnc");
        words.extend(takes.then(|| "--take".to_owned()));
        let mut stream = self.pod.open(&Ask::Exec { words: &words, stdin: true }).await?;
        let first = self.pod.first(&mut stream).await?;
        Ok((stream, first))
    }

    /// One of its ports.
    pub(super) async fn port(&self, port: u16) -> Result<Stream, Refusal> {
        self.pod.open(&Ask::Port(port)).await
    }

    /// Whether kubelet asks the guest something that it cannot answer while it is paused.
    fn is_probed(&self) -> bool {
        let probe = &self.spec["livenessProbe"];
        !probe.is_null() && probe["guestAgentPing"].is_null()
    }

    /// A command, which says for whom it is.
    fn words(&self, command: &str) -> Vec<String> {
        let mut user: String = self.user.chars().map(|letter| if letter.is_control() { ' ' } else { letter }).collect();
        while user.len() > MAX_USER {
            user.pop();
        }
        vec![command.to_owned(), format!("--for={user}")]
    }
}
