//! Settings of a Glance, and the login that they hold.

use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use url::Url;

use super::super::{ProviderError, SourceUrl};
use super::keystone::{Domain, Who};

/// Largest file with a secret.
const SECRET: u64 = 64 << 10;

/// Settings.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GlanceConfig {
    /// Glance itself; default is what Keystone's catalog says.
    #[serde(default)]
    pub endpoint: Option<SourceUrl>,
    /// Keystone.
    #[serde(default)]
    pub auth_url: Option<SourceUrl>,
    /// File with JSON `{"id": .., "secret": ..}` of an application credential.
    #[serde(default)]
    pub application_credential_file: Option<PathBuf>,
    /// User, if there is no application credential.
    #[serde(default)]
    pub username: Option<String>,
    /// Id of the user's domain; default is `default`.
    #[serde(default)]
    pub user_domain_id: Option<String>,
    #[serde(default)]
    pub user_domain_name: Option<String>,
    /// File with the user's password.
    #[serde(default)]
    pub password_file: Option<PathBuf>,
    /// Project of the user.
    #[serde(default)]
    pub project: Option<String>,
    /// Id of the project's domain; default is `default`.
    #[serde(default)]
    pub project_domain_id: Option<String>,
    #[serde(default)]
    pub project_domain_name: Option<String>,
    /// File with a token, if there is no Keystone to ask.
    #[serde(default)]
    pub token_file: Option<PathBuf>,
    /// Region in the catalog; default is the first one.
    #[serde(default)]
    pub region: Option<String>,
    /// Interface in the catalog: `public`, `internal` or `admin`.
    #[serde(default = "public")]
    pub interface: String,
    /// Takes images that have no hash but MD5.
    #[serde(default)]
    pub allow_weak_hashes: bool,
    /// Keeps its images out of searches.
    #[serde(default)]
    pub hide_from_search: bool,
}

fn public() -> String {
    "public".into()
}

/// Where tokens come from.
#[derive(Debug)]
pub(super) enum Login {
    Open,
    Token { file: PathBuf },
    Keystone { url: Url, who: Who, secret: PathBuf },
}

impl Login {
    /// Where the settings say that tokens come from.
    pub(super) fn of(config: &GlanceConfig) -> Result<Self, &'static str> {
        let login = named(config)?;
        let urls = [&config.endpoint, &config.auth_url];
        if urls.into_iter().flatten().any(|url| !matches!(url.scheme(), "http" | "https")) {
            return Err("`endpoint` and `auth_url` must be http or https URLs");
        }
        if config.endpoint.is_none() && !matches!(login, Self::Keystone { .. }) {
            return Err("name an `endpoint`, or an `auth_url` whose catalog has one");
        }
        Ok(login)
    }
}

fn named(config: &GlanceConfig) -> Result<Login, &'static str> {
    let domain = |id: &Option<String>, name: &Option<String>| match (id, name) {
        (Some(_), Some(_)) => Err("name a domain by its id or by its name, not by both"),
        (None, Some(name)) => Ok(Domain::Name(name.clone())),
        (id, None) => Ok(Domain::Id(id.clone().unwrap_or_else(|| "default".into()))),
    };
    let GlanceConfig { application_credential_file, username, password_file, project, token_file, .. } = config;
    match (config.auth_url.as_deref(), application_credential_file, username, password_file, token_file) {
        (Some(url), Some(secret), None, None, None) => {
            Ok(Login::Keystone { url: url.clone(), who: Who::Application, secret: secret.clone() })
        }
        (Some(url), None, Some(name), Some(secret), None) => {
            let who = Who::User {
                name: name.clone(),
                domain: domain(&config.user_domain_id, &config.user_domain_name)?,
                project: project.clone().ok_or("a user needs a `project`")?,
                project_domain: domain(&config.project_domain_id, &config.project_domain_name)?,
            };
            Ok(Login::Keystone { url: url.clone(), who, secret: secret.clone() })
        }
        (None, None, None, None, Some(file)) => Ok(Login::Token { file: file.clone() }),
        (None, None, None, None, None) => Ok(Login::Open),
        _ => Err("name an `auth_url` with either `application_credential_file` or `username` and `password_file`, \
                  or a `token_file`, or none of them"),
    }
}

/// What a file with a secret holds, but for the end of its line.
pub(super) fn read_secret(file: &Path) -> Result<String, ProviderError> {
    let mut text = String::new();
    let read = File::open(file).and_then(|open| open.take(SECRET).read_to_string(&mut text));
    read.map_err(|cause| ProviderError::File { path: file.to_owned(), cause })?;
    Ok(text.trim_end_matches(['\r', '\n']).to_owned())
}
