//! What the host has, and its programs. Nothing here changes a file.

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::path::Path;
use std::process::{Command, ExitStatus};

/// Where the host's programs are.
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
/// How long one of them may take, in seconds; the daemons' own ends are shorter.
const DEADLINE_S: &str = "180";
/// The emulator that there is unless a file names another.
const EMULATOR: &str = "usr/bin/qemu-system-x86_64";
/// What libvirt keeps of a VM of ours that runs has this in it.
const MACHINE: &str = "https://virtlet.cloud/xml/machine/1";

/// Why a program of the host did not do its work.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CommandError {
    #[error("failed to start `{program}`")]
    Start {
        program: String,
        #[source]
        cause: io::Error,
    },
    #[error("`{words}` ended with {status}")]
    Ended { words: String, status: ExitStatus },
    #[error("{0}")]
    Said(String),
}

/// Names of the VMs that run.
pub(crate) struct Vms(pub(crate) Vec<String>);

/// What virtlet-rs needs and the host has not, each with what mends it; nothing else is looked at if something stands in the way.
pub(crate) fn missing(root: &Path, pid: u32) -> Vec<String> {
    let mut missing = foreign(root, pid);
    if !missing.is_empty() {
        return missing;
    }
    let has = |name: &str| root.join(name).exists();
    if !["libvirtd", "virtqemud"].iter().any(|name| has(&format!("usr/sbin/{name}"))) {
        missing.push(
            "the host has no libvirt (`libvirtd` or `virtqemud`): install it, as Debian's `libvirt-daemon-system`"
                .to_owned(),
        );
    } else if !["libvirt-sock", "virtqemud-sock"].iter().any(|name| has(&format!("run/libvirt/{name}"))) {
        missing.push(
            "the host's libvirt has no socket: `systemctl enable --now libvirtd.socket virtlogd.socket` there"
                .to_owned(),
        );
    }
    let named = fs::read_to_string(root.join("etc/virtlet/emulator")).ok();
    let emulator = named.as_deref().map_or(EMULATOR, |line| line.trim().trim_start_matches('/'));
    if !has(emulator) {
        missing.push(format!("the host has no QEMU (`/{emulator}`): install it, as Debian's `qemu-system-x86`"));
    }
    if !has("usr/bin/qemu-img") {
        missing.push("the host has no `qemu-img`: install it, as Debian's `qemu-utils`".to_owned());
    }
    missing
}

/// What stands in the way of any change to the host. `pid` is this process's id, as it sees it itself.
pub(crate) fn foreign(root: &Path, pid: u32) -> Vec<String> {
    if !root.join("run/systemd/system").exists() {
        return vec![
            "no systemd runs in the host's root: is `/` of the host mounted at `/host`, with all below it?".to_owned(),
        ];
    }
    // The host's own file system of processes has the host's number of whoever asks.
    let as_host_sees = fs::read_link(root.join("proc/self")).ok();
    if as_host_sees != Some(pid.to_string().into()) {
        return vec![
            "the container has process ids of its own, so systemd does not answer: `hostPID: true`".to_owned(),
        ];
    }
    let owned = [("virtlet", "/usr/sbin/controld"), ("virtletctl", "/usr/bin/virtletctl")].into_iter().filter(
        |(package, file)| {
            let list = root.join(format!("var/lib/dpkg/info/{package}.list"));
            fs::read_to_string(list).is_ok_and(|list| list.lines().any(|line| line == *file))
        },
    );
    owned
        .map(|(package, _)| format!("the package `{package}` is installed on the host: use apt, or remove it first"))
        .collect()
}

/// The VMs that run, as libvirt has them.
pub(crate) fn vms(root: &Path) -> Vms {
    let files = fs::read_dir(root.join("run/libvirt/qemu")).into_iter().flatten().flatten().map(|entry| entry.path());
    let running = files.filter(|file| {
        file.extension().is_some_and(|end| end == "xml")
            && fs::read_to_string(file).is_ok_and(|text| text.contains(MACHINE))
    });
    Vms(running.filter_map(|file| Some(file.file_stem()?.to_string_lossy().into_owned())).collect())
}

