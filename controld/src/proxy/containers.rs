//! Calls that make something: sandboxes by their keys, containers by their sandbox and with an image that their side has; and what becomes
//! of the default's lists by calls that make and remove.
//!
//! A container's image is looked at only when the side that has the sandbox did not find it: kubelet asks for images without a runtime
//! handler in some of its calls, and then has the id of the other side's (specification, section 1).

use bytes::Bytes;
use prost::{DecodeError, Message as _};
use proto::cri::{
    Container, ContainerConfig, ContainerState, CreateContainerRequest, ImageSpec, ImageStatusRequest,
    ListContainersResponse, ListPodSandboxResponse, PodSandbox, RestorePodRequest, RestorePodResponse,
    RunPodSandboxRequest, RunPodSandboxResponse,
};
use tonic::body::Body;
use tonic::codegen::http::Response;
use tonic::codegen::http::request::Parts;
use tonic::{Code, Status};
use vmimage::digest::ImageId;

use super::ask::{self, Question};
use super::frames::{self, Read};
use super::keys::{Keys, SandboxKeys, shown};
use super::kind::Kind;
use super::lists::Lists;
use super::pods::{self, Pod};
use super::side::Side;
use super::uses::{Uses, plain};
use super::wire;
use crate::api::edge::PassedOn;

pub(super) const IMAGE_STATUS: &str = "/runtime.v1.ImageService/ImageStatus";
const RUN: &str = "/runtime.v1.RuntimeService/RunPodSandbox";

/// A sandbox, by its keys.
pub(super) async fn sandbox(
    uses: &Uses,
    parts: Parts,
    request: Read,
    config: u32,
    handler: u32,
) -> Result<Response<Body>, Status> {
    let keys = SandboxKeys::read(&request.message, config, handler).map_err(wire::refused)?;
    let side = uses.keys.sandbox(&keys)?;
    if let Some(handler) = keys.handler()
        && uses.state.has_twice(handler)
    {
        let text = format!(
            "runtime handler `{handler}` is both of the container runtime and of virtual machines; give one of them another name"
        );
        return Err(Status::failed_precondition(text));
    }
    pods::check_alone(uses, &Pod::read(&request.message, config).map_err(wire::refused)?, side).await?;
    match side {
        Side::Ours => {
            if let Some(trouble) = uses.state.driver_differs() {
                return Err(Status::failed_precondition(trouble.message));
            }
            Ok(uses.own.call(plain(parts, request.body())).await)
        }
        Side::Default => {
            let is_run = parts.uri.path() == RUN;
            PassedOn::note(&parts.extensions);
            let answer = inspected(uses, &parts, &request).await?;
            let noted = if is_run { note_run } else { note_restored };
            if noted(&uses.lists, &request.message, answer.get_ref()).is_err() {
                tracing::debug!(call = uses.call(&parts), "what was made is not understood, and not noted");
            }
            Ok(answered(answer))
        }
    }
}

/// The default has made a sandbox.
fn note_run(lists: &Lists, request: &[u8], answer: &[u8]) -> Result<(), DecodeError> {
    let (run, made) = (RunPodSandboxRequest::decode(request)?, RunPodSandboxResponse::decode(answer)?);
    lists.made(Kind::Sandboxes, &made.pod_sandbox_id, sandbox_item(&made.pod_sandbox_id, run));
    Ok(())
}

/// The default has made a sandbox with its containers.
fn note_restored(lists: &Lists, request: &[u8], answer: &[u8]) -> Result<(), DecodeError> {
    let (restore, made) = (RestorePodRequest::decode(request)?, RestorePodResponse::decode(answer)?);
    let pod_sandbox_id = made.pod_sandbox_id;
    let run = RunPodSandboxRequest { config: restore.config, runtime_handler: restore.runtime_handler };
    lists.made(Kind::Sandboxes, &pod_sandbox_id, sandbox_item(&pod_sandbox_id, run));
    let named = |config: &ContainerConfig, name: &str| config.metadata.as_ref().is_some_and(|it| it.name == name);
    for container in made.restored_containers {
        let config = restore.container_configs.iter().find(|config| named(config, &container.name)).cloned();
        let create = CreateContainerRequest {
            pod_sandbox_id: pod_sandbox_id.clone(),
            config,
            ..CreateContainerRequest::default()
        };
        lists.made(Kind::Containers, &container.container_id, container_item(&container.container_id, create));
    }
    Ok(())
}

/// As a list of sandboxes shows one that was just made.
fn sandbox_item(id: &str, run: RunPodSandboxRequest) -> Bytes {
    let config = run.config.unwrap_or_default();
    let item = PodSandbox {
        id: id.to_owned(),
        metadata: config.metadata,
        created_at: common::now_nanos(),
        labels: config.labels,
        annotations: config.annotations,
        runtime_handler: run.runtime_handler,
        ..PodSandbox::default()
    };
    ListPodSandboxResponse { items: vec![item] }.encode_to_vec().into()
}

