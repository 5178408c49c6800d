use std::collections::BTreeSet;
use std::os::unix::fs::MetadataExt;

use super::*;
use crate::sys::testbed::{apart, ip};

const POD: &str = "/run/netns/pod";

#[test]
fn a_new_namespace_is_another_one_with_loopback_up() {
    apart(async || {
        let before = inode(OWN_NETNS);
        let pod = Netns::create(Path::new(POD)).expect("created");
        assert_eq!(inode(OWN_NETNS), before, "this thread stayed where it was");
        assert_eq!(pod.inside(|| inode(OWN_NETNS)).expect("entered"), inode(POD));
        assert_ne!(inode(POD), before);
        let links = pod.inside(|| link::links(&mut Netlink::open().expect("a socket")).expect("links"));
        let links = links.expect("entered");
        assert_eq!(links.iter().map(|link| (link.name.as_str(), link.up)).collect::<Vec<_>>(), [("lo", true)]);
    });
}

#[test]
fn an_address_in_a_new_namespace_is_usable_at_once() {
    apart(async || {
        let pod = Netns::create(Path::new(POD)).expect("created");
        ip("link add host0 up type veth peer name eth0 netns pod");
        ip("-n pod link set eth0 up");
        ip("-n pod addr add fd00::2/64 dev eth0");
        // Kernel, net/ipv6/addrconf.c: address, link's number, prefix length, scope, flags of linux/if_addr.h, link's name.
        let addresses = pod.inside(|| fs::read_to_string("/proc/thread-self/net/if_inet6").expect("addresses"));
        let addresses = addresses.expect("entered");
        let mut of_link = addresses.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
        let flags = of_link.find_map(|words| words[0].starts_with("fd00").then(|| words[4].to_owned()));
        assert_eq!(flags.as_deref(), Some("80"), "permanent, and neither tentative nor failed: {addresses}");
    });
}

#[test]
fn work_awaited_inside_may_use_the_runtime() {
    apart(async || {
        let pod = Netns::create(Path::new(POD)).expect("created");
        let there = pod.visit(|| (inode(OWN_NETNS), tokio::runtime::Handle::try_current().is_ok())).await;
        assert_eq!(there.expect("visited"), (inode(POD), true));
    });
}

#[test]
fn an_operation_stays_inside_and_no_thread_is_born_there() {
    apart(async || {
        let home = inode(OWN_NETNS);
        let (inside, after, aside) = blocking::operation(async move {
            let pod = Netns::create(Path::new(POD)).expect("created");
            let inside = pod.visit(|| (inode(OWN_NETNS), thread::current().id())).await.expect("visited");
            let after = (inode(OWN_NETNS), thread::current().id());
            (inside, after, blocking::aside(|| inode(OWN_NETNS)).await)
        })
        .await;
        assert_eq!(inside, after);
        assert_eq!(inside.0, inode(POD));
        assert_eq!((inode(OWN_NETNS), aside), (home, home));
    });
}

#[test]
fn a_thread_that_is_there_does_the_work_itself() {
    apart(async || {
        let (here, pod) = (Netns::open(Path::new(OWN_NETNS)).expect("opened").expect("there"), Path::new(POD));
        let pod = Netns::create(pod).expect("created");
        let own = thread::current().id();
        assert_eq!(here.inside(|| thread::current().id()).expect("here"), own);
        assert_ne!(pod.inside(|| thread::current().id()).expect("entered"), own);
        assert!(matches!(here.inside(|| panic!("on purpose")), Err::<(), _>(NetnsError::Panicked { .. })));
    });
}

#[test]
fn a_thread_stays_in_a_namespace_alone() {
    apart(async || {
        Netns::create(Path::new(POD)).expect("created");
        fs::write("/run/netns/stale", "").expect("written");
        let stay = |path: &str| {
            let path = PathBuf::from(path);
            thread::spawn(move || (Netns::stay(&path), inode(OWN_NETNS))).join().expect("ends")
        };
        let home = inode(OWN_NETNS);
        let (stayed, place) = stay(POD);
        assert!(stayed.expect("stays") && place == inode(POD));
        let (none, place) = stay("/run/netns/none");
        assert!(!none.expect("none") && place == home);
        let (error, place) = stay("/run/netns/stale");
        assert_eq!(error.expect_err("stale").to_string(), "`/run/netns/stale` is not a mounted network namespace");
        assert_eq!(place, home);
    });
}

