use std::fmt::Write as _;
use std::fs;
use std::path::Path as File;

use serde_json::Value;
use vmspec::annotations::PodAnnotations;

use super::Options;
use crate::{Level, lint, read, render};

/// Classes that `deploy/` has by other names.
fn options() -> Options {
    let class = |name: &str| Some(name.to_owned());
    Options {
        efi: class("uefi"),
        secure_boot: class("windows"),
        image: class("images.example.com/none"),
        ..Options::default()
    }
}

fn fixtures(dir: &str) -> Vec<(String, String)> {
    let crate_dir = std::env::var_os("CARGO_MANIFEST_DIR").expect("cargo names it to a test");
    let dir = File::new(&crate_dir).join(dir);
    let files = fs::read_dir(dir).expect("fixtures").map(|entry| entry.expect("an entry").path());
    let mut files: Vec<_> = files.filter(|path| path.extension().is_some_and(|it| it == "yaml")).collect();
    files.sort();
    let name = |file: &File| file.file_stem().expect("a name").to_string_lossy().into_owned();
    files.iter().map(|file| (name(file), fs::read_to_string(file).expect("text"))).collect()
}

#[test]
fn manifests_become_pods() {
    let fixtures = fixtures("fixtures");
    assert!(fixtures.len() > 10);
    for (name, text) in fixtures {
        let documents = read(&text).expect(&name);
        let mut told = String::new();
        for (document, judged) in documents.iter().zip(render(&documents, &options())) {
            writeln!(told, "# {} {}", document.kind_name(), document.name()).expect("written");
            for finding in &judged.findings {
                writeln!(told, "#   {finding}").expect("written");
            }
            assert!(!judged.is_refused() || judged.objects.is_empty(), "{name}");
            for object in judged.objects {
                write!(told, "---\n{}", serde_saphyr::to_string(&object).expect("written")).expect("written");
            }
        }
        insta::assert_snapshot!(name, told);
    }
}

#[test]
fn what_is_told_is_what_is_told_of_it_when_it_is_made() {
    for (name, text) in fixtures("fixtures") {
        let documents = read(&text).expect(&name);
        let rendered: Vec<_> = render(&documents, &options()).into_iter().map(|judged| judged.findings).collect();
        assert_eq!(lint(&documents, &options()), rendered, "{name}");
    }
}

/// A pod without a description has nothing that a node of this release does not take.
#[test]
fn annotations_of_pods_are_those_that_a_node_takes() {
    let mut runs = 0;
    for (name, text) in fixtures("fixtures") {
        let documents = read(&text).expect(&name);
        for judged in render(&documents, &options()) {
            let is_described = judged.findings.iter().any(|finding| finding.text == super::DESCRIBED);
            for pod in judged.objects.iter().filter(|object| object["kind"] == "Pod") {
                let annotations = serde_json::from_value(pod["metadata"]["annotations"].clone()).expect("texts");
                let parsed = PodAnnotations::parse(&annotations);
                assert_eq!(parsed.is_err(), is_described, "{name}: {parsed:?}");
                runs += usize::from(parsed.is_ok());
            }
        }
    }
    assert!(runs > 10);
}

