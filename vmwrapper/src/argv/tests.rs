use std::ffi::OsStr;
use std::fs::File;
use std::os::fd::RawFd;
use std::os::unix::ffi::OsStrExt as _;

use super::*;

fn null() -> OwnedFd {
    File::open("/dev/null").expect("null").into()
}

fn nic(last_byte: u8, slot: &str, queues: usize) -> Tap {
    Tap {
        mac: MacAddr::new([2, 0, 0, 0, 0, last_byte]).expect("mac"),
        mtu: 1450,
        place: Place::at(slot),
        queues: (0..queues).map(|_| null()).collect(),
        vhost: Vec::new(),
    }
}

fn raw(fds: &[OwnedFd]) -> Vec<RawFd> {
    fds.iter().map(AsRawFd::as_raw_fd).collect()
}

/// The appended arguments with the descriptors' numbers, which vary, named by their place.
fn appended<const N: usize>(taps: [Tap; N]) -> String {
    let fds: Vec<(Vec<RawFd>, Vec<RawFd>)> = taps.iter().map(|tap| (raw(&tap.queues), raw(&tap.vhost))).collect();
    let nics = taps.into_iter().map(Nic::Tap).collect();
    let args = extend(Vec::new(), &Nics { iommufd: None, nics }, PciBus::Pcie);
    let mut words: Vec<String> = args.iter().map(|arg| arg.to_str().expect("text").to_owned()).collect();
    for (word, (queues, vhost)) in words.iter_mut().skip(1).step_by(4).zip(&fds) {
        for (letter, fds) in [("Q", queues), ("V", vhost)].into_iter().filter(|(_, fds)| !fds.is_empty()) {
            let numbers: Vec<String> = fds.iter().map(RawFd::to_string).collect();
            let names: Vec<String> = (0..numbers.len()).map(|place| format!("{letter}{place}")).collect();
            let (given, named) = (format!("={}", numbers.join(":")), format!("={}", names.join(":")));
            let options = word.split(',').map(|option| match option.strip_suffix(&given) {
                Some(key) => format!("{key}{named}"),
                None => option.to_owned(),
            });
            *word = options.collect::<Vec<_>>().join(",");
        }
    }
    words.join("\n")
}

#[test]
fn one_nic_of_one_queue() {
    insta::assert_snapshot!(appended([nic(1, "0x10", 1)]), @r#"
    -netdev
    tap,id=vw0,fd=Q0,vhost=off
    -device
    {"driver":"virtio-net-pci","netdev":"vw0","id":"vwnet0","mac":"02:00:00:00:00:01","host_mtu":1450,"bus":"pcie.0","addr":"0x10"}
    "#);
}

#[test]
fn a_nic_with_an_order_and_a_number_says_so() {
    let mut nic = nic(1, "0x1e", 1);
    nic.place.boot = Some(2);
    nic.place.acpi_index = Some(7);
    assert!(appended([nic]).ends_with(r#""bus":"pcie.0","addr":"0x1e","bootindex":2,"acpi-index":7}"#));
}

#[test]
fn two_nics_one_of_three_queues() {
    insta::assert_snapshot!(appended([nic(1, "0x12", 3), nic(2, "0x1e", 1)]), @r#"
    -netdev
    tap,id=vw0,fds=Q0:Q1:Q2,vhost=off
    -device
    {"driver":"virtio-net-pci","netdev":"vw0","id":"vwnet0","mac":"02:00:00:00:00:01","host_mtu":1450,"mq":true,"vectors":8,"bus":"pcie.0","addr":"0x12"}
    -netdev
    tap,id=vw1,fd=Q0,vhost=off
    -device
    {"driver":"virtio-net-pci","netdev":"vw1","id":"vwnet1","mac":"02:00:00:00:00:02","host_mtu":1450,"bus":"pcie.0","addr":"0x1e"}
    "#);
}

#[test]
fn the_kernel_moves_the_frames_of_queues_with_vhost() {
    let with_vhost = |queues| {
        let mut nic = nic(1, "0x10", queues);
        nic.vhost = (0..queues).map(|_| File::open("/dev/null").expect("null").into()).collect();
        nic
    };
    insta::assert_snapshot!(appended([with_vhost(1), with_vhost(2)]), @r#"
    -netdev
    tap,id=vw0,fd=Q0,vhost=on,vhostfd=V0
    -device
    {"driver":"virtio-net-pci","netdev":"vw0","id":"vwnet0","mac":"02:00:00:00:00:01","host_mtu":1450,"bus":"pcie.0","addr":"0x10"}
    -netdev
    tap,id=vw1,fds=Q0:Q1,vhost=on,vhostfds=V0:V1
    -device
    {"driver":"virtio-net-pci","netdev":"vw1","id":"vwnet1","mac":"02:00:00:00:00:01","host_mtu":1450,"mq":true,"vectors":6,"bus":"pcie.0","addr":"0x10"}
    "#);
}

#[test]
fn what_libvirt_gave_comes_first_byte_for_byte() {
    let given: Vec<OsString> =
        [&b"-name"[..], b"a b\n\xff", b""].map(|bytes| OsStr::from_bytes(bytes).to_owned()).into();
    let nics = Nics { iommufd: None, nics: vec![Nic::Tap(nic(1, "0x10", 1))] };
    let args = extend(given.clone(), &nics, PciBus::Pci);
    assert_eq!(args[..3], given);
    assert_eq!(args.len(), 7);
    assert!(args[6].to_str().is_some_and(|device| device.contains(r#""bus":"pci.0","addr":"0x10""#)), "{args:?}");
}

#[test]
fn what_is_passed_through_shares_one_object_and_what_libvirt_gives_is_left_to_it() {
    let device = |slot| Nic::Vfio(Vfio { place: Place::at(slot), device: null() });
    let nics = Nics {
        iommufd: Some(null()),
        nics: vec![device("0x10"), Nic::Hostdev, Nic::Tap(nic(3, "0x12", 1)), device("0x13")],
    };
    let fds: Vec<String> = [raw(nics.iommufd.as_slice()), vec![device_of(&nics.nics[0]), device_of(&nics.nics[3])]]
        .concat()
        .iter()
        .map(|fd| format!(r#""fd":"{fd}""#))
        .collect();
    let args = extend(Vec::new(), &nics, PciBus::Pcie);
    let words: Vec<&str> = args.iter().map(|arg| arg.to_str().expect("text")).collect();
    let named = |place: usize, fd: usize| words[place].replace(&fds[fd], &format!(r#""fd":"F{fd}""#));
    assert_eq!(words.len(), 10);
    assert_eq!([words[0], words[2], words[4]], ["-object", "-device", "-netdev"]);
    assert_eq!(named(1, 0), r#"{"qom-type":"iommufd","id":"vwiommu","fd":"F0"}"#);
    assert_eq!(
        named(3, 1),
        r#"{"driver":"vfio-pci","fd":"F1","iommufd":"vwiommu","id":"vwnet0","bus":"pcie.0","addr":"0x10"}"#
    );
    assert!(words[7].contains(r#""id":"vwnet2""#) && words[7].contains(r#""addr":"0x12""#), "{}", words[7]);
    assert_eq!(
        named(9, 2),
        r#"{"driver":"vfio-pci","fd":"F2","iommufd":"vwiommu","id":"vwnet3","bus":"pcie.0","addr":"0x13"}"#
    );
    assert_eq!(nics.descriptors().len(), 4);
}

fn device_of(nic: &Nic) -> RawFd {
    let Nic::Vfio(Vfio { device, .. }) = nic else { panic!("not passed through: {nic:?}") };
    device.as_raw_fd()
}
