//! What breaks on the way to a machine: a clear CRI error each, all undone, and the next try succeeds.

use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use proto::cri::{ContainerState, PodSandboxState, StatusRequest};
use tests::case::{Bed, Case};
use tests::cni::{self, Network};
use tests::command::{TOOL_DEADLINE, command, finish, sh};
use tests::cri;
use tests::image_server::Fault;
use tests::libvirt::running_domains;
use tests::net_node::latest_record;
use tests::node::Node;
use tests::pace::stretched;
use tests::wait::wait_until;
use tests::world::World;
use tonic::{Code, Status};

use super::stand_in;

const DEADLINE: Duration = Duration::from_secs(480);
const GRACE: Duration = Duration::from_secs(30);
/// Of the small disks that cases fill.
const DISK_MIB: u64 = 64;

pub(super) const CASES: &[Case] = &[
    Case { name: "vm::a_failing_vmwrapper_is_a_start_error", deadline: DEADLINE, run: vmwrapper },
    Case { name: "vm::a_wrong_token_is_a_start_error", deadline: DEADLINE, run: tokens },
    Case { name: "vm::a_dead_tapmanager_is_unavailable", deadline: DEADLINE, run: dead_tapmanager },
    Case { name: "vm::a_dead_libvirtd_is_unavailable", deadline: DEADLINE, run: dead_libvirtd },
    Case { name: "vm::a_pod_whose_link_is_gone_gets_not_ready", deadline: DEADLINE, run: cut_off },
    Case { name: "vm::a_pod_whose_link_went_under_its_machine", deadline: DEADLINE, run: cut_off_running },
    Case { name: "vm::a_full_image_store_fails_the_pull", deadline: DEADLINE, run: full_store },
    Case { name: "vm::a_full_volume_disk_fails_the_create", deadline: DEADLINE, run: full_volumes },
    Case { name: "vm::a_full_journal_disk_fails_the_sandbox", deadline: DEADLINE, run: full_journal },
    Case { name: "vm::a_full_database_disk_refuses_pods_and_heals", deadline: DEADLINE, run: full_database },
];

/// kubelet makes another sandbox only for one that is not ready.
fn cut_off(bed: &Bed) -> Result<()> {
    // With masquerading the plugin leaves its rules if the link is gone before its DEL.
    let node = Node::on(bed, &Network::BRIDGE.conflist(), &cni::debian_plugins(), "")?;
    let image = node.pull(bed, "tiny.qcow2")?;
    let before = World::look()?;
    let pod = node.pod("cut")?;
    let sandbox = node.cri.run_sandbox(&pod)?;
    let container = node.cri.create(&sandbox, &cri::container(&image, [].into()), &pod)?;
    lose_link(bed, &sandbox)?;
    let refused = node.cri.start(&container).err().context("a machine started without a link")?;
    ensure!(refused.message().contains("eth0"), "{refused}");
    wait_not_ready(&node, &sandbox)?;
    node.cri.remove_sandbox(&sandbox)?;
    before.assert_same_but(|thing| thing == "link cni0")
}

/// A machine goes on without its link; once it has ended, kubelet makes another sandbox, and tries no start in this one.
fn cut_off_running(bed: &Bed) -> Result<()> {
    let node = Node::on(bed, &Network::BRIDGE.conflist(), &cni::debian_plugins(), "")?;
    let vm = node.start_vm(bed, "cut", "")?;
    lose_link(bed, &vm.sandbox)?;
    ensure!(node.cri.sandbox(&vm.sandbox)?.state() == PodSandboxState::SandboxReady, "kubelet would end the machine");
    ensure!(node.cri.state(&vm.container)? == ContainerState::ContainerRunning, "the machine has ended");
    sh(&format!("virsh destroy {}", running_domains()?.concat()))?;
    node.wait_state(&vm, ContainerState::ContainerExited, GRACE)?;
    wait_not_ready(&node, &vm.sandbox)?;
    node.remove_vm(&vm, GRACE)
}

