//! A stock cloud image: systemd, cloud-init, ssh.

use std::fs;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use proto::cri::{ContainerConfig, Device, KeyValue, LinuxContainerResources, Mount};
use serde_json::{Value, json};
use tests::case::{Bed, Case};
use tests::command::{Ended, TOOL_DEADLINE, command, finish, run};
use tests::cri;
use tests::kubelet_volumes::PodVolumes;
use tests::loop_device::LoopDevice;
use tests::node::{CRI_SOCKET, Node, SHUTDOWN, Vm};
use tests::pace;
use tests::wait::wait_for;

use super::seeds::{LONG, QUICK_CPU, base64, named_volume};

const DEADLINE: Duration = Duration::from_secs(1800);
/// Half a minute alone, and ten times that on a machine that is busy with others.
const CLOUD_DEADLINE: Duration = Duration::from_secs(500);
/// Says what cloud-init has done, once it has. cloud-init itself is not asked: each question starts Python.
const DONE: &str = "until [ -e /run/cloud-init/result.json ]; do sleep 1; done; cat /run/cloud-init/result.json";
const NOCLOUD: &str = "DataSourceNoCloud [";
/// The image has 4 GiB, and the header of a root disk one MiB.
const ROOT_BYTES: u64 = (4 << 30) + (8 << 20);

pub(super) const CASES: &[Case] =
    &[Case { name: "vm::a_stock_cloud_image_takes_our_seed_and_lets_us_in", deadline: DEADLINE, run: ssh }];

const SCRIPT: &str = "#!/bin/sh\n# kept as it is\ntouch /run/again\n";