#[test]
fn work_that_panics_is_an_error_and_not_the_end() {
    apart(async || {
        let pod = Netns::create(Path::new(POD)).expect("created");
        let awaited = pod.visit(|| panic!("on purpose")).await.map(|(): ()| ());
        assert!(matches!(awaited, Err(NetnsError::Panicked { .. })));
        let of_operation = async move { pod.visit(|| panic!("on purpose")).await.map(|(): ()| ()) };
        assert!(matches!(blocking::operation(of_operation).await, Err(NetnsError::Panicked { .. })));
        let pod = Netns::open(Path::new(POD)).expect("opened").expect("there");
        let waited = pod.inside(|| panic!("on purpose")).map(|(): ()| ());
        assert!(matches!(waited, Err(NetnsError::Panicked { .. })));
    });
}

#[test]
fn a_name_is_taken_once_and_free_again_after_removal() {
    apart(async || {
        let path = Path::new(POD);
        let first = Netns::create(path).expect("created");
        let error = Netns::create(path).expect_err("taken");
        assert!(matches!(error, NetnsError::Exists { .. }), "{error}");
        assert_eq!(first.inside(|| inode(OWN_NETNS)).expect("still there"), inode(POD));
        Netns::remove(path).expect("removed");
        Netns::remove(path).expect("removed again");
        assert!(!path.exists());
        assert!(Netns::open(path).expect("looked").is_none());
        Netns::create(path).expect("created again");
    });
}

#[test]
fn an_opened_namespace_is_the_created_one() {
    apart(async || {
        Netns::create(Path::new(POD)).expect("created");
        let pod = Netns::open(Path::new(POD)).expect("opened").expect("there");
        assert_eq!(pod.path(), Path::new(POD));
        assert_eq!(pod.inside(|| inode(OWN_NETNS)).expect("entered"), inode(POD));
    });
}

#[test]
fn a_file_that_is_no_namespace_is_an_error_that_names_it_and_can_be_removed() {
    apart(async || {
        fs::create_dir_all("/run/netns").unwrap();
        fs::File::create(POD).unwrap();
        let error = Netns::open(Path::new(POD)).expect_err("not a namespace");
        assert_eq!(error.to_string(), "`/run/netns/pod` is not a mounted network namespace");
        Netns::remove(Path::new(POD)).expect("removed");
        assert!(!Path::new(POD).exists());
    });
}

#[test]
fn what_is_mounted_over_a_namespace_goes_with_it() {
    apart(async || {
        Netns::create(Path::new(POD)).expect("created");
        let over = Some("/proc/self/ns/net");
        mount(over, Path::new(POD), None::<&str>, MsFlags::MS_BIND, None::<&str>).unwrap();
        Netns::remove(Path::new(POD)).expect("removed");
        assert!(!Path::new(POD).exists());
    });
}

#[test]
fn many_at_once_share_one_mount_of_the_folder() {
    apart(async || {
        let made: BTreeSet<u64> = thread::scope(|scope| {
            let path = |n| PathBuf::from(format!("{POD}{n}"));
            let create = |n| {
                scope.spawn(move || {
                    share(Path::new("/run/netns"))?;
                    Netns::create(&path(n)).map(|_| inode(path(n)))
                })
            };
            let workers: Vec<_> = (0..8).map(create).collect();
            workers.into_iter().map(|worker| worker.join().unwrap().expect("created")).collect()
        });
        assert_eq!(made.len(), 8, "one namespace each");
        let mounts = fs::read_to_string("/proc/thread-self/mountinfo").unwrap();
        let of_folder: Vec<&str> = mounts.lines().filter(|line| line.contains(" /run/netns ")).collect();
        assert!(matches!(of_folder[..], [line] if line.contains(" shared:")), "{of_folder:?}");
    });
}

#[test]
fn a_test_starts_without_the_namespaces_of_whoever_runs_it() {
    let of_folder = || {
        let mounts = fs::read_to_string("/proc/thread-self/mountinfo").unwrap();
        mounts.lines().filter(|line| line.contains(" /run/netns")).count()
    };
    apart(async || {
        // As on every machine on which `ip netns add` was used.
        share(Path::new("/run/netns")).expect("shared");
        Netns::create(Path::new(POD)).expect("created");
        apart(async || assert_eq!(of_folder(), 0));
        assert_eq!(of_folder(), 2, "the folder and the namespace");
    });
}

fn inode(path: impl AsRef<Path>) -> u64 {
    fs::metadata(path).expect("there").ino()
}
