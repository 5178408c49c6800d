//! One VM of a cluster, and streams of it.

use std::time::Duration;

use tokio::time::sleep;

use super::names::{self, Kind};
use crate::cluster::Cluster;
use crate::cluster::stream::Stream;
use crate::error::{ClusterError, CtlError};
use crate::kubeconfig::At;
use crate::ready::late;
use crate::wait;

/// Between two tries.
const AGAIN: Duration = Duration::from_secs(1);

/// A VM that somebody has named.
pub(super) struct Vm {
    pub(super) cluster: Cluster,
    pub(super) kind: Option<Kind>,
    pub(super) namespace: String,
    pub(super) name: String,
}

impl Vm {
    /// The one that words name. Asks nobody.
    pub(super) async fn of(at: &At, words: &[String]) -> Result<Self, CtlError> {
        let named = names::one(words)?;
        if named.kind == Some(Kind::ReplicaSet) {
            let text =
                format!("`{}` is of many VMs; name one of them, as `kubectl virtlet get vmi` lists them", named.name);
            return Err(CtlError::Usage(text));
        }
        let cluster = Cluster::connect(at).await?;
        let namespace = named.namespace.unwrap_or_else(|| cluster.namespace().to_owned());
        Ok(Self { cluster, kind: named.kind, namespace, name: named.name })
    }

    /// Its name with its namespace.
    pub(super) fn whole(&self) -> String {
        format!("{}/{}", self.namespace, self.name)
    }

    /// Path of a subresource of its instance, which has its name.
    pub(super) fn path(&self, verb: &str) -> String {
        self.cluster.subresource(&self.namespace, Kind::Instance.plural(), &self.name, verb)
    }

    /// A stream of its instance. `action` is what it is for, in words before its name.
    pub(super) async fn stream(&self, action: &str, verb: &str) -> Result<Stream, ClusterError> {
        self.cluster.stream(&format!("{action} `{}`", self.whole()), &self.path(verb)).await
    }

    /// The same of one that may have to begin to run: so the server says it of one that is about to.
    pub(super) async fn awaited(&self, action: &str, verb: &str, deadline: Duration) -> Result<Stream, CtlError> {
        let opened = async {
            loop {
                match self.stream(action, verb).await {
                    Err(ClusterError::Refused { code: 400, .. }) => sleep(AGAIN).await,
                    opened => return opened.map_err(CtlError::from),
                }
            }
        };
        let what = format!("waiting up to {} s for {} to run", deadline.as_secs(), self.whole());
        late(format!("a VM `{}` that runs", self.whole()), deadline, wait::told(&what, opened)).await
    }

    /// A stream of one of its ports.
    pub(super) async fn port(&self, port: u16) -> Result<Stream, ClusterError> {
        let of = if self.kind == Some(Kind::Machine) { Kind::Machine } else { Kind::Instance };
        let path = self.cluster.subresource(&self.namespace, of.plural(), &self.name, &format!("portforward/{port}"));
        self.cluster.stream(&format!("connect to port {port} of `{}`", self.whole()), &path).await
    }
}