/// The pod's link goes, and tapmanager finds that out, as it does by itself within minutes.
fn lose_link(bed: &Bed, sandbox: &str) -> Result<()> {
    let record = latest_record(sandbox)?;
    let netns = Path::new(record["netns"].as_str().context("no namespace on record")?).file_name();
    let netns = netns.context("no name")?.display();
    sh(&format!("ip -n {netns} link del eth0"))?;
    let checked = finish(&mut command(bed.program("tapmanager"), ["check", sandbox]), TOOL_DEADLINE)?;
    ensure!(checked.code != Some(0), "a pod without its link is well: {}", checked.stdout);
    Ok(())
}

fn wait_not_ready(node: &Node, sandbox: &str) -> Result<()> {
    wait_until("a sandbox that is not ready", GRACE, || {
        node.cri.sandbox(sandbox).is_ok_and(|sandbox| sandbox.state() == PodSandboxState::SandboxNotready)
    })
}

/// Tries to start a machine; the error of StartContainer. Then everything is removed, and the world is as before.
fn start_error(bed: &Bed, node: &Node, name: &str) -> Result<Status> {
    let image = node.pull(bed, "tiny.qcow2")?;
    let before = World::look()?;
    let pod = node.pod(name)?;
    let sandbox = node.cri.run_sandbox(&pod)?;
    let container = node.cri.create(&sandbox, &cri::container(&image, [].into()), &pod)?;
    let refused = node.cri.start(&container).err().context("the machine started")?;
    ensure!(running_domains()?.is_empty(), "a domain runs");
    let status = node.cri.container(&container)?;
    ensure!(status.state() != ContainerState::ContainerRunning, "the container runs");
    node.cri.remove(&container)?;
    node.cri.remove_sandbox(&sandbox)?;
    before.assert_same()?;
    Ok(refused)
}

fn vmwrapper(bed: &Bed) -> Result<()> {
    let node = stand_in::node(bed, "echo 'vmwrapper[70]: out of order: a test says so; wait' >&2\nexit 70", "")?;
    let refused = start_error(bed, &node, "wrapper")?;
    ensure!(refused.message().contains("vmwrapper[70]: out of order"), "{refused}");

    stand_in::write(bed, "kill -KILL $$")?;
    start_error(bed, &node, "killed")?;

    stand_in::write(bed, "exec \"$real\" \"$@\"")?;
    let vm = node.boot_vm(bed, "sound", "").context("with vmwrapper put right")?;
    node.remove_vm(&vm, GRACE)
}

fn tokens(bed: &Bed) -> Result<()> {
    let node = stand_in::node(bed, "exit 1", "")?;
    let cases = [
        ("missing", "unset VIRTLET_TOKEN; exec \"$real\" \"$@\"", "vmwrapper[78]"),
        ("foreign", "VIRTLET_TOKEN=0123456789abcdef0123456789abcdef exec \"$real\" \"$@\"", "vmwrapper[69]"),
        ("malformed", "VIRTLET_TOKEN=secret exec \"$real\" \"$@\"", "vmwrapper[78]"),
        ("used", "VIRTLET_EMULATOR=/bin/true \"$real\" -name x; exec \"$real\" \"$@\"", "vmwrapper[69]"),
    ];
    for (name, body, said) in cases {
        stand_in::write(bed, body)?;
        let refused = start_error(bed, &node, name).with_context(|| format!("{name} token"))?;
        ensure!(refused.message().contains(said), "{name}: {refused}");
        ensure!(!refused.message().contains("secret"), "{name}: the token is shown: {refused}");
    }
    Ok(())
}

fn dead_tapmanager(bed: &Bed) -> Result<()> {
    let mut node = Node::start(bed)?;
    let image = node.pull(bed, "tiny.qcow2")?;
    let pod = node.pod("first")?;
    let sandbox = node.cri.run_sandbox(&pod)?;
    let container = node.cri.create(&sandbox, &cri::container(&image, [].into()), &pod)?;
    node.net.tapmanager.kill9()?;

    let refused = node.cri.run_sandbox(&node.pod("second")?).err().context("a sandbox without tapmanager")?;
    ensure!(refused.code() == Code::Unavailable && refused.message().contains("tapmanager"), "{refused}");
    let refused = node.cri.start(&container).err().context("a machine without tapmanager")?;
    ensure!(refused.code() == Code::Unavailable && refused.message().contains("tapmanager"), "{refused}");
    ensure!(running_domains()?.is_empty(), "a domain runs");

    node.net.tapmanager.start_again()?;
    node.net.wait_ready()?;
    node.wait_ready()?;
    node.cri.remove(&container)?;
    node.cri.remove_sandbox(&sandbox)?;
    let vm = node.boot_vm(bed, "third", "").context("with tapmanager back")?;
    node.remove_vm(&vm, GRACE)
}