/// What a YAML parser may take for something else, on its way through ours.
const NASTY: &str = r##"nasty:
  texts: ["yes", 'no', "on", "0644", "1:20", '~', "null", "0x1f", "1e3", ".inf", "2001-01-01", "<<", "=", "", " x ", "- a"]
  signs: ["a: b", "# c", "{", "[", "%d", "@e", "`f`", "'", '"', '\', "!t", "&a", "*b", "|", ">", "---", "...", "$x"]
  values: [yes, 0644, 0x1f, ~, 1.5, -7, off, 1_000, 22:30]
  "22:30": &key of a key
  "=": *key
  "yes": *key
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
        // The last one is 1350, to base 60, to cloud-init by itself. Nobody means that.
        "values": [true, 420, 31, null, 1.5, -7, false, 1000, "22:30"],
        "22:30": "of a key",
        "=": "of a key",
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
        QUICK_CPU.map(str::to_owned).into(),
    ];
    let mut container = cri::container(&image, annotations.into());
    // In a file of its own, by the same key of cloud-init as the user's; the agent comes beside both.
    container.envs = vec![KeyValue { key: "COLOUR".into(), value: "deep blue".into() }];
    let device = |at: &str, device: &LoopDevice| Device {
        container_path: at.into(),
        host_path: device.node().display().to_string(),
        permissions: "mrw".into(),
    };
    let long: Vec<_> = LONG.iter().map(|name| named_volume(bed, name, name)).collect::<Result<_>>()?;
    let (_open, long): (Vec<_>, Vec<_>) = long.into_iter().unzip();
    container.devices = [vec![device("/", &root), device("/dev/testpvc", &volume)], long].concat();
    // One vCPU: on a busy host an emulated guest with two may wait for ever, early in its boot, for a timer of the second.
    let memory = LinuxContainerResources { memory_limit_in_bytes: 768 << 20, ..Default::default() };
    container.linux.get_or_insert_default().resources = Some(memory);
    let vm = node.start_pod(node.pod("cloud")?, &container)?;

    let ask = |words: &str, deadline| ask(bed, &key, "accept-new", words, deadline);
    wait_login(&vm, || ask("true", TOOL_DEADLINE))?;
    // cloud-init goes on for as long again behind the first login.
    let words =
        format!("{DONE}; hostname; cat /run/written; sudo cat /etc/cloud/environment; cat /sys/class/net/eth0/mtu");
    let said = ask(&words, CLOUD_DEADLINE)?.stdout;
    for line in ["cloud", "by the seed", "COLOUR=\"deep blue\"", "1450"] {
        ensure!(said.lines().any(|said| said == line), "no `{line}` in: {said}");
    }
    ensure!(said.contains(NOCLOUD), "no `{NOCLOUD}` in: {said}");
    // The volume by udev's link, though the agent's is not there yet; the address without DHCP.
    let words = "echo users: $(findmnt -no FSTYPE /srv/users) $(grep -c ^/dev/disk/by-id/virtio-testpvc /etc/fstab); \
                 echo dynamic: $(ip -o addr show eth0 scope global | grep -c dynamic); \
                 echo dhcp: $(cat /run/systemd/network/*.network | grep -ciE '^(DHCP|IPv6AcceptRA)=(yes|true|ipv)'); \
                 ip -o -4 addr show eth0; ip -o -6 addr show eth0 scope global; ip route";
    let said = ask(words, TOOL_DEADLINE)?.stdout;
    for line in ["users: ext4 1", "dynamic: 0", "dhcp: 0"] {
        ensure!(said.lines().any(|said| said == line), "no `{line}` in: {said}");
    }
    ensure!(said.contains(&format!(" inet {}/", vm.ip)) && said.contains("default via "), "{said}");
    ensure!(said.contains(" inet6 fd00:77:"), "{said}");
    for name in LONG {
        // The agent's link, and udev's beside it.
        let words = format!(
            "sudo head -n 1 /dev/{name}; for link in /dev/disk/by-id/virtio-*; do [ $link -ef /dev/{name} ] && echo known; done"
        );
        let said = ask(&words, TOOL_DEADLINE)?.stdout;
        ensure!(said.lines().eq([name, "known"]), "{name}: {said}");
    }
    // User-data was merged, and is the same to cloud-init.
    let words = "sudo python3 -c 'import json, yaml; \
                 print(json.dumps(yaml.safe_load(open(\"/var/lib/cloud/instance/user-data.txt\"))[\"nasty\"]))'";
    let said = ask(words, TOOL_DEADLINE)?;
    let read: Value = serde_json::from_str(&said.stdout).with_context(|| format!("{said:?}"))?;
    ensure!(read == nasty(), "{read}, not {}", nasty());
    // By the agent that cloud-init has installed: QEMU's, which the image has, takes no input.
    let served = node.crictl(&["exec", "--interactive", &vm.container, "systemctl", "is-active", "virtlet-agent"])?;
    ensure!(served.stdout.trim() == "active", "{served:?}");
    node.cri.stop(&vm.container, SHUTDOWN)?;
    let status = node.cri.container(&vm.container)?;
    ensure!(status.exit_code == 0, "{}: {}", status.exit_code, status.reason);
    node.remove_vm(&vm, SHUTDOWN)?;
    let mut earlier = vm.ip;
    // By ConfigDrive each pod is another instance.
    for (seed, source, is_same) in [("nocloud", NOCLOUD, true), ("configdrive", "DataSourceConfigDrive", false)] {
        let next = Next { seed, source, is_same, earlier };
        earlier = next_pod(bed, &node, &container, &key, next).with_context(|| format!("{next:?}"))?;
    }
    Ok(())
}

/// The next pod with a root disk.
#[derive(Debug, Clone, Copy)]
struct Next {
    seed: &'static str,
    /// What cloud-init calls it.
    source: &'static str,
    /// Whether it is the same instance to cloud-init.
    is_same: bool,
    earlier: IpAddr,
}

