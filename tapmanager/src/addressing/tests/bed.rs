//! A veth with the servers on one end and a real client on the other.
//!
//! A thread leaves the machine's network, mount and UTS namespaces and serves from there; the client's end of the veth is
//! in one more network namespace. Beside the servers is the CNI's link, a second veth, with a router on its other end.
//! `/etc` is a copy, `/run` and `/var/lib` are empty, so what the scripts write is seen by the test
//! alone, and no client finds a bus or a daemon of the machine.

use std::fs;
use std::future::Future;
use std::path::PathBuf;
use std::process::{Output, Stdio};
use std::sync::mpsc;
use std::thread;

use nix::mount::{MsFlags, mount};
use nix::net::if_::if_nametoindex;
use nix::sched::{CloneFlags, unshare};
use nix::sys::signal::{Signal, killpg};
use nix::sys::stat::Mode;
use nix::unistd::{Pid, mkfifo};
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::net::unix::pipe::{OpenOptions, Receiver};
use tokio::process::{Child, Command};
use tokio::sync::oneshot;
use tokio::time::timeout;

use super::*;
use crate::net::filter::guest_requests;
use crate::sys::bpf::Program;
use crate::sys::netns::Netns;

pub(super) const ROUTER_MAC: &str = "02:00:00:00:00:fd";
/// How long a client may take to get its address; the first DISCOVER comes within seconds.
const CLIENT_DEADLINE: Duration = Duration::from_secs(60);

/// The servers on one end of a veth, and the client's end.
pub(super) struct Link {
    dir: tempfile::TempDir,
    /// What the client's script says.
    said: BufReader<Receiver>,
    /// File of the namespace that the client's end is in.
    netns: PathBuf,
    /// To [`supervise`].
    service: tokio::sync::mpsc::Sender<(Servers, oneshot::Sender<()>)>,
}

impl Link {
    pub(super) fn path(&self, name: &str) -> String {
        self.dir.path().join(name).to_str().unwrap().to_owned()
    }

    /// A command in the client's namespace.
    pub(super) fn command(&self, program: &str, args: &[&str]) -> Command {
        let mut command = Command::new("nsenter");
        command.arg(format!("--net={}", self.netns.display())).arg(program).args(args);
        command.stdin(Stdio::null()).kill_on_drop(true);
        command
    }

    /// The same, of a program that reads `/sys` and is not to look for udev: a read-only `/sys` says that there is none.
    pub(super) fn command_without_udev(&self, program: &str, args: &[&str]) -> Command {
        let script = r#"mount -t sysfs -o ro sysfs /sys && exec "$0" "$@""#;
        self.command("unshare", &[&["--mount", "sh", "-c", script, program], args].concat())
    }

    /// Serves from now on, in place of the servers that do so now: as a restart of the daemon does.
    pub(super) async fn serve(&self, servers: Servers) {
        let (ready, served) = oneshot::channel();
        assert!(self.service.send((servers, ready)).await.is_ok(), "the service is there as long as the link");
        served.await.unwrap();
    }

    /// A socket on the client's end that hears and says any frames.
    pub(super) async fn socket(&self) -> PacketSocket {
        let netns = Netns::open(&self.netns).unwrap().unwrap();
        let open = || PacketSocket::open(if_nametoindex("eth0").unwrap(), &Program::always(u32::MAX)).unwrap();
        netns.visit(open).await.unwrap()
    }

    pub(super) async fn run(&self, program: &str, args: &[&str]) -> String {
        ended(program, timeout(CLIENT_DEADLINE, self.command(program, args).output()).await.expect(program).unwrap())
    }

    pub(super) async fn ip(&self, args: &str) -> String {
        let args: Vec<_> = args.split(' ').collect();
        let said = self.run("ip", &args).await;
        // The kernel's word for what a route's text does not need.
        let lines = said.lines().map(|line| line.split(" proto ").next().unwrap_or(line).trim().to_owned());
        let mut lines: Vec<_> = lines.collect();
        lines.sort_unstable();
        lines.join("\n")
    }

