use proto::tap::{DataPath, Reply, Request};
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;

use super::*;
use crate::daemon::node::Node;
use crate::daemon::node::tests::node;
use crate::model::PodName;
use crate::tap::tests::{Fake, until};
use crate::volumes::Folder;

const UID: &str = "uid-1";

#[test]
fn a_sandbox_is_not_ready_after_the_node_was_restarted() {
    let boot = Boot::of_test("this");
    let sandbox = crate::api::cri::convert::tests::sandbox();
    for (case, state, made_in, gone) in [
        ("of an earlier boot", SandboxState::Ready, "other", true),
        ("of this boot", SandboxState::Ready, "this", false),
        ("of a release that did not say", SandboxState::Ready, "", false),
        ("stopped before", SandboxState::NotReady, "other", false),
        ("half made: it is undone", SandboxState::Creating, "other", false),
    ] {
        let sandbox = Sandbox { state, boot: made_in.into(), ..sandbox.clone() };
        assert_eq!(has_outlived_its_boot(&sandbox, &boot), gone, "{case}");
    }
}

#[test]
fn a_handler_gives_the_data_path_and_the_queues_that_the_pod_does_not_name() {
    let text = "[handlers.lab]\ndata_path = 'bridge'\ndefault_vcpus = 3";
    let lab: crate::config::Config = toml::from_str(text).expect("parses");
    let lab = lab.handler("lab").defaults;
    let id = "pod".parse().expect("id");
    let attach = |cpus, handler: &MachineDefaults, annotations: &PodAnnotations| {
        let attach = attach_of(&id, &SandboxConfig { cpus, ..config(0) }, annotations, (handler, &[]));
        (attach.data_path, attach.queues)
    };
    let nothing = PodAnnotations::default();
    assert_eq!(attach(None, &lab, &nothing), (Some(DataPath::Bridge), Some(3)));
    assert_eq!(attach(None, &MachineDefaults::default(), &nothing), (None, None));
    let says = PodAnnotations { data_path: Some(DataPath::Macvtap), ..PodAnnotations::default() };
    assert_eq!(attach(Some(2), &lab, &says), (Some(DataPath::Macvtap), Some(2)));
}

