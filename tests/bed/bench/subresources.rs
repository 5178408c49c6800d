//! The server of subresources beside kubectl, which goes to the same pods without it; and what it takes with 200 idle consoles.
//!
//! The VMs are real ones on the bench's node, under a real kubelet. Streams are opened before anything is timed: what is compared is what
//! their bytes cost, which pass the API server once more by the server.

use std::ffi::OsStr;
use std::fs;
use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, TcpStream};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use tests::agent_image::tiny_with_agent;
use tests::case::Bed;
use tests::cluster::Cluster;
use tests::command::{command, run, sh};
use tests::controllers::Controllers;
use tests::cri;
use tests::daemon::Daemon;
use tests::forwarded::through;
use tests::http;
use tests::image_server::Fault;
use tests::kubelet::Kubelet;
use tests::libvirt::running_domains;
use tests::node::{BOOT_DEADLINE, Node};
use tests::rfb::{greet, picture};
use tests::subresources::Asker;
use tests::subresources_server::{ADDRESS, FIGURES, NAME, lead, serve};
use tests::wait::wait_for;

use super::report::{Pair, Row};
use super::{rss, timed};

const PAIRS: usize = 7;
/// Of which the fastest counts: a busy guest is not what is measured.
const SAMPLES: usize = 3;
/// What the guest's web server sends at once.
const MIB: u64 = 8;
/// Whole pictures of a screen that are one sample.
const PICTURES: u64 = 8;
/// A node has 64 streams of one VM at most, and a replica of the server 128 of one namespace.
static VMS: [(&str, &str); 4] = [("default", "a"), ("default", "b"), ("more", "c"), ("more", "d")];
const CONSOLES_OF_EACH: usize = 50;
/// As much as was promised, in KiB: 40 MB.
const PROMISED: f64 = 40e6 / 1024.0;
const STEP_DEADLINE: Duration = Duration::from_secs(180);
/// Until something is read.
const SILENCE: Duration = Duration::from_secs(30);
const CONFIG: &str = "/etc/virtlet/controld.toml";

pub(super) fn rows(bed: &Bed, node: &mut Node, cluster: &Cluster) -> Result<Vec<Row>> {
    let before = fs::read_to_string(CONFIG)?;
    configure(node, &format!("{before}\n[handlers.virtlet]\nguest_agent = true\ngraphics = 'vnc'\n"))?;
    let image = node.images.offer("agent.qcow2", &tiny_with_agent(bed)?, Fault::None);
    let mut world = World::start(bed, cluster)?;
    let rows = world.rows(&image)?;
    world.end()?;
    configure(node, &before)?;
    Ok(rows)
}

/// Has controld run by this configuration.
fn configure(node: &mut Node, config: &str) -> Result<()> {
    fs::write(CONFIG, config)?;
    node.restart_controld()
}

/// A whole Kubernetes, the operator, and the server.
struct World<'a> {
    bed: &'a Bed,
    admin: PathBuf,
    plane: Controllers,
    kubelet: Kubelet,
    operator: Daemon,
    server: Daemon,
    asker: Asker,
}

/// A program that is spoken to by pipes; killed when this is dropped.
struct Piped {
    child: Child,
    to: ChildStdin,
    from: ChildStdout,
}

impl<'a> World<'a> {
    fn start(bed: &'a Bed, cluster: &Cluster) -> Result<Self> {
        let admin = cluster.admin.clone();
        let mut plane = Controllers::start(bed, cluster)?;
        lead(cluster)?;
        let words = ["install", "--without", "operator", "--namespace", "default", "--kubeconfig"];
        let words = words.iter().map(OsStr::new).chain([admin.as_os_str()]);
        let printed = run(&mut command(bed.program("virtlet-operator"), words))?;
        let file = bed.dir.join("installed.yaml");
        fs::write(&file, printed)?;
        plane.kubectl(&["apply", "--server-side", "-f", &file.display().to_string()])?;
        let defined = "crd/virtualmachineinstances.kubevirt.io";
        plane.kubectl(&["wait", "--for=condition=Established", "--timeout=60s", defined])?;
        let server = serve(bed, cluster)?;
        let api = "apiservice/v1.subresources.kubevirt.io";
        plane.kubectl(&["wait", "--for=condition=Available", "--timeout=120s", api])?;
        // Its pods would find no image, and now they are on no node yet.
        plane.kubectl(&["delete", "deployment", NAME, "--cascade=foreground", "--timeout=300s"])?;
        let kubelet = Kubelet::start_in(bed, cluster)?;
        let words = ["run", "--namespace=default", "--listen=127.0.0.1:8080", "--kubeconfig"];
        let log = bed.logs().join("bench-operator.log");
        let words = words.iter().map(OsStr::new).chain([admin.as_os_str()]);
        let operator = Daemon::start("operator", bed.program("virtlet-operator"), words, log)?;
        let asker = Asker::of(&admin, None)?;
        Ok(Self { bed, admin, plane, kubelet, operator, server, asker })
    }

