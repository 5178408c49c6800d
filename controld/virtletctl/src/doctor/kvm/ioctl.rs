//! The two requests of `/dev/kvm` that make an empty VM (`Documentation/virt/kvm/api.rst`, 4.1 and 4.2).

#![expect(unsafe_code, reason = "ioctl(2); the descriptor that it returns is owned here")]

use std::fs::OpenOptions;
use std::io;
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};
use std::path::{Path, PathBuf};

use nix::errno::Errno;

/// Of `KVM_GET_API_VERSION`, ever since Linux 2.6.22.
const API_VERSION: i32 = 12;
/// `KVMIO` of `linux/kvm.h`.
const KVMIO: u8 = 0xae;

nix::ioctl_write_int_bad!(get_api_version, nix::request_code_none!(KVMIO, 0x00));
nix::ioctl_write_int_bad!(create_vm, nix::request_code_none!(KVMIO, 0x01));

/// Why there is no VM. Causes are a part of the texts, which are printed in one line.
#[derive(Debug, thiserror::Error)]
pub(super) enum KvmError {
    #[error("`{}` cannot be opened ({cause})", device.display())]
    Open { device: PathBuf, cause: io::Error },
    #[error("`{}` is not KVM's ({cause})", device.display())]
    Foreign { device: PathBuf, cause: Errno },
    #[error("`{}` speaks version {version} of KVM's interface instead of {API_VERSION}", device.display())]
    Version { device: PathBuf, version: i32 },
    #[error("`{}` makes no VM ({cause})", device.display())]
    Make { device: PathBuf, cause: Errno },
}

/// Makes a VM and drops it.
pub(super) fn make_vm(device: &Path) -> Result<(), KvmError> {
    let device = device.to_owned();
    let file = match OpenOptions::new().read(true).write(true).open(&device) {
        Ok(file) => file,
        Err(cause) => return Err(KvmError::Open { device, cause }),
    };
    // SAFETY: the request takes no pointer, and the descriptor is open.
    match unsafe { get_api_version(file.as_raw_fd(), 0) } {
        Ok(API_VERSION) => {}
        Ok(version) => return Err(KvmError::Version { device, version }),
        Err(cause) => return Err(KvmError::Foreign { device, cause }),
    }
    // SAFETY: as above; 0 is the type of a usual machine.
    match unsafe { create_vm(file.as_raw_fd(), 0) } {
        Ok(vm) => {
            // SAFETY: the kernel made the descriptor in this call, and nobody else knows of it.
            drop(unsafe { OwnedFd::from_raw_fd(vm) });
            Ok(())
        }
        Err(cause) => Err(KvmError::Make { device, cause }),
    }
}
