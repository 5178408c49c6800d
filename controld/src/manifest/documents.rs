//! Every example of the documents is judged as `controld validate` judges a manifest: it becomes a machine.

use serde_json::{Map, Value, json};
use vmspec::manifest::read;

use super::judge;
use crate::config::Config;

const ANNOTATIONS: &str = include_str!("../../../docs/annotations.md");
const VOLUMES: &str = include_str!("../../../docs/volumes.md");
const HANDLERS: &str = include_str!("../../../docs/handlers.md");
const CLASSES: &str = include_str!("../../../deploy/runtimeclasses.yaml");

/// What the examples take for granted: a runtime handler that allows everything, and flexvolumes.
const NODE: &str =
    "runtime_handlers = ['virtlet']\nflexvolumes.enabled = true\n[handlers.virtlet.annotations]\nallow = ['*']\n";

fn blocks<'a>(page: &'a str, language: &str) -> Vec<&'a str> {
    let start = format!("\n```{language}\n");
    page.split(&start).skip(1).map(|rest| rest.split("\n```").next().expect("an end")).collect()
}

/// An example as a whole pod: what it leaves out is what every pod has, or what its annotations speak of.
fn pod(example: &str) -> Value {
    let given: Value = serde_saphyr::from_str(example).expect(example);
    let mut pod = json!({
        "kind": "Pod",
        "metadata": {"name": "web"},
        "spec": {"runtimeClassName": "virtlet", "containers": []},
    });
    if given.get("spec").is_some() {
        return over(pod, given);
    }
    pod["metadata"]["annotations"] = given;
    let volumes = ["cloud", "files"];
    let volume = |name: &str| json!({"name": name, "secret": {"secretName": name}});
    let mount = |name: &str| json!({"name": name, "mountPath": format!("/run/virtlet/seed/{name}")});
    pod["spec"]["volumes"] = volumes.map(volume).to_vec().into();
    pod["spec"]["containers"] = json!([{
        "name": "vm",
        "image": "images.example.com/debian.qcow2",
        "resources": {"limits": {"cpu": "2"}},
        "volumeMounts": volumes.map(mount),
    }]);
    pod
}

fn over(below: Value, above: Value) -> Value {
    match (below, above) {
        (Value::Object(mut below), Value::Object(above)) => {
            for (key, value) in above {
                let merged = below.remove(&key).map_or(value.clone(), |old| over(old, value));
                below.insert(key, merged);
            }
            Value::Object(below)
        }
        (_, above) => above,
    }
}

fn problems(config: &str, classes: &str, pod: &Value) -> Vec<String> {
    let config = Config::parse(config).expect("parses").checked().expect("valid");
    let manifest = read(&format!("{classes}\n---\n{pod}\n")).expect("a manifest");
    judge(&config, vmspec::Accelerator::Kvm, &manifest, &manifest.pods[0]).problems
}

#[test]
fn examples_of_pods_become_machines() {
    for (page, least) in [(ANNOTATIONS, 15), (VOLUMES, 5)] {
        let examples = blocks(page, "yaml");
        assert!(examples.len() >= least, "examples are found");
        for example in examples {
            assert_eq!(problems(NODE, "", &pod(example)), [""; 0], "{example}");
        }
    }
}

#[test]
fn a_wrong_example_would_be_found() {
    for example in ["VirtletVCPUCount: '0'", "virtlet.cloud/emptydir-disks: scratch=1Gi", "spec: {hostNetwork: true}"] {
        assert_ne!(problems(NODE, "", &pod(example)), [""; 0], "{example}");
    }
}

#[test]
fn each_example_of_a_handler_has_machines() {
    let examples = blocks(HANDLERS, "toml");
    let spec = json!({"containers": [{"name": "vm", "image": "images.example.com/debian.qcow2", "command": ["true"]}]});
    for example in &examples {
        let (_, name) = example.split_once("[handlers.").expect("a handler");
        let (name, _) = name.split_once([']', '.']).expect("a name");
        let mut spec: Map<String, Value> = spec.as_object().expect("a map").clone();
        spec.insert("runtimeClassName".into(), format!("virtlet-{name}").into());
        let pod = json!({"kind": "Pod", "metadata": {"name": "web"}, "spec": spec});
        assert_eq!(problems(example, CLASSES, &pod), [""; 0], "{example}");
    }
}
