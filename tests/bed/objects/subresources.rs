//! The server of subresources behind a real API server, with the rights of its account and no more: discovery, who is believed and who
//! may, start and stop of a VM, and an end that is in nobody's way. What needs a node is in `streams`.

use std::time::Duration;

use anyhow::{Result, ensure};
use serde_json::{Value, json};
use tests::case::{Bed, Case};
use tests::command::{Ended, sh};
use tests::daemon::Daemon;
use tests::subresources_server::{ADDRESS, NAME, lead, serve};
use tests::wait::wait_for;

use super::{World, machine};

const DEADLINE: Duration = Duration::from_secs(300);
/// The API server looks at servers behind it every half minute, and when their APIService changes.
const AVAILABLE_DEADLINE: Duration = Duration::from_secs(90);
/// Rights, and what an operator does, come about in seconds.
const NEWS_DEADLINE: Duration = Duration::from_secs(60);
const API: &str = "v1.subresources.kubevirt.io";
const AT: &str = "/apis/subresources.kubevirt.io/v1/namespaces/default";

pub(super) const CASES: &[Case] = &[Case { name: "objects::subresources_by_the_api_server", deadline: DEADLINE, run }];

fn run(bed: &Bed) -> Result<()> {
    let world = World::start(bed)?;
    let mut server = start(&world)?;
    discovery(&world)?;
    believed(&world)?;
    rights(&world)?;
    power(&world)?;

    // Another replica in its place has the same certificate.
    server.kill9()?;
    server.start_again()?;
    available(&world, &mut server)?;
    wait_for("answer of the new one", AVAILABLE_DEADLINE, || {
        let told = world.tried(&["get", "--raw", "/apis/subresources.kubevirt.io/v1/version"])?;
        Ok((told.code == Some(0) && told.stdout.contains("gitVersion")).then_some(()))
    })?;
    // Namespaces go while it answers.
    world.kubectl(&["create", "namespace", "short"])?;
    world.kubectl(&["delete", "namespace", "short", "--timeout=240s"])?;
    server.still_runs()?;

    world.kubectl(&["delete", "vm", "db"])?;
    let told = world.operator(&["uninstall", "--namespace", "default"])?;
    ensure!(told.code == Some(0), "{}", told.stderr);
    ensure!(told.stdout.starts_with(&format!("APIService `{API}` removed")), "{}", told.stdout);
    ensure!(server.terminate()? == Some(0), "an end with another code");
    Ok(())
}

/// Installs and starts the server, in namespace `default`, and waits until the API server comes to it.
pub(super) fn start(world: &World<'_>) -> Result<Daemon> {
    lead(&world.cluster)?;
    world.install(&["--without", "operator", "--namespace", "default"])?;
    let mut server = serve(world.bed, &world.cluster)?;
    available(world, &mut server)?;
    Ok(server)
}

fn available(world: &World<'_>, server: &mut Daemon) -> Result<()> {
    wait_for("APIService that is available", AVAILABLE_DEADLINE, || {
        server.still_runs()?;
        let condition = "jsonpath={.status.conditions[?(@.type==\"Available\")].status}";
        Ok((world.kubectl(&["get", "apiservice", API, "-o", condition])? == "True").then_some(()))
    })
}

fn discovery(world: &World<'_>) -> Result<()> {
    let listed = world.kubectl(&["get", "--raw", "/apis/subresources.kubevirt.io/v1"])?;
    for wanted in ["virtualmachines/start", "virtualmachineinstances/vnc/screenshot", "virtualmachineinstances/console"]
    {
        ensure!(listed.contains(&format!("\"{wanted}\"")), "no {wanted} in {listed}");
    }
    // By the aggregated form, which kubectl asks for.
    wait_for("group among all", NEWS_DEADLINE, || {
        Ok(world.kubectl(&["api-versions"])?.contains("subresources.kubevirt.io/v1").then_some(()))
    })?;
    // Objects are not hidden by it.
    world.kubectl(&["get", "vm,vmi"])?;
    Ok(())
}