#[test]
fn user_data_is_in_no_annotation_and_in_no_finding() {
    let text = "\
apiVersion: kubevirt.io/v1
kind: VirtualMachineInstance
metadata: {name: x}
spec:
  domain: {memory: {guest: 1Gi}, devices: {}}
  volumes:
    - {name: root, containerDisk: {image: x}}
    - {name: seed, cloudInitNoCloud: {userData: \"hunter2\"}}
";
    let documents = read(text).expect("a manifest");
    let told = format!("{:?}", lint(&documents, &options()));
    assert!(told.contains("neither a map nor another format") && !told.contains("hunter2"), "{told}");
    for wrong in ["userData: \"hunter2\\0\"", "userDataBase64: hunter2!"] {
        let documents = read(&text.replace("userData: \"hunter2\"", wrong)).expect("a manifest");
        let told = format!("{:?}", lint(&documents, &options()));
        assert!(told.contains("it is not ") && !told.contains("hunter2"), "{told}");
    }
    let right = text.replace("hunter2", "#!/bin/sh\\nhunter2");
    let documents = read(&right).expect("a manifest");
    let objects = render(&documents, &options()).remove(0).objects;
    let [secret, pod] = &objects[..] else { panic!("{objects:?}") };
    assert_eq!(secret["metadata"]["name"], "x-ci");
    assert!(!pod.to_string().contains("hunter2") && secret.to_string().contains("hunter2"));
}

#[test]
fn what_an_object_says_and_its_annotations_say_is_said_once() {
    let text = "\
apiVersion: kubevirt.io/v1
kind: VirtualMachineInstance
metadata:
  name: x
  annotations: {VirtletVCPUCount: \"3\", virtlet.cloud/cpu-model: Haswell, VirtletUnknown: a, virtlet.k8s/vm: '{\"v\":1}'}
spec:
  domain: {cpu: {cores: 2, model: Westmere}, memory: {guest: 1Gi}, devices: {}}
  volumes: [{name: root, containerDisk: {image: x}}]
";
    let told: Vec<String> =
        lint(&read(text).expect("a manifest"), &options()).remove(0).iter().map(ToString::to_string).collect();
    insta::assert_snapshot!(told.join("\n"));
}

#[test]
fn long_names_fit_where_they_go() {
    let name = format!("{}.{}", "a".repeat(60), "b".repeat(60));
    let text = format!(
        "{{apiVersion: kubevirt.io/v1, kind: VirtualMachineInstanceReplicaSet, metadata: {{name: {name}}}, spec: {{selector: \
         {{matchLabels: {{a: b}}}}, replicas: 2, template: {{metadata: {{labels: {{a: b}}}}, spec: {{domain: {{memory: {{guest: 1Gi}}, \
         devices: {{}}}}, volumes: [{{name: root, containerDisk: {{image: x}}}}]}}}}}}}}"
    );
    let judged = render(&read(&text).expect("a manifest"), &options()).remove(0);
    assert!(judged.findings.iter().all(|finding| finding.level == Level::Warning), "{judged:?}");
    let names: Vec<&str> = judged.objects.iter().filter_map(|pod| pod["metadata"]["name"].as_str()).collect();
    assert!(names.len() == 2 && names[0] != names[1] && names.iter().all(|name| name.len() <= 63), "{names:?}");
    let is_short = |value: &Value| value.as_str().is_some_and(|value| value.len() <= 63);
    assert!(
        judged.objects.iter().all(|pod| pod["metadata"]["labels"].as_object().expect("labels").values().all(is_short))
    );
}

#[test]
fn what_is_hostile_costs_little() {
    let unknown: Vec<String> = (0..100_000).map(|nth| format!("k{nth}: 1")).collect();
    let many = format!(
        "{{apiVersion: kubevirt.io/v1, kind: VirtualMachineInstance, metadata: {{name: x}}, spec: {{{}}}}}",
        unknown.join(", ")
    );
    let found = lint(&read(&many).expect("a manifest"), &options()).remove(0);
    assert!(found.len() < 300, "{}", found.len());
    let set = "{apiVersion: kubevirt.io/v1, kind: VirtualMachineInstanceReplicaSet, metadata: {name: x}, spec: {replicas: 250, selector: \
               {matchLabels: {a: b}}, template: {metadata: {labels: {a: b}}, spec: {domain: {memory: {guest: 1Gi}, devices: {}}, volumes: \
               [{name: root, containerDisk: {image: x}}]}}}}\n---\n";
    let judged = render(&read(&set.repeat(5)).expect("a manifest"), &options());
    assert_eq!(judged.iter().map(|judged| judged.objects.len()).collect::<Vec<_>>(), [250, 250, 250, 250, 0]);
}