/// How many pods have addresses that a CNI plugin is to get back.
pub(crate) fn pods_on_record(root: &Path) -> usize {
    let files = fs::read_dir(root.join("var/lib/virtlet/net/pods")).into_iter().flatten().flatten();
    files.filter(|entry| entry.path().extension().is_some_and(|end| end == "json")).count()
}

/// Whether there is such a unit, of ours or as the tarball has it.
pub(crate) fn has_unit(root: &Path, unit: &str) -> bool {
    root.join("usr/lib/systemd/system").join(unit).exists()
}

/// Which of `units` are masked: nothing may start them, until whoever did so takes it back.
pub(crate) fn masked(root: &Path, units: &[&str]) -> Vec<String> {
    let is_masked = |unit: &str| {
        ["etc", "run"].iter().any(|dir| {
            fs::read_link(root.join(dir).join("systemd/system").join(unit)).is_ok_and(|to| to == Path::new("/dev/null"))
        })
    };
    let masked = units.iter().filter(|unit| is_masked(unit));
    masked.map(|unit| format!("`{unit}` is masked on the host: `systemctl unmask {unit}` there first")).collect()
}

/// Whether systemd starts a unit at boot.
pub(crate) fn is_enabled(unit: &str) -> bool {
    run("systemctl", &["is-enabled", "--quiet", unit]).is_ok()
}

/// The line of a configuration that puts state where a purge does not look.
pub(crate) fn state_elsewhere(root: &Path) -> Option<String> {
    let files = ["controld", "tapmanager"].map(|name| root.join(format!("etc/virtlet/{name}.toml")));
    let text: String = files.iter().filter_map(|file| fs::read_to_string(file).ok()).collect::<Vec<_>>().join("\n");
    let mut lines = text.lines().map(str::trim);
    lines.find(|line| line.starts_with("state_dir") || line.starts_with("run_dir")).map(str::to_owned)
}

/// Whether kubelet's files name controld's socket, and controld is in front of a container runtime: without controld nobody could start or
/// stop a container.
pub(crate) fn is_runtime_of_containers(root: &Path) -> bool {
    let text = |file: &str| fs::read_to_string(root.join(file)).unwrap_or_default();
    let setting = |line: &str| {
        line.trim_start().strip_prefix("proxy.").unwrap_or(line.trim_start()).starts_with("runtime_endpoint")
    };
    let files = ["var/lib/kubelet/config.yaml", "var/lib/kubelet/kubeadm-flags.env"];
    text("etc/virtlet/controld.toml").lines().any(setting)
        && files.iter().any(|file| text(file).contains("virtlet/cri.sock"))
}

/// Records of the installed program that one in its place could not read: it would not start. Nothing if none is installed.
pub(crate) fn newer_records(name: &str, to_be: &Path) -> Vec<String> {
    let installed = Path::new("/usr/sbin").join(name);
    if !installed.exists() {
        return Vec::new();
    }
    // One that cannot tell what is on record says what it writes: any of it may be.
    let recorded = ask(&installed, &["formats", "--recorded"]).or_else(|_| ask(&installed, &["formats"]));
    newer(&recorded.unwrap_or_default(), &ask(to_be, &["formats"]).unwrap_or_default())
}

/// Each is a name and a version, a line each.
fn newer(recorded: &str, known: &str) -> Vec<String> {
    let version = |text: &str, wanted: &str| {
        let mut pairs = text.lines().filter_map(|line| line.split_once(' '));
        pairs.find(|(name, _)| *name == wanted).and_then(|(_, version)| version.trim().parse::<u32>().ok())
    };
    let names = recorded.lines().filter_map(|line| Some(line.split_once(' ')?.0));
    let newer = names.filter(|name| version(recorded, name) > version(known, name));
    newer
        .map(|name| {
            format!(
                "records `{name}` are of a newer release than this one, which could not read them: keep that one, or drain the node and `purge` it"
            )
        })
        .collect()
}

