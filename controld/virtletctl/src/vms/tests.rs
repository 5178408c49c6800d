//! Commands as people type them, against an API server of our own.

use std::path::Path;

use serde_json::json;

use crate::cluster::tests::Api;
use crate::tests::{ctl, exit_codes};

const NOBODY: &str = "/none";
const SUB: &str = "/apis/subresources.kubevirt.io/v1/namespaces";

fn words<'a>(api: &'a Api, line: &'a str) -> Vec<&'a str> {
    ["vm"].into_iter().chain(line.split(' ')).chain(["--kubeconfig", &api.kubeconfig]).collect()
}

async fn vm(api: &Api, line: &str) -> (String, Vec<String>) {
    ctl(Path::new(NOBODY), &words(api, line)).await
}

async fn ok(api: &Api, line: &str) -> String {
    let (out, errors) = vm(api, line).await;
    assert_eq!(errors, [""; 0], "{line}");
    out
}

fn status(code: u16, message: &str) -> String {
    json!({ "kind": "Status", "apiVersion": "v1", "status": "Failure", "message": message, "code": code }).to_string()
}

#[tokio::test]
async fn verbs_ask_as_virtctl_does() {
    let api = Api::start().await;
    api.answers("PUT ", 202, "");
    for (line, asked, told) in [
        ("start web", "prod/virtualmachines/web/start {}", "virtualmachine/web start requested\n"),
        ("start vm web -n lab", "lab/virtualmachines/web/start {}", "virtualmachine/web start requested\n"),
        (
            "stop vm/web/lab --force",
            "lab/virtualmachines/web/stop {\"gracePeriod\":0}",
            "virtualmachine/web stop requested\n",
        ),
        (
            "stop web --grace-period 7 --force --dry-run",
            "prod/virtualmachines/web/stop {\"dryRun\":[\"All\"],\"gracePeriod\":7}",
            "virtualmachine/web stop requested (dry run)\n",
        ),
        (
            "restart web --grace-period=0",
            "prod/virtualmachines/web/restart {\"gracePeriodSeconds\":0}",
            "virtualmachine/web restart requested\n",
        ),
        ("pause vm web", "prod/virtualmachineinstances/web/pause {}", "virtualmachineinstance/web paused\n"),
        ("resume vmi/web", "prod/virtualmachineinstances/web/unpause {}", "virtualmachineinstance/web unpaused\n"),
        ("reset web", "prod/virtualmachineinstances/web/reset {}", "virtualmachineinstance/web reset\n"),
        (
            "softreboot web",
            "prod/virtualmachineinstances/web/softreboot {}",
            "virtualmachineinstance/web reboot requested\n",
        ),
        (
            "freeze web --unfreezeTimeout 1m30s",
            "prod/virtualmachineinstances/web/freeze {\"unfreezeTimeout\":\"90s\"}",
            "virtualmachineinstance/web frozen\n",
        ),
        ("unfreeze web", "prod/virtualmachineinstances/web/unfreeze {}", "virtualmachineinstance/web unfrozen\n"),
    ] {
        assert_eq!(ok(&api, line).await, told, "{line}");
        assert_eq!(api.asked(), [format!("PUT {SUB}/{asked}")], "{line}");
    }
    ok(&api, "reset web --group virtlet.k8s").await;
    let other = "PUT /apis/subresources.virtlet.k8s/v1/namespaces/prod/virtualmachineinstances/web/reset {}";
    assert_eq!(api.asked(), [other]);
}

#[tokio::test]
async fn what_the_cluster_refuses_is_told_with_what_to_do() {
    let api = Api::start().await;
    let put = format!("PUT {SUB}/prod/virtualmachineinstances");
    let conflict =
        "Operation cannot be fulfilled on virtualmachineinstance.kubevirt.io \"paused\": \u{1b}[2Jpaused already";
    for (name, code, body) in [
        ("gone", 404, status(404, "virtualmachineinstances.kubevirt.io \"gone\" not found")),
        ("paused", 409, status(409, conflict)),
        ("theirs", 403, status(403, "virtualmachineinstances.subresources.kubevirt.io \"theirs\" is forbidden: no")),
        ("who", 401, status(401, "Unauthorized")),
        ("far", 501, status(501, "no migrate here; restart the VM")),
        ("busy", 429, status(429, "too many")),
        ("away", 503, "service unavailable\n".to_owned()),
        ("broken", 500, String::new()),
    ] {
        api.answers(&format!("{put}/{name}/"), code, &body);
    }
    let line = "pause old gone paused theirs who far busy away broken";
    let (out, errors) = vm(&api, line).await;
    assert_eq!(out, "");
    insta::assert_snapshot!(errors.join("\n"));
    assert_eq!(exit_codes(Path::new(NOBODY), &words(&api, line)).await, [66, 66, 69, 77, 77, 64, 75, 75, 1]);
}

