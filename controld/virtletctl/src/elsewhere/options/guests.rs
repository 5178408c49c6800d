//! Of commands that go into guests, or to their consoles, ports and screens.

use super::{Entry, LEAVE};

const SHELLS: &[&str] = &["exec", "shell"];

pub(super) const OPTIONS: &[Entry] = &[
    (
        &["exec"],
        &["-d", "--detach"],
        "a command that is to go on ends with `&` in a shell of the guest; `-w PATH` is its directory",
    ),
    (&["exec"], &["--env-file"], "`-e NAME=VALUE`, once for each variable"),
    // kubectl's `proxy` is for the API server.
    (
        &["proxy"],
        &["-p", "--port", "-w", "--www", "-P", "--www-prefix", "--api-prefix", "--address", "-u", "--unix-socket"],
        "`virtletctl port-forward POD PORT` opens a port of a guest; `virtletctl proxy status` is about the node's other container runtime",
    ),
    (SHELLS, &["--working-directory"], "`-w PATH` is the directory in the guest"),
    (&["exec"], &["-f", "--filename"], "name the pod: `virtletctl exec POD COMMAND`"),
    (
        &["exec"],
        &[
            "--privileged",
            "--no-map-working-directory",
            "-q",
            "--quiet",
            "--pod-running-timeout",
            "--detach-keys",
            "-r",
            "--transport",
        ],
        LEAVE,
    ),
    (&["shell"], &["--timeout"], "`virtletctl wait --for ready POD` waits for a guest"),
    (&["cp"], &["-a", "--archive"], "copies belong to who copies; leave it out"),
    (&["cp"], &["-L", "--follow-link"], "links are not followed: name what it leads to"),
    (&["cp"], &["--no-preserve", "--retries", "-p", "--parents"], LEAVE),
    (&["console"], &["--no-stdin"], "`virtletctl logs -f POD` shows a console without typing"),
    (&["console"], &["--detach-keys"], "Ctrl-] leaves the console; leave it out"),
    (&["console"], &["--timeout"], "`virtletctl wait --for ready POD` waits for a guest"),
    (&["console"], &["--sig-proxy", "-q", "--quiet", "--pod-running-timeout"], LEAVE),
    (&["port-forward"], &["--pod-running-timeout"], "`virtletctl wait --for ready POD` waits for a guest"),
    (
        &["port-forward"],
        &["--stdio"],
        "`virtletctl exec -i POD COMMAND` carries a stream, and `virtletctl ssh POD` logs in",
    ),
    (&["vnc"], &["--vnc-type", "--vnc-path"], "no viewer is started; connect one to the port that is printed"),
    (&["vnc"], &["--address"], "a screen is at loopback alone, and `ssh -L` brings it elsewhere"),
    (&["vnc"], &["", "-f", "--file"], "`virtletctl vnc --screenshot FILE POD` writes what a screen shows"),
    (
        &["checkpoint"],
        &["", "-e", "--export", "-R", "--leave-running", "-k", "--keep", "--checkpoint-dir"],
        "`virtletctl checkpoint POD DIR` writes to a directory, and the machine runs on",
    ),
    (&["ssh"], &["--username"], "`-l USER` says who logs in"),
    (&["ssh"], &["--command", "-c"], "the command stands behind the pod: `virtletctl ssh POD COMMAND`"),
    (&["ssh"], &["--local-ssh-opts", "-t"], "`-o KEY=VALUE` is an option of ssh's"),
    (&["ssh"], &["--known-hosts"], "`-o UserKnownHostsFile=FILE` says where host keys are"),
    (&["ssh"], &["-v"], "`-o LogLevel=DEBUG` has ssh tell more"),
    (&["ssh"], &["-A"], "`-o ForwardAgent=yes` forwards the agent"),
    (&["ssh"], &["-J"], "`-o ProxyJump=HOST` goes by another host"),
    (&["ssh"], &["-X", "-Y"], "`-o ForwardX11=yes` forwards X11"),
    (&["ssh"], &["-L", "-R", "-D"], "`virtletctl port-forward POD PORT` forwards a port"),
    (&["ssh"], &["-N", "-f", "-T", "-C", "-q"], "`-o KEY=VALUE` is an option of ssh's; `man ssh_config` lists them"),
    (&["ssh"], &["--local-ssh"], LEAVE),
];
