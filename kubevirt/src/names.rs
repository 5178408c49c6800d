//! Names, annotations and labels that objects and their pods have.

pub use proto::vm::guest::VMI;
use sha2::{Digest as _, Sha256};

/// The same under the name by which Services of KubeVirt's command line select.
pub(crate) const VM_NAME: &str = "vm.kubevirt.io/name";
/// Annotation that says which presets were merged, and what of them.
pub const PRESETS: &str = "virtlet.k8s/presets";
/// Annotation by which an object has no presets merged, and what KubeVirt's code and its page have for it.
pub(crate) const EXCLUDE: &str = "virtlet.k8s/preset-exclude";
pub(crate) const OTHER_EXCLUDES: [&str; 2] = [
    "virtualmachineinstancepresets.admission.kubevirt.io/exclude",
    "virtualmachinepresets.admission.kubevirt.io/exclude",
];
/// Has pods without a RuntimeClass of ours, and their images, be VMs on nodes that run containers, too.
pub(crate) const TARGET: (&str, &str) = ("kubernetes.io/target-runtime", "virtlet.cloud");
/// Multus' annotations.
pub(crate) const NETWORKS: &str = "k8s.v1.cni.cncf.io/networks";
pub(crate) const DEFAULT_NETWORK: &str = "v1.multus-cni.io/default-network";
/// Longest value of a label.
const MAX_LABEL: usize = 63;

/// A name as the value of a label: itself if it fits, else as much as fits with a part of its hash.
pub(crate) fn label_value(name: &str) -> String {
    if name.len() <= MAX_LABEL { name.to_owned() } else { format!("{}-{}", &cut(name, MAX_LABEL - 9), hash(name, 8)) }
}

/// The beginning of a name, of so many bytes at most, that may have something behind it.
#[must_use]
pub fn cut(name: &str, most: usize) -> &str {
    let mut end = most.min(name.len());
    while !name.is_char_boundary(end) {
        end -= 1;
    }
    name.get(..end).unwrap_or_default().trim_end_matches(['-', '.'])
}

/// The first hex digits of a text's hash.
#[must_use]
pub fn hash(text: &str, digits: usize) -> String {
    let hash: String = Sha256::digest(text.as_bytes()).iter().map(|byte| format!("{byte:02x}")).collect();
    hash.chars().take(digits).collect()
}
