//! The way to the cluster's API server: by a kubeconfig, with deadlines.

use std::path::{Path, PathBuf};
use std::time::Duration;

use kube::config::{InferConfigError, KubeConfigOptions, Kubeconfig, KubeconfigError};

const CONNECT_DEADLINE: Duration = Duration::from_secs(10);

/// Why no way is known.
#[derive(Debug, thiserror::Error)]
pub enum AccessError {
    /// The named kubeconfig cannot be used.
    #[error("failed to read kubeconfig `{}`", path.display())]
    Kubeconfig {
        path: PathBuf,
        #[source]
        cause: Box<KubeconfigError>,
    },
    /// There is none where one is looked for.
    #[error("no cluster is known: name a kubeconfig")]
    Unknown(#[source] Box<InferConfigError>),
}

/// Where the cluster is, and as whom we come. The server may be silent for `silence`. Without a kubeconfig: as `kubectl` would find one,
/// and then as a pod of the cluster would.
///
/// # Errors
/// See [`AccessError`]. Nothing is asked of the server.
pub(crate) async fn access(kubeconfig: Option<&Path>, silence: Duration) -> Result<kube::Config, AccessError> {
    let mut config = match kubeconfig {
        Some(path) => {
            let unusable = |cause| AccessError::Kubeconfig { path: path.to_owned(), cause: Box::new(cause) };
            let file = Kubeconfig::read_from(path).map_err(unusable)?;
            kube::Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await.map_err(unusable)?
        }
        None => kube::Config::infer().await.map_err(|cause| AccessError::Unknown(Box::new(cause)))?,
    };
    config.connect_timeout = Some(CONNECT_DEADLINE);
    config.read_timeout = Some(silence);
    config.write_timeout = Some(CONNECT_DEADLINE);
    Ok(config)
}
