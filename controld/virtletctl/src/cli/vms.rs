//! The commands of `vm` that ask a cluster, by virtctl's words.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};

use super::Form;
use crate::kubeconfig::At;
use crate::ports::{self, Address, Ports};
use crate::{complete, name, quantity};

/// What is done with VMs of a cluster.
#[derive(Debug, Subcommand)]
pub enum VmVerb {
    /// List VMs and their instances as the cluster has them
    #[command(visible_aliases = ["ls", "list"])]
    Get(VmGet),
    /// Start VMs
    Start(VmStart),
    /// Stop VMs
    Stop(VmStop),
    /// Stop VMs and start them again
    Restart(VmStop),
    /// Pause guests: their memory stays, and nothing of them runs
    ///
    /// They answer no probe: a VM with a liveness probe other than guestAgentPing is not paused.
    Pause(VmAct),
    /// Let guests go on that are paused
    #[command(visible_alias = "resume")]
    Unpause(VmAct),
    /// Reset VMs at once, as by the reset button
    Reset(VmAct),
    /// Ask guests to reboot, by an agent in them or else by the power button
    #[command(visible_alias = "softreboot")]
    SoftReboot(VmAct),
    /// Have guests write what they have to write and leave their file systems alone, so that disks can be copied
    ///
    /// It ends by itself, so that nobody's failure leaves a guest frozen. It takes QEMU's agent in the guest.
    Freeze(VmFreeze),
    /// Let file systems of guests go on
    Unfreeze(VmAct),
    /// Attach to the serial console of a VM
    ///
    /// Ctrl-] leaves. If the input is no terminal, all of it is sent, and the output is shown until the VM ends.
    Console(VmConsole),
    /// Show the screen of a VM at a local port, in a browser, or as a picture
    ///
    /// `vnc screenshot NAME -f FILE` is `screenshot`.
    Vnc(VmVnc),
    /// Write what the screen of a VM shows to a file, as PNG
    Screenshot(VmScreenshot),
    /// Log in to the guest of a VM, by the `ssh` of this machine and through the API server
    ///
    /// The guest's own keys are kept in ~/.ssh/virtlet_known_hosts, by the instance: each run of a VM has one of its own.
    Ssh(VmSsh),
    /// Copy files to or from the guest of a VM, by the `scp` of this machine and through the API server
    Scp(VmScp),
    /// Forward local ports to those of a VM, until Ctrl-C
    ///
    /// TCP alone. Where one side ends what it sends, the other has 30 s to answer, and 2 s to go on with that.
    PortForward(VmPortForward),
    /// Print what is known of the guest's system, as JSON
    Guestosinfo(VmTell),
    /// Print who is logged in at the guest, as JSON
    Userlist(VmTell),
    /// Print the file systems of the guest, as JSON
    #[command(visible_alias = "filesystemlist")]
    Fslist(VmTell),
    /// Print the versions of this program and of the cluster's server of VMs' verbs
    Version(VmVersion),
}

/// Which VMs.
#[derive(Debug, Args)]
pub struct VmNames {
    /// VMs by their names, also as vm/NAME or vmi/NAME, behind which may be /NAMESPACE; or the kind as a word in front
    #[arg(value_name = "NAME", required = true, add = complete::vms(), value_parser = name::non_empty)]
    pub names: Vec<String>,
    /// Where.
    #[command(flatten)]
    pub at: At,
}

/// Of what is done and has no other options.
#[derive(Debug, Args)]
pub struct VmAct {
    /// Which.
    #[command(flatten)]
    pub vms: VmNames,
    /// Only say whether it would be done
    #[arg(long)]
    pub dry_run: bool,
}

/// Of `start`.
#[derive(Debug, Args)]
pub struct VmStart {
    /// Which.
    #[command(flatten)]
    pub vms: VmNames,
    /// Start them paused; the cluster refuses it, and says what does instead
    #[arg(long, hide = true)]
    pub paused: bool,
    /// Only say whether it would be done
    #[arg(long)]
    pub dry_run: bool,
}

/// Of `stop` and `restart`.
#[derive(Debug, Args)]
pub struct VmStop {
    /// Which.
    #[command(flatten)]
    pub vms: VmNames,
    /// Seconds that a guest has to shut down [default: what the VM says]
    #[arg(long, value_name = "SECONDS", allow_negative_numbers = true, value_parser = quantity::grace)]
    pub grace_period: Option<u32>,
    /// At once, as by pulling the plug; the same as --grace-period 0
    #[arg(long)]
    pub force: bool,
    /// Only say whether it would be done
    #[arg(long)]
    pub dry_run: bool,
}

