//! `virtlet-install`: the only program of the image that puts virtlet-rs on a node without packages.
//!
//! It runs in a privileged container with the host's root at `/host`, as `deploy/daemonset.yaml` says, and is linked statically, for
//! the image has nothing else but what is to be installed. It opens that, makes the host's root its own, and is from then on as a
//! program of the host: it looks whether the host has what virtlet-rs needs, puts the files in place, and has the host's systemd
//! run the daemons.
//!
//! Every step may be repeated, and a run that was killed is finished by the next. VMs go on all the while, as with the packages.
//!
//! | code | sysexits name | when |
//! |---|---|---|
//! | 64 | `EX_USAGE` | the argument is not one of those below |
//! | 69 | `EX_UNAVAILABLE` | the host lacks something, or something on it stands in the way; nothing was changed |
//! | 71 | `EX_OSERR` | a file was not read or written |
//! | 75 | `EX_TEMPFAIL` | the host's systemd did not do what it was told |

mod files;
mod host;
mod payload;
mod report;

use std::error::Error;
use std::ffi::OsString;
use std::fs::{self, File, TryLockError};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use nix::sys::signal::{SigSet, Signal};

use self::files::FileError;
use self::host::{CommandError, Vms};
use self::payload::{Payload, PayloadError};

/// What the image has for the host.
const PAYLOAD: &str = "/payload";
/// Where the container has the host's root.
const HOST: &str = "/host";
/// Once the host's root is this process's.
const ROOT: &str = "/";
/// Held while files change.
const LOCK: &str = "/run/virtlet-install.lock";
const UNITS: [&str; 2] = ["tapmanager.service", "controld.service"];
const USAGE: &str = "usage: virtlet-install install|stay|report|remove|purge\n\
    install   puts the files on the host and starts the daemons, or starts them anew if files changed\n\
    stay      does nothing until it is told to end\n\
    report    gives the host a kubeconfig with the token of this pod, until it is told to end, by which controld tells of VMs\n\
    remove    stops the daemons and removes what was installed; configuration that was edited, and state, stay\n\
    purge     the same, and removes configuration and state, too\n\
    VIRTLET_REMOVE=yes   removes while VMs run, which run on; VIRTLET_PURGE=yes purges records of pods' addresses";