fn dead_libvirtd(bed: &Bed) -> Result<()> {
    let mut node = Node::start(bed)?;
    let image = node.pull(bed, "tiny.qcow2")?;
    let pod = node.pod("first")?;
    let sandbox = node.cri.run_sandbox(&pod)?;
    node.libvirt.libvirtd.kill9()?;
    let created = node.cri.create(&sandbox, &cri::container(&image, [].into()), &pod);
    let refused = match created {
        Ok(container) => node.cri.start(&container).err().context("a machine without libvirtd")?,
        Err(refused) => refused,
    };
    ensure!(refused.code() == Code::Unavailable && refused.message().contains("libvirt"), "{refused}");
    node.libvirt.libvirtd.start_again()?;
    node.libvirt.wait_ready()?;
    node.wait_ready()?;
    node.cri.remove_sandbox(&sandbox)?;
    let vm = node.boot_vm(bed, "second", "").context("with libvirtd back")?;
    node.remove_vm(&vm, GRACE)
}

/// A small disk of its own for a directory, before the daemons start.
fn small_disk(dir: &str) -> Result<()> {
    fs::create_dir_all(dir)?;
    sh(&format!("mount -t tmpfs -o size={DISK_MIB}m,mode=755 small {dir}"))?;
    Ok(())
}

/// Fills the disk that `dir` is on.
fn fill(dir: &str) -> Result<()> {
    let filler = Path::new(dir).join("filler");
    // Ends with the disk full, which is the point.
    let full = sh(&format!("dd if=/dev/zero of={} bs=4k status=none", filler.display()));
    ensure!(full.is_err_and(|said| said.to_string().contains("No space left")), "the disk is not full");
    Ok(())
}

fn empty(dir: &str) -> Result<()> {
    fs::remove_file(Path::new(dir).join("filler"))?;
    Ok(())
}

fn exhausted(refused: &Status) -> Result<()> {
    let said = refused.message().to_lowercase();
    ensure!(
        refused.code() == Code::ResourceExhausted && ["space", "full", " left"].iter().any(|word| said.contains(word)),
        "{refused}"
    );
    Ok(())
}

