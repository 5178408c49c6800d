//! A guest for tests of the servers: a network namespace in which real DHCP clients run.
//!
//! Made inside of [`super::apart`]. `/etc` is a copy, `/run` and `/var/lib` are empty, and the host name is the test's
//! own. So only the test sees what clients and their scripts write, and no client finds a bus or a daemon of the
//! machine.

use std::fs;
use std::path::Path;
use std::process::{Output, Stdio};
use std::time::Duration;

use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use tokio::process::{Child, Command};
use tokio::time::timeout;

use crate::sys::netns::Netns;

/// How long a client may take: it waits for duplicates of addresses, and before its first message.
pub(crate) const CLIENT_DEADLINE: Duration = Duration::from_secs(60);
/// The namespace, which `ip` calls `guest`.
const FILE: &str = "/run/netns/guest";

/// The guest's namespace, and a directory for what its clients need.
pub(crate) struct GuestNetns {
    pub(crate) netns: Netns,
    dir: tempfile::TempDir,
}

/// A running client, killed with the scripts that it runs.
pub(crate) struct Client(Child);

impl GuestNetns {
    /// A namespace without links.
    pub(crate) fn new() -> Self {
        unshare(CloneFlags::CLONE_NEWUTS).expect("a host name of the test's own");
        let netns = Netns::create(Path::new(FILE)).expect("created");
        let guest = Self { netns, dir: tempfile::tempdir().expect("tempdir") };
        let etc = guest.path("etc");
        let copied = std::process::Command::new("cp").args(["-a", "/etc", &etc]).status().expect("`cp` is installed");
        assert!(copied.success(), "cp: {copied}");
        mount(Some(etc.as_str()), "/etc", None::<&str>, MsFlags::MS_BIND, None::<&str>).expect("an /etc to write to");
        mount(Some("tmpfs"), "/var/lib", Some("tmpfs"), MsFlags::empty(), None::<&str>).expect("an empty /var/lib");
        // A copy: the machine's may be a link that leads out of /etc.
        fs::remove_file("/etc/resolv.conf").expect("removed");
        fs::write("/etc/resolv.conf", "").expect("written");
        guest
    }

    /// A file of the test's.
    pub(crate) fn path(&self, name: &str) -> String {
        self.dir.path().join(name).to_str().expect("text").to_owned()
    }

    /// A program, run in the namespace.
    pub(crate) fn command(&self, program: &str, args: &[&str]) -> Command {
        let mut command = Command::new("nsenter");
        command.arg(format!("--net={FILE}")).arg(program).args(args);
        command.stdin(Stdio::null()).kill_on_drop(true);
        command
    }

    /// The same, of a program that reads `/sys` and is not to look for udev: a read-only `/sys` says that there is none.
    pub(crate) fn command_without_udev(&self, program: &str, args: &[&str]) -> Command {
        let script = r#"mount -t sysfs -o ro sysfs /sys && exec "$0" "$@""#;
        self.command("unshare", &[&["--mount", "sh", "-c", script, program], args].concat())
    }

    /// What a program prints that ends by itself, and well.
    pub(crate) async fn run(&self, program: &str, args: &[&str]) -> String {
        output(program, self.command(program, args)).await
    }
}

impl Client {
    pub(crate) fn start(mut command: Command) -> Self {
        Self(command.stdout(Stdio::null()).stderr(Stdio::null()).process_group(0).spawn().expect("started"))
    }

    pub(crate) fn pid(&self) -> Pid {
        Pid::from_raw(self.0.id().expect("not waited for").try_into().expect("a process id"))
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        killpg(self.pid(), Signal::SIGKILL).expect("killed");
    }
}

/// What `program` prints, run beside the servers.
pub(crate) async fn host(program: &str, args: &[&str]) -> String {
    let mut command = Command::new(program);
    command.args(args);
    output(program, command).await
}

/// What a command prints that ends by itself, and well.
pub(crate) async fn output(what: &str, mut command: Command) -> String {
    let Output { status, stdout, stderr } =
        timeout(CLIENT_DEADLINE, command.output()).await.expect(what).expect("started");
    let text = String::from_utf8_lossy(&stdout).into_owned();
    assert!(status.success(), "{what}: {status}: {text}{}", String::from_utf8_lossy(&stderr));
    text
}

/// Fails unless there is a program to test with.
pub(crate) fn needs(program: &str, package: &str) {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path).any(|dir| dir.join(program).exists());
    assert!(found, "`{program}` is not there; install package `{package}`, as tests/host/install.sh does");
}
