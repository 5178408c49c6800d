//! URLs as an operator configures them: of a provider's source, and of the proxy in front of it.
//!
//! Invariants: they hold no login, as configurations are logged and shown; secrets are in files of their own. Errors
//! and [`fmt::Debug`] show no more than where a URL leads to, as the rest may be secret, too.

use std::fmt;
use std::ops::Deref;

use common::Reason;
use serde::de::{Error as _, Visitor};
use serde::{Deserialize, Deserializer};
use url::Url;

use crate::sources::net::{login_of, redacted};

/// Where a provider's source is.
#[derive(Clone, PartialEq, Eq)]
pub struct SourceUrl(Url);

/// The proxy to a source: its URL, or `off`.
#[derive(Clone, PartialEq, Eq)]
pub struct ProxyUrl(String);

/// A proxy's URL has a login in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("`proxy` has a login in it; put the URL into a file, and name that by `proxy_file`")]
pub struct ProxyLogin;

impl SourceUrl {
    /// The address that a text is.
    ///
    /// # Errors
    /// When it is none, or there is a login in it.
    pub fn parse(text: &str) -> Result<Self, Reason> {
        Self::try_from(Url::parse(text).map_err(|cause| Reason::new(format!("is no URL: {cause}")))?)
    }

    /// The same with a login, which was read from a file. Still nobody sees it.
    pub(super) fn with_login(mut self, user: &str, password: &str) -> Result<Self, Reason> {
        let no_server = |()| Reason::new("`login_file` is for sources on a server, and `uri` is none");
        self.0.set_username(user).and_then(|()| self.0.set_password(Some(password))).map_err(no_server)?;
        Ok(self)
    }

    /// An address that the source gave, with the login of this one if it is on the same server.
    pub(super) fn lend_login(&self, mut url: Url) -> Url {
        if url.origin() == self.0.origin() && login_of(&url).is_none() {
            // It has a server, as this one has.
            let _ = url.set_username(self.0.username()).and_then(|()| url.set_password(self.0.password()));
        }
        url
    }
}

impl TryFrom<Url> for SourceUrl {
    type Error = Reason;

    fn try_from(url: Url) -> Result<Self, Reason> {
        // What stands behind such a scheme may be a login without its scheme: `user:password@host`.
        if url.cannot_be_a_base() {
            return Err(Reason::new("does not say where it leads to; begin it with `https://`"));
        }
        if login_of(&url).is_none() {
            return Ok(Self(url));
        }
        Err(Reason::new(
            "has a login in it; take it out: secrets are read from the files that `login_file`, `password_file` and \
             their like name",
        ))
    }
}

impl Deref for SourceUrl {
    type Target = Url;

    fn deref(&self) -> &Url {
        &self.0
    }
}

impl fmt::Debug for SourceUrl {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "`{}`", redacted(&self.0))
    }
}

impl ProxyUrl {
    /// The proxy of that URL, or `off`.
    ///
    /// # Errors
    /// When there is a login in it.
    pub fn new(text: impl Into<String>) -> Result<Self, ProxyLogin> {
        let text = text.into();
        // Also where it is not a URL yet: the scheme may be left out.
        if text.contains('@') { Err(ProxyLogin) } else { Ok(Self(text)) }
    }

    /// As it was written.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for ProxyUrl {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        // A proxy has no path.
        write!(out, "`{}`", self.0.split(['?', '#']).next().unwrap_or_default())
    }
}

impl<'de> Deserialize<'de> for SourceUrl {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = deserializer.deserialize_str(Text("a URL"))?;
        Self::parse(&text).map_err(|cause| D::Error::custom(format!("a URL {cause}")))
    }
}

impl<'de> Deserialize<'de> for ProxyUrl {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::new(deserializer.deserialize_str(Text("the URL of a proxy, or `off`"))?).map_err(D::Error::custom)
    }
}

/// A text that is to be such a thing.
struct Text(&'static str);

impl Visitor<'_> for Text {
    type Value = String;

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.0)
    }

    fn visit_str<E>(self, text: &str) -> Result<String, E> {
        Ok(text.to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_a_login_is_refused_and_not_shown() {
        for text in [
            "http://user:PW@host/a",
            "https://PW@host",
            "http://:PW@host/",
            "http:user:PW@host",
            "file://user:PW@host/a",
            "ftp://user:PW@host/",
            "user:PW@host/a",
            "http://user:PW@host:port/",
            "http://user:PW@",
        ] {
            let error = SourceUrl::parse(text).expect_err(text).to_string();
            assert!(!error.contains("PW"), "{error}");
            let json = serde_json::to_string(text).expect("JSON");
            let error = serde_json::from_str::<SourceUrl>(&json).expect_err(text).to_string();
            assert!(!error.contains("PW"), "{error}");
        }
        for text in ["http://user:PW@proxy:3128", "user:PW@proxy", "PW@proxy"] {
            assert_eq!(ProxyUrl::new(text), Err(ProxyLogin), "{text}");
        }
    }

    #[test]
    fn an_address_shows_where_it_leads_to_and_no_more() {
        let url = SourceUrl::parse("https://host:8443/a/b?token=PW#PW").expect("an address");
        assert_eq!(format!("{url:?}"), "`https://host:8443/a/b?...`");
        assert_eq!(url.as_str(), "https://host:8443/a/b?token=PW#PW");
        let proxy = ProxyUrl::new("http://proxy:3128/?token=PW").expect("a proxy");
        assert_eq!(format!("{proxy:?}"), "`http://proxy:3128/`");
        assert_eq!(ProxyUrl::new("off").expect("none").as_str(), "off");
    }
}
