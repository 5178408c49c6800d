//! Of commands that stop, start and remove machines.

use super::{Entry, LEAVE};

const OFF: &[&str] = &["stop", "restart"];
const ALL: &[&str] = &["stop", "restart", "reset", "kill", "start", "pause", "resume", "rm", "delete"];
const BY_NAME: &[&str] = &["pause", "resume", "reset"];

pub(super) const OPTIONS: &[Entry] = &[
    (OFF, &["-1"], "as long as it takes is a week at most: `-t 604800`"),
    (
        &["stop"],
        &["-s", "--signal", "-f", "--force", "--grace-period"],
        "`-t SECONDS` is the guest's time, and `virtletctl kill POD` ends a machine at once",
    ),
    (&["stop"], &["-a", "--all"], "`virtletctl stop $(virtletctl ps -q)` stops all"),
    (&["stop"], &["--cancel"], "a stop that has begun is not called off"),
    (
        &["restart"],
        &["-s", "--signal", "-f", "--force", "--grace-period"],
        "`-t SECONDS` is the guest's time, and `virtletctl reset POD` restarts at once",
    ),
    (&["restart"], &["-a", "--all"], "`virtletctl restart $(virtletctl ps -q)` restarts all"),
    (&["kill"], &["-a", "--all"], "`virtletctl kill $(virtletctl ps -q)` ends all"),
    (&["kill"], &["-t", "--timeout", "--time"], "`virtletctl stop -t SECONDS POD` gives a guest time"),
    (
        &["start"],
        &["-a", "-i", "--attach", "--interactive"],
        "`virtletctl console POD` shows a machine that has started; `virtletctl start $(virtletctl ps -aq)` starts all",
    ),
    (&["start"], &["--all"], "`virtletctl start $(virtletctl ps -aq)` starts all"),
    (&["start"], &["--paused"], "`virtletctl pause POD` has a guest stand still that runs"),
    (BY_NAME, &["-a", "--all"], "`virtletctl ps -q` lists the pods that run; name them"),
    (BY_NAME, &["-f", "--force"], LEAVE),
    (ALL, &["--dry-run"], "nothing is only tried; `virtletctl ps NAME` shows what a name means"),
    (&["rm"], &["-a", "--all"], "`virtletctl rm $(virtletctl ps -aq)` removes what does not run"),
    (&["rm"], &["-l", "--link"], "there are no links between pods; a pod is removed by `virtletctl rm POD`"),
    (&["rm"], &["-k", "--keep-logs"], "logs go with the pod; leave it out"),
    (
        &["delete"],
        &["-f", "--filename", "-k", "--kustomize", "-R", "--recursive"],
        "name the pods: `virtletctl delete POD`; manifests are for `kubectl delete -f FILE`",
    ),
    (&["delete"], &["--timeout"], "`--grace-period SECONDS` is the guest's time to shut down"),
    (
        &["delete"],
        &["-a", "--all", "-l", "--selector", "-A", "--all-namespaces", "--field-selector"],
        "`virtletctl ps -aq -n NAMESPACE -l LABELS --field-selector FIELDS` lists what to name",
    ),
    (&["delete"], &["-p", "--purge"], "what is deleted is gone for good; leave it out"),
    (
        &["delete"],
        &["-i", "--interactive"],
        "nothing asks before it removes; `virtletctl ps NAME` shows what a name means",
    ),
    (&["delete"], &["--ignore-not-found"], "what is not there is an error, and all else is removed"),
    (&["delete"], &["--wait", "--cascade", "-o", "--output"], LEAVE),
    (&["forget"], &["-a", "--all", "-f", "--force"], "`virtletctl orphans` lists what can be named"),
];