/// Of `freeze`.
#[derive(Debug, Args)]
pub struct VmFreeze {
    /// Which.
    #[command(flatten)]
    pub vms: VmNames,
    /// When it ends by itself, such as 90s or 5m [default: 5m]
    #[arg(long, alias = "unfreezeTimeout", value_name = "DURATION", value_parser = quantity::span)]
    pub unfreeze_timeout: Option<Duration>,
    /// Only say whether it would be done
    #[arg(long)]
    pub dry_run: bool,
}

/// Of `get`.
#[derive(Debug, Args)]
pub struct VmGet {
    /// `vm`, `vmi` or `vmirs`, or several with commas between them [default: vm,vmi]; and names, as vm/NAME or behind the kind
    #[arg(value_name = "KIND|NAME", add = complete::vms(), value_parser = name::non_empty)]
    pub names: Vec<String>,
    /// Of all namespaces
    #[arg(short = 'A', long, conflicts_with = "namespace")]
    pub all_namespaces: bool,
    /// Only what has such labels, as kubectl has them: `a=b`, `a!=b`, `a in (b,c)`, `a notin (b,c)`, `a`, `!a`, with commas in between
    #[arg(short = 'l', long, value_name = "LABELS", value_parser = name::non_empty)]
    pub selector: Option<String>,
    /// How to print [default: a table]
    #[arg(short, long, value_name = "FORM")]
    pub output: Option<Form>,
    /// Where.
    #[command(flatten)]
    pub at: At,
}

/// Which one VM.
#[derive(Debug, Args)]
pub struct VmName {
    /// VM by its name, also as vm/NAME or vmi/NAME, behind which may be /NAMESPACE; or the kind as a word in front
    #[arg(value_name = "NAME", required = true, add = complete::vms(), value_parser = name::non_empty)]
    pub name: Vec<String>,
    /// Where.
    #[command(flatten)]
    pub at: At,
}

/// Of `console`.
#[derive(Debug, Args)]
pub struct VmConsole {
    /// Which.
    #[command(flatten)]
    pub vm: VmName,
    /// Minutes that a VM has to begin to run in
    #[arg(long, value_name = "MINUTES", default_value_t = 5, value_parser = clap::value_parser!(u32).range(..=1440))]
    pub timeout: u32,
}

/// Of `vnc`.
#[derive(Debug, Args)]
pub struct VmVnc {
    /// VM by its name, also as vm/NAME or vmi/NAME, behind which may be /NAMESPACE; or the kind as a word in front
    #[arg(value_name = "NAME", required = true, add = complete::vms(), value_parser = name::non_empty)]
    pub name: Vec<String>,
    /// Local port [default: a free one]
    #[arg(short, long, default_value_t = 0, hide_default_value = true)]
    pub port: u16,
    /// Show screen and console on a page for a browser, at a URL that works once; opens it where there is a display
    #[arg(long, conflicts_with = "proxy_only")]
    pub browser: bool,
    /// Print the local port as JSON, for programs; no viewer is started in any case
    #[arg(long)]
    pub proxy_only: bool,
    /// Do not end the session of somebody who views the screen now
    #[arg(long)]
    pub preserve_session: bool,
    /// File of `vnc screenshot`
    #[arg(short, long, value_name = "FILE", hide = true)]
    pub file: Option<PathBuf>,
    /// Move the pointer before `vnc screenshot`
    #[arg(long, hide = true)]
    pub move_cursor: bool,
    /// Where.
    #[command(flatten)]
    pub at: At,
}

/// Of `screenshot`.
#[derive(Debug, Args)]
pub struct VmScreenshot {
    /// Which.
    #[command(flatten)]
    pub vm: VmName,
    /// File to write; `-` is the standard output [default: NAME.png]
    #[arg(short, long, value_name = "FILE")]
    pub file: Option<PathBuf>,
    /// Move the pointer before, which wakes a guest that has blanked its screen
    #[arg(long)]
    pub move_cursor: bool,
}

