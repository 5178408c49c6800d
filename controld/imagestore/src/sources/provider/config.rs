//! Providers as an operator writes them down, and the registry that is made of them.
//!
//! A table of configuration has an `id`, a `type`, at most one table `transport`, and beside them just what its kind
//! knows. Secrets are never in it, but in files that it names: a login in an address is refused, and never shown.

use std::collections::BTreeMap;
use std::fs::{DirBuilder, File};
use std::io::Read as _;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use common::Reason;
use serde::de::{DeserializeOwned, Error as _};
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value};
use vmimage::decode::Decompressor;
use vmimage::error::printable;
use vmimage::name::IMPORT;

use super::{
    AnyRegistry, Glance, GlanceConfig, Http, Lago, LagoConfig, LocalFiles, Oci, OciConfig, Provider, ProviderError,
    ProxyLogin, ProxyUrl, Registry, Simplestreams, SimplestreamsConfig, SourceUrl, VirtBuilder, VirtBuilderConfig,
};
use crate::sources::net::{CertificateSpec, Client, Transport, TransportSpec};

mod repos;

/// Longest id of a provider.
const MAX_ID: usize = 64;
/// Largest file of certificates or keys.
const MAX_PEM: u64 = 1 << 20;
/// Keys of the URLs that a provider of any kind may have.
const URLS: [&str; 3] = ["uri", "endpoint", "auth_url"];
/// Keys of its hosts.
const HOSTS: [&str; 4] = ["registries", "plain_http", "token_hosts", "logins"];
/// Ids of the providers that are always there, and of what a person brings.
const BUILT_IN: [&str; 3] = ["http", "file", IMPORT];
/// Id of the registries that no provider is configured for, unless a configured provider has it.
pub(crate) const REGISTRIES: &str = "registries";

/// A provider as it is written down.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProviderConfig {
    /// Its name.
    pub id: String,
    /// How it is spoken to.
    pub transport: TransportConfig,
    /// What it is.
    pub kind: Kind,
}

/// The kinds of providers, with what each needs to know.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Kind {
    Oci(OciConfig),
    VirtBuilder(VirtBuilderConfig),
    Simplestreams(SimplestreamsConfig),
    Glance(Box<GlanceConfig>),
    Lago(LagoConfig),
}

/// How a provider is spoken to, as it is written down.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TransportConfig {
    /// For a whole request with its body, in seconds; default is no limit.
    pub timeout_s: Option<u64>,
    /// Most redirects that are followed; default is 9.
    pub max_redirects: Option<u32>,
    /// The proxy; default is what the environment says, and `off` is none.
    pub proxy: Option<ProxyUrl>,
    /// File with the proxy's URL, if there is a login in it.
    pub proxy_file: Option<PathBuf>,
    /// File with `USER:PASSWORD` for the source's server. For mirrors: other kinds have settings of their own.
    pub login_file: Option<PathBuf>,
    /// File with authorities to trust beside the system's.
    pub ca_file: Option<PathBuf>,
    /// File with the certificate to show, with its chain.
    pub certificate_file: Option<PathBuf>,
    /// File with its key; default is that it is beside the certificate.
    pub key_file: Option<PathBuf>,
    /// Name to ask for and to find in the server's certificate; default is the host of the URL.
    pub server_name: Option<String>,
    /// Takes any certificate.
    pub insecure: bool,
    /// Follows redirects from https to http.
    pub allow_downgrade: bool,
}

impl<'de> Deserialize<'de> for ProviderConfig {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut table = Map::<String, Value>::deserialize(deserializer)?;
        let text = |value: Option<Value>, key: &'static str| match value {
            Some(Value::String(text)) => Ok(text),
            Some(_) => Err(D::Error::custom(format!("`{key}` of a provider must be a text"))),
            None => Err(D::Error::missing_field(key)),
        };
        let id = text(table.remove("id"), "id")?;
        if !is_id(&id) {
            let id = printable(&id);
            return Err(D::Error::custom(format!(
                "provider id `{id}` must be 1 to {MAX_ID} lower-case letters, digits, `.`, `_` or `-`, beginning with a letter or digit"
            )));
        }
        let kind = text(table.remove("type"), "type")?;
        check_addresses(&table).map_err(|what| D::Error::custom(format!("provider `{id}`: {what}")))?;
        let transport = match table.remove("transport") {
            Some(value) => part(&id, value)?,
            None => TransportConfig::default(),
        };
        let rest = Value::Object(table);
        let kind = match kind.as_str() {
            "oci" => Kind::Oci(part(&id, rest)?),
            "virt-builder" => Kind::VirtBuilder(part(&id, rest)?),
            "simplestreams" => Kind::Simplestreams(part(&id, rest)?),
            "glance" => Kind::Glance(part(&id, rest)?),
            "lago" => Kind::Lago(part(&id, rest)?),
            other => {
                let other = printable(other);
                return Err(D::Error::custom(format!("provider `{id}` has type `{other}`, which is none")));
            }
        };
        Ok(Self { id, transport, kind })
    }
}

