use super::*;
use crate::sys::testbed::apart;

#[test]
fn names_of_the_network_are_paths_as_sysctl_has_them() {
    let good = [
        ("net.core.somaxconn", "/proc/sys/net/core/somaxconn"),
        ("net/core/somaxconn", "/proc/sys/net/core/somaxconn"),
        ("net.ipv4.conf.eth0/1.arp_notify", "/proc/sys/net/ipv4/conf/eth0.1/arp_notify"),
        ("net/ipv4/conf/eth0.1/arp_notify", "/proc/sys/net/ipv4/conf/eth0.1/arp_notify"),
    ];
    for (name, expected) in good {
        assert_eq!(path(name).as_deref(), Some(Path::new(expected)), "{name}");
    }
    let long = format!("net.{}", "x".repeat(MAX_NAME));
    let bad = [
        "",
        "net",
        "net.",
        "net..core",
        "kernel.shmmax",
        "net/../kernel/shmmax",
        "net./././kernel",
        "/net/core/somaxconn",
        "net.core.some name",
        "net.core.a\0b",
        "network.core",
        &long,
    ];
    for name in bad {
        assert_eq!(path(name), None, "{name:?}");
    }
}

#[test]
fn settings_are_the_namespaces_own_and_refusals_name_them() {
    apart(async || {
        let pod = Netns::create(Path::new("/run/netns/pod")).expect("created");
        let of = |name: &str, value: &str| BTreeMap::from([(name.to_owned(), value.to_owned())]);
        let read = || std::fs::read_to_string("/proc/sys/net/ipv4/ip_forward").expect("read");
        let before = read();
        set(&pod, &of("net.ipv4.ip_forward", "1")).await.expect("set");
        assert_eq!(pod.visit(read).await.expect("visited"), "1\n");
        assert_eq!((&*before, read()), ("0\n", before.clone()), "not of the thread that asked");
        for (name, value) in [("net.ipv4.no_such_thing", "1"), ("net.ipv4.ip_forward", "much")] {
            let error = set(&pod, &of(name, value)).await.expect_err("refused").to_string();
            assert_eq!(error, format!("the kernel refuses sysctl `{name}` = `{value}` in the pod's namespace"));
        }
    });
}
