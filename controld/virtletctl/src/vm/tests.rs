//! Files of the crate `kubevirt`, and such as people write by mistake.

use std::fs;
use std::path::Path;

use crate::tests::{ctl, exit_codes, help_below, ok};

const NOBODY: &str = "/none";

const VMI: &str = "\
apiVersion: kubevirt.io/v1
kind: VirtualMachineInstance
metadata: {name: web}
spec:
  domain: {memory: {guest: 1Gi}, devices: {interfaces: [{name: default, masquerade: {}}]}}
  networks: [{name: default, pod: {}}]
  volumes: [{name: root, containerDisk: {image: quay.io/containerdisks/debian:13}}]
";

/// Files in a directory of their own, and its path.
fn files(all: &[(&str, &str)]) -> (tempfile::TempDir, String) {
    let dir = tempfile::tempdir().expect("a directory");
    for (name, text) in all {
        fs::write(dir.path().join(name), text).expect("written");
    }
    let path = dir.path().to_str().expect("UTF-8").to_owned();
    (dir, path)
}

async fn vm(args: &[&str]) -> (String, Vec<String>) {
    let args: Vec<&str> = ["vm"].iter().chain(args).copied().collect();
    ctl(Path::new(NOBODY), &args).await
}

#[tokio::test]
async fn an_object_is_printed_as_its_pod() {
    let (_dir, path) = files(&[("web.yaml", VMI)]);
    let yaml = ok(Path::new(NOBODY), &["vm", "render", &format!("{path}/web.yaml")]).await;
    insta::assert_snapshot!(yaml);
    let json = ok(Path::new(NOBODY), &["vm", "render", "-f", &path, "-o", "json", "--runtime-class", "vms"]).await;
    let list: serde_json::Value = serde_json::from_str(&json).expect("JSON");
    assert_eq!(list["kind"], "List");
    assert_eq!(list["items"][0]["spec"]["runtimeClassName"], "vms");
}

#[tokio::test]
async fn findings_name_file_object_and_field() {
    let wrong = VMI.replace("pod: {}", "pod: {vmNetworkCIDR: 10.0.0.0/24}").replace("1Gi", "1GB");
    let (_dir, path) = files(&[("a.yaml", VMI), ("b.yml", &wrong), ("notes.txt", "no manifest")]);
    let (out, errors) = vm(&["lint", &path]).await;
    insta::assert_snapshot!(format!("{}{}", out, errors.join("\n")).replace(&path, "DIR"));
    assert_eq!(exit_codes(Path::new(NOBODY), &["vm", "lint", &path]).await, [1]);
    let one = format!("{path}/a.yaml");
    assert_eq!(exit_codes(Path::new(NOBODY), &["vm", "lint", &one]).await, [0_u8; 0]);
    assert_eq!(exit_codes(Path::new(NOBODY), &["vm", "lint", "--strict", &one]).await, [1]);
    let (out, _) = vm(&["lint", &one, "-o", "json"]).await;
    let all: serde_json::Value = serde_json::from_str(&out).expect("JSON");
    assert_eq!(all[0]["path"], "spec.domain.devices.interfaces[0].masquerade");
    assert_eq!(all[0]["level"], "warning");
}

#[tokio::test]
async fn nothing_is_printed_if_one_object_would_be_refused() {
    let refused = VMI.replace("masquerade", "slirp").replace("name: web", "name: \"a\\u001b[2J\"");
    let (_dir, path) = files(&[("a.yaml", VMI), ("b.yaml", &refused)]);
    let (out, errors) = vm(&["render", &path]).await;
    assert_eq!(out, "");
    assert!(errors.iter().any(|line| line.contains("interfaces[0].slirp: not supported: use bridge")), "{errors:?}");
    assert!(!errors.iter().any(|line| line.contains(char::is_control)), "{errors:?}");
    let (out, errors) = vm(&["render", "--strict", &format!("{path}/a.yaml")]).await;
    assert!(out.is_empty() && errors.len() == 1, "{errors:?}");
}

#[tokio::test]
async fn presets_of_one_file_are_for_objects_of_another() {
    let preset = "{apiVersion: kubevirt.io/v1, kind: VirtualMachineInstancePreset, metadata: {name: p}, spec: {selector: {}, domain: {cpu: {cores: 3}}}}";
    let (_dir, path) = files(&[("a.yaml", VMI), ("b.json", preset)]);
    let (out, errors) = vm(&["render", &path]).await;
    assert_eq!(errors, [""; 0]);
    assert!(out.contains("VirtletVCPUCount: \"3\""), "{out}");
}

#[tokio::test]
async fn manifests_of_older_days_are_rewritten() {
    let old = "{apiVersion: kubevirt.io/v1alpha2, kind: OfflineVirtualMachine, metadata: {name: x}, spec: {running: true, template: {}}}";
    let (_dir, path) = files(&[("a.yaml", old)]);
    let (out, errors) = vm(&["convert", &path]).await;
    assert_eq!(errors, [""; 0]);
    assert_eq!(
        out,
        "---\napiVersion: kubevirt.io/v1\nkind: VirtualMachine\nmetadata:\n  name: x\nspec:\n  runStrategy: Always\n  template: {}\n"
    );
    let (other, _) = vm(&["convert", &path, "--group", "virtlet.k8s"]).await;
    assert!(other.contains("apiVersion: virtlet.k8s/v1\n"), "{other}");
}

#[tokio::test]
async fn what_is_no_manifest_is_told() {
    let (dir, path) = files(&[("a.yaml", "a: [secret"), ("b.yaml", "secret: 1"), ("empty.yaml", "")]);
    fs::create_dir(dir.path().join("none")).expect("made");
    for (file, wanted) in [
        ("a.yaml", "`DIR/a.yaml` is no manifest: not valid YAML: "),
        ("b.yaml", "`DIR/b.yaml` is no manifest: document 1 is no object: it needs `apiVersion` and `kind`"),
        ("none", "no file in `DIR/none` ends in .yaml, .yml or .json"),
        ("lost.yaml", "failed to read `DIR/lost.yaml`: No such file or directory"),
    ] {
        let file = format!("{path}/{file}");
        let (out, errors) = vm(&["lint", &file]).await;
        let told = errors.join("\n").replace(&path, "DIR");
        assert!(out.is_empty() && told.starts_with(wanted) && !told.contains("secret"), "{told}");
        assert_eq!(exit_codes(Path::new(NOBODY), &["vm", "render", &file]).await, [1]);
    }
    let (out, errors) = vm(&["render", &format!("{path}/empty.yaml")]).await;
    assert!(out.is_empty() && errors.is_empty(), "{errors:?}");
}

#[test]
fn help_is_pinned() {
    insta::assert_snapshot!(help_below("vm"));
}