/// As a list of containers shows one that was just made.
fn container_item(id: &str, create: CreateContainerRequest) -> Bytes {
    let config = create.config.unwrap_or_default();
    let image = config.image.unwrap_or_default();
    let item = Container {
        id: id.to_owned(),
        pod_sandbox_id: create.pod_sandbox_id,
        metadata: config.metadata,
        image_ref: image.image.clone(),
        image_id: image.image.clone(),
        image: Some(image),
        state: ContainerState::ContainerCreated.into(),
        created_at: common::now_nanos(),
        labels: config.labels,
        annotations: config.annotations,
    };
    ListContainersResponse { containers: vec![item] }.encode_to_vec().into()
}

/// A container, by its sandbox.
pub(super) async fn create(uses: &Uses, parts: Parts, request: Read) -> Result<Response<Body>, Status> {
    let sandbox = wire::text(&request.message, &[1]).map_err(wire::refused)?;
    match Side::of_id(sandbox) {
        Side::Default => create_there(uses, &parts, request).await,
        Side::Ours => create_here(uses, parts, request).await,
    }
}

async fn create_there(uses: &Uses, parts: &Parts, request: Read) -> Result<Response<Body>, Status> {
    let image = asked(&request.message)?;
    if is_named_as_ours(&uses.keys, &image) {
        let text = format!(
            "image `{}` is for virtual machines, and the pod's sandbox is of the container runtime; set the pod's runtimeClassName, \
             or name an image of containers",
            shown(&image.name)
        );
        return Err(Status::failed_precondition(text));
    }
    PassedOn::note(&parts.extensions);
    match inspected(uses, parts, &request).await {
        Ok(answer) => {
            if let (Ok(id), Ok(create)) =
                (wire::text(answer.get_ref(), &[1]), CreateContainerRequest::decode(request.message))
            {
                uses.lists.made(Kind::Containers, id, container_item(id, create));
            }
            Ok(answered(answer))
        }
        // It may have been asked for with the id of an image of ours.
        Err(status) if status.code() != Code::Unavailable && is_here_alone(uses, &image.id).await => {
            let text = format!(
                "image `{}` is here for virtual machines alone, and the pod's sandbox is of the container runtime; pull it for \
                 containers (imagePullPolicy Always), or set the pod's runtimeClassName",
                shown(&image.name)
            );
            Err(Status::failed_precondition(text))
        }
        Err(status) => Err(status),
    }
}

async fn create_here(uses: &Uses, parts: Parts, request: Read) -> Result<Response<Body>, Status> {
    let image = asked(&request.message)?;
    // Both look-ups are in memory. What our service finds by the sandbox's handler is its own affair: it is asked first.
    let response = uses.own.call(plain(parts.clone(), request.body())).await;
    let refused = Status::from_header_map(response.headers()).filter(|status| status.code() == Code::NotFound);
    if refused.is_none() || have(uses, &image.id).await {
        return Ok(response);
    }
    if image.name != image.id && have(uses, &image.name).await {
        let mut create = CreateContainerRequest::decode(request.message).map_err(|_| wire::refused(wire::Malformed))?;
        if let Some(asked) = create.config.as_mut().and_then(|config| config.image.as_mut()) {
            asked.image.clone_from(&image.name);
        }
        return Ok(uses.own.call(plain(parts, frames::request(create.encode_to_vec().into())?)).await);
    }
    if !there(uses, &image.id).await.unwrap_or_default() {
        return Ok(response);
    }
    let text = format!(
        "image `{}` exists only in the container runtime, and the pod is a virtual machine: kubelet found it there and pulled nothing. \
         Add annotation `kubernetes.io/target-runtime` to the pod, begin the image's name with `virtlet.cloud/`, or turn on kubelet's gate \
         RuntimeClassInImageCriApi",
        shown(&image.name)
    );
    Err(Status::failed_precondition(text))
}

/// The image that a container is to have.
struct Asked {
    /// As ImageStatus or PullImage answered.
    id: String,
    /// As the pod has it.
    name: String,
}

fn asked(request: &[u8]) -> Result<Asked, Status> {
    const ID: [u32; 3] = [2, 2, 1];
    const NAME: [u32; 3] = [2, 2, 18];
    let (id, name) =
        (wire::text(request, &ID).map_err(wire::refused)?, wire::text(request, &NAME).map_err(wire::refused)?);
    let name = if name.is_empty() { id } else { name };
    Ok(Asked { id: id.to_owned(), name: name.to_owned() })
}

