//! That two encoded lists after each other are the list of both, for every list of CRI. How lists behave when a side is away is in
//! [`crate::proxy::tests`].

use std::collections::HashMap;
use std::fmt::Debug;

use proptest::collection::{hash_map, vec};
use proptest::option;
use proptest::prelude::*;
use prost::Message;
use proto::cri::*;

use super::*;
use crate::proxy::lists::pieces;

fn text() -> impl Strategy<Value = String> {
    ".{0,12}"
}

fn map() -> impl Strategy<Value = HashMap<String, String>> {
    hash_map(text(), text(), 0..4)
}

fn pod() -> impl Strategy<Value = Option<PodSandboxMetadata>> {
    option::of((text(), text(), text(), any::<u32>()).prop_map(|(name, uid, namespace, attempt)| PodSandboxMetadata {
        name,
        uid,
        namespace,
        attempt,
    }))
}

fn spec() -> impl Strategy<Value = Option<ImageSpec>> {
    let spec = (text(), map(), text(), text(), text());
    option::of(spec.prop_map(|(image, annotations, user_specified_image, runtime_handler, image_ref)| ImageSpec {
        image,
        annotations,
        user_specified_image,
        runtime_handler,
        image_ref,
    }))
}

fn number() -> impl Strategy<Value = Option<UInt64Value>> {
    option::of(any::<u64>().prop_map(|value| UInt64Value { value }))
}

fn sandbox() -> impl Strategy<Value = PodSandbox> {
    (text(), pod(), 0..3i32, any::<i64>(), map(), map(), text()).prop_map(
        |(id, metadata, state, created_at, labels, annotations, runtime_handler)| PodSandbox {
            id,
            metadata,
            state,
            created_at,
            labels,
            annotations,
            runtime_handler,
        },
    )
}

fn container_metadata() -> impl Strategy<Value = Option<ContainerMetadata>> {
    option::of((text(), any::<u32>()).prop_map(|(name, attempt)| ContainerMetadata { name, attempt }))
}

fn container() -> impl Strategy<Value = Container> {
    (text(), text(), container_metadata(), spec(), text(), 0..5i32, any::<i64>(), map(), map(), text()).prop_map(
        |(id, pod_sandbox_id, metadata, image, image_ref, state, created_at, labels, annotations, image_id)| {
            Container {
                id,
                pod_sandbox_id,
                metadata,
                image,
                image_ref,
                state,
                created_at,
                labels,
                annotations,
                image_id,
            }
        },
    )
}

fn image() -> impl Strategy<Value = Image> {
    let uid = option::of(any::<i64>().prop_map(|value| Int64Value { value }));
    (text(), vec(text(), 0..3), vec(text(), 0..3), any::<u64>(), uid, text(), spec(), any::<bool>()).prop_map(
        |(id, repo_tags, repo_digests, size, uid, username, spec, pinned)| Image {
            id,
            repo_tags,
            repo_digests,
            size,
            uid,
            username,
            spec,
            pinned,
        },
    )
}

fn container_stats() -> impl Strategy<Value = ContainerStats> {
    let attributes = option::of(
        (text(), container_metadata(), map(), map())
            .prop_map(|(id, metadata, labels, annotations)| ContainerAttributes { id, metadata, labels, annotations }),
    );
    let cpu = option::of((any::<i64>(), number(), number()).prop_map(|(timestamp, used, cores)| CpuUsage {
        timestamp,
        usage_core_nano_seconds: used,
        usage_nano_cores: cores,
        psi: Some(PsiStats {
            full: Some(PsiData { avg10: 0.5, total: 3, ..Default::default() }),
            ..Default::default()
        }),
    }));
    let layer = option::of((text(), number()).prop_map(|(mountpoint, used_bytes)| FilesystemUsage {
        fs_id: Some(FilesystemIdentifier { mountpoint }),
        used_bytes,
        ..Default::default()
    }));
    (attributes, cpu, layer).prop_map(|(attributes, cpu, writable_layer)| ContainerStats {
        attributes,
        cpu,
        writable_layer,
        ..Default::default()
    })
}

