//! Every call of CRI, and where it goes.
//!
//! The table is the specification's, section 3. A call that is not in it goes to the default as it is, if it is of CRI: kubelet may be newer
//! than we are.

use super::kind::Kind;

/// What a call's path means here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Route {
    /// To the default, without a look at it.
    Default,
    /// To our own services, without a look at it.
    Ours,
    /// To the side whose id is in this field.
    Id(u32),
    /// As [`Route::Id`]; the answer is a URL that clients connect to.
    Url(u32),
    /// As [`Route::Id`]; if the default is it and does so, its lists have no more of what is named.
    Removal(u32, Kind),
    /// By the keys of a pod: in which field its configuration and its runtime handler are.
    Sandbox {
        config: u32,
        handler: u32,
    },
    CreateContainer,
    List(Kind),
    Stream(Kind),
    MetricDescriptors,
    Events,
    PullImage,
    ImageStatus,
    RemoveImage,
    ImageFsInfo,
    Version,
    Status,
    RuntimeConfig,
    UpdateRuntimeConfig,
    /// Of a kubelet that is too old.
    V1Alpha2,
}

pub(super) const RUNTIME: &str = "runtime.v1.RuntimeService";
pub(super) const IMAGES: &str = "runtime.v1.ImageService";

/// Service, method, and where it goes.
const CALLS: [(&str, &str, Route); 43] = [
    (RUNTIME, "Version", Route::Version),
    (RUNTIME, "RunPodSandbox", Route::Sandbox { config: 1, handler: 2 }),
    (RUNTIME, "StopPodSandbox", Route::Id(1)),
    (RUNTIME, "RemovePodSandbox", Route::Removal(1, Kind::Sandboxes)),
    (RUNTIME, "PodSandboxStatus", Route::Id(1)),
    (RUNTIME, "ListPodSandbox", Route::List(Kind::Sandboxes)),
    (RUNTIME, "StreamPodSandboxes", Route::Stream(Kind::Sandboxes)),
    (RUNTIME, "CreateContainer", Route::CreateContainer),
    (RUNTIME, "StartContainer", Route::Id(1)),
    (RUNTIME, "StopContainer", Route::Id(1)),
    (RUNTIME, "RemoveContainer", Route::Removal(1, Kind::Containers)),
    (RUNTIME, "ListContainers", Route::List(Kind::Containers)),
    (RUNTIME, "StreamContainers", Route::Stream(Kind::Containers)),
    (RUNTIME, "ContainerStatus", Route::Id(1)),
    (RUNTIME, "UpdateContainerResources", Route::Id(1)),
    (RUNTIME, "ReopenContainerLog", Route::Id(1)),
    (RUNTIME, "ExecSync", Route::Id(1)),
    (RUNTIME, "Exec", Route::Url(1)),
    (RUNTIME, "Attach", Route::Url(1)),
    (RUNTIME, "PortForward", Route::Url(1)),
    (RUNTIME, "ContainerStats", Route::Id(1)),
    (RUNTIME, "ListContainerStats", Route::List(Kind::ContainerStats)),
    (RUNTIME, "StreamContainerStats", Route::Stream(Kind::ContainerStats)),
    (RUNTIME, "PodSandboxStats", Route::Id(1)),
    (RUNTIME, "ListPodSandboxStats", Route::List(Kind::SandboxStats)),
    (RUNTIME, "StreamPodSandboxStats", Route::Stream(Kind::SandboxStats)),
    (RUNTIME, "UpdateRuntimeConfig", Route::UpdateRuntimeConfig),
    (RUNTIME, "Status", Route::Status),
    (RUNTIME, "CheckpointContainer", Route::Id(1)),
    (RUNTIME, "CheckpointPod", Route::Id(1)),
    (RUNTIME, "RestorePod", Route::Sandbox { config: 2, handler: 3 }),
    (RUNTIME, "GetContainerEvents", Route::Events),
    (RUNTIME, "ListMetricDescriptors", Route::MetricDescriptors),
    (RUNTIME, "ListPodSandboxMetrics", Route::List(Kind::Metrics)),
    (RUNTIME, "StreamPodSandboxMetrics", Route::Stream(Kind::Metrics)),
    (RUNTIME, "RuntimeConfig", Route::RuntimeConfig),
    (RUNTIME, "UpdatePodSandboxResources", Route::Id(1)),
    (IMAGES, "ListImages", Route::List(Kind::Images)),
    (IMAGES, "StreamImages", Route::Stream(Kind::Images)),
    (IMAGES, "ImageStatus", Route::ImageStatus),
    (IMAGES, "PullImage", Route::PullImage),
    (IMAGES, "RemoveImage", Route::RemoveImage),
    (IMAGES, "ImageFsInfo", Route::ImageFsInfo),
];

/// Calls by id that change nothing.
const LOOKS: [&str; 4] = ["PodSandboxStatus", "ContainerStatus", "PodSandboxStats", "ContainerStats"];

/// Where the call at `path` goes.
pub(super) fn route(path: &str) -> Route {
    let Some((service, method)) = path.strip_prefix('/').and_then(|path| path.split_once('/')) else {
        return Route::Ours;
    };
    if let Some((_, _, route)) = CALLS.iter().find(|(of, called, _)| *called == method && *of == service) {
        return *route;
    }
    match service.split('.').collect::<Vec<_>>()[..] {
        ["runtime", "v1alpha2", _] => Route::V1Alpha2,
        ["runtime", ..] => Route::Default,
        // Health, reflection, and what virtletctl calls. The default's own API, if it is on the same socket, is not opened by ours.
        _ => Route::Ours,
    }
}

