//! A guest that asks without end.

use std::os::fd::{AsFd as _, AsRawFd as _};
use std::time::Instant;

use nix::errno::Errno;
use nix::net::if_::if_nametoindex;
use nix::sys::socket::{MsgFlags, recv};
use tokio::time::timeout;

use super::bed::with_servers;
use super::receiver::{BURST, REFILL};
use super::*;
use crate::net::filter::guest_requests;

/// How long one answer may take, however busy the machine is.
const ANSWER_DEADLINE: Duration = Duration::from_secs(20);

/// Which DISCOVER the next answer is for.
async fn offered(guest: &PacketSocket) -> u32 {
    let mut buffer = [0; 1600];
    loop {
        let len = timeout(ANSWER_DEADLINE, guest.recv(&mut buffer)).await.expect("an answer").unwrap();
        let frame = buffer.get(..len).unwrap();
        // The kernel of the other end says something of its own, too.
        if frame.get(ETHERTYPE) == Some(&IPV4) {
            return u32::from_be_bytes(frame.get(46..50).unwrap().try_into().unwrap());
        }
    }
}

#[test]
fn who_asks_without_end_is_answered_at_the_pace_of_the_budget() {
    with_servers(bridged(), |link| async move {
        let guest = link.socket().await;
        let beyond = 20;
        let start = Instant::now();
        for xid in 0..BURST + beyond {
            guest.send(&discover(xid)).await.unwrap();
            assert_eq!(offered(&guest).await, xid);
        }
        assert!(start.elapsed() >= REFILL * (beyond - 1), "{:?}", start.elapsed());
    });
}

#[test]
fn a_storm_costs_little_memory_and_the_guest_is_served_again_after_it() {
    with_servers(bridged(), |link| async move {
        let guest = link.socket().await;
        // Beside the server's socket, read by nobody: what waits here is what waits for a busy server.
        let idle = PacketSocket::open(if_nametoindex("server").unwrap(), &guest_requests(&[])).unwrap();
        for _ in 0..5_000 {
            guest.send(&discover(1)).await.unwrap();
        }
        let hear = || recv(idle.as_fd().as_raw_fd(), &mut [0; 1600], MsgFlags::MSG_DONTWAIT);
        let waiting = (0..5_000).take_while(|_| hear() != Err(Errno::EAGAIN)).count();
        assert!((1..=64).contains(&waiting), "{waiting} frames");
        // At the latest when the last one is answered there is room for another.
        while offered(&guest).await == 1 {
            guest.send(&discover(2)).await.unwrap();
        }
    });
}
