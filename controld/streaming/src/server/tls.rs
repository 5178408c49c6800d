//! TLS of the server: the certificate that its files hold now.
//!
//! Certificates are renewed while the server runs. For each connection it is looked whether the files are still those that were
//! read; new ones that are no good, or of which one is not there yet, leave things as they are.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use rustls::ServerConfig;
use rustls::pki_types::pem::{self, PemObject as _};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

/// Files in PEM.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TlsFiles {
    /// The server's certificate, and those between it and the authority's.
    pub certificate: PathBuf,
    /// Its private key.
    pub key: PathBuf,
}

/// Why there is no TLS.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file cannot be used.
    #[error("no {what} in `{}`; it is to be in PEM", path.display())]
    File {
        what: &'static str,
        path: PathBuf,
        #[source]
        cause: pem::Error,
    },
    /// They do not belong together, or are of a kind that nobody uses.
    #[error("certificate `{}` and key `{}` cannot be used", files.certificate.display(), files.key.display())]
    Pair {
        files: TlsFiles,
        #[source]
        cause: rustls::Error,
    },
}

/// The server's side of TLS.
#[derive(Debug)]
pub(super) struct Tls {
    files: TlsFiles,
    loaded: Mutex<Loaded>,
}

#[derive(Debug)]
struct Loaded {
    /// Of both files.
    stamps: Option<[Stamp; 2]>,
    config: Arc<ServerConfig>,
}

/// What tells a file from another one at its place: inode, size, and when it was changed.
type Stamp = (u64, u64, i64, i64);

// === impl Tls ===

impl Tls {
    /// Reads the files.
    pub(super) fn load(files: TlsFiles) -> Result<Self, TlsError> {
        let stamps = files.stamps();
        let config = files.read()?;
        Ok(Self { files, loaded: Mutex::new(Loaded { stamps, config }) })
    }

    /// Takes up TLS on a connection.
    pub(super) async fn accept(self: Arc<Self>, stream: TcpStream) -> io::Result<TlsStream<TcpStream>> {
        let current = tokio::task::spawn_blocking(move || self.current()).await?;
        TlsAcceptor::from(current).accept(stream).await
    }

    fn current(&self) -> Arc<ServerConfig> {
        let mut loaded = self.loaded.lock().unwrap_or_else(PoisonError::into_inner);
        let stamps = self.files.stamps();
        if stamps != loaded.stamps {
            match self.files.read() {
                Ok(config) => *loaded = Loaded { stamps, config },
                Err(error) => tracing::warn!(
                    error = &error as &(dyn std::error::Error + 'static),
                    "new certificate of the streaming server not taken; the one before is used"
                ),
            }
        }
        loaded.config.clone()
    }
}

impl TlsFiles {
    fn stamps(&self) -> Option<[Stamp; 2]> {
        let stamp = |path: &PathBuf| {
            let file = fs::metadata(path).ok()?;
            Some((file.ino(), file.size(), file.ctime(), file.ctime_nsec()))
        };
        Some([stamp(&self.certificate)?, stamp(&self.key)?])
    }

    fn read(&self) -> Result<Arc<ServerConfig>, TlsError> {
        let no = |what, path: &Path, cause| TlsError::File { what, path: path.to_owned(), cause };
        let no_certificate = |cause| no("certificate", &self.certificate, cause);
        let chain = CertificateDer::pem_file_iter(&self.certificate).map_err(no_certificate)?;
        let chain = chain.collect::<Result<Vec<_>, _>>().map_err(no_certificate)?;
        if chain.is_empty() {
            return Err(no_certificate(pem::Error::NoItemsFound));
        }
        let key = PrivateKeyDer::from_pem_file(&self.key).map_err(|cause| no("private key", &self.key, cause))?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .and_then(|builder| builder.with_no_client_auth().with_single_cert(chain, key));
        config.map(Arc::new).map_err(|cause| TlsError::Pair { files: self.clone(), cause })
    }
}
