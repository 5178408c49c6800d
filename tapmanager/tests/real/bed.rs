//! A node of its own for each test: namespaces, configuration, daemon, client, and what must be as before in the end.

use std::collections::BTreeSet;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::Arc;
use std::time::{Duration, Instant};

use proto::tap::{
    Arm, Attach, Client, CollectReport, ErrorCode, Handoff, Hello, List, NetworkAsk, PodId, PodNet, PodPhase, QemuUser,
    Reply, Request, Token,
};
use tapmanager::config::Config;
use tapmanager::daemon::{self, Daemon};
use tapmanager::faults::Faults;
use tapmanager::spawner::Spawner;
use tempfile::TempDir;
use tokio::runtime::Runtime;
use tokio::sync::oneshot;

const INSIDE: &str = "TAPMANAGER_TEST_INSIDE";
const PLUGINS: &str = "/usr/lib/cni";
/// In the environment of a child that is to die: the step, and the file of its configuration.
const DOOMED: &str = "TAPMANAGER_TEST_DOOMED";
const DEADLINE: Duration = Duration::from_secs(60);

/// Runs `test` in a process of its own, inside fresh network and mount namespaces.
pub(super) fn apart(name: &str, test: fn()) {
    if std::env::var_os(INSIDE).is_some() {
        // Shown if the test fails.
        tracing_subscriber::fmt()
            .with_max_level(tracing::Level::TRACE)
            .with_ansi(false)
            .with_writer(std::io::stderr)
            .init();
        return test();
    }
    let output = Command::new("unshare")
        .args(["--net", "--mount", "--kill-child", "--fork", "--"])
        .arg(std::env::current_exe().expect("this program"))
        .args(["--exact", name, "--nocapture"])
        .env(INSIDE, "1")
        .output()
        .expect("`unshare` is installed");
    let said = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).concat();
    assert!(output.status.success(), "failed inside its namespaces (run it as root):\n{said}");
}

pub(super) struct Bed {
    pub(super) dir: TempDir,
    pub(super) config: Config,
}

/// What must be as before in the end.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct World {
    links: BTreeSet<String>,
    rules: BTreeSet<String>,
    files: BTreeSet<PathBuf>,
    mounts: usize,
}

impl Bed {
    pub(super) fn new() -> Self {
        assert!(Path::new(PLUGINS).join("bridge").exists(), "install containernetworking-plugins");
        let dir = tempfile::Builder::new().prefix("tap").tempdir().expect("tempdir");
        let at = |name: &str| dir.path().join(name);
        let config = Config {
            state_dir: at("state"),
            run_dir: at("run"),
            netns_dir: at("netns"),
            cni_conf_dir: at("net.d"),
            // Of its own: the cases have pods of one name.
            cni_cache_dir: at("cni"),
            multus_dir: at("multus"),
            cni_plugin_dirs: vec![PLUGINS.into()],
            vmwrapper: std::env::current_exe().expect("this program stands for vmwrapper"),
            ..Config::default()
        };
        std::fs::create_dir(&config.cni_conf_dir).expect("made");
        std::fs::create_dir(at("bin")).expect("made");
        run("ip", &["link", "set", "lo", "up"]);
        let bed = Self { dir, config };
        bed.configure(true, "");
        // What plugins make once and for all (the bridge, tables) is there before anything is counted.
        let daemon = bed.start(Faults::none());
        bed.attach("warm").expect("attached");
        bed.detach("warm").expect("detached");
        daemon.stop();
        bed
    }

    pub(super) fn conf_file(&self) -> PathBuf {
        self.config.cni_conf_dir.join("10-net.conflist")
    }

