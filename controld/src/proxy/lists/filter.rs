//! Which side a filtered list is of, and what a filter lets through of a list that is kept.
//!
//! Both sides evaluate filters themselves, over the whole of what they have. Here a filter is read for its ids, which are of one side, and
//! evaluated over the last good list of a side that is away.

use std::collections::HashMap;

use bytes::Bytes;
use prost::Message as _;
use proto::cri::{Container, ListContainersRequest, ListPodSandboxRequest, PodSandbox};

use super::last_good::Gone;
use crate::proxy::kind::Kind;
use crate::proxy::side::Side;
use crate::proxy::wire::{self, Malformed};

/// Who is asked for a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::proxy) enum Sides {
    Both,
    One(Side),
    /// It asks for something of either that is of the other: there is no such thing.
    None,
}

impl Sides {
    pub(in crate::proxy) fn has(self, side: Side) -> bool {
        self == Self::Both || self == Self::One(side)
    }
}

/// Whose a list is by the ids in its filter. Images have none; their keys are [`crate::proxy::keys`]'.
pub(in crate::proxy) fn sides(kind: Kind, request: &[u8]) -> Result<Sides, Malformed> {
    let ids: &[[u32; 2]] = match kind {
        Kind::Sandboxes | Kind::SandboxStats => &[[1, 1]],
        Kind::Containers => &[[1, 1], [1, 3]],
        Kind::ContainerStats => &[[1, 1], [1, 2]],
        Kind::Images | Kind::Metrics => &[],
    };
    let mut found = Sides::Both;
    for path in ids {
        let id = wire::text(request, path)?;
        if id.is_empty() {
            continue;
        }
        found = match (found, Side::of_id(id)) {
            (Sides::Both, side) => Sides::One(side),
            (Sides::One(other), side) if other == side => found,
            _ => Sides::None,
        };
    }
    Ok(found)
}

/// Whether a request asks for all that there is.
pub(in crate::proxy) fn is_whole(kind: Kind, request: &[u8]) -> Result<bool, Malformed> {
    let path: &[u32] = if kind == Kind::Images { &[1, 1] } else { &[1] };
    Ok(!wire::is_there(request, path)?)
}

/// Of the items of a kept list those that `request` asks for and that are not gone, as they were encoded.
pub(super) fn kept(kind: Kind, request: &[u8], list: Vec<Bytes>, gone: &Gone) -> Result<Vec<Bytes>, Malformed> {
    let wanted = Wanted::read(kind, request)?;
    let mut kept = Vec::new();
    for item in list {
        let content = wire::content(&item)?;
        if !gone.has(kind, content)? && wanted.lets_through(content)? {
            kept.push(item);
        }
    }
    Ok(kept)
}

/// A filter, decoded.
#[derive(Debug)]
enum Wanted {
    All,
    Sandboxes { id: String, state: Option<i32>, labels: HashMap<String, String> },
    Containers { id: String, sandbox: String, state: Option<i32>, labels: HashMap<String, String> },
}

impl Wanted {
    fn read(kind: Kind, request: &[u8]) -> Result<Self, Malformed> {
        let wanted = match kind {
            Kind::Sandboxes => {
                let filter = ListPodSandboxRequest::decode(request).map_err(|_| Malformed)?.filter;
                filter.map(|filter| Self::Sandboxes {
                    id: filter.id,
                    state: filter.state.map(|state| state.state),
                    labels: filter.label_selector,
                })
            }
            Kind::Containers => {
                let filter = ListContainersRequest::decode(request).map_err(|_| Malformed)?.filter;
                filter.map(|filter| Self::Containers {
                    id: filter.id,
                    sandbox: filter.pod_sandbox_id,
                    state: filter.state.map(|state| state.state),
                    labels: filter.label_selector,
                })
            }
            // containerd passes over the filter of images, and kubelet never sends one.
            Kind::Images | Kind::ContainerStats | Kind::SandboxStats | Kind::Metrics => None,
        };
        Ok(wanted.unwrap_or(Self::All))
    }

