//! metrics-server, on a [`Cluster`]: what `kubectl top` and autoscalers read, which it reads of kubelet.

use anyhow::Result;
use serde_json::json;

use crate::case::Bed;
use crate::cluster::Cluster;
use crate::command::sh;
use crate::daemon::Daemon;

/// The address of its Service. Nobody proxies Services here, so the server has it itself.
const ADDRESS: &str = "10.96.0.43";
const PORT: u16 = 4443;
const NAME: &str = "metrics-server";

/// The fixture.
#[derive(Debug)]
pub struct MetricsServer(Daemon);

impl MetricsServer {
    /// Starts it, and has the API server lead to it.
    ///
    /// # Errors
    /// When it was not built, or the API server refuses its objects.
    pub fn start(bed: &Bed, cluster: &Cluster) -> Result<Self> {
        sh(&format!("ip addr add {ADDRESS}/32 dev lo"))?;
        let admin = cluster.admin.display();
        let args = [
            format!("--kubeconfig={admin}"),
            format!("--authentication-kubeconfig={admin}"),
            format!("--authorization-kubeconfig={admin}"),
            format!("--bind-address={ADDRESS}"),
            format!("--secure-port={PORT}"),
            format!("--cert-dir={}", bed.dir.join(NAME).display()),
            // kubelet has signed its certificate itself.
            "--kubelet-insecure-tls".to_owned(),
            "--kubelet-preferred-address-types=InternalIP".to_owned(),
            // As often as it can.
            "--metric-resolution=10s".to_owned(),
            // As long as it can.
            "--kubelet-request-timeout=9s".to_owned(),
        ];
        let daemon = Daemon::start(NAME, bed.config.peer(NAME)?, args, bed.logs().join("metrics-server.log"))?;
        let metadata = json!({"name": NAME, "namespace": "kube-system"});
        let service = json!({
            "apiVersion": "v1", "kind": "Service", "metadata": metadata,
            "spec": {"clusterIP": ADDRESS, "ports": [{"port": PORT}]},
        });
        cluster.apply("/api/v1/namespaces/kube-system/services", &service)?;
        let slice = json!({
            "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
            "metadata": {"name": NAME, "namespace": "kube-system", "labels": {"kubernetes.io/service-name": NAME}},
            "ports": [{"port": PORT}], "endpoints": [{"addresses": [ADDRESS]}],
        });
        cluster.apply("/apis/discovery.k8s.io/v1/namespaces/kube-system/endpointslices", &slice)?;
        let api = json!({
            "apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService", "metadata": {"name": "v1beta1.metrics.k8s.io"},
            "spec": {
                "group": "metrics.k8s.io", "version": "v1beta1", "groupPriorityMinimum": 100, "versionPriority": 100,
                "insecureSkipTLSVerify": true,
                "service": {"name": NAME, "namespace": "kube-system", "port": PORT},
            },
        });
        cluster.apply("/apis/apiregistration.k8s.io/v1/apiservices", &api)?;
        Ok(Self(daemon))
    }

    /// # Errors
    /// When it has ended.
    pub fn still_runs(&mut self) -> Result<()> {
        self.0.still_runs()
    }
}
