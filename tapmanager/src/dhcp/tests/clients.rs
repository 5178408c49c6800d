//! The server as real clients see it: busybox' `udhcpc` and ISC's `dhclient`, with Debian's own scripts, over a veth.
//!
//! A thread leaves the machine's network, mount and UTS namespaces and serves from there; the client's end of the veth is
//! in one more network namespace. `/etc` is a copy, so what the scripts write is seen by the test alone.

use std::fs;
use std::future::Future;
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};
use std::sync::mpsc;
use std::thread;

use nix::mount::{MsFlags, mount};
use nix::net::if_::if_nametoindex;
use nix::sched::{CloneFlags, unshare};
use nix::sys::signal::{Signal, kill, killpg};
use nix::sys::stat::Mode;
use nix::unistd::{Pid, mkfifo};
use tokio::process::{Child, Command};
use tokio::time::timeout;

use super::*;
use crate::sys::bpf::Program;

/// How long a client may take to get its address; the first DISCOVER comes within seconds.
const CLIENT_DEADLINE: Duration = Duration::from_secs(60);

/// A server on one end of a veth, and the client's end.
struct Link {
    dir: tempfile::TempDir,
    /// File of the namespace that the client's end is in.
    netns: PathBuf,
}

impl Link {
    fn path(&self, name: &str) -> String {
        self.dir.path().join(name).to_str().unwrap().to_owned()
    }

    /// A command in the client's namespace.
    fn command(&self, program: &str, args: &[&str]) -> Command {
        let mut command = Command::new("nsenter");
        command.arg(format!("--net={}", self.netns.display())).arg(program).args(args);
        command.stdin(Stdio::null()).kill_on_drop(true);
        command
    }

    async fn run(&self, program: &str, args: &[&str]) -> String {
        ended(program, timeout(CLIENT_DEADLINE, self.command(program, args).output()).await.expect(program).unwrap())
    }

    async fn ip(&self, args: &str) -> String {
        let args: Vec<_> = args.split(' ').collect();
        let said = self.run("ip", &args).await;
        // The kernel's word for what a route's text does not need.
        let lines = said.lines().map(|line| line.split(" proto ").next().unwrap_or(line).trim().to_owned());
        let mut lines: Vec<_> = lines.collect();
        lines.sort_unstable();
        lines.join("\n")
    }

    /// A script for a client to run, which may tell the test something by writing to `$said`.
    async fn script(&self, text: &str) -> String {
        let path = self.path("script");
        let text = format!("#!/bin/sh\nsaid={}\n{text}\n", self.path("said"));
        // Written by a process of its own: were it open for writing here, a child that another test starts at that moment
        // would hold it open too, and running it would end in ETXTBSY.
        host("/bin/sh", &["-c", r#"printf %s "$1" > "$0" && chmod 755 "$0""#, &path, &text]).await;
        path
    }

    /// What the client's script says, as soon as it does.
    async fn said(&self) -> String {
        let path = self.path("said");
        let read = tokio::task::spawn_blocking(move || fs::read_to_string(path).unwrap());
        let text = timeout(CLIENT_DEADLINE, read).await.expect("the client's script is run").unwrap();
        text.trim_end().to_owned()
    }
}

fn ended(what: &str, output: Output) -> String {
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{what}: {}: {text}{}", output.status, String::from_utf8_lossy(&output.stderr));
    text
}

/// Serves `lease` on a veth in namespaces of their own while `client` runs.
fn with_server<F: Future<Output = ()>>(lease: Lease, client: impl FnOnce(Link) -> F + Send) {
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
            let link = Link { dir: tempfile::tempdir().unwrap(), netns: lent.recv().unwrap() };
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                set_up(&link).await;
                let socket = PacketSocket::open(if_nametoindex("server").unwrap(), &Program::always(u32::MAX)).unwrap();
                let cancel = CancellationToken::new();
                let service = tokio::spawn(serve(socket, Server::new(lease), cancel.clone()));
                client(link).await;
                cancel.cancel();
                timeout(CLIENT_DEADLINE, service).await.expect("the service ends when it is told to").unwrap();
            });
        });
        if let Err(panic) = server.join() {
            std::panic::resume_unwind(panic);
        }
    });
}

