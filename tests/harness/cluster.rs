//! A real kube-apiserver with its etcd on the cell's loopback: objects without nodes.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result};
use kube::Client;
use kube::config::{KubeConfigOptions, Kubeconfig};
use serde_json::{Value, json};
use tokio::runtime::Runtime;
use tonic::codegen::http::Request;
use tonic::codegen::http::header::CONTENT_TYPE;

use crate::case::Bed;
use crate::command::sh;
use crate::daemon::Daemon;
use crate::pace;
use crate::wait::wait_for;

const NODE_IP: &str = "192.168.78.1";
/// An API server takes four seconds, alone.
const READY_DEADLINE: Duration = Duration::from_secs(90);
const CALL_DEADLINE: Duration = Duration::from_secs(30);
const ADMIN: &str = "admin-token";
const NODE: &str = "node-token";
/// Verbs that change objects, as the server counts them.
const WRITES: [&str; 6] = ["POST", "PUT", "PATCH", "APPLY", "DELETE", "DELETECOLLECTION"];
/// The API server's name to servers behind it.
const FRONT: &str = "front-proxy-client";

/// The fixture.
#[derive(Debug)]
pub struct Cluster {
    /// Its database.
    pub etcd: Daemon,
    /// The API server.
    pub apiserver: Daemon,
    /// How to reach it as a node's daemons do.
    pub kubeconfig: PathBuf,
    /// How to reach it as its administrator.
    pub admin: PathBuf,
    runtime: Runtime,
}

impl Cluster {
    /// Starts both.
    ///
    /// # Errors
    /// When they were not built, or do not get ready.
    pub fn start(bed: &Bed) -> Result<Self> {
        Self::with_features(bed, &[])
    }

    /// [`Cluster::start`] with these of Kubernetes' features turned on.
    ///
    /// # Errors
    /// When they were not built, or do not get ready.
    pub fn with_features(bed: &Bed, features: &[&str]) -> Result<Self> {
        let dir = bed.dir.join("cluster");
        let pki = dir.join("pki");
        fs::create_dir_all(&pki)?;
        // The server wants to tell others an address, and looks for it where the default route leads.
        for line in [
            "ip link add cluster0 type bridge".to_owned(),
            format!("ip addr add {NODE_IP}/24 dev cluster0"),
            "ip link set cluster0 up".to_owned(),
            format!("openssl genrsa -out {}/sa.key 2048", pki.display()),
        ] {
            sh(&line)?;
        }
        front_proxy(&pki)?;
        let tokens = dir.join("tokens.csv");
        let node = "system:node:node1,node1,\"system:nodes\"";
        fs::write(&tokens, format!("{ADMIN},admin,admin,\"system:masters\"\n{NODE},{node}\n"))?;
        let etcd = Daemon::start(
            "etcd",
            bed.config.peer("etcd")?,
            [
                "--data-dir",
                &*dir.join("etcd").to_string_lossy(),
                "--unsafe-no-fsync",
                "--listen-client-urls=http://127.0.0.1:2379",
                "--advertise-client-urls=http://127.0.0.1:2379",
                "--listen-peer-urls=http://127.0.0.1:2380",
            ],
            bed.logs().join("etcd.log"),
        )?;
        let sa_key = pki.join("sa.key").display().to_string();
        let front = pki.join("front").display().to_string();
        let gates: Vec<String> = features.iter().map(|feature| format!("{feature}=true")).collect();
        let apiserver = Daemon::start(
            "kube-apiserver",
            bed.config.peer("kube-apiserver")?,
            [
                "--etcd-servers=http://127.0.0.1:2379".to_owned(),
                "--bind-address=127.0.0.1".to_owned(),
                "--secure-port=6443".to_owned(),
                format!("--advertise-address={NODE_IP}"),
                "--endpoint-reconciler-type=none".to_owned(),
                // To reach kubelet: names of nodes are in no DNS here.
                "--kubelet-preferred-address-types=InternalIP".to_owned(),
                format!("--cert-dir={}", pki.display()),
                "--service-cluster-ip-range=10.96.0.0/24".to_owned(),
                // As kubeadm has it: what runs on each node asks for it.
                "--allow-privileged=true".to_owned(),
                format!("--token-auth-file={}", tokens.display()),
                "--authorization-mode=RBAC".to_owned(),
                "--disable-admission-plugins=ServiceAccount".to_owned(),
                format!("--service-account-key-file={sa_key}"),
                format!("--service-account-signing-key-file={sa_key}"),
                "--service-account-issuer=https://cluster.test".to_owned(),
                format!("--requestheader-client-ca-file={front}-ca.crt"),
                format!("--requestheader-allowed-names={FRONT}"),
                format!("--proxy-client-cert-file={front}.crt"),
                format!("--proxy-client-key-file={front}.key"),
                "--requestheader-username-headers=X-Remote-User".to_owned(),
                "--requestheader-group-headers=X-Remote-Group".to_owned(),
                "--requestheader-extra-headers-prefix=X-Remote-Extra-".to_owned(),
                format!("--feature-gates={}", gates.join(",")),
            ],
            bed.logs().join("apiserver.log"),
        )?;
        // The server signs its own certificate, and puts the authority behind it.
        let authority = pki.join("apiserver.crt");
        let [kubeconfig, admin] = ["node.kubeconfig", "admin.kubeconfig"].map(|name| dir.join(name));
        fs::write(&kubeconfig, kubeconfig_of(&authority.to_string_lossy(), NODE).to_string())?;
        fs::write(&admin, kubeconfig_of(&authority.to_string_lossy(), ADMIN).to_string())?;
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
        let mut cluster = Self { etcd, apiserver, kubeconfig, admin, runtime };
        cluster.wait_ready()?;
        Ok(cluster)
    }