/// Whether a program starts at all; what it says if it does not.
pub(crate) fn tries(program: &Path) -> Result<(), CommandError> {
    let start = |cause| CommandError::Start { program: program.display().to_string(), cause };
    let ended = bounded(program).arg("--version").output().map_err(start)?;
    if ended.status.success() {
        return Ok(());
    }
    Err(CommandError::Said(String::from_utf8_lossy(&ended.stderr).trim().to_owned()))
}

/// What a program says.
fn ask(program: &Path, words: &[&str]) -> Result<String, CommandError> {
    let shown = || format!("{} {}", program.display(), words.join(" "));
    let start = |cause| CommandError::Start { program: shown(), cause };
    let ended = bounded(program).args(words).output().map_err(start)?;
    if ended.status.success() {
        Ok(String::from_utf8_lossy(&ended.stdout).into_owned())
    } else {
        Err(CommandError::Ended { words: shown(), status: ended.status })
    }
}

/// A program of the host, with the time that it may take: one that hangs would hold the node's next installation, too.
fn bounded(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new("timeout");
    command.args(["--kill-after=5", DEADLINE_S]).arg(program).env_clear().env("PATH", PATH);
    command
}

/// Runs a program of the host; what it says is in the container's log.
pub(crate) fn run(program: &str, words: &[&str]) -> Result<(), CommandError> {
    let start = |cause| CommandError::Start { program: program.to_owned(), cause };
    // A program is looked for by the path that it gets.
    let status = bounded(program).args(words).status().map_err(start)?;
    if status.success() {
        Ok(())
    } else {
        Err(CommandError::Ended { words: format!("{program} {}", words.join(" ")), status })
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::{foreign, masked, missing, vms};

    fn host(files: &[&str]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        for file in files {
            let path = root.path().join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "").unwrap();
        }
        fs::create_dir_all(root.path().join("proc")).unwrap();
        symlink(PID.to_string(), root.path().join("proc/self")).unwrap();
        root
    }

    const PID: u32 = 7;
    const WHOLE: [&str; 5] =
        ["run/systemd/system/x", "usr/sbin/libvirtd", "run/libvirt/libvirt-sock", "usr/bin/qemu-img", super::EMULATOR];

    #[test]
    fn a_host_with_all_lacks_nothing() {
        assert!(missing(host(&WHOLE).path(), PID).is_empty());
    }

    #[test]
    fn whatever_is_missing_is_named_with_what_mends_it() {
        for (left_out, says) in [
            (0, "no systemd runs"),
            (1, "no libvirt"),
            (2, "libvirt has no socket"),
            (3, "no `qemu-img`"),
            (4, "no QEMU (`/usr/bin/qemu-system-x86_64`)"),
        ] {
            let mut files = WHOLE.to_vec();
            files.remove(left_out);
            let said = missing(host(&files).path(), PID);
            assert!(said.len() == 1 && said[0].contains(says), "{says}: {said:?}");
        }
    }

    #[test]
    fn a_unit_that_is_masked_is_named() {
        let root = host(&[]);
        let units = ["tapmanager.service", "controld.service"];
        assert!(masked(root.path(), &units).is_empty());
        fs::create_dir_all(root.path().join("run/systemd/system")).unwrap();
        symlink(
            "/usr/lib/systemd/system/tapmanager.service",
            root.path().join("run/systemd/system/tapmanager.service"),
        )
        .unwrap();
        symlink("/dev/null", root.path().join("run/systemd/system/controld.service")).unwrap();
        let said = masked(root.path(), &units);
        assert!(said.len() == 1 && said[0].contains("systemctl unmask controld.service"), "{said:?}");
    }

    #[test]
    fn the_emulator_is_the_one_that_is_named() {
        let root = host(&WHOLE);
        fs::create_dir_all(root.path().join("etc/virtlet")).unwrap();
        fs::write(root.path().join("etc/virtlet/emulator"), "/opt/qemu\n").unwrap();
        assert!(missing(root.path(), PID)[0].contains("`/opt/qemu`"));
        fs::create_dir_all(root.path().join("opt")).unwrap();
        fs::write(root.path().join("opt/qemu"), "").unwrap();
        assert!(missing(root.path(), PID).is_empty());
    }

    #[test]
    fn a_package_stands_in_the_way_while_its_programs_are_there() {
        let root = host(&["run/systemd/system/x", "var/lib/dpkg/info/virtlet.list"]);
        let list = root.path().join("var/lib/dpkg/info/virtlet.list");
        fs::write(&list, "/etc/virtlet\n").unwrap();
        assert!(foreign(root.path(), PID).is_empty());
        fs::write(&list, "/usr/sbin\n/usr/sbin/controld\n").unwrap();
        assert_eq!(foreign(root.path(), PID).len(), 1);
    }

    #[test]
    fn newer_records_are_told_by_name() {
        let known = "containers 4\nlines 2\n";
        assert!(super::newer("containers 4\nlines 1\n", known).is_empty());
        assert!(super::newer("", known).is_empty());
        let told = super::newer("containers 5\nlines 2\nothers 1\n", known);
        assert!(told.len() == 2 && told[0].contains("`containers`") && told[1].contains("`others`"), "{told:?}");
    }

    #[test]
    fn state_that_is_elsewhere_is_seen() {
        let root = host(&["etc/virtlet/controld.toml", "etc/virtlet/tapmanager.toml"]);
        assert_eq!(super::state_elsewhere(root.path()), None);
        fs::write(root.path().join("etc/virtlet/tapmanager.toml"), "#state_dir = '/x'\nstate_dir = '/srv'\n").unwrap();
        assert_eq!(super::state_elsewhere(root.path()).as_deref(), Some("state_dir = '/srv'"));
    }

    #[test]
    fn a_runtime_of_containers_is_known_by_the_files_of_controld_and_kubelet() {
        let [controld, kubelet] = ["etc/virtlet/controld.toml", "var/lib/kubelet/kubeadm-flags.env"];
        let root = host(&[controld, kubelet]);
        let written = |file: &str, text: &str| fs::write(root.path().join(file), text).unwrap();
        let is = || super::is_runtime_of_containers(root.path());
        written(kubelet, "KUBELET_KUBEADM_ARGS=\"--container-runtime-endpoint=unix:///run/virtlet/cri.sock\"\n");
        assert!(!is());
        written(controld, "[proxy]\n#runtime_endpoint = 'unix:///run/containerd/containerd.sock'\n");
        assert!(!is());
        for setting in ["[proxy]\nruntime_endpoint = 'unix:///x'\n", "proxy.runtime_endpoint = 'unix:///x'\n"] {
            written(controld, setting);
            assert!(is(), "{setting}");
        }
        written(
            kubelet,
            "KUBELET_KUBEADM_ARGS=\"--container-runtime-endpoint=unix:///run/containerd/containerd.sock\"\n",
        );
        assert!(!is());
    }

    #[test]
    fn a_container_with_process_ids_of_its_own_is_refused() {
        assert!(missing(host(&WHOLE).path(), 1)[0].contains("hostPID"));
    }

    #[test]
    fn vms_of_others_are_not_ours() {
        let root = host(&["run/libvirt/qemu/other.xml", "run/libvirt/qemu/ours.xml", "run/libvirt/qemu/ours.pid"]);
        fs::write(root.path().join("run/libvirt/qemu/ours.xml"), format!("<x xmlns='{}'/>", super::MACHINE)).unwrap();
        assert_eq!(vms(root.path()).0, ["ours"]);
    }
}
