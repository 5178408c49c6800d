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
    /// Of a kubelet that is too old.
    V1Alpha2,
    /// Where its request says.
    Read(Known),
}

/// What is done with a call of the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Known {
    /// To the side whose id is in this field.
    Id(u32),
    /// As [`Known::Id`]; the answer is a URL that clients connect to.
    Url(u32),
    /// As [`Known::Id`]; if the default is it and does so, its lists have no more of what is named.
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
}

pub(super) const RUNTIME: &str = "runtime.v1.RuntimeService";
pub(super) const IMAGES: &str = "runtime.v1.ImageService";

/// Service, method, and what is done with it.
const CALLS: [(&str, &str, Known); 43] = [
    (RUNTIME, "Version", Known::Version),
    (RUNTIME, "RunPodSandbox", Known::Sandbox { config: 1, handler: 2 }),
    (RUNTIME, "StopPodSandbox", Known::Id(1)),
    (RUNTIME, "RemovePodSandbox", Known::Removal(1, Kind::Sandboxes)),
    (RUNTIME, "PodSandboxStatus", Known::Id(1)),
    (RUNTIME, "ListPodSandbox", Known::List(Kind::Sandboxes)),
    (RUNTIME, "StreamPodSandboxes", Known::Stream(Kind::Sandboxes)),
    (RUNTIME, "CreateContainer", Known::CreateContainer),
    (RUNTIME, "StartContainer", Known::Id(1)),
    (RUNTIME, "StopContainer", Known::Id(1)),
    (RUNTIME, "RemoveContainer", Known::Removal(1, Kind::Containers)),
    (RUNTIME, "ListContainers", Known::List(Kind::Containers)),
    (RUNTIME, "StreamContainers", Known::Stream(Kind::Containers)),
    (RUNTIME, "ContainerStatus", Known::Id(1)),
    (RUNTIME, "UpdateContainerResources", Known::Id(1)),
    (RUNTIME, "ReopenContainerLog", Known::Id(1)),
    (RUNTIME, "ExecSync", Known::Id(1)),
    (RUNTIME, "Exec", Known::Url(1)),
    (RUNTIME, "Attach", Known::Url(1)),
    (RUNTIME, "PortForward", Known::Url(1)),
    (RUNTIME, "ContainerStats", Known::Id(1)),
    (RUNTIME, "ListContainerStats", Known::List(Kind::ContainerStats)),
    (RUNTIME, "StreamContainerStats", Known::Stream(Kind::ContainerStats)),
    (RUNTIME, "PodSandboxStats", Known::Id(1)),
    (RUNTIME, "ListPodSandboxStats", Known::List(Kind::SandboxStats)),
    (RUNTIME, "StreamPodSandboxStats", Known::Stream(Kind::SandboxStats)),
    (RUNTIME, "UpdateRuntimeConfig", Known::UpdateRuntimeConfig),
    (RUNTIME, "Status", Known::Status),
    (RUNTIME, "CheckpointContainer", Known::Id(1)),
    (RUNTIME, "CheckpointPod", Known::Id(1)),
    (RUNTIME, "RestorePod", Known::Sandbox { config: 2, handler: 3 }),
    (RUNTIME, "GetContainerEvents", Known::Events),
    (RUNTIME, "ListMetricDescriptors", Known::MetricDescriptors),
    (RUNTIME, "ListPodSandboxMetrics", Known::List(Kind::Metrics)),
    (RUNTIME, "StreamPodSandboxMetrics", Known::Stream(Kind::Metrics)),
    (RUNTIME, "RuntimeConfig", Known::RuntimeConfig),
    (RUNTIME, "UpdatePodSandboxResources", Known::Id(1)),
    (IMAGES, "ListImages", Known::List(Kind::Images)),
    (IMAGES, "StreamImages", Known::Stream(Kind::Images)),
    (IMAGES, "ImageStatus", Known::ImageStatus),
    (IMAGES, "PullImage", Known::PullImage),
    (IMAGES, "RemoveImage", Known::RemoveImage),
    (IMAGES, "ImageFsInfo", Known::ImageFsInfo),
];

/// Calls by id that change nothing.
const LOOKS: [&str; 4] = ["PodSandboxStatus", "ContainerStatus", "PodSandboxStats", "ContainerStats"];

/// Where the call at `path` goes.
pub(super) fn route(path: &str) -> Route {
    let Some((service, method)) = path.strip_prefix('/').and_then(|path| path.split_once('/')) else {
        return Route::Ours;
    };
    if let Some((_, _, known)) = CALLS.iter().find(|(of, called, _)| *called == method && *of == service) {
        return Route::Read(*known);
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
    // What we do not know may change something.
    let Route::Read(known) = route(path) else { return true };
    match known {
        Known::Id(_) => !LOOKS.contains(&name(path)),
        Known::Version
        | Known::Status
        | Known::RuntimeConfig
        | Known::MetricDescriptors
        | Known::ImageStatus
        | Known::ImageFsInfo
        | Known::Url(_) => false,
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
            let Route::Read(known) = route(&format!("/{service}/{method}")) else { panic!("{method} is not read") };
            let id = number(&request, "container_id").or_else(|| number(&request, "pod_sandbox_id"));
            match known {
                Known::Id(field) | Known::Url(field) | Known::Removal(field, _) => {
                    assert_eq!(id, Some(field), "{method}")
                }
                Known::CreateContainer => assert_eq!(id, Some(1)),
                Known::Sandbox { config, handler } => {
                    assert_eq!(number(&request, "config"), Some(config), "{method}");
                    assert_eq!(number(&request, "runtime_handler"), Some(handler), "{method}");
                }
                _ => assert_eq!(id, None, "{method}"),
            }
            let is_stream = matches!(known, Known::Stream(_) | Known::Events);
            assert_eq!(is_stream, streams, "{method}");
            assert_eq!(matches!(known, Known::Stream(_)), method.starts_with("Stream"), "{method}");
            let is_list = matches!(known, Known::List(_) | Known::MetricDescriptors);
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
