//! The word that kubectl wants in front of a name: `pod/web`, `vmi/web`, `get pods`. Words for anything but pods are refused before
//! anything is done: who writes `delete svc web` does not mean the pod `web`.

/// What kubectl and KubeVirt call pods and their machines.
const WORDS: [&str; 11] = [
    "pod",
    "pods",
    "po",
    "vm",
    "vms",
    "vmi",
    "vmis",
    "virtualmachine",
    "virtualmachines",
    "virtualmachineinstance",
    "virtualmachineinstances",
];
/// Behind kinds of KubeVirt's in what `kubectl get -o name` prints.
const GROUP: &str = ".kubevirt.io";

/// What else kubectl and KubeVirt have, and what tells of it here.
const OTHERS: [(&[&str], &str); 7] = [
    (&["no", "node", "nodes"], "`virtletctl doctor` looks at this node"),
    (&["ev", "event", "events"], "`virtletctl events` tells what happens"),
    (&["ns", "namespace", "namespaces"], "`virtletctl get pods -A` shows the namespaces of pods"),
    (&["all"], "`virtletctl get pods` lists them"),
    (&["image", "images"], "`virtletctl image ls` lists images"),
    (
        &[
            "svc",
            "service",
            "services",
            "ep",
            "endpoints",
            "deploy",
            "deployment",
            "deployments",
            "rs",
            "replicaset",
            "replicasets",
            "rc",
            "replicationcontroller",
            "replicationcontrollers",
            "sts",
            "statefulset",
            "statefulsets",
            "ds",
            "daemonset",
            "daemonsets",
            "job",
            "jobs",
            "cj",
            "cronjob",
            "cronjobs",
            "vmirs",
            "virtualmachineinstancereplicaset",
            "vmpool",
            "virtualmachinepool",
        ],
        "`virtletctl get pods -l LABELS` finds the pods of one",
    ),
    (
        &[
            "secret",
            "secrets",
            "cm",
            "configmap",
            "configmaps",
            "pv",
            "persistentvolume",
            "persistentvolumes",
            "pvc",
            "persistentvolumeclaim",
            "persistentvolumeclaims",
            "sc",
            "storageclass",
            "storageclasses",
            "sa",
            "serviceaccount",
            "serviceaccounts",
            "ing",
            "ingress",
            "ingresses",
            "netpol",
            "networkpolicy",
            "networkpolicies",
            "hpa",
            "pdb",
            "quota",
            "limits",
            "crd",
            "role",
            "rolebinding",
            "clusterrole",
            "clusterrolebinding",
            "runtimeclass",
            "dv",
            "datavolume",
            "datavolumes",
            "vmsnapshot",
            "vmrestore",
            "vmclone",
            "vmexport",
        ],
        "kubectl asks the cluster for it",
    ),
];

/// Whether a word is one for pods or machines, or several such with commas.
pub(super) fn is_kind(word: &str) -> bool {
    word.split(',').all(is_ours)
}

fn is_ours(word: &str) -> bool {
    WORDS.contains(&word.strip_suffix(GROUP).unwrap_or(word))
}

/// What follows `pod/` and its like; the whole text if nothing of that kind is in front.
pub(super) fn without(text: &str) -> &str {
    text.split_once('/').filter(|(word, _)| is_kind(word)).map_or(text, |(_, name)| name)
}

/// Why a word is refused that is one for something else than pods, also beside words for pods, as in `pods,svc`.
pub(super) fn refusal(word: &str) -> Option<String> {
    word.split(',').find_map(|word| {
        let bare = word.strip_suffix(GROUP).unwrap_or(word);
        let (_, instead) = OTHERS.iter().find(|(words, _)| words.contains(&bare))?;
        Some(format!("`{word}` is another kind, and here are pods alone; {instead}"))
    })
}

#[cfg(test)]
pub(super) fn hints() -> impl Iterator<Item = &'static str> {
    OTHERS.iter().map(|(_, instead)| *instead)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kind_is_taken_off_a_name_once() {
        for (text, wanted) in [
            ("pod/web", "web"),
            ("vmi/web", "web"),
            ("po/default/web", "default/web"),
            ("pod/pod/web", "pod/web"),
            ("virtualmachineinstance.kubevirt.io/web", "web"),
            ("default/web", "default/web"),
            ("pod", "pod"),
            ("node/web", "node/web"),
        ] {
            assert_eq!(without(text), wanted, "{text}");
        }
    }

    #[test]
    fn other_kinds_are_refused_also_beside_ours() {
        for (word, wanted) in [
            ("svc", Some("`svc` is another kind, and here are pods alone; `virtletctl get pods -l LABELS` finds")),
            ("pods,nodes", Some("`nodes` is another kind, and here are pods alone; `virtletctl doctor`")),
            ("pods,vmi", None),
            ("web", None),
        ] {
            let told = refusal(word);
            assert!(
                told.as_deref().map_or(wanted.is_none(), |told| told.starts_with(wanted.unwrap_or("-"))),
                "{told:?}"
            );
        }
        assert!(is_kind("pod,vmi") && !is_kind("pods,svc") && !is_kind(""));
    }
}