fn sandbox_stats() -> impl Strategy<Value = PodSandboxStats> {
    let attributes =
        option::of((text(), pod(), map(), map()).prop_map(|(id, metadata, labels, annotations)| {
            PodSandboxAttributes { id, metadata, labels, annotations }
        }));
    let linux = option::of(
        vec(container_stats(), 0..3).prop_map(|containers| LinuxPodSandboxStats { containers, ..Default::default() }),
    );
    (attributes, linux).prop_map(|(attributes, linux)| PodSandboxStats { attributes, linux, ..Default::default() })
}

fn metric() -> impl Strategy<Value = Metric> {
    (text(), any::<i64>(), 0..2i32, vec(text(), 0..3), number()).prop_map(
        |(name, timestamp, metric_type, label_values, value)| Metric {
            name,
            timestamp,
            metric_type,
            label_values,
            value,
        },
    )
}

fn pod_metrics() -> impl Strategy<Value = PodSandboxMetrics> {
    let containers =
        (text(), vec(metric(), 0..2)).prop_map(|(container_id, metrics)| ContainerMetrics { container_id, metrics });
    (text(), vec(metric(), 0..3), vec(containers, 0..2)).prop_map(|(pod_sandbox_id, metrics, container_metrics)| {
        PodSandboxMetrics { pod_sandbox_id, metrics, container_metrics }
    })
}

fn descriptor() -> impl Strategy<Value = MetricDescriptor> {
    (text(), text(), vec(text(), 0..3)).prop_map(|(name, help, label_keys)| MetricDescriptor { name, help, label_keys })
}

/// Concatenated as they are encoded, the two lists are the encoded list of both, and what decode, merge and encode make of them. Bytes are
/// compared where maps have one order, below. `streamed` is a message of the stream's with these items.
fn agree<L, S, I>(
    one: Vec<I>,
    other: Vec<I>,
    list: fn(Vec<I>) -> L,
    streamed: fn(Vec<I>) -> S,
) -> Result<(), TestCaseError>
where
    L: Message + Default + PartialEq + Debug,
    S: Message + Default + PartialEq + Debug,
    I: Clone,
{
    let (a, b) = (list(one.clone()).encode_to_vec(), list(other.clone()).encode_to_vec());
    let concatenated = Bytes::from([a.clone(), b].concat());
    let merged = list(one.iter().cloned().chain(other.iter().cloned()).collect());
    prop_assert_eq!(&L::decode(concatenated.clone()).expect("a list"), &merged);
    prop_assert_eq!(merged.encoded_len(), concatenated.len());
    let mut decoded = L::decode(&*a).expect("a list");
    decoded.merge(&*list(other.clone()).encode_to_vec()).expect("a list");
    prop_assert_eq!(&decoded, &merged);
    // As pieces of a stream, and collected from one.
    let cut = pieces::of(std::slice::from_ref(&concatenated)).expect("pieces");
    prop_assert_eq!(&Bytes::from(cut.concat()), &concatenated);
    let messages: Vec<_> = cut.into_iter().map(|piece| S::decode(piece).expect("a message")).collect();
    let all = streamed(one.into_iter().chain(other).collect());
    prop_assert_eq!(messages.len(), usize::from(all.encoded_len() > 0));
    if let [message] = &messages[..] {
        prop_assert_eq!(message, &all);
    }
    Ok(())
}

/// With one label at the most there is one order, and bytes can be compared.
fn same_bytes<L: Message, I: Clone>(one: Vec<I>, other: Vec<I>, list: fn(Vec<I>) -> L) -> Result<(), TestCaseError> {
    let concatenated = [list(one.clone()).encode_to_vec(), list(other.clone()).encode_to_vec()].concat();
    prop_assert_eq!(list([one, other].concat()).encode_to_vec(), concatenated);
    Ok(())
}