/// Headers of who comes without the front proxy's certificate say nothing.
fn believed(world: &World<'_>) -> Result<()> {
    let pki = world.bed.dir.join("cluster/pki");
    let curl = |more: &str| {
        let headers = "-H X-Remote-User:admin -H X-Remote-Group:system:masters";
        let url = format!("https://{ADDRESS}{AT}/virtualmachines/db/start");
        sh(&format!("curl -sk -o /dev/null -w %{{http_code}} -X PUT {headers} {more} {url}"))
    };
    ensure!(curl("")? == "401", "headers of anybody are believed: {}", curl("")?);
    // The same with it, of a VM that is not there.
    let front = format!("--cert {0}/front.crt --key {0}/front.key", pki.display());
    ensure!(curl(&front)? == "404", "the front proxy is not believed: {}", curl(&front)?);
    // Another name of the same authority.
    let pki = pki.display();
    sh(&format!("openssl req -newkey rsa:2048 -nodes -subj /CN=other -keyout {pki}/other.key -out {pki}/other.csr"))?;
    sh(&format!(
        "openssl x509 -req -days 1 -in {pki}/other.csr -CA {pki}/front-ca.crt -CAkey {pki}/front-ca.key -extfile {pki}/front.ext -out {pki}/other.crt"
    ))?;
    let other = format!("--cert {pki}/other.crt --key {pki}/other.key");
    ensure!(curl(&other)? == "401", "another client of that authority is believed: {}", curl(&other)?);
    Ok(())
}

/// Who has one subresource has no other.
fn rights(world: &World<'_>) -> Result<()> {
    let rule = json!({
        "apiGroups": ["subresources.kubevirt.io"], "resources": ["virtualmachineinstances/vnc"], "verbs": ["get"],
    });
    let role = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": {"name": "screens"}, "rules": [rule],
    });
    world.create(&role)?;
    world.kubectl(&["create", "rolebinding", "jane", "--role=screens", "--user=jane"])?;
    let get = |what: &str| world.tried(&["get", "--raw", &format!("{AT}/{what}"), "--as=jane"]);
    // As far as without a WebSocket one gets.
    wait_for("right to see a screen", NEWS_DEADLINE, || {
        Ok(get("virtualmachineinstances/db/vnc")?.stderr.contains("upgrade to WebSocket").then_some(()))
    })?;
    for what in [
        "virtualmachineinstances/db/console",
        "virtualmachineinstances/db/userlist",
        "virtualmachines/db/portforward/22",
    ] {
        let told = get(what)?.stderr;
        ensure!(told.contains("orbidden"), "{what}: {told}");
    }
    // The API server takes a screenshot for the screen; the server does not.
    let told = get("virtualmachineinstances/db/vnc/screenshot")?.stderr;
    ensure!(told.contains("cannot get resource \"virtualmachineinstances/vnc/screenshot\""), "{told}");
    let told = put(world, "virtualmachineinstances/db/pause", "{}", &["--as=jane"])?.stderr;
    ensure!(told.contains("orbidden"), "{told}");
    // The roles that people have already.
    world.kubectl(&["create", "rolebinding", "two", "--clusterrole=view", "--user=two"])?;
    // kubectl's own word on rights knows no resource that is nothing but subresources.
    let two = ["--as=two"];
    let read = |what: &str| world.tried(&["get", "--raw", &format!("{AT}/{what}"), two[0]]);
    wait_for("right to read", NEWS_DEADLINE, || {
        Ok((!read("virtualmachineinstances/db/userlist")?.stderr.contains("orbidden")).then_some(()))
    })?;
    let console = read("virtualmachineinstances/db/console")?.stderr;
    ensure!(console.contains("orbidden"), "a viewer gets at consoles: {console}");
    let started = put(world, "virtualmachines/db/start", "{}", &two)?.stderr;
    ensure!(started.contains("orbidden"), "a viewer starts VMs: {started}");
    let account = format!("--as=system:serviceaccount:default:{NAME}");
    let told = world.tried(&["auth", "can-i", "list", "secrets", &account])?;
    ensure!(told.code != Some(0), "the server reads all Secrets");
    let told = world.tried(&["create", "secret", "generic", "theirs", "--from-literal=a=b", &account])?.stderr;
    ensure!(told.contains("Secret virtlet-subresources-tls alone"), "{told}");
    Ok(())
}