    pub(super) fn configure(&self, masquerade: bool, more_plugins: &str) {
        let ipam = format!(
            r#"{{"type":"host-local","dataDir":"{}","ranges":[[{{"subnet":"10.77.0.0/24","rangeEnd":"10.77.0.3"}}]],
                "routes":[{{"dst":"0.0.0.0/0"}}]}}"#,
            self.dir.path().join("ipam").display()
        );
        let bridge = format!(
            r#"{{"type":"bridge","bridge":"cni0","isGateway":true,"ipMasq":{masquerade},"hairpinMode":true,"ipam":{ipam}}}"#
        );
        let list = format!(r#"{{"name":"net","cniVersion":"1.0.0","plugins":[{bridge}{more_plugins}]}}"#);
        std::fs::write(self.conf_file(), list).expect("written");
    }

    pub(super) fn script(&self, name: &str, body: &str) {
        use std::os::unix::fs::PermissionsExt as _;
        let path = self.dir.path().join("bin").join(name);
        std::fs::write(&path, format!("#!/bin/sh\n{body}\n")).expect("written");
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).expect("made executable");
    }

    /// Starts a daemon in this process; ready when it returns.
    pub(super) fn start(&self, faults: Faults) -> InProcess {
        let runtime = Runtime::new().expect("runtime");
        let spawner = Spawner::in_process(&self.config.cni_plugin_dirs, &self.config.plugin_locks()).expect("spawner");
        let daemon = runtime.block_on(Daemon::start(self.config.clone(), spawner, Arc::new(faults))).expect("starts");
        let (stop, stopped) = oneshot::channel::<()>();
        let served = runtime.spawn(daemon.serve(async {
            let _ = stopped.await;
        }));
        self.hello(QemuUser { uid: 0, gid: 0 });
        InProcess { runtime, stop, served }
    }

    pub(super) fn client(&self) -> Client {
        Client::new(self.config.control_socket(), DEADLINE)
    }

    pub(super) fn hello(&self, qemu: QemuUser) {
        self.client().call(&Request::Hello(Hello { client: "test".into(), qemu: Some(qemu) })).expect("hello");
    }

    pub(super) fn attach(&self, pod: &str) -> Result<PodNet, String> {
        self.attach_to(pod, 1)
    }

    /// Attaches a pod several times to the one network.
    pub(super) fn attach_to(&self, pod: &str, networks: usize) -> Result<PodNet, String> {
        match self.client().call(&attach(pod, networks)).map_err(|error| error.to_string())? {
            Reply::Attached(net) => Ok(net),
            other => panic!("{other:?}"),
        }
    }

    pub(super) fn detach(&self, pod: &str) -> Result<(), String> {
        self.client().call(&Request::Detach { pod: id(pod) }).map(drop).map_err(|error| error.to_string())
    }

    pub(super) fn arm(&self, pod: &str) -> Token {
        match self.client().call(&arm(pod)).expect("armed") {
            Reply::Armed { token } => token,
            other => panic!("{other:?}"),
        }
    }

    pub(super) fn get(&self, token: Token) -> Result<(Handoff, Vec<OwnedFd>), ErrorCode> {
        Client::new(self.config.handoff_socket(), DEADLINE).get(token).map_err(|error| error.code())
    }

    /// Waits until the daemon has recovered the pods of an earlier one.
    pub(super) fn recovered(&self) {
        let deadline = Instant::now() + DEADLINE;
        while self.status().recovering > 0 {
            assert!(Instant::now() < deadline, "pods are still being recovered");
            std::thread::yield_now();
        }
    }

    pub(super) fn status(&self) -> proto::tap::ServerStatus {
        match self.client().call(&Request::Status).expect("status") {
            Reply::Status(status) => status,
            other => panic!("{other:?}"),
        }
    }

    pub(super) fn collect_strays(&self) -> CollectReport {
        match self.client().call(&Request::Collect).expect("collected") {
            Reply::Collected(report) => report,
            other => panic!("{other:?}"),
        }
    }

    /// What a check of the pod finds.
    pub(super) fn findings(&self, pod: &str) -> Vec<String> {
        match self.client().call(&Request::Check { pod: id(pod) }).expect("checked") {
            Reply::Checked(report) => report.findings,
            other => panic!("{other:?}"),
        }
    }

    pub(super) fn phases(&self) -> Vec<(String, PodPhase)> {
        match self.client().call(&Request::List(List::default())).expect("list") {
            Reply::Pods(page) => page.pods.iter().map(|pod| (pod.pod.as_str().to_owned(), pod.phase)).collect(),
            other => panic!("{other:?}"),
        }
    }

    pub(super) fn netns(&self, pod: &str) -> PathBuf {
        let file = std::fs::read_to_string(self.config.state_dir.join("instance")).expect("drawn at the first start");
        let note: serde_json::Value = serde_json::from_str(&file).expect("JSON");
        self.config.netns_dir.join(format!("virtlet-{}-{pod}", note["instance"].as_str().expect("text")))
    }

    pub(super) fn world(&self) -> World {
        let links = run("ip", &["-o", "link"]);
        let rules = run("iptables-save", &[]) + &run("nft", &["list", "ruleset"]);
        let mut files = BTreeSet::new();
        collect(&self.config.state_dir, &mut files);
        collect(&self.config.netns_dir, &mut files);
        collect(&self.dir.path().join("ipam"), &mut files);
        let mounts = std::fs::read_to_string("/proc/self/mountinfo").expect("mounts");
        World {
            links: links.lines().filter_map(|line| line.split(':').nth(1)).map(|name| name.trim().into()).collect(),
            rules: rules.lines().filter(|line| !line.starts_with(['#', ':'])).map(str::to_owned).collect(),
            files: files.into_iter().filter(|file| !file.ends_with("last_reserved_ip.0")).collect(),
            mounts: mounts.lines().count(),
        }
    }

    /// What a pod shares with others has to be as before at once. Its namespace goes behind the answer, with its file, its
    /// mount and its record, and the links in it when the kernel has cleaned it up, some milliseconds after its last user.
    #[track_caller]
    pub(super) fn assert_as(&self, before: &World) {
        let own = [&self.config.state_dir, &self.config.netns_dir];
        let shared = |world: &World| -> BTreeSet<PathBuf> {
            world.files.iter().filter(|file| !own.iter().any(|dir| file.starts_with(dir))).cloned().collect()
        };
        let deadline = Instant::now() + Duration::from_secs(10);
        loop {
            let now = self.world();
            if now == *before {
                return;
            }
            assert_eq!((&now.rules, shared(&now)), (&before.rules, shared(before)));
            assert!(Instant::now() < deadline, "it stays like this: {now:#?}, before: {before:#?}");
        }
    }
}

