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
mod tests {
    use common::logged::Lines;

    use super::*;

    #[test]
    fn a_line_has_what_is_known_of_the_pod() {
        let (lines, _logs) = Lines::of_this_thread();
        let pod: PodId = "p1".parse().expect("pod id");
        let unread = Attach::new(pod.clone());
        of_pod(&pod, Some(&unread)).in_scope(|| tracing::info!("one"));
        lines.assert_line(r#" pod{pod="p1"}: "#, "one");
        of_request("status", None, None).in_scope(|| tracing::info!("two"));
        lines.assert_line(r#" request{request="status"}: "#, "two");
    }
}