/// The guest is at another address, and otherwise the same if it is the same instance.
fn next_pod(bed: &Bed, node: &Node, container: &ContainerConfig, key: &Path, next: Next) -> Result<IpAddr> {
    let Next { seed, source, is_same, earlier } = next;
    let mut container = container.clone();
    container.annotations.insert("VirtletCloudInitImageType".into(), seed.into());
    if is_same {
        container.annotations.insert("VirtletCloudInitUserData".into(), "runcmd: [touch /run/again]".into());
    } else {
        of_volumes(bed, &mut container)?;
    }
    let vm = node.start_pod(node.pod("cloud")?, &container)?;
    ensure!(vm.ip != earlier, "the same address, {earlier}, says nothing");
    // The key of its host is the one that is known, unless there are new ones.
    if !is_same {
        fs::remove_file(known_hosts(bed))?;
    }
    let ask = |words: &str, deadline| ask(bed, key, if is_same { "yes" } else { "accept-new" }, words, deadline);
    wait_login(&vm, || ask("true", TOOL_DEADLINE))?;
    let words = format!(
        "{DONE}; ls /run/again; ip -o -4 addr show eth0; echo dynamic: $(ip -o addr show eth0 scope global | grep -c dynamic)"
    );
    let said = ask(&words, CLOUD_DEADLINE)?.stdout;
    ensure!(
        said.contains(source) && said.lines().any(|said| said == "dynamic: 0"),
        "not by {source}, or by DHCP: {said}"
    );
    ensure!(said.contains(&format!(" inet {}/", vm.ip)) && !said.contains(&format!(" inet {earlier}/")), "{said}");
    // Nothing is done again for an instance that has been.
    ensure!(said.contains("/run/again") != is_same, "a command is run once for each instance: {said}");
    if !is_same {
        let [disk, ..] = LONG;
        let words = format!(
            "hostname; sudo base64 -w0 /var/lib/cloud/instance/user-data.txt; echo; sudo cat /etc/cloud/environment /etc/site/key; \
             cat /data/file /etc/one.conf; sudo head -n 1 /dev/{disk}"
        );
        let said = ask(&words, TOOL_DEADLINE)?.stdout;
        let as_told =
            ["renamed", &base64(SCRIPT), "COLOUR=\"deep blue\"", "of a ConfigMap", "of a directory", "of a file", disk];
        ensure!(said.lines().eq(as_told), "{said}");
    }
    node.remove_vm(&vm, SHUTDOWN)?;
    Ok(vm.ip)
}

/// A script, the user's key, configuration, a directory and a file by the other kind of disk, and a name of the guest's own.
fn of_volumes(bed: &Bed, container: &mut ContainerConfig) -> Result<()> {
    let volumes = PodVolumes::new(&bed.dir, "cloud");
    let data = volumes.mount("empty-dir", "data", "/data");
    fs::create_dir_all(&data.host_path)?;
    fs::write(Path::new(&data.host_path).join("file"), "of a directory\n")?;
    fs::write(bed.dir.join("one"), "of a file\n")?;
    let one = Mount {
        container_path: "/etc/one.conf".into(),
        host_path: bed.dir.join("one").display().to_string(),
        readonly: true,
        ..Default::default()
    };
    let key = container.annotations.remove("VirtletSSHKeys").context("no key")?;
    container.mounts = vec![
        volumes.fill("secret", "told", &[("user-data", SCRIPT), ("keys", &key)], "/run/virtlet/seed/told")?,
        volumes.fill("configmap", "site", &[("key", "of a ConfigMap\n")], "/etc/site")?,
        data,
        one,
    ];
    container.annotations.remove("VirtletCloudInitUserData");
    let told = [
        ("VirtletCloudInitUserDataSource", "volume/told"),
        ("VirtletCloudInitUserDataSourceKey", "user-data"),
        ("VirtletSSHKeySource", "volume/told/keys"),
        ("VirtletCloudInitMetaData", "local-hostname: renamed"),
        ("virtlet.cloud/shared-fs", "virtiofs"),
        ("virtlet.cloud/config-delivery", "seed"),
        // It would come as one more part of user-data.
        ("virtlet.cloud/guest-agent", "false"),
    ];
    container.annotations.extend(told.map(|(key, value)| (key.to_owned(), value.to_owned())));
    Ok(())
}

/// What a line of a shell says in the guest, whose host key is trusted so far.
fn ask(bed: &Bed, key: &Path, host_key: &str, words: &str, deadline: Duration) -> Result<Ended> {
    let known = known_hosts(bed);
    let mut ssh = command(bed.program("virtletctl"), ["--socket", CRI_SOCKET, "ssh"]);
    for option in ["BatchMode=yes", "LogLevel=ERROR", "HostKeyAlias=cloud"] {
        ssh.args(["-o", option]);
    }
    ssh.arg("-o").arg(format!("ConnectTimeout={}", pace::stretched_seconds(5)));
    ssh.arg("-o").arg(format!("UserKnownHostsFile={}", known.display()));
    ssh.arg("-o").arg(format!("StrictHostKeyChecking={host_key}"));
    finish(ssh.arg("-i").arg(key).args(["debian@cloud", words]), deadline)
}

fn known_hosts(bed: &Bed) -> PathBuf {
    bed.dir.join("known_hosts")
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
