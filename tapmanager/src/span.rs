//! The spans of work on pods: every line that is logged meanwhile carries the pod's namespace, name and id, by the
//! names that controld's log has for them. An operator searches both logs by one pod. They
//! are errors' spans, so that they are there at each level of the log.
//!
//! The daemon makes one for each request and each hand-off. The pod's actor makes its own, since its work goes on when
//! the client has hung up.

use proto::tap::{Attach, PodId};
use tracing::{Span, error_span};

/// The span of a request of the kind `request`, about `pod` if it is about one. `attach` is the request that attached the
/// pod, as far as it is known.
pub(crate) fn of_request(request: &'static str, pod: Option<&PodId>, attach: Option<&Attach>) -> Span {
    let (namespace, name) = named(attach);
    error_span!("request", request, namespace, name, pod = pod.map(PodId::as_str))
}

/// The span of work on `pod`.
pub(crate) fn of_pod(pod: &PodId, attach: Option<&Attach>) -> Span {
    let (namespace, name) = named(attach);
    error_span!("pod", namespace, name, pod = pod.as_str())
}

/// Namespace and name of a pod. Neither is known of one whose record is not understood.
fn named(attach: Option<&Attach>) -> (Option<&str>, Option<&str>) {
    let told = |text: fn(&Attach) -> &str| attach.map(text).filter(|text| !text.is_empty());
    (told(|attach| &attach.namespace), told(|attach| &attach.name))
}

#[cfg(test)]
pub(crate) mod tests {
    use std::io;
    use std::sync::{Arc, LazyLock, Mutex};

    use tracing::Dispatch;
    use tracing::level_filters::LevelFilter;
    use tracing::subscriber::{DefaultGuard, NoSubscriber};

    use super::*;

    /// With one subscriber, tracing asks the thread that first comes to a span whether anybody wants it, and believes that for all
    /// threads: the one of another test says no. With several it asks all of them.
    static OTHERS: LazyLock<[Dispatch; 2]> = LazyLock::new(|| [(); 2].map(|()| Dispatch::new(NoSubscriber::default())));

    /// What is logged on this thread.
    #[derive(Clone, Default)]
    pub(crate) struct Log(Arc<Mutex<Vec<u8>>>);

    impl Log {
        /// All from now on, until the guard is dropped.
        pub(crate) fn start() -> (Self, DefaultGuard) {
            LazyLock::force(&OTHERS);
            let log = Self::default();
            let writer = log.clone();
            let lines = tracing_subscriber::fmt().with_max_level(LevelFilter::DEBUG).with_ansi(false);
            let subscriber = lines.with_writer(move || writer.clone()).finish();
            (log, tracing::subscriber::set_default(subscriber))
        }

        /// Fails unless there is a line that has both.
        pub(crate) fn assert_line(&self, span: &str, message: &str) {
            let text = String::from_utf8(self.0.lock().expect("lock").clone()).expect("UTF-8");
            assert!(text.lines().any(|line| line.contains(span) && line.contains(message)), "{span} {message}: {text}");
        }
    }

    impl io::Write for Log {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().expect("lock").write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_line_has_what_is_known_of_the_pod() {
        let (log, _guard) = Log::start();
        let pod: PodId = "p1".parse().expect("pod id");
        let unread = Attach::new(pod.clone());
        of_pod(&pod, Some(&unread)).in_scope(|| tracing::info!("one"));
        log.assert_line(r#" pod{pod="p1"}: "#, "one");
        of_request("status", None, None).in_scope(|| tracing::info!("two"));
        log.assert_line(r#" request{request="status"}: "#, "two");
    }
}