macro_rules! lists {
    ($($name:ident: $item:ident, $list:ident.$field:ident, $stream:ident.$piece:ident;)*) => {
        proptest! {
            #![proptest_config(ProptestConfig::with_cases(64))]
            $(#[test]
            fn $name(one in vec($item(), 0..5), other in vec($item(), 0..5)) {
                agree(one, other, |$field| $list { $field }, |$piece| $stream { $piece })?;
            })*
        }

        /// No list has been left out here.
        #[test]
        fn all_lists_of_the_protocol_are_above() {
            let proto = include_str!("../../../../proto/cri/api.proto");
            let named = [$(stringify!($list), stringify!($stream)),*];
            for line in proto.lines().map(str::trim).filter(|line| line.starts_with("rpc List") || line.starts_with("rpc Stream")) {
                let answer = line.split_once("returns (").expect("an answer").1.trim_start_matches("stream ");
                let answer = answer.split(')').next().expect("a message");
                assert!(named.contains(&answer) || answer == "ListMetricDescriptorsResponse", "{answer}");
                // One field, repeated, of number 1: what concatenation rests on.
                let body = proto.split(&format!("message {answer} {{")).nth(1).expect("a message").split('}').next().expect("its end");
                let fields: Vec<_> = body.lines().map(str::trim).filter(|line| line.ends_with(';')).collect();
                assert!(matches!(fields[..], [field] if field.starts_with("repeated ") && field.ends_with(" = 1;")), "{answer}: {fields:?}");
            }
        }
    };
}

lists! {
    sandboxes_concatenate: sandbox, ListPodSandboxResponse.items, StreamPodSandboxesResponse.pod_sandboxes;
    containers_concatenate: container, ListContainersResponse.containers, StreamContainersResponse.containers;
    images_concatenate: image, ListImagesResponse.images, StreamImagesResponse.images;
    container_stats_concatenate: container_stats, ListContainerStatsResponse.stats, StreamContainerStatsResponse.container_stats;
    sandbox_stats_concatenate: sandbox_stats, ListPodSandboxStatsResponse.stats, StreamPodSandboxStatsResponse.pod_sandbox_stats;
    metrics_concatenate: pod_metrics, ListPodSandboxMetricsResponse.pod_metrics, StreamPodSandboxMetricsResponse.pod_sandbox_metrics;
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn descriptors_and_metrics_concatenate_to_the_same_bytes(
        one in vec(descriptor(), 0..4),
        other in vec(descriptor(), 0..4),
        metrics in vec(pod_metrics(), 0..4),
        more in vec(pod_metrics(), 0..4),
    ) {
        same_bytes(one, other, |descriptors| ListMetricDescriptorsResponse { descriptors })?;
        same_bytes(metrics, more, |pod_metrics| ListPodSandboxMetricsResponse { pod_metrics })?;
    }

    #[test]
    fn sandboxes_with_one_label_concatenate_to_the_same_bytes(one in vec(sandbox(), 0..5), other in vec(sandbox(), 0..5)) {
        let plain = |all: Vec<PodSandbox>| all.into_iter().map(|sandbox| PodSandbox {
            labels: sandbox.labels.into_iter().take(1).collect(),
            annotations: sandbox.annotations.into_iter().take(1).collect(),
            ..sandbox
        }).collect::<Vec<_>>();
        same_bytes(plain(one), plain(other), |items| ListPodSandboxResponse { items })?;
    }

    /// Status is merged, too: the second's conditions and handlers behind the first's.
    #[test]
    fn statuses_concatenate(names in vec(text(), 0..4), more in vec(text(), 0..4), info in map(), features in any::<bool>()) {
        let of = |names: &[String], info: &HashMap<String, String>| StatusResponse {
            status: Some(RuntimeStatus {
                conditions: names.iter().map(|name| RuntimeCondition { r#type: name.clone(), ..Default::default() }).collect(),
            }),
            runtime_handlers: names.iter().map(|name| RuntimeHandler { name: name.clone(), features: None }).collect(),
            info: info.clone(),
            features: None,
        };
        let mut first = of(&names, &HashMap::new());
        first.features = features.then(RuntimeFeatures::default);
        let both = StatusResponse::decode(&*[first.encode_to_vec(), of(&more, &info).encode_to_vec()].concat()).expect("a status");
        let wanted = StatusResponse { features: first.features, ..of(&[names, more].concat(), &info) };
        prop_assert_eq!(both, wanted);
    }
}
