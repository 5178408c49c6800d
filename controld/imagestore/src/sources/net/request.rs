//! What to ask a server for: a URL, how to speak to it, who asks, and on which conditions.

use std::fmt;
use std::sync::Arc;

use base64::Engine as _;
use bytes::Bytes;
use hyper::Method;
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use url::Url;

use super::percent::decoded;
use super::transport::short_digest;
use super::{FetchError, Transport};

/// A login. Never shown.
#[derive(Clone, PartialEq, Eq)]
pub enum Auth {
    /// HTTP's basic scheme.
    Basic { user: String, password: String },
    /// A token.
    Bearer(String),
}

impl Auth {
    fn header(&self) -> String {
        match self {
            Self::Basic { user, password } => {
                let pair = base64::engine::general_purpose::STANDARD.encode(format!("{user}:{password}"));
                format!("Basic {pair}")
            }
            Self::Bearer(token) => format!("Bearer {token}"),
        }
    }
}

impl fmt::Debug for Auth {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::Basic { .. } => "Basic(...)",
            Self::Bearer(_) => "Bearer(...)",
        })
    }
}

/// A header that the caller gave.
#[derive(Clone)]
struct Extra {
    name: String,
    value: String,
    secret: bool,
}

/// Which redirects of a request are followed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Redirects {
    /// As many as the profile allows.
    Follow,
    /// None: the redirect is the answer.
    Show,
    /// Those that stay below a directory.
    Below(Url),
    /// As many as the profile allows, but none out of TLS, whatever it says.
    Encrypted,
}

/// A request. Everything in it but the URL and the headers of the client itself is for the URL's origin alone.
#[derive(Clone)]
pub struct Request {
    method: Method,
    /// Without user, password and fragment.
    url: Url,
    auth: Option<Auth>,
    extra: Vec<Extra>,
    body: Bytes,
    transport: Arc<Transport>,
    redirects: Redirects,
    abroad: bool,
}

impl Request {
    /// Asks for what is there. User and password in the URL become its login.
    #[must_use]
    pub fn get(url: Url) -> Self {
        Self::new(Method::GET, url)
    }

    /// Asks for the headers of what is there.
    #[must_use]
    pub fn head(url: Url) -> Self {
        Self::new(Method::HEAD, url)
    }

    /// Sends something. Is never sent twice, and follows no redirect.
    #[must_use]
    pub fn post(url: Url, content_type: &str, body: impl Into<Bytes>) -> Self {
        let mut request = Self::new(Method::POST, url).with_header(CONTENT_TYPE.as_str(), content_type);
        request.body = body.into();
        request.redirects = Redirects::Show;
        request
    }

    fn new(method: Method, mut url: Url) -> Self {
        let auth = login_of(&url);
        // These fail only for URLs that cannot have a user part, such as have no host.
        let _ = url.set_username("");
        let _ = url.set_password(None);
        url.set_fragment(None);
        let transport = Transport::plain();
        Self {
            method,
            url,
            auth,
            extra: Vec::new(),
            body: Bytes::new(),
            transport,
            redirects: Redirects::Follow,
            abroad: false,
        }
    }

    /// Speaks that way.
    #[must_use]
    pub fn with_transport(mut self, transport: Arc<Transport>) -> Self {
        self.transport = transport;
        self
    }

    /// With that login in place of any other.
    #[must_use]
    pub fn with_auth(mut self, auth: Auth) -> Self {
        self.auth = Some(auth);
        self
    }

    /// With another header.
    #[must_use]
    pub fn with_header(mut self, name: &str, value: &str) -> Self {
        self.extra.push(Extra { name: name.to_owned(), value: value.to_owned(), secret: false });
        self
    }

    /// With another header, whose value is never shown.
    #[must_use]
    pub fn with_secret_header(mut self, name: &str, value: &str) -> Self {
        self.extra.push(Extra { name: name.to_owned(), value: value.to_owned(), secret: true });
        self
    }

    /// Follows no redirect: it is the answer.
    #[must_use]
    pub fn without_redirects(mut self) -> Self {
        self.redirects = Redirects::Show;
        self
    }

    /// Follows no redirect out of TLS, whatever the transport allows: by what is answered something else is verified.
    #[must_use]
    pub(crate) fn within_tls(mut self) -> Self {
        self.redirects = Redirects::Encrypted;
        self
    }

    /// To another server than the transport was made for: its certificates, its name of the server and its leniency are not for
    /// this one.
    #[must_use]
    pub(crate) fn abroad(mut self) -> Self {
        self.abroad = true;
        self
    }

