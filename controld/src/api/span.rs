//! The span of a call: what was called, for which pod and container. All that is logged while the call is served has it, so
//! that the log can be searched by a pod. It is an error's span, so that it is there at each level of the log.

use tonic::codegen::http::Request;
use tracing::Span;
use tracing::field::Empty;

use crate::model::{ContainerId, SandboxConfig};

/// The span of a request that has come in.
pub(super) fn of(request: &Request<()>) -> Span {
    let call = request.uri().path().rsplit('/').next().unwrap_or_default();
    tracing::error_span!("call", call, namespace = Empty, name = Empty, pod = Empty, container = Empty)
}

/// The call is about this pod.
pub(super) fn about_pod(config: &SandboxConfig) {
    Span::current().record("namespace", &config.namespace).record("name", &config.name);
}

/// The call is about this sandbox.
pub(super) fn about_sandbox(id: &str, config: &SandboxConfig) {
    about_pod(config);
    Span::current().record("pod", id);
}

/// The call is about this container.
pub(super) fn about_container(id: ContainerId) {
    Span::current().record("container", tracing::field::display(id));
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::sync::{Arc, Mutex};

    use super::*;

    #[derive(Clone, Default)]
    struct Lines(Arc<Mutex<Vec<u8>>>);

    impl io::Write for Lines {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().expect("lock").extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_line_of_the_log_names_the_call_and_the_pod() {
        let lines = Lines::default();
        let writer = lines.clone();
        let log = tracing_subscriber::fmt().with_ansi(false).with_writer(move || writer.clone()).finish();
        tracing::subscriber::with_default(log, || {
            let request =
                Request::builder().uri("/runtime.v1.RuntimeService/StopPodSandbox").body(()).expect("request");
            let _entered = of(&request).entered();
            let config = SandboxConfig { namespace: "default".into(), name: "web".into(), ..SandboxConfig::default() };
            about_sandbox("abc", &config);
            tracing::info!("stopped");
        });
        let text = String::from_utf8(lines.0.lock().expect("lock").clone()).expect("UTF-8");
        let span = r#"call{call="StopPodSandbox" namespace="default" name="web" pod="abc"}"#;
        assert!(text.contains(span) && text.contains("stopped"), "{text}");
    }
}
