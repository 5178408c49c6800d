//! A session with one repository of a registry on behalf of one caller: URLs, logins, tokens.
//!
//! The first request carries no login. When the registry challenges it, the challenge is answered once, and the token
//! is kept for later requests to the same repository by the same caller. A login goes to the registry itself, or to
//! where [`login::realm`] allows.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use common::Reason;
use hyper::StatusCode;
use hyper::header::WWW_AUTHENTICATE;
use serde::Deserialize;
use sha2::{Digest as _, Sha256};
use url::Url;
use url::form_urlencoded::Serializer;
use vmimage::digest::hex;

use super::challenge::{self, Challenge};
use super::login;
use super::reference::Reference;
use crate::sources::net::{Ask, Auth, Client, FetchError, Opened, Request, Small, Transport};
use crate::sources::provider::ProviderError;

/// Largest answer of a token service.
const TOKEN_ANSWER: usize = 256 * 1024;
/// How long a token lives if nobody says (the token protocol of registries).
const TOKEN_LIFE: Duration = Duration::from_secs(60);
/// So long before its end, a token is not used any more.
const TOKEN_MARGIN: Duration = Duration::from_secs(10);
/// Tokens that are kept.
const MAX_TOKENS: usize = 1024;

/// What registries wanted from callers.
#[derive(Default)]
pub(super) struct Tokens {
    held: Mutex<BTreeMap<String, Held>>,
}

/// What to send along, as long as it lives.
#[derive(Clone)]
struct Held {
    auth: Auth,
    until: Option<Instant>,
}

/// One repository, asked by one caller.
pub(super) struct Session {
    provider: String,
    client: Arc<Client>,
    transport: Arc<Transport>,
    tokens: Arc<Tokens>,
    base: Url,
    repository: String,
    login: Option<Auth>,
    token_hosts: Vec<String>,
    /// Key of its token.
    key: String,
}

/// Who speaks, and how.
pub(super) struct Caller<'a> {
    pub(super) provider: &'a str,
    pub(super) client: &'a Arc<Client>,
    pub(super) transport: &'a Arc<Transport>,
    pub(super) tokens: &'a Arc<Tokens>,
    pub(super) login: Option<Auth>,
    pub(super) token_hosts: &'a [String],
}

#[derive(Deserialize)]
struct TokenAnswer {
    #[serde(default)]
    token: Option<String>,
    #[serde(default)]
    access_token: Option<String>,
    #[serde(default)]
    expires_in: Option<u64>,
}

impl Tokens {
    fn get(&self, key: &str) -> Option<Auth> {
        let held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        let held = held.get(key)?;
        held.until.is_none_or(|until| until > Instant::now()).then(|| held.auth.clone())
    }

    fn put(&self, key: &str, new: Held) {
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        if held.len() >= MAX_TOKENS {
            let now = Instant::now();
            held.retain(|_, held| held.until.is_some_and(|until| until > now));
        }
        if held.len() < MAX_TOKENS {
            held.insert(key.to_owned(), new);
        }
    }

    pub(super) fn clear(&self) {
        self.held.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }
}

impl Session {
    /// A session of the repository that `reference` is in, whose registry is spoken to at `base`.
    pub(super) fn new(caller: Caller<'_>, reference: &Reference, base: Url) -> Self {
        let Caller { provider, client, transport, tokens, login, token_hosts } = caller;
        let who = match &login {
            None => String::new(),
            Some(Auth::Basic { user, password }) => format!("basic {}:{user}{password}", user.len()),
            Some(Auth::Bearer(token)) => format!("bearer {token}"),
        };
        let who = hex(&Sha256::digest(who));
        Self {
            provider: provider.to_owned(),
            client: client.clone(),
            transport: transport.clone(),
            tokens: tokens.clone(),
            repository: reference.repository.clone(),
            login,
            token_hosts: token_hosts.to_vec(),
            // Of a transport's name there may be another one, once a table of rules has changed.
            key: format!("{base} {} `{}` {who}", reference.repository, transport.digest()),
            base,
        }
    }

    /// Tells sessions apart. Shows nothing.
    pub(super) fn key(&self) -> &str {
        &self.key
    }

    pub(super) fn url(&self, kind: &str, name: &dyn fmt::Display) -> Url {
        let mut url = self.base.clone();
        url.set_path(&format!("/v2/{}/{kind}/{name}", self.repository));
        url
    }

    pub(super) fn get(&self, url: Url) -> Request {
        Request::get(url).with_transport(self.transport.clone())
    }

    pub(super) fn head(&self, url: Url) -> Request {
        Request::head(url).with_transport(self.transport.clone())
    }

    /// Asks for a small answer, logging in if that is wanted. Any other status is the caller's to judge.
    pub(super) async fn small(&self, request: &Request, limit: usize) -> Result<Small, ProviderError> {
        let first = self.client.small(&self.with_token(request), limit, None).await?;
        if first.status != StatusCode::UNAUTHORIZED {
            return Ok(first);
        }
        self.log_in(&first).await?;
        Ok(self.client.small(&self.with_token(request), limit, None).await?)
    }

