//! Keystone's tokens: what is sent to get one, and what comes back (Identity API v3, `POST /v3/auth/tokens`).

use serde::Deserialize;
use serde_json::{Value, json};
use url::Url;

use super::super::timestamp;
use crate::error::printable;

/// Why there is no token, or none that leads to images.
#[derive(Debug, thiserror::Error)]
pub enum KeystoneError {
    /// No JSON, or not of this shape.
    #[error("no valid JSON of a token")]
    Json(#[from] serde_json::Error),
    #[error("answer without `X-Subject-Token`")]
    NoToken,
    /// No Glance.
    #[error("catalog has no `image` endpoint for interface `{interface}`{}; it has {}", in_region(region.as_deref()), listed(offered))]
    NoEndpoint {
        interface: String,
        region: Option<String>,
        /// What there is.
        offered: Vec<String>,
    },
    /// An endpoint that cannot be spoken to.
    #[error("image endpoint `{url}` of the catalog is no http or https URL")]
    Endpoint {
        /// The endpoint.
        url: String,
    },
    /// A token is not sent in the clear if it came encrypted.
    #[error(
        "image endpoint `{url}` of the catalog is plain http, though Keystone is https; name it as `endpoint` to allow that"
    )]
    Downgrade {
        /// The endpoint.
        url: String,
    },
    /// A secret that is none.
    #[error("credential file is no JSON with just `id` and `secret`")]
    Credential,
}

fn in_region(region: Option<&str>) -> String {
    region.map(|region| format!(" in region `{region}`")).unwrap_or_default()
}

fn listed(offered: &[String]) -> String {
    if offered.is_empty() { "none".to_owned() } else { offered.join(", ") }
}

/// Who asks, without the secret.
#[derive(Debug, Clone)]
pub(crate) enum Who {
    /// A user in a project.
    User { name: String, domain: Domain, project: String, project_domain: Domain },
    /// An application credential, which has its project in it.
    Application,
}

/// A domain by its id or its name.
#[derive(Debug, Clone)]
pub(crate) enum Domain {
    Id(String),
    Name(String),
}

impl Domain {
    fn json(&self) -> Value {
        match self {
            Self::Id(id) => json!({ "id": id }),
            Self::Name(name) => json!({ "name": name }),
        }
    }
}

/// The secret of an application credential, as its file has it.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Credential {
    id: String,
    secret: String,
}

/// What to send. `secret` is what the secret's file holds.
pub(crate) fn ask(who: &Who, secret: &str) -> Result<Vec<u8>, KeystoneError> {
    let body = match who {
        Who::User { name, domain, project, project_domain } => json!({ "auth": {
            "identity": {
                "methods": ["password"],
                "password": { "user": { "name": name, "domain": domain.json(), "password": secret } },
            },
            "scope": { "project": { "name": project, "domain": project_domain.json() } },
        } }),
        Who::Application => {
            // The cause may quote the secret.
            let Credential { id, secret } = serde_json::from_str(secret).map_err(|_| KeystoneError::Credential)?;
            json!({ "auth": { "identity": {
                "methods": ["application_credential"],
                "application_credential": { "id": id, "secret": secret },
            } } })
        }
    };
    Ok(body.to_string().into_bytes())
}

/// The URL that tokens come from; the configured one may or may not end in the version.
pub(crate) fn tokens(auth_url: &Url) -> Url {
    let mut url = auth_url.clone();
    let bare = auth_url.path().trim_end_matches('/');
    let root = bare.strip_suffix("/v3").unwrap_or(bare);
    url.set_path(&format!("{root}/v3/auth/tokens"));
    url.set_query(None);
    url
}

/// What comes with a token.
#[derive(Debug)]
pub(crate) struct Grant {
    /// Seconds since 1970.
    pub(crate) expires: Option<u64>,
    catalog: Vec<Service>,
}

#[derive(Debug, Deserialize)]
struct Service {
    #[serde(rename = "type", default)]
    kind: String,
    #[serde(default)]
    endpoints: Vec<Endpoint>,
}

#[derive(Debug, Deserialize)]
struct Endpoint {
    #[serde(default)]
    interface: String,
    /// Old name of the next.
    region: Option<String>,
    region_id: Option<String>,
    #[serde(default)]
    url: String,
}

impl Grant {
    pub(crate) fn parse(bytes: &[u8]) -> Result<Self, KeystoneError> {
        #[derive(Deserialize)]
        struct Raw {
            token: Token,
        }
        #[derive(Deserialize)]
        struct Token {
            expires_at: Option<String>,
            #[serde(default)]
            catalog: Vec<Service>,
        }
        let Raw { token } = serde_json::from_slice(bytes)?;
        let expires = token.expires_at.as_deref().and_then(timestamp::of_internet);
        Ok(Self { expires, catalog: token.catalog })
    }

    /// Where Glance is: the first endpoint of that interface in that region, or in any.
    pub(crate) fn images(&self, interface: &str, region: Option<&str>, auth: &Url) -> Result<Url, KeystoneError> {
        let all =
            || self.catalog.iter().filter(|service| service.kind == "image").flat_map(|service| &service.endpoints);
        let fits = |endpoint: &&Endpoint| {
            endpoint.interface == interface && region.is_none_or(|region| endpoint.region() == Some(region))
        };
        let Some(endpoint) = all().find(fits) else {
            let shown =
                |endpoint: &Endpoint| printable(&format!("`{}`{}", endpoint.interface, in_region(endpoint.region())));
            return Err(KeystoneError::NoEndpoint {
                interface: interface.to_owned(),
                region: region.map(str::to_owned),
                offered: all().map(shown).collect(),
            });
        };
        let shown = || printable(&endpoint.url);
        let url = Url::parse(&endpoint.url).map_err(|_| KeystoneError::Endpoint { url: shown() })?;
        match (url.scheme(), auth.scheme()) {
            ("http", "https") => Err(KeystoneError::Downgrade { url: shown() }),
            ("http" | "https", _) => Ok(url),
            _ => Err(KeystoneError::Endpoint { url: shown() }),
        }
    }
}

impl Endpoint {
    fn region(&self) -> Option<&str> {
        self.region_id.as_deref().or(self.region.as_deref())
    }
}