async fn set_up(link: &Link) {
    let none = None::<&str>;
    mount(none, "/", none, MsFlags::MS_PRIVATE | MsFlags::MS_REC, none).unwrap();
    let etc = link.path("etc");
    host("cp", &["-a", "/etc", &etc]).await;
    mount(Some(etc.as_str()), "/etc", none, MsFlags::MS_BIND, none).unwrap();
    // A copy: the machine's may be a link that leads out of /etc.
    fs::remove_file("/etc/resolv.conf").unwrap();
    fs::write("/etc/resolv.conf", "").unwrap();
    host("hostname", &["localhost"]).await;
    mkfifo(Path::new(&link.path("said")), Mode::S_IRWXU).unwrap();
    let netns = link.netns.to_str().unwrap();
    let address = MacAddr::new(VM).unwrap().to_string();
    host("ip", &["link", "add", "server", "type", "veth", "peer", "name", "eth0", "address", &address]).await;
    host("ip", &["link", "set", "eth0", "netns", netns]).await;
    host("ip", &["link", "set", "server", "up"]).await;
    link.ip("link set eth0 up").await;
}

async fn host(program: &str, args: &[&str]) -> String {
    ended(program, Command::new(program).args(args).output().await.unwrap())
}

/// A running client, killed with the scripts that it runs.
struct Client(Child);

impl Client {
    fn start(mut command: Command) -> Self {
        Self(command.stdout(Stdio::null()).stderr(Stdio::null()).process_group(0).spawn().unwrap())
    }

    fn pid(&self) -> Pid {
        Pid::from_raw(self.0.id().unwrap().try_into().unwrap())
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        killpg(self.pid(), Signal::SIGKILL).unwrap();
    }
}

/// Debian's script, then what the test wants to know. The gateway is given the address of a station that nobody is: what
/// is sent to it is for the server alone to hear.
const UDHCPC_SCRIPT: &str = r#"
. /etc/udhcpc/default.script
case $1 in
bound|renew)
    ip neigh replace 10.77.0.1 lladdr 02:00:00:00:00:fe dev eth0 nud permanent
    echo "$1 $ip/$mask by $serverid; router $router; routes $staticroutes; mtu $mtu; dns $dns; domain $domain; \
search $search; host $hostname; lease $lease" > $said
esac"#;

const DHCLIENT_SCRIPT: &str = r#"
/sbin/dhclient-script "$@"
case $reason in
BOUND|RENEW)
    ip neigh replace 10.77.0.1 lladdr 02:00:00:00:00:fe dev eth0 nud permanent
    echo "$reason $new_ip_address/$new_subnet_mask by $new_dhcp_server_identifier; router $new_routers; \
routes $new_rfc3442_classless_static_routes; mtu $new_interface_mtu; dns $new_domain_name_servers; \
domain $new_domain_name; search $new_domain_search; host $new_host_name; lease $new_dhcp_lease_time" > $said
esac"#;

#[test]
fn udhcpc_takes_and_renews_a_lease() {
    with_server(lease(), |link| async move {
        let script = link.script(UDHCPC_SCRIPT).await;
        let args = ["udhcpc", "-f", "-i", "eth0", "-O", "search", "-O", "mtu", "-O", "staticroutes", "-s", &script];
        let client = Client::start(link.command("busybox", &args));
        let expected = "10.77.0.2/24 by 10.77.0.1; router 10.77.0.1; routes ; mtu 1450; dns 10.96.0.10; \
                        domain default.svc.cluster.local; \
                        search default.svc.cluster.local svc.cluster.local cluster.local; host web-0; lease 86400";
        assert_eq!(link.said().await, format!("bound {expected}"));
        assert_eq!(link.ip("route").await, "10.77.0.0/24 dev eth0\ndefault via 10.77.0.1 dev eth0");
        let address = link.ip("addr show eth0").await;
        assert!(address.contains("inet 10.77.0.2/24 brd 10.77.0.255"), "{address}");
        assert!(address.contains("mtu 1450"), "{address}");
        let resolv = fs::read_to_string("/etc/resolv.conf").unwrap();
        assert_eq!(resolv, "domain default.svc.cluster.local\nnameserver 10.96.0.10\n");
        // By unicast to the gateway's address, with a checksum that the veth leaves undone.
        kill(client.pid(), Signal::SIGUSR1).unwrap();
        assert_eq!(link.said().await, format!("renew {expected}"));
    });
}

