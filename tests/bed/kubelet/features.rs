//! What Kubernetes 1.37 has of pods that earlier releases have not, some of it behind gates, as a guest sees it: in a whole Kubernetes, whose API
//! server, kubelet and runtime all have to know of it.

use std::time::Duration;

use anyhow::{Result, ensure};
use proto::cri::{ListContainersRequest, ListImagesRequest};
use serde_json::{Value, json};
use tests::agent_image::tiny_with_agent;
use tests::case::{Bed, Case};
use tests::command::{command, run as run_to_end};
use tests::controllers::Controllers;
use tests::image_server::Fault;
use tests::kubelet::{Kubelet, gates};
use tests::node::Node;
use tests::wait::wait_for;

use super::whole::{self, STEP_DEADLINE, is_empty, runtime_class};

const DEADLINE: Duration = Duration::from_secs(600);
/// Those that are off by themselves.
const FEATURES: [&str; 4] =
    ["VolumeBindMountOptions", "EmptyDirVolumeMode", "AtomicWriteVolumeUserFields", "DefaultPodSysctls"];
/// One that is kubelet's alone: it names the handler of a pod's RuntimeClass when it pulls the pod's image.
const NAMES_HANDLER: &str = "RuntimeClassInImageCriApi";
/// Another one than the pod's, so that it is seen for which an image was pulled.
const SETTINGS: &str = "images.default_handler = 'plain'\nhandlers.virtlet.guest_agent = true";
/// As long as kubelet 1.37 hands it on. The API server takes one more, which kubelet cuts.
const HOST_NAME: &str = "a-host-name-that-a-pod-says-itself-and-that-is-lon.example.test";
const LABEL: &str = "a-host-name-that-a-pod-says-itself-and-that-is-lon";
/// Whom kubelet gives a file to.
const OWNER: u32 = 4321;
const SIGNER: &str = "example.test/machines";

pub(super) const CASES: &[Case] =
    &[Case { name: "kubelet::what_is_new_in_kubernetes_reaches_a_guest", deadline: DEADLINE, run }];

/// Of projected volumes: the authority that pods are to trust, and that signs their certificates.
struct Authority {
    /// Without its ending.
    file: String,
    certificate: String,
}

fn run(bed: &Bed) -> Result<()> {
    ensure!(HOST_NAME.len() == 63, "it has {} characters", HOST_NAME.len());
    let (node, cluster, mut plane) = whole::with_features(bed, SETTINGS, &FEATURES)?;
    let image = node.images.offer("agent.qcow2", &tiny_with_agent(bed)?, Fault::None);
    let mut settings = gates(&[&FEATURES[..], &[NAMES_HANDLER]].concat());
    settings["defaultPodSysctls"] = json!({"kernel.domainname": "of-the-node.test"});
    let kubelet = Kubelet::configured_in(bed, &cluster, &settings)?;
    kubelet.has_gates(&[NAMES_HANDLER])?;
    let authority = Authority::new(bed)?;
    plane.apply(&objects(&image, &authority))?;
    let certificate = authority.sign(&mut plane)?;

    // This guest calls itself by the first label of what its seed says, as cloud-init does on most distributions.
    let script = "hostname; awk '$1 == \"local-hostname\" { print $2 }' /run/cloud/meta.flat; cat /proc/sys/kernel/domainname; stat -c %a /scratch; stat -L -c %u /etc/words/word
        for dir in /scratch /free; do
            printf '#!/bin/sh\\necho ran\\n' >$dir/script && chmod 755 $dir/script && { $dir/script 2>/dev/null || echo held; }
        done";
    whole::says(&plane, "vm", script, &format!("{LABEL}\n{HOST_NAME}\nof-the-node.test\n1750\n{OWNER}\nheld\nran\n"))?;
    pulled_for_the_pods_handler(&node)?;
    let roots = plane.kubectl(&["exec", "vm", "--", "cat", "/srv/trust/roots.pem"])?;
    ensure!(roots.trim() == authority.certificate, "trust bundle: {roots}");
    let own = plane.kubectl(&["exec", "vm", "--", "cat", "/srv/trust/own.pem"])?;
    ensure!(own.contains("BEGIN PRIVATE KEY") && own.contains(&certificate), "the pod's certificate: {own}");

    plane.kubectl(&["delete", "pod", "vm", "--wait=false"])?;
    wait_for("end of the pod", STEP_DEADLINE, || Ok(is_empty(&mut plane)?.then_some(())))
}

