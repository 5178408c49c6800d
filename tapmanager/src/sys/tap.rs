//! Persistent taps: the guest's end of a NIC, made in the pod's namespace and handed to QEMU as a descriptor.
//!
//! Called inside a namespace by [`crate::net`] (create) and by the pod's actor (open, at a hand-off). No descriptor is
//! kept: a tap that somebody holds collects frames for the next machine, keeps its carrier and its namespace alive.
//! A tap belongs to root, so only who has `CAP_NET_ADMIN` in the namespace may attach to it by name.

#![expect(unsafe_code, reason = "the ioctls of tun/tap and struct ifreq, a union")]

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;

use nix::errno::Errno;
use nix::net::if_::if_nametoindex;
use proto::tap::IfName;

const DEVICE: &str = "/dev/net/tun";
/// Size of `struct virtio_net_hdr_v1`, which every frame of a modern virtio-net starts with.
const VNET_HEADER_LEN: libc::c_int = 12;
/// What a tap of ours is. QEMU reads them back.
///
/// Offloads (`TUNSETOFFLOAD`: checksums left to the receiver, segments larger than the MTU) are not set here. QEMU
/// clears them when it takes a tap up and sets what the guest's driver agrees to, which firmware and old drivers do
/// not; it needs no privilege for that.
const FLAGS: libc::c_int = libc::IFF_TAP | libc::IFF_NO_PI | libc::IFF_VNET_HDR;

mod ioctl {
    nix::ioctl_write_ptr_bad!(set_iff, libc::TUNSETIFF, libc::ifreq);
    nix::ioctl_read_bad!(get_iff, libc::TUNGETIFF, libc::ifreq);
    nix::ioctl_write_int_bad!(set_persist, libc::TUNSETPERSIST);
    nix::ioctl_write_int_bad!(set_owner, libc::TUNSETOWNER);
    nix::ioctl_write_ptr_bad!(set_vnet_header_len, libc::TUNSETVNETHDRSZ, libc::c_int);
}

/// Why a tap could not be made or opened.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TapError {
    /// The device cannot be opened.
    #[error("failed to open `{DEVICE}`; is the kernel module `tun` there?")]
    Device(#[source] io::Error),
    /// A link of that name is there already.
    #[error("a link `{name}` exists already in the pod's namespace")]
    Exists {
        /// Its name.
        name: IfName,
    },
    /// No such tap.
    #[error("tap `{name}` is gone from the pod's namespace; detach the pod and attach it again")]
    Absent {
        /// Its name.
        name: IfName,
    },
    /// A machine has it.
    #[error("tap `{name}` is in use; another QEMU holds it")]
    Busy {
        /// Its name.
        name: IfName,
    },
    /// Not a device that can be opened.
    #[error("failed to open the device of macvtap `{name}`")]
    Macvtap {
        /// Its name.
        name: IfName,
        /// Why.
        #[source]
        cause: io::Error,
    },
    /// A step failed.
    #[error("failed to {action} tap `{name}`")]
    Step {
        /// What was tried.
        action: &'static str,
        /// With which tap.
        name: IfName,
        /// The kernel's word.
        #[source]
        cause: Errno,
    },
}

/// Makes a persistent tap in this thread's namespace, for as many `queues` at once. It fails if a link of that name is
/// there.
pub(crate) fn create(name: &IfName, queues: u16) -> Result<(), TapError> {
    let device = open_device()?;
    attach(&device, name, flags(queues) | libc::IFF_TUN_EXCL).map_err(|errno| match errno {
        Errno::EBUSY | Errno::EEXIST | Errno::EINVAL if exists(name) => TapError::Exists { name: name.clone() },
        cause => TapError::Step { action: "create", name: name.clone(), cause },
    })?;
    // SAFETY: takes a number, on an open descriptor.
    unsafe { ioctl::set_owner(device.as_raw_fd(), 0) }.map_err(step("own", name))?;
    // SAFETY: takes a number, on an open descriptor.
    unsafe { ioctl::set_persist(device.as_raw_fd(), 1) }.map_err(step("keep", name))?;
    Ok(())
}

/// Opens the `queues` of a tap in this thread's namespace for a machine. One machine at a time has it: with several
/// queues the kernel lets others have more of them, so the caller looks at the carrier first.
///
/// Attaching to a name that is not there makes a new, empty tap. Whether this is one is asked afterwards, when nobody can
/// take the tap away any more: one of ours is persistent. A new one goes with its descriptor.
pub(crate) fn open(name: &IfName, queues: u16) -> Result<Vec<OwnedFd>, TapError> {
    let open = |_| {
        let device = open_any(name, queues)?;
        if !is_persistent(&device, name)? {
            return Err(TapError::Absent { name: name.clone() });
        }
        // SAFETY: points to a number that outlives the call, on an open descriptor.
        unsafe { ioctl::set_vnet_header_len(device.as_raw_fd(), &VNET_HEADER_LEN) }
            .map_err(step("set the header size of", name))?;
        Ok(device.into())
    };
    (0..queues).map(open).collect()
}

