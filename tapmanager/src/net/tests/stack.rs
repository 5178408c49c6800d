//! A guest with a stack of its own: a namespace with a tap, whose frames are carried to and from a pod's tap.

use std::convert::Infallible;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;

use nix::unistd::{read, write};
use proto::tap::Nic;
use tokio::task::JoinSet;

use super::bed::{Bed, Events, nonblocking, once_free, open_taps};
use crate::sys::netns::Netns;
use crate::sys::tap;
use crate::sys::testbed::ip;
use common::Ready;

/// Longer than any frame with the header of a tap.
const LONGEST: usize = 65_536 + 64;

/// The guest behind a pod's only NIC. Its link is `guest0`, and nothing carries its frames once this is dropped.
pub(super) struct Stack {
    pub(super) netns: Netns,
    _carriers: JoinSet<Infallible>,
}

impl Stack {
    pub(super) async fn behind(bed: &Bed, nics: &[Nic]) -> Self {
        let netns = Netns::create(Path::new("/run/netns/guest")).expect("created");
        let [nic] = nics else { panic!("one NIC") };
        let shape = format!("link set guest0 address {} mtu {} up", nic.mac, nic.mtu);
        let make = || {
            let (events, name) = (Events::here(), "guest0".parse().expect("a name"));
            tap::create(&name, 1).expect("created");
            let opened = once_free(|| tap::open(&name, 1)).expect("opened");
            ip(&shape);
            events.until_up(&["guest0".to_owned()]);
            opened
        };
        let own = netns.inside(make).expect("entered");
        let events = bed.pod.inside(Events::here).expect("entered");
        let theirs = open_taps(&bed.pod, nics, false).await.expect("a free tap");
        if nic.tap().map(|tap| tap.data_path) != Some(proto::tap::DataPath::Macvtap) {
            events.until_up(&["tap0".to_owned()]);
        }
        let one =
            |mut queues: Vec<OwnedFd>| Arc::new(Ready::register(nonblocking(queues.remove(0))).expect("registered"));
        let (own, theirs) = (one(own), one(theirs.into_iter().flat_map(|nic| nic.queues).collect()));
        let mut carriers = JoinSet::new();
        carriers.spawn(carry(Arc::clone(&own), Arc::clone(&theirs)));
        carriers.spawn(carry(theirs, own));
        Self { netns, _carriers: carriers }
    }
}

async fn carry(from: Arc<Ready>, to: Arc<Ready>) -> Infallible {
    let mut frame = vec![0; LONGEST];
    loop {
        let len = from.read(|fd| Ok(read(fd, &mut frame)?)).await.expect("a frame");
        let frame = frame.get(..len).expect("no longer than the buffer");
        to.write(|fd| Ok(write(fd, frame)?)).await.expect("carried");
    }
}
