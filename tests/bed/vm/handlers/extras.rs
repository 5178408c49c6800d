//! What a runtime handler adds to its machines, and what it lets pods say; who said what is told.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _};
use std::net::TcpStream;
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use tests::case::Bed;
use tests::command::{Ended, TOOL_DEADLINE, command, finish};
use tests::cri;
use tests::emulator::of_one_thread;
use tests::kubelet_volumes::PodVolumes;
use tests::node::{BOOT_DEADLINE, CRI_SOCKET, Node, user_data};
use tests::pace::at_worst;
use tests::wait::wait_for;

use super::{create_with, ensure_machine};

const HANDLERS: &str = "[handlers.desk]\ngraphics = 'vnc'\nwatchdog = 'itco'\nclock = 'localtime'\n\
                        annotations.allow = ['Virtlet*', 'virtlet.k8s/vm']\nannotations.deny = ['virtlet.cloud/ssh-keys']\n";
const TELL: &str = "#!/bin/sh\ngrep -m1 'model name' /proc/cpuinfo >/dev/console\ngrep -m1 siblings /proc/cpuinfo | tr -d '\\t ' >/dev/console\n\
                    cat /sys/class/dmi/id/product_serial /sys/class/dmi/id/chassis_asset_tag /sys/block/vda/serial >/dev/console\n\
                    mkdir -p /run/app\nfor disk in /sys/block/*; do\n\
                    [ \"$(cat $disk/serial 2>/dev/null)\" = app ] && mount -t iso9660 -o ro /dev/${disk##*/} /run/app && cat /run/app/told >/dev/console\n\
                    done\n";
/// Four of the five fields that the handler lets a pod say.
const CPU: &str = "{Mode: custom, model: {value: Opteron_G2, fallback: forbid}, topology: {cores: 1, threads: 2}, \
                   features: [{name: aes, policy: disable}]}";
/// Beside what annotations and the handler say.
const DESCRIBED: &str = r#"{"v":1,"firmware":{"serial":"S-1"},"chassis":{"asset":"A-42"},
    "clock":{"timer":{"pit":{"tickPolicy":"delay"}}},"features":{"smm":{}},
    "disks":[{"name":"os","root":true,"serial":"R-7","cache":"writethrough","errorPolicy":"report","bootOrder":1},
             {"name":"app","source":{"files":{"label":"app"}}}],
    "devices":{"graphics":true,"video":{"type":"bochs"},"inputs":[{"name":"pen","type":"tablet"}],"blockMultiQueue":false,"ioThreads":"shared"},
    "endsAtReboot":true,"startPaused":true}"#;
const MANIFEST: &str = "kind: Pod\nmetadata: {name: web, annotations: {VirtletVCPUCount: '3', VirtletDiskDriver: ide}}\n\
                        spec: {runtimeClassName: desk, containers: [{name: vm, image: x}]}\n";

pub(super) fn adds(bed: &Bed) -> Result<()> {
    let node = Node::configured(bed, &(of_one_thread(bed)? + HANDLERS))?;
    let image = node.pull(bed, "tiny.qcow2")?;

    // What its handler does not let a pod say.
    for (handler, key) in [("desk", "VirtletSSHKeys"), ("", "VirtletLibvirtCPUSetting")] {
        let mut pod = node.pod("denied")?;
        let value = if key == "VirtletSSHKeys" { "ssh-ed25519 x" } else { CPU };
        pod.annotations.insert(key.into(), value.into());
        let refused = node.cri.run_sandbox_for(&pod, handler).err().with_context(|| format!("{key} is let in"))?;
        let named = if handler.is_empty() { "virtlet" } else { handler };
        let words = format!("annotation {key}: not allowed by runtime handler `{named}`");
        ensure!(refused.message().contains(&words), "{refused}");
        ensure!(refused.code() == tonic::Code::PermissionDenied, "{refused:?}");
    }

    let said = [("VirtletVCPUCount", "2"), ("VirtletLibvirtCPUSetting", CPU), ("virtlet.k8s/vm", DESCRIBED)];
    let mut container = cri::container(&image, user_data(TELL));
    let volumes = PodVolumes::new(&bed.dir, "desk");
    container.mounts = vec![volumes.fill("configmap", "app", &[("told", "of a volume\n")], "/run/virtlet/seed/app")?];
    let vm = create_with(&node, "desk", container, &said)?;
    node.cri.start(&vm.container)?;
    wait_for("a guest that waits", BOOT_DEADLINE, || {
        Ok((node.cri.container(&vm.container)?.reason == "Paused").then_some(()))
    })?;
    let pod = vm.pod.metadata.clone().unwrap_or_default().name;
    let resumed = virtletctl(bed, &["resume", &pod])?;
    ensure!(resumed.code == Some(0), "{resumed:?}");
    let parts = [
        "<graphics type='vnc'",
        "<watchdog model='itco' action='reset'>",
        "<clock offset='localtime'>",
        "<timer name='pit' tickpolicy='delay'/>",
        "<smm state='on'/>",
        "<on_reboot>destroy</on_reboot>",
        "<iothreads>1</iothreads>",
        "cache='writethrough'",
        "<input type='tablet' bus='usb'>",
        "<model type='bochs'",
        "<genid>",
    ];
    ensure_machine(&vm, "pc-q35-", &parts)?;
    vm.wait_up()?;
    vm.wait_log("Opteron 22xx", BOOT_DEADLINE)?;
    vm.wait_log("siblings:2", BOOT_DEADLINE)?;
    vm.wait_log("S-1", BOOT_DEADLINE)?;
    vm.wait_log("A-42", BOOT_DEADLINE)?;
    vm.wait_log("R-7", BOOT_DEADLINE)?;
    vm.wait_log("of a volume", BOOT_DEADLINE)?;
    explained(bed, &pod)?;
    let screen = Path::new("/run/virtlet/screen").join(&vm.machine).join("vnc.sock");
    no_screen_but_qemus(bed, &pod, &screen)?;
    node.remove_vm(&vm, Duration::ZERO)?;
    ensure!(!screen.exists(), "{} is left", screen.display());
    validated(bed)
}

