//! A pod's way is followed to the other end of its veth, wherever on the machine that is.

use super::*;
use crate::net::way::{self, Relation, Way};

/// Relation, and name of the link if it is seen, of each stop.
fn stops(way: &Way) -> Vec<(Relation, Option<&str>)> {
    way.beyond.iter().map(|stop| (stop.relation, stop.link.as_ref().map(|link| link.name.as_str()))).collect()
}

#[test]
fn a_way_leads_to_the_other_end_and_its_bridge_but_not_into_a_namespace_of_others() {
    apart(async || {
        let bed = Bed::new();
        for line in ["link add br0 type bridge", "link set host0 master br0", "link set br0 up"] {
            ip(line);
        }
        let joined = bed.join().await.expect("joined");
        // Where this thread is: the process has not left the machine's own namespace.
        let node = Netns::open(Path::new("/proc/thread-self/ns/net")).expect("opened").expect("there");
        let look = || way::look(&bed.pod, &node, &joined.nics, Some(choices().anti_spoof)).expect("looked");
        let [way] = &look()[..] else { panic!("one NIC, one way") };
        assert_eq!(stops(way), [(Relation::Peer, Some("host0")), (Relation::Master, Some("br0"))]);
        assert_eq!(
            (way.tap.as_ref().map(|tap| tap.mtu), way.link.as_ref().map(|link| link.mtu)),
            (Some(1450), Some(1450))
        );
        assert_eq!(way.marks, []);

        ip("link set br0 mtu 1400");
        bed.pod.inside(|| ip("link set tap0 down")).expect("entered");
        let [way] = &look()[..] else { panic!("one NIC, one way") };
        let marks: Vec<_> = way.marks.iter().map(|mark| (mark.at.as_str(), mark.breaks)).collect();
        assert_eq!(marks, [("tap0", true), ("br0", false)], "{:?}", way.marks);

        let third = Netns::create(Path::new("/run/netns/third")).expect("created");
        ip("link set host0 netns third");
        let [way] = &look()[..] else { panic!("one NIC, one way") };
        assert_eq!(stops(way), [(Relation::Peer, None)]);
        drop(third);
    });
}