#[tokio::test]
async fn what_a_cluster_says_has_bounds() {
    let api = Api::start().await;
    let at = "GET /apis/kubevirt.io/v1/namespaces/prod";
    let more = json!({ "continue": "again" });
    let table = json!({ "kind": "Table", "metadata": more, "columnDefinitions": [{ "name": "Name" }], "rows": [] });
    let list = json!({ "kind": "VirtualMachineList", "metadata": more, "items": [] });
    for (line, page) in [("get vm", table), ("get vm -o name", list)] {
        api.answers(&format!("{at}/virtualmachines?"), 200, &page.to_string());
        let told = vm(&api, line).await.1;
        assert_eq!(told, ["failed to list virtualmachines: the answer has no end"], "{line}");
        // The first page, and the one that says what that has said.
        assert_eq!(api.asked().len(), 2, "{line}");
    }
    api.answers("PUT ", 409, &status(409, &"x".repeat(5000)));
    let told = vm(&api, "pause web").await.1;
    assert!(told[0].ends_with(&format!("pause `prod/web`: {}", "x".repeat(2000))), "{told:?}");
}

#[tokio::test]
async fn what_is_no_vm_is_told_before_anybody_is_asked() {
    let api = Api::start().await;
    for line in ["start vmi/web", "start pod/web", "pause vmirs/web", "console vmirs/web", "stop Web", "console web db"]
    {
        assert_eq!(exit_codes(Path::new(NOBODY), &words(&api, line)).await, [2], "{line}");
    }
    for line in ["get web -A", "get vm/web -l a=b", "vnc web --file x", "port-forward web 22 23 --stdio", "scp a b"] {
        assert_eq!(exit_codes(Path::new(NOBODY), &words(&api, line)).await, [2], "{line}");
    }
    assert_eq!(api.asked(), [""; 0]);
}

#[tokio::test]
async fn nobody_and_no_cluster_are_told() {
    let (_, errors) = ctl(Path::new(NOBODY), &["vm", "start", "web", "--kubeconfig", "/none"]).await;
    assert!(errors[0].starts_with("no cluster is known: failed to read kubeconfig from"), "{errors:?}");
    assert!(errors[0].ends_with("; set KUBECONFIG, or name a file by --kubeconfig and a context of it by --context"));
    let api = Api::start().await;
    let text = std::fs::read_to_string(&api.kubeconfig).expect("it is there");
    // Port 1 of loopback is nobody's.
    std::fs::write(&api.kubeconfig, text.replace(&api.at, "http://127.0.0.1:1")).expect("written");
    let (_, errors) = vm(&api, "start web").await;
    let begin = "failed to start `prod/web`: the API server cannot be asked: ";
    assert!(errors[0].starts_with(begin) && errors[0].contains("refused"), "{errors:?}");
    assert_eq!(exit_codes(Path::new(NOBODY), &words(&api, "start web")).await, [75]);
}

fn table(rows: &[(&str, &str)], more: &str) -> String {
    let rows: Vec<_> = rows
        .iter()
        .map(|(namespace, name)| {
            let object = json!({ "metadata": { "name": name, "namespace": namespace } });
            json!({ "cells": [name, "Running\u{1b}", true, null], "object": object })
        })
        .collect();
    let column = |name: &str, priority: i64| json!({ "name": name, "priority": priority });
    let columns = [column("Name", 0), column("Status", 0), column("Ready", 0), column("Node", 1)];
    json!({ "kind": "Table", "metadata": { "continue": more }, "columnDefinitions": columns, "rows": rows }).to_string()
}

