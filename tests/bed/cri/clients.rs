//! crictl and virtletctl, from pull to remove.

use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use serde_json::json;
use tests::case::{Bed, Case};
use tests::command::{Ended, TOOL_DEADLINE, command, finish};
use tests::cri;
use tests::http;
use tests::image_server::Fault;
use tests::libvirt::running_domains;
use tests::node::{BOOT_DEADLINE, CRI_SOCKET, Node};
use tests::terminal;
use tests::wait::{wait_for, wait_until};
use tests::world::World;

use super::crictl::Seen;
use super::forward;

const DEADLINE: Duration = Duration::from_secs(480);

pub(super) const CASES: &[Case] = &[
    Case { name: "cri::crictl_runs_a_pod", deadline: DEADLINE, run: crictl },
    Case { name: "cri::virtletctl_runs_a_machine", deadline: DEADLINE, run: virtletctl },
];

fn crictl(bed: &Bed) -> Result<()> {
    let node = Node::start(bed)?;
    let before = World::look()?;
    let image = node.images.offer("tiny.qcow2", &bed.config.guest("tiny.qcow2")?, Fault::None);
    let ok = |args: &[&str]| -> Result<String> {
        let ended = node.crictl(args)?;
        ensure!(ended.code == Some(0), "crictl {args:?}: {}{}", ended.stdout, ended.stderr);
        Ok(ended.stdout.trim().to_owned())
    };

    ensure!(ok(&["version"])?.contains("virtlet"), "another runtime");
    ensure!(ok(&["info"])?.contains("RuntimeReady"), "no conditions");
    ok(&["pull", &image])?;
    ensure!(ok(&["images"])?.contains("tiny.qcow2"), "the image is not listed");
    let inspected: serde_json::Value = serde_json::from_str(&ok(&["inspecti", &image])?)?;
    ensure!(inspected.pointer("/status/id").is_some(), "{inspected}");
    ok(&["imagefsinfo"])?;

    let (pod, container) = configs(bed, &image, "crictl")?;
    let sandbox = ok(&["runp", &pod])?;
    let id = ok(&["create", &sandbox, &container, &pod])?;
    ensure!(ok(&["ps", "-a"])?.contains("Created"), "not created");
    ok(&["start", &id])?;
    ensure!(ok(&["ps", "-q"])? == id && ok(&["pods", "-q"])? == sandbox, "not listed");
    let inspected: serde_json::Value = serde_json::from_str(&ok(&["inspectp", &sandbox])?)?;
    let ip = inspected.pointer("/status/network/ip").and_then(|ip| ip.as_str()).context("no IP")?.parse()?;
    wait_until("HTTP answer", BOOT_DEADLINE, || http::get(ip, "/cgi-bin/info").is_ok())?;
    let inspected: serde_json::Value = serde_json::from_str(&ok(&["inspect", &id])?)?;
    ensure!(inspected.pointer("/status/state") == Some(&json!("CONTAINER_RUNNING")), "{inspected}");
    wait_for("console in crictl logs", BOOT_DEADLINE, || {
        Ok(ok(&["logs", &id])?.contains("tiny: ready").then_some(()))
    })?;
    let (endpoint, client) = (format!("unix://{CRI_SOCKET}"), bed.config.peer("crictl")?);
    let attach = ["--runtime-endpoint", &endpoint, "attach", "--stdin", &id];
    terminal::answers(bed, &mut command(client, attach))?;
    for transport in ["spdy", "websocket"] {
        forward::by_crictl(bed, &sandbox, transport)?;
    }
    let stats: serde_json::Value = serde_json::from_str(&ok(&["stats", "-o", "json", "--id", &id[..13]])?)?;
    for figure in ["/cpu/usageCoreNanoSeconds", "/memory/workingSetBytes", "/writableLayer/usedBytes"] {
        let value = stats.pointer(&format!("/stats/0{figure}/value")).and_then(|value| value.as_str());
        ensure!(value.is_some_and(|value| value != "0"), "no `{figure}` in {stats}");
    }
    let stats: serde_json::Value = serde_json::from_str(&ok(&["statsp", "-o", "json", "--id", &sandbox])?)?;
    ensure!(stats.pointer("/stats/0/linux/containers/0/attributes/id") == Some(&json!(id)), "{stats}");

    let seen = Seen { node: &node, image: &image, sandbox: &sandbox, container: &id };
    seen.looks()?;
    let (second, container) = configs(bed, &image, "second")?;
    seen.shortcuts(bed, &container, &second)?;

    ok(&["stop", "--timeout", "30", &id])?;
    ensure!(ok(&["ps", "-a"])?.contains("Exited"), "not exited");
    ok(&["rm", &id])?;
    ok(&["stopp", &sandbox])?;
    ok(&["rmp", &sandbox])?;
    ok(&["rmi", &image])?;
    ensure!(ok(&["ps", "-aq"])?.is_empty() && ok(&["pods", "-q"])?.is_empty(), "still listed");
    ensure!(ok(&["images", "-q"])?.is_empty(), "the image is still listed");
    for gone in [vec!["stop", &id], vec!["stopp", &sandbox]] {
        // As kubelet needs it: what is gone is stopped.
        let ended = node.crictl(&gone)?;
        ensure!(ended.code == Some(0) || ended.stderr.contains("NotFound"), "{gone:?}: {}", ended.stderr);
    }
    before.assert_same()
}

