//! Why a request is not done, as Kubernetes says it: a Status.

use std::fmt::Display;

use http_body_util::Full;
use hyper::body::Bytes;
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::{Response, StatusCode};
use serde_json::json;

use super::Answer;
use crate::write::text_of;

/// Longest text of it, in bytes: a part of it may be a guest's.
const MAX_TEXT: usize = 4096;

/// Why a request is not done.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub(super) struct Refusal {
    pub(super) code: StatusCode,
    pub(super) message: String,
}

impl Refusal {
    /// One with a text for people.
    pub(super) fn new(code: StatusCode, message: impl Into<String>) -> Self {
        let mut message: String =
            message.into().chars().map(|letter| if letter.is_control() { ' ' } else { letter }).collect();
        while message.len() > MAX_TEXT {
            message.pop();
        }
        Self { code, message }
    }

    /// The object is not in a state in which that can be done.
    pub(super) fn conflict(kind: &str, group: impl Display, name: &str, why: impl Display) -> Self {
        let kind = kind.to_lowercase();
        Self::new(StatusCode::CONFLICT, format!("Operation cannot be fulfilled on {kind}.{group} \"{name}\": {why}"))
    }

    /// What was tried by the server itself did not come to an answer in time.
    pub(super) fn late(what: &str, seconds: u64) -> Self {
        Self::new(StatusCode::GATEWAY_TIMEOUT, format!("{what} did not answer within {seconds} s; try again"))
    }

    /// A call of the server's own failed. What the API server says of the object is for the client; that the server may not do it, or
    /// that nobody answered, is no fault of the client's.
    pub(super) fn of_call(what: &str, error: &kube::Error) -> Self {
        let text = text_of(error);
        match error {
            kube::Error::Api(status) => match status.code {
                404 | 409 | 422 | 429 => Self::new(StatusCode::from_u16(status.code).unwrap_or_default(), text),
                _ => Self::new(StatusCode::INTERNAL_SERVER_ERROR, format!("failed to {what}: {text}")),
            },
            _ => Self::new(StatusCode::SERVICE_UNAVAILABLE, format!("failed to {what}: {text}")),
        }
    }

    /// A write that a client asked for failed: as [`Self::of_call`], but what an admission says against it is for the client, too.
    pub(super) fn of_write(what: &str, error: &kube::Error) -> Self {
        match error {
            kube::Error::Api(status) if matches!(status.code, 400 | 403) && !is_of_rights(&status.message) => {
                Self::new(StatusCode::from_u16(status.code).unwrap_or_default(), status.message.clone())
            }
            _ => Self::of_call(what, error),
        }
    }

    /// What Kubernetes calls it.
    fn reason(&self) -> &'static str {
        match self.code.as_u16() {
            400 => "BadRequest",
            401 => "Unauthorized",
            403 => "Forbidden",
            404 => "NotFound",
            405 => "MethodNotAllowed",
            409 => "Conflict",
            413 => "RequestEntityTooLarge",
            422 => "Invalid",
            429 => "TooManyRequests",
            503 => "ServiceUnavailable",
            504 => "Timeout",
            500 => "InternalError",
            _ => "",
        }
    }

    /// As an answer.
    pub(super) fn response(&self) -> Answer {
        let status = json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": self.message, "reason": self.reason(), "code": self.code.as_u16(),
        });
        let mut response = Response::new(Full::new(Bytes::from(status.to_string())));
        *response.status_mut() = self.code;
        response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        response
    }
}

/// Whether the API server says that our own account may not, as it says it of everybody who may not.
fn is_of_rights(text: &str) -> bool {
    text.contains(" is forbidden: User \"") && text.contains("\" cannot ") && text.contains(" resource \"")
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt as _;
    use serde_json::Value;

    use super::*;

    #[test]
    fn what_an_admission_says_is_for_the_client_and_what_we_may_not_is_not() {
        let told = |code, message: &str| {
            let status = kube::core::Status { code, message: message.to_owned(), ..kube::core::Status::default() };
            Refusal::of_write("ask for it", &kube::Error::Api(status.boxed())).code.as_u16()
        };
        let denied = "virtualmachines.kubevirt.io \"db\" is forbidden: ValidatingAdmissionPolicy 'x' with binding 'x' denied request: no starts at night";
        let rights = "virtualmachines.kubevirt.io \"db\" is forbidden: User \"system:serviceaccount:virtlet-system:virtlet-subresources\" cannot patch resource \"virtualmachines\" in API group \"kubevirt.io\" in the namespace \"default\"";
        let hook = "admission webhook \"x\" denied the request: no";
        assert_eq!([told(403, denied), told(403, hook), told(400, hook), told(422, hook)], [403, 403, 400, 422]);
        assert_eq!([told(403, rights), told(401, "Unauthorized"), told(500, "x")], [500, 500, 500]);
    }

    #[tokio::test]
    async fn it_is_a_status_whatever_is_in_its_text() {
        let text = format!("a \"b\"\n\u{1b}[31m{}", "é".repeat(MAX_TEXT));
        let refusal = Refusal::conflict("VirtualMachine", "kubevirt.io", "db", text);
        let answer = refusal.response();
        assert_eq!(answer.status(), 409);
        let body = answer.into_body().collect().await.expect("a body").to_bytes();
        let status: Value = serde_json::from_slice(&body).expect("JSON");
        assert_eq!(
            (&status["kind"], &status["reason"], &status["code"]),
            (&json!("Status"), &json!("Conflict"), &json!(409))
        );
        let message = status["message"].as_str().expect("a text");
        let begin = "Operation cannot be fulfilled on virtualmachine.kubevirt.io \"db\": a \"b\"  [31mé";
        assert!(message.starts_with(begin) && message.len() <= MAX_TEXT, "{message}");
    }
}