    pub(super) fn is_abroad(&self) -> bool {
        self.abroad
    }

    /// Follows redirects only to what is on the same server and in or below the directory of `base`.
    #[must_use]
    pub fn below(mut self, base: Url) -> Self {
        self.redirects = Redirects::Below(base);
        self
    }

    /// Whether it has a login.
    #[must_use]
    pub fn has_auth(&self) -> bool {
        self.auth.is_some()
    }

    /// Where it goes, without user and password.
    #[must_use]
    pub fn url(&self) -> &Url {
        &self.url
    }

    /// How it is spoken.
    #[must_use]
    pub fn transport(&self) -> &Arc<Transport> {
        &self.transport
    }

    /// Tells requests apart that may be answered in different ways: by place, and by a digest of the profile
    /// and of what is secret.
    #[must_use]
    pub fn identity(&self) -> String {
        let auth = self.auth.as_ref().map(Auth::header);
        let extra: Vec<_> = self.extra.iter().map(|extra| (&extra.name, &extra.value)).collect();
        let secret = short_digest(format!("{:?}", (auth, extra, self.transport.digest())).as_bytes());
        format!("{} {secret}", self.url)
    }

    pub(super) fn method(&self) -> &Method {
        &self.method
    }

    /// Whether it may be sent twice (RFC 9110, 9.2.1).
    pub(super) fn is_safe(&self) -> bool {
        self.method.is_safe()
    }

    pub(super) fn redirects(&self) -> &Redirects {
        &self.redirects
    }

    pub(super) fn body(&self) -> &Bytes {
        &self.body
    }

    /// The headers that are for the URL's origin alone.
    pub(super) fn private_headers(&self) -> Result<HeaderMap, FetchError> {
        let mut headers = HeaderMap::new();
        for Extra { name, value, secret } in &self.extra {
            let name = HeaderName::try_from(name.as_str()).map_err(|_| FetchError::Header { name: name.clone() })?;
            let value = header_value(&name, value, *secret)?;
            headers.append(name, value);
        }
        if let Some(auth) = &self.auth {
            headers.insert(AUTHORIZATION, header_value(&AUTHORIZATION, &auth.header(), true)?);
        }
        Ok(headers)
    }
}

fn header_value(name: &HeaderName, value: &str, secret: bool) -> Result<HeaderValue, FetchError> {
    let mut value = HeaderValue::try_from(value).map_err(|_| FetchError::Header { name: name.to_string() })?;
    value.set_sensitive(secret);
    Ok(value)
}

impl fmt::Debug for Request {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{} {} by `{}`", self.method, redacted(&self.url), self.transport.name())?;
        if let Some(auth) = &self.auth {
            write!(out, ", {auth:?}")?;
        }
        for Extra { name, value, secret } in &self.extra {
            write!(out, ", {name}: {}", if *secret { "..." } else { value })?;
        }
        Ok(())
    }
}

/// What the user part of a URL gives.
pub(crate) fn login_of(url: &Url) -> Option<Auth> {
    if url.username().is_empty() && url.password().is_none() {
        return None;
    }
    Some(Auth::Basic { user: decoded(url.username()), password: decoded(url.password().unwrap_or_default()) })
}

/// What a server gave to recognise a version of what it has.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Validators {
    pub etag: Option<String>,
    pub last_modified: Option<String>,
}

impl Validators {
    /// Whether there is one.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.etag.is_none() && self.last_modified.is_none()
    }
}

/// Where to go on from.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Resume {
    /// The first byte that is wanted.
    pub at: u64,
    /// The `ETag` of what is here already. Without one, the caller has a strong hash of the whole; a weak one cannot
    /// be resumed by, so the body comes from its beginning.
    pub etag: Option<String>,
    /// The length of the whole, if it is known; another one is an error.
    pub total: Option<u64>,
}

/// What is asked of the bytes behind a request.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Ask {
    /// What is here already, not to be sent again.
    pub known: Option<Validators>,
    /// Where to go on from.
    pub from: Option<Resume>,
    /// The first byte that is not wanted any more, for ranges side by side.
    pub until: Option<u64>,
}

/// A URL without user, password, query and fragment.
#[must_use]
pub fn redacted(url: &Url) -> String {
    let origin = &url[url::Position::BeforeHost..url::Position::AfterPath];
    let query = if url.query().is_some() { "?..." } else { "" };
    format!("{}://{origin}{query}", url.scheme())
}
