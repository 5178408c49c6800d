use std::fs;
use std::path::Path;

use super::*;
use crate::kind::OTHER_GROUP;
use crate::{read, render};

fn converted(text: &str, group: &str) -> Vec<Value> {
    read(text).expect("a manifest").iter().flat_map(|document| convert(document, group)).collect()
}

fn written(values: &[Value]) -> String {
    values.iter().map(|value| format!("---\n{}", serde_saphyr::to_string(value).expect("written"))).collect()
}

#[test]
fn manifests_of_older_days_are_todays() {
    for name in ["old", "data-volume", "today"] {
        let crate_dir = std::env::var_os("CARGO_MANIFEST_DIR").expect("cargo names it to a test");
        let file = Path::new(&crate_dir).join(format!("fixtures/convert/{name}.yaml"));
        let text = written(&converted(&fs::read_to_string(file).expect("a fixture"), GROUP));
        insta::assert_snapshot!(name, text);
        assert_eq!(written(&converted(&text, GROUP)), text, "twice is once");
        let other = written(&converted(&text, OTHER_GROUP));
        assert!(other.contains("apiVersion: virtlet.k8s/v1\n"), "{other}");
        assert_eq!(written(&converted(&other, GROUP)), text, "there and back");
        let documents = read(&text).expect("a manifest");
        let judged = render(&documents, &render::Options::default());
        for (document, judged) in documents.iter().zip(judged) {
            let refused = judged.is_refused();
            assert_eq!(refused, document.kind_name().ends_with("Migration"), "{name}: {:?}", judged.findings);
        }
    }
}

#[test]
fn what_is_odd_stays_odd_and_harms_nobody() {
    for text in [
        "{apiVersion: kubevirt.io/v1alpha2, kind: VirtualMachine, spec: 7}",
        "{apiVersion: kubevirt.io/v1alpha2, kind: OfflineVirtualMachine, spec: {template: [], dataVolumeTemplates: [7, {}]}}",
        "{apiVersion: kubevirt.io/v1, kind: VirtualMachineInstance, metadata: [], spec: {volumes: {}, domain: {devices: {disks: [1]}}}}",
        "{apiVersion: kubevirt.io/v1/v2, kind: VirtualMachine}",
        "{apiVersion: v1, kind: VirtualMachine, status: 1}",
    ] {
        let once = converted(text, GROUP);
        let again: Vec<Value> = converted(&written(&once), GROUP);
        assert_eq!(again, once, "{text}");
    }
}
