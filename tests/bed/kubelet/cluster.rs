//! A Deployment of machines in a whole Kubernetes: API server, controllers, scheduler, kubelet and kubectl, all real.

use std::fs::{self, File};
use std::net::IpAddr;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use tests::agent_image::tiny_with_agent;
use tests::case::{Bed, Case};
use tests::command::{TOOL_DEADLINE, finish};
use tests::controllers::Controllers;
use tests::http;
use tests::image_server::Fault;
use tests::kubelet::Kubelet;
use tests::metrics_server::MetricsServer;
use tests::node::{BOOT_DEADLINE, Node};
use tests::terminal;
use tests::wait::wait_for;

use super::whole::{self, STEP_DEADLINE, is_empty, is_ready, runtime_class, seen};

/// A whole Kubernetes starts, and two machines boot beside it.
const DEADLINE: Duration = Duration::from_secs(720);
const REPLICAS: usize = 2;

pub(super) const CASES: &[Case] =
    &[Case { name: "kubelet::a_deployment_of_machines_in_a_whole_cluster", deadline: DEADLINE, run }];

fn run(bed: &Bed) -> Result<()> {
    let settings = "[handlers.virtlet]\nguest_agent = true\nhost_path = 'deny'";
    let (node, cluster, mut plane) = whole::start(bed, settings)?;
    let image = node.images.offer("agent.qcow2", &tiny_with_agent(bed)?, Fault::None);
    let mut metrics = MetricsServer::start(bed, &cluster)?;
    let _kubelet = Kubelet::start_in(bed, &cluster)?;
    plane.apply(&objects(&image))?;

    let pods = ready_pods(&mut plane, REPLICAS)?;
    reachable(&mut plane, &pods)?;
    let (name, _) = pods.first().context("no pod")?;
    followed(bed, &plane, name)?;
    terminal::answers(bed, &mut plane.command(&["attach", "--stdin", name]))?;
    let answer = whole::forwarded(bed, &plane, name, "/cgi-bin/info")?;
    ensure!(answer.contains("cpus 1"), "not the guest: {answer}");
    commanded(bed, &mut plane, name)?;
    mounted(&mut plane, name)?;
    kept_out(&mut plane, &image)?;
    counted(&mut plane, name)?;
    resized(&node, &mut plane, name)?;

    // A pod that is deleted is replaced; a Deployment that is deleted leaves nothing.
    plane.kubectl(&["delete", "pod", name, "--wait=false"])?;
    wait_for("pod in its place", STEP_DEADLINE, || {
        let now = ready_pods(&mut plane, REPLICAS)?;
        Ok((!now.iter().any(|(other, _)| other == name)).then_some(()))
    })?;
    autoscaled(&mut plane)?;
    metrics.still_runs()?;
    plane.kubectl(&["delete", "deployment", "vm", "--wait=false"])?;
    wait_for("end of all machines", STEP_DEADLINE, || Ok(is_empty(&mut plane)?.then_some(())))
}

/// Names and addresses of the pods once so many are ready by their HTTP probes.
fn ready_pods(plane: &mut Controllers, count: usize) -> Result<Vec<(String, IpAddr)>> {
    wait_for("ready pods", STEP_DEADLINE, || {
        let list: Value = serde_json::from_str(&plane.kubectl(&["get", "pods", "-o", "json"])?)?;
        let ready = list["items"].as_array().into_iter().flatten().filter(|pod| is_ready(pod));
        let told = ready.filter_map(|pod| {
            let ip = pod.pointer("/status/podIP")?.as_str()?.parse().ok()?;
            Some((pod.pointer("/metadata/name")?.as_str()?.to_owned(), ip))
        });
        let pods: Vec<_> = told.collect();
        Ok((pods.len() == count).then_some(pods))
    })
}

/// The Service leads to the machines.
fn reachable(plane: &mut Controllers, pods: &[(String, IpAddr)]) -> Result<()> {
    let mut expected: Vec<IpAddr> = pods.iter().map(|(_, ip)| *ip).collect();
    expected.sort_unstable();
    let slices = ["get", "endpointslices", "-l", "kubernetes.io/service-name=vm", "-o", "json"];
    wait_for("machines behind the Service", STEP_DEADLINE, || {
        let list: Value = serde_json::from_str(&plane.kubectl(&slices)?)?;
        let endpoints = list.pointer("/items/0/endpoints").and_then(Value::as_array);
        let ready =
            endpoints.into_iter().flatten().filter(|one| one.pointer("/conditions/ready") == Some(&json!(true)));
        let mut found: Vec<IpAddr> =
            ready.filter_map(|one| one.pointer("/addresses/0")?.as_str()?.parse().ok()).collect();
        found.sort_unstable();
        Ok((found == expected).then_some(()))
    })?;
    for ip in expected {
        ensure!(http::get(ip, "/cgi-bin/info")?.contains("cpus 1"), "not the guest at {ip}");
    }
    Ok(())
}