/// What `ssh` and `scp` are given.
#[derive(Debug, Args)]
pub struct VmLogin {
    /// Who logs in [default: the user that images of this name have, else as ssh's configuration says]
    #[arg(short, long, alias = "username", value_name = "USER", value_parser = name::non_empty)]
    pub login_name: Option<String>,
    /// File of a private key; may be repeated
    #[arg(short, long = "identity-file", value_name = "FILE")]
    pub identity_files: Vec<PathBuf>,
    /// Port of the guest
    #[arg(short, long, value_name = "PORT", default_value_t = 22, value_parser = clap::value_parser!(u16).range(1..))]
    pub port: u16,
    /// Option of ssh's, as in ssh_config(5); may be repeated
    #[arg(short, long = "option", value_name = "KEY=VALUE")]
    pub options: Vec<String>,
    /// One word for ssh as it is; may be repeated
    #[arg(short = 't', long = "local-ssh-opts", value_name = "WORD", allow_hyphen_values = true)]
    pub words: Vec<String>,
    /// Always so; taken since virtctl had another
    #[arg(long, hide = true, num_args = 0..=1, require_equals = true)]
    pub local_ssh: Option<String>,
}

/// Of `ssh`.
#[derive(Debug, Args)]
pub struct VmSsh {
    /// VM by its name, also as vm/NAME or vmi/NAME, behind which may be /NAMESPACE; who logs in may be in front
    #[arg(value_name = "[USER@]NAME", add = complete::vms(), value_parser = name::non_empty)]
    pub name: String,
    /// Command to run in place of a shell
    #[arg(value_name = "COMMAND", trailing_var_arg = true)]
    pub command: Vec<String>,
    /// The same as one text, as virtctl has it
    #[arg(short = 'c', long = "command", value_name = "COMMAND", conflicts_with = "command")]
    pub text: Option<String>,
    /// How.
    #[command(flatten)]
    pub login: VmLogin,
    /// Where.
    #[command(flatten)]
    pub at: At,
}

/// Of `scp`.
#[derive(Debug, Args)]
pub struct VmScp {
    /// What to copy: a path of this machine, or [USER@]NAME:PATH of a guest
    #[arg(value_name = "FROM", add = complete::vms(), value_parser = name::non_empty)]
    pub from: String,
    /// Where to, as the other of both
    #[arg(value_name = "TO", add = complete::vms(), value_parser = name::non_empty)]
    pub to: String,
    /// Copy directories with all that is in them
    #[arg(short, long)]
    pub recursive: bool,
    /// Keep times and modes
    #[arg(long)]
    pub preserve: bool,
    /// How.
    #[command(flatten)]
    pub login: VmLogin,
    /// Where.
    #[command(flatten)]
    pub at: At,
}

/// Of `port-forward`.
#[derive(Debug, Args)]
pub struct VmPortForward {
    /// VM by its name, also as vm/NAME or vmi/NAME, behind which may be /NAMESPACE
    #[arg(value_name = "(vm|vmi)/NAME", add = complete::vms(), value_parser = name::non_empty)]
    pub name: String,
    /// Ports; `:REMOTE` takes a free local port
    #[arg(value_name = "[LOCAL:]REMOTE", required = true, value_parser = ports::parse)]
    pub ports: Vec<Ports>,
    /// Local addresses to listen on, with commas in between; `localhost` is loopback
    #[arg(long = "address", value_name = "IP", value_delimiter = ',', default_value = "localhost", value_parser = ports::address)]
    pub addresses: Vec<Address>,
    /// Join one port to the standard input and output, as for ProxyCommand of ssh
    #[arg(long, value_name = "true|false", num_args = 0..=1, require_equals = true, default_value = "false",
        default_missing_value = "true", hide_default_value = true, hide_possible_values = true, action = clap::ArgAction::Set)]
    pub stdio: bool,
    /// Where.
    #[command(flatten)]
    pub at: At,
}

/// Forms of what is known of a guest.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub enum Told {
    /// JSON
    #[default]
    Json,
    /// YAML
    Yaml,
}

/// Of `guestosinfo`, `userlist` and `fslist`.
#[derive(Debug, Args)]
pub struct VmTell {
    /// Which.
    #[command(flatten)]
    pub vm: VmName,
    /// How to print
    #[arg(short, long, value_name = "FORM", default_value = "json")]
    pub output: Told,
}

/// Of `version`.
#[derive(Debug, Args)]
pub struct VmVersion {
    /// Of this program alone; no cluster is asked
    #[arg(short, long)]
    pub client: bool,
    /// How to print [default: a line for each]
    #[arg(short, long, value_name = "FORM")]
    pub output: Option<Told>,
    /// Where.
    #[command(flatten)]
    pub at: At,
}
