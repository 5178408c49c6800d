use std::fs;
use std::os::unix::fs::symlink;

use proto::tap::{Dns, PodNet};
use tempfile::TempDir;
use vmspec::ProcessConfig;
use vmspec::annotations::PodAnnotations;
use vmspec::seed::{Objects, TOKEN};
use vmspec::settings::Handler;

use super::*;

const POD: &str = "pods/u/volumes";

/// kubelet's directory, with the volumes `site` (a ConfigMap), `keys` (a Secret), `token` and `data` (an `emptyDir`).
struct Kubelet(TempDir);

impl Kubelet {
    fn new() -> Self {
        let kubelet = Self(tempfile::tempdir().expect("dir"));
        for (kind, name, key, text) in [
            ("configmap", "site", "runcmd", "- [touch, /run/first]"),
            ("secret", "keys", "canary", "kept"),
            ("projected", "token", "token", "lapses"),
            ("empty-dir", "data", "file", "x"),
        ] {
            let dir = kubelet.host(kind, name);
            fs::create_dir_all(format!("{dir}/..1")).expect("made");
            fs::write(format!("{dir}/..1/{key}"), text).expect("written");
            symlink("..1", format!("{dir}/..data")).expect("linked");
        }
        kubelet
    }

    fn host(&self, kind: &str, name: &str) -> String {
        format!("{}/{POD}/kubernetes.io~{kind}/{name}", self.0.path().display())
    }

    fn mount(&self, kind: &str, name: &str, path: &str) -> Mount {
        Mount { host_path: self.host(kind, name), container_path: path.into(), ..Mount::default() }
    }

    fn container(&self) -> ContainerConfig {
        let mounts = vec![
            self.mount("configmap", "site", "/run/virtlet/seed/site"),
            self.mount("secret", "keys", "/etc/keys"),
            self.mount("projected", "token", TOKEN),
            self.mount("empty-dir", "data", "/data"),
        ];
        ContainerConfig { mounts, ..ContainerConfig::default() }
    }
}

fn annotations(pairs: &[(&str, &str)]) -> PodAnnotations {
    PodAnnotations::parse(&pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect()).expect("right")
}

fn made(container: &ContainerConfig, pairs: &[(&str, &str)]) -> Result<Seed> {
    let net = PodNet { netns: "/run/netns/x".into(), nics: Vec::new(), dns: Dns::default() };
    let (sandbox, handler) =
        (SandboxConfig { name: "db-0".into(), uid: "u".into(), ..SandboxConfig::default() }, Handler::default());
    let annotations = annotations(pairs);
    let wishes = Wishes {
        sandbox: &sandbox,
        container,
        annotations: &annotations,
        objects: &Objects::new(),
        handler: &handler,
        net: &net,
        share: None,
        disks: &[],
        instance: None,
    };
    assemble(wishes, None)
}

fn user_data(seed: &Seed) -> String {
    let (_, bytes) = seed.files().into_iter().find(|(name, _)| *name == "user-data").expect("user-data");
    String::from_utf8(bytes.to_vec()).expect("text")
}

#[test]
fn a_volume_is_found_by_its_name_and_read_at_each_start() {
    let kubelet = Kubelet::new();
    let source = ("VirtletCloudInitUserDataSource", "volume/site");
    let read = || user_data(&made(&kubelet.container(), &[source]).expect("seed"));
    assert_eq!(read(), "#cloud-config\n{\"runcmd\":[[\"touch\",\"/run/first\"]]}\n");
    let dir = kubelet.host("configmap", "site");
    fs::create_dir(format!("{dir}/..2")).expect("made");
    fs::write(format!("{dir}/..2/runcmd"), "[]").expect("written");
    symlink("..2", format!("{dir}/..data_tmp")).expect("linked");
    fs::rename(format!("{dir}/..data_tmp"), format!("{dir}/..data")).expect("renamed");
    assert_eq!(read(), "#cloud-config\n{\"runcmd\":[]}\n");
}

