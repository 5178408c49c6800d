//! nginx: files of a directory, plain and by TLS, with ranges and validators; what it was asked, from its own log.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result};

use super::tls::Authority;
use super::{ADDRESS, furnish, listening};
use crate::case::Bed;
use crate::daemon::Daemon;
use crate::pace::stretched;
use crate::wait::wait_for;

/// Name that the certificate of [`Nginx::named`] is for; nobody resolves it.
pub const NAME: &str = "images.test";
const PLAIN: u16 = 8080;
const TLS: u16 = 8443;
/// Wants a certificate of the client.
const MUTUAL: u16 = 8444;
/// Has a certificate for [`NAME`] only.
const NAMED: u16 = 8445;
const LOG_DEADLINE: Duration = Duration::from_secs(10);

/// The server.
#[derive(Debug)]
pub struct Nginx {
    /// The process.
    pub daemon: Daemon,
    /// Who signed its certificates.
    pub authority: Authority,
    root: PathBuf,
    log: PathBuf,
}

/// A request that was answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Asked {
    /// `GET` and its like.
    pub method: String,
    /// Path.
    pub path: String,
    /// Status of the answer.
    pub status: u16,
    /// Bytes of the answer's body.
    pub sent: u64,
    /// The `Range` header, or `-`.
    pub range: String,
}

impl Nginx {
    /// Starts it with an empty directory of files.
    ///
    /// # Errors
    /// When it does not listen.
    pub fn start(bed: &Bed) -> Result<Self> {
        furnish()?;
        let dir = bed.dir.join("nginx");
        let root = dir.join("root");
        fs::create_dir_all(&root)?;
        let authority = Authority::new()?;
        for (name, server) in [("address", authority.server(&[ADDRESS])?), ("name", authority.server(&[NAME])?)] {
            fs::write(dir.join(format!("{name}.pem")), server.certificate)?;
            fs::write(dir.join(format!("{name}.key")), server.key)?;
        }
        fs::write(dir.join("ca.pem"), &authority.certificate)?;
        fs::write(dir.join("users"), "user:{PLAIN}secret\n")?;
        let config = dir.join("nginx.conf");
        fs::write(&config, configuration(&dir))?;
        let words = ["-c".into(), config.into_os_string(), "-p".into(), dir.clone().into_os_string()];
        let daemon = Daemon::start("nginx", "/usr/sbin/nginx", words, bed.logs().join("nginx.log"))?;
        let mut nginx = Self { daemon, authority, root, log: dir.join("access.log") };
        listening(&mut nginx.daemon, NAMED)?;
        Ok(nginx)
    }

    /// Ends it, as a machine that is shut down.
    ///
    /// # Errors
    /// When it does not run, or does not leave.
    pub fn stop(&mut self) -> Result<()> {
        self.daemon.terminate().map(drop)
    }

    /// Starts it again.
    ///
    /// # Errors
    /// When it does not listen.
    pub fn start_again(&mut self) -> Result<()> {
        self.daemon.start_again()?;
        listening(&mut self.daemon, NAMED)
    }

    /// Directory of the files.
    #[must_use]
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Puts a copy of a file at `path`.
    ///
    /// # Errors
    /// When it cannot be copied.
    pub fn put(&self, path: &str, file: &Path) -> Result<()> {
        let to = self.root.join(path);
        fs::create_dir_all(to.parent().context("a path of nothing")?)?;
        fs::copy(file, to).map(drop).with_context(|| format!("failed to copy {}", file.display()))
    }

    /// Plain HTTP.
    #[must_use]
    pub fn plain(&self, path: &str) -> String {
        format!("http://{ADDRESS}:{PLAIN}/{path}")
    }

    /// HTTPS with a certificate for the address.
    #[must_use]
    pub fn tls(&self, path: &str) -> String {
        format!("https://{ADDRESS}:{TLS}/{path}")
    }

    /// HTTPS for clients with a certificate of the same authority.
    #[must_use]
    pub fn mutual(&self, path: &str) -> String {
        format!("https://{ADDRESS}:{MUTUAL}/{path}")
    }

    /// HTTPS with a certificate for [`NAME`].
    #[must_use]
    pub fn named(&self, path: &str) -> String {
        format!("https://{ADDRESS}:{NAMED}/{path}")
    }

    /// What it was asked so far; at least `least` requests, which it may be about to write down.
    ///
    /// # Errors
    /// When there were fewer.
    pub fn asked(&self, least: usize) -> Result<Vec<Asked>> {
        wait_for(&format!("{least} requests in nginx's log"), LOG_DEADLINE, || {
            let log = fs::read_to_string(&self.log)?;
            let asked: Vec<Asked> = log.lines().map(parse).collect::<Result<_>>()?;
            Ok((asked.len() >= least).then_some(asked))
        })
    }

    /// Forgets what it was asked.
    ///
    /// # Errors
    /// When its log is gone.
    pub fn forget(&self) -> Result<()> {
        Ok(fs::OpenOptions::new().write(true).open(&self.log)?.set_len(0)?)
    }
}

fn parse(line: &str) -> Result<Asked> {
    let mut words = line.split(' ');
    let mut next = || words.next().with_context(|| format!("a short line in nginx's log: {line}"));
    Ok(Asked {
        method: next()?.to_owned(),
        path: next()?.to_owned(),
        status: next()?.parse()?,
        sent: next()?.parse()?,
        range: next()?.to_owned(),
    })
}

/// `slow/PATH` is `PATH` at 4 MiB/s on a quiet machine, `no-ranges/PATH` and `no-validators/PATH` are without, `private/PATH` is for `user`
/// with password `secret`.
fn configuration(dir: &Path) -> String {
    let dir = dir.display();
    // Whoever does something amid a download is slower on a busy machine.
    let slow = (4 << 20) * 1000 / stretched(Duration::from_secs(1)).as_millis();
    let temporary = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
        .map(|kind| format!("{kind}_temp_path {dir}/temp-{kind};\n"))
        .concat();
    let places = format!(
        "root {dir}/root;
         location /slow/ {{ alias {dir}/root/; limit_rate {slow}; }}
         location /no-ranges/ {{ alias {dir}/root/; max_ranges 0; }}
         location /no-validators/ {{ alias {dir}/root/; etag off; if_modified_since off; add_header Last-Modified ''; }}
         location /private/ {{ alias {dir}/root/; auth_basic images; auth_basic_user_file {dir}/users; }}"
    );
    let tls = |port: u16, name: &str, more: &str| {
        format!(
            "server {{ listen {ADDRESS}:{port} ssl; {more}
             ssl_certificate {dir}/{name}.pem; ssl_certificate_key {dir}/{name}.key;
             {places} }}"
        )
    };
    format!(
        "daemon off; master_process off; pid {dir}/pid; error_log stderr notice;
         events {{ worker_connections 512; }}
         http {{ {temporary} sendfile on; default_type application/octet-stream;
         log_format asked '$request_method $request_uri $status $body_bytes_sent $http_range';
         access_log {dir}/access.log asked;
         server {{ listen {ADDRESS}:{PLAIN}; {places} }}
         {} {} {} }}",
        tls(TLS, "address", ""),
        tls(MUTUAL, "address", &format!("ssl_client_certificate {dir}/ca.pem; ssl_verify_client on;")),
        tls(NAMED, "name", ""),
    )
}