/// Why it ended.
#[derive(Debug, thiserror::Error)]
enum Failure {
    #[error("{USAGE}")]
    Usage,
    #[error("the host's root is not at `{HOST}`")]
    NoHost(#[source] io::Error),
    #[error("nothing was changed: {}", .0.join("; "))]
    Refused(Vec<String>),
    #[error("the image is not whole")]
    Payload(#[from] PayloadError),
    #[error("files of the host were not changed as wanted; the next run goes on from there")]
    Files(#[from] FileError),
    #[error("`{LOCK}` was not locked")]
    Lock(#[source] io::Error),
    #[error(
        "systemd did not do what it was told; the next run goes on from there, and `journalctl -u controld -u tapmanager` says more"
    )]
    Systemd(#[from] CommandError),
    #[error("signals are not waited for")]
    Signals(#[from] nix::Error),
}

impl Failure {
    const fn code(&self) -> u8 {
        match self {
            Self::Usage => 64,
            Self::NoHost(_) | Self::Refused(_) => 69,
            Self::Payload(_) | Self::Files(_) | Self::Lock(_) | Self::Signals(_) => 71,
            Self::Systemd(_) => 75,
        }
    }
}

fn main() -> ExitCode {
    let mut words = std::env::args_os().skip(1);
    let done = match (words.next().as_deref().and_then(|word| word.to_str()), words.next()) {
        (Some("install"), None) => install(),
        (Some("stay"), None) => stay(),
        (Some("report"), None) => report(),
        (Some("remove"), None) => remove(false),
        (Some("purge"), None) => remove(true),
        _ => Err(Failure::Usage),
    };
    let Err(failure) = done else { return ExitCode::SUCCESS };
    ExitCode::from(told(&failure))
}

/// Says why it ends, and with which code.
fn told(failure: &Failure) -> u8 {
    let mut why = format!("virtlet-install: {failure}");
    let mut cause = failure.source();
    while let Some(inner) = cause {
        why.push_str(&format!(": {inner}"));
        cause = inner.source();
    }
    // The log of the container, or nobody.
    let _nobody = writeln!(io::stderr(), "{why}");
    failure.code()
}

/// A line for the container's log.
fn say(line: &str) {
    // A log that is gone stops no installation.
    let _nobody = writeln!(io::stdout(), "{line}");
}

fn install() -> Result<(), Failure> {
    let payload = Payload::open(Path::new(PAYLOAD))?;
    enter()?;
    let root = Path::new(ROOT);
    refuse(host::missing(root, std::process::id()))?;
    refuse(host::masked(root, &UNITS))?;
    let _lock = lock()?;
    let staged = files::stage(root, &payload)?;
    let [controld, tapmanager] = ["controld", "tapmanager"].map(|name| staged.program(&format!("usr/sbin/{name}")));
    if let Err(cannot) = host::tries(&controld) {
        staged.give_up()?;
        let why = format!("controld does not start on this host, which must be like a Debian 12: {cannot}");
        return refuse(vec![why]);
    }
    let newer =
        [("controld", controld), ("tapmanager", tapmanager)].map(|(name, to_be)| host::newer_records(name, &to_be));
    let newer: Vec<String> = newer.into_iter().flatten().collect();
    if !newer.is_empty() {
        staged.give_up()?;
        return refuse(newer);
    }
    let changed = staged.commit(root, &payload)?;
    for line in &changed.told {
        say(line);
    }
    host::run("systemctl", &["daemon-reload"])?;
    if changed.is_first {
        host::run("systemctl", &[&["enable"], &UNITS[..]].concat())?;
    }
    let (enabled, disabled): (Vec<&str>, Vec<&str>) = UNITS.iter().partition(|unit| host::is_enabled(unit));
    for unit in &disabled {
        say(&format!(
            "not started, since it was disabled: {unit}; `systemctl enable --now {unit}` on the host starts it"
        ));
    }
    if !enabled.is_empty() {
        let start = if changed.anew { "restart" } else { "start" };
        host::run("systemctl", &[&[start], &*enabled].concat())?;
    }
    files::finished(root)?;
    say(match (changed.anew, disabled.is_empty()) {
        (true, true) => "installed, daemons started",
        (true, false) => "installed",
        (false, _) => "all is as it was",
    });
    // What it finds is for whoever reads the log: before kubelet is told to use controld, it finds something.
    let doctor = ["--quiet", "--wait", "--pipe", "--collect", "/usr/bin/virtletctl", "doctor"];
    if let Err(found) = host::run("systemd-run", &doctor) {
        say(&format!("virtletctl doctor: {found}"));
    }
    Ok(())
}

/// For a pod of a DaemonSet, which has to run.
fn stay() -> Result<(), Failure> {
    let ends = SigSet::from_iter([Signal::SIGTERM, Signal::SIGINT]);
    ends.thread_block()?;
    ends.wait()?;
    Ok(())
}

/// For a pod of another one.
fn report() -> Result<(), Failure> {
    let server = report::server(|name| std::env::var_os(name)?.into_string().ok());
    let Some([host, port]) = server else {
        return refuse(vec![
            "this is no pod of a cluster: KUBERNETES_SERVICE_HOST and _PORT do not say where its API server is"
                .to_owned(),
        ]);
    };
    let ends = SigSet::from_iter([Signal::SIGTERM, Signal::SIGINT]);
    ends.thread_block()?;
    // It ends by an error only, and with it all of this, to be started again.
    std::thread::spawn(move || {
        let Err(failure) = report::keep([&host, &port]) else { return };
        std::process::exit(told(&failure.into()).into());
    });
    ends.wait()?;
    Ok(report::forget()?)
}

fn remove(purge: bool) -> Result<(), Failure> {
    enter()?;
    let root = Path::new(ROOT);
    refuse(host::foreign(root, std::process::id()))?;
    let _lock = lock()?;
    refuse(in_use(root, purge))?;
    let list = files::listed(root)?;
    let units: Vec<&str> = UNITS.into_iter().rev().filter(|unit| host::has_unit(root, unit)).collect();
    if list.is_empty() && !units.is_empty() {
        return refuse(vec!["virtlet-rs is here, but not by this installer: remove it as it was installed".to_owned()]);
    }
    // A run that was killed has removed the units already, after they were stopped.
    if !units.is_empty() {
        host::run("systemctl", &[&["disable", "--now"], &*units].concat())?;
        // What came since the first look; nothing comes now.
        let since = in_use(root, purge);
        if !since.is_empty() {
            host::run("systemctl", &[&["enable", "--now"], &*units].concat())?;
            return refuse(since);
        }
    }
    if list.is_empty() {
        say("nothing of this installer's is here");
    } else {
        for line in files::remove(root, &list)? {
            say(&line);
        }
        host::run("systemctl", &["daemon-reload"])?;
        say("removed");
    }
    if purge {
        files::purge(root)?;
        say("purged");
    }
    Ok(())
}

/// Why nothing is to be removed now.
fn in_use(root: &Path, purge: bool) -> Vec<String> {
    let mut why = Vec::new();
    let Vms(vms) = host::vms(root);
    if !vms.is_empty() && (purge || !asked("VIRTLET_REMOVE")) {
        let names = vms.join(", ");
        why.push(format!("VMs run ({names}): remove their pods, or, unless state is to go, set VIRTLET_REMOVE=yes"));
    }
    if host::is_runtime_of_containers(root) && !asked("VIRTLET_REMOVE") {
        why.push(
            "kubelet has controld as its runtime, for containers, too: give it the container runtime's socket first \
             (`virtletctl proxy disable --check` says how), or set VIRTLET_REMOVE=yes"
                .to_owned(),
        );
    }
    if !purge {
        return why;
    }
    if let Some(line) = host::state_elsewhere(root) {
        why.push(format!("state is where the configuration says (`{line}`): `remove`, and then remove that by hand"));
    }
    let pods = host::pods_on_record(root);
    if pods > 0 && !asked("VIRTLET_PURGE") {
        why.push(format!(
            "{pods} pods have addresses on record, which nobody else could give back: remove them (`virtletctl rm -f`), or set VIRTLET_PURGE=yes"
        ));
    }
    why
}

/// Makes the host's root this process's, so that links of the host lead where they lead there.
fn enter() -> Result<(), Failure> {
    fs::metadata(HOST).map_err(Failure::NoHost)?;
    std::os::unix::fs::chroot(HOST).map_err(Failure::NoHost)?;
    std::env::set_current_dir(ROOT).map_err(Failure::NoHost)
}

fn refuse(why: Vec<String>) -> Result<(), Failure> {
    if why.is_empty() { Ok(()) } else { Err(Failure::Refused(why)) }
}

/// Two at a time would undo each other.
fn lock() -> Result<File, Failure> {
    let file = File::create(PathBuf::from(LOCK)).map_err(Failure::Lock)?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(Failure::Refused(vec!["another installer runs here".to_owned()])),
        Err(TryLockError::Error(cause)) => Err(Failure::Lock(cause)),
    }
}

fn asked(name: &str) -> bool {
    std::env::var_os(name) == Some(OsString::from("yes"))
}
