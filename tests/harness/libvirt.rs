//! libvirtd and virtlogd of the cell: the distribution's, on the standard paths, which are private here.

mod doing;

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use sha2::{Digest as _, Sha256};

use crate::case::Bed;
use crate::command::{TOOL_DEADLINE, command, finish, run};
use crate::daemon::Daemon;
use crate::wait::wait_for;

pub use self::doing::{doing, has_qemu};

const LIBVIRTD_SOCKET: &str = "/run/libvirt/libvirt-sock";
const VIRTLOGD_SOCKET: &str = "/run/libvirt/virtlogd-sock";
const READY_DEADLINE: Duration = Duration::from_secs(30);
/// Where libvirtd keeps what an emulator has answered, a file for each.
const ANSWERS: &str = "/var/cache/libvirt/qemu/capabilities";
/// Debian's.
const EMULATOR: &str = "/usr/bin/qemu-system-x86_64";
/// The processor that libvirtd begins on.
const FIRST_PROCESSOR: &str = "0";
/// Where an emulated node keeps them for its other cases: in its memory.
const KEPT_IN_NODE: &str = "/tmp/emulators";

/// The pair.
#[derive(Debug)]
pub struct Libvirt {
    /// Makes and watches domains.
    pub libvirtd: Daemon,
    /// Writes the consoles' logs.
    pub virtlogd: Daemon,
}

impl Libvirt {
    /// Starts both.
    ///
    /// # Errors
    /// When one of them does not listen.
    pub fn start(bed: &Bed) -> Result<Self> {
        let none: [&str; 0] = [];
        let mut virtlogd = Daemon::start("virtlogd", "/usr/sbin/virtlogd", none, bed.logs().join("virtlogd.log"))?;
        listening(&mut virtlogd, VIRTLOGD_SOCKET)?;
        let kept = kept(bed);
        for kept in [&kept, Path::new(KEPT_IN_NODE)] {
            copy_all(kept, Path::new(ANSWERS))?;
        }
        // Answers are outdated to it when KVM's CPUID is another, and that has the number of the processor it is read on: leaf 0x1f,
        // which libvirt 11.3 compares (`findings/libvirt-cpuid-topology.sh`). Always read on the same one, it is the same.
        let on_one = ["--cpu-list", FIRST_PROCESSOR, "/usr/sbin/libvirtd"];
        let mut libvirtd = Daemon::start("libvirtd", "/usr/bin/taskset", on_one, bed.logs().join("libvirtd.log"))?;
        listening(&mut libvirtd, LIBVIRTD_SOCKET)?;
        // Asks every emulator of the machine what it can do, now and not amid a case: its processes and sockets would
        // be taken for a pod's.
        virsh("capabilities")?;
        to_all_processors(&libvirtd)?;
        match copy_all(Path::new(ANSWERS), &kept) {
            // An emulated node has the bed's files as they are, and another kernel and processor than their machine.
            Err(failed) if failed.kind() == io::ErrorKind::ReadOnlyFilesystem => {
                copy_all(Path::new(ANSWERS), Path::new(KEPT_IN_NODE))?;
            }
            copied => copied?,
        }
        Ok(Self { libvirtd, virtlogd })
    }

    /// Waits until libvirtd, started again, listens.
    ///
    /// # Errors
    /// When it does not.
    pub fn wait_ready(&mut self) -> Result<()> {
        listening(&mut self.libvirtd, LIBVIRTD_SOCKET)?;
        virsh("uri")?;
        to_all_processors(&self.libvirtd)
    }
}

/// Spares libvirtd the question what `wrapper` can do, whose emulator is Debian's, and which nobody changes from here on: its answer is
/// what that emulator told. To ask takes half a second of a processor, and in an emulated node most of a minute of a busy machine's, in each
/// case; cases with an emulator of their own, and the installed machines, have it asked.
///
/// # Errors
/// When libvirtd has not asked the emulator, or a file cannot be written.
pub fn answered_for(wrapper: &Path) -> Result<()> {
    let file = |program: &str| Path::new(ANSWERS).join(format!("{:x}.xml", Sha256::digest(program)));
    let told = fs::read_to_string(file(EMULATOR)).context("libvirtd has asked no emulator")?;
    let change = |path: &str| -> io::Result<i64> { Ok(fs::metadata(path)?.ctime()) };
    let wrapper = wrapper.to_str().context("a path that is no text")?;
    let (before, now) = (change(EMULATOR)?, change(wrapper)?);
    let own =
        [("emulator", EMULATOR.to_owned(), wrapper.to_owned()), ("qemuctime", before.to_string(), now.to_string())];
    let of_wrapper = own.iter().try_fold(told, |told, (element, was, is)| {
        let was = format!("<{element}>{was}</{element}>");
        ensure!(told.contains(&was), "libvirt's cache has another form: no `{was}`");
        Ok(told.replacen(&was, &format!("<{element}>{is}</{element}>"), 1))
    })?;
    Ok(fs::write(file(wrapper), of_wrapper)?)
}

