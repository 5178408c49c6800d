//! The cluster that a kubeconfig names, or that this runs in ([`config`]): its API, asked by calls of bounded time and size, and [`stream`]s of its VMs.
//!
//! Made by the commands of `vm` that ask a cluster, and for the names that Tab completes; none else pays for it. What a server answers
//! that is no result becomes a [`ClusterError`] here.

mod config;
pub(super) mod stream;

use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Limited};
use hyper::header::{ACCEPT, CONTENT_TYPE};
use hyper::{Method, Request, Response};
use kube::client::Body;
use kube::config::ExecInteractiveMode;
use kube::{Client, Config};
use serde::Deserialize;
use serde_json::Value;
use tokio::time::timeout;

use self::stream::Stream;
use super::error::ClusterError;
use super::kubeconfig::At;

/// For a connection to an API server that is there.
const CONNECT: Duration = Duration::from_secs(10);
/// For an answer: a node takes up to 50 s for some, and the server of subresources 20 s until it is asked.
const CALL: Duration = Duration::from_secs(80);
/// Bytes of an answer, and of one that says why there is none.
const MAX_ANSWER: usize = 64 << 20;
const MAX_REFUSAL: usize = 64 << 10;
/// Letters of a refusal: of the API, which may name many fields of an object, and in somebody else's words.
const MAX_MESSAGE: usize = 2000;
const MAX_WORDS: usize = 300;
const JSON: &str = "application/json";

/// A cluster, and where in it.
pub(super) struct Cluster {
    client: Client,
    group: String,
    namespace: String,
}

/// What is asked of the API, and `action` what it is for, in words for an error.
pub(super) struct Ask<'a> {
    pub(super) action: &'a str,
    pub(super) method: Method,
    pub(super) path: &'a str,
    /// What kind of answer is wanted; JSON, if nothing is said.
    pub(super) accept: Option<&'a str>,
    pub(super) body: Option<Value>,
}

/// How the API refuses.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Status {
    kind: String,
    message: String,
}

impl Cluster {
    /// Reads who it is and who we are there. Asks nobody.
    pub(super) async fn connect(at: &At) -> Result<Self, ClusterError> {
        Self::of(config::of(at).await?, at)
    }

    /// The same while a line is typed: a program that logs in has no terminal then, and must not ask.
    pub(super) async fn connect_silently(at: &At) -> Result<Self, ClusterError> {
        let mut config = config::of(at).await?;
        if let Some(exec) = &mut config.auth_info.exec {
            exec.interactive_mode = Some(ExecInteractiveMode::Never);
        }
        Self::of(config, at)
    }

    fn of(mut config: Config, at: &At) -> Result<Self, ClusterError> {
        config.connect_timeout = Some(CONNECT);
        // Calls have a deadline of their own, and streams may be silent.
        (config.read_timeout, config.write_timeout) = (None, None);
        // What is refused is told at once.
        config.default_retry = false;
        let namespace = at.namespace.clone().unwrap_or_else(|| config.default_namespace.clone());
        let client = Client::try_from(config).map_err(|error| ClusterError::of_client(&error))?;
        Ok(Self { client, group: at.group.clone(), namespace })
    }

    /// The namespace, if an object's name says none.
    pub(super) fn namespace(&self) -> &str {
        &self.namespace
    }

    pub(super) fn group(&self) -> &str {
        &self.group
    }

    /// Path of objects: all of a namespace, or of all namespaces.
    pub(super) fn objects(&self, plural: &str, namespace: Option<&str>) -> String {
        let within = namespace.map(|namespace| format!("/namespaces/{namespace}")).unwrap_or_default();
        format!("/apis/{}/v1{within}/{plural}", self.group)
    }

    /// Path of a subresource of an object.
    pub(super) fn subresource(&self, namespace: &str, plural: &str, name: &str, verb: &str) -> String {
        format!("/apis/subresources.{}/v1/namespaces/{namespace}/{plural}/{name}/{verb}", self.group)
    }

    /// Path of what its server of subresources says of itself.
    pub(super) fn version(&self) -> String {
        format!("/apis/subresources.{}/v1/version", self.group)
    }

    /// The API's answer.
    pub(super) async fn call(&self, ask: Ask<'_>) -> Result<Bytes, ClusterError> {
        let Ask { action, method, path, accept, body } = ask;
        let mut request = Request::builder().method(method).uri(path).header(ACCEPT, accept.unwrap_or(JSON));
        let body = match body {
            None => Body::empty(),
            Some(body) => {
                request = request.header(CONTENT_TYPE, JSON);
                Body::from(body.to_string().into_bytes())
            }
        };
        let answered = async {
            let request =
                request.body(body).map_err(|_| ClusterError::Answer { action: action.into(), lacks: "path" })?;
            let response =
                self.client.send(request).await.map_err(|error| ClusterError::unreachable(action, &error))?;
            if !response.status().is_success() {
                return Err(refused(action, response).await);
            }
            let body = Limited::new(response.into_body(), MAX_ANSWER).collect().await;
            body.map(|body| body.to_bytes())
                .map_err(|cause| ClusterError::Broken { action: action.into(), why: cause.to_string() })
        };
        let late = |_| Err(ClusterError::Deadline { action: action.into(), deadline: CALL });
        timeout(CALL, answered).await.unwrap_or_else(late)
    }

    /// The same as JSON.
    pub(super) async fn json(&self, action: &str, path: &str, accept: Option<&str>) -> Result<Value, ClusterError> {
        let answer = self.call(Ask { action, method: Method::GET, path, accept, body: None }).await?;
        serde_json::from_slice(&answer).map_err(|_| ClusterError::Answer { action: action.into(), lacks: "JSON" })
    }

    /// A stream of bytes.
    pub(super) async fn stream(&self, action: &str, path: &str) -> Result<Stream, ClusterError> {
        stream::open(&self.client, action, path).await
    }
}

/// Why the API does not do it, in its words.
async fn refused(action: &str, response: Response<Body>) -> ClusterError {
    let code = response.status();
    let body = Limited::new(response.into_body(), MAX_REFUSAL).collect().await;
    let body = body.map(|body| body.to_bytes()).unwrap_or_default();
    let status: Status = serde_json::from_slice(&body).unwrap_or_default();
    let is_status = status.kind == "Status" && !status.message.is_empty();
    let why = if is_status {
        status.message.chars().take(MAX_MESSAGE).collect()
    } else {
        let words: String = String::from_utf8_lossy(&body).trim().chars().take(MAX_WORDS).collect();
        if words.is_empty() { code.to_string() } else { words }
    };
    ClusterError::Refused { action: action.into(), code: code.as_u16(), is_status, why }
}

#[cfg(test)]
pub(super) mod tests;
