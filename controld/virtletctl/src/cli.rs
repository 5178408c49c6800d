//! The command line. What clap refuses here ends with exit code 2.

use std::path::PathBuf;

use clap::{Parser, Subcommand};

pub use self::exec::{Cp, Exec, Shell, Ssh};
pub use self::image::{
    Credentials, Format, Gc, ImageCommand, Inspect, List, Mode, Pin, ProvidersCommand, Pull, Remove, Search, Verify,
};
pub use self::image_files::{Import, Prune, Save};
pub use self::one::{Checkpoint, Console, Explain, Logs, PortForward, Timeline, Vnc};
pub use self::others::{
    Completion, Doctor, Forget, Manual, Orphans, ProxyCheck, ProxyCommand, ProxyDisable, ProxyEnable, ProxyStatus,
    Validate, Version,
};
pub use self::output::{Form, Output, Progress};
pub use self::pods::{
    Delete, Describe, Events, InspectPods, Kill, Pause, Pods, Reset, Rm, Scope, Start, Stats, Stop, Top, Wait, Within,
};
pub use self::ps::{Ps, Shape};
pub use self::run::{Restore, Run};
pub use self::vm::{Cluster, Firmware, Manifests, Notation, RuntimeClass, VmCommand, VmConvert, VmLint, VmRender};
pub use self::vms::{
    Told, VmAct, VmConsole, VmFreeze, VmGet, VmLogin, VmName, VmNames, VmPortForward, VmScp, VmScreenshot, VmSsh,
    VmStart, VmStop, VmTell, VmVerb, VmVersion, VmVnc,
};
use super::{complete, name};

mod exec;
mod image;
mod image_files;
mod one;
mod others;
mod output;
mod pods;
mod ps;
mod run;
mod vm;
mod vms;

const EXIT_CODES: &str = "\
Exit codes:
  0         all went well; also of `port-forward` that Ctrl-C ends
  1         it failed; of `doctor`: a check failed; of `vm lint`: an object would be refused; of
            `proxy`: something stands in the way
  2         what is written is no command
  2 to 7    of `image`, and of `run` for an image: see `virtletctl image --help`
  64 to 77  of `vm` in a cluster: 64 it does not do that, 66 no such VM, 69 not in the state it is
            in, 75 it does not answer now, 77 no right to that
  65, 66    of `image inspect`: no store would take the file, or it cannot be read
  74        the output cannot be written, or what is read for `image inspect` fails
  126, 127  of `exec`: the guest did not start the command, or has no such program
  130, 143  ended by Ctrl-C, or by SIGTERM; 129 by SIGHUP, 131 by SIGQUIT
`exec` and `ssh` end with what the command in the guest ends with.";

const PLUGIN_EXIT_CODES: &str = "\
Exit codes:
  0         all went well
  1         it failed; of `lint`: an object would be refused
  2         what is written is no command
  64        the cluster does not do that
  66        there is no such VM
  69        the VM is not in the state that it is to be in
  75        the cluster, or the VM's node, does not answer now
  77        no right to that
  130, 143  ended by Ctrl-C, or by SIGTERM
`ssh` ends with what the command in the guest ends with.";

/// Runs virtual machines as pods on this node, through controld.
#[derive(Debug, Parser)]
#[command(name = "virtletctl", version, after_long_help = EXIT_CODES)]
pub struct Cli {
    /// Socket of controld
    #[arg(long, global = true, value_name = "PATH", display_order = 100, default_value = complete::SOCKET_PATH,
        env = complete::SOCKET, hide_env_values = true, value_parser = name::socket)]
    pub socket: PathBuf,
    /// What `version` says of this program. Its `main` knows the commit, too.
    #[arg(skip = env!("CARGO_PKG_VERSION"))]
    pub version: &'static str,
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// VMs of the cluster that kubectl asks, by KubeVirt's verbs.
///
/// A plugin of kubectl's; `virtletctl vm` by another name.
#[derive(Debug, Parser)]
#[command(name = "kubectl-virtlet", bin_name = "kubectl virtlet", version, after_long_help = PLUGIN_EXIT_CODES)]
pub struct Plugin {
    /// What to do.
    #[command(subcommand)]
    pub command: VmCommand,
}

