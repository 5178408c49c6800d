//! A stock cloud image: systemd, cloud-init, ssh.

use std::fs;
use std::net::IpAddr;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use proto::cri::{ContainerConfig, Device, KeyValue, LinuxContainerResources};
use serde_json::{Value, json};
use tests::case::{Bed, Case};
use tests::command::{Ended, TOOL_DEADLINE, command, finish, run};
use tests::cri;
use tests::loop_device::LoopDevice;
use tests::node::{CRI_SOCKET, Node, Vm};
use tests::wait::wait_for;

const DEADLINE: Duration = Duration::from_secs(1800);
/// Half a minute alone, and ten times that on a machine that is busy with others.
const CLOUD_DEADLINE: Duration = Duration::from_secs(500);
const GRACE: Duration = Duration::from_secs(60);
/// The image has 4 GiB, and the header of a root disk one MiB.
const ROOT_BYTES: u64 = (4 << 30) + (8 << 20);

pub(super) const CASES: &[Case] =
    &[Case { name: "vm::a_stock_cloud_image_takes_our_seed_and_lets_us_in", deadline: DEADLINE, run: ssh }];

/// What a YAML parser may take for something else, on its way through ours.
const NASTY: &str = r##"nasty:
  texts: ["yes", 'no', "on", "0644", "1:20", '~', "null", "0x1f", "1e3", ".inf", "2001-01-01", "<<", "=", "", " x ", "- a"]
  signs: ["a: b", "# c", "{", "[", "%d", "@e", "`f`", "'", '"', '\', "!t", "&a", "*b", "|", ">", "---", "...", "$x"]
  values: [yes, 0644, 0x1f, ~, 1.5, -7]
  "yes": &key of a key
  again: *key
  lines: |
    one
      two

    three
  folded: >-
    one
    line
  letters: "ü € 😀 \x85 \u2028 \u2029 \ufeff \x7f \t \e"
"##;

fn nasty() -> Value {
    json!({
        "texts": [
            "yes", "no", "on", "0644", "1:20", "~", "null", "0x1f", "1e3", ".inf", "2001-01-01", "<<", "=", "", " x ", "- a",
        ],
        "signs": [
            "a: b", "# c", "{", "[", "%d", "@e", "`f`", "'", "\"", "\\", "!t", "&a", "*b", "|", ">", "---", "...", "$x",
        ],
        "values": [true, 420, 31, null, 1.5, -7],
        "yes": "of a key",
        "again": "of a key",
        "lines": "one\n  two\n\nthree\n",
        "folded": "one line",
        "letters": "\u{fc} \u{20ac} \u{1f600} \u{85} \u{2028} \u{2029} \u{feff} \u{7f} \t \u{1b}",
    })
}

fn ssh(bed: &Bed) -> Result<()> {
    let agent = bed.config.dist()?.join("virtlet-agent");
    let node = Node::configured(bed, &format!("guest_agent = '{}'", agent.display()))?;
    let image = node.pull(bed, "debian.qcow2")?;
    let key = bed.dir.join("id");
    let mut keygen = command("ssh-keygen", ["-q", "-t", "ed25519", "-N", ""]);
    run(keygen.arg("-f").arg(&key))?;
    let public = fs::read_to_string(key.with_extension("pub"))?;
    let root = LoopDevice::new(&bed.dir.join("root.img"), ROOT_BYTES)?;
    let volume = LoopDevice::new(&bed.dir.join("pv.img"), 16 << 20)?;
    run(&mut command("mkfs.ext4", ["-q".as_ref(), volume.node().as_os_str()]))?;
    let user_data = format!(
        "write_files:\n- path: /run/written\n  content: |\n    by the seed\nmounts: [[/dev/testpvc, /srv/users]]\n{NASTY}"
    );
    let annotations = [
        ("VirtletSSHKeys".to_owned(), public.trim().to_owned()),
        ("VirtletCloudInitUserData".to_owned(), user_data),
        ("virtlet.cloud/network-config".to_owned(), "static".to_owned()),
        ("virtlet.cloud/guest-agent".to_owned(), "true".to_owned()),
    ];
    let mut container = cri::container(&image, annotations.into());
    // In a file of its own, by the same key of cloud-init as the user's; the agent comes beside both.
    container.envs = vec![KeyValue { key: "COLOUR".into(), value: "deep blue".into() }];
    let device = |at: &str, device: &LoopDevice| Device {
        container_path: at.into(),
        host_path: device.node().display().to_string(),
        permissions: "mrw".into(),
    };
    container.devices = vec![device("/", &root), device("/dev/testpvc", &volume)];
    // One vCPU: on a busy host an emulated guest with two may wait for ever, early in its boot, for a timer of the second.
    let memory = LinuxContainerResources { memory_limit_in_bytes: 768 << 20, ..Default::default() };
    container.linux.get_or_insert_default().resources = Some(memory);
    let vm = node.start_pod(node.pod("cloud")?, &container)?;

    let ask = |words: &str, deadline| ask(bed, &key, "accept-new", words, deadline);
    wait_login(&vm, || ask("true", TOOL_DEADLINE))?;
    // cloud-init goes on for as long again behind the first login.
    let words = "cloud-init status --wait >/dev/null; hostname; cat /run/written; sudo cat /etc/cloud/environment; cat /sys/class/net/eth0/mtu; cloud-id";
    let said = ask(words, CLOUD_DEADLINE)?.stdout;
    for line in ["cloud", "by the seed", "COLOUR=\"deep blue\"", "1450", "nocloud"] {
        ensure!(said.lines().any(|said| said == line), "no `{line}` in: {said}");
    }
    // The volume by udev's link, though the agent's is not there yet; the address without DHCP.
    let words = "echo users: $(findmnt -no FSTYPE /srv/users) $(grep -c ^/dev/disk/by-id/virtio-testpvc /etc/fstab); \
                 echo dynamic: $(ip -o addr show eth0 scope global | grep -c dynamic); \
                 echo dhcp: $(cat /run/systemd/network/*.network | grep -ciE '^(DHCP|IPv6AcceptRA)=(yes|true|ipv)'); \
                 ip -o -4 addr show eth0; ip route";
    let said = ask(words, TOOL_DEADLINE)?.stdout;
    for line in ["users: ext4 1", "dynamic: 0", "dhcp: 0"] {
        ensure!(said.lines().any(|said| said == line), "no `{line}` in: {said}");
    }
    ensure!(said.contains(&format!(" inet {}/", vm.ip)) && said.contains("default via "), "{said}");
    // User-data was merged, and is the same to cloud-init.
    let words = "sudo python3 -c 'import json, yaml; \
                 print(json.dumps(yaml.safe_load(open(\"/var/lib/cloud/instance/user-data.txt\"))[\"nasty\"]))'";
    let said = ask(words, TOOL_DEADLINE)?;
    let read: Value = serde_json::from_str(&said.stdout).with_context(|| format!("{said:?}"))?;
    ensure!(read == nasty(), "{read}, not {}", nasty());
    // By the agent that cloud-init has installed: QEMU's, which the image has, takes no input.
    let served = node.crictl(&["exec", "--interactive", &vm.container, "systemctl", "is-active", "virtlet-agent"])?;
    ensure!(served.stdout.trim() == "active", "{served:?}");
    node.cri.stop(&vm.container, GRACE)?;
    let status = node.cri.container(&vm.container)?;
    ensure!(status.exit_code == 0, "{}: {}", status.exit_code, status.reason);
    node.remove_vm(&vm, GRACE)?;
    next_pod(bed, &node, &container, &key, vm.ip)
}

/// The root disk's next pod is the same guest at another address.
fn next_pod(bed: &Bed, node: &Node, container: &ContainerConfig, key: &Path, earlier: IpAddr) -> Result<()> {
    let mut container = container.clone();
    container.annotations.insert("VirtletCloudInitUserData".into(), "runcmd: [touch /run/again]".into());
    let vm = node.start_pod(node.pod("cloud")?, &container)?;
    ensure!(vm.ip != earlier, "the same address, {earlier}, says nothing");
    // The key of its host is the one that is known.
    let ask = |words: &str, deadline| ask(bed, key, "yes", words, deadline);
    wait_login(&vm, || ask("true", TOOL_DEADLINE))?;
    let words = "cloud-init status --wait >/dev/null; ls /run/again; ip -o -4 addr show eth0; \
                 echo dynamic: $(ip -o addr show eth0 scope global | grep -c dynamic)";
    let said = ask(words, CLOUD_DEADLINE)?.stdout;
    ensure!(said.lines().any(|line| line == "dynamic: 0"), "by DHCP: {said}");
    ensure!(said.contains(&format!(" inet {}/", vm.ip)) && !said.contains(&format!(" inet {earlier}/")), "{said}");
    // Nothing is done again for an instance that has been.
    ensure!(!said.contains("/run/again"), "a command was run for an instance that has had its own: {said}");
    node.remove_vm(&vm, GRACE)
}

/// What a line of a shell says in the guest, whose host key is trusted so far.
fn ask(bed: &Bed, key: &Path, host_key: &str, words: &str, deadline: Duration) -> Result<Ended> {
    let known = bed.dir.join("known_hosts");
    let mut ssh = command(bed.program("virtletctl"), ["--socket", CRI_SOCKET, "ssh"]);
    for option in ["BatchMode=yes", "ConnectTimeout=5", "LogLevel=ERROR", "HostKeyAlias=cloud"] {
        ssh.args(["-o", option]);
    }
    ssh.arg("-o").arg(format!("UserKnownHostsFile={}", known.display()));
    ssh.arg("-o").arg(format!("StrictHostKeyChecking={host_key}"));
    finish(ssh.arg("-i").arg(key).args(["debian@cloud", words]), deadline)
}

fn wait_login(vm: &Vm, mut tries: impl FnMut() -> Result<Ended>) -> Result<()> {
    let mut last = String::new();
    wait_for("login by ssh", CLOUD_DEADLINE, || {
        let tried = tries()?;
        last = tried.stderr;
        Ok((tried.code == Some(0)).then_some(()))
    })
    .with_context(|| format!("{last}\n{}", vm.log_text().unwrap_or_default()))
}
