//! What `tapmanager sriov` asks and prints.

use proto::tap::{CollectReport, Reply, Request, VfClaim, VfStep};

use super::super::tests::{FakeDaemon, both};
use super::*;

fn vf() -> VfSummary {
    VfSummary {
        vf: "0000:3b:02.1".parse().expect("address"),
        pf: "0000:3b:00.0".parse().expect("address"),
        number: 1,
        driver: Some("vfio-pci".into()),
        netdevs: Vec::new(),
        group: Some(7),
        vfio: true,
        claim: Some(VfHolder { owner: "0f1e".into(), pod: Some(("default".into(), "vm".into())), step: VfStep::InUse }),
    }
}

#[test]
fn list_goes_through_all_pages_and_shows_who_has_what() {
    let pf = PfSummary {
        pf: "0000:3b:00.0".parse().expect("address"),
        netdevs: vec!["ens1f0".into()],
        driver: Some("ice".into()),
        total: 64,
        enabled: 2,
        used: 1,
        failed: 3,
        autoprobe: Some(false),
    };
    let free = VfSummary { number: 0, netdevs: vec!["ens1f0v0".into()], claim: None, vfio: false, ..vf() };
    let free = VfSummary { vf: "0000:3b:02.0".parse().expect("address"), driver: Some("iavf".into()), ..free };
    let page = |pfs, vfs, trouble, more| Ok(Reply::Vfs(VfPage { pfs, vfs, trouble, more }));
    let pages = [
        page(vec![pf], vec![free], vec!["PF `0000:5e:00.0`: is held".into()], true),
        page(Vec::new(), vec![vf()], Vec::new(), false),
    ];
    let daemon = FakeDaemon::with(pages.iter().chain(&pages).cloned().collect());
    let (text, done) = daemon.run(&["sriov", "list"], "text");
    done.expect("list");
    let (json, done) = daemon.run(&["sriov", "list"], "json");
    done.expect("list");
    insta::assert_snapshot!(format!("{text}---\n{json}"));
    let after = |request: &Request| match request {
        Request::Vf(VfRequest::List { after }) => after.map(|vf| vf.to_string()),
        other => panic!("{other:?}"),
    };
    let first = Some("0000:3b:02.0".to_owned());
    assert_eq!(daemon.asked().iter().map(after).collect::<Vec<_>>(), [None, first.clone(), None, first]);
}

#[test]
fn explain_says_all_of_one() {
    let detail = VfDetail { summary: vf(), explanation: vec!["IOMMU group 7\u{1b}".into(), "the claim stands".into()] };
    insta::assert_snapshot!(both(&["sriov", "explain", "0000:3b:02.1"], &Reply::Vf(Box::new(detail))));
}

#[test]
fn claims_are_made_and_given_back_as_the_command_line_says() {
    let detail = VfDetail { summary: vf(), explanation: Vec::new() };
    let report = CollectReport { removed: vec!["claim".into()], kept: vec!["other".into()] };
    let collected = Ok(Reply::Collected(report));
    let daemon =
        FakeDaemon::with(vec![Ok(Reply::Vf(Box::new(detail))), collected.clone(), collected.clone(), collected]);
    let run = |line: &str| {
        let (text, done) = daemon.run(&line.split_whitespace().collect::<Vec<_>>(), "text");
        assert_eq!(done.expect(line), Verdict::Well);
        text
    };
    run("sriov claim 0000:3b:02.1 --by me --mac 02:00:00:00:00:07 --vlan 100 --vlan-qos 3 --spoofchk off --trust on \
         --link-state auto --max-tx-rate 10");
    assert_eq!(run("sriov release 0000:3b:02.1"), "removed: claim\nkept: other\n");
    run("sriov release 0000:3b:02.1 --force");
    run("sriov repair");
    let vf = vf().vf;
    let claim = VfClaim {
        vf,
        by: "me".into(),
        mac: Some("02:00:00:00:00:07".parse().expect("mac")),
        vlan: Some(100),
        vlan_qos: Some(3),
        spoofchk: Some("off".into()),
        trust: Some("on".into()),
        link_state: Some("auto".into()),
        max_tx_rate: Some(10),
    };
    let wanted = [
        VfRequest::Claim(claim),
        VfRequest::Release { vf, force: false },
        VfRequest::Release { vf, force: true },
        VfRequest::Repair,
    ];
    assert_eq!(daemon.asked(), wanted.map(Request::Vf));
}

#[test]
fn a_list_needs_no_daemon() {
    let dir = tempfile::tempdir().expect("tempdir");
    let config = Config { state_dir: dir.path().into(), run_dir: dir.path().into(), ..Config::default() };
    // Whatever this machine has.
    let (_, daemon) = list(&config).expect("listed");
    assert!(!daemon);
}
