//! The server of subresources as a process of the case, at the address of its Service and with the rights of its account and no more: its
//! pods would want an image of it.

use std::fs;

use anyhow::Result;
use serde_json::{Value, json};

use crate::case::Bed;
use crate::cluster::Cluster;
use crate::command::sh;
use crate::daemon::Daemon;

/// Of its Service, its Deployment and its account, all of namespace `default`.
pub const NAME: &str = "virtlet-subresources";
/// Its address. Nobody proxies Services here, so the server has it itself.
pub const ADDRESS: &str = "10.96.0.44";
/// Of loopback: where its health and its figures are. Images have the port that it has by itself.
pub const FIGURES: u16 = 8087;

/// Has the Service lead to the server. To be called before `install` makes the Service at an address of its own.
///
/// # Errors
/// When there is such a Service, or the address is in use.
pub fn lead(cluster: &Cluster) -> Result<()> {
    sh(&format!("ip addr add {ADDRESS}/32 dev lo"))?;
    let metadata = json!({"name": NAME, "namespace": "default"});
    let ports = json!([{"name": "https", "port": 443}]);
    let service = json!({
        "apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": {"clusterIP": ADDRESS, "ports": ports},
    });
    cluster.apply("/api/v1/namespaces/default/services", &service)?;
    let slice = json!({
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
        "metadata": {"name": NAME, "namespace": "default", "labels": {"kubernetes.io/service-name": NAME}},
        "ports": ports, "endpoints": [{"addresses": [ADDRESS]}],
    });
    cluster.apply("/apis/discovery.k8s.io/v1/namespaces/default/endpointslices", &slice)?;
    Ok(())
}

/// Starts the server.
///
/// # Errors
/// When it was not built.
pub fn serve(bed: &Bed, cluster: &Cluster) -> Result<Daemon> {
    let mut config: Value = serde_json::from_slice(&fs::read(&cluster.admin)?)?;
    config["users"][0]["user"]["as"] = format!("system:serviceaccount:default:{NAME}").into();
    let kubeconfig = bed.dir.join("subresources.kubeconfig");
    fs::write(&kubeconfig, config.to_string())?;
    let words = [
        "subresources".to_owned(),
        "--namespace=default".to_owned(),
        format!("--serve={ADDRESS}:443"),
        format!("--listen=127.0.0.1:{FIGURES}"),
        format!("--kubeconfig={}", kubeconfig.display()),
    ];
    Daemon::start(NAME, bed.program("virtlet-operator"), words, bed.logs().join("subresources.log"))
}
