//! Keystone's tokens: what is sent to get one, and what comes back (Identity API v3, `POST /v3/auth/tokens`).

use common::Reason;
use serde::Deserialize;
use serde_json::{Value, json};
use url::Url;
use vmimage::error::printable;

use super::super::timestamp;

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
pub(crate) fn ask(who: &Who, secret: &str) -> Result<Vec<u8>, Reason> {
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
            let broken = |_| Reason::new("credential file is no JSON with just `id` and `secret`");
            let Credential { id, secret } = serde_json::from_str(secret).map_err(broken)?;
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
    pub(crate) fn parse(bytes: &[u8]) -> Result<Self, Reason> {
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
        let Raw { token } = serde_json::from_slice(bytes).map_err(Reason::because("no valid JSON of a token"))?;
        let expires = token.expires_at.as_deref().and_then(timestamp::of_internet);
        Ok(Self { expires, catalog: token.catalog })
    }

    /// Where Glance is: the first endpoint of that interface in that region, or in any.
    pub(crate) fn images(&self, interface: &str, region: Option<&str>, auth: &Url) -> Result<Url, Reason> {
        let all =
            || self.catalog.iter().filter(|service| service.kind == "image").flat_map(|service| &service.endpoints);
        let fits = |endpoint: &&Endpoint| {
            endpoint.interface == interface && region.is_none_or(|region| endpoint.region() == Some(region))
        };
        let Some(endpoint) = all().find(fits) else {
            let shown =
                |endpoint: &Endpoint| printable(&format!("`{}`{}", endpoint.interface, in_region(endpoint.region())));
            let (region, offered) = (in_region(region), listed(&all().map(shown).collect::<Vec<_>>()));
            return Err(Reason::new(format!(
                "catalog has no `image` endpoint for interface `{interface}`{region}; it has {offered}"
            )));
        };
        let shown = || printable(&endpoint.url);
        let other = || Reason::new(format!("image endpoint `{}` of the catalog is no http or https URL", shown()));
        let url = Url::parse(&endpoint.url).map_err(|_| other())?;
        match (url.scheme(), auth.scheme()) {
            ("http", "https") => Err(Reason::new(format!(
                "image endpoint `{}` of the catalog is plain http, though Keystone is https; name it as `endpoint` to \
                 allow that",
                shown()
            ))),
            ("http" | "https", _) => Ok(url),
            _ => Err(other()),
        }
    }
}

impl Endpoint {
    fn region(&self) -> Option<&str> {
        self.region_id.as_deref().or(self.region.as_deref())
    }
}