/// A VM starts and stops, by requests that the operator answers.
fn power(world: &World<'_>) -> Result<()> {
    let told = put(world, "virtualmachines/db/start", "{}", &[])?.stderr;
    ensure!(told.contains("\"db\" not found"), "{told}");
    let told = put(world, "virtualmachines/db/migrate", "{}", &[])?.stderr;
    ensure!(told.contains("there is no live migration"), "{told}");
    world.create(&machine("db", "v1"))?;
    let told = put(world, "virtualmachines/db/restart", "{}", &[])?.stderr;
    ensure!(told.contains("is not restarted"), "{told}");
    let told = put(world, "virtualmachines/db/start", "{\"dryRun\":[\"All\"]}", &[])?;
    ensure!(told.code == Some(0) && told.stdout.is_empty(), "{told:?}");
    ensure!(asked(world)?.is_empty(), "what was only tried was done");
    let told = put(world, "virtualmachines/db/start", "{}", &[])?;
    ensure!(told.code == Some(0), "{}", told.stderr);
    let request: Value = serde_json::from_str(&asked(world)?)?;
    ensure!(request["action"] == "Start", "{request}");
    let told = put(world, "virtualmachines/db/start", "{}", &[])?.stderr;
    ensure!(told.contains("another request is under way"), "{told}");
    let told = put(world, "virtualmachineinstances/db/pause", "{}", &[])?.stderr;
    ensure!(told.contains("\"db\" not found"), "{told}");

    let mut operator = world.serve(&world.cluster.admin)?;
    let mut becomes = |strategy: &str| {
        wait_for("another strategy", NEWS_DEADLINE, || {
            operator.still_runs()?;
            let now = world.kubectl(&["get", "vm", "db", "-o", "jsonpath={.spec.runStrategy}"])?;
            Ok((now == strategy && asked(world)?.is_empty()).then_some(()))
        })
    };
    becomes("Always")?;
    wait_for("instance", NEWS_DEADLINE, || {
        Ok(world.kubectl(&["get", "vmi", "db", "--ignore-not-found", "-o", "name"])?.contains("db").then_some(()))
    })?;
    let told = put(world, "virtualmachines/db/start", "{}", &[])?.stderr;
    ensure!(told.contains("VM is already running"), "{told}");
    // It has no node.
    let told = put(world, "virtualmachineinstances/db/pause", "{}", &[])?.stderr;
    ensure!(told.contains("VMI is not running"), "{told}");
    let told = put(world, "virtualmachines/db/stop", "{\"gracePeriod\":0}", &[])?;
    ensure!(told.code == Some(0), "{}", told.stderr);
    becomes("Halted")?;
    wait_for("end of the instance", NEWS_DEADLINE, || {
        Ok(world.kubectl(&["get", "vmi", "-o", "name"])?.is_empty().then_some(()))
    })?;
    operator.terminate()?;
    world.kubectl(&["patch", "vm", "db", "--type=merge", "-p", r#"{"metadata":{"finalizers":null}}"#])?;
    Ok(())
}

/// PUT of a body, as virtctl has it.
fn put(world: &World<'_>, what: &str, body: &str, more: &[&str]) -> Result<Ended> {
    let file = world.file(body)?;
    world.tried(&[&["replace", "--raw", &format!("{AT}/{what}"), "-f", &file], more].concat())
}

/// What the operator is asked by annotation.
fn asked(world: &World<'_>) -> Result<String> {
    let path = r"jsonpath={.metadata.annotations.virtlet\.k8s/power-request}";
    world.kubectl(&["get", "vm", "db", "-o", path])
}