#[test]
fn udhcpc_with_debians_script_reaches_the_gateway_of_an_address_alone_on_its_link() {
    with_server(lonely_lease(), |link| async move {
        // That script knows no routes, and the client does not ask for them.
        let script = link.script(UDHCPC_SCRIPT).await;
        let _client = Client::start(link.command("busybox", &["udhcpc", "-f", "-i", "eth0", "-s", &script]));
        let said = link.said().await;
        assert!(said.starts_with("bound 10.77.0.2/32 by 10.77.0.1; router 10.77.0.1; "), "{said}");
        assert_eq!(link.ip("route").await, "default via 10.77.0.1 dev eth0 onlink");
        assert!(link.ip("route get 10.77.0.9").await.starts_with("10.77.0.9 via 10.77.0.1 dev eth0"));
    });
}

#[test]
fn udhcpc_gets_the_routes_that_it_asks_for() {
    with_server(lonely_lease(), |link| async move {
        let script = link.script(UDHCPC_SCRIPT).await;
        let args = ["udhcpc", "-f", "-i", "eth0", "-O", "staticroutes", "-s", &script];
        let _client = Client::start(link.command("busybox", &args));
        let said = link.said().await;
        let expected =
            "router ; routes 10.77.0.1/32 0.0.0.0 0.0.0.0/0 10.77.0.1 10.77.0.0/24 10.77.0.1 172.16.0.0/12 10.77.0.1; ";
        assert!(said.contains(expected), "{said}");
    });
}

/// In the foreground, and all of its files in the test's directory.
async fn dhclient(link: &Link) -> Client {
    let script = link.script(DHCLIENT_SCRIPT).await;
    let (leases, pid) = (link.path("leases"), link.path("pid"));
    Client::start(link.command("dhclient", &["-d", "-4", "-sf", &script, "-lf", &leases, "-pf", &pid, "eth0"]))
}

#[test]
fn dhclient_takes_a_lease() {
    with_server(lease(), |link| async move {
        let _client = dhclient(&link).await;
        let expected = "BOUND 10.77.0.2/255.255.255.0 by 10.77.0.1; router 10.77.0.1; routes ; mtu 1450; dns 10.96.0.10; \
                        domain default.svc.cluster.local; \
                        search default.svc.cluster.local. svc.cluster.local. cluster.local.; host web-0; lease 86400";
        assert_eq!(link.said().await, expected);
        assert_eq!(link.ip("route").await, "10.77.0.0/24 dev eth0\ndefault via 10.77.0.1 dev eth0");
        let address = link.ip("addr show eth0").await;
        assert!(address.contains("inet 10.77.0.2/24 brd 10.77.0.255"), "{address}");
        assert!(address.contains("mtu 1450"), "{address}");
        assert_eq!(host("hostname", &[]).await, "web-0\n");
        let resolv = fs::read_to_string("/etc/resolv.conf").unwrap();
        let expected = "domain default.svc.cluster.local\n\
                        search default.svc.cluster.local. svc.cluster.local. cluster.local.\n\
                        nameserver 10.96.0.10\n";
        assert_eq!(resolv, expected);
    });
}

#[test]
fn dhclient_alone_on_its_link_has_all_routes_and_renews() {
    // So short that it renews at once.
    let lease = Lease { lease: Duration::from_secs(4), ..lonely_lease() };
    with_server(lease, |link| async move {
        let _client = dhclient(&link).await;
        let said = link.said().await;
        let expected =
            "BOUND 10.77.0.2/255.255.255.255 by 10.77.0.1; router ; routes 32 10 77 0 1 0 0 0 0 0 10 77 0 1 ";
        assert!(said.starts_with(expected), "{said}");
        let routes = "10.77.0.0/24 via 10.77.0.1 dev eth0\n10.77.0.1 dev eth0 scope link\n\
                      172.16.0.0/12 via 10.77.0.1 dev eth0\ndefault via 10.77.0.1 dev eth0";
        assert_eq!(link.ip("route").await, routes);
        let said = link.said().await;
        assert!(said.starts_with("RENEW 10.77.0.2/255.255.255.255 by 10.77.0.1; "), "{said}");
    });
}