/// Refuses addresses with a login in them, by the names of their keys.
fn check_addresses(table: &Map<String, Value>) -> Result<(), String> {
    for key in URLS {
        if let Some(text) = table.get(key).and_then(Value::as_str) {
            SourceUrl::parse(text).map_err(|cause| format!("`{key}` {cause}"))?;
        }
    }
    for key in HOSTS {
        let texts = table.get(key).and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str);
        let logins = table.get(key).and_then(Value::as_object).into_iter().flat_map(Map::keys).map(String::as_str);
        if texts.chain(logins).any(|host| host.contains('@')) {
            return Err(format!(
                "`{key}` has a login in a host; put the password into the `password_file` of `logins`"
            ));
        }
    }
    let proxy = table.get("transport").and_then(|transport| transport.get("proxy")).and_then(Value::as_str);
    match proxy.map(ProxyUrl::new) {
        Some(Err(cause @ ProxyLogin)) => Err(format!("`transport`: {cause}")),
        Some(Ok(_)) | None => Ok(()),
    }
}

fn part<T: DeserializeOwned, E: serde::de::Error>(id: &str, value: Value) -> Result<T, E> {
    serde_json::from_value(value).map_err(|cause| E::custom(format!("provider `{id}`: {cause}")))
}

fn is_id(text: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    text.len() <= MAX_ID
        && text.bytes().next().is_some_and(plain)
        && text.bytes().all(|byte| plain(byte) || b"._-".contains(&byte))
}

/// What providers are made with.
#[derive(Debug, Clone)]
pub struct Means {
    /// What speaks for them.
    pub client: Arc<Client>,
    /// Directories that local files may come from.
    pub local_roots: Vec<PathBuf>,
    /// Directory in which they may remember what they saw, in files of their ids. None for those that last no longer
    /// than a process.
    pub memory: Option<PathBuf>,
    /// What opens small compressed parts of images that are looked through.
    pub(crate) decompressor: Decompressor,
    /// How to speak to registries that nobody configured, for names that look like theirs; not at all if this is not set.
    pub any_registry: Option<AnyRegistry>,
}

impl Registry {
    /// The providers of a configuration, in its order, behind those for plain URLs and local files; and then the sources
    /// that virt-builder finds in the directories `repos`, as far as they can be used. For `fall_through` see
    /// [`Registry::new`]. Reads files and makes the directory of their memories: a matter of start-up.
    ///
    /// # Errors
    /// When one of `configs` cannot be used, or a source of `repos` has the id of another provider.
    pub fn of(
        configs: &[ProviderConfig],
        repos: &[PathBuf],
        fall_through: bool,
        means: &Means,
    ) -> Result<Self, ProviderError> {
        let local = Arc::new(LocalFiles::new(means.local_roots.clone()));
        let mut ids = BTreeMap::from(BUILT_IN.map(|id| (id.to_owned(), None)));
        let mut providers: Vec<Arc<dyn Provider>> = vec![Arc::new(Http::new(means.client.clone())), local.clone()];
        if let (Some(dir), false) = (&means.memory, configs.is_empty() && repos.is_empty()) {
            let made = DirBuilder::new().recursive(true).mode(0o700).create(dir);
            made.map_err(|cause| ProviderError::File { path: dir.clone(), cause })?;
        }
        for config in configs {
            if ids.insert(config.id.clone(), None).is_some() {
                let cause = "another provider has the same id".into();
                return Err(ProviderError::Config { provider: config.id.clone(), cause });
            }
            providers.push(config.provider(means, &local)?);
        }
        let left_out = repos::add(repos, &mut ids, &mut providers, |config| config.provider(means, &local))?;
        // Behind all others, which the operator has named.
        if !ids.contains_key(REGISTRIES) {
            let oci = Oci::new(REGISTRIES, OciConfig::default(), means.client.clone(), Transport::plain());
            let oci = oci.with_decompressor(means.decompressor.clone());
            providers.push(Arc::new(oci.of_any_registry(means.any_registry)));
        }
        Ok(Self::new(providers, fall_through).with_left_out(left_out))
    }
}

