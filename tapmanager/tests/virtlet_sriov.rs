//! The program `virtlet-sriov`: what it says to commands that need no PF. Nothing of the machine is changed.
#![allow(clippy::unwrap_used, reason = "a test")]

use std::io::Write as _;
use std::process::{Command, Stdio};

use serde_json::{Value, json};

/// Exit code, and what is on standard output.
fn run(command: &str, more: &[(&str, &str)], stdin: &str) -> (Option<i32>, String) {
    let mut child = Command::new(env!("CARGO_BIN_EXE_virtlet-sriov"))
        .env_clear()
        .env("CNI_COMMAND", command)
        .envs(more.iter().copied())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    // It need not read it.
    let _ = child.stdin.take().unwrap().write_all(stdin.as_bytes());
    let output = child.wait_with_output().unwrap();
    (output.status.code(), String::from_utf8(output.stdout).unwrap())
}

const POD: [(&str, &str); 4] = [
    ("CNI_CONTAINERID", "pod"),
    ("CNI_IFNAME", "net1"),
    ("CNI_NETNS", "/proc/self/ns/net"),
    ("CNI_PATH", "/nonexistent"),
];

fn conf(version: &str, keys: Value) -> String {
    let mut conf = json!({"cniVersion": version, "name": "fast", "type": "virtlet-sriov"});
    conf.as_object_mut().unwrap().extend(keys.as_object().unwrap().clone());
    conf.to_string()
}

fn error(command: &str, env: &[(&str, &str)], stdin: &str) -> (u64, String) {
    let (code, stdout) = run(command, env, stdin);
    assert_eq!(code, Some(1), "{stdout}");
    let error: Value = serde_json::from_str(&stdout).unwrap();
    (error["code"].as_u64().unwrap(), error["details"].as_str().unwrap().to_owned())
}

#[test]
fn it_tells_its_versions() {
    let (code, stdout) = run("VERSION", &[], r#"{"cniVersion": "1.1.0"}"#);
    let told: Value = serde_json::from_str(&stdout).unwrap();
    assert_eq!(code, Some(0));
    assert_eq!(
        told,
        json!({"cniVersion": "1.1.0", "supportedVersions": ["0.3.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0"]})
    );
}

#[test]
fn what_it_is_told_wrongly_has_the_specifications_codes() {
    assert_eq!(error("ADD", &[], "{}").0, 4);
    let (code, details) = error("ADD", &POD[..1], &conf("1.1.0", json!({})));
    assert!(code == 4 && details.contains("CNI_NETNS") && details.contains("CNI_IFNAME"), "{code}: {details}");
    assert_eq!(error("JUMP", &POD, &conf("1.1.0", json!({}))).0, 4);
    assert_eq!(error("ADD", &POD, "{").0, 6);
    assert_eq!(error("ADD", &POD, &conf("0.2.0", json!({"pf": "ens1f0"}))).0, 1);
    assert_eq!(error("ADD", &POD, &conf("2.0.0", json!({"pf": "ens1f0"}))).0, 1);
    assert_eq!(error("STATUS", &POD, &conf("1.0.0", json!({"pf": "ens1f0"}))).0, 1);
    let (code, details) = error("ADD", &POD, &conf("1.1.0", json!({"pf": "ens1f0", "vlan": 5000, "spoofchk": "yes"})));
    assert!(code == 7 && details.contains("`vlan`") && details.contains("`spoofchk`"), "{code}: {details}");
    assert_eq!(error("GC", &POD, &conf("1.1.0", json!({}))).0, 7);
}

#[test]
fn a_del_of_what_never_was_is_well() {
    for version in ["0.3.1", "0.4.0", "1.0.0", "1.1.0"] {
        let done = run(
            "DEL",
            &[("CNI_CONTAINERID", "never-was"), ("CNI_IFNAME", "net1")],
            &conf(version, json!({"pool": "blue"})),
        );
        assert_eq!(done, (Some(0), String::new()), "{version}");
    }
}

#[test]
fn a_pf_that_is_not_there_is_told_with_those_that_are() {
    let status = |keys| error("STATUS", &POD, &conf("1.1.0", keys));
    let (code, details) = status(json!({"pf": "no-such-link"}));
    assert!(
        code == 50 && details.starts_with("PF `no-such-link` is not there; PFs of this node: "),
        "{code}: {details}"
    );
    let (code, details) = status(json!({"pf": "ffff:ff:1f.7"}));
    assert!(code == 50 && details.starts_with("PF `ffff:ff:1f.7` is not there"), "{code}: {details}");
}
