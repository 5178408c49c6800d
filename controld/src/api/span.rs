//! The span of a call: what was called, for which pod and container. All that is logged while the call is served has it, so
//! that the log can be searched by a pod. It is an error's span, so that it is there at each level of the log. The call's span in
//! its [trace] has the pod as well.

use tonic::codegen::http::Request;
use tracing::Span;
use tracing::field::Empty;
use vmspec::{ContainerId, SandboxConfig};

use crate::trace;

/// The span of a request that has come in.
pub(super) fn of(request: &Request<()>) -> Span {
    let call = request.uri().path().rsplit('/').next().unwrap_or_default();
    tracing::error_span!("call", call, namespace = Empty, name = Empty, pod = Empty, container = Empty)
}

/// The call is about this pod.
pub(super) fn about_pod(config: &SandboxConfig) {
    Span::current().record("namespace", &config.namespace).record("name", &config.name);
    trace::note("k8s.namespace.name", &config.namespace);
    trace::note("k8s.pod.name", &config.name);
    trace::note("k8s.pod.uid", &config.uid);
}

/// The call is about this sandbox.
pub(super) fn about_sandbox(id: &str, config: &SandboxConfig) {
    about_pod(config);
    Span::current().record("pod", id);
    trace::note("sandbox.id", id);
}

/// The call is about this container.
pub(super) fn about_container(id: ContainerId) {
    Span::current().record("container", tracing::field::display(id));
    trace::note("container.id", id);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::logged::logged;

    #[test]
    fn a_line_of_the_log_names_the_call_and_the_pod() {
        let text = logged(|| {
            let request =
                Request::builder().uri("/runtime.v1.RuntimeService/StopPodSandbox").body(()).expect("request");
            let _entered = of(&request).entered();
            let config = SandboxConfig { namespace: "default".into(), name: "web".into(), ..SandboxConfig::default() };
            about_sandbox("abc", &config);
            tracing::info!("stopped");
        });
        let span = r#"call{call="StopPodSandbox" namespace="default" name="web" pod="abc"}"#;
        assert!(text.contains(span) && text.contains("stopped"), "{text}");
    }
}
