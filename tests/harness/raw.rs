//! The kernel calls that no safe crate has: opening a tap, and a packet socket on one link.
#![expect(unsafe_code, reason = "ioctls of taps and bind of a packet socket have no safe wrapper")]

use std::fs::OpenOptions;
use std::os::fd::{AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd, RawFd};
use std::os::unix::fs::OpenOptionsExt as _;

use anyhow::{Context as _, Result, bail};
use nix::errno::Errno;
use nix::libc;
use nix::net::if_::if_nametoindex;
use nix::sys::socket::{AddressFamily, SockFlag, SockType, socket};

mod ioctl {
    use nix::libc;
    nix::ioctl_write_ptr_bad!(set_iff, libc::TUNSETIFF, libc::ifreq);
    nix::ioctl_read_bad!(get_vnet_header_len, libc::TUNGETVNETHDRSZ, libc::c_int);
    nix::ioctl_write_ptr_bad!(set_vnet_header_len, libc::TUNSETVNETHDRSZ, libc::c_int);
    nix::ioctl_write_int_bad!(set_offloads, libc::TUNSETOFFLOAD);
}

/// Makes a tap in the calling thread's network namespace: plain Ethernet frames, gone with its descriptor.
///
/// # Errors
/// When the kernel refuses, or the name is too long.
pub fn create_tap(name: &str) -> Result<OwnedFd> {
    create(name, 0)
}

/// Makes a tap as [`create_tap`] does, whose frames come behind a virtio header of `header` bytes.
///
/// # Errors
/// When the kernel refuses, or the name is too long.
pub fn create_tap_with_header(name: &str, header: usize) -> Result<OwnedFd> {
    let tap = create(name, libc::IFF_VNET_HDR)?;
    let len = libc::c_int::try_from(header)?;
    // SAFETY: the kernel reads one int, which outlives the call.
    unsafe { ioctl::set_vnet_header_len(tap.as_raw_fd(), &raw const len) }.context("no header of that length")?;
    Ok(tap)
}

/// Tells the kernel that who reads `tap` takes frames without checksums and TCP unsegmented, as QEMU does for a guest.
///
/// # Errors
/// When `tap` is no tap.
pub fn take_offloads(tap: BorrowedFd<'_>) -> Result<()> {
    let all = libc::TUN_F_CSUM | libc::TUN_F_TSO4 | libc::TUN_F_TSO6;
    // SAFETY: takes a number.
    unsafe { ioctl::set_offloads(tap.as_raw_fd(), all.try_into()?) }.context("no offloads")?;
    Ok(())
}

fn create(name: &str, flags: libc::c_int) -> Result<OwnedFd> {
    let tun = OpenOptions::new().read(true).write(true).custom_flags(libc::O_NONBLOCK).open("/dev/net/tun")?;
    if name.len() >= libc::IFNAMSIZ {
        bail!("link name `{name}` is too long");
    }
    // SAFETY: all zeros is a valid `ifreq`: numbers and a union of plain data.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (slot, byte) in request.ifr_name.iter_mut().zip(name.bytes()) {
        *slot = byte.cast_signed();
    }
    request.ifr_ifru.ifru_flags = i16::try_from(libc::IFF_TAP | libc::IFF_NO_PI | flags)?;
    // SAFETY: the kernel reads one `ifreq`, which outlives the call.
    unsafe { ioctl::set_iff(tun.as_raw_fd(), &raw const request) }
        .with_context(|| format!("failed to make tap `{name}`"))?;
    Ok(tun.into())
}

/// Length of the header before each frame of an open tap.
///
/// # Errors
/// When `tap` is no tap.
pub fn tap_header_len(tap: BorrowedFd<'_>) -> Result<usize> {
    let mut len: libc::c_int = 0;
    // SAFETY: the kernel writes one int, which outlives the call.
    unsafe { ioctl::get_vnet_header_len(tap.as_raw_fd(), &raw mut len) }.context("not a tap")?;
    Ok(usize::try_from(len)?)
}

/// Agrees on no offloads with the kernel's end of a tap, as an emulator does for a guest that wants none. A macvtap
/// comes with all of them on.
///
/// # Errors
/// When `tap` is no tap.
pub fn without_offloads(tap: BorrowedFd<'_>) -> Result<()> {
    // SAFETY: takes a number, on an open descriptor.
    unsafe { ioctl::set_offloads(tap.as_raw_fd(), 0) }.context("no tap to agree with")?;
    Ok(())
}

/// Takes over the descriptor whose number this program was given in its arguments.
///
/// # Errors
/// When it is one of the standard three, which are not given that way.
pub fn given_descriptor(number: RawFd) -> Result<OwnedFd> {
    if number <= libc::STDERR_FILENO {
        bail!("descriptor {number} was not given to this program");
    }
    // SAFETY: whoever started this program made the descriptor for it alone; called once for a number.
    Ok(unsafe { OwnedFd::from_raw_fd(number) })
}

/// A non-blocking packet socket that sees all frames of one link in the calling thread's network namespace, both ways.
///
/// # Errors
/// When there is no such link.
pub fn packet_socket(link: &str) -> Result<OwnedFd> {
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    let socket = socket(AddressFamily::Packet, SockType::Raw, flags, None)?;
    let index = if_nametoindex(link).with_context(|| format!("no link `{link}`"))?;
    // SAFETY: all zeros is a valid `sockaddr_ll`: plain numbers.
    let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
    address.sll_family = u16::try_from(libc::AF_PACKET)?;
    address.sll_protocol = u16::try_from(libc::ETH_P_ALL)?.to_be();
    address.sll_ifindex = i32::try_from(index)?;
    let len = libc::socklen_t::try_from(size_of_val(&address))?;
    // SAFETY: the kernel reads `len` bytes of `address`, which is exactly that long and outlives the call.
    let bound = unsafe { libc::bind(socket.as_raw_fd(), (&raw const address).cast(), len) };
    Errno::result(bound).with_context(|| format!("failed to bind to `{link}`"))?;
    Ok(socket)
}
