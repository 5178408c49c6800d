//! Which annotations pods of a runtime handler may have: a node's owner decides.

use std::collections::BTreeMap;

use serde::Deserialize;

use proto::vm::{ANNOTATION, VmDescription};

use super::keys;
use crate::plan::{Chipset, MachineType};

/// What nobody may set unless the runtime handler allows it by name: it gives a guest any CPU that QEMU can make.
const ASKED_FOR: [&str; 1] = [keys::CPU_SETTING];

/// Names of annotations, with `*` for any letters.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct AnnotationPolicy {
    /// If there are some, all others are refused.
    pub allow: Vec<String>,
    /// These are refused, allowed or not.
    pub deny: Vec<String>,
}

impl AnnotationPolicy {
    /// The annotations that a pod may not have here, under the names that it uses.
    #[must_use]
    pub fn forbidden<'a>(&self, all: &'a BTreeMap<String, String>) -> Vec<&'a str> {
        let is_ours = |key: &str| keys::is_ours(key) || key == ANNOTATION || key == keys::MACS;
        let ours = all.iter().filter(|(key, value)| is_ours(key) && !value.is_empty());
        ours.filter(|(key, value)| !self.permits(key, value)).map(|(key, _)| key.as_str()).collect()
    }

    fn permits(&self, key: &str, value: &str) -> bool {
        let canonical = keys::canonical(key);
        let names: Vec<String> = [Some(key.to_owned()), canonical.map(str::to_owned), canonical.and_then(keys::alias)]
            .into_iter()
            .flatten()
            .collect();
        let is_in = |list: &[String]| list.iter().any(|glob| names.iter().any(|name| matches(glob, name)));
        let by_name =
            canonical.is_some_and(|name| ASKED_FOR.contains(&name)) || key == ANNOTATION && asks_for_more(value);
        // The operator says MAC addresses of each of its pods, and a network that takes none gives another one.
        let is_operators = key == keys::MACS;
        let allowed =
            if by_name { is_in(&self.allow) } else { self.allow.is_empty() || is_operators || is_in(&self.allow) };
        let others = if key == ANNOTATION { said_elsewhere(value) } else { Vec::new() };
        allowed && !is_in(&self.deny) && others.into_iter().all(|other| self.permits(other, value))
    }
}

/// Whether a description says what a guest's CPU has more or less, as a CPU in detail may, or wants the chipset of old or a USB controller,
/// of which much more is emulated.
fn asks_for_more(description: &str) -> bool {
    let Ok(VmDescription { cpu, machine, devices, .. }) = VmDescription::parse(description) else { return false };
    let by_usb = devices.is_some_and(|devices| devices.inputs.iter().any(|input| input.bus != "virtio"));
    let machine = machine.and_then(|machine| machine.parse::<MachineType>().ok());
    let by_chipset = machine.is_some_and(|it| it.chipset() == Chipset::I440fx);
    by_chipset || by_usb || cpu.is_some_and(|cpu| !cpu.features.is_empty())
}

/// The annotations that say what a description says, too.
fn said_elsewhere(description: &str) -> Vec<&'static str> {
    let Ok(description) = VmDescription::parse(description) else { return Vec::new() };
    let of_seed = description.cloud_init.unwrap_or_default();
    let said = [
        (!of_seed.ssh_keys.is_empty(), keys::SSH_KEY_SOURCE),
        (of_seed.network_data.is_some(), keys::NETWORK_CONFIG),
        (description.disks.iter().any(|disk| disk.bus.is_some()), keys::DISK_DRIVER),
    ];
    said.into_iter().filter_map(|(is_said, key)| is_said.then_some(key)).collect()
}