impl From<Plugin> for Cli {
    fn from(plugin: Plugin) -> Self {
        let command = Command::Vm { command: plugin.command };
        Self { socket: complete::SOCKET_PATH.into(), version: env!("CARGO_PKG_VERSION"), command }
    }
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Make a pod of an image and start it; prints its name and IP
    ///
    /// The image is pulled if it is not on this node. When a step fails, or on Ctrl-C before the machine has started, what was
    /// made is removed again. It ends once the machine has started, unless -it, --rm or --wait is given; from then on the pod
    /// stays, whatever comes, unless --rm is given. kubelet removes pods that it did not make: on its nodes, this is for
    /// looking into things only.
    ///
    /// When the image cannot be pulled, it exits as `image pull` does.
    Run(Run),
    /// List pods
    #[command(visible_alias = "ls")]
    Ps(Ps),
    /// List pods, also those whose machines do not run, as kubectl does
    #[command(visible_alias = "list")]
    Get(Ps),
    /// Tell all that is known of pods and their machines, setting by setting
    Describe(Describe),
    /// Print all that is known of pods and their machines, as JSON
    Inspect(InspectPods),
    /// Say what a pod's machine has, setting by setting, and who said so
    Explain(Explain),
    /// Show where the time of a machine's start went, part by part
    ///
    /// As controld has seen it since it was started itself: the pod's network, the pull of its image, what the machine is to be, libvirt, the
    /// first byte that the machine prints, the first answer of `virtlet-agent` in its guest. NO_COLOR turns colors off.
    Timeline(Timeline),
    /// Say whether the pods of a manifest would become machines on this node, and what these would have
    ///
    /// Asks no cluster: it is `controld validate`, by this node's configuration. The daemon, if it runs, says whether machines are
    /// emulated, as that takes memory. Exit code 1 if one would not.
    Validate(Validate),
    /// VMs of a cluster, by KubeVirt's verbs; and KubeVirt's objects in files
    ///
    /// They go to the cluster that the kubeconfig names, from anywhere, and ask no daemon; as a plugin of kubectl's they are `kubectl virtlet`.
    /// `lint`, `render` and `convert` ask nobody. docs/virtual-machines.md says what is the same as with KubeVirt, and what is not.
    Vm {
        /// What to do.
        #[command(subcommand)]
        command: VmCommand,
    },
    /// Show what machines use, again and again
    Stats(Stats),
    /// Show what machines use, once
    Top(Top),
    /// Print what becomes of pods and machines from now on
    Events(Events),
    /// Print what a machine wrote to its console
    Logs(Logs),
    /// Attach to the serial console of a machine
    ///
    /// Ctrl-] leaves. If the input is no terminal, all of it is sent, and the output is shown until the machine ends.
    #[command(visible_alias = "attach")]
    Console(Console),
    /// Run a command in the guest of a machine
    ///
    /// An agent in the guest starts it: `virtlet-agent`, or QEMU's, which has no -i and no -t. virtletctl
    /// ends with the command's exit code: 127 if there is no such program, 126 if it cannot be started for another reason. If
    /// virtletctl ends first, the command is killed.
    Exec(Exec),
    /// Open a shell in the guest of a machine
    ///
    /// The guest's bash, or else its sh, by `exec -it`. That takes our agent, `virtlet-agent`, in the guest; `ssh` and `console` do
    /// without.
    #[command(visible_alias = "sh")]
    Shell(Shell),
    /// Copy files and directories to or from the guest of a machine
    ///
    /// By `tar` in the guest, which our agent `virtlet-agent` starts. As by docker, a file or a directory goes into TO, if that is
    /// a directory, and becomes TO if not. POD:PATH/. is what is in a directory of a guest, without the directory.
    ///
    /// What is there already is overwritten, but nothing beside what was named. From a guest only files and directories are taken,
    /// never a symbolic link, and a second name of a file (a hard link) only where nothing has that name. Copies belong to the user who
    /// copies, in guests to whom the agent runs as. With `-`, an archive goes through as the guest makes or takes it.
    Cp(Cp),
    /// Log in to the guest of a machine, by the `ssh` of this node
    ///
    /// It goes to the pod's address. Which keys may log in is said by `virtletctl run --ssh-key`, or by the pod's annotation
    /// `VirtletSSHKeys`. The guest's own keys are taken at the first login and kept in ~/.ssh/virtlet_known_hosts, by the pod's
    /// UID. A port of the guest that is still closed is waited for. virtletctl ends with ssh's exit code.
    Ssh(Ssh),
    /// Forward local ports to ports of a pod, until Ctrl-C
    ///
    /// Connections go to the pod's address from this node. What listens on the guest's loopback only is not reached.
    PortForward(PortForward),
    /// Show the screen of a machine to a VNC viewer on this node or in a browser, until Ctrl-C
    ///
    /// Machines have one if setting `graphics` of their runtime handler is `vnc`. Whoever is on this node can connect meanwhile,
    /// unless --browser is given. A picture of it is had by --screenshot.
    Vnc(Vnc),
    /// Stop machines; prints what was stopped
    ///
    /// The pods keep their networks and their disks; `virtletctl start` goes on with both.
    Stop(Stop),
    /// Stop machines at once, as by pulling the plug
    Kill(Kill),
    /// Start machines that were stopped, with their disks as they are; prints what was started
    ///
    /// Only pods that `virtletctl run` made: kubelet starts the machines of its pods itself.
    Start(Start),
    /// Stop machines and start them again
    #[command(visible_alias = "reboot")]
    Restart(Stop),
    /// Stop machines at once and start them again, as by the reset button
    Reset(Reset),
    /// Wait until machines have stopped, and print their exit codes; or for what --for says
    Wait(Wait),
    /// Pause guests: their memory stays, and nothing of them runs; prints what was paused
    ///
    /// They answer no probe: kubelet restarts a machine whose liveness probe fails. `virtletctl stop` lets a guest go on to
    /// shut down.
    Pause(Pause),
    /// Let guests go on that are paused; prints which
    #[command(visible_alias = "unpause")]
    Resume(Pause),
    /// Write a machine to a directory while it runs on: its memory, and the disks that are the pod's own; prints the directory
    ///
    /// The guest stands still for a part of that. What the memory has in it, keys included, is in the directory then.
    /// docs/checkpoint.md says what is in it, and which machines cannot have one.
    Checkpoint(Checkpoint),
    /// Make a pod of a checkpoint, whose guest goes on from there; prints its name and IP
    ///
    /// The pod is said as for `run`, and has to be of the image, size and disks that it was of. Its network is another one, of which
    /// the guest asks for its addresses anew. It keeps the MAC addresses of its NICs, or learns others from our agent, if it has that.
    /// docs/checkpoint.md says what a copy of a guest has in common with the first.
    Restore(Restore),
    /// Remove pods, with their disks and logs; prints what was removed
    ///
    /// A pod whose machine runs, or is paused, is removed with -f only.
    Rm(Rm),
    /// Stop machines and remove their pods, with disks and logs, as kubectl does; prints what was removed
    ///
    /// For good: nothing brings a pod back, and its name is free again. `virtletctl stop` keeps the disk.
    Delete(Delete),
    /// List things on this node whose owner is not known
    ///
    /// Machines, disks and networks that controld has made and has no record of: its database was lost or put back from a
    /// copy, or a newer release wrote it. They are kept until somebody decides. When the records come back, so do the pods.
    Orphans(Orphans),
    /// Remove things whose owner is not known, for good
    ///
    /// A machine is destroyed, a disk deleted; nothing brings them back.
    Forget(Forget),
    /// The other container runtime of this node, if controld is in front of one
    Proxy {
        /// What to do; without a word, `status`.
        #[command(subcommand)]
        command: Option<ProxyCommand>,
    },
    /// Images on this node
    ///
    /// Exits with 0, or with 2 if a name or an option is none, with 3 if an image is not found, with 4 if its bytes are
    /// not what was promised, with 5 if a source cannot be asked, with 6 if the disk or a limit is full, with 7 if an
    /// image is unsafe, and with 1 for all else.
    Image {
        /// What to do.
        #[command(subcommand)]
        command: ImageCommand,
    },
    /// Same as `image ls`
    Images(List),
    /// Same as `image pull`
    Pull(Pull),
    /// Same as `image rm`
    Rmi(Remove),
    /// Look at what this node needs to run pods, and say what mends it
    ///
    /// As root, with or without daemons that run. It changes nothing. Each check is ok, a warning (something works less well, or
    /// could not be looked at) or a failure (pods do not run). Exits with 1 if there is a failure, else with 0.
    Doctor(Doctor),
    /// Print a shell's script that completes commands and options
    ///
    /// For bash: `virtletctl completion bash >/etc/bash_completion.d/virtletctl`.
    Completion(Completion),
    /// Write man pages and completions below a directory, for packages
    #[command(hide = true)]
    Manual(Manual),
    /// Print the versions of virtletctl and of the controld that it asks
    Version(Version),
}