    fn lets_through(&self, item: &[u8]) -> Result<bool, Malformed> {
        let has = |labels: &HashMap<String, String>, wanted: &HashMap<String, String>| {
            wanted.iter().all(|(key, value)| labels.get(key) == Some(value))
        };
        Ok(match self {
            Self::All => true,
            Self::Sandboxes { id, state, labels } => {
                let item = PodSandbox::decode(item).map_err(|_| Malformed)?;
                item.id.starts_with(id) && state.is_none_or(|state| item.state == state) && has(&item.labels, labels)
            }
            Self::Containers { id, sandbox, state, labels } => {
                let item = Container::decode(item).map_err(|_| Malformed)?;
                item.id.starts_with(id)
                    && item.pod_sandbox_id.starts_with(sandbox)
                    && state.is_none_or(|state| item.state == state)
                    && has(&item.labels, labels)
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use proto::cri::*;

    use super::*;

    fn vm() -> String {
        format!("vm{}", "0".repeat(62))
    }

    fn containers(id: &str, pod_sandbox_id: &str) -> Vec<u8> {
        let filter = ContainerFilter { id: id.into(), pod_sandbox_id: pod_sandbox_id.into(), ..Default::default() };
        ListContainersRequest { filter: Some(filter) }.encode_to_vec()
    }

    #[test]
    fn a_filter_with_an_id_is_one_sides_and_two_of_different_sides_have_nothing() {
        let (vm, c) = (&*vm(), "ab12");
        for (id, sandbox, wanted) in [
            ("", "", Sides::Both),
            (vm, "", Sides::One(Side::Ours)),
            (c, "", Sides::One(Side::Default)),
            ("", vm, Sides::One(Side::Ours)),
            (vm, vm, Sides::One(Side::Ours)),
            (c, c, Sides::One(Side::Default)),
            (vm, c, Sides::None),
            (c, vm, Sides::None),
        ] {
            assert_eq!(sides(Kind::Containers, &containers(id, sandbox)), Ok(wanted), "{id} {sandbox}");
            let filter = ContainerStatsFilter { id: id.into(), pod_sandbox_id: sandbox.into(), ..Default::default() };
            let stats = ListContainerStatsRequest { filter: Some(filter) }.encode_to_vec();
            assert_eq!(sides(Kind::ContainerStats, &stats), Ok(wanted));
        }
        let filter = Some(PodSandboxFilter { id: vm.into(), ..Default::default() });
        assert_eq!(
            sides(Kind::Sandboxes, &ListPodSandboxRequest { filter }.encode_to_vec()),
            Ok(Sides::One(Side::Ours))
        );
        let filter = Some(PodSandboxStatsFilter { id: c.into(), ..Default::default() });
        let stats = ListPodSandboxStatsRequest { filter }.encode_to_vec();
        assert_eq!(sides(Kind::SandboxStats, &stats), Ok(Sides::One(Side::Default)));
        assert!(sides(Kind::Containers, &[0x0a, 9]).is_err());
    }

    /// kubelet asks so for the list that is kept.
    #[test]
    fn an_empty_filter_is_none_and_a_state_is_one() {
        for (request, whole) in [
            (ListContainersRequest { filter: None }, true),
            (ListContainersRequest { filter: Some(ContainerFilter::default()) }, true),
            // READY and CREATED are zero: a message that is there and empty.
            (
                ListContainersRequest {
                    filter: Some(ContainerFilter { state: Some(Default::default()), ..Default::default() }),
                },
                false,
            ),
            (
                ListContainersRequest {
                    filter: Some(ContainerFilter {
                        label_selector: [("a".into(), "b".into())].into(),
                        ..Default::default()
                    }),
                },
                false,
            ),
        ] {
            assert_eq!(is_whole(Kind::Containers, &request.encode_to_vec()), Ok(whole), "{request:?}");
        }
        let images = |spec| ListImagesRequest { filter: Some(ImageFilter { image: Some(spec) }) }.encode_to_vec();
        assert_eq!(is_whole(Kind::Images, &images(ImageSpec::default())), Ok(true), "as crictl sends it");
        assert_eq!(is_whole(Kind::Images, &images(ImageSpec { image: "x".into(), ..Default::default() })), Ok(false));
    }

    #[test]
    fn a_kept_list_is_filtered_as_its_side_would() {
        let container = |id: &str, sandbox: &str, state: ContainerState, label: &str| Container {
            id: id.into(),
            pod_sandbox_id: sandbox.into(),
            state: state.into(),
            labels: [("pod".to_owned(), label.to_owned())].into(),
            ..Default::default()
        };
        use ContainerState::{ContainerCreated as Created, ContainerRunning as Running};
        let all = vec![
            container("a1", "s1", Created, "x"),
            container("a2", "s1", Running, "x"),
            container("b1", "s2", Running, "y"),
        ];
        let raw = Bytes::from(ListContainersResponse { containers: all }.encode_to_vec());
        let ids = |filter: ContainerFilter| {
            let request = ListContainersRequest { filter: Some(filter) }.encode_to_vec();
            let kept =
                kept(Kind::Containers, &request, wire::items(&raw).expect("items"), &Gone::default()).expect("kept");
            let list = ListContainersResponse::decode(&*kept.concat()).expect("a list").containers;
            list.into_iter().map(|container| container.id).collect::<Vec<_>>().join(" ")
        };
        let state = |state: ContainerState| Some(ContainerStateValue { state: state.into() });
        assert_eq!(ids(ContainerFilter::default()), "a1 a2 b1");
        assert_eq!(ids(ContainerFilter { state: state(Created), ..Default::default() }), "a1");
        assert_eq!(
            ids(ContainerFilter { pod_sandbox_id: "s1".into(), state: state(Running), ..Default::default() }),
            "a2"
        );
        assert_eq!(
            ids(ContainerFilter { label_selector: [("pod".into(), "y".into())].into(), ..Default::default() }),
            "b1"
        );
        assert_eq!(
            ids(ContainerFilter { label_selector: [("pot".into(), "y".into())].into(), ..Default::default() }),
            ""
        );
        assert_eq!(ids(ContainerFilter { id: "a".into(), ..Default::default() }), "a1 a2");
    }
}
