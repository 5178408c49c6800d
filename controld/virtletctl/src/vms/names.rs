//! Names of VMs, as virtctl and kubectl write them: `web`, `vm web`, `vm/web`, `vmi/web/NAMESPACE`. Pure.

use common::dns::is_label;

use crate::error::CtlError;

/// Longest name of an object.
const MAX_NAME: usize = 253;
/// Behind a kind in what `kubectl get -o name` prints.
const GROUPS: [&str; 2] = [".kubevirt.io", ".virtlet.k8s"];

/// Kinds of objects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Machine,
    Instance,
    ReplicaSet,
}

/// What a command line names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Named {
    pub(super) kind: Option<Kind>,
    pub(super) name: String,
    pub(super) namespace: Option<String>,
}

impl Kind {
    /// The kind of a word.
    pub(super) fn of(word: &str) -> Option<Self> {
        let bare = GROUPS.iter().find_map(|group| word.strip_suffix(group)).unwrap_or(word);
        match bare {
            "vm" | "vms" | "vvm" | "virtualmachine" | "virtualmachines" => Some(Self::Machine),
            "vmi" | "vmis" | "vvmi" | "virtualmachineinstance" | "virtualmachineinstances" => Some(Self::Instance),
            "vmirs"
            | "vmirss"
            | "vvmirs"
            | "virtualmachineinstancereplicaset"
            | "virtualmachineinstancereplicasets" => Some(Self::ReplicaSet),
            _ => None,
        }
    }

    pub(super) fn singular(self) -> &'static str {
        match self {
            Self::Machine => "virtualmachine",
            Self::Instance => "virtualmachineinstance",
            Self::ReplicaSet => "virtualmachineinstancereplicaset",
        }
    }

    /// As paths of the API have it.
    pub(super) fn plural(self) -> &'static str {
        match self {
            Self::Machine => "virtualmachines",
            Self::Instance => "virtualmachineinstances",
            Self::ReplicaSet => "virtualmachineinstancereplicasets",
        }
    }
}

/// Names, behind one word for the kind of all of them or not.
pub(super) fn read(words: &[String]) -> Result<Vec<Named>, CtlError> {
    let (kind, names) = match words {
        [first, rest @ ..] if !rest.is_empty() && Kind::of(first).is_some() => (Kind::of(first), rest),
        all => (None, all),
    };
    names.iter().map(|word| named(kind, word)).collect()
}

/// The same of one VM.
pub(super) fn one(words: &[String]) -> Result<Named, CtlError> {
    match &read(words)?[..] {
        [one] => Ok(one.clone()),
        _ => Err(CtlError::Usage(format!("one VM is wanted here, and `{}` is more", words.join(" ")))),
    }
}

fn named(kind: Option<Kind>, word: &str) -> Result<Named, CtlError> {
    let parts: Vec<&str> = word.split('/').collect();
    let (kind, name, namespace) = match parts[..] {
        [name] => (kind, name, None),
        [word, name] if Kind::of(word).is_some() => (Kind::of(word), name, None),
        [word, name, namespace] if Kind::of(word).is_some() => (Kind::of(word), name, Some(namespace)),
        _ => {
            let text = format!("`{word}` names no VM: write NAME, vm/NAME or vmi/NAME, and -n NAMESPACE");
            return Err(CtlError::Usage(text));
        }
    };
    if name.len() > MAX_NAME || !name.split('.').all(is_label) {
        let text = format!("`{name}` is no name of a VM, which is lower-case letters, digits, hyphens and dots");
        return Err(CtlError::Usage(text));
    }
    if let Some(namespace) = namespace.filter(|namespace| !is_label(namespace)) {
        return Err(CtlError::Usage(format!("`{namespace}` is no namespace")));
    }
    Ok(Named { kind, name: name.to_owned(), namespace: namespace.map(str::to_owned) })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<String> {
        line.split(' ').map(str::to_owned).collect()
    }

    #[test]
    fn vms_are_named_as_by_virtctl_and_kubectl() {
        let told = |line: &str| -> Vec<String> {
            let all = read(&words(line)).expect(line);
            all.iter().map(|one| format!("{:?} {} {:?}", one.kind, one.name, one.namespace)).collect()
        };
        assert_eq!(told("web"), ["None web None"]);
        assert_eq!(told("vm web db"), ["Some(Machine) web None", "Some(Machine) db None"]);
        assert_eq!(told("vmi/web vm/a.b/prod"), ["Some(Instance) web None", "Some(Machine) a.b Some(\"prod\")"]);
        assert_eq!(told("virtualmachine.kubevirt.io/web"), ["Some(Machine) web None"]);
        // What is alone is a name.
        assert_eq!(told("vm"), ["None vm None"]);
    }

    #[test]
    fn what_names_no_vm_is_refused() {
        for line in ["pod/web", "prod/web", "vm/web/prod/x", "vm/", "Web", "../web", "vm/web/Prod", "we\u{1b}b", "a..b"]
        {
            assert!(matches!(read(&words(line)), Err(CtlError::Usage(_))), "{line}");
        }
        assert!(one(&words("vm web db")).is_err() && one(&words("vm web")).is_ok());
        assert!(read(&["a".repeat(254)]).is_err());
    }
}
