//! Pods that the crate `kubevirt` makes of objects, judged by this daemon's steps: all but those whose description says what no machine is
//! made by become machines, with the memory that their objects say. It reads the snapshots of that crate's tests.

use std::fs;
use std::path::Path;

use vmspec::Accelerator;
use vmspec::manifest::{ManifestError, read};

use super::judge;
use crate::config::Config;

const SNAPSHOTS: &str = "../kubevirt/src/render/snapshots";
const CLASS: &str = include_str!("../../../deploy/runtimeclass.yaml");
/// Of which nodes of this release take a part.
const DESCRIPTION: &str = "virtlet.k8s/vm";

#[test]
fn what_objects_of_kubevirts_become_is_a_machine() {
    let config =
        Config::parse("[handlers.uefi]\nfirmware = 'uefi'\n[handlers.windows]\nfirmware = 'uefi'\nsecure_boot = true");
    let config = config.expect("parses").checked().expect("valid");
    let (mut sizes, mut refused) = (Vec::new(), 0);
    let crate_dir = std::env::var_os("CARGO_MANIFEST_DIR").expect("cargo names it to a test");
    let dir = Path::new(&crate_dir).join(SNAPSHOTS);
    for file in fs::read_dir(dir).expect("snapshots") {
        let file = file.expect("an entry").path();
        let text = fs::read_to_string(&file).expect("text");
        let (_, objects) = text.split_once("\n---\n").expect("what insta has at the top");
        let class = |name: &str| CLASS.replace(": virtlet\n", &format!(": {name}\n"));
        let manifest =
            match read(&format!("{objects}\n---\n{CLASS}\n---\n{}\n---\n{}", class("uefi"), class("windows"))) {
                Ok(manifest) => manifest,
                // Objects that are refused.
                Err(ManifestError::NoPods | ManifestError::NotYaml(_)) => continue,
                Err(error) => panic!("{}: {error}", file.display()),
            };
        for pod in &manifest.pods {
            let verdict = judge(&config, Accelerator::Kvm, &manifest, pod);
            if pod.annotations.contains_key(DESCRIPTION) && !verdict.problems.is_empty() {
                let is_it = |problem: &String| problem.starts_with("annotation virtlet.k8s/vm: ");
                assert!(verdict.problems.iter().all(is_it), "{}: {verdict:?}", pod.object);
                refused += 1;
                continue;
            }
            assert!(verdict.problems.is_empty(), "{}: {:?}", pod.object, verdict.problems);
            let memory = verdict.settings.iter().find(|setting| setting.name == "guest memory").expect("memory");
            sizes.push(format!("{} {}", pod.object, memory.value));
        }
    }
    sizes.sort();
    sizes.dedup();
    assert!(sizes.len() > 10 && refused > 0, "{sizes:?}, {refused}");
    insta::assert_snapshot!(sizes.join("\n"));
}
