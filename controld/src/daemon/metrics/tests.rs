//! The text of scrapes, of made-up figures and of a real store.

mod alerts;

use proto::tap::{PfSummary, Reply, Request, VfPage, VfRequest};
use vmspec::plan::Layer;

use super::filesystems::Room;
use super::networks::Known;
use super::*;
use crate::images::PullCounts;
use crate::tap::tests::Fake;

fn facts() -> Facts {
    let pulls = PullCounts { started: 10, changed: 4, unchanged: 3, failed: 2, abandoned: 1, bytes: 5 << 30 };
    Facts {
        version: "1.2.3",
        images: [("virtlet".into(), 2), ("vm-arm64".into(), 0)].into(),
        pulls: vec![("virtlet".into(), pulls), ("vm-arm64".into(), PullCounts::default())],
        downloads: [("waiting", 2), ("running", 1)].into(),
        store_bytes: 3 << 30,
        unused_bytes: 1 << 30,
        sandboxes: [("creating", 0), ("ready", 2), ("not_ready", 1)].into(),
        machines: [("created", 0), ("starting", 0), ("running", 2), ("uncertain", 0), ("exited", 1)].into(),
        accelerators: [("kvm", 0), ("qemu", 1)].into(),
        emulated_unwanted: true,
        paused: [("disk_full", 1), ("by_hand", 0)].into(),
        reboots: 5,
        orphans: [("machine", 0), ("disk", 2)].into(),
        transactions: 17,
        writing: 0.25,
        failed_writes: 3,
        log_bytes: 4096,
        writable: true,
        libvirt: false,
        libvirt_calls: [("quick", 0), ("starts", 4)].into(),
        tap_requests: [("makes", 3)].into(),
        pfs: vec![pf()],
        networks: Known {
            ready: true,
            plugins: Some(2.5),
            phases: [("attaching", 1), ("attached", 4), ("detaching", 0)].into(),
            troubled: [("attaching", 0), ("attached", 1), ("detaching", 0)].into(),
        },
        rooms: [("images", Room { size: 1 << 40, free: 1 << 38 }), ("state", Room { size: 1 << 30, free: 0 })].into(),
    }
}

fn pf() -> PfSummary {
    PfSummary {
        pf: "0000:3b:00.0".parse().expect("address"),
        netdevs: vec!["ens1f0".into()],
        driver: Some("ice".into()),
        total: 64,
        enabled: 8,
        used: 3,
        failed: 2,
        autoprobe: Some(true),
    }
}