/// A daemon in this process.
pub(super) struct InProcess {
    runtime: Runtime,
    stop: oneshot::Sender<()>,
    served: tokio::task::JoinHandle<Result<(), daemon::DaemonError>>,
}

impl InProcess {
    pub(super) fn stop(self) {
        self.stop.send(()).expect("still serving");
        self.runtime.block_on(self.served).expect("no panic").expect("served to its end");
        self.runtime.shutdown_timeout(DEADLINE);
    }
}

/// The daemon in a child that dies at a step; the child is this program, which runs the case called `name` again.
pub(super) fn doomed(bed: &Bed, name: &str, step: usize) -> Child {
    let file = bed.dir.path().join("doomed.toml");
    std::fs::write(&file, toml::to_string(&bed.config).expect("prints")).expect("written");
    let child = Command::new(std::env::current_exe().expect("this program"))
        .args(["--exact", name, "--nocapture"])
        .env(DOOMED, format!("{step} {}", file.display()))
        .spawn()
        .expect("starts");
    let deadline = Instant::now() + DEADLINE;
    let hello = Request::Hello(Hello { client: "test".into(), qemu: Some(QemuUser { uid: 0, gid: 0 }) });
    while bed.client().call(&hello).is_err() {
        assert!(Instant::now() < deadline, "the daemon that is to die does not answer");
        std::thread::yield_now();
    }
    child
}

/// In such a child: serves until it dies.
pub(super) fn serve_if_doomed() {
    let Some(wanted) = std::env::var_os(DOOMED) else { return };
    let wanted = wanted.into_string().expect("text");
    let (step, file) = wanted.split_once(' ').expect("a step and a file");
    let config: Config = toml::from_str(&std::fs::read_to_string(file).expect("there")).expect("a configuration");
    let faults = Faults::die_at_step(step.parse().expect("a number"));
    let runtime = Runtime::new().expect("runtime");
    let spawner = Spawner::in_process(&config.cni_plugin_dirs, &config.plugin_locks()).expect("spawner");
    let served = daemon::run(config, spawner, Arc::new(faults), std::future::pending());
    runtime.block_on(served).expect("serves");
}

/// The daemon as a program, which can be killed.
pub(super) struct Program(Child);

impl Program {
    /// Ready when it returns, as it tells systemd, with all pods recovered.
    pub(super) fn start(bed: &Bed) -> Self {
        let file = bed.dir.path().join("tapmanager.toml");
        std::fs::write(&file, toml::to_string(&bed.config).expect("prints")).expect("written");
        let notify = bed.dir.path().join("notify");
        let _ = std::fs::remove_file(&notify);
        let ready = UnixDatagram::bind(&notify).expect("bound");
        ready.set_read_timeout(Some(DEADLINE)).expect("set");
        let child = Command::new(env!("CARGO_BIN_EXE_tapmanager"))
            .args(["run", "--config"])
            .arg(file)
            .env("NOTIFY_SOCKET", &notify)
            .spawn()
            .expect("starts");
        let program = Self(child);
        let mut word = [0; 64];
        let len = ready.recv(&mut word).expect("ready in time");
        assert_eq!(String::from_utf8_lossy(&word[..len]).trim(), "READY=1");
        bed.hello(QemuUser { uid: 0, gid: 0 });
        bed.recovered();
        program
    }

    pub(super) fn kill(&mut self) {
        self.0.kill().expect("killed");
        self.0.wait().expect("gone");
    }

    pub(super) fn terminate(&mut self) {
        let pid = nix::unistd::Pid::from_raw(i32::try_from(self.0.id()).expect("a pid"));
        nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGTERM).expect("told");
        assert!(self.0.wait().expect("gone").success(), "did not end well");
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

pub(super) fn id(pod: &str) -> PodId {
    pod.parse().expect("pod id")
}

pub(super) fn attach(pod: &str, networks: usize) -> Request {
    Request::Attach(Attach {
        networks: vec![NetworkAsk::default(); networks],
        namespace: "default".into(),
        name: "vm".into(),
        hostname: "vm".into(),
        ..Attach::new(id(pod))
    })
}

pub(super) fn arm(pod: &str) -> Request {
    Request::Arm(Arm { pod: id(pod), qemu: None })
}

pub(super) fn unmount(path: &Path) {
    nix::mount::umount2(path, nix::mount::MntFlags::MNT_DETACH).expect("unmounted");
}

pub(super) fn run(program: &str, args: &[&str]) -> String {
    let output = Command::new(program).args(args).output().unwrap_or_else(|error| panic!("{program}: {error}"));
    assert!(output.status.success(), "{program} {args:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("text")
}

pub(super) fn collect(dir: &Path, files: &mut BTreeSet<PathBuf>) {
    for entry in std::fs::read_dir(dir).into_iter().flatten() {
        let path = entry.expect("entry").path();
        if path.is_dir() {
            collect(&path, files);
        }
        files.insert(path);
    }
}