    /// A script for a client to run, which may tell the test something by writing to `$said`.
    pub(super) async fn script(&self, text: &str) -> String {
        let path = self.path("script");
        let text = format!("#!/bin/sh\nsaid={}\n{text}\n", self.path("said"));
        // Written by a process of its own: were it open for writing here, a child that another test starts at that moment
        // would hold it open too, and running it would end in ETXTBSY.
        host("/bin/sh", &["-c", r#"printf %s "$1" > "$0" && chmod 755 "$0""#, &path, &text]).await;
        path
    }

    /// The next line that the client's script says, as soon as it does.
    pub(super) async fn said(&mut self) -> String {
        let mut line = String::new();
        let read = self.said.read_line(&mut line);
        timeout(CLIENT_DEADLINE, read).await.expect("the client's script is run").unwrap();
        line.trim_end().to_owned()
    }
}

fn ended(what: &str, output: Output) -> String {
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{what}: {}: {text}{}", output.status, String::from_utf8_lossy(&output.stderr));
    text
}

/// Serves on a veth in namespaces of their own while `client` runs.
pub(super) fn with_servers<F: Future<Output = ()>>(servers: Servers, client: impl FnOnce(Link) -> F + Send) {
    thread::scope(|scope| {
        let (lend, lent) = mpsc::channel();
        let (done, end) = mpsc::channel::<()>();
        scope.spawn(move || {
            unshare(CloneFlags::CLONE_NEWNET).expect("a network namespace; this test needs root or `unshare -r`");
            let netns = format!("/proc/{}/task/{}/ns/net", std::process::id(), nix::unistd::gettid());
            lend.send(PathBuf::from(netns)).unwrap();
            // Ends when the other end is dropped, also by a panic.
            let _ = end.recv();
        });
        let server = scope.spawn(move || {
            let _done = done;
            unshare(CloneFlags::CLONE_NEWNET | CloneFlags::CLONE_NEWNS | CloneFlags::CLONE_NEWUTS).expect("namespaces");
            let (service, orders) = tokio::sync::mpsc::channel(1);
            let (dir, netns) = (tempfile::tempdir().unwrap(), lent.recv().unwrap());
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            let own = format!("/proc/{}/task/{}/ns/net", std::process::id(), nix::unistd::gettid());
            runtime.block_on(async {
                let said = dir.path().join("said");
                mkfifo(&said, Mode::S_IRWXU).unwrap();
                // With an end to write to that stays open, no end of file is read between two lines.
                let said = OpenOptions::new().read_write(true).open_receiver(said).unwrap();
                let link = Link { dir, said: BufReader::new(said), netns, service };
                set_up(&link).await;
                let supervisor = tokio::spawn(supervise(own.into(), orders));
                link.serve(servers).await;
                client(link).await;
                timeout(CLIENT_DEADLINE, supervisor).await.expect("the service ends when it is told to").unwrap();
            });
        });
        if let Err(panic) = server.join() {
            std::panic::resume_unwind(panic);
        }
    });
}

/// Serves with the servers that came last, until the link is gone.
async fn supervise(netns: PathBuf, mut orders: tokio::sync::mpsc::Receiver<(Servers, oneshot::Sender<()>)>) {
    let mut order = orders.recv().await;
    while let Some((servers, ready)) = order {
        let tap = PacketSocket::open(if_nametoindex("server").unwrap(), &guest_requests(&[])).unwrap();
        let cancel = CancellationToken::new();
        let link = servers.open_link(&netns).await.unwrap();
        let service = tokio::spawn(serve(Sockets { tap, link }, servers, cancel.clone()));
        ready.send(()).unwrap();
        order = orders.recv().await;
        cancel.cancel();
        service.await.unwrap();
    }
}

async fn set_up(link: &Link) {
    let none = None::<&str>;
    mount(none, "/", none, MsFlags::MS_PRIVATE | MsFlags::MS_REC, none).unwrap();
    let etc = link.path("etc");
    host("cp", &["-a", "/etc", &etc]).await;
    mount(Some(etc.as_str()), "/etc", none, MsFlags::MS_BIND, none).unwrap();
    for dir in ["/run", "/var/lib"] {
        mount(Some("tmpfs"), dir, Some("tmpfs"), MsFlags::empty(), none).unwrap();
    }
    // A copy: the machine's may be a link that leads out of /etc.
    fs::remove_file("/etc/resolv.conf").unwrap();
    fs::write("/etc/resolv.conf", "").unwrap();
    host("hostname", &["localhost"]).await;
    let netns = link.netns.to_str().unwrap();
    host("ip", &["link", "add", "server", "type", "veth", "peer", "name", "eth0", "address", MAC]).await;
    host("ip", &["link", "set", "eth0", "netns", netns]).await;
    host("ip", &["link", "set", "server", "up"]).await;
    host("ip", &["link", "add", "eth0", "type", "veth", "peer", "name", "router", "address", ROUTER_MAC]).await;
    host("ip", &["addr", "add", "fd00::1/64", "dev", "router", "nodad"]).await;
    host("sh", &["-c", "echo 1 >/proc/sys/net/ipv6/conf/router/forwarding"]).await;
    for name in ["eth0", "router"] {
        host("ip", &["link", "set", name, "up"]).await;
    }
    // Addresses are of use at once.
    link.run("sh", &["-c", "echo 0 >/proc/sys/net/ipv6/conf/eth0/accept_dad"]).await;
    link.ip("link set eth0 up").await;
    // The kernel makes a link ready in its own time, and drops what is sent before.
    let ready = async {
        for name in ["server", "eth0", "router"] {
            while !is_up(&host("ip", &["link", "show", name]).await) {}
        }
        while !is_up(&link.ip("link show eth0").await) {}
    };
    timeout(CLIENT_DEADLINE, ready).await.expect("the links come up");
}

fn is_up(shown: &str) -> bool {
    shown.contains("qdisc noqueue state UP")
}

/// Fails unless there is a program to test with.
pub(super) fn needs(program: &str, package: &str) {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path).any(|dir| dir.join(program).exists());
    assert!(found, "`{program}` is not there; install package `{package}`, as tests/host/install.sh does");
}

pub(super) async fn host(program: &str, args: &[&str]) -> String {
    ended(program, Command::new(program).args(args).output().await.unwrap())
}

/// A running client, killed with the scripts that it runs.
pub(super) struct Client(Child);

impl Client {
    pub(super) fn start(mut command: Command) -> Self {
        Self(command.stdout(Stdio::null()).stderr(Stdio::null()).process_group(0).spawn().unwrap())
    }

    pub(super) fn pid(&self) -> Pid {
        Pid::from_raw(self.0.id().unwrap().try_into().unwrap())
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        killpg(self.pid(), Signal::SIGKILL).unwrap();
    }
}