/// Whether the call at `path` goes on at a default that answers nothing any more.
///
/// What only looks ends, and its client looks again: one `ContainerStatus` that hangs would hold up kubelet's look at all pods, for the
/// two minutes of its own deadline. What changes something goes on: if it were dropped, the default would give it up once it runs again,
/// and a `StartContainer` that was given up is a container that failed. kubelet's workers, each of one pod, wait for such calls. Lists
/// go on, too: they have a deadline of ours, and are kept however late they come.
pub(super) fn outlasts_silence(path: &str) -> bool {
    match route(path) {
        Route::Id(_) => !LOOKS.contains(&name(path)),
        Route::Version
        | Route::Status
        | Route::RuntimeConfig
        | Route::MetricDescriptors
        | Route::ImageStatus
        | Route::ImageFsInfo
        | Route::Url(_) => false,
        // What we do not know may change something.
        _ => true,
    }
}

/// The name of the call at `path` in metrics and errors: what clients send makes no new ones.
pub(super) fn name(path: &str) -> &'static str {
    let method = path.rsplit('/').next().unwrap_or_default();
    CALLS.iter().find(|(_, known, _)| *known == method).map_or("other", |(_, known, _)| known)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Service, method, message of the request, and whether the answer is a stream, of each call of CRI.
    fn methods() -> Vec<(String, String, String, bool)> {
        let proto = include_str!("../../../proto/cri/api.proto");
        let mut service = String::new();
        let mut methods = Vec::new();
        for line in proto.lines().map(str::trim) {
            if let Some(name) = line.strip_prefix("service ") {
                service = format!("runtime.v1.{}", name.trim_end_matches([' ', '{']));
            }
            let Some((name, rest)) = line.strip_prefix("rpc ").and_then(|rest| rest.split_once('(')) else { continue };
            let (request, answer) = rest.split_once(") returns (").expect("an answer");
            methods.push((service.clone(), name.to_owned(), request.to_owned(), answer.starts_with("stream ")));
        }
        methods
    }

    #[test]
    fn every_call_of_cri_has_its_row_and_no_other_has() {
        let mut there: Vec<_> = methods().into_iter().map(|(service, method, ..)| (service, method)).collect();
        let mut known: Vec<_> = CALLS.iter().map(|(of, called, _)| ((*of).to_owned(), (*called).to_owned())).collect();
        assert_eq!(there.len(), 43);
        there.sort();
        known.sort();
        assert_eq!(known, there);
    }

    /// The number that a field has in a message of api.proto.
    fn number(message: &str, field: &str) -> Option<u32> {
        let proto = include_str!("../../../proto/cri/api.proto");
        let body = proto
            .split(&format!("message {message} {{"))
            .nth(1)
            .or_else(|| proto.split(&format!("message {message}{{")).nth(1))?;
        let body = body.split('}').next()?;
        let line = body
            .lines()
            .find_map(|line| line.trim().split_once(" = ").filter(|(what, _)| what.ends_with(&format!(" {field}"))))?;
        line.1.trim_end_matches(';').parse().ok()
    }

    /// A wrong number would send a container's call to the other runtime.
    #[test]
    fn routes_read_the_fields_that_the_protocol_has() {
        for (service, method, request, streams) in methods() {
            let route = route(&format!("/{service}/{method}"));
            let id = number(&request, "container_id").or_else(|| number(&request, "pod_sandbox_id"));
            match route {
                Route::Id(field) | Route::Url(field) | Route::Removal(field, _) => {
                    assert_eq!(id, Some(field), "{method}")
                }
                Route::CreateContainer => assert_eq!(id, Some(1)),
                Route::Sandbox { config, handler } => {
                    assert_eq!(number(&request, "config"), Some(config), "{method}");
                    assert_eq!(number(&request, "runtime_handler"), Some(handler), "{method}");
                }
                _ => assert_eq!(id, None, "{method}"),
            }
            let is_stream = matches!(route, Route::Stream(_) | Route::Events);
            assert_eq!(is_stream, streams, "{method}");
            assert_eq!(matches!(route, Route::Stream(_)), method.starts_with("Stream"), "{method}");
            let is_list = matches!(route, Route::List(_) | Route::MetricDescriptors);
            assert_eq!(is_list, method.starts_with("List"), "{method}");
            assert_eq!(name(&format!("/{service}/{method}")), method);
        }
    }

    #[test]
    fn what_is_newer_goes_to_the_default_and_what_is_not_cri_stays_ours() {
        for (path, wanted) in [
            ("/runtime.v1.RuntimeService/HibernatePod", Route::Default),
            ("/runtime.v1.VolumeService/List", Route::Default),
            ("/runtime.v2.RuntimeService/Version", Route::Default),
            ("/runtime.v1alpha2.RuntimeService/Version", Route::V1Alpha2),
            ("/runtime.v1.RuntimeService/version", Route::Default),
            ("/virtlet.images.v1.ImageAdmin/List", Route::Ours),
            ("/grpc.health.v1.Health/Check", Route::Ours),
            ("/containerd.services.tasks.v1.Tasks/Kill", Route::Ours),
            ("/runtimes/x", Route::Ours),
            ("", Route::Ours),
            ("/", Route::Ours),
            ("/x", Route::Ours),
        ] {
            assert_eq!(route(path), wanted, "{path}");
        }
        assert_eq!((name("/runtime.v1.RuntimeService/HibernatePod"), name("")), ("other", "other"));
    }
}
