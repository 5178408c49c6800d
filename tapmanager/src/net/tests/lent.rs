//! Links of the node in a pod, as the plugin `host-device` puts them there: in time they have a way back.

use super::*;
use crate::net::lent::Renamed;
use crate::net::{make_way, send_back};

/// A pod with `eth0`, which was `up0` on the node, where another link has the name by now, as another name of its own.
fn bed(is_taken: bool) -> Bed {
    let bed = Bed::new();
    bed.pod.inside(|| ip("link set eth0 alias up0")).expect("entered");
    if is_taken {
        ip("link add other0 type veth peer name other1");
        ip("link property add dev other0 altname up0");
    }
    bed
}

fn renamed(becomes: &str) -> Option<Renamed> {
    Some(Renamed { was: "up0".to_owned(), becomes: becomes.parse().expect("a name") })
}

/// Where this thread is: the process has not left the machine's own namespace.
fn node() -> Netns {
    Netns::open(Path::new("/proc/thread-self/ns/net")).expect("opened").expect("there")
}

fn on_node(name: &str) -> bool {
    let links = link::links(&mut Netlink::open().expect("netlink")).expect("listed");
    links.iter().any(|link| link.name.as_str() == name)
}

#[test]
fn a_link_of_the_node_goes_back_under_a_name_that_is_free() {
    let eth0: IfName = "eth0".parse().expect("a name");
    apart(async || {
        let bed = bed(true);
        assert_eq!(make_way(&bed.pod, &eth0, &node()).await.expect("looked"), renamed("up0-1"));
        assert_eq!(make_way(&bed.pod, &eth0, &node()).await.expect("looked"), None, "it has a way");
        let moved = send_back(&bed.pod, &eth0, node()).await.expect("moved").expect("a link");
        assert_eq!(moved.becomes.as_str(), "up0-1");
        assert!(on_node("up0-1") && !on_node("eth0"));
        assert_eq!(send_back(&bed.pod, &eth0, node()).await.expect("gone"), None);
    });
    apart(async || {
        let bed = bed(false);
        assert_eq!(make_way(&bed.pod, &eth0, &node()).await.expect("looked"), None, "its own name is free");
        assert_eq!(send_back(&bed.pod, &eth0, node()).await.expect("moved"), renamed("up0"));
        assert!(on_node("up0"));
    });
    apart(async || {
        let bed = Bed::new();
        assert_eq!(
            make_way(&bed.pod, &eth0, &node()).await.expect("looked"),
            None,
            "no plugin says that it is the node's"
        );
        assert_eq!(send_back(&bed.pod, &eth0, node()).await.expect("looked"), None);
    });
}