/// For the next case, beside the bed's program: to ask an emulator takes as long as a guest's boot. libvirtd asks again where an
/// emulator, the kernel or itself is not the one of before.
fn kept(bed: &Bed) -> PathBuf {
    bed.itself().with_file_name("emulators")
}

/// Copies the files of a directory that are not in the other one as they are. Each is there as a whole or not at all.
fn copy_all(from: &Path, to: &Path) -> io::Result<()> {
    let files = match fs::read_dir(from) {
        Err(none) if none.kind() == io::ErrorKind::NotFound => return Ok(()),
        files => files?,
    };
    for file in files {
        let file = file?;
        if file.path().extension().is_none_or(|kind| kind != "xml") {
            continue;
        }
        let (bytes, at) = (fs::read(file.path())?, to.join(file.file_name()));
        if fs::read(&at).is_ok_and(|there| there == bytes) {
            continue;
        }
        fs::create_dir_all(to)?;
        let mut half = tempfile::NamedTempFile::new_in(to)?;
        io::Write::write_all(&mut half, &bytes)?;
        half.persist(&at)?;
    }
    Ok(())
}

/// Runs virsh on a line of words.
///
/// # Errors
/// When it fails.
pub fn virsh(line: &str) -> Result<String> {
    let words = ["-q", "-c", "qemu:///system"].into_iter().chain(line.split_whitespace());
    run(&mut command("virsh", words))
}

/// The names of all domains that are not off.
///
/// # Errors
/// When virsh fails.
pub fn running_domains() -> Result<Vec<String>> {
    Ok(virsh("list --name")?.split_whitespace().map(str::to_owned).collect())
}

/// The names of all domains, also of those that are off.
///
/// # Errors
/// When virsh fails.
pub fn domains() -> Result<Vec<String>> {
    Ok(virsh("list --all --name")?.split_whitespace().map(str::to_owned).collect())
}

/// The process that runs the only running domain.
///
/// # Errors
/// When there is not exactly one.
pub fn only_qemu() -> Result<i32> {
    let qemus = qemus()?;
    let [qemu] = *qemus else { bail!("not one QEMU: {qemus:?}") };
    Ok(qemu)
}

/// The process ids of all running machines' QEMUs.
///
/// # Errors
/// When libvirt does not tell.
pub fn qemus() -> Result<Vec<i32>> {
    // The file of one that has ended since it was listed is gone.
    let pid = |domain: String| fs::read_to_string(pid_file(&domain)).ok();
    running_domains()?.into_iter().filter_map(pid).map(|pid| Ok(pid.trim().parse::<i32>()?)).collect()
}

/// The process ids of all virtiofsds, two of each machine with volumes. The first one confines the other, which ends with it.
///
/// # Errors
/// When they cannot be listed.
pub fn virtiofsds() -> Result<Vec<i32>> {
    // It fails if there is none.
    let found = finish(&mut command("pgrep", ["-x", "virtiofsd"]), TOOL_DEADLINE)?;
    found.stdout.lines().map(|pid| Ok(pid.parse()?)).collect()
}

/// Where libvirt keeps the process id of a domain's QEMU.
fn pid_file(domain: &str) -> PathBuf {
    Path::new("/run/libvirt/qemu").join(format!("{domain}.pid"))
}

/// Lets a libvirtd that has begun run where it may, and what it starts from now on. One that nobody waits for stays where it was; its
/// QEMUs do not, since libvirt says of each where it runs.
fn to_all_processors(libvirtd: &Daemon) -> Result<()> {
    let itself = fs::read_to_string("/proc/self/status")?;
    let allowed = itself.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:")).context("no processors")?;
    let pid = libvirtd.pid()?.to_string();
    run(&mut command("taskset", ["--all-tasks", "--cpu-list", "--pid", allowed.trim(), &pid]))?;
    Ok(())
}

fn listening(daemon: &mut Daemon, socket: &str) -> Result<()> {
    wait_for(&format!("listener on {socket}"), READY_DEADLINE, || {
        daemon.still_runs()?;
        Ok(UnixStream::connect(socket).ok().map(drop))
    })
}
