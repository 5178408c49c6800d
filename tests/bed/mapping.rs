//! Tier `mapping`: translation rules from a real API server.

use std::fs;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use proto::cri::{ImageFsInfoRequest, VersionRequest};
use serde_json::{Value, json};
use tests::case::{Bed, Case};
use tests::cluster::Cluster;
use tests::cri::Cri;
use tests::daemon::Daemon;
use tests::image_server::{Fault, HOST, ImageServer};
use tests::wait::wait_for;
use tonic::Code;

const DEADLINE: Duration = Duration::from_secs(480);
const START_DEADLINE: Duration = Duration::from_secs(60);
/// A watch tells at once; after a restart of the server the daemon may pause for half a minute.
const NEWS_DEADLINE: Duration = Duration::from_secs(90);

const CRDS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const SOCKET: &str = "/run/virtlet/cri.sock";

pub(crate) const CASES: &[Case] = &[
    Case { name: "mapping::rules_follow_the_objects_of_a_cluster", deadline: DEADLINE, run: follow },
    Case { name: "mapping::controld_starts_before_its_cluster", deadline: DEADLINE, run: start_first },
];

fn follow(bed: &Bed) -> Result<()> {
    let images = ImageServer::start()?;
    let mut cluster = Cluster::start(bed)?;
    install(&cluster)?;
    offer(bed, &images, "one.img")?;
    offer(bed, &images, "two.img")?;
    let objects = objects("kube-system");
    cluster.apply(&objects, &mapping("primary", &json!({"translations": [rule("cluster/a", "one.img")]})))?;
    let node = Node::start(bed, &cluster.kubeconfig)?;

    // The start waited for the list.
    node.cri.pull("cluster/a")?;
    ensure!(images.downloads("one.img") == 1, "not by the rule");

    // Changed, and by regexp; another object beside it.
    let regexp = json!({"regexp": "^cluster/(.*)$", "url": format!("http://{HOST}/$1.img")});
    cluster.apply(&objects, &mapping("primary", &json!({"translations": [regexp.clone()]})))?;
    node.wait_pull("cluster/two")?;
    cluster.apply(&objects, &mapping("other", &json!({"prefix": "o", "translations": [rule("x", "one.img")]})))?;
    node.wait_pull("o/x")?;

    // What the schema refuses never gets here; what it cannot judge spoils only itself, and is in the log.
    let invalid = [
        json!({"translations": [{"name": "x"}]}),
        json!({"translations": [{"url": "https://h.example/x"}]}),
        json!({"translations": {"name": "x"}}),
        json!({"translations": [{"name": "x", "url": "h.example", "digest": "sha256:12"}]}),
        json!({"tranlations": []}),
        json!({"transports": {"t": {"timeout": "soon"}}}),
    ];
    for spec in invalid {
        let refused = cluster.apply(&objects, &mapping("invalid", &spec));
        ensure!(refused.is_err(), "the server took {spec}");
    }
    let secret = "https://user:hunter2@h.example/";
    let bad = json!({"translations": [
        {"regexp": "(", "url": secret}, {"name": "y", "url": secret, "transport": "none"}, rule("cluster/good", "one.img"),
    ]});
    cluster.apply(&objects, &mapping("bad", &bad))?;
    node.wait_pull("cluster/good")?;
    node.wait_log("rule 1 of mapping `bad` is not used: its `regexp` cannot be used: unclosed group")?;
    node.wait_log("rule 2 of mapping `bad` is not used: transport profile `none` is not defined")?;

    // Another namespace has no say.
    cluster.apply(&self::objects("default"), &mapping("foreign", &json!({"translations": [rule("f", "one.img")]})))?;

    // The server goes: what is known stays. It comes again: so does the news.
    cluster.apiserver.kill9()?;
    node.cri.pull("cluster/two")?;
    node.wait_log("image mappings of the cluster not watched")?;
    cluster.apiserver.start_again()?;
    cluster.wait_ready()?;
    cluster.apply(&objects, &mapping("later", &json!({"prefix": "l", "translations": [rule("x", "two.img")]})))?;
    node.wait_pull("l/x")?;
    ensure!(node.cri.pull("f").is_err(), "a rule of another namespace");

    // Deleted while the daemon watches, and while it does not.
    cluster.delete(&format!("{objects}/later"))?;
    node.wait_refused("l/x")?;
    cluster.delete(&format!("{objects}/other"))?;
    node.wait_refused("o/x")?;
    let log = node.controld.log()?;
    ensure!(!log.contains("hunter2") && !log.contains("node-token"), "a secret in the log");
    Ok(())
}

fn start_first(bed: &Bed) -> Result<()> {
    let images = ImageServer::start()?;
    offer(bed, &images, "one.img")?;
    let kubeconfig = bed.dir.join("cluster").join("node.kubeconfig");
    // Neither a server nor a kubeconfig is there.
    let node = Node::start(bed, &kubeconfig)?;
    // It waits a while for the cluster all the same, and says so: its socket is there first.
    ensure!(node.heard.contains("it waits for the image mappings of the cluster"), "while it started: {}", node.heard);
    ensure!(node.cri.pull("cluster/a").is_err(), "there are no rules yet");
    // A server without the definition, and where nodes may not read it; then with both.
    let cluster = Cluster::start(bed)?;
    node.wait_log("is forbidden")?;
    install(&cluster)?;
    let objects = objects("kube-system");
    cluster.apply(&objects, &mapping("primary", &json!({"translations": [rule("cluster/a", "one.img")]})))?;
    node.wait_pull("cluster/a")
}