/// By the gate kubelet knows an image by its handler as well, and takes it for one in use if the container's is the same.
fn pulled_for_the_pods_handler(node: &Node) -> Result<()> {
    let request = ListImagesRequest::default();
    let images = node.cri.image_call(|mut client| async move { client.list_images(request).await })?.images;
    let of_image: Vec<_> = images.into_iter().filter_map(|image| Some(image.spec?.runtime_handler)).collect();
    ensure!(of_image == ["virtlet"], "images of {of_image:?}");
    let request = ListContainersRequest::default();
    let containers = node.cri.call(|mut client| async move { client.list_containers(request).await })?.containers;
    let of_container: Vec<_> = containers.into_iter().filter_map(|one| Some(one.image?.runtime_handler)).collect();
    ensure!(of_container == of_image, "a container whose image is of {of_container:?}");
    Ok(())
}

impl Authority {
    fn new(bed: &Bed) -> Result<Self> {
        let file = bed.dir.join("authority").display().to_string();
        shell(&format!(
            "openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=roots -keyout {file}.key -out {file}.crt"
        ))?;
        let certificate = shell(&format!("cat {file}.crt"))?;
        Ok(Self { file, certificate })
    }

    /// Signs what kubelet asks for in the name of the pod, as a signer of a cluster does; what it has signed.
    fn sign(&self, plane: &mut Controllers) -> Result<String> {
        let request = wait_for("request for the pod's certificate", STEP_DEADLINE, || {
            let list: Value =
                serde_json::from_str(&plane.kubectl(&["get", "podcertificaterequests", "-o", "json"])?)?;
            Ok(list.pointer("/items/0").cloned())
        })?;
        let text = |path: &str| request.pointer(path).and_then(Value::as_str).unwrap_or_default().to_owned();
        let (name, asked) = (text("/metadata/name"), text("/spec/stubPKCS10Request"));
        ensure!(text("/spec/signerName") == SIGNER && text("/spec/podName") == "vm", "{request}");
        let Self { file, .. } = self;
        let certificate = shell(&format!(
            "echo {asked} | base64 -d >{file}-pod.csr
             openssl x509 -req -inform DER -in {file}-pod.csr -CA {file}.crt -CAkey {file}.key -CAcreateserial -days 1 -out {file}-pod.crt
             cat {file}-pod.crt"
        ))?;
        let date = |what: &str, later: &str| {
            let line = format!("openssl x509 -in {file}-pod.crt -noout -{what} | cut -d = -f 2");
            shell(&format!("date -u -d \"$({line}) {later}\" +%Y-%m-%dT%H:%M:%SZ"))
        };
        let (since, until, again) = (date("startdate", "")?, date("enddate", "")?, date("startdate", "+ 12 hours")?);
        let issued = json!({
            "type": "Issued", "status": "True", "reason": "Signed", "message": "by the test", "lastTransitionTime": since,
        });
        let status = json!({
            "conditions": [issued], "certificateChain": certificate, "notBefore": since, "notAfter": until,
            "beginRefreshAt": again,
        });
        let patch = json!({"status": status}).to_string();
        let patched = ["patch", "podcertificaterequest", &name, "--subresource=status", "--type=merge", "-p", &patch];
        plane.kubectl(&patched)?;
        Ok(certificate)
    }
}

fn shell(script: &str) -> Result<String> {
    let said = run_to_end(&mut command("/bin/sh", ["-ec", script]))?;
    Ok(said.trim().to_owned())
}

fn objects(image: &str, authority: &Authority) -> [Value; 4] {
    let mut pod = whole::pod("vm", image);
    let spec = &mut pod["spec"];
    spec["hostnameOverride"] = json!(HOST_NAME);
    // Certificates are of service accounts.
    spec["serviceAccountName"] = json!("default");
    spec["containers"][0]["volumeMounts"] = json!([
        {"name": "scratch", "mountPath": "/scratch", "bindMountOptions": ["noexec"]},
        {"name": "free", "mountPath": "/free"},
        {"name": "words", "mountPath": "/etc/words"},
        {"name": "trust", "mountPath": "/srv/trust"},
    ]);
    let sources = json!([
        {"clusterTrustBundle": {"name": "roots", "path": "roots.pem"}},
        {"podCertificate": {"signerName": SIGNER, "keyType": "ECDSAP256", "credentialBundlePath": "own.pem"}},
    ]);
    spec["volumes"] = json!([
        {"name": "scratch", "emptyDir": {"mode": 0o1750}},
        {"name": "free", "emptyDir": {}},
        {"name": "words", "configMap": {"name": "words", "defaultUser": OWNER}},
        {"name": "trust", "projected": {"sources": sources}},
    ]);
    let words =
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "words"}, "data": {"word": "said\n"}});
    let roots = json!({
        "apiVersion": "certificates.k8s.io/v1", "kind": "ClusterTrustBundle", "metadata": {"name": "roots"},
        "spec": {"trustBundle": format!("{}\n", authority.certificate)},
    });
    [runtime_class(), words, roots, pod]
}