#[test]
fn the_default_network_is_asked_for_the_address_that_is_described() {
    let id = "pod".parse().expect("id");
    let attach = |description: &str| {
        let all = [("virtlet.k8s/vm".to_owned(), description.to_owned())];
        let annotations = PodAnnotations::parse(&all.into()).expect(description);
        attach_of(&id, &SandboxConfig { cpus: Some(4), ..config(0) }, &annotations, (&MachineDefaults::default(), &[]))
    };
    let plain = attach(r#"{"v":1,"endsAtReboot":true}"#);
    assert_eq!((plain.networks, plain.queues), (Vec::new(), Some(4)));
    let said =
        r#"{"v":1,"nics":[{"name":"pod","macAddress":"02-00-00-00-00-AB"}],"devices":{"networkMultiQueue":false}}"#;
    let Attach { networks, queues, .. } = attach(said);
    let mac = Some("02:00:00:00:00:ab".parse().expect("an address"));
    assert_eq!((networks, queues), (vec![NetworkAsk { mac, ..NetworkAsk::default() }], Some(1)));
}

#[test]
fn networks_are_asked_for_addresses_that_a_pod_wishes_and_does_not_say() {
    let id = "pod".parse().expect("id");
    let asks = |all: &[(&str, &str)]| {
        let all = all.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        let annotations = PodAnnotations::parse(&all).expect("right");
        let attach = attach_of(&id, &config(0), &annotations, (&MachineDefaults::default(), &[]));
        let shown = |ask: &NetworkAsk| {
            format!("{} {}", ask.mac.map(|mac| mac.to_string()).unwrap_or_default(), ask.mac_is_wish)
        };
        attach.networks.iter().map(shown).collect::<Vec<_>>()
    };
    let wishes = r#"{"eth0":"02:00:00:00:00:01","net1":"02:00:00:00:00:02","lan":"02:00:00:00:00:03"}"#;
    assert_eq!(asks(&[("virtlet.k8s/macs", wishes)]), ["02:00:00:00:00:01 true"]);
    let networks =
        r#"[{"name":"a"},{"name":"b","interface":"lan"},{"name":"c","mac":"02:00:00:00:00:0c"},{"name":"d"}]"#;
    let said = r#"{"v":1,"nics":[{"name":"pod","macAddress":"02:00:00:00:00:ab"}]}"#;
    assert_eq!(
        asks(&[("virtlet.k8s/macs", wishes), ("virtlet.cloud/networks", networks), ("virtlet.k8s/vm", said)]),
        [
            "02:00:00:00:00:ab false",
            "02:00:00:00:00:02 true",
            "02:00:00:00:00:03 true",
            "02:00:00:00:00:0c false",
            " false"
        ]
    );
    assert_eq!(asks(&[("virtlet.k8s/macs", r#"{"net7":"02:00:00:00:00:01"}"#)]), Vec::<String>::new());
}

#[test]
fn the_network_offers_the_host_name_that_the_seed_has() {
    let id = "pod".parse().expect("id");
    let offered = |name: &str, hostname: &str| {
        let config = SandboxConfig { name: name.into(), hostname: hostname.into(), ..config(0) };
        attach_of(&id, &config, &PodAnnotations::default(), (&MachineDefaults::default(), &[])).hostname
    };
    let (long, whole) = ("a".repeat(70), format!("{}.example.com", "a".repeat(52)));
    assert_eq!(offered("vm", "vm-0"), "vm-0");
    assert_eq!(offered(&long, ""), "a".repeat(63));
    assert_eq!(offered("vm", &whole), whole, "a `hostnameOverride` has up to 64 characters");
}

/// A node whose machines are all on record, and a tapmanager that does as it is asked.
struct Fixture {
    _dir: TempDir,
    _fake: Fake,
    node: Node,
    mutex: KeyedMutex,
    sandboxes: Sandboxes,
}

impl Fixture {
    async fn start() -> Self {
        let dir = tempfile::tempdir().expect("tempdir");
        let fake = Fake::told(&dir, |request| match request {
            Request::Detach { .. } => Some(Reply::Detached),
            _ => None,
        });
        let mut node = node(dir.path()).await;
        node.tap = fake.tap();
        node.orphans.found_no_machines();
        let mutex = KeyedMutex::default();
        let containers = Containers::new(node.for_containers(), mutex.clone());
        let sandboxes = Sandboxes::new(node.for_sandboxes(), containers, mutex.clone());
        Self { _dir: dir, _fake: fake, node, mutex, sandboxes }
    }

    /// The next sandbox of the pod.
    async fn run(&self, attempt: u32) -> PodId {
        self.sandboxes.run(config(attempt)).await.expect("made")
    }

    /// That attempt 1 is not made beside this one.
    async fn refused(&self, beside: &PodId) {
        let refused = self.sandboxes.run(config(1)).await.expect_err("another sandbox");
        assert_eq!(refused.kind(), Kind::Exists);
        assert!(refused.to_string().contains(&format!("`{beside}` (attempt 0)")), "{refused}");
    }

    async fn claim(&self) -> Folder {
        let pod = PodName { uid: UID.into(), namespace: "default".into(), name: "web".into() };
        let owner = self.node.orphans.owner(&pod).await.expect("written");
        self.node.for_containers().volumes.claim(&owner).expect("claimed")
    }

    fn folders(&self) -> usize {
        self.node.for_containers().volumes.of_pod(UID).expect("listed").len()
    }

    async fn awaits_disks(&self) {
        until("a call that waits for the disks", || self.mutex.is_contended(&disks_key(UID))).await;
    }
}

fn config(attempt: u32) -> SandboxConfig {
    SandboxConfig {
        name: "web".into(),
        namespace: "default".into(),
        uid: UID.into(),
        attempt,
        ..SandboxConfig::default()
    }
}

#[tokio::test]
async fn a_sandbox_is_the_newest_of_its_pod_after_the_clock_was_set_back() {
    let node = Fixture::start().await;
    let first = node.run(0).await;
    let first = node.node.store.sandbox(&first).expect("on record");
    let ahead = first.created_at + 7_200_000_000_000;
    let first = Sandbox { created_at: ahead, state: SandboxState::NotReady, ..first.as_ref().clone() };
    node.node.store.put_sandbox(first).await.expect("put");
    let second = node.run(1).await;
    assert!(node.node.store.sandbox(&second).expect("on record").created_at > ahead);
}

#[tokio::test]
async fn the_last_sandbox_takes_the_disks_with_it() {
    let node = Fixture::start().await;
    let first = node.run(0).await;
    node.sandboxes.stop(&first).await.expect("stopped");
    let second = node.run(1).await;
    node.claim().await;
    node.sandboxes.remove(&first).await.expect("removed");
    assert_eq!(node.folders(), 1, "they are the pod's");
    node.sandboxes.remove(&second).await.expect("removed");
    assert_eq!(node.folders(), 0);
}

#[tokio::test]
async fn disks_that_are_claimed_while_an_old_sandbox_is_removed_stay() {
    let node = Fixture::start().await;
    let first = node.run(0).await;
    let claiming = node.mutex.lock(disks_key(UID)).await;
    let (sandboxes, id) = (node.sandboxes.clone(), first.clone());
    let removal = tokio::spawn(async move { sandboxes.remove(&id).await });
    node.awaits_disks().await;
    // As `Sandboxes::run` and `Containers::create` do under that lock.
    let second = Sandbox { id: "b".parse().expect("id"), config: config(1), ..first_of(&node, &first) };
    node.node.store.put_sandbox(second).await.expect("put");
    node.claim().await;
    drop(claiming);
    removal.await.expect("no panic").expect("removed");
    assert_eq!(node.folders(), 1, "the other sandbox of the pod goes on with them");
}

#[tokio::test]
async fn a_sandbox_is_not_on_record_amid_the_removal_of_disks_of_its_pod() {
    let node = Fixture::start().await;
    let removing = node.mutex.lock(disks_key(UID)).await;
    let sandboxes = node.sandboxes.clone();
    let made = tokio::spawn(async move { sandboxes.run(config(1)).await });
    node.awaits_disks().await;
    assert_eq!(node.node.store.sandboxes().len(), 0);
    drop(removing);
    made.await.expect("no panic").expect("made");
}

#[tokio::test]
async fn a_stop_gives_up_the_copies_that_hold_the_lock_of_its_pod() {
    let node = Fixture::start().await;
    let id = node.run(0).await;
    for removes in [false, true] {
        let (token, held) = (CancellationToken::new(), node.mutex.lock(id.as_str()).await);
        let _copying = node.sandboxes.underway.copying(&id, token.clone());
        let (sandboxes, of) = (node.sandboxes.clone(), id.clone());
        let ends =
            tokio::spawn(async move { if removes { sandboxes.remove(&of).await } else { sandboxes.stop(&of).await } });
        token.cancelled().await;
        drop(held);
        ends.await.expect("no panic").expect("ended");
    }
}

#[tokio::test]
async fn the_next_attempt_of_a_pod_comes_when_the_one_before_was_stopped() {
    let node = Fixture::start().await;
    let first = node.run(0).await;
    assert_eq!(node.run(0).await, first, "the same again");
    node.refused(&first).await;
    assert_eq!(node.node.store.sandboxes().len(), 1);
    assert_eq!(node.run(0).await, first, "as it was");
    node.sandboxes.stop(&first).await.expect("stopped");
    let second = node.run(1).await;
    assert_ne!(second, first);
    assert_eq!(node.run(1).await, second, "beside the one that was stopped");
}

#[tokio::test]
async fn of_two_attempts_at_the_same_time_one_is_made() {
    let node = Fixture::start().await;
    let (one, other) = tokio::join!(node.sandboxes.run(config(0)), node.sandboxes.run(config(1)));
    let kinds = [one, other].map(|made| made.map_err(|error| error.kind()));
    let made = kinds.iter().filter(|made| made.is_ok()).count();
    assert!(made == 1 && kinds.contains(&Err(Kind::Exists)), "{kinds:?}");
}

#[tokio::test]
async fn what_is_being_made_counts_and_what_an_earlier_life_left_half_made_does_not() {
    let node = Fixture::start().await;
    let first = node.run(0).await;
    let half = Sandbox { state: SandboxState::Creating, ..first_of(&node, &first) };
    node.node.store.put_sandbox(half).await.expect("put");
    node.refused(&first).await;
    let containers = Containers::new(node.node.for_containers(), node.mutex.clone());
    let next_life = Sandboxes::new(node.node.for_sandboxes(), containers, node.mutex.clone());
    next_life.run(config(1)).await.expect("made");
}

#[tokio::test]
async fn pods_without_a_uid_are_not_one_pod() {
    let node = Fixture::start().await;
    for attempt in [0, 1] {
        node.sandboxes.run(SandboxConfig { uid: String::new(), ..config(attempt) }).await.expect("made");
    }
}

fn first_of(node: &Fixture, id: &PodId) -> Sandbox {
    node.node.store.sandbox(id).expect("on record").as_ref().clone()
}