fn explained(bed: &Bed, pod: &str) -> Result<()> {
    let told = virtletctl(bed, &["explain", pod])?;
    for (name, parts) in [
        ("vCPUs", ["2", "annotation VirtletVCPUCount"]),
        ("CPU", ["Opteron_G2, in detail", "annotation VirtletLibvirtCPUSetting"]),
        ("chassis", ["A-42", "annotation virtlet.k8s/vm"]),
        ("graphics", ["vnc", "runtime handler `desk`, graphics"]),
        ("disk bus", ["virtio", "default"]),
    ] {
        let line =
            told.stdout.lines().find(|line| line.starts_with(name)).with_context(|| format!("no {name}: {told:?}"))?;
        ensure!(parts.iter().all(|part| line.contains(part)), "{line}");
    }
    Ok(())
}

/// A viewer hears the server's first words.
fn seen(bed: &Bed, pod: &str) -> Result<()> {
    let mut shows = command(bed.program("virtletctl"), ["--socket", CRI_SOCKET, "vnc", pod]);
    let mut shows = shows.stdout(Stdio::piped()).spawn()?;
    let mut said = String::new();
    BufReader::new(shows.stdout.take().context("no output")?).read_line(&mut said)?;
    let address = said.split_whitespace().find_map(|word| word.trim_end_matches(',').parse().ok());
    let address: std::net::SocketAddr = address.with_context(|| format!("no address in: {said}"))?;
    let heard = TcpStream::connect(address).and_then(|mut viewer| {
        viewer.set_read_timeout(Some(at_worst(TOOL_DEADLINE)))?;
        let mut version = [0; 4];
        viewer.read_exact(&mut version)?;
        Ok(version)
    });
    shows.kill()?;
    shows.wait()?;
    ensure!(&heard? == b"RFB ", "no VNC at {address}");
    let picture = bed.dir.join("screen.png");
    let path = picture.to_str().context("a path in UTF-8")?;
    let looked = virtletctl(bed, &["vnc", "--screenshot", path, pod])?;
    ensure!(looked.code == Some(0) && fs::read(&picture)?.starts_with(b"\x89PNG"), "no picture: {looked:?}");
    Ok(())
}

/// In the place of the socket: a link to another, and the socket of another.
fn no_screen_but_qemus(bed: &Bed, pod: &str, screen: &Path) -> Result<()> {
    let kept = screen.with_extension("kept");
    fs::rename(screen, &kept).with_context(|| format!("no {}", screen.display()))?;
    symlink(CRI_SOCKET, screen)?;
    let linked = virtletctl(bed, &["vnc", pod])?;
    fs::remove_file(screen)?;
    let listener = UnixListener::bind(screen)?;
    let taken = virtletctl(bed, &["vnc", pod])?;
    drop(listener);
    fs::rename(&kept, screen)?;
    for (refused, why) in [(linked, "it is no socket"), (taken, "another process listens there")] {
        let words = format!("is not the screen of the machine: {why}");
        ensure!(refused.code == Some(1) && refused.stderr.contains(&words), "{refused:?}");
    }
    seen(bed, pod)
}

/// What a manifest says is judged by the configuration of the node.
fn validated(bed: &Bed) -> Result<()> {
    let file = bed.dir.join("web.yaml");
    let file = file.to_str().context("UTF-8")?;
    fs::write(file, MANIFEST)?;
    let judged = virtletctl(bed, &["validate", file])?;
    ensure!(judged.code == Some(1), "{judged:?}");
    ensure!(judged.stdout.contains("problem: annotation VirtletDiskDriver: \"ide\" is not one of"), "{judged:?}");
    fs::write(file, MANIFEST.replace("ide", "scsi"))?;
    let judged = virtletctl(bed, &["validate", file])?;
    ensure!(judged.code == Some(0) && judged.stdout.contains("pod/web becomes a machine"), "{judged:?}");
    let line = judged.stdout.lines().find(|line| line.contains("vCPUs")).context("no vCPUs")?;
    ensure!(line.contains('3') && line.contains("VirtletVCPUCount"), "{line}");
    Ok(())
}

fn virtletctl(bed: &Bed, args: &[&str]) -> Result<Ended> {
    finish(command(bed.program("virtletctl"), ["--socket", CRI_SOCKET]).args(args), TOOL_DEADLINE)
}
