//! What a caller wants beside the name, and whom its credentials are for.

use vmimage::name::Version;

use super::Platform;
use crate::sources::net::Auth;

/// What a caller wants beside the name.
#[derive(Debug, Clone, Default)]
pub struct Want {
    /// What it is to run on.
    pub platform: Platform,
    /// Credentials of the one who asks. They are for the origin that the name or its rule points to, and no other.
    pub auth: Option<Auth>,
    /// The registry that these are for, as pull secrets name it; empty if they are for whatever the name leads to.
    pub auth_server: String,
    /// Tag or digest of the name, for sources of which the URL or the bare name does not say which of several images is
    /// meant.
    pub version: Option<Version>,
    /// Whether a name may be asked for at a host that nobody configured: what a person or a pod names, but never what an
    /// image does.
    pub anywhere: bool,
}

impl Want {
    /// The credentials of the one who asks, unless they are for another server than this one (`host` or `host:port`).
    #[must_use]
    pub fn auth_for(&self, server: &str) -> Option<Auth> {
        let named = server_name(&self.auth_server);
        self.auth.clone().filter(|_| named.is_empty() || named == server_name(server))
    }
}

/// A server as pull secrets name it, in one form: without scheme, path and the port that is meant anyway. Docker's hub
/// has three names.
fn server_name(text: &str) -> String {
    let text = text.trim().to_ascii_lowercase();
    let rest = text.split_once("://").map_or(text.as_str(), |(_, rest)| rest);
    let host = rest.split('/').next().unwrap_or_default();
    let host = host.strip_suffix(":443").unwrap_or(host);
    match host {
        "index.docker.io" | "registry-1.docker.io" => "docker.io".to_owned(),
        host => host.to_owned(),
    }
}