impl ProviderConfig {
    fn provider(&self, means: &Means, local: &Arc<LocalFiles>) -> Result<Arc<dyn Provider>, ProviderError> {
        let (id, client) = (self.id.as_str(), means.client.clone());
        let unsound = |cause: Reason| ProviderError::Config { provider: id.to_owned(), cause: cause.into() };
        let transport = self.transport.transport(id).map_err(unsound)?;
        let login = self.transport.login().map_err(unsound)?;
        let let_in = |uri: &SourceUrl| match &login {
            None => Ok(uri.clone()),
            Some((user, password)) => uri.clone().with_login(user, password).map_err(unsound),
        };
        let memory = means.memory.as_ref().map(|dir| dir.join(format!("{id}.json")));
        Ok(match &self.kind {
            Kind::Oci(_) | Kind::Glance(_) if login.is_some() => {
                return Err(unsound(Reason::new(
                    "`login_file` is for mirrors (virt-builder, simplestreams, lago); this kind has settings of its own",
                )));
            }
            Kind::Oci(config) => {
                let oci = Oci::new(id, config.clone(), client, transport);
                Arc::new(oci.with_decompressor(means.decompressor.clone()))
            }
            Kind::VirtBuilder(config) => {
                let config = VirtBuilderConfig { uri: let_in(&config.uri)?, ..config.clone() };
                Arc::new(VirtBuilder::new(id, config, client, transport, memory)?)
            }
            Kind::Simplestreams(config) => {
                let config = SimplestreamsConfig { uri: let_in(&config.uri)?, ..config.clone() };
                Arc::new(Simplestreams::new(id, &config, client, transport, memory)?)
            }
            Kind::Glance(config) => Arc::new(Glance::new(id, config, client, transport)?),
            Kind::Lago(config) => {
                let config = LagoConfig { uri: let_in(&config.uri)?, ..config.clone() };
                Arc::new(Lago::new(id, &config, client, transport, local.clone())?)
            }
        })
    }
}

impl TransportConfig {
    fn login(&self) -> Result<Option<(String, String)>, Reason> {
        let Some(path) = &self.login_file else { return Ok(None) };
        let text = read(path)?;
        let line = text.trim_end_matches(['\r', '\n']);
        let login = line.split_once(':').filter(|(user, _)| !user.is_empty() && !line.contains('\n'));
        let other = || Reason::new(format!("`{}` is not of the form `USER:PASSWORD`", path.display()));
        let (user, password) = login.ok_or_else(other)?;
        Ok(Some((user.to_owned(), password.to_owned())))
    }

    fn transport(&self, id: &str) -> Result<Arc<Transport>, Reason> {
        if *self == Self::default() {
            return Ok(Transport::plain());
        }
        let proxy = match (&self.proxy, &self.proxy_file) {
            (Some(_), Some(_)) => return Err(Reason::new("`proxy` and `proxy_file` name two proxies")),
            (Some(url), None) => Some(url.as_str().to_owned()),
            (None, Some(file)) => Some(read(file)?.trim().to_owned()),
            (None, None) => None,
        };
        let mut certificates = Vec::new();
        if let Some(file) = &self.ca_file {
            certificates.push(CertificateSpec { cert: read(file)?, key: None });
        }
        match (&self.certificate_file, &self.key_file) {
            (Some(file), key) => {
                certificates.push(CertificateSpec { cert: read(file)?, key: key.as_deref().map(read).transpose()? })
            }
            (None, Some(_)) => {
                return Err(Reason::new("`key_file` needs `certificate_file`"));
            }
            (None, None) => {}
        }
        let spec = TransportSpec {
            timeout: self.timeout_s.map(Duration::from_secs),
            max_redirects: self.max_redirects,
            proxy,
            certificates,
            server_name: self.server_name.clone(),
            insecure: self.insecure,
            allow_downgrade: self.allow_downgrade,
        };
        Transport::new(id, &spec)
    }
}