/// Makes descriptors of a macvtap what those of a tap are.
pub(crate) fn shape_macvtap(queues: &[OwnedFd], name: &IfName) -> Result<(), TapError> {
    for queue in queues {
        let request = request(None, FLAGS);
        // SAFETY: points to a whole ifreq that outlives the call, with a terminated name, on an open descriptor.
        unsafe { ioctl::set_iff(queue.as_raw_fd(), &raw const request) }.map_err(step("set the flags of", name))?;
        // SAFETY: points to a number that outlives the call, on an open descriptor.
        unsafe { ioctl::set_vnet_header_len(queue.as_raw_fd(), &VNET_HEADER_LEN) }
            .map_err(step("set the header size of", name))?;
    }
    Ok(())
}

/// Removes a tap from this thread's namespace; fine if it is gone. Waits for the kernel, 16 to 36 ms.
pub(crate) fn remove(name: &IfName, queues: u16) -> Result<(), TapError> {
    let device = match open_existing(name, queues) {
        Err(TapError::Absent { .. }) => return Ok(()),
        other => other?,
    };
    // SAFETY: takes a number, on an open descriptor.
    unsafe { ioctl::set_persist(device.as_raw_fd(), 0) }.map_err(step("let go of", name))?;
    Ok(())
}

fn is_persistent(device: &File, name: &IfName) -> Result<bool, TapError> {
    let mut said = request(None, 0);
    // SAFETY: points to a whole ifreq that outlives the call, on an open descriptor.
    unsafe { ioctl::get_iff(device.as_raw_fd(), &raw mut said) }.map_err(step("look at", name))?;
    // SAFETY: the kernel has written the flags, and any bits are some.
    let flags = unsafe { said.ifr_ifru.ifru_flags };
    Ok(libc::c_int::from(flags) & libc::IFF_PERSIST != 0)
}

/// Looks for it first, so that none is made to be removed.
fn open_existing(name: &IfName, queues: u16) -> Result<File, TapError> {
    if !exists(name) {
        return Err(TapError::Absent { name: name.clone() });
    }
    open_any(name, queues)
}

fn open_any(name: &IfName, queues: u16) -> Result<File, TapError> {
    let device = open_device()?;
    attach(&device, name, flags(queues)).map_err(|errno| match errno {
        Errno::EBUSY => TapError::Busy { name: name.clone() },
        cause => TapError::Step { action: "open", name: name.clone(), cause },
    })?;
    Ok(device)
}

fn exists(name: &IfName) -> bool {
    if_nametoindex(name.as_str()).is_ok()
}

fn open_device() -> Result<File, TapError> {
    OpenOptions::new().read(true).write(true).custom_flags(libc::O_CLOEXEC).open(DEVICE).map_err(TapError::Device)
}

/// A tap keeps what it was made as: the kernel refuses to attach to it otherwise.
const fn flags(queues: u16) -> libc::c_int {
    if queues > 1 { FLAGS | libc::IFF_MULTI_QUEUE } else { FLAGS }
}

fn attach(device: &File, name: &IfName, flags: libc::c_int) -> nix::Result<()> {
    let request = request(Some(name), flags);
    // SAFETY: points to a whole ifreq that outlives the call, with a terminated name, on an open descriptor.
    unsafe { ioctl::set_iff(device.as_raw_fd(), &raw const request) }?;
    Ok(())
}

fn request(name: Option<&IfName>, flags: libc::c_int) -> libc::ifreq {
    let mut ifr_name = [0; libc::IFNAMSIZ];
    // An IfName has at most 15 bytes, so the last stays zero.
    for (to, from) in ifr_name.iter_mut().zip(name.into_iter().flat_map(|name| name.as_str().bytes())) {
        *to = from.cast_signed();
    }
    // The kernel takes the low 16 bits (`ifr_flags` is a short).
    #[expect(clippy::cast_possible_truncation, reason = "flags of a tap are 16 bits")]
    let ifr_flags = flags as libc::c_short;
    libc::ifreq { ifr_name, ifr_ifru: libc::__c_anonymous_ifr_ifru { ifru_flags: ifr_flags } }
}

fn step(action: &'static str, name: &IfName) -> impl FnOnce(Errno) -> TapError {
    let name = name.clone();
    move |cause| TapError::Step { action, name, cause }
}