/// Others hold on to these names: a change here is a change for them.
#[test]
fn the_text_of_a_scrape() {
    insta::assert_snapshot!(text(&registry(facts())).expect("written"), @r##"
    # HELP virtlet_build Version of controld
    # TYPE virtlet_build info
    virtlet_build_info{version="1.2.3"} 1
    # HELP virtlet_images Images by the runtime handler that they were pulled for
    # TYPE virtlet_images gauge
    virtlet_images{handler="virtlet"} 2
    virtlet_images{handler="vm-arm64"} 0
    # HELP virtlet_image_store_bytes Bytes on the disk of all images, without downloads under way
    # TYPE virtlet_image_store_bytes gauge
    # UNIT virtlet_image_store_bytes bytes
    virtlet_image_store_bytes 3221225472
    # HELP virtlet_image_store_unused_bytes Bytes on the disk of images that no container's disk stands on
    # TYPE virtlet_image_store_unused_bytes gauge
    # UNIT virtlet_image_store_unused_bytes bytes
    virtlet_image_store_unused_bytes 1073741824
    # HELP virtlet_image_pulls_started Requests to pull an image
    # TYPE virtlet_image_pulls_started counter
    virtlet_image_pulls_started_total{handler="virtlet"} 10
    virtlet_image_pulls_started_total{handler="vm-arm64"} 0
    # HELP virtlet_image_pulls_ended Requests to pull an image that came to an end. Changed: the name means another image than before, or did not mean any. Abandoned: whoever asked is gone
    # TYPE virtlet_image_pulls_ended counter
    virtlet_image_pulls_ended_total{handler="virtlet",outcome="changed"} 4
    virtlet_image_pulls_ended_total{handler="virtlet",outcome="unchanged"} 3
    virtlet_image_pulls_ended_total{handler="virtlet",outcome="failed"} 2
    virtlet_image_pulls_ended_total{handler="virtlet",outcome="abandoned"} 1
    virtlet_image_pulls_ended_total{handler="vm-arm64",outcome="changed"} 0
    virtlet_image_pulls_ended_total{handler="vm-arm64",outcome="unchanged"} 0
    virtlet_image_pulls_ended_total{handler="vm-arm64",outcome="failed"} 0
    virtlet_image_pulls_ended_total{handler="vm-arm64",outcome="abandoned"} 0
    # HELP virtlet_image_pulls_downloaded_bytes Bytes that pulls downloaded, with those of an earlier attempt that a download went on with
    # TYPE virtlet_image_pulls_downloaded_bytes counter
    # UNIT virtlet_image_pulls_downloaded_bytes bytes
    virtlet_image_pulls_downloaded_bytes_total{handler="virtlet"} 5368709120
    virtlet_image_pulls_downloaded_bytes_total{handler="vm-arm64"} 0
    # HELP virtlet_image_downloads Downloads of images that run, or wait until another one has ended
    # TYPE virtlet_image_downloads gauge
    virtlet_image_downloads{state="running"} 1
    virtlet_image_downloads{state="waiting"} 2
    # HELP virtlet_sandboxes Pod sandboxes by state
    # TYPE virtlet_sandboxes gauge
    virtlet_sandboxes{state="creating"} 0
    virtlet_sandboxes{state="not_ready"} 1
    virtlet_sandboxes{state="ready"} 2
    # HELP virtlet_machines Machines by the state of their containers
    # TYPE virtlet_machines gauge
    virtlet_machines{state="created"} 0
    virtlet_machines{state="exited"} 1
    virtlet_machines{state="running"} 2
    virtlet_machines{state="starting"} 0
    virtlet_machines{state="uncertain"} 0
    # HELP virtlet_accelerator 1 for the accelerator of new machines, once it is known
    # TYPE virtlet_accelerator gauge
    virtlet_accelerator{accelerator="kvm"} 0
    virtlet_accelerator{accelerator="qemu"} 1
    # HELP virtlet_emulated_unwanted 1 if new machines are emulated, and slow, although KVM is wanted and there is a device for it
    # TYPE virtlet_emulated_unwanted gauge
    virtlet_emulated_unwanted 1
    # HELP virtlet_machines_paused Running machines whose guests are paused
    # TYPE virtlet_machines_paused gauge
    virtlet_machines_paused{reason="by_hand"} 0
    virtlet_machines_paused{reason="disk_full"} 1
    # HELP virtlet_guest_reboots Reboots of guests since the start of controld; their containers run on
    # TYPE virtlet_guest_reboots counter
    virtlet_guest_reboots_total 5
    # HELP virtlet_orphans Things of ours whose owner is not known, which are kept
    # TYPE virtlet_orphans gauge
    virtlet_orphans{kind="disk"} 2
    virtlet_orphans{kind="machine"} 0
    # HELP virtlet_database_transactions Transactions of the database since it was made
    # TYPE virtlet_database_transactions counter
    virtlet_database_transactions_total 17
    # HELP virtlet_database_writing_seconds Time that transactions of the database took since the start of controld
    # TYPE virtlet_database_writing_seconds counter
    # UNIT virtlet_database_writing_seconds seconds
    virtlet_database_writing_seconds_total 0.25
    # HELP virtlet_database_writes_failed Transactions of the database that failed since the start of controld
    # TYPE virtlet_database_writes_failed counter
    virtlet_database_writes_failed_total 3
    # HELP virtlet_database_log_bytes Bytes of the log beside the database, which has what is not in it yet
    # TYPE virtlet_database_log_bytes gauge
    # UNIT virtlet_database_log_bytes bytes
    virtlet_database_log_bytes 4096
    # HELP virtlet_database_writable 1 if the database could be written when it last had to be
    # TYPE virtlet_database_writable gauge
    virtlet_database_writable 1
    # HELP virtlet_libvirt_connected 1 if controld is connected to libvirt
    # TYPE virtlet_libvirt_connected gauge
    virtlet_libvirt_connected 0
    # HELP virtlet_libvirt_calls_running Calls to libvirt under way; those that wait for a place are not in it
    # TYPE virtlet_libvirt_calls_running gauge
    virtlet_libvirt_calls_running{lane="quick"} 0
    virtlet_libvirt_calls_running{lane="starts"} 4
    # HELP virtlet_tapmanager_requests_running Requests to tapmanager under way; those that wait for a place are not in it
    # TYPE virtlet_tapmanager_requests_running gauge
    virtlet_tapmanager_requests_running{lane="makes"} 3
    # HELP virtlet_tapmanager_ready 1 if tapmanager answers, and a pod could be given a network
    # TYPE virtlet_tapmanager_ready gauge
    virtlet_tapmanager_ready 1
    # HELP virtlet_pod_networks Networks of pods at tapmanager, by phase
    # TYPE virtlet_pod_networks gauge
    virtlet_pod_networks{phase="attached"} 4
    virtlet_pod_networks{phase="attaching"} 1
    virtlet_pod_networks{phase="detaching"} 0
    # HELP virtlet_pod_networks_in_trouble Those of them that are of no use to their guests, or cannot be taken away
    # TYPE virtlet_pod_networks_in_trouble gauge
    virtlet_pod_networks_in_trouble{phase="attached"} 1
    virtlet_pod_networks_in_trouble{phase="attaching"} 0
    virtlet_pod_networks_in_trouble{phase="detaching"} 0
    # HELP virtlet_cni_plugins_running_seconds Time that CNI plugins ran since the start of tapmanager
    # TYPE virtlet_cni_plugins_running_seconds counter
    # UNIT virtlet_cni_plugins_running_seconds seconds
    virtlet_cni_plugins_running_seconds_total 2.5
    # HELP virtlet_filesystem_free_bytes Bytes on the file system of a directory that anybody may still use
    # TYPE virtlet_filesystem_free_bytes gauge
    # UNIT virtlet_filesystem_free_bytes bytes
    virtlet_filesystem_free_bytes{dir="images"} 274877906944
    virtlet_filesystem_free_bytes{dir="state"} 0
    # HELP virtlet_filesystem_size_bytes Bytes of the file system of a directory
    # TYPE virtlet_filesystem_size_bytes gauge
    # UNIT virtlet_filesystem_size_bytes bytes
    virtlet_filesystem_size_bytes{dir="images"} 1099511627776
    virtlet_filesystem_size_bytes{dir="state"} 1073741824
    # HELP virtlet_sriov_vfs_most Virtual functions that a physical one can have
    # TYPE virtlet_sriov_vfs_most gauge
    virtlet_sriov_vfs_most{pf="0000:3b:00.0",netdev="ens1f0"} 64
    # HELP virtlet_sriov_vfs Virtual functions that there are
    # TYPE virtlet_sriov_vfs gauge
    virtlet_sriov_vfs{pf="0000:3b:00.0",netdev="ens1f0"} 8
    # HELP virtlet_sriov_vfs_used Virtual functions that are claimed for pods or by hand
    # TYPE virtlet_sriov_vfs_used gauge
    virtlet_sriov_vfs_used{pf="0000:3b:00.0",netdev="ens1f0"} 3
    # HELP virtlet_sriov_claims_failed Claims of virtual functions that failed since the start of tapmanager
    # TYPE virtlet_sriov_claims_failed counter
    virtlet_sriov_claims_failed_total{pf="0000:3b:00.0",netdev="ens1f0"} 2
    # EOF
    "##);
}

#[test]
fn the_document_has_every_metric() {
    let document = include_str!("../../../../docs/configuration.md");
    let mut registry = registry(facts());
    crate::store::moments::Moments::default().register(&mut registry);
    Tally::default().register(&mut registry);
    let text = text(&registry).expect("written");
    for sample in text.lines().filter(|line| !line.starts_with('#')) {
        let name = sample.split(['{', ' ']).next().unwrap_or_default();
        let histogram = ["_bucket", "_count", "_sum"].into_iter().find_map(|suffix| name.strip_suffix(suffix));
        let told = histogram.map_or_else(|| format!("| `{name}` |"), |name| format!("| `{name}` (histogram) |"));
        assert!(document.contains(&told), "`{name}` is not in the document");
    }
}

/// As OpenMetrics wants it: each sample below the type of its own metric, every metric with its help, no series twice,
/// units and counters by their suffixes, an end.
#[test]
fn every_line_is_of_openmetrics() {
    let text = text(&registry(facts())).expect("written");
    let lines = text.strip_suffix("# EOF\n").expect("an end").lines();
    let (mut name, mut kind, mut helped, mut seen) = ("", "", "", std::collections::BTreeSet::new());
    for line in lines {
        match line.split(' ').collect::<Vec<_>>()[..] {
            ["#", "HELP", of, _, ..] => helped = of,
            ["#", "TYPE", of, is] => {
                assert_eq!(of, helped, "{line}");
                assert!(seen.insert(line), "{line}: once more");
                (name, kind) = (of, is);
            }
            ["#", "UNIT", of, unit] => assert!(of == name && name.ends_with(&format!("_{unit}")), "{line}"),
            [series, value] => {
                let sample = series.split('{').next().unwrap_or_default();
                let suffix = match kind {
                    "counter" => "_total",
                    "info" => "_info",
                    _ => "",
                };
                assert_eq!(sample, format!("{name}{suffix}"), "{line}");
                assert!(seen.insert(series), "{line}: once more");
                assert!(value.parse::<f64>().is_ok(), "{line}");
                assert!(name.starts_with("virtlet_"), "{line}");
            }
            _ => panic!("{line}"),
        }
    }
    assert!(seen.len() > 20, "{seen:?}");
}

#[tokio::test]
async fn a_scrape_tells_what_is_so_now() {
    let root = tempfile::tempdir().expect("a directory");
    let images = crate::api::admin::tests::images(root.path());
    let records = Store::open(&root.path().join("meta.redb")).expect("opened");
    let accel = AcceleratorChoice::new(&crate::config::Config::default(), records.clone());
    let orphans = Arc::default();
    let nobody = format!("qemu+unix:///system?socket={}", root.path().join("no.sock").display());
    let (hypervisor, _events) = Hypervisor::connect(&nobody, std::time::Duration::from_secs(1));
    let tap = Tap::new(root.path().join("no.sock"), std::time::Duration::from_secs(1));
    let sources = Sources {
        version: "1.2.3",
        images: images.clone(),
        records: records.clone(),
        accel,
        reboots: Arc::default(),
        checkpoints: Tally::default(),
        orphans,
        hypervisor,
        tap,
        functions: Functions::default(),
        networks: Networks::default(),
        filesystems: FileSystems::new(root.path().to_owned(), root.path().to_owned()),
    };
    let registry = registry(sources);
    let value = |series: &str| {
        let text = text(&registry).expect("written");
        let found = text.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' ')?.parse::<u64>().ok());
        found.unwrap_or_else(|| panic!("no {series} in\n{text}"))
    };
    let of = |handler: &str| value(&format!("virtlet_images{{handler=\"{handler}\"}}"));
    let ended = |handler: &str, outcome: &str| {
        value(&format!("virtlet_image_pulls_ended_total{{handler=\"{handler}\",outcome=\"{outcome}\"}}"))
    };
    let pull = |name: &str, handler: &str| {
        let request = imagestore::PullRequest { name: name.into(), handler: handler.into(), ..Default::default() };
        images.pull(request)
    };
    assert_eq!((of("virtlet"), of("arm"), value("virtlet_image_store_bytes")), (0, 0, 0));
    pull("disk", "").await.expect("pulled");
    pull("disk", "").await.expect("pulled again");
    pull("disk", "arm").await.expect("pulled");
    pull("absent", "arm").await.expect_err("not there");
    pull("disk", "no-such").await.expect_err("no handler");
    assert_eq!((of("virtlet"), of("arm")), (1, 1));
    assert_eq!((ended("virtlet", "changed"), ended("virtlet", "unchanged")), (1, 1));
    assert_eq!((ended("arm", "changed"), ended("arm", "failed")), (1, 1));
    assert_eq!(value("virtlet_image_pulls_started_total{handler=\"arm\"}"), 2);
    let bytes = |handler: &str| value(&format!("virtlet_image_pulls_downloaded_bytes_total{{handler=\"{handler}\"}}"));
    assert!(bytes("virtlet") >= 4096, "{}", bytes("virtlet"));
    // One file, however many names it has, and no machine has it yet.
    let image = images.list("disk", "arm").expect("listed").remove(0);
    let space = || (value("virtlet_image_store_bytes"), value("virtlet_image_store_unused_bytes"));
    assert_eq!(space(), (image.size, image.size));
    let mut container = crate::api::cri::convert::tests::container();
    container.machine.root.images = vec![Layer { path: image.path.clone(), format: "qcow2".into() }];
    records.put_container(container.clone()).await.expect("put");
    assert!(!records.writing().is_zero(), "a transaction takes time");
    assert_eq!((value("virtlet_database_writes_failed_total"), value("virtlet_database_log_bytes")), (0, 0));
    assert_eq!(space(), (image.size, 0));
    assert_eq!(value("virtlet_machines{state=\"exited\"}"), 1);
    records.remove_container(container.id).await.expect("removed");
    assert_eq!(value("virtlet_machines{state=\"exited\"}"), 0);
    images.remove("disk", "arm").await.expect("removed");
    assert_eq!((of("virtlet"), of("arm")), (1, 0));
    assert_eq!(images.per_other_handler(), [("arm".into(), 0)].into());
    images.remove("disk", "").await.expect("removed");
    assert_eq!((of("virtlet"), value("virtlet_image_store_bytes")), (0, 0));
}

#[tokio::test]
async fn physical_functions_are_known_as_long_as_tapmanager_answers() {
    let dir = tempfile::tempdir().expect("tempdir");
    let fake = Fake::told(&dir, |request| {
        matches!(request, Request::Vf(VfRequest::List { after: None }))
            .then(|| Reply::Vfs(VfPage { pfs: vec![pf()], ..VfPage::default() }))
    });
    let functions = Functions::default();
    functions.ask(&fake.tap()).await;
    assert_eq!(functions.known(), [pf()]);
    functions.ask(&Tap::new(dir.path().join("no.sock"), std::time::Duration::from_secs(1))).await;
    assert_eq!(functions.known(), []);
}
