//! What the server says that it has: to kubectl's discovery, in both of its forms, and to clients that ask for its version. Pure.

use hyper::header::{ACCEPT, HeaderMap};
use serde_json::{Value, json};

use crate::group::{Group, VERSION};
use crate::verbs::{INSTANCES, MACHINES, VERBS, Verb, group};

/// The newer form of discovery, by its versions, the better first.
const AGGREGATED: [&str; 2] = ["v2", "v2beta1"];

/// The list of groups, in the form that a client asks for, and its type.
pub(super) fn groups(ours: Group, headers: &HeaderMap) -> (String, Value) {
    match aggregated(headers) {
        Some(version) => {
            let content = format!("application/json;g=apidiscovery.k8s.io;v={version};as=APIGroupDiscoveryList");
            (content, in_one(ours, version))
        }
        None => (
            "application/json".to_owned(),
            json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": [bare_group(ours)]}),
        ),
    }
}

/// The first version of the newer form that a client takes.
fn aggregated(headers: &HeaderMap) -> Option<&'static str> {
    let lines = headers.get_all(ACCEPT).iter().filter_map(|line| line.to_str().ok());
    let mut types = lines.flat_map(|line| line.split(','));
    types.find_map(|one| {
        let words: Vec<&str> = one.split(';').map(str::trim).collect();
        let is_ours = words.first() == Some(&"application/json")
            && words.contains(&"g=apidiscovery.k8s.io")
            && words.contains(&"as=APIGroupDiscoveryList");
        let version = words.iter().find_map(|word| word.strip_prefix("v="))?;
        AGGREGATED.into_iter().find(|known| is_ours && *known == version)
    })
}

/// The group.
pub(super) fn group_of(ours: Group) -> Value {
    let mut group = bare_group(ours);
    group["kind"] = "APIGroup".into();
    group["apiVersion"] = "v1".into();
    group
}

fn bare_group(ours: Group) -> Value {
    let group = group(ours);
    let version = json!({"groupVersion": format!("{group}/{VERSION}"), "version": VERSION});
    json!({"name": group, "versions": [version], "preferredVersion": version})
}

/// What is in the group.
pub(super) fn resources(ours: Group) -> Value {
    let resources: Vec<Value> = VERBS
        .iter()
        .map(|verb| {
            json!({
                "name": verb.resource(), "singularName": "", "namespaced": true, "kind": verb.kind(), "group": ours.name(),
                "version": VERSION, "verbs": [verb.right()],
            })
        })
        .collect();
    let version = format!("{}/{VERSION}", group(ours));
    json!({"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": version, "resources": resources})
}

/// All of it in one answer.
fn in_one(ours: Group, version: &str) -> Value {
    let subresource = |verb: &Verb| {
        let kind = json!({"group": ours.name(), "version": VERSION, "kind": verb.kind()});
        json!({"subresource": verb.name, "responseKind": kind, "verbs": [verb.right()]})
    };
    let resources = [MACHINES, INSTANCES].map(|plural| {
        let all: Vec<Value> = VERBS.iter().filter(|verb| verb.of == plural).map(subresource).collect();
        let singular = plural.trim_end_matches('s');
        json!({"resource": plural, "scope": "Namespaced", "singularResource": singular, "verbs": [], "subresources": all})
    });
    json!({
        "kind": "APIGroupDiscoveryList", "apiVersion": format!("apidiscovery.k8s.io/{version}"), "metadata": {},
        "items": [{
            "metadata": {"name": group(ours), "creationTimestamp": null},
            "versions": [{"version": VERSION, "resources": resources, "freshness": "Current"}],
        }],
    })
}

/// Schemas: none. Without an answer the API server asks again and again.
pub(super) fn open_api(of: u8, release: &str) -> Value {
    if of == 2 {
        return json!({"swagger": "2.0", "info": {"title": "virtlet-operator", "version": release}, "paths": {}});
    }
    json!({"paths": {}})
}

/// The release, as `virtctl version` reads it.
pub(super) fn version(release: &str) -> Value {
    let (_, commit) = release.split_once('+').unwrap_or_default();
    json!({
        "gitVersion": format!("v{release}"), "gitCommit": commit, "gitTreeState": "", "buildDate": "", "goVersion": "",
        "compiler": "rustc", "platform": "linux",
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn accept(text: &'static str) -> HeaderMap {
        [(ACCEPT, hyper::header::HeaderValue::from_static(text))].into_iter().collect()
    }

    #[test]
    fn what_clients_are_told() {
        let told =
            [group_of(Group::KubeVirt), resources(Group::KubeVirt), in_one(Group::Virtlet, "v2"), version("1.2.3+abc")];
        insta::assert_snapshot!(crate::install::yaml(&told).expect("YAML"));
    }

    #[test]
    fn the_form_is_the_one_that_is_asked_for() {
        // As kube-apiserver 1.36 asks, and as older ones do.
        let new = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList,application/json";
        let old = "application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList,application/json;q=0.9";
        for (asked, kind, version) in [
            (new, "APIGroupDiscoveryList", "apidiscovery.k8s.io/v2"),
            (old, "APIGroupDiscoveryList", "apidiscovery.k8s.io/v2beta1"),
            ("application/json;g=apidiscovery.k8s.io;v=v9;as=APIGroupDiscoveryList", "APIGroupList", "v1"),
            ("application/json", "APIGroupList", "v1"),
        ] {
            let (content, told) = groups(Group::KubeVirt, &accept(asked));
            assert_eq!((&told["kind"], &told["apiVersion"]), (&json!(kind), &json!(version)), "{asked}");
            assert_eq!(content.contains("as="), kind != "APIGroupList");
        }
        assert_eq!(groups(Group::KubeVirt, &HeaderMap::new()).1["kind"], "APIGroupList");
    }
}
