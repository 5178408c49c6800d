//! Which proxy a request goes through: the one that a profile names, or the one in the environment.
//!
//! `HTTP_PROXY`, `HTTPS_PROXY` and `NO_PROXY`, in upper or lower case, mean what they mean to most programs. Requests
//! to this machine itself never go through a proxy of the environment.

use std::fmt;
use std::net::IpAddr;

use base64::Engine as _;
use hyper::header::HeaderValue;
use ipnetwork::IpNetwork;
use url::{Host, Url};

use super::percent::decoded;

/// Why a proxy cannot be used. Shows no credentials.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ProxyError {
    /// No URL.
    #[error("URL of the proxy from {origin} is none")]
    Syntax {
        /// Who named it.
        origin: String,
        #[source]
        cause: url::ParseError,
    },
    /// Some other scheme.
    #[error("proxy from {origin} has scheme `{scheme}`; use `http` or `https`")]
    Scheme {
        /// Who named it.
        origin: String,
        scheme: String,
    },
}

#[derive(Clone, PartialEq, Eq)]
pub(super) struct Proxy {
    /// Scheme, host and port alone.
    url: Url,
    authorization: Option<HeaderValue>,
}

impl Proxy {
    /// The proxy of that URL; `http` if it has no scheme.
    pub(super) fn parse(text: &str, origin: &str) -> Result<Self, ProxyError> {
        let text = if text.contains("://") { text.to_owned() } else { format!("http://{text}") };
        let mut url = Url::parse(&text).map_err(|cause| ProxyError::Syntax { origin: origin.to_owned(), cause })?;
        if !matches!(url.scheme(), "http" | "https") {
            return Err(ProxyError::Scheme { origin: origin.to_owned(), scheme: url.scheme().to_owned() });
        }
        let authorization = (!url.username().is_empty() || url.password().is_some()).then(|| {
            let pair = format!("{}:{}", decoded(url.username()), decoded(url.password().unwrap_or_default()));
            let text = format!("Basic {}", base64::engine::general_purpose::STANDARD.encode(pair));
            let mut value = HeaderValue::try_from(text).ok()?;
            value.set_sensitive(true);
            Some(value)
        });
        // These fail only for URLs without a host, which `http` and `https` always have.
        let _ = url.set_username("");
        let _ = url.set_password(None);
        url.set_path("");
        url.set_query(None);
        url.set_fragment(None);
        Ok(Self { url, authorization: authorization.flatten() })
    }

    pub(super) fn url(&self) -> &Url {
        &self.url
    }

    /// `Proxy-Authorization`.
    pub(super) fn authorization(&self) -> Option<&HeaderValue> {
        self.authorization.as_ref()
    }
}

impl fmt::Debug for Proxy {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "`{}`", self.url)
    }
}

/// The proxies that an environment names.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct EnvProxies {
    http: Option<Proxy>,
    https: Option<Proxy>,
    not_for: NotFor,
}

impl EnvProxies {
    /// What these variables say; `lookup` gives the value of a variable.
    ///
    /// # Errors
    /// When a proxy is no URL. To go without it would be to talk to whom the operator did not mean.
    pub fn from_vars(lookup: impl Fn(&str) -> Option<String>) -> Result<Self, ProxyError> {
        let value = |name: &str| {
            let set = |name: &str| lookup(name).map(|value| value.trim().to_owned()).filter(|value| !value.is_empty());
            set(name).or_else(|| set(&name.to_ascii_lowercase()))
        };
        let proxy = |name: &str| value(name).map(|text| Proxy::parse(&text, &format!("`{name}`"))).transpose();
        Ok(Self {
            http: proxy("HTTP_PROXY")?,
            https: proxy("HTTPS_PROXY")?,
            not_for: NotFor::parse(&value("NO_PROXY").unwrap_or_default()),
        })
    }

    /// The proxy for a URL, if there is one.
    pub(super) fn for_url(&self, url: &Url) -> Option<&Proxy> {
        let proxy = if url.scheme() == "https" { &self.https } else { &self.http };
        proxy.as_ref().filter(|_| !self.not_for.covers(url))
    }
}

/// What `NO_PROXY` says.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
struct NotFor {
    everything: bool,
    networks: Vec<IpNetwork>,
    hosts: Vec<HostRule>,
}

/// `example.com`, `.example.com` or `192.0.2.1`, with or without a port.
#[derive(Debug, Clone, PartialEq, Eq)]
struct HostRule {
    /// In lower case, without dots around it.
    host: String,
    /// Whether the host itself is meant, beside those below it.
    itself: bool,
    port: Option<u16>,
}

impl NotFor {
    fn parse(text: &str) -> Self {
        let mut rules = Self::default();
        for entry in text.split(',').map(|entry| entry.trim().to_ascii_lowercase()) {
            if entry == "*" {
                rules.everything = true;
            } else if let (true, Ok(network)) = (entry.contains('/'), entry.parse()) {
                rules.networks.push(network);
            } else if let Some(rule) = HostRule::parse(&entry) {
                rules.hosts.push(rule);
            }
        }
        rules
    }

    fn covers(&self, url: &Url) -> bool {
        let port = url.port_or_known_default();
        let (name, address) = match url.host() {
            Some(Host::Domain(name)) => (name.trim_end_matches('.').to_ascii_lowercase(), None),
            Some(Host::Ipv4(v4)) => (v4.to_string(), Some(IpAddr::V4(v4))),
            Some(Host::Ipv6(v6)) => (v6.to_string(), Some(IpAddr::V6(v6))),
            None => return true,
        };
        self.everything
            || name == "localhost"
            || address.is_some_and(|address| address.to_canonical().is_loopback())
            || address.is_some_and(|address| self.networks.iter().any(|network| network.contains(address)))
            || self.hosts.iter().any(|rule| rule.covers(&name, address.is_some(), port))
    }
}