/// Whether a name is as a pattern says, in which `*` is any number of any letters.
pub fn matches(pattern: &str, name: &str) -> bool {
    let mut parts = pattern.split('*');
    let first = parts.next().unwrap_or_default();
    let Some(mut rest) = name.strip_prefix(first) else { return false };
    let Some(last) = parts.next_back() else { return rest.is_empty() };
    for part in parts {
        match rest.find(part) {
            Some(at) => rest = rest.get(at + part.len()..).unwrap_or_default(),
            None => return false,
        }
    }
    rest.ends_with(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn forbidden(allow: &[&str], deny: &[&str], keys: &[&str]) -> Vec<String> {
        let list = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        let all = keys.iter().map(|key| ((*key).to_owned(), "x".to_owned())).collect();
        let policy = AnnotationPolicy { allow: list(allow), deny: list(deny) };
        policy.forbidden(&all).into_iter().map(str::to_owned).collect()
    }

    #[test]
    fn either_name_of_an_annotation_is_meant() {
        let both = ["VirtletVCPUCount", "virtlet.cloud/vcpu-count"];
        for pattern in ["VirtletVCPUCount", "virtlet.cloud/vcpu-count", "*VCPU*", "virtlet.cloud/*-count"] {
            assert_eq!(forbidden(&[], &[pattern], &both), both, "{pattern}");
            assert!(forbidden(&[pattern], &[], &both).is_empty(), "{pattern}");
            assert_eq!(forbidden(&[pattern], &[pattern], &both), both, "{pattern}");
        }
        assert_eq!(forbidden(&["VirtletSSHKeys"], &[], &["VirtletSSHKeys", "VirtletVCPUCount"]), ["VirtletVCPUCount"]);
        assert!(forbidden(&["VirtletSSHKeys"], &["*"], &["example.com/x"]).is_empty(), "others' are none of ours");
        assert!(forbidden(&["VirtletSSHKeys"], &[], &["virtlet.k8s/macs"]).is_empty(), "it is the operator's");
        assert_eq!(forbidden(&[], &["virtlet.k8s/*"], &["virtlet.k8s/macs"]), ["virtlet.k8s/macs"]);
    }

    #[test]
    fn a_cpu_in_detail_is_for_those_whose_handler_says_so() {
        let detail = ["VirtletLibvirtCPUSetting"];
        assert_eq!(forbidden(&[], &[], &detail), detail);
        assert!(forbidden(&["*"], &[], &detail).is_empty());
        assert!(forbidden(&["virtlet.cloud/libvirt-cpu-setting"], &[], &detail).is_empty());
    }

    #[test]
    fn a_description_is_ours_and_one_with_features_of_a_cpu_is_a_cpu_in_detail() {
        let of = |allow: &[&str], deny: &[&str], value: &str| {
            let list = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
            let all = [(ANNOTATION.to_owned(), value.to_owned())].into();
            AnnotationPolicy { allow: list(allow), deny: list(deny) }.forbidden(&all).len()
        };
        let (plain, features) = (r#"{"v":1,"endsAtReboot":true}"#, r#"{"v":1,"cpu":{"features":[{"name":"vmx"}]}}"#);
        assert_eq!((of(&[], &[], plain), of(&[], &[], features)), (0, 1));
        assert_eq!((of(&["Virtlet*"], &[], plain), of(&["virtlet.k8s/vm"], &[], features)), (1, 0));
        assert_eq!(of(&[], &["virtlet.k8s/*"], plain), 1);
        let (old, new) = (r#"{"v":1,"machine":"pc-i440fx-9.2"}"#, r#"{"v":1,"machine":"pc-q35-9.2"}"#);
        let keys = r#"{"v":1,"cloudInit":{"sshKeys":["k"]}}"#;
        assert_eq!((of(&[], &[], keys), of(&[], &["VirtletSSHKeySource"], keys)), (0, 1));
        assert_eq!((of(&["virtlet.k8s/vm"], &[], keys), of(&["virtlet.*", "VirtletSSH*"], &[], keys)), (1, 0));
        assert_eq!((of(&[], &[], old), of(&["virtlet.k8s/vm"], &[], old), of(&[], &[], new)), (1, 0, 0));
    }

    #[test]
    fn stars_stand_for_any_letters() {
        for (pattern, name, so) in [
            ("a*c", "abc", true),
            ("a*c", "ac", true),
            ("a*c", "abd", false),
            ("*b*", "abc", true),
            ("a*b*c", "axbyc", true),
            ("a*bb*b", "abb", false),
            ("abc", "abcd", false),
            ("", "a", false),
            ("*", "", true),
            ("**", "a", true),
        ] {
            assert_eq!(matches(pattern, name), so, "{pattern} {name}");
        }
    }
}