/// `kubectl logs -f` shows the machine's console.
fn followed(bed: &Bed, plane: &Controllers, name: &str) -> Result<()> {
    let log = bed.dir.join("followed");
    let mut follower = plane.command(&["logs", "-f", name]).stdin(Stdio::null()).stdout(File::create(&log)?).spawn()?;
    let shown = wait_for("console in kubectl logs", BOOT_DEADLINE, || {
        Ok(fs::read_to_string(&log)?.contains("tiny: ready").then_some(()))
    });
    follower.kill()?;
    follower.wait()?;
    shown
}

/// `kubectl exec`, with input and an exit code, and `kubectl cp` both ways.
fn commanded(bed: &Bed, plane: &mut Controllers, name: &str) -> Result<()> {
    let said = plane.kubectl(&["exec", name, "--", "sh", "-c", "echo $KUBERNETES_SERVICE_PORT; hostname"])?;
    ensure!(said == format!("443\n{name}\n"), "{said:?}");
    let failed = finish(&mut plane.command(&["exec", name, "--", "sh", "-c", "exit 7"]), TOOL_DEADLINE)?;
    ensure!(failed.code == Some(7), "{failed:?}");
    let (file, again) = (bed.dir.join("sent"), bed.dir.join("received"));
    let bytes: Vec<u8> = (0..1_000_000_u32).flat_map(u32::to_le_bytes).collect();
    fs::write(&file, &bytes)?;
    // Bounded by the case's own deadline.
    let counted = plane.command(&["exec", "-i", name, "--", "wc", "-c"]).stdin(File::open(&file)?).output()?;
    ensure!(String::from_utf8_lossy(&counted.stdout).trim() == bytes.len().to_string(), "{counted:?}");
    plane.kubectl(&["cp", &file.to_string_lossy(), &format!("{name}:/tmp/file")])?;
    plane.kubectl(&["cp", &format!("{name}:/tmp/file"), &again.to_string_lossy()])?;
    ensure!(fs::read(&again)? == bytes, "what came back is not what was sent");
    Ok(())
}

/// The guest has the pod's volumes, as kubelet makes them, and sees a ConfigMap change.
fn mounted(plane: &mut Controllers, name: &str) -> Result<()> {
    let script = "cat /etc/app/word; stat -L -c %a /etc/app-secret/key; cat /etc/app-secret/key /etc/word.conf; echo x >/scratch/x && \
                  cat /scratch/x; { echo x >/etc/app/new; } 2>&1 | grep -o Read-only";
    let said = plane.kubectl(&["exec", name, "--", "sh", "-c", script])?;
    ensure!(said == "first\n400\nhidden\nfirst\nx\nRead-only\n", "{said:?}");
    plane.kubectl(&["patch", "configmap", "app", "--patch", &json!({"data": {"word": "second\n"}}).to_string()])?;
    wait_for("the other ConfigMap", STEP_DEADLINE, || {
        Ok((plane.kubectl(&["exec", name, "--", "cat", "/etc/app/word"])? == "second\n").then_some(()))
    })
}

/// `kubectl top` has the machine.
fn counted(plane: &mut Controllers, name: &str) -> Result<()> {
    let mut last = String::new();
    wait_for("usage of the machine", STEP_DEADLINE, || {
        let ended = finish(&mut plane.command(&["top", "pod", name, "--no-headers"]), TOOL_DEADLINE)?;
        last = format!("{}{}", ended.stdout, ended.stderr);
        let mut words = ended.stdout.split_whitespace().skip(1);
        let mut number = |unit| words.next()?.strip_suffix(unit)?.parse::<u64>().ok();
        let (cpu, memory) = (number("m"), number("Mi"));
        // Less than a guest that has booted holds is none.
        Ok((cpu.is_some_and(|cpu| cpu > 0) && memory.is_some_and(|memory| memory > 50)).then_some(()))
    })
    .with_context(|| last)
}

/// An autoscaler that finds the machines busy starts another one.
fn autoscaled(plane: &mut Controllers) -> Result<()> {
    let most = (REPLICAS + 1).to_string();
    plane.kubectl(&[
        "autoscale",
        "deployment",
        "vm",
        "--cpu=1m",
        &format!("--min={REPLICAS}"),
        &format!("--max={most}"),
    ])?;
    let pods = ready_pods(plane, REPLICAS + 1);
    pods.with_context(|| plane.kubectl(&["describe", "hpa", "vm"]).unwrap_or_default())?;
    plane.kubectl(&["delete", "hpa", "vm"]).map(drop)
}

