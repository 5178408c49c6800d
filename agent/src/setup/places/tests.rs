use std::cell::RefCell;

use super::*;

const LATE: &str = "the kernel has not found it";

fn volumes<const N: usize>(paths: [&str; N]) -> [Mount; N] {
    paths.map(|path| Mount { path: path.into(), ..Mount::default() })
}

/// Each is called what its path ends with.
fn disks<const N: usize>(paths: [&str; N]) -> [Disk; N] {
    let serial = |path: &str| path.rsplit('/').next().unwrap_or_default().to_owned();
    paths.map(|path| Disk { serial: serial(path), path: path.into(), ..Disk::default() })
}

/// What is seen, in that order, and the lines of what is not. The kernel finds one of `late` at a time, and `never` not at all.
fn seen(volumes: &[Mount], disks: &[Disk], late: &[&str], never: &[&str]) -> (Vec<String>, Vec<String>) {
    let (order, found) = (RefCell::new(Vec::new()), RefCell::new(0));
    let look = |place: Place<'_>| {
        let Some(path) = place.path().to_str() else { unreachable!("text") };
        let is_late = late.iter().skip(*found.borrow()).chain(never).any(|absent| *absent == path);
        if is_late {
            return Ok(Look::NotYet(LATE.to_owned()));
        }
        if path.ends_with("bad") {
            return Err("it is bad".to_owned());
        }
        order.borrow_mut().push(path.to_owned());
        Ok(Look::Seen)
    };
    let wait = || {
        *found.borrow_mut() += 1;
        Ok(*found.borrow() <= late.len())
    };
    let lines = see_all(in_order(volumes.iter().collect(), disks), look, wait);
    (order.into_inner(), lines)
}

#[test]
fn what_is_above_comes_first_and_other_order_stays() {
    let volumes = volumes(["/b/c/d", "/data/conf", "/a/c", "/a//b", "/a"]);
    let disks = disks(["/data/conf/sub", "/a/disk", "/data"]);
    let order = ["/data", "/a", "/a/disk", "/data/conf", "/a/c", "/a//b", "/data/conf/sub", "/b/c/d"];
    assert_eq!(seen(&volumes, &disks, &[], &[]), (order.map(String::from).into(), vec![]));
}

#[test]
fn what_is_below_a_late_disk_waits_for_it_and_nothing_else_does() {
    let volumes = volumes(["/data/conf", "/data/inner/x", "/database", "/srv/a"]);
    let disks = disks(["/data/inner", "/data", "/srv"]);
    let order = ["/srv", "/database", "/srv/a", "/data", "/data/conf", "/data/inner", "/data/inner/x"];
    assert_eq!(seen(&volumes, &disks, &["/data", "/data/inner"], &[]), (order.map(String::from).into(), vec![]));
}

#[test]
fn nothing_is_mounted_in_place_of_a_disk_that_is_not_there() {
    let volumes = volumes(["/data/conf", "/srv", "/bad/x", "/v/bad", "/v/bad/x"]);
    let disks = disks(["/data/inner", "/data", "/bad"]);
    let (order, lines) = seen(&volumes, &disks, &[], &["/data"]);
    assert_eq!(order, ["/srv", "/v/bad/x"]);
    assert_eq!(
        lines,
        [
            "disk `bad` is not at `/bad` in the guest: it is bad",
            "volume `/bad/x` was not mounted in the guest: it is below `/bad`, where disk `bad` is not",
            "volume `/v/bad` was not mounted in the guest: it is bad",
            "disk `data` is not at `/data` in the guest: the kernel has not found it",
            "disk `inner` is not at `/data/inner` in the guest: it is below `/data`, where disk `data` is not",
            "volume `/data/conf` was not mounted in the guest: it is below `/data`, where disk `data` is not",
        ]
    );
}

#[test]
fn a_wait_that_fails_is_told_of_the_disk() {
    let disks = disks(["/data"]);
    let look = |_: Place<'_>| Ok(Look::NotYet(LATE.to_owned()));
    let lines = see_all(in_order(Vec::new(), &disks), look, || Err(io::Error::other("no socket")));
    assert_eq!(lines, ["disk `data` is not at `/data` in the guest: not found, and not waited for: no socket"]);
}
