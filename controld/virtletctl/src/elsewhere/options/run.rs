//! Of `run`, which is docker's, kubectl's and crictl's, and multipass's `launch`.

use super::{Entry, LEAVE};

const RUN: &[&str] = &["run"];

pub(super) const OPTIONS: &[Entry] = &[
    (RUN, &["--image"], "the image comes first: `virtletctl run IMAGE --name NAME`"),
    (
        RUN,
        &["--image-pull-policy", "--pull", "--no-pull"],
        "an image that is here is taken; `virtletctl pull --force IMAGE` fetches it anew before",
    ),
    (RUN, &["--port", "--expose", "-P", "--publish-all"], "`-p PORT:PORT` publishes a port of the guest"),
    (RUN, &["--labels", "--label-file"], "`-l KEY=VALUE`, once for each label"),
    (RUN, &["--annotations", "--overrides"], "`--annotation KEY=VALUE` says what no option does"),
    (RUN, &["--dry-run"], "`virtletctl validate FILE` says what would become of a manifest"),
    (RUN, &["--requests", "--limits"], "`-m` and `--cpus` say what a machine has"),
    (RUN, &["--restart"], "nothing restarts a machine that has ended; `virtletctl start POD` does"),
    (RUN, &["--attach"], "`-i` attaches to the console"),
    (
        RUN,
        &["--command", "-w", "--workdir", "-u", "--user", "--entrypoint", "--group-add"],
        "a machine runs what its image holds; a command is run by `virtletctl exec -w PATH -u USER POD COMMAND`",
    ),
    (
        RUN,
        &["--memory-swap", "--memory-reservation", "--memory-swappiness"],
        "`-m` is all the memory that a machine has",
    ),
    (
        RUN,
        &["-c", "--cpu-shares", "--cpu-quota", "--cpu-period", "--cpuset-cpus", "--cpuset-mems"],
        "`--cpus` says how much of CPUs a machine has",
    ),
    (RUN, &["--env-file"], "`-e NAME=VALUE`, once for each variable"),
    (RUN, &["--hostname"], "the guest's host name is the pod's: `--name NAME`"),
    (RUN, &["--mount", "--tmpfs", "--volumes-from"], "`-v PATH:PATH` shares a directory of the node with the guest"),
    (
        RUN,
        &[
            "--ip",
            "--ip6",
            "--dns",
            "--dns-search",
            "--dns-option",
            "--add-host",
            "--mac-address",
            "--link",
            "--network-alias",
        ],
        "addresses and names are the CNI network's to give; `--network NAME` takes one more network",
    ),
    (
        RUN,
        &[
            "--privileged",
            "--cap-add",
            "--cap-drop",
            "--security-opt",
            "--userns",
            "--uts",
            "--pid",
            "--ipc",
            "--cgroupns",
            "--cgroup-parent",
            "--sysctl",
            "--ulimit",
            "--shm-size",
            "--read-only",
            "--init",
            "--isolation",
        ],
        "the guest has a kernel of its own, and is set up from within; leave it out",
    ),
    (RUN, &["--device", "--gpus"], "`run` gives no devices of the node; `--handler HANDLER` may have some"),
    (RUN, &["--log-driver", "--log-opt"], "`--log-dir DIR` says where logs are"),
    (RUN, &["--stop-timeout", "--stop-signal"], "`virtletctl stop -t SECONDS POD` says how long a guest may take"),
    (RUN, &["--storage-opt", "--disk"], "`--annotation VirtletRootVolumeSize=20Gi` says how large the disk is"),
    (
        RUN,
        &["--health-cmd", "--health-interval", "--health-retries", "--health-timeout", "--no-healthcheck"],
        "nothing probes a guest; `--wait` waits until it answers",
    ),
    (RUN, &["--platform"], "an image is for the platform of the runtime handler; `--handler HANDLER` names one"),
    (RUN, &["--cloud-init"], "`--user-data FILE` is for cloud-init"),
    (RUN, &["--detach-keys", "--sig-proxy"], "Ctrl-] leaves the console; leave it out"),
    (RUN, &["-q", "--quiet", "-a", "--cidfile", "--save-config", "--field-manager"], LEAVE),
];