#[test]
fn the_name_in_dns_is_read_at_each_start_from_a_file_of_kubelets_and_from_no_other() {
    let kubelet = Kubelet::new();
    let file = format!("{}/pods/u/etc-hosts", kubelet.0.path().display());
    let name = || {
        let mount = Mount { host_path: file.clone(), container_path: "/etc/hosts".into(), ..Mount::default() };
        let seed = made(&ContainerConfig { mounts: vec![mount], ..ContainerConfig::default() }, &[]).expect("seed");
        let (_, meta_data) = seed.files().into_iter().find(|(name, _)| *name == "meta-data").expect("meta-data");
        let meta_data: serde_json::Value = serde_json::from_slice(meta_data).expect("JSON");
        meta_data["local-hostname"].as_str().expect("a name").to_owned()
    };
    let text = "127.0.0.1\tlocalhost\n10.77.0.2\tdb-0.db.prod.svc.cluster.local\tdb-0\n";
    assert_eq!(name(), "db-0", "it is not there");
    fs::write(&file, "127.0.0.1\tlocalhost\n10.77.0.2\tdb-0\n").expect("written");
    assert_eq!(name(), "db-0");
    fs::write(&file, text.to_owned() + &"#".repeat(1 << 20)).expect("written");
    assert_eq!(name(), "db-0.db.prod.svc.cluster.local");
    fs::rename(&file, format!("{file}2")).expect("renamed");
    symlink("etc-hosts2", &file).expect("linked");
    assert_eq!(name(), "db-0", "it is a link");
    fs::remove_file(&file).expect("removed");
    nix::unistd::mkfifo(Path::new(&file), nix::sys::stat::Mode::S_IRWXU).expect("made");
    assert_eq!(name(), "db-0", "it is a pipe");
}

#[test]
fn what_is_no_volume_of_kubelets_is_refused_by_its_annotation() {
    let kubelet = Kubelet::new();
    for (key, name) in [
        ("VirtletCloudInitUserDataSource", "absent"),
        ("VirtletSSHKeySource", "data"),
        ("VirtletFilesFromDataSource", "sit"),
        ("VirtletFilesFromDataSource", "others"),
    ] {
        let mut container = kubelet.container();
        // A `hostPath`, which controld would read as root.
        let host_path = kubelet.host("secret", "others").replace("pods/u/", "pods/w/");
        container.mounts.push(Mount {
            host_path,
            container_path: "/run/virtlet/seed/others".into(),
            ..Mount::default()
        });
        let error = made(&container, &[(key, &format!("volume/{name}"))]).expect_err("refused").to_string();
        assert!(
            error.starts_with(&format!("annotation {key}: no volume \"{name}\" is mounted in this container")),
            "{error}"
        );
    }
    fs::remove_dir_all(kubelet.host("configmap", "site")).expect("removed");
    let error = made(&kubelet.container(), &[("VirtletFilesFromDataSource", "volume/site")]).expect_err("refused");
    assert_eq!(
        error.to_string(),
        "volume \"site\" cannot be read: failed to open it: No such file or directory (os error 2)"
    );
}