    fn rows(&mut self, image: &str) -> Result<Vec<Row>> {
        let class = json!({
            "apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "metadata": {"name": "virtlet"}, "handler": "virtlet",
            "overhead": {"podFixed": {"memory": cri::POD_FIXED.to_string()}},
        });
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "more"}});
        let mut all = vec![class, namespace];
        all.extend(VMS.first().map(|vm| instance(*vm, image)));
        self.plane.apply(&all)?;
        let (first, others) = VMS.split_first().context("no VMs")?;
        let pod = self.boots(*first)?;
        let loads = self.loads(&pod)?;
        let screens = self.screens(&pod)?;
        self.plane.apply(&others.iter().map(|vm| instance(*vm, image)).collect::<Vec<_>>())?;
        for vm in others {
            self.boots(*vm)?;
        }
        let memory = self.memory()?;
        let row = |name, unit, target, pairs| Row { name, unit, target: Some(target), pairs };
        Ok(vec![
            row("MiB by the server's portforward / kubectl port-forward", "us", 1.3, loads),
            row("MiB of a screen by the server's vnc / kubectl exec", "us", 1.3, screens),
            row("the server with 200 idle consoles, RSS / 40 MB", "KiB", 1.0, memory),
        ])
    }

    /// Waits until a VM's guest answers; its pod.
    fn boots(&mut self, (namespace, name): (&str, &str)) -> Result<String> {
        let address = ["get", "vmi", name, "-n", namespace, "-o", "jsonpath={.status.interfaces[0].ipAddress}"];
        wait_for(&format!("guest of {namespace}/{name}"), BOOT_DEADLINE, || {
            self.operator.still_runs()?;
            let ip: Option<IpAddr> = self.plane.kubectl(&address)?.parse().ok();
            Ok(ip.and_then(|ip| http::get(ip, "/index.html").ok()))
        })?;
        let label = format!("vmi.kubevirt.io/id={name}");
        let path = "jsonpath={.items[0].metadata.name}";
        self.plane.kubectl(&["get", "pods", "-n", namespace, "-l", &label, "-o", path])
    }

    /// Microseconds for each MiB from the guest's web server.
    fn loads(&self, pod: &str) -> Result<Vec<Pair>> {
        let fill = format!("head -c {} /dev/urandom >/run/www/many", MIB << 20);
        wait_for("the guest's agent", BOOT_DEADLINE, || {
            let mut exec = self.plane.command(&["exec", pod, "--", "sh", "-c", &fill]);
            Ok(exec.stdin(Stdio::null()).output()?.status.success().then_some(()))
        })?;
        let ours = || least(|| load(&mut self.asker.open("default/virtualmachineinstances/a/portforward/80")?));
        let mut kubectl = self.plane.command(&["port-forward", pod, "0:80"]);
        through(self.bed, &mut kubectl, |port, _said| {
            let theirs = || {
                least(|| {
                    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
                    stream.set_read_timeout(Some(SILENCE))?;
                    load(&mut stream)
                })
            };
            (0..PAIRS).map(|_| Ok(Pair { ours: ours()?, baseline: theirs()? })).collect()
        })
    }

    /// Microseconds for each MiB of pixels of a screen that is asked for all of it again and again.
    fn screens(&self, pod: &str) -> Result<Vec<Pair>> {
        let ours = || look(&mut self.asker.open("default/virtualmachineinstances/a/vnc")?);
        let theirs = || {
            let mut exec = self.plane.command(&["exec", "-i", pod, "--", "virtlet:vnc", "--take"]);
            let mut child = exec.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn()?;
            let (to, from) = (child.stdin.take().context("no pipe")?, child.stdout.take().context("no pipe")?);
            look(&mut Piped { child, to, from })
        };
        (0..PAIRS).map(|_| Ok(Pair { ours: ours()?, baseline: theirs()? })).collect()
    }

    fn memory(&self) -> Result<Vec<Pair>> {
        let mut idle = Vec::new();
        for (namespace, name) in VMS {
            for _ in 0..CONSOLES_OF_EACH {
                idle.push(self.asker.open(&format!("{namespace}/virtualmachineinstances/{name}/console"))?);
            }
        }
        let count = format!("virtlet_subresources_sessions{{subresource=\"console\"}} {}", idle.len());
        wait_for("all consoles", STEP_DEADLINE, || {
            let told = http::get_from(Ipv4Addr::LOCALHOST.into(), FIGURES, "/metrics")?;
            Ok(told.lines().any(|line| line == count).then_some(()))
        })?;
        Ok(vec![Pair { ours: rss(self.server.pid()?)?, baseline: PROMISED }])
    }

    /// Has all of it go, and the node with it.
    fn end(mut self) -> Result<()> {
        for namespace in ["default", "more"] {
            self.plane.kubectl(&["delete", "vmi", "--all", "-n", namespace, "--timeout=170s"])?;
        }
        wait_for("end of all VMs", STEP_DEADLINE, || {
            let left = self.plane.kubectl(&["get", "pods", "-A", "-o", "name"])?;
            Ok((left.is_empty() && running_domains()?.is_empty()).then_some(()))
        })?;
        self.operator.kill9()?;
        let words = ["uninstall", "--namespace", "default", "--delete-vms", "--kubeconfig"];
        let words = words.iter().map(OsStr::new).chain([self.admin.as_os_str()]);
        run(&mut command(self.bed.program("virtlet-operator"), words))?;
        self.server.kill9()?;
        self.kubelet.daemon.kill9()?;
        self.plane.end()?;
        // Its default route leads nowhere.
        sh("ip link del node0")?;
        sh(&format!("ip addr del {ADDRESS}/32 dev lo")).map(drop)
    }
}