    /// Waits until the server says that it is ready.
    ///
    /// # Errors
    /// When it ends, or does not say so in time.
    pub fn wait_ready(&mut self) -> Result<()> {
        let mut last = String::new();
        let ready = wait_for("ready API server", READY_DEADLINE, || {
            self.etcd.still_runs()?;
            self.apiserver.still_runs()?;
            let asked = self.call(async |client| {
                let request = Request::get("/readyz").body(Vec::new())?;
                Ok(client.request_text(request).await?)
            });
            match asked {
                Ok(_) => Ok(Some(())),
                Err(not_yet) => {
                    last = format!("{not_yet:#}");
                    Ok(None)
                }
            }
        });
        ready.with_context(|| format!("last answer: {last}"))
    }

    /// Applies a manifest to the collection at `path`, as `kubectl apply --server-side` does.
    ///
    /// # Errors
    /// The server's refusal.
    pub fn apply(&self, path: &str, manifest: &Value) -> Result<Value> {
        let name = manifest.pointer("/metadata/name").and_then(Value::as_str).context("no name")?;
        let uri = format!("{path}/{name}?fieldManager=bed&force=true&fieldValidation=Strict");
        let patch = Request::patch(uri).header(CONTENT_TYPE, "application/apply-patch+yaml");
        self.ask(patch.body(manifest.to_string().into_bytes())?)
    }

    /// Deletes the object at `path`.
    ///
    /// # Errors
    /// The server's refusal.
    pub fn delete(&self, path: &str) -> Result<Value> {
        self.ask(Request::delete(path).body(Vec::new())?)
    }

    /// The object at `path`.
    ///
    /// # Errors
    /// The server's refusal.
    pub fn get(&self, path: &str) -> Result<Value> {
        self.ask(Request::get(path).body(Vec::new())?)
    }

    /// What the server says at `path`, as text.
    ///
    /// # Errors
    /// The server's refusal.
    pub fn text(&self, path: &str) -> Result<String> {
        self.call(async |client| Ok(client.request_text(Request::get(path).body(Vec::new())?).await?))
    }

    /// How often somebody has written objects of a group, by the server's own count.
    ///
    /// # Errors
    /// When the server does not say.
    pub fn writes(&self, group: &str) -> Result<u64> {
        let text = self.text("/metrics")?;
        let group = format!("group=\"{group}\"");
        let counted = text.lines().filter(|line| {
            line.starts_with("apiserver_request_total{")
                && line.contains(&group)
                && WRITES.iter().any(|verb| line.contains(&format!("verb=\"{verb}\"")))
        });
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "counts, written as floats")]
        Ok(counted.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum::<f64>() as u64)
    }

    fn ask(&self, request: Request<Vec<u8>>) -> Result<Value> {
        self.call(async |client| Ok(client.request(request).await?))
    }

    /// One call as an administrator with a new client, which connects anew: the server may have been started again.
    fn call<T>(&self, work: impl AsyncFnOnce(Client) -> Result<T>) -> Result<T> {
        self.runtime.block_on(async {
            let file = Kubeconfig::read_from(&self.admin)?;
            let config = kube::Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await?;
            let client = Client::try_from(config)?;
            pace::within(CALL_DEADLINE, work(client)).await.context("no answer of the API server")?
        })
    }
}

/// By which servers behind the API server know it: `front.crt` and `front.key`, of an authority of their own, `front-ca.crt`.
fn front_proxy(pki: &Path) -> Result<()> {
    let (pki, key) = (pki.display(), "-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes");
    fs::write(format!("{pki}/front.ext"), "extendedKeyUsage=clientAuth\n")?;
    for line in [
        format!(
            "openssl req -x509 {key} -days 1 -subj /CN=front-proxy-ca -keyout {pki}/front-ca.key -out {pki}/front-ca.crt"
        ),
        format!("openssl req {key} -subj /CN={FRONT} -keyout {pki}/front.key -out {pki}/front.csr"),
        format!(
            "openssl x509 -req -days 1 -in {pki}/front.csr -CA {pki}/front-ca.crt -CAkey {pki}/front-ca.key -CAcreateserial -extfile {pki}/front.ext -out {pki}/front.crt"
        ),
    ] {
        sh(&line)?;
    }
    Ok(())
}

fn kubeconfig_of(authority: &str, token: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "test",
        "contexts": [{"name": "test", "context": {"cluster": "test", "user": "user"}}],
        "clusters": [{"name": "test", "cluster": {"server": "https://127.0.0.1:6443", "certificate-authority": authority}}],
        "users": [{"name": "user", "user": {"token": token}}],
    })
}