/// A pod's resources are changed while its machine runs.
fn resized(node: &Node, plane: &mut Controllers, name: &str) -> Result<()> {
    let resources = json!({"requests": {"cpu": "700m"}, "limits": {"cpu": "700m"}});
    let patch = json!({"spec": {"containers": [{"name": "vm", "resources": resources}]}});
    plane.kubectl(&["patch", "pod", name, "--subresource", "resize", "--patch", &patch.to_string()])?;
    let mut last = Value::Null;
    wait_for("resized pod", STEP_DEADLINE, || {
        last = seen(plane, name)?;
        let status = last.pointer("/status/containerStatuses/0").context("no status")?;
        ensure!(status["restartCount"] == json!(0), "{status}");
        Ok((status.pointer("/resources/limits/cpu") == Some(&json!("700m"))).then_some(()))
    })
    .with_context(|| last["status"].to_string())?;
    let id = last.pointer("/status/containerStatuses/0/containerID").and_then(Value::as_str).context("no id")?;
    let quota = node.cri.container(id.rsplit('/').next().unwrap_or_default())?;
    let quota = quota.resources.and_then(|resources| resources.linux).map(|linux| linux.cpu_quota);
    ensure!(quota == Some(70_000), "controld has a quota of {quota:?}");
    Ok(())
}

/// kubelet binds a `subPath` of the node's own directory below the pod's, as those of volumes. It is none.
fn kept_out(plane: &mut Controllers, image: &str) -> Result<()> {
    let intruder = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "intruder"},
        "spec": {
            "runtimeClassName": "virtlet",
            "containers": [{
                "name": "vm", "image": image, "imagePullPolicy": "IfNotPresent",
                "resources": {"limits": {"memory": "160Mi", "cpu": "500m"}},
                "volumeMounts": [
                    {"name": "app", "mountPath": "/etc/app"},
                    {"name": "node", "mountPath": "/node", "subPath": "etc", "readOnly": true},
                ],
            }],
            "volumes": [
                {"name": "app", "configMap": {"name": "app"}},
                {"name": "node", "hostPath": {"path": "/"}},
            ],
        },
    });
    plane.apply(&[intruder])?;
    let query = ["get", "pod", "intruder", "-o", "jsonpath={.status.containerStatuses[0].state.waiting.message}"];
    wait_for("refusal of the node's directory", STEP_DEADLINE, || {
        let told = plane.kubectl(&query)?;
        Ok(told.contains("volume mount at `/node`: a `hostPath` is not allowed").then_some(()))
    })?;
    plane.kubectl(&["delete", "pod", "intruder", "--wait=false"]).map(drop)
}

fn objects(image: &str) -> [Value; 5] {
    let labels = json!({"app": "vm"});
    let deployment = json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "vm"},
        "spec": {
            "replicas": REPLICAS, "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels},
                "spec": {
                    "runtimeClassName": "virtlet", "terminationGracePeriodSeconds": 10,
                    "containers": [{
                        "name": "vm", "image": image, "imagePullPolicy": "IfNotPresent",
                        "resources": {"limits": {"memory": "160Mi", "cpu": "500m"}},
                        "volumeMounts": [
                            {"name": "app", "mountPath": "/etc/app", "readOnly": true},
                            {"name": "app", "mountPath": "/etc/word.conf", "subPath": "word"},
                            {"name": "secret", "mountPath": "/etc/app-secret"},
                            {"name": "scratch", "mountPath": "/scratch"},
                        ],
                        "readinessProbe": {"httpGet": {"port": 80, "path": "/cgi-bin/info"}, "periodSeconds": 2},
                    }],
                    "volumes": [
                        {"name": "app", "configMap": {"name": "app"}},
                        {"name": "secret", "secret": {"secretName": "app", "defaultMode": 0o400}},
                        {"name": "scratch", "emptyDir": {}},
                    ],
                },
            },
        },
    });
    let service = json!({
        "apiVersion": "v1", "kind": "Service", "metadata": {"name": "vm"},
        "spec": {"selector": labels, "ports": [{"port": 80}]},
    });
    let config =
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "app"}, "data": {"word": "first\n"}});
    let secret =
        json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "app"}, "stringData": {"key": "hidden\n"}});
    [runtime_class(), config, secret, deployment, service]
}