#[test]
fn copies_are_of_what_the_guest_is_to_see_and_of_nothing_that_lapses() {
    let kubelet = Kubelet::new();
    let seed = made(&kubelet.container(), &[("virtlet.cloud/config-delivery", "seed")]).expect("seed");
    let text = user_data(&seed);
    assert!(text.contains(r#""path":"/etc/keys/canary""#), "{text}");
    for not in ["site", "serviceaccount", "/data"] {
        assert!(!text.contains(not), "{not} in {text}");
    }
    assert_eq!(user_data(&made(&kubelet.container(), &[]).expect("seed")), "#cloud-config\n");
}

#[test]
fn variables_are_a_file_that_only_root_reads() {
    let process = ProcessConfig { env: vec!["A=b c".into()], ..ProcessConfig::default() };
    let seed = made(&ContainerConfig { process, ..ContainerConfig::default() }, &[]).expect("seed");
    assert_eq!(
        user_data(&seed),
        "#cloud-config\n{\"write_files\":[{\"content\":\"A=\\\"b c\\\"\\n\",\"path\":\"/etc/cloud/environment\",\"permissions\":\"0600\"}]}\n"
    );
}

/// What a kernel may read of a disk before the gate is nothing of the pod's, and the disk is as large afterwards.
#[test]
fn a_seed_is_put_into_the_place_of_an_empty_one_that_somebody_has_open() {
    let dir = tempfile::tempdir().expect("dir");
    fs::create_dir(dir.path().join("seed")).expect("made");
    let config = Config { run_dir: dir.path().into(), ..Config::default() };
    let (machine, me) = (MachineId::random(), QemuUser { uid: 1, gid: nix::unistd::getgid().as_raw() });
    if !nix::unistd::getuid().is_root() {
        return;
    }
    let container = ContainerConfig {
        process: ProcessConfig { env: vec!["TOKEN=hunter2".into()], ..Default::default() },
        ..Default::default()
    };
    let seed = made(&container, &[]).expect("seed");
    let has = |bytes: &[u8], text: &str| bytes.windows(text.len()).any(|found| found == text.as_bytes());
    let leaves = Warm::Leaves("k".into());
    let disk = write(&config, machine, &seed, Some(&leaves), me).expect("written").disk.expect("a disk");
    let opened = fs::File::open(&disk).expect("as QEMU has it");
    let seen = fs::read(&disk).expect("read");
    assert!(is_aside(&config, machine) && has(&seen, "cidata") && !has(&seen, "hunter2"));
    for _again in 0..2 {
        put(&config, machine).expect("put");
    }
    assert!(is_aside(&config, machine) && disk.exists(), "whoever is killed here does it again");
    for _again in 0..2 {
        forget_aside(&config, machine).expect("forgotten");
        put(&config, machine).expect("there is nothing to do");
    }
    assert!(!is_aside(&config, machine) && !disk.exists());
    let mut now = Vec::new();
    std::io::Read::read_to_end(&mut &opened, &mut now).expect("read");
    assert!(now.len() == seen.len() && has(&now, "cidata") && has(&now, "hunter2"));
    // What was killed after it was written.
    fs::write(aside_path(&config, machine), "seed").expect("written");
    put(&config, machine).expect("it was put");
    note_used(&config, machine).expect("noted");
    note_used(&config, machine).expect("again is fine");
    assert!(!is_aside(&config, machine) && is_used(&config, machine) && !disk.exists());
    forget_aside(&config, machine).expect("forgotten");
    assert!(!is_used(&config, machine));
    // Of a machine that is gone neither stays.
    fs::write(aside_path(&config, machine), "seed").expect("written");
    fs::write(used_path(&config, machine), "seed").expect("written");
    remove(&config, machine).expect("removed");
    assert!(!is_aside(&config, machine) && !is_used(&config, machine));

    let begins = Warm::Begins("k".into());
    let disk = write(&config, machine, &seed, Some(&begins), me).expect("written").disk.expect("a disk");
    assert_eq!(fs::metadata(&disk).expect("there").len(), seen.len() as u64);
    assert!(!is_aside(&config, machine), "it has its own from the beginning");
}

#[test]
fn a_seed_is_written_for_qemus_group_alone() {
    let dir = tempfile::tempdir().expect("dir");
    fs::create_dir(dir.path().join("seed")).expect("made");
    let config = Config { run_dir: dir.path().into(), ..Config::default() };
    let (machine, me) = (MachineId::random(), QemuUser { uid: 1, gid: nix::unistd::getgid().as_raw() });
    let seed = made(&ContainerConfig::default(), &[]).expect("seed");
    if nix::unistd::getuid().is_root() {
        for _again in 0..2 {
            let written = write(&config, machine, &seed, None, me).expect("written");
            let disk = written.disk.expect("a disk");
            assert_eq!(fs::metadata(&disk).expect("there").permissions().mode() & 0o777, 0o640);
        }
    }
    remove(&config, machine).expect("removed");
    remove(&config, machine).expect("again is fine");
    assert_eq!(fs::read_dir(dir.path().join("seed")).expect("read").count(), 0);
}