fn is_named_as_ours(keys: &Keys, image: &Asked) -> bool {
    keys.has_prefix(&image.name) || keys.has_prefix(&image.id)
}

fn question(image: &str) -> Question {
    let spec = Some(ImageSpec { image: image.to_owned(), ..ImageSpec::default() });
    Question::new(IMAGE_STATUS, ImageStatusRequest { image: spec, verbose: false }.encode_to_vec().into())
}

/// Whether our store has an image.
pub(super) async fn have(uses: &Uses, image: &str) -> bool {
    let found = uses.own.ask(question(image)).await;
    found.is_ok_and(|found| has_image(&found))
}

/// Whether this is the whole id of an image of ours, and so of no other: an id is a hash, ours of a disk, a container runtime's of how an
/// image is configured.
pub(super) async fn has_ours(uses: &Uses, image: &str) -> bool {
    is_id(image) && have(uses, image).await
}

fn is_id(image: &str) -> bool {
    image.parse::<ImageId>().is_ok()
}

/// Whether an ImageStatus says that there is one.
pub(super) fn has_image(status: &[u8]) -> bool {
    wire::is_there(status, &[1]).unwrap_or_default()
}

/// Whether our store has an image that the default lacks. A default with one of that name has failed for another reason, in words that
/// kubelet may read.
async fn is_here_alone(uses: &Uses, image: &str) -> bool {
    have(uses, image).await && (is_id(image) || matches!(there(uses, image).await, Ok(false)))
}

/// Whether the default has it.
pub(super) async fn there(uses: &Uses, image: &str) -> Result<bool, Status> {
    let asked = ask::one(uses.backend.clone(), question(image));
    let found = uses.backend.within_deadline("ImageStatus", asked).await?;
    wire::is_there(found.get_ref(), &[1]).map_err(|error| Status::internal(error.to_string()))
}

/// Something is removed by its id; the default's list has it no more.
pub(super) async fn remove(uses: &Uses, parts: Parts, request: Read, kind: Kind) -> Result<Response<Body>, Status> {
    PassedOn::note(&parts.extensions);
    let answer = inspected(uses, &parts, &request).await?;
    if let Ok(id) = wire::text(&request.message, &[1]) {
        uses.lists.removed(kind, id);
    }
    Ok(answered(answer))
}

/// The default's answer to a call of its own that has to be looked at. As long as its client waits, and no longer.
pub(super) async fn inspected(uses: &Uses, parts: &Parts, request: &Read) -> Result<Response1, Status> {
    ask::one(uses.backend.clone(), Question::of(parts, request.message.clone(), true)).await
}

/// An answer of one message.
pub(super) type Response1 = tonic::Response<Bytes>;

/// It goes on.
pub(super) fn answered(answer: Response1) -> Response<Body> {
    let (metadata, message, _) = answer.into_parts();
    frames::with_metadata(vec![message], &metadata)
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proto::cri::*;

    use super::*;

    #[test]
    fn what_was_just_made_is_listed_as_its_runtime_would() {
        let labels: HashMap<_, _> = [("a".to_owned(), "b".to_owned())].into();
        let metadata = Some(PodSandboxMetadata { uid: "u".into(), attempt: 2, ..Default::default() });
        let config = PodSandboxConfig { metadata: metadata.clone(), labels: labels.clone(), ..Default::default() };
        let run = RunPodSandboxRequest { config: Some(config), runtime_handler: "runc".into() };
        let listed = ListPodSandboxResponse::decode(sandbox_item("s1", run)).expect("a list").items;
        let item = &listed[0];
        assert_eq!((item.id.as_str(), &item.metadata, &item.labels), ("s1", &metadata, &labels));
        assert_eq!((item.state(), item.runtime_handler.as_str()), (PodSandboxState::SandboxReady, "runc"));
        assert!(item.created_at > 0, "kubelet sorts by it");
        let image = ImageSpec { image: "sha256:1".into(), user_specified_image: "nginx".into(), ..Default::default() };
        let config = ContainerConfig { image: Some(image.clone()), labels, ..Default::default() };
        let create = CreateContainerRequest { pod_sandbox_id: "s1".into(), config: Some(config), sandbox_config: None };
        assert_eq!(
            asked(&create.encode_to_vec()).map(|asked| (asked.id, asked.name)).ok(),
            Some(("sha256:1".into(), "nginx".into()))
        );
        let listed = ListContainersResponse::decode(container_item("c1", create)).expect("a list").containers;
        let item = &listed[0];
        assert_eq!((item.id.as_str(), item.pod_sandbox_id.as_str(), &item.image), ("c1", "s1", &Some(image)));
        assert_eq!((item.state(), item.image_id.as_str()), (ContainerState::ContainerCreated, "sha256:1"));
    }
}