#[tokio::test]
async fn lists_are_as_kubectl_prints_them() {
    let api = Api::start().await;
    let at = "GET /apis/kubevirt.io/v1";
    api.answers(&format!("{at}/namespaces/prod/virtualmachines?"), 200, &table(&[("prod", "web")], "next page"));
    let next = format!("{at}/namespaces/prod/virtualmachines?limit=500&continue=next%20page");
    api.answers(&next, 200, &table(&[("prod", "db")], ""));
    api.answers(&format!("{at}/namespaces/prod/virtualmachineinstances?"), 200, &table(&[], ""));
    api.answers(&format!("{at}/virtualmachineinstances?"), 200, &table(&[("lab", "job")], ""));
    api.answers(&format!("{at}/namespaces/prod/virtualmachines/web"), 200, &table(&[("prod", "web")], ""));
    let lines = ["get", "get vm -o wide", "ls vmis -A -l app=web", "get vm web", "get vmi"].map(|line| line.to_owned());
    let mut printed = String::new();
    for line in &lines {
        printed += &format!("$ {line}\n{}", ok(&api, line).await);
    }
    insta::assert_snapshot!(printed);
    let asked = api.asked();
    let labels = "GET /apis/kubevirt.io/v1/virtualmachineinstances?limit=500&labelSelector=app%3Dweb";
    assert!(asked.iter().any(|asked| asked == labels), "{asked:?}");

    let list = |items: &[serde_json::Value]| json!({ "items": items, "metadata": {} }).to_string();
    let web = json!({ "kind": "VirtualMachine", "metadata": { "name": "web" } });
    api.answers(&format!("{at}/namespaces/prod/virtualmachines?"), 200, &list(std::slice::from_ref(&web)));
    api.answers(&format!("{at}/namespaces/prod/virtualmachineinstances?"), 200, &list(&[]));
    api.answers(&format!("{at}/namespaces/prod/virtualmachines/web"), 200, &web.to_string());
    assert_eq!(ok(&api, "get -o name").await, "virtualmachine.kubevirt.io/web\n");
    let json = |text: String| serde_json::from_str::<serde_json::Value>(&text).expect("JSON");
    let all = json(ok(&api, "get -o json").await);
    assert_eq!((&all["kind"], &all["items"][0]), (&json!("List"), &web));
    assert_eq!(json(ok(&api, "get vm/web -o json").await), web);
    assert_eq!(ok(&api, "get vm web -o yaml").await, "kind: VirtualMachine\nmetadata:\n  name: web\n");
}

#[tokio::test]
async fn what_is_known_of_a_guest_is_printed() {
    let api = Api::start().await;
    let at = format!("GET {SUB}/prod/virtualmachineinstances/web");
    api.answers(&format!("{at}/filesystemlist"), 200, "{\"items\":[{\"mountPoint\":\"/\"}]}");
    api.answers("GET /apis/subresources.kubevirt.io/v1/version", 200, "{\"gitVersion\":\"v9\\u001b\"}");
    let told = ok(&api, "fslist web").await;
    assert_eq!(told, "{\n  \"items\": [\n    {\n      \"mountPoint\": \"/\"\n    }\n  ]\n}\n");
    assert!(ok(&api, "fslist vmi/web -o yaml").await.starts_with("items:\n"));
    let ours = format!("Client: virtletctl {}\n", env!("CARGO_PKG_VERSION"));
    assert_eq!(ok(&api, "version").await, format!("{ours}Server: v9\\u{{1b}}\n"));
    api.asked();
    assert_eq!(ok(&api, "version --client").await, ours);
    assert_eq!(api.asked(), [""; 0]);
    assert_eq!(vm(&api, "version --group virtlet.k8s").await.0, ours);
}

#[tokio::test]
async fn a_picture_is_written() {
    let api = Api::start().await;
    let at = format!("GET {SUB}/prod/virtualmachineinstances/web/vnc/screenshot");
    api.answers(&at, 200, "PNG");
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("a.png");
    let path = file.to_str().expect("UTF-8");
    for line in [format!("vnc screenshot vmi web -f {path}"), format!("screenshot web --file {path} --move-cursor")] {
        assert_eq!(ok(&api, &line).await, "");
        assert_eq!(std::fs::read_to_string(&file).expect("written"), "PNG");
        std::fs::remove_file(&file).expect("removed");
    }
    assert_eq!(api.asked(), [format!("{at}?moveCursor=false"), format!("{at}?moveCursor=true")]);
}

#[test]
fn help_of_the_plugin_is_pinned() {
    use clap::CommandFactory as _;

    let mut command = crate::cli::Plugin::command().term_width(100);
    command.build();
    insta::assert_snapshot!(command.render_long_help().to_string());
}
