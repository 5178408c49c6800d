//! Registries that nobody configured: whether a name looks like one of a registry, and whether its host is one.
//!
//! A name without a rule and without a provider is a URL. `quay.io/containerdisks/fedora:40` makes no useful URL, but
//! is an image of a registry; of `images.example.com/debian` one cannot tell. So the host is asked, by the first request of
//! the registries' protocol (`GET /v2/`, OCI distribution specification, end-1), and what it said holds for a while.
//! Whoever serves both under one host has to say so by a rule.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use hyper::StatusCode;
use hyper::header::{CONTENT_TYPE, WWW_AUTHENTICATE};
use tokio::time::Instant;

use super::reference::Reference;
use super::{Oci, REMEMBERED, challenge};
use crate::sources::net::{FetchError, Request, Small};
use crate::sources::provider::ProviderError;

/// How long it is believed what a host is.
const LASTS: Duration = Duration::from_secs(3600);
/// Largest answer of a front door: a registry's has a few bytes, and a web page is none.
const DOOR: usize = 64 << 10;
/// How the names of files end, other than those of images in a registry.
const FILES: [&str; 17] = [
    ".ova", ".tgz", ".tar", ".zip", ".qcow2", ".qcow", ".img", ".raw", ".vmdk", ".vhd", ".vhdx", ".vdi", ".iso", ".xz",
    ".gz", ".zst", ".bz2",
];

/// How registries are spoken to that nobody configured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AnyRegistry {
    /// Without TLS.
    pub plain_http: bool,
}

/// What is known of hosts.
#[derive(Debug)]
pub(super) struct Any {
    spoken: AnyRegistry,
    hosts: Mutex<BTreeMap<String, (bool, Instant)>>,
}

impl Any {
    pub(super) fn new(spoken: AnyRegistry) -> Self {
        Self { spoken, hosts: Mutex::default() }
    }

    pub(super) fn is_plain(&self) -> bool {
        self.spoken.plain_http
    }

    pub(super) fn forget(&self) {
        self.hosts.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    fn known(&self, host: &str) -> Option<bool> {
        let hosts = self.hosts.lock().unwrap_or_else(PoisonError::into_inner);
        hosts.get(host).filter(|(_, at)| at.elapsed() < LASTS).map(|(is_one, _)| *is_one)
    }

    fn note(&self, host: &str, is_one: bool) {
        let mut hosts = self.hosts.lock().unwrap_or_else(PoisonError::into_inner);
        if hosts.len() >= REMEMBERED {
            hosts.pop_first();
        }
        hosts.insert(host.to_owned(), (is_one, Instant::now()));
    }
}

impl Oci {
    /// Whether this provider is for any registry, and the reference is of one.
    pub(super) async fn is_any_registry(&self, reference: &Reference) -> Result<bool, ProviderError> {
        let Some(any) = self.any.as_ref().filter(|_| looks_like(reference)) else { return Ok(false) };
        let host = reference.host();
        if let Some(known) = any.known(host) {
            return Ok(known);
        }
        let mut door = self.base(reference, true)?;
        door.set_path("/v2/");
        // Nobody's login: it is not known yet who is asked.
        let request = Request::get(door).with_transport(self.transport.clone()).without_redirects();
        let is_one = match self.client.small(&request, DOOR, None).await {
            Ok(answer) if answer.status.is_server_error() || answer.status == StatusCode::TOO_MANY_REQUESTS => {
                return Err(answer.refusal().into());
            }
            Ok(answer) => is_front_door(&answer),
            // A page of some size, or one that is packed.
            Err(FetchError::TooLarge { .. } | FetchError::Encoded { .. }) => false,
            Err(error) => return Err(error.into()),
        };
        tracing::debug!(host, is_one, "asked whether it is a registry");
        any.note(host, is_one);
        Ok(is_one)
    }
}

/// Whether a reference may be an image's name, and not a file's.
fn looks_like(reference: &Reference) -> bool {
    let registry = &reference.registry;
    let is_domain = registry.contains(['.', ':']) || registry == "localhost";
    is_domain && !FILES.iter().any(|end| reference.repository.ends_with(end))
}

/// Whether a registry has answered at its front door.
fn is_front_door(answer: &Small) -> bool {
    let text = |name: &str| answer.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
    // All implementations had this before there was a specification, and many still have it.
    let says_so = text("docker-distribution-api-version").starts_with("registry/2");
    match answer.status {
        StatusCode::UNAUTHORIZED => {
            let headers = answer.headers.get_all(WWW_AUTHENTICATE).iter().filter_map(|value| value.to_str().ok());
            // The login by tokens is the registries' own. By password, any server may want one.
            says_so || headers.flat_map(challenge::parse).any(|challenge| challenge.scheme == "bearer")
        }
        StatusCode::OK => says_so || text(CONTENT_TYPE.as_str()).starts_with("application/json"),
        _ => says_so,
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use hyper::header::{HeaderMap, HeaderName, HeaderValue};
    use url::Url;

    use super::*;
    use crate::sources::net::Validators;

    #[test]
    fn a_name_of_a_file_is_none_of_a_registry() {
        for (name, expected) in [
            ("quay.io/containerdisks/fedora:40", true),
            ("quay.io/containerdisks/fedora", true),
            ("localhost/a", true),
            ("host:5000/a", true),
            ("docker.io/library/debian", true),
            ("debian/12", false),
            ("images.example.com/debian.qcow2", false),
            ("images.example.com/debian.img:7", false),
            ("images.example.com/a/debian.raw.xz", false),
        ] {
            let reference = Reference::parse(name, None).expect("a reference");
            assert_eq!(looks_like(&reference), expected, "{name}");
        }
    }

    #[test]
    fn a_registry_is_known_by_its_front_door() {
        let bearer = ("www-authenticate", "Bearer realm=\"https://auth.example/token\"");
        let basic = ("www-authenticate", "Basic realm=\"files\"");
        let version = ("docker-distribution-api-version", "registry/2.0");
        let (json, page) = (("content-type", "application/json; charset=utf-8"), ("content-type", "text/html"));
        for (status, headers, expected) in [
            (200, vec![json], true),
            (200, vec![version], true),
            (401, vec![bearer], true),
            (401, vec![basic, version], true),
            (401, vec![basic], false),
            (401, vec![], false),
            (200, vec![page], false),
            (200, vec![], false),
            (404, vec![json], false),
            (302, vec![], false),
            (403, vec![page], false),
        ] {
            let headers: HeaderMap = headers
                .iter()
                .map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value)))
                .collect();
            let answer = Small {
                status: StatusCode::from_u16(status).expect("a status"),
                headers,
                url: Url::parse("https://host/v2/").expect("a URL"),
                body: Bytes::new(),
                validators: Validators::default(),
            };
            assert_eq!(is_front_door(&answer), expected, "{status} {answer:?}");
        }
    }

    #[test]
    fn what_is_known_of_hosts_is_bounded_and_forgotten() {
        let any = Any::new(AnyRegistry { plain_http: false });
        for at in 0..REMEMBERED * 2 {
            any.note(&format!("h{at}"), true);
        }
        let known = any.hosts.lock().expect("whole").len();
        assert!(known <= REMEMBERED, "{known}");
        any.note("quay.io", true);
        assert_eq!((any.known("quay.io"), any.known("other")), (Some(true), None));
        any.forget();
        assert_eq!(any.known("quay.io"), None);
    }
}
