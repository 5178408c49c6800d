//! Kernels in trees: with modules, without, and with no word of what they have.

use std::io::Write as _;

use flate2::Compression;
use flate2::write::GzEncoder;

use super::super::tests::{facts, tree};
use super::*;

const RELEASE: (&str, &str) = ("proc/sys/kernel/osrelease", "6.1.0-x\n");
const BUILT_IN: (&str, &str) = ("lib/modules/6.1.0-x/modules.builtin", "kernel/net/bridge/bridge.ko\n");
const IN_FILES: (&str, &str) = (
    "lib/modules/6.1.0-x/modules.dep",
    "kernel/net/sched/sch_ingress.ko.xz:\nkernel/net/sched/cls_bpf.ko:\nkernel/net/sched/act_mirred.ko: kernel/a.ko\n",
);

fn found(files: &[(&str, &str)]) -> Vec<(&'static str, State, String)> {
    let (_dir, host) = tree(files);
    told(&host)
}

fn told(host: &Host) -> Vec<(&'static str, State, String)> {
    look(host, &facts()).into_iter().map(|finding| (finding.check, finding.state, finding.seen)).collect()
}

#[test]
fn what_can_be_loaded_is_there() {
    let told = found(&[RELEASE, BUILT_IN, IN_FILES, ("dev/net/tun", "")]);
    assert_eq!(told[0].1, State::Ok);
    assert_eq!((told[2].0, told[2].1), ("kernel.tc", State::Ok), "{}", told[2].2);
    assert_eq!((told[3].0, told[3].1), ("kernel.bridge", State::Ok));
    let (check, state, seen) = &told[4];
    assert_eq!((*check, *state), ("kernel.macvtap", State::Warning));
    assert_eq!(seen, "kernel 6.1.0-x does not have macvtap (only pods with this data path need it)");
}

#[test]
fn a_kernel_that_loads_nothing_any_more_has_what_is_loaded() {
    let closed = ("proc/sys/kernel/modules_disabled", "1\n");
    let files = [RELEASE, BUILT_IN, IN_FILES, closed, ("proc/modules", "cls_bpf 1 0 - Live 0x0\nsch_ingress 1\n")];
    let (_, state, seen) = &found(&files)[2];
    assert_eq!(*state, State::Failure);
    assert_eq!(seen, "kernel 6.1.0-x cannot load act_mirred (the data path of this node)");
}

#[test]
fn a_kernel_without_modules_tells_by_its_configuration() {
    let (dir, host) = tree(&[RELEASE]);
    assert!(told(&host)[2].2.contains("there is no list of what kernel 6.1.0-x has"));
    let mut packed = GzEncoder::new(Vec::new(), Compression::default());
    let config = b"CONFIG_NET_SCH_INGRESS=y\nCONFIG_NET_CLS_BPF=y\nCONFIG_NET_ACT_MIRRED=y\n# CONFIG_BRIDGE is not set\nCONFIG_MACVTAP=m\n";
    packed.write_all(config).expect("packed");
    let packed = packed.finish().expect("packed");
    std::fs::write(dir.path().join("proc/config.gz"), &packed).expect("written");
    let states: Vec<_> =
        told(&host).into_iter().skip(2).map(|(_, state, seen)| (state, seen.contains("not known"))).collect();
    let paths = [(State::Ok, false), (State::Warning, false), (State::Warning, true)];
    assert_eq!(states, [&paths[..], &[(State::Ok, false)]].concat());
    // One that is cut says nothing.
    std::fs::write(dir.path().join("proc/config.gz"), &packed[..packed.len() / 2]).expect("written");
    assert!(told(&host)[2].2.starts_with("not known"));
}

#[test]
fn a_release_that_leads_elsewhere_is_none() {
    let told = found(&[("proc/sys/kernel/osrelease", "../../etc\n"), ("etc/modules.dep", "kernel/cls_bpf.ko:\n")]);
    assert!(told[2].2.starts_with("not known"), "{told:?}");
}

#[test]
fn without_a_tun_device_nothing_has_a_network() {
    let told = found(&[]);
    assert!(told[0].1 == State::Failure && told[0].2.contains("No such file"), "{told:?}");
    assert_eq!((told[1].0, told[1].1), ("kernel.vhost-net", State::Warning));
}
