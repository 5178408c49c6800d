//! Names, annotations and labels that objects and their pods have.

pub use proto::vm::guest::VMI;
use sha1::Sha1;
use sha2::{Digest as _, Sha256};

/// The same under the name by which Services of KubeVirt's command line selected before.
pub(crate) const VM_NAME: &str = "vm.kubevirt.io/name";
/// And by which they select now, with [`instance_id`] as its value.
pub(crate) const INSTANCE_ID: &str = "vmi.kubevirt.io/id";
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

/// A name as `virtctl expose` writes it into a Service: as [`label_value`], with another hash, and cut wherever that is.
pub(crate) fn instance_id(name: &str) -> String {
    if name.len() <= MAX_LABEL {
        return name.to_owned();
    }
    let begin: String = name.chars().take(MAX_LABEL - 9).collect();
    let hash: String = Sha1::digest(name.as_bytes()).iter().take(4).map(|byte| format!("{byte:02x}")).collect();
    format!("{begin}-{hash}")
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_instance_is_known_as_virtctl_knows_it() {
        assert_eq!(instance_id("web"), "web");
        assert_eq!(instance_id(&"a".repeat(63)), "a".repeat(63));
        // By `sha1sum`.
        assert_eq!(instance_id(&"a".repeat(64)), format!("{}-0098ba82", "a".repeat(54)));
        let dots = format!("{}.{}", "a".repeat(53), "b".repeat(20));
        assert!(instance_id(&dots).starts_with(&format!("{}.-", "a".repeat(53))));
    }
}