impl HostRule {
    fn parse(entry: &str) -> Option<Self> {
        let (host, port) = match entry.rsplit_once(':') {
            // An IPv6 address has colons of its own, and needs brackets to have a port.
            Some((host, port)) if !host.contains(':') || host.ends_with(']') => (host, Some(port.parse().ok()?)),
            _ => (entry, None),
        };
        let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
        // An address as URLs spell it.
        let host = host.parse().map_or_else(|_| host.to_owned(), |address: IpAddr| address.to_string());
        let below = host.strip_prefix('*').unwrap_or(&host);
        let itself = !below.starts_with('.');
        let host = below.trim_matches('.').to_owned();
        (!host.is_empty()).then_some(Self { host, itself, port })
    }

    fn covers(&self, name: &str, is_address: bool, port: Option<u16>) -> bool {
        let below = || !is_address && name.strip_suffix(&self.host).is_some_and(|rest| rest.ends_with('.'));
        self.port.is_none_or(|wanted| Some(wanted) == port) && (self.itself && name == self.host || below())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn vars<'a>(vars: &'a [(&'a str, &'a str)]) -> impl Fn(&str) -> Option<String> + 'a {
        |name| vars.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned())
    }

    fn used(proxies: &EnvProxies, url: &str) -> Option<String> {
        proxies.for_url(&Url::parse(url).expect("a URL")).map(|proxy| proxy.url().to_string())
    }

    #[test]
    fn each_scheme_has_its_variable_in_either_case() {
        let both = [("HTTP_PROXY", "http://one:8080"), ("https_proxy", "two:3128"), ("http_proxy", "http://three")];
        let proxies = EnvProxies::from_vars(vars(&both)).expect("proxies");
        assert_eq!(used(&proxies, "http://a.example/").as_deref(), Some("http://one:8080/"));
        assert_eq!(used(&proxies, "https://a.example/").as_deref(), Some("http://two:3128/"));
        let none = EnvProxies::from_vars(vars(&[("HTTP_PROXY", " "), ("NO_PROXY", "x")])).expect("proxies");
        assert_eq!(used(&none, "http://a.example/"), None);
        let one = EnvProxies::from_vars(vars(&[("HTTP_PROXY", ""), ("http_proxy", "https://p")])).expect("proxies");
        assert_eq!(used(&one, "http://a.example/").as_deref(), Some("https://p/"));
        assert_eq!(used(&one, "https://a.example/"), None);
    }

    #[test]
    fn some_are_asked_directly() {
        let no_proxy = "One.example, .two.example,*.three.example ,192.0.2.7,10.0.0.0/8, four.example:8080,[2001:DB8::1]:443,2001:db8::2,fd00::/8,,:, bad/entry";
        let set = [("HTTP_PROXY", "http://p"), ("HTTPS_PROXY", "http://p"), ("no_proxy", no_proxy)];
        let proxies = EnvProxies::from_vars(vars(&set)).expect("proxies");
        let direct = [
            "http://one.example/",
            "http://ONE.example./",
            "https://sub.one.example:99/",
            "http://a.b.two.example/",
            "http://a.three.example/",
            "http://192.0.2.7/",
            "http://0xc0000207/",
            "https://10.255.0.1/",
            "http://four.example:8080/",
            "http://x.four.example:8080/",
            "https://[2001:db8::1]/",
            "http://[2001:db8::2]:88/",
            "http://[fd00::1]/",
            "http://localhost:80/",
            "http://127.0.0.1/",
            "http://127.1.2.3:5000/",
            "https://[::1]/",
            "http://[::ffff:127.0.0.1]/",
            "http://2130706433/",
        ];
        for url in direct {
            assert_eq!(used(&proxies, url), None, "{url}");
        }
        let by_proxy = [
            "http://xone.example/",
            "http://example/",
            "http://two.example/",
            "http://three.example/",
            "http://192.0.2.71/",
            "http://1.192.0.2.example/",
            "http://11.0.0.1/",
            "http://four.example/",
            "http://four.example:8081/",
            "http://[2001:db8::1]/",
            "http://[2001:db8::3]/",
            "http://localhost.example/",
        ];
        for url in by_proxy {
            assert_eq!(used(&proxies, url).as_deref(), Some("http://p/"), "{url}");
        }
        let all = EnvProxies::from_vars(vars(&[("HTTP_PROXY", "http://p"), ("NO_PROXY", "a,*")])).expect("proxies");
        assert_eq!(used(&all, "http://a.example/"), None);
    }

    #[test]
    fn a_proxy_shows_nothing_of_its_login() {
        let proxy = Proxy::parse("http://us%65r:p%40ss@proxy.example:3128/path?query#part", "a test").expect("a proxy");
        assert_eq!(format!("{proxy:?}"), "`http://proxy.example:3128/`");
        // base64 of `user:p@ss`
        assert_eq!(proxy.authorization().expect("some"), "Basic dXNlcjpwQHNz");
        assert!(proxy.authorization().expect("some").is_sensitive());
        assert_eq!(Proxy::parse("https://proxy.example", "a test").expect("a proxy").authorization(), None);
        for (text, expected) in [
            ("socks5://u:secret@p", "proxy from a test has scheme `socks5`; use `http` or `https`"),
            ("http://u:secret@", "URL of the proxy from a test is none"),
            ("http://u:secret@p:port", "URL of the proxy from a test is none"),
        ] {
            assert_eq!(Proxy::parse(text, "a test").expect_err("none").to_string(), expected);
        }
    }
}
