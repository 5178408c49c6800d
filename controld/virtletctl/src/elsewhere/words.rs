//! Commands that docker, kubectl, virsh, virtctl, multipass and crictl have and virtletctl has not, and what does instead.

type Entry = (&'static [&'static str], &'static str);

/// Their words, and ours.
const WORDS: &[Entry] = &[
    (
        &["apply", "create", "replace"],
        "`virtletctl run IMAGE` makes a pod; manifests are for `kubectl apply`, and `virtletctl validate -f FILE` judges them",
    ),
    (
        &["launch", "runp"],
        "`virtletctl run IMAGE --name NAME --cpus 2 -m 4g --user-data FILE` makes a pod and starts it; --annotation \
         VirtletRootVolumeSize=20Gi says how large its disk is",
    ),
    (
        &["container"],
        "pods are what there is: leave the word out, as in `virtletctl ps`, `virtletctl logs POD` and `virtletctl rm POD`",
    ),
    (&["pods"], "`virtletctl ps -a` lists pods"),
    (&["inspectp"], "`virtletctl inspect POD` tells all of a pod"),
    (&["stopp"], "`virtletctl stop POD` stops a pod's machine"),
    (&["rmp"], "`virtletctl rm POD` removes a pod"),
    (&["statsp"], "`virtletctl stats` shows what pods use"),
    (&["img"], "`virtletctl image ls` lists images"),
    (&["inspecti"], "`virtletctl image inspect NAME` tells of an image"),
    (
        &["imagefsinfo"],
        "`virtletctl image ls` lists images with their sizes, and `virtletctl doctor` tells what room there is",
    ),
    (&["search", "find"], "`virtletctl image search PREFIX` finds images at providers"),
    (
        &["scp", "transfer", "copy-files", "copy"],
        "`virtletctl cp FROM POD:PATH` copies to a guest, and `virtletctl cp POD:PATH TO` from it",
    ),
    (
        &["mount", "umount", "unmount"],
        "directories of the node are shared when a pod is made: `virtletctl run -v PATH:PATH IMAGE`",
    ),
    (
        &["build", "commit", "buildx", "builder"],
        "images are made by other programs, and taken by `virtletctl image import FILE`",
    ),
    (&["login", "logout"], "a pull logs in by itself: `virtletctl pull --username USER --password-file FILE IMAGE`"),
    (&["network", "networks"], "`tapmanager networks` lists networks, and `virtletctl run --network NAME` uses one"),
    (&["volume", "volumes"], "`virtletctl run -v PATH:PATH` shares a directory of the node"),
    (
        &["import", "load"],
        "`virtletctl image import FILE` takes a disk as an image, and `virtletctl pull URL` fetches one; `virtletctl run ./FILE` \
         starts it, too",
    ),
    (&["image-upload"], "`virtletctl image import FILE` takes a disk as an image"),
    (&["save"], "`virtletctl image save NAME FILE` writes an image's disk"),
    (&["push"], "nothing is pushed from here; `virtletctl image save NAME FILE` writes an image's disk"),
    (&["prune"], "`virtletctl image prune` removes images that no pod uses; `virtletctl rm POD` removes pods"),
    (
        &["tag", "history", "manifest"],
        "an image is called what it was pulled or imported as; `virtletctl image inspect NAME` tells of it",
    ),
    (
        &["info", "system", "node", "nodes", "cluster-info", "status", "runtime-config"],
        "`virtletctl doctor` looks at the node, `virtletctl describe POD` at a pod, and `virtletctl image prune` makes room; \
         `virtletctl events` tells what happens",
    ),
    (
        &["update", "edit", "patch", "set", "scale", "resize", "rename", "label", "annotate"],
        "what a pod is made of stays; `virtletctl run` makes another, and a pod of a cluster is changed by `kubectl`",
    ),
    (
        &["port"],
        "`virtletctl port-forward POD PORT` opens one until Ctrl-C, and `virtletctl run -p PORT:PORT` publishes one",
    ),
    (
        &["expose"],
        "`virtletctl port-forward POD PORT` opens a port until Ctrl-C, and `virtletctl run -p PORT:PORT` publishes one",
    ),
    (
        &["diff"],
        "`virtletctl cp POD:/ -` writes an archive of a guest's files; a manifest is judged by `virtletctl validate -f FILE`",
    ),
    (&["export"], "`virtletctl cp POD:/ -` writes an archive of a guest's files"),
    (&["screenshot"], "`virtletctl vnc --screenshot FILE POD` writes what a screen shows"),
    (&["shutdown"], "`virtletctl stop POD` has a guest shut down"),
    (&["soft-reboot"], "`virtletctl restart POD` has a guest shut down, and starts it again"),
    (&["destroy"], "`virtletctl kill POD` ends a machine at once; `virtletctl rm -f POD` removes it, too"),
    (&["suspend"], "`virtletctl pause POD` has a guest stand still"),
    (&["dominfo", "domstate", "dumpxml"], "`virtletctl describe POD` tells all of a machine"),
    (
        &["recover", "undelete", "purge"],
        "what was deleted is gone for good; `virtletctl stop POD` keeps the disk, and `virtletctl start POD` goes on with it",
    ),
    (
        &["snapshot", "clone", "vmexport"],
        "`virtletctl checkpoint POD DIR` writes a machine to a directory, and `virtletctl restore DIR IMAGE` makes a pod of that; \
         `virtletctl cp POD:/ -` writes an archive of its files",
    ),
    (
        &["memory-dump"],
        "`virtletctl checkpoint POD DIR` writes a machine's memory, and its disks; `virtletctl cp POD:/ -` an archive of a guest's files",
    ),
    (&["debug"], "`virtletctl shell POD` opens a shell in a guest, and `virtletctl console POD` its console"),
    (&["connect"], "`virtletctl shell POD` opens a shell in a guest"),
    (&["wait-ready"], "`virtletctl wait --for ready POD` waits for a guest"),
    (
        &["guestosinfo", "fslist", "userlist"],
        "`virtletctl exec POD COMMAND` asks the guest, by `cat /etc/os-release`, `df` or `who`",
    ),
    (
        &["credentials"],
        "`virtletctl run --ssh-key FILE IMAGE` gives a guest a key; in a guest that runs, `virtletctl shell POD` does",
    ),
    (
        &["migrate", "migrate-cancel", "evacuate-cancel", "addvolume", "removevolume", "usbredir", "permitted-devices"],
        "a machine stays on its node, as it was made; `virtletctl run IMAGE` makes another",
    ),
    (
        &["rollout", "drain", "cordon", "uncordon", "taint", "autoscale", "auth", "certificate", "kustomize"],
        "that is the cluster's, by `kubectl`; `virtletctl get pods` lists the pods of this node",
    ),
    (&["api-resources", "api-versions"], "here are pods alone: `virtletctl get pods` lists them"),
    (
        &["config", "context", "configuration", "options"],
        "there is no configuration to choose; `virtletctl --socket PATH ps`, or VIRTLET_SOCKET, says where controld is",
    ),
    (
        &["metricsp", "metricdescs"],
        "controld serves metrics for Prometheus; `virtletctl stats` shows what machines use",
    ),
    (&["compose", "stack", "swarm", "service"], "pods are made one by one: `virtletctl run IMAGE`"),
    (
        &[
            "secret",
            "trust",
            "scout",
            "sev",
            "plugin",
            "adm",
            "alias",
            "aliases",
            "unalias",
            "prefer",
            "register",
            "authenticate",
            "blueprints",
            "dry-run",
            "objectgraph",
            "update-runtime-config",
            "stopi",
        ],
        "there is nothing of that kind; `virtletctl help` lists all commands",
    ),
];