impl Read for Piped {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        self.from.read(out)
    }
}

impl Write for Piped {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.to.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.to.flush()
    }
}

impl Drop for Piped {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn instance((namespace, name): (&str, &str), image: &str) -> Value {
    json!({
        "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "domain": {
                "memory": {"guest": "160Mi"}, "devices": {"disks": [{"name": "root", "disk": {"bus": "virtio"}}]},
            },
            "terminationGracePeriodSeconds": 0,
            "volumes": [{"name": "root", "containerDisk": {"image": image, "imagePullPolicy": "IfNotPresent"}}],
        },
    })
}

fn least(mut sample: impl FnMut() -> Result<f64>) -> Result<f64> {
    (0..SAMPLES).try_fold(f64::INFINITY, |least, _| Ok(sample()?.min(least)))
}

/// Microseconds for each MiB, from the first byte of an answer to its last.
fn load(stream: &mut (impl Read + Write)) -> Result<f64> {
    stream.write_all(b"GET /many HTTP/1.0\r\n\r\n")?;
    stream.read_exact(&mut [0])?;
    let (micros, bytes) = timed(|| io::copy(stream, &mut io::sink()))?;
    ensure!(bytes > MIB << 20, "{bytes} bytes of {MIB} MiB");
    per_mib(micros, bytes)
}

/// The same of a screen's pictures, once one has come.
fn look(stream: &mut (impl Read + Write)) -> Result<f64> {
    let screen = greet(stream)?;
    picture(stream, screen)?;
    let (micros, bytes) = timed(|| (0..PICTURES).map(|_| picture(stream, screen)).sum::<Result<u64>>())?;
    per_mib(micros, bytes)
}

fn per_mib(micros: f64, bytes: u64) -> Result<f64> {
    let kib = u32::try_from(bytes >> 10)?;
    Ok(micros * 1024.0 / f64::from(kib))
}
