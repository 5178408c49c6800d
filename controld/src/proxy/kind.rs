//! What both sides have lists of.

/// What is listed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Sandboxes,
    Containers,
    Images,
    ContainerStats,
    SandboxStats,
    Metrics,
}

impl Kind {
    /// The call whose answer is one message.
    pub(super) fn path(self) -> &'static str {
        match self {
            Self::Sandboxes => "/runtime.v1.RuntimeService/ListPodSandbox",
            Self::Containers => "/runtime.v1.RuntimeService/ListContainers",
            Self::Images => "/runtime.v1.ImageService/ListImages",
            Self::ContainerStats => "/runtime.v1.RuntimeService/ListContainerStats",
            Self::SandboxStats => "/runtime.v1.RuntimeService/ListPodSandboxStats",
            Self::Metrics => "/runtime.v1.RuntimeService/ListPodSandboxMetrics",
        }
    }

    /// The call whose answer is a stream.
    pub(super) fn stream_path(self) -> &'static str {
        match self {
            Self::Sandboxes => "/runtime.v1.RuntimeService/StreamPodSandboxes",
            Self::Containers => "/runtime.v1.RuntimeService/StreamContainers",
            Self::Images => "/runtime.v1.ImageService/StreamImages",
            Self::ContainerStats => "/runtime.v1.RuntimeService/StreamContainerStats",
            Self::SandboxStats => "/runtime.v1.RuntimeService/StreamPodSandboxStats",
            Self::Metrics => "/runtime.v1.RuntimeService/StreamPodSandboxMetrics",
        }
    }

    /// Whether kubelet has another source for it, which it turns to when a runtime does not know the call.
    pub(super) fn has_another_source(self) -> bool {
        matches!(self, Self::ContainerStats | Self::SandboxStats)
    }

    /// Whether the last good list serves while none can be had.
    pub(super) fn is_kept(self) -> bool {
        matches!(self, Self::Sandboxes | Self::Containers | Self::Images)
    }
}