    /// Asks for a blob, logging in again if what was good is not any more.
    pub(super) async fn open(&self, request: &Request, ask: &Ask) -> Result<Opened, ProviderError> {
        match self.client.open(&self.with_token(request), ask).await {
            Err(FetchError::Status { status: 401, .. }) => {}
            other => return Ok(other?),
        }
        // The answer that was refused says no more than its status; one to the repository's front door does.
        let door = self.client.small(&self.head(request.url().clone()), 0, None).await?;
        if door.status == StatusCode::UNAUTHORIZED {
            self.log_in(&door).await?;
        }
        Ok(self.client.open(&self.with_token(request), ask).await?)
    }

    fn with_token(&self, request: &Request) -> Request {
        let request = request.clone();
        match (self.tokens.get(&self.key), &self.login) {
            (Some(auth), _) => request.with_auth(auth),
            // A token for the registry needs no challenge.
            (None, Some(auth @ Auth::Bearer(_))) => request.with_auth(auth.clone()),
            (None, _) => request,
        }
    }

    /// Does what the registry wants to see, if it can be done.
    async fn log_in(&self, refused: &Small) -> Result<(), ProviderError> {
        let headers = refused.headers.get_all(WWW_AUTHENTICATE).iter().filter_map(|value| value.to_str().ok());
        let challenges: Vec<_> = headers.flat_map(challenge::parse).collect();
        let denied = || refused.refusal();
        // A token of the caller's that was refused is not made better by another.
        let fixed = matches!(self.login, Some(Auth::Bearer(_)));
        // Where a redirect led is none of the registry, and nothing is sent there.
        if fixed || refused.url.origin() != self.base.origin() {
            return Err(denied().into());
        }
        if let Some(challenge) = challenges.iter().find(|challenge| challenge.scheme == "bearer") {
            let held = self.token(challenge).await?;
            self.tokens.put(&self.key, held);
            return Ok(());
        }
        let asks_for_password = challenges.iter().any(|challenge| challenge.scheme == "basic");
        match &self.login {
            Some(auth @ Auth::Basic { .. }) if asks_for_password && login::identity_token(auth).is_none() => {
                self.tokens.put(&self.key, Held { auth: auth.clone(), until: None });
                Ok(())
            }
            _ => Err(denied().into()),
        }
    }

    /// A token of the service that the registry names.
    async fn token(&self, challenge: &Challenge) -> Result<Held, ProviderError> {
        let get = |name: &str| challenge.parameters.get(name).map(String::as_str);
        let realm = login::realm(get("realm").unwrap_or_default(), &self.base, self.login.is_some(), &self.token_hosts)
            .map_err(|cause| self.unusable(cause))?;
        let own = format!("repository:{}:pull", self.repository);
        let scope = get("scope").filter(|scope| !scope.is_empty()).unwrap_or(&own);
        let refresh = self.login.as_ref().and_then(login::identity_token);
        let request = if let Some(refresh) = refresh {
            let mut form = Serializer::new(String::new());
            form.append_pair("grant_type", "refresh_token").append_pair("client_id", "virtlet-rs");
            form.append_pair("refresh_token", refresh).append_pair("scope", scope);
            form.append_pair("service", get("service").unwrap_or_default());
            Request::post(realm, "application/x-www-form-urlencoded", form.finish())
        } else {
            let mut url = realm;
            if let Some(service) = get("service") {
                url.query_pairs_mut().append_pair("service", service);
            }
            url.query_pairs_mut().append_pair("scope", scope);
            let request = Request::get(url);
            match &self.login {
                Some(auth) => request.with_auth(auth.clone()),
                None => request,
            }
        };
        // As for logins: another port is mostly the registry's own service, as GitLab has it.
        let is_here = request.url().host() == self.base.host();
        let request = request.with_transport(self.transport.clone()).without_redirects();
        let request = if is_here { request } else { request.abroad() };
        let answer: TokenAnswer = match self.client.json(&request, TOKEN_ANSWER).await {
            // Says nothing of the image.
            Err(FetchError::Status { url, status: 404 | 410 }) => {
                return Err(self
                    .unusable(Reason::new(format!("the registry wants a token from `{url}`, and nothing is there"))));
            }
            answer => answer?,
        };
        let given = |token: Option<String>| token.filter(|token| !token.is_empty());
        let token = given(answer.token).or(given(answer.access_token));
        let token = token.ok_or_else(|| self.unusable(Reason::new("the token service answered without a token")))?;
        let life = answer.expires_in.map_or(TOKEN_LIFE, Duration::from_secs);
        // One that lives for less is good for the request that follows.
        let until = Instant::now().checked_add(life.saturating_sub(TOKEN_MARGIN).max(Duration::from_secs(1)));
        Ok(Held { auth: Auth::Bearer(token), until })
    }

    fn unusable(&self, cause: Reason) -> ProviderError {
        ProviderError::Metadata { provider: self.provider.clone(), what: "the login".into(), cause: Box::new(cause) }
    }
}

impl fmt::Debug for Session {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{} at {} by {:?}", self.repository, self.base, self.login)
    }
}

impl fmt::Debug for Tokens {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("Tokens")
    }
}
