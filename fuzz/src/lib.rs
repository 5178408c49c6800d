//! What is fuzzed: everything that reads bytes of a guest, a plugin, a client, a pod's user or a source of images.
//!
//! A target is a function of bytes that panics when it finds a fault. `bin fuzz` (`make fuzz`) gives libFuzzer one of
//! them; `cargo test` replays what lies in `corpus/`. An input that once found a fault belongs there, under a name that
//! says which; the rest of a corpus is what libFuzzer's own `-merge=1` left of long runs.

use std::collections::BTreeMap;

use imagestore::provider::exercise;
use proto::agent::{Decoder, encode};
use proto::tap::{PodNet, Reply, Request, decode_reply, decode_request, encode_reply, encode_request};
use vmimage::name::{ImageRef, Query};
use vmspec::annotations::{PodAnnotations, Source};
use vmspec::seed::{ConfigDelivery, SeedInput, SeedKind, Sources, Volume, VolumeFile, assemble, merge};

/// A name, which is that of the corpus too, and what takes the bytes.
pub type Target = (&'static str, fn(&[u8]));

/// All targets.
pub const TARGETS: &[Target] = &[
    ("dhcp4", tapmanager::exercise::dhcp4),
    ("dhcp6", tapmanager::exercise::dhcp6),
    ("neighbours", tapmanager::exercise::neighbours),
    ("cni-result", tapmanager::exercise::cni_result),
    ("device-info", tapmanager::exercise::device_info),
    ("sriov-pool", tapmanager::exercise::sriov_pool),
    ("tap-message", tap_message),
    ("agent", agent),
    ("annotations", annotations),
    ("cloud-config", cloud_config),
    ("kubevirt", kubevirt),
    ("spdy", streaming::spdy::exercise),
    ("websocket", streaming::ws::exercise),
    ("image-name", image_name),
    ("translation", imagestore::exercise_translation),
    ("image-file", vmimage::inspect::exercise),
    ("image-conversion", vmimage::convert::exercise),
    ("compressed", vmimage::decode::exercise),
    ("registry", exercise::oci),
    ("virt-builder-index", exercise::virt_builder),
    ("simplestreams", exercise::simplestreams),
    ("glance", exercise::glance),
    ("lago", exercise::lago),
];

/// The target called `name`.
#[must_use]
pub fn target(name: &str) -> Option<fn(&[u8])> {
    TARGETS.iter().find(|(known, _)| *known == name).map(|(_, run)| *run)
}

/// The name of an image: what was read is shown as something that reads the same, and cannot be a path.
fn image_name(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let Ok(Query::Ref(image)) = text.parse::<Query>() else { return };
    let shown = image.to_string();
    let again: ImageRef = shown.parse().expect("own names can be read");
    assert!(again == image, "not what was read: {image:?}, then {again:?}");
    let is_path = shown.starts_with('/') || shown.split('/').any(|part| part.is_empty() || part == "..");
    assert!(!is_path && shown.chars().all(|c| c.is_ascii_graphic() && c != '%'), "`{shown}`");
}

/// What an agent in a guest sends: whatever is found in it is written as something that reads the same, however it is cut.
fn agent(bytes: &[u8]) {
    let read = |chunk: usize| {
        let mut decoder = Decoder::of_controld();
        let mut frames = Vec::new();
        for part in bytes.chunks(chunk) {
            decoder.extend(part);
            frames.extend(std::iter::from_fn(|| decoder.next_frame()));
        }
        frames
    };
    let frames = read(usize::MAX);
    assert!(read(7) == frames, "cut otherwise it is something else");
    for frame in frames {
        let mut decoder = Decoder::of_controld();
        // What a refusal has that is no UTF-8 becomes longer.
        let Ok(written) = encode(&frame) else { continue };
        decoder.extend(&written);
        assert!(decoder.next_frame() == Some(frame), "not what was read");
    }
}

/// A message of the tap protocol: what could be read is written as something that reads the same.
fn tap_message(bytes: &[u8]) {
    if let Ok(request) = decode_request::<Request>(bytes, 0) {
        let written = encode_request(&request).expect("what came in one packet fits in one");
        let again: Request = decode_request(&written, 0).expect("own requests can be read");
        assert!(again == request, "not what was read: {again:?}");
    }
    if let Ok(Ok(reply)) = decode_reply::<Reply>(bytes, 0) {
        let written = encode_reply(Ok(&reply), 0).expect("what came in one packet fits in one");
        let again = decode_reply::<Reply>(&written, 0).expect("own replies can be read");
        assert!(again.is_ok_and(|again| again == reply), "not what was read: {reply:?}");
    }
}

/// Annotations of a pod, as a JSON object, and the seed that is made of them: both of its files for cloud-init's own
/// parser are JSON, which is YAML, whatever the pod says.
fn annotations(bytes: &[u8]) {
    let Ok(all) = serde_json::from_slice::<BTreeMap<String, String>>(bytes) else { return };
    let annotations = match PodAnnotations::parse(&all) {
        Ok(annotations) => annotations,
        Err(errors) => return drop(errors.to_string()),
    };
    let net: PodNet = serde_json::from_str(NET).expect("a constant network");
    let sources = Sources::default();
    let input = SeedInput { kind: annotations.seed.unwrap_or_default(), ..seed_input(&annotations, &net, &sources) };
    let Ok(seed) = assemble(&input) else { return };
    let is_users = |name: &str| name.ends_with("user-data") || name.ends_with("user_data");
    for (name, content) in seed.files().iter().filter(|(name, _)| !is_users(name)) {
        let parsed: Result<serde_json::Value, _> = serde_json::from_slice(content);
        assert!(parsed.is_ok(), "`{name}` is no JSON: {}", String::from_utf8_lossy(content));
    }
}

/// Two cloud-configs, with a NUL between: the first is a key of a source, the other the pod's own. What comes of both, and of what is made
/// for the pod, is one that has every key of either, and merging it with nothing changes nothing.
fn cloud_config(bytes: &[u8]) {
    let Some(at) = bytes.iter().position(|byte| *byte == 0) else { return };
    let (source, own) = (bytes.get(..at).unwrap_or_default(), bytes.get(at + 1..).unwrap_or_default());
    let Ok(own) = std::str::from_utf8(own) else { return };
    let all = [
        ("VirtletCloudInitUserDataSource", "volume/v"),
        ("VirtletCloudInitUserDataSourceKey", "k"),
        ("VirtletCloudInitUserData", own),
    ];
    let Ok(annotations) = PodAnnotations::parse(&all.map(|(key, value)| (key.to_owned(), value.to_owned())).into())
    else {
        return;
    };
    let net: PodNet = serde_json::from_str(NET).expect("a constant network");
    let file = VolumeFile { bytes: source.to_owned(), mode: 0o644 };
    let volume = Volume([("k".to_owned(), file)].into());
    let sources = Sources { named: [(Source::Volume("v".to_owned()), volume)].into(), ..Sources::default() };
    let env = ["A=1".to_owned()];
    let input = SeedInput { env: &env, ..seed_input(&annotations, &net, &sources) };
    let Ok(seed) = assemble(&input) else { return };
    let files: BTreeMap<&str, &[u8]> = seed.files().into_iter().collect();
    let Some(text) = files.get("user-data").and_then(|text| text.strip_prefix(b"#cloud-config\n")) else { return };
    // One side alone is kept as it was written.
    let Ok(merged) = serde_json::from_slice::<serde_json::Map<String, serde_json::Value>>(text) else { return };
    let is_made = |map: &serde_json::Map<String, serde_json::Value>| {
        map.get("write_files").is_some_and(|files| files.to_string().contains("/etc/cloud/environment"))
    };
    let vendor_data =
        files.get("vendor-data").and_then(|text| serde_json::from_slice(text.strip_prefix(b"#cloud-config\n")?).ok());
    assert!(is_made(&merged) || vendor_data.as_ref().is_some_and(is_made), "what is made for the pod is lost");
    assert!(merge(merged.clone(), serde_json::Map::new()) == merged, "merging with nothing changes it");
}

/// A manifest with objects of KubeVirt's: each is refused, or a pod with annotations that a node takes unless they describe its machine; and
/// what is rewritten stays as it is when it is rewritten again.
fn kubevirt(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let Ok(documents) = kubevirt::read(text) else { return };
    for judged in kubevirt::render(&documents, &kubevirt::render::Options::default()) {
        assert!(!judged.is_refused() || judged.objects.is_empty(), "refused and made: {:?}", judged.findings);
        assert!(!judged.findings.iter().any(|it| it.text.starts_with("cannot be read")), "{:?}", judged.findings);
        for pod in judged.objects.iter().filter(|object| object.pointer("/metadata/labels/virtlet.k8s~1vmi").is_some())
        {
            let Some(all) = pod.pointer("/metadata/annotations") else { continue };
            let all: BTreeMap<String, String> = serde_json::from_value(all.clone()).expect("texts");
            let is_described = all.contains_key("virtlet.k8s/vm");
            assert!(is_described || PodAnnotations::parse(&all).is_ok(), "a node would not take {all:?}");
        }
    }
    for document in &documents {
        let once = kubevirt::convert::convert(document, kubevirt::GROUP);
        for value in &once {
            let Ok(again) = kubevirt::read(&value.to_string()) else { continue };
            let twice = again.iter().flat_map(|again| kubevirt::convert::convert(again, kubevirt::GROUP));
            assert!(again.len() != 1 || twice.eq([value.clone()]), "rewritten once more: {value}");
        }
    }
}

fn seed_input<'a>(annotations: &'a PodAnnotations, net: &'a PodNet, sources: &'a Sources) -> SeedInput<'a> {
    SeedInput {
        pod_name: "pod",
        namespace: "default",
        uid: "00000000-0000-4000-8000-000000000000",
        instance: None,
        hostname: "pod",
        hosts: "",
        annotations,
        net,
        agent: None,
        kind: SeedKind::default(),
        network: annotations.network_config.unwrap_or_default(),
        delivery: ConfigDelivery::default(),
        credentials: false,
        sources,
        env: &[],
        mounts: &[],
        disks: &[],
        has_agent: false,
    }
}

const NET: &str = r#"{
    "netns": "/run/netns/pod",
    "nics": [{
        "name": "eth0", "mac": "02:00:00:77:00:0a", "mtu": 1450, "queues": 1,
        "addresses": ["10.77.0.10/24", "fd00:77::a/64"],
        "routes": [{"dst": "0.0.0.0/0", "gateway": "10.77.0.1"}, {"dst": "::/0", "gateway": "fe80::77"}]
    }],
    "dns": {"servers": ["10.96.0.10"], "searches": ["svc.cluster.test"], "options": []}
}"#;