/// Of `image`.
const OF_IMAGE: &[Entry] = &[
    (&["push"], "nothing is pushed from here; `virtletctl image save NAME FILE` writes an image's disk"),
    (&["build", "load"], "images are made by other programs, and taken by `virtletctl image import FILE`"),
    (
        &["tag", "history"],
        "an image is called what it was pulled or imported as; `virtletctl image inspect NAME` tells of it",
    ),
    (&["create", "run"], "`virtletctl run IMAGE` makes a pod of an image"),
    (&["find"], "`virtletctl image search PREFIX` finds images at providers"),
    (&["df", "info"], "`virtletctl image ls` lists images with their sizes"),
];

/// Of `vm`: what KubeVirt's virtctl has, and the cluster's server of its verbs has not.
const OF_VM: &[Entry] = &[
    (
        &["addvolume", "removevolume", "add-volume", "remove-volume"],
        "nothing is plugged into a VM that runs; change its template's volumes, and restart it",
    ),
    (
        &["migrate", "migrate-cancel", "evacuate-cancel"],
        "there is no live migration; restart the VM, or drain its node: it comes again elsewhere",
    ),
    (&["memory-dump"], "memory is not dumped; a kernel in the guest writes a dump of its own (kdump)"),
    (
        &["usbredir", "permitted-devices", "vsock"],
        "no device of another machine reaches a guest; a device plugin gives a VM one of its node",
    ),
    (&["expose"], "a Service whose selector is `vm.kubevirt.io/name` of a VM reaches it"),
    (
        &["create", "apply", "delete", "edit", "patch", "scale", "describe", "wait", "events", "logs", "adm"],
        "VMs are objects of the cluster like others: kubectl does that",
    ),
    (&["image-upload", "guestfs", "vmexport"], "what is in claims, others bring there, such as CDI or a pod of yours"),
    (&["exec", "shell"], "`virtletctl vm ssh NAME` logs in at the guest"),
    (&["cp"], "`virtletctl vm scp FROM NAME:PATH` copies to a guest"),
    (&["connect"], "`virtletctl vm console NAME` is its console"),
];

/// What does instead of a word behind `command`, which is empty for what stands first; `None` if it is not known.
pub(super) fn instead(command: &str, word: &str) -> Option<&'static str> {
    let table = match command {
        "" => WORDS,
        "image" => OF_IMAGE,
        "vm" => OF_VM,
        _ => &[],
    };
    table.iter().find(|(words, _)| words.contains(&word)).map(|(_, instead)| *instead)
}

#[cfg(test)]
pub(super) fn hints() -> impl Iterator<Item = &'static str> {
    WORDS.iter().chain(OF_IMAGE).chain(OF_VM).map(|(_, instead)| *instead)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use clap::CommandFactory as _;

    use super::*;
    use crate::cli::Cli;

    #[test]
    fn only_what_is_no_command_is_done_elsewhere() {
        let root = Cli::command();
        let image = root.find_subcommand("image").expect("a command");
        let vm = root.find_subcommand("vm").expect("a command");
        for (command, table) in [(&root, WORDS), (image, OF_IMAGE), (vm, OF_VM)] {
            let mut seen = BTreeSet::new();
            for word in table.iter().flat_map(|(words, _)| *words) {
                assert!(command.find_subcommand(word).is_none() && seen.insert(word), "{word}");
            }
        }
        assert_eq!(instead("", "suspend"), Some("`virtletctl pause POD` has a guest stand still"));
        assert_eq!(instead("", "ps"), None);
    }
}