/// `controld` alone: rules and images need neither libvirt nor a network.
struct Node {
    controld: Daemon,
    cri: Cri,
    /// What calls were refused with while it started.
    heard: String,
}

impl Node {
    fn start(bed: &Bed, kubeconfig: &Path) -> Result<Self> {
        let config = bed.dir.join("controld.toml");
        let text = format!(
            "[images]\nprotocol = 'http'\nuntranslated = false\nallow_raw = true\nregexp_translations = true\n\
             kube_mappings = true\nkubeconfig = '{}'\n[images.network]\nallow_loopback = true\n\
             [log]\nlevel = 'info,controld=debug,imagestore=debug'\n",
            kubeconfig.display()
        );
        fs::write(&config, text)?;
        let args = ["run", "--config", &*config.to_string_lossy()].map(str::to_owned);
        let mut controld = Daemon::start("controld", bed.program("controld"), args, bed.logs().join("controld.log"))?;
        wait_for("CRI socket", START_DEADLINE, || {
            controld.still_runs()?;
            // It is there a moment before anybody listens.
            Ok(UnixStream::connect(SOCKET).ok().map(drop))
        })?;
        let cri = Cri::new(Path::new(SOCKET))?;
        let mut heard = String::new();
        wait_for("answer of the image service", START_DEADLINE, || {
            controld.still_runs()?;
            let version = cri.call(|mut client| async move { client.version(VersionRequest::default()).await })?;
            ensure!(version.runtime_name == "virtlet", "{version:?}");
            match cri.image_call(|mut client| async move { client.image_fs_info(ImageFsInfoRequest {}).await }) {
                Ok(_) => Ok(Some(())),
                Err(not_yet) => {
                    ensure!(not_yet.code() == Code::Unavailable, "{not_yet}");
                    if !heard.contains(not_yet.message()) {
                        heard.push_str(not_yet.message());
                        heard.push('\n');
                    }
                    Ok(None)
                }
            }
        })?;
        Ok(Self { controld, cri, heard })
    }

    /// Waits until an image of that name can be pulled.
    fn wait_pull(&self, name: &str) -> Result<()> {
        let mut said = String::new();
        let pulled = wait_for(&format!("rule for `{name}`"), NEWS_DEADLINE, || match self.cri.pull(name) {
            Ok(_) => Ok(Some(())),
            Err(not_yet) => {
                said = not_yet.message().to_owned();
                Ok(None)
            }
        });
        pulled.context(said)
    }

    /// Waits until there is no rule for that name.
    fn wait_refused(&self, name: &str) -> Result<()> {
        wait_for(&format!("end of the rule for `{name}`"), NEWS_DEADLINE, || {
            Ok(self.cri.pull(name).is_err_and(|said| said.message().contains("no translation rule")).then_some(()))
        })
    }

    fn wait_log(&self, text: &str) -> Result<()> {
        wait_for(&format!("`{text}` in the log"), NEWS_DEADLINE, || {
            Ok(self.controld.log()?.contains(text).then_some(()))
        })
    }
}

fn offer(bed: &Bed, images: &ImageServer, name: &str) -> Result<()> {
    let path = bed.dir.join(name);
    // Different bytes, and of no known format: a raw disk.
    fs::write(&path, name.repeat(1 << 17))?;
    images.offer(name, &path, Fault::None);
    Ok(())
}

/// Applies the definition and the nodes' rights as they are delivered, and waits until objects can be made.
fn install(cluster: &Cluster) -> Result<()> {
    for rights in serde_saphyr::from_multiple::<Value>(include_str!("../../deploy/rbac-virtletimagemapping.yaml"))? {
        let kinds = rights["kind"].as_str().context("no kind")?.to_lowercase();
        cluster.apply(&format!("/apis/rbac.authorization.k8s.io/v1/namespaces/kube-system/{kinds}s"), &rights)?;
    }
    let manifest = include_str!("../../deploy/crd-virtletimagemapping.yaml");
    let manifest: Value = serde_saphyr::from_str(manifest)?;
    let applied = cluster.apply(CRDS, &manifest)?;
    let name = applied.pointer("/metadata/name").and_then(Value::as_str).context("no name")?;
    wait_for("established definition", START_DEADLINE, || {
        let now = cluster.get(&format!("{CRDS}/{name}"))?;
        let conditions = now.pointer("/status/conditions").and_then(Value::as_array).cloned().unwrap_or_default();
        // Also says what is not structural in the schema.
        ensure!(conditions.iter().all(|of| of["type"] != "NonStructuralSchema"), "{conditions:?}");
        let established = |of: &Value| of["type"] == "Established" && of["status"] == "True";
        Ok(conditions.iter().any(established).then_some(()))
    })
}

fn objects(namespace: &str) -> String {
    format!("/apis/virtlet.k8s/v1/namespaces/{namespace}/virtletimagemappings")
}

fn mapping(name: &str, spec: &Value) -> Value {
    json!({"apiVersion": "virtlet.k8s/v1", "kind": "VirtletImageMapping", "metadata": {"name": name}, "spec": spec})
}

fn rule(name: &str, file: &str) -> Value {
    json!({"name": name, "url": format!("http://{HOST}/{file}")})
}
