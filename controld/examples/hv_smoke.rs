//! Runs one tiny machine through a libvirt, for a look by hand: define, start, state, power button, destroy, undefine, with
//! libvirt's events in between.
//!
//! `cargo run -p controld --example hv_smoke -- URI DIR [EMULATOR]`: DIR is an absolute directory that QEMU's user can pass
//! through; a disk, a socket and a log are made in it. EMULATOR stands where vmwrapper stands, and is plain QEMU by default:
//! the machine has an empty disk and no network. Name a private libvirt, or expect the machine among the node's own.

#![expect(clippy::print_stdout, reason = "made to be watched")]

use std::collections::BTreeMap;
use std::os::unix::fs::chown;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use controld::hypervisor::{Beginning, DomainPhase, HvEvent, Hypervisor};
use controld::model::domain::{self, DomainSpec, NicPlace, WrapperEnv};
use proto::tap::{QemuUser, Token};
use tokio::sync::broadcast;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;
use vmspec::ids::domain_name;
use vmspec::plan::{Cpus, Guest, Hardware, Layer, MachinePlan, Memory, RootDisk};
use vmspec::{Accelerator, MachineId};

/// Anything that takes longer than this here has failed.
const DEADLINE: Duration = Duration::from_secs(60);

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let mut args = std::env::args().skip(1);
    let (Some(uri), Some(dir)) = (args.next(), args.next()) else { bail!("usage: hv_smoke URI DIR [EMULATOR]") };
    let emulator = args.next().unwrap_or_else(|| "/usr/bin/qemu-system-x86_64".into());

    let (hypervisor, mut events) = Hypervisor::connect(&uri, DEADLINE);
    let user = hypervisor.qemu_user().await?;
    println!("QEMU runs as {}:{}", user.uid, user.gid);

    let spec = spec(Path::new(&dir), emulator.into(), user)?;
    hypervisor.define(domain::xml(&spec)?).await?;
    let ran = run(&hypervisor, &mut events, &spec).await;
    hypervisor.clear(spec.plan.id.uuid()).await?;
    ran?;
    ensure!(hypervisor.state(spec.plan.id.uuid()).await?.is_none(), "the machine is still defined");
    println!("gone");
    Ok(())
}

async fn run(hv: &Hypervisor, events: &mut broadcast::Receiver<HvEvent>, spec: &DomainSpec) -> anyhow::Result<()> {
    let begun = std::time::Instant::now();
    let wanted = CancellationToken::new();
    let turn = hv.start_turn(&wanted).await?;
    let begins = Beginning { growth: None, down: Vec::new(), paused: false };
    hv.start(turn, spec.plan.id.uuid(), Path::new("/var/log/libvirt/qemu/none.log"), begins, &wanted).await?;
    println!("started in {} ms", begun.elapsed().as_millis());
    let state = hv.state(spec.plan.id.uuid()).await?;
    ensure!(state.is_some_and(|state| state.phase == DomainPhase::On), "started, yet {state:?}");
    println!("ours: {:?}", hv.list_ours(spec.instance).await?);
    ensure!(hv.list_ours(Uuid::new_v4()).await?.is_empty(), "another instance's machine was taken for its own");
    hv.shutdown(spec.plan.id.uuid()).await?;
    println!("power button pressed; an empty disk does not hear it");
    hv.destroy(spec.plan.id.uuid()).await?;
    let ended = tokio::time::timeout(DEADLINE, ended(events, spec.plan.id.uuid())).await;
    ended.context("no event of the end came")??;
    println!("state: {:?}", hv.state(spec.plan.id.uuid()).await?);
    Ok(())
}

/// Prints events until the one that ends machine `id`.
async fn ended(events: &mut broadcast::Receiver<HvEvent>, id: Uuid) -> anyhow::Result<()> {
    loop {
        let event = events.recv().await?;
        println!("event: {event:?}");
        if matches!(event, HvEvent::Lifecycle { id: of, ending: Some(_), .. } if of == id) {
            return Ok(());
        }
    }
}

fn spec(dir: &Path, emulator: PathBuf, user: QemuUser) -> anyhow::Result<DomainSpec> {
    let id = Uuid::new_v4();
    let (base, root) = (dir.join(format!("{id}-base.qcow2")), dir.join(format!("{id}.qcow2")));
    make_disk(&base, &[], &["1G"])?;
    let below = base.display().to_string();
    make_disk(&root, &["-F", "qcow2", "-b", &below], &[])?;
    chown(&root, Some(user.uid), Some(user.gid))?;
    Ok(DomainSpec {
        files: BTreeMap::new(),
        memory_nodes: None,
        plan: MachinePlan {
            passed: Default::default(),
            guest: Guest::default(),
            share: None,
            disks: Vec::new(),
            id: MachineId::from(id),
            domain: domain_name(id, "hv-smoke"),
            cpus: Cpus::fixed(2),
            memory: Memory::fixed(128 << 20),
            hardware: Hardware::default(),
            root: RootDisk {
                overlay: root,
                images: vec![Layer { path: base, format: "qcow2".into() }],
                persistent: None,
                volume: None,
            },
            huge_page: None,
            smbios: Some(Uuid::new_v4()),
            cgroup: None,
        },
        sandbox: Uuid::new_v4().simple().to_string(),
        pod_uid: "hv-smoke".into(),
        instance: Uuid::new_v4(),
        accel: Accelerator::Qemu,
        vmwrapper: emulator,
        env: WrapperEnv {
            handoff: dir.join("handoff.sock"),
            token: Token::from_random(*Uuid::new_v4().as_bytes()),
            emulator: "/usr/bin/qemu-system-x86_64".into(),
            nics: vec![NicPlace::at(0x10)],
            deadline: Duration::from_secs(1),
        },
        seed: None,
        firmware: Vec::new(),
        share: None,
        root: None,
        disks: Vec::new(),
        console_socket: dir.join("console.sock"),
        qga_socket: dir.join("console.agent"),
        agent_socket: dir.join("console.exec"),
        screen_socket: dir.join("console.vnc"),
        console_log: dir.join("console.log"),
        command_log: dir.join("command.log"),
        command_end: dir.join("end"),
        uefi_variables: dir.join("nvram.fd"),
        hostdevs: Vec::new(),
        locked_memory: None,
        pvpanic_pci: true,
        waits: false,
    })
}

fn make_disk(path: &Path, options: &[&str], size: &[&str]) -> anyhow::Result<()> {
    let made = Command::new("qemu-img")
        .args(["create", "-q", "-f", "qcow2"])
        .args(options)
        .arg(path)
        .args(size)
        .output()
        .context("qemu-img is needed")?;
    ensure!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    Ok(())
}