fn full_store(bed: &Bed) -> Result<()> {
    let dir = "/var/lib/virtlet/images";
    small_disk(dir)?;
    let node = Node::start(bed)?;
    let before = World::look()?;
    fill(dir)?;
    let refused = node.pull(bed, "tiny.qcow2").err().context("pulled to a full disk")?;
    exhausted(refused.downcast_ref().context("not a status")?)?;
    empty(dir)?;
    before.assert_same()?;

    // Full all of a sudden, amid a download.
    let slow = Fault::Slow(stretched(Duration::from_millis(50)));
    let slow = node.images.offer("slow.qcow2", &bed.config.guest("tiny.qcow2")?, slow);
    let refused = std::thread::scope(|scope| {
        let pull = scope.spawn(|| node.cri.pull(&slow));
        wait_until("request for the image", GRACE, || node.images.downloads("slow.qcow2") > 0)?;
        fill(dir)?;
        anyhow::Ok(pull.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
    })?;
    exhausted(&refused.err().context("pulled to a disk that filled up")?)?;
    empty(dir)?;
    before.assert_same()?;
    node.pull(bed, "tiny.qcow2").context("with room again")?;
    Ok(())
}

fn full_volumes(bed: &Bed) -> Result<()> {
    let dir = "/var/lib/virtlet/volumes";
    small_disk(dir)?;
    let node = Node::start(bed)?;
    let image = node.pull(bed, "tiny.qcow2")?;
    let before = World::look()?;
    let pod = node.pod("full")?;
    let sandbox = node.cri.run_sandbox(&pod)?;
    fill(dir)?;
    let refused = node.cri.create(&sandbox, &cri::container(&image, [].into()), &pod).err();
    exhausted(&refused.context("an overlay on a full disk")?)?;
    let half = |name: &std::ffi::OsStr| name.to_string_lossy().starts_with(".new-");
    let left = fs::read_dir(dir)?.filter_map(Result::ok).map(|entry| entry.file_name()).find(|name| half(name));
    ensure!(left.is_none(), "left behind on a full disk: {left:?}");
    empty(dir)?;
    let container = node.cri.create(&sandbox, &cri::container(&image, [].into()), &pod).context("with room again")?;
    node.cri.remove(&container)?;
    node.cri.remove_sandbox(&sandbox)?;
    before.assert_same()
}

fn full_journal(bed: &Bed) -> Result<()> {
    let dir = "/var/lib/virtlet/net";
    small_disk(dir)?;
    let node = Node::start(bed)?;
    let before = World::look()?;
    fill(dir)?;
    let refused = node.cri.run_sandbox(&node.pod("full")?).err().context("a sandbox with a full journal")?;
    exhausted(&refused)?;
    empty(dir)?;
    before.assert_same()?;
    let sandbox = node.cri.run_sandbox(&node.pod("full")?).context("with room again")?;
    node.cri.remove_sandbox(&sandbox)?;
    before.assert_same()
}

/// The database has room within its file for a while: pods with large annotations use it up. Nothing is restarted.
fn full_database(bed: &Bed) -> Result<()> {
    small_disk("/var/lib/virtlet")?;
    // tapmanager's journal has a disk of its own.
    small_disk("/var/lib/virtlet/net")?;
    let mut node = Node::start(bed)?;
    node.cri.remove_sandbox(&node.cri.run_sandbox(&node.pod("first")?)?)?;
    let before = World::settled()?;
    let gone = node.cri.run_sandbox(&node.pod("gone")?)?;
    fill("/var/lib/virtlet")?;
    let mut made = Vec::new();
    let mut refused = None;
    for n in 0..200 {
        let mut pod = node.pod(&format!("full-{n}"))?;
        pod.annotations.insert("example.test/large".into(), "x".repeat(200_000));
        match node.cri.run_sandbox(&pod) {
            Ok(sandbox) => made.push(sandbox),
            Err(status) => {
                refused = Some(status);
                break;
            }
        }
    }
    exhausted(&refused.context("the database never filled up")?)?;
    let (ready, reason) = store_writable(&node)?;
    ensure!(!ready && reason.contains("os error 28"), "the node says of its database: {ready}, {reason}");
    // Pods can be deleted all the same.
    node.cri.remove_sandbox(&gone).context("a removal with a full database")?;
    ensure!(node.cri.sandbox(&gone).is_err(), "a removed sandbox is shown");
    empty("/var/lib/virtlet")?;
    wait_until("a database that can be written", GRACE, || store_writable(&node).is_ok_and(|(ready, _)| ready))?;
    made.push(node.cri.run_sandbox(&node.pod("roomy")?).context("with room again")?);
    node.restart_controld()?;
    ensure!(node.cri.sandbox(&gone).is_err(), "a removed sandbox is there again");
    for sandbox in &made {
        node.cri.remove_sandbox(sandbox)?;
    }
    before.assert_same_but(|thing| thing == "link cni0" || thing.starts_with("process "))
}

/// Whether the node can write its records, and why not.
fn store_writable(node: &Node) -> Result<(bool, String)> {
    let said = node.cri.call(|mut client| async move { client.status(StatusRequest::default()).await })?;
    let conditions = said.status.context("no status")?.conditions;
    let ready = conditions.iter().find(|condition| condition.r#type == "RuntimeReady").is_some_and(|it| it.status);
    ensure!(ready, "a full disk keeps kubelet from its pods: {conditions:?}");
    let found = conditions.into_iter().find(|condition| condition.r#type == "StoreWritable");
    found.map(|it| (it.status, it.message)).context("no such condition")
}