fn read(file: &Path) -> Result<String, Reason> {
    let mut text = String::new();
    let read = File::open(file).and_then(|open| open.take(MAX_PEM).read_to_string(&mut text));
    read.map_err(|cause| Reason::new(format!("failed to read `{}`", file.display())).with(cause))?;
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<ProviderConfig, String> {
        serde_json::from_str(text).map_err(|error| error.to_string())
    }

    pub(super) fn registry(texts: &[&str], repos: &[PathBuf]) -> Result<Registry, String> {
        let configs: Vec<_> = texts.iter().map(|text| parse(text).expect("a provider")).collect();
        let client = Arc::new(Client::new(crate::sources::net::NetConfig::default()));
        let dir = tempfile::tempdir().expect("a directory");
        let memory = Some(dir.path().join("providers"));
        let means = Means {
            client,
            local_roots: vec!["/images".into()],
            memory,
            decompressor: Decompressor::default(),
            any_registry: None,
        };
        Registry::of(&configs, repos, false, &means).map_err(|error| {
            let cause = std::error::Error::source(&error).map(ToString::to_string).unwrap_or_default();
            format!("{error}: {cause}")
        })
    }

    const LAGO: &str = r#"{"id": "lago", "type": "lago", "uri": "http://templates.example/repo.metadata"}"#;

    #[test]
    fn logins_are_read_from_files_for_mirrors_alone() {
        let dir = tempfile::tempdir().expect("a directory");
        let file = dir.path().join("login");
        let of = |kind: &str, uri: &str| {
            let file = file.display();
            format!(r#"{{"id": "x", "type": "{kind}", {uri} "transport": {{"login_file": "{file}"}}}}"#)
        };
        let lago = of("lago", r#""uri": "http://templates.example/repo.metadata","#);
        for text in ["", "nobody", ":secret"] {
            std::fs::write(&file, text).expect("written");
            let error = registry(&[&lago], &[]).expect_err(text);
            assert!(error.contains("is not of the form") && !error.contains("secret"), "{error}");
        }
        std::fs::write(&file, "me:se:cret\n").expect("written");
        let shown = format!("{:?}", registry(&[&lago], &[]).expect("a registry"));
        assert!(!shown.contains("cret"), "{shown}");
        for (kind, uri, part) in [
            ("oci", "", "settings of its own"),
            ("lago", r#""uri": "file:///srv/repo.metadata","#, "for sources on a server"),
        ] {
            let error = registry(&[&of(kind, uri)], &[]).expect_err(kind);
            assert!(error.contains(part), "{error}");
        }
    }

    #[test]
    fn providers_stand_in_the_order_of_the_configuration() {
        let streams = r#"{"id": "ubuntu", "type": "simplestreams", "uri": "https://a.example/", "insecure": true,
            "transport": {"timeout_s": 5, "max_redirects": 0, "proxy": "off"}}"#;
        let glance = r#"{"id": "corp", "type": "glance", "auth_url": "https://ks.example:5000/v3",
            "application_credential_file": "/run/secrets/ac"}"#;
        let oci = r#"{"id": "hub", "type": "oci", "registries": ["r.example:5000"], "plain_http": ["r.example:5000"]}"#;
        let builder = r#"{"id": "libguestfs", "type": "virt-builder", "uri": "https://b.example/index.asc",
            "insecure": true}"#;
        let registry = registry(&[streams, LAGO, glance, oci, builder], &[]).expect("a registry");
        let ids: Vec<_> = registry.providers().iter().map(|provider| provider.id().to_owned()).collect();
        assert_eq!(ids, ["http", "file", "ubuntu", "lago", "corp", "hub", "libguestfs", "registries"]);
    }

    #[test]
    fn what_is_not_understood_is_refused() {
        for (text, expected) in [
            (r#"{"type": "lago"}"#, "missing field `id`"),
            (r#"{"id": "a"}"#, "missing field `type`"),
            (r#"{"id": 5, "type": "lago"}"#, "`id` of a provider must be a text"),
            (r#"{"id": "", "type": "lago"}"#, "provider id `` must be"),
            (r#"{"id": "../a", "type": "lago"}"#, "provider id `../a` must be"),
            (r#"{"id": "A", "type": "lago"}"#, "provider id `A` must be"),
            (r#"{"id": "a", "type": "rsync"}"#, "provider `a` has type `rsync`, which is none"),
            (r#"{"id": "a", "type": "lago"}"#, "provider `a`: missing field `uri`"),
            (r#"{"id": "a", "type": "lago", "uri": "http://h/", "url": "x"}"#, "provider `a`: unknown field `url`"),
            (
                r#"{"id": "a", "type": "lago", "uri": "http://h/", "transport": {"proxi": "x"}}"#,
                "provider `a`: unknown field `proxi`",
            ),
        ] {
            let error = parse(text).expect_err(text);
            assert!(error.starts_with(expected), "{text}: {error}");
        }
    }

    #[test]
    fn a_login_in_an_address_is_refused_by_its_key_and_never_shown() {
        const URL: &str = "http://usr:PW@h/";
        for (kind, key, value) in [
            ("lago", "`uri` has a login", serde_json::json!({ "uri": URL })),
            ("lago", "`uri` does not say where", serde_json::json!({ "uri": "usr:PW@h/" })),
            ("lago", "`uri` is no URL: invalid port", serde_json::json!({ "uri": "http://usr:PW@h:x/" })),
            ("virt-builder", "`uri` has a login", serde_json::json!({ "uri": URL, "insecure": true })),
            ("simplestreams", "`uri` has a login", serde_json::json!({ "uri": URL, "insecure": true })),
            ("glance", "`endpoint` has a login", serde_json::json!({ "endpoint": URL })),
            ("glance", "`auth_url` has a login", serde_json::json!({ "endpoint": "http://h/", "auth_url": URL })),
            ("oci", "`registries` has a login", serde_json::json!({ "registries": ["usr:PW@h"] })),
            ("oci", "`logins` has a login", serde_json::json!({ "logins": { "usr:PW@h": {} } })),
            (
                "lago",
                "`transport`: `proxy` has a login",
                serde_json::json!({ "uri": "http://h/", "transport": { "proxy": "usr:PW@p" } }),
            ),
        ] {
            let mut table = value;
            table["id"] = "a".into();
            table["type"] = kind.into();
            let error = parse(&table.to_string()).expect_err(key);
            assert!(error.starts_with(&format!("provider `a`: {key}")), "{error}");
            assert!(!error.contains("PW"), "{error}");
        }
    }

    #[test]
    fn what_contradicts_itself_is_refused() {
        assert!(registry(&[LAGO, LAGO], &[]).expect_err("twice").contains("another provider has the same id"));
        let taken = LAGO.replacen("\"lago\"", "\"http\"", 1);
        assert!(registry(&[&taken], &[]).expect_err("taken").contains("another provider has the same id"));
        for (transport, expected) in [
            (r#"{"proxy": "http://p", "proxy_file": "/p"}"#, "name two proxies"),
            (r#"{"proxy": "socks5://p"}"#, "transport `lago`"),
            (r#"{"key_file": "/k"}"#, "`key_file` needs `certificate_file`"),
            (r#"{"ca_file": "/nowhere/ca.pem"}"#, "failed to read `/nowhere/ca.pem`"),
            (r#"{"server_name": "no name"}"#, "server name is neither a DNS name nor an address"),
        ] {
            let text = LAGO.replace('}', &format!(", \"transport\": {transport}}}"));
            let error = registry(&[&text], &[]).expect_err(transport);
            assert!(error.contains(expected) && !error.contains("secret"), "{transport}: {error}");
        }
    }

    #[test]
    fn certificates_and_proxies_come_from_files() {
        let dir = tempfile::tempdir().expect("a directory");
        let made = rcgen::generate_simple_self_signed(["a.example".to_owned()]).expect("a certificate");
        let path = |name: &str| dir.path().join(name);
        std::fs::write(path("crt"), made.cert.pem()).expect("written");
        std::fs::write(path("key"), made.signing_key.serialize_pem()).expect("written");
        std::fs::write(path("proxy"), "http://user:secret@proxy.example:3128\n").expect("written");
        let config = TransportConfig {
            proxy_file: Some(path("proxy")),
            ca_file: Some(path("crt")),
            certificate_file: Some(path("crt")),
            key_file: Some(path("key")),
            ..TransportConfig::default()
        };
        assert_eq!(config.transport("a").expect("a transport").name(), "a");
        let other = rcgen::KeyPair::generate().expect("a key").serialize_pem();
        std::fs::write(path("key"), other).expect("written");
        let error = config.transport("a").expect_err("another key");
        assert_eq!(error.to_string(), "transport `a`: certificate 2 cannot be used");
        let keyless = TransportConfig { key_file: None, ..config };
        assert!(keyless.transport("a").is_ok(), "left out, with a warning");
    }
}
