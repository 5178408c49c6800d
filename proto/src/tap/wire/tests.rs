use std::fs::File;
use std::os::fd::AsFd;
use std::path::Path;

use nix::fcntl::{FcntlArg, FdFlag, fcntl};
use nix::sys::socket::{AddressFamily, SockFlag, SockType, socketpair};

use super::*;

fn pair() -> (OwnedFd, OwnedFd) {
    socketpair(AddressFamily::Unix, SockType::SeqPacket, None, SockFlag::SOCK_CLOEXEC).expect("socketpair")
}

/// How often a pipe is open here. Other tests open and close what is theirs at the same time.
fn times_open(pipe: impl AsFd) -> usize {
    let link = |fd: &Path| std::fs::read_link(fd).ok();
    let itself = link(Path::new(&format!("/proc/self/fd/{}", pipe.as_fd().as_raw_fd())));
    let fds = std::fs::read_dir("/proc/self/fd").expect("proc");
    fds.filter(|fd| link(&fd.as_ref().expect("entry").path()) == itself).count()
}

#[test]
fn descriptors_arrive_in_order_and_close_on_exec() {
    let (a, b) = pair();
    let null = File::open("/dev/null").expect("null");
    let zero = File::open("/dev/zero").expect("zero");
    send(a.as_fd(), b"two", &[null.as_fd(), zero.as_fd()]).expect("send");
    let packet = recv(b.as_fd()).expect("recv");
    assert_eq!(packet.bytes, b"two");
    let target = |fd: &OwnedFd| std::fs::read_link(format!("/proc/self/fd/{}", fd.as_raw_fd())).expect("link");
    assert_eq!(
        packet.fds.iter().map(target).collect::<Vec<_>>(),
        ["/dev/null", "/dev/zero"].map(std::path::PathBuf::from)
    );
    for fd in &packet.fds {
        let flags = fcntl(fd, FcntlArg::F_GETFD).expect("getfd");
        assert!(FdFlag::from_bits_retain(flags).contains(FdFlag::FD_CLOEXEC));
    }
}

#[test]
fn packets_keep_their_borders_and_an_end_is_an_end() {
    let (a, b) = pair();
    send(a.as_fd(), b"one", &[]).expect("send");
    send(a.as_fd(), b"two", &[]).expect("send");
    drop(a);
    assert_eq!(recv(b.as_fd()).expect("first").bytes, b"one");
    assert_eq!(recv(b.as_fd()).expect("second").bytes, b"two");
    assert!(matches!(recv(b.as_fd()), Err(WireError::Closed)));
    assert!(matches!(send(b.as_fd(), b"late", &[]), Err(WireError::Closed)));
}

#[test]
fn a_short_packet_is_received_if_it_is_there() {
    let (a, b) = pair();
    assert!(try_recv_short(b.as_fd(), 4).expect("no failure").is_none(), "nothing was sent");
    let (pipe, _) = std::io::pipe().expect("pipe");
    for bytes in [&b"four"[..], b"12345", b"1"] {
        send(a.as_fd(), bytes, &[pipe.as_fd()]).expect("send");
    }
    let packet = try_recv_short(b.as_fd(), 4).expect("no failure").expect("there");
    assert_eq!((packet.bytes.as_slice(), packet.fds.len()), (&b"four"[..], 1));
    drop(packet);
    let error = try_recv_short(b.as_fd(), 4).expect_err("longer");
    assert!(matches!(error, WireError::TooLong { most: 4 }), "{error}");
    assert_eq!(times_open(&pipe), 1, "a descriptor of the refused packet stayed open");
    assert_eq!(try_recv_short(b.as_fd(), 4).expect("no failure").expect("there").bytes, b"1");
    drop(a);
    assert!(matches!(try_recv_short(b.as_fd(), 4), Err(WireError::Closed)));
}

#[test]
fn an_over_long_packet_is_refused_and_leaks_nothing() {
    let (a, b) = pair();
    nix::sys::socket::setsockopt(&a, nix::sys::socket::sockopt::SndBufForce, &(8 << 20)).ok();
    let (pipe, _) = std::io::pipe().expect("pipe");
    // One more than the limit; smaller if the buffer could not be raised, and then the kernel refuses it itself.
    match send(a.as_fd(), &vec![b'x'; MAX_MESSAGE + 1], &[pipe.as_fd()]) {
        Err(WireError::Os(Errno::EMSGSIZE)) => return,
        sent => sent.expect("send"),
    }
    assert!(matches!(recv(b.as_fd()), Err(WireError::Truncated)));
    assert_eq!(times_open(&pipe), 1, "a descriptor of the refused packet stayed open");
}
