//! KVM or emulation: what new machines run on, and how that is found out.
//!
//! `/dev/kvm` may exist and QEMU may accept it while no guest ever gets anywhere: seen on nested hosts, where firmware
//! runs and a 64-bit kernel hangs in its first second. So KVM is used only after a real kernel was seen to reach its init
//! under it ([`probe`]). The verdict holds for a host kernel, a boot and an emulator ([`ProbeKey`]).

mod payload;
mod probe;

use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::sys::stat::{UtimensatFlags, utimensat};
use nix::sys::time::TimeSpec;
use serde::{Deserialize, Serialize};
use vmspec::Accelerator;
use vmspec::settings::Accel;

/// A choice and why it was made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Verdict {
    /// The choice.
    pub accelerator: Accelerator,
    /// Why, for people.
    pub reason: String,
    /// KVM is wanted and there is a device for it: it may work another time, or with another setting.
    #[serde(default)]
    pub kvm_may_work: bool,
}

/// Tells one build of a program from another.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fingerprint {
    path: PathBuf,
    device: u64,
    inode: u64,
    size: u64,
    modified_ns: i64,
}

/// What a verdict holds for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProbeKey {
    kernel: String,
    boot_id: String,
    emulator: Fingerprint,
    /// The kernel that is to be probed with, if one is configured.
    #[serde(default)]
    probe_kernel: Option<PathBuf>,
}

/// How to find out.
#[derive(Debug, Clone)]
pub struct Question {
    /// As configured.
    pub configured: Accel,
    /// The real emulator.
    pub emulator: PathBuf,
    /// Kernel to probe with; `None` takes the newest of `/boot`.
    pub kernel: Option<PathBuf>,
    /// How long it may take to its init.
    pub deadline: Duration,
    /// Directory for the probe's initrd.
    pub work_dir: PathBuf,
    /// KVM's device, `/dev/kvm`.
    pub device: PathBuf,
}

/// Answers the question. Takes the probe's whole deadline where KVM hangs.
pub async fn decide(question: &Question) -> Verdict {
    let kvm = |reason: String| Verdict { accelerator: Accelerator::Kvm, reason, kvm_may_work: false };
    let emulated = |kvm_may_work, reason: String| Verdict { accelerator: Accelerator::Qemu, reason, kvm_may_work };
    match question.configured {
        Accel::Kvm => return kvm("configured".into()),
        Accel::Qemu => return emulated(false, "configured".into()),
        Accel::Auto => {}
    }
    if let Err(error) = std::fs::OpenOptions::new().read(true).write(true).open(&question.device) {
        let is_there = error.kind() != io::ErrorKind::NotFound;
        return emulated(is_there, format!("`{}` cannot be opened: {error}", question.device.display()));
    }
    let Some(kernel) = question.kernel.clone().or_else(|| newest_kernel(Path::new("/boot"))) else {
        let reason = "no kernel to probe KVM with: set machine.kvm_probe_kernel, or machine.accel to kvm";
        return emulated(true, reason.into());
    };
    match probe::reaches_init(question, &kernel, "kvm").await {
        Ok(()) => kvm(format!("kernel `{}` reached its init under KVM", kernel.display())),
        Err(error) => {
            let why = common::Chain(&error);
            emulated(true, format!("KVM did not work: {why}; if it cannot here, set machine.accel to qemu"))
        }
    }
}

/// Makes libvirt ask the emulator again: its capability cache goes by the change time of what it runs, which is vmwrapper,
/// and so misses a new QEMU behind it.
///
/// # Errors
/// When vmwrapper is not there, or on a read-only filesystem; then delete libvirt's cache by hand.
pub fn refresh_wrapper(wrapper: &Path) -> io::Result<()> {
    // Times are left as they are; setting them at all is what moves the change time.
    let found = std::fs::metadata(wrapper)?;
    let accessed = TimeSpec::new(found.atime(), found.atime_nsec());
    let modified = TimeSpec::new(found.mtime(), found.mtime_nsec());
    utimensat(nix::fcntl::AT_FDCWD, wrapper, &accessed, &modified, UtimensatFlags::FollowSymlink)?;
    Ok(())
}

// === impl Fingerprint ===

impl Fingerprint {
    /// Of the program at `path`.
    ///
    /// # Errors
    /// When it is not there.
    pub fn of(path: &Path) -> io::Result<Self> {
        let found = std::fs::metadata(path)?;
        Ok(Self {
            path: path.to_owned(),
            device: found.dev(),
            inode: found.ino(),
            size: found.size(),
            modified_ns: found.mtime().wrapping_mul(1_000_000_000).wrapping_add(found.mtime_nsec()),
        })
    }
}

// === impl ProbeKey ===

impl ProbeKey {
    /// Of this host, boot, emulator and settings.
    ///
    /// # Errors
    /// When the emulator is not there.
    pub fn of(question: &Question) -> io::Result<Self> {
        let read = |path: &str| std::fs::read_to_string(path).map(|text| text.trim().to_owned());
        Ok(Self {
            kernel: read("/proc/sys/kernel/osrelease")?,
            boot_id: read("/proc/sys/kernel/random/boot_id")?,
            emulator: Fingerprint::of(&question.emulator)?,
            probe_kernel: question.kernel.clone(),
        })
    }
}

fn newest_kernel(boot: &Path) -> Option<PathBuf> {
    let kernels = std::fs::read_dir(boot).ok()?.filter_map(Result::ok).filter(|entry| {
        entry.file_name().to_string_lossy().starts_with("vmlinuz") && std::fs::File::open(entry.path()).is_ok()
    });
    let newest = kernels.max_by_key(|entry| entry.metadata().and_then(|found| found.modified()).ok());
    newest.map(|entry| entry.path())
}

#[cfg(test)]
pub(super) mod tests;