fn virtletctl(bed: &Bed) -> Result<()> {
    let node = Node::start(bed)?;
    let before = World::look()?;
    let image = node.images.offer("tiny.qcow2", &bed.config.guest("tiny.qcow2")?, Fault::None);
    let run = |args: &[&str]| -> Result<Ended> {
        let mut virtletctl = command(bed.program("virtletctl"), ["--socket", CRI_SOCKET]);
        finish(virtletctl.args(args), TOOL_DEADLINE)
    };
    let ok = |args: &[&str]| -> Result<String> {
        let ended = run(args)?;
        ensure!(ended.code == Some(0), "virtletctl {args:?}: {}{}", ended.stdout, ended.stderr);
        Ok(format!("{}{}", ended.stdout, ended.stderr))
    };

    let said = ok(&["run", &image, "--name", "mine", "--memory", "420Mi", "--cpus", "1", "-e", "A=b"])?;
    let ip = said.split(|c: char| !(c.is_ascii_digit() || c == '.')).find(|word| word.starts_with("10.77.0."));
    let ip = ip.with_context(|| format!("no IP in: {said}"))?.parse()?;
    wait_until("HTTP answer", BOOT_DEADLINE, || {
        http::get(ip, "/cgi-bin/info").is_ok_and(|info| info.contains("cpus 1"))
    })?;
    ensure!(ok(&["ps"])?.contains("mine"), "not listed: {}", ok(&["ps"])?);
    let phase = ["get", "pod/mine", "-o", "jsonpath={.status.phase}"];
    ensure!(ok(&phase)? == "Running", "get: {}", ok(&phase)?);
    ensure!(ok(&["image", "ls"])?.contains("tiny.qcow2"), "the image is not listed");
    wait_for("console in virtletctl logs", BOOT_DEADLINE, || {
        Ok(ok(&["logs", "mine"])?.contains("tiny: ready").then_some(()))
    })?;
    ensure!(ok(&["top", "-o", "name"])? == "default/mine\n", "top: {}", ok(&["top"])?);
    ensure!(ok(&["stop", "-t", "0", "mine"])? == "mine\n" && running_domains()?.is_empty(), "still runs");
    ensure!(ok(&["ps", "-o", "name", "--field-selector", "state=Exited"])? == "default/mine\n", "not exited");
    let off = run(&["kill", "mine"])?;
    ensure!(off.code == Some(1) && off.stderr.contains("does not run"), "kill of what is off: {off:?}");
    ensure!(ok(&["wait", "mine"])?.trim().parse::<i32>().is_ok(), "wait: {}", ok(&["wait", "mine"])?);
    ok(&["start", "mine"])?;
    ensure!(ok(&["logs", "-p", "mine"])?.contains("tiny: ready"), "no log of the start before");
    wait_until("HTTP answer after the second start", BOOT_DEADLINE, || http::get(ip, "/cgi-bin/info").is_ok())?;
    forward::by_virtletctl(bed, "mine")?;
    let inspected: serde_json::Value = serde_json::from_str(&ok(&["inspect", "mine"])?)?;
    let machines = inspected.pointer("/0/machines").context("no machines")?;
    ensure!(machines.pointer("/0/attempt") == Some(&json!(1)) && machines.get(1).is_none(), "{inspected}");
    let kept = machines.pointer("/0/annotations/virtlet.cloud~1made-with").and_then(|kept| kept.as_str());
    ensure!(
        kept.is_some_and(|kept| kept.contains(r#"["A","(hidden)"]"#)),
        "the second start has no variable: {inspected}"
    );
    let described = ok(&["describe", "pod", "mine"])?;
    ensure!(described.contains("State: ") && described.contains("vCPUs"), "describe: {described}");
    ensure!(ok(&["wait", "--for", "running", "mine"])? == "mine\n", "it runs, and is waited for");
    let elsewhere = run(&["apply", "-f", "x"])?;
    ensure!(elsewhere.code == Some(2) && elsewhere.stderr.contains("`virtletctl run IMAGE`"), "apply: {elsewhere:?}");
    ensure!(
        ok(&["ps", "-l", "!no-such-label", "-o", "wide"])?.contains("tiny.qcow2"),
        "{}",
        ok(&["ps", "-o", "wide"])?
    );
    let refused = run(&["rm", "mine"])?;
    ensure!(refused.code == Some(1) && refused.stderr.contains("`virtletctl stop`"), "rm of what runs: {refused:?}");
    ensure!(http::get(ip, "/cgi-bin/info").is_ok(), "the machine that was not to be removed does not answer");
    ok(&["delete", "pod/mine", "--force", "--grace-period=0"])?;
    ensure!(!ok(&["ps"])?.contains("mine") && running_domains()?.is_empty(), "still there");
    let refused = run(&["run", "UPPER/Case"])?;
    ensure!(refused.code != Some(0) && !refused.stderr.is_empty(), "an image name in upper case was taken");
    ok(&["image", "rm", &image])?;
    ensure!(!ok(&["image", "ls"])?.contains("tiny.qcow2"), "the image is still listed");
    before.assert_same()
}

/// The two files that crictl wants.
fn configs(bed: &Bed, image: &str, name: &str) -> Result<(String, String)> {
    let logs = bed.dir.join("podlogs").join(name);
    fs::create_dir_all(&logs)?;
    let pod = json!({
        "metadata": {"name": name, "uid": format!("{name}-uid-1"), "namespace": "default", "attempt": 0},
        "hostname": name, "log_directory": logs,
        "linux": {"overhead": {"memory_limit_in_bytes": cri::POD_FIXED}},
        "dns_config": {"servers": ["10.96.0.10"], "searches": ["cluster.test"]},
    });
    let container = json!({
        "metadata": {"name": "vm"}, "image": {"image": image}, "log_path": "vm.log", "stdin": true, "tty": false,
        "linux": {"resources": {"memory_limit_in_bytes": 160 << 20}},
    });
    let write = |name: &str, value: serde_json::Value| -> Result<String> {
        let path = Path::new(&bed.dir).join(name);
        fs::write(&path, value.to_string())?;
        Ok(path.display().to_string())
    };
    Ok((write("pod.json", pod)?, write("container.json", container)?))
}
