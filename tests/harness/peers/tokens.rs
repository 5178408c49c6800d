//! A token service as registries have it beside them: whoever may do what gets a JWT that says so, signed with a key of
//! the case, and the registry believes the signature and nothing else.
//!
//! Anybody may pull from repositories below `public/`; `user` with password `secret` may do all.

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, Result};
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use serde_json::{Value, json};
use url::Url;

use super::{ADDRESS, furnish};
use crate::command::{command, run};

const PORT: u16 = 5003;
const SERVICE: &str = "registry of the case";
const ISSUER: &str = "tokens of the case";
/// Of tokens, in seconds: the registry allows for clocks that differ by a minute.
const LIFE: u64 = 300;

/// The service; it ends with the case.
#[derive(Debug, Clone)]
pub struct Tokens {
    asked: Arc<Mutex<Vec<Asked>>>,
    signer: Arc<Mutex<Signer>>,
    dir: PathBuf,
}

/// A request for a token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Asked {
    /// What the token is to be good for, as `repository:NAME:ACTIONS`.
    pub scope: String,
    /// Who asked; nobody if there was no login.
    pub user: Option<String>,
}

/// A key with its certificate.
#[derive(Debug, Clone)]
struct Signer {
    key: PathBuf,
    certificate: PathBuf,
}

impl Tokens {
    /// Starts it, with a new key in `dir`.
    ///
    /// # Errors
    /// When there is no key, or its port is taken.
    pub fn start(dir: &Path) -> Result<Self> {
        furnish()?;
        fs::create_dir_all(dir)?;
        let signer = Arc::new(Mutex::new(Signer::create(dir, "true")?));
        let tokens = Self { asked: Arc::default(), signer, dir: dir.to_owned() };
        let listener = TcpListener::bind((ADDRESS, PORT)).context("failed to listen as a token service")?;
        let shared = tokens.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let tokens = shared.clone();
                // What becomes of a connection is the client's affair.
                std::thread::spawn(move || tokens.answer(&stream));
            }
        });
        Ok(tokens)
    }

    /// What a registry has to be told of it: section `auth` of its configuration.
    #[must_use]
    pub fn auth(&self) -> Value {
        let certificate = self.dir.join("true.pem");
        let realm = format!("http://{ADDRESS}:{PORT}/token");
        json!({"token": {"realm": realm, "service": SERVICE, "issuer": ISSUER, "rootcertbundle": certificate}})
    }

    /// Signs with a key that no registry was told of, from now on.
    ///
    /// # Errors
    /// When there is no key.
    pub fn forge(&self) -> Result<()> {
        let signer = Signer::create(&self.dir, "forged")?;
        *self.signer.lock().unwrap_or_else(PoisonError::into_inner) = signer;
        Ok(())
    }

    /// What it was asked for since this was called last.
    pub fn take_asked(&self) -> Vec<Asked> {
        std::mem::take(&mut *self.asked.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn answer(&self, mut stream: &TcpStream) -> Result<()> {
        let mut head = String::new();
        let mut reader = BufReader::new(stream);
        while !head.ends_with("\r\n\r\n") {
            if reader.read_line(&mut head)? == 0 {
                return Ok(());
            }
        }
        let (status, body) = match self.token(&head)? {
            Some(token) => ("200 OK", json!({"token": token, "expires_in": LIFE})),
            None => ("401 No", json!({"details": "who is that?"})),
        };
        let (body, kind) = (body.to_string(), "Content-Type: application/json");
        Ok(write!(
            stream,
            "HTTP/1.1 {status}\r\n{kind}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
            body.len()
        )?)
    }

    /// The token that a request is for. None if its login is wrong.
    fn token(&self, head: &str) -> Result<Option<String>> {
        let target = head.split(' ').nth(1).context("no target")?;
        let url = Url::parse(&format!("http://{ADDRESS}"))?.join(target)?;
        let scopes = url.query_pairs().filter(|(key, _)| key == "scope").map(|(_, scope)| scope.into_owned());
        let scopes: Vec<String> = scopes.collect();
        let login = head.lines().find(|line| line.to_lowercase().starts_with("authorization: basic "));
        let login = login.and_then(|line| STANDARD.decode(line.rsplit(' ').next()?).ok());
        let login = login.map(|login| String::from_utf8_lossy(&login).into_owned());
        let user = login.as_ref().and_then(|login| login.split(':').next()).map(str::to_owned);
        let asked = scopes.iter().map(|scope| Asked { scope: scope.clone(), user: user.clone() });
        self.asked.lock().unwrap_or_else(PoisonError::into_inner).extend(asked);
        if login.as_ref().is_some_and(|login| login != "user:secret") {
            return Ok(None);
        }
        let access: Vec<Value> = scopes.iter().filter_map(|scope| allowed(scope, login.is_some())).collect();
        let signer = self.signer.lock().unwrap_or_else(PoisonError::into_inner).clone();
        signer.sign(&access, user.as_deref().unwrap_or_default()).map(Some)
    }
}

/// What somebody may do of what is asked for.
fn allowed(scope: &str, known: bool) -> Option<Value> {
    let mut parts = scope.split(':');
    let (kind, name, actions) = (parts.next()?, parts.next()?, parts.next()?);
    let may = |action: &&str| known || (name.starts_with("public/") && *action == "pull");
    let actions: Vec<&str> = actions.split(',').filter(may).collect();
    Some(json!({"type": kind, "name": name, "actions": actions}))
}

impl Signer {
    fn create(dir: &Path, name: &str) -> Result<Self> {
        let (key, certificate) = (dir.join(format!("{name}.key")), dir.join(format!("{name}.pem")));
        let words = ["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1", "-subj", "/CN=tokens", "-keyout"];
        run(command("openssl", words).arg(&key).arg("-out").arg(&certificate))?;
        Ok(Self { key, certificate })
    }

    /// A JWT (RFC 7519) by RS256 with its certificate in the head, as docker's registry wants it.
    fn sign(&self, access: &[Value], subject: &str) -> Result<String> {
        let certificate = fs::read_to_string(&self.certificate)?;
        let der: String = certificate.lines().filter(|line| !line.starts_with('-')).collect();
        let now = SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs();
        let head = json!({"typ": "JWT", "alg": "RS256", "x5c": [der]});
        let claims = json!({
            "iss": ISSUER, "aud": SERVICE, "sub": subject, "access": access,
            "iat": now, "nbf": now, "exp": now + LIFE, "jti": format!("{now}"),
        });
        let encoded = |part: &Value| URL_SAFE_NO_PAD.encode(part.to_string());
        let signed = format!("{}.{}", encoded(&head), encoded(&claims));
        let dir = tempfile::tempdir()?;
        let (text, signature) = (dir.path().join("text"), dir.path().join("signature"));
        fs::write(&text, &signed)?;
        let words = ["dgst", "-sha256", "-sign"];
        run(command("openssl", words).arg(&self.key).arg("-out").arg(&signature).arg(&text))?;
        Ok(format!("{signed}.{}", URL_SAFE_NO_PAD.encode(fs::read(&signature)?)))
    }
}
