//! Of commands that look at pods and machines.

use super::{Entry, LEAVE};

const LISTS: &[&str] = &["ps", "get"];
const USE: &[&str] = &["stats", "top"];

pub(super) const OPTIONS: &[Entry] = &[
    (LISTS, &["--last", "--latest"], "the newest pods are the last of `virtletctl ps -a --sort-by created`"),
    (LISTS, &["-s", "--size"], "`virtletctl stats` shows what machines use, and `-f status=STATE` narrows the list"),
    (
        LISTS,
        &["--name", "--id", "--image", "--label", "-p", "--pod", "--state"],
        "`-f KEY=VALUE` narrows the list, by name, id, label, status or ancestor",
    ),
    (LISTS, &["-v", "--verbose"], "`-o wide` shows more"),
    (LISTS, &["--watch-only", "--output-watch-events"], "`-w` shows all, and then each that changes"),
    (LISTS, &["--show-labels", "-L", "--label-columns"], "`--format 'table {{.Name}}\\t{{.Labels}}'` shows labels"),
    (LISTS, &["--no-headers"], "`--format '{{.Name}} {{.State}}'` has no heads"),
    (LISTS, &["--template"], "`--format '{{.Name}}'` is a template, and so is `-o jsonpath=TEMPLATE`"),
    (LISTS, &["--raw", "--keys"], "there is nothing of that kind; `virtletctl inspect POD` tells all of a pod"),
    (
        LISTS,
        &[
            "-r",
            "--resolve-image-path",
            "--no-ipv4",
            "--snapshots",
            "-R",
            "--recursive",
            "--chunk-size",
            "--show-kind",
            "--server-print",
            "--ignore-not-found",
            "--show-managed-fields",
        ],
        LEAVE,
    ),
    (
        &["inspect"],
        &["-f", "--format", "--template"],
        "`-o json` is for jq, and `virtletctl get POD -o jsonpath=TEMPLATE` prints one thing",
    ),
    (&["inspect"], &["--type"], "`virtletctl image inspect NAME` tells of an image"),
    (&["inspect"], &["-s", "--size"], "`virtletctl stats POD` shows what a machine uses"),
    (&["inspect"], &["--name", "--id"], "a pod is named by its name or id alone; leave it out"),
    (&["inspect"], &["--state", "-q", "--quiet", "--label", "--latest"], "`virtletctl ps -f KEY=VALUE` lists pods"),
    (
        &["describe"],
        &["-l", "--selector", "-A", "--all-namespaces", "--all"],
        "`virtletctl ps -aq -n NAMESPACE -l LABELS` lists what to name",
    ),
    (&["describe"], &["-o", "--output"], "`virtletctl inspect -o yaml POD` is for programs"),
    (&["describe"], &["-f", "--filename"], "manifests are judged by `virtletctl validate -f FILE`"),
    (&["describe"], &["--show-events"], "`virtletctl events` tells what happens from now on"),
    (USE, &["-a", "--all"], "what does not run uses nothing; leave it out"),
    (USE, &["--no-trunc", "--format", "--no-headers", "--sum", "--containers"], "`-o json` is for programs"),
    (
        USE,
        &["-w", "--watch", "-s", "--seconds"],
        "`virtletctl stats` goes on by itself, and `virtletctl top` looks once; leave it out",
    ),
    (USE, &["--id", "--pod", "--name", "--label"], "name the pods, or take `-l LABELS`"),
    (USE, &["--sort-by", "--use-protocol-buffers", "--use-protobuf"], "`-o json` is for programs; leave it out"),
    (USE, &["-e", "-f", "-x"], "processes of a guest are shown by `virtletctl exec POD ps aux`"),
    (
        &["events"],
        &["--since", "--until"],
        "events are told from now on; those before are in the log, `journalctl -u controld`",
    ),
    (&["events"], &["-f", "--filter", "--types", "--for"], "`-n NAMESPACE` and `-l LABELS` narrow them"),
    (&["events"], &["--format", "--template", "--no-headers"], "`-o json` is an object a line"),
    (&["events"], &["-w", "--watch"], "it goes on by itself; leave it out"),
    (&["logs"], &["--since-time"], "`--since DURATION` is how long ago, such as 10m"),
    (&["logs"], &["--until", "--limit-bytes"], "`virtletctl logs POD | head` ends the output"),
    (
        &["logs"],
        &["-l", "--selector", "--all-pods", "--max-log-requests"],
        "the log is of one pod: `virtletctl logs POD`",
    ),
    (&["logs"], &["--all-containers"], "a pod has one machine; another of its containers is named by `-c NAME`"),
    (&["logs"], &[""], "the container is named by `-c NAME`"),
    (
        &["logs"],
        &[
            "--details",
            "--prefix",
            "--ignore-errors",
            "--insecure-skip-tls-verify-backend",
            "--pod-running-timeout",
            "-r",
        ],
        LEAVE,
    ),
    (
        &["wait"],
        &["-l", "--selector", "--all", "-A", "--all-namespaces"],
        "`virtletctl ps -aq -n NAMESPACE -l LABELS` lists what to name",
    ),
    (&["wait"], &["-f", "--filename"], "name the pods: `virtletctl wait --for ready POD`"),
    (
        &["explain"],
        &["--recursive", "--api-version"],
        "docs/annotations.md tells what a pod may say, and `virtletctl explain POD` what its machine has",
    ),
    (&["version"], &["-f", "--format"], "`-o json` is for programs"),
    (&["version"], &["--short"], "`--client` tells of virtletctl alone"),
    (&["doctor"], &["-v", "--verbose"], "`-o wide` shows more"),
];
