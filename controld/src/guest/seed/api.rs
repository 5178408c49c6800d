//! Reads ConfigMaps and Secrets of a pod's namespace by the cluster's API, where the node is given a way to it.
//!
//! Each time anew, and nothing is kept: what was read is in the seed, and in nothing else. The server decides what the node may read.
//! With kubelet's credentials it gives only objects that the spec of a pod on this node refers to; a name in an annotation does not count.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::{Api, Client};
use tokio::time::{sleep, timeout};
use vmspec::annotations::{PodAnnotations, Source};
use vmspec::error::{Error, Kind, Result};
use vmspec::seed::{Objects, Volume, VolumeFile};

use crate::cluster;

/// For all objects of a pod. kubelet waits two minutes for a request unless it is told otherwise.
const DEADLINE: Duration = Duration::from_secs(30);
/// Until a server is asked again that was not there or could not answer. A start that fails ends its container, and the pod may be one that is started
/// once.
const FIRST_PAUSE: Duration = Duration::from_millis(500);
/// Kubernetes gives files of a ConfigMap or Secret this mode.
const MODE: u32 = 0o644;

/// That a node has a way to the API, if annotations name anything of it.
///
/// # Errors
/// Says what to do instead.
pub(crate) fn check(kubeconfig: Option<&Path>, annotations: &PodAnnotations) -> Result<()> {
    match annotations.seed_sources().into_iter().find(|(_, source)| source.is_of_api()) {
        Some((key, source)) if kubeconfig.is_none() => {
            let name = source.name();
            let what = format!(
                "annotation {key}: {source}: API sources are off on this node (`seed_kubeconfig`); mount it in this container and use \
                 volume/NAME, where NAME is that of a volume of the pod with {name:?}"
            );
            Err(Error::new(Kind::Denied, what))
        }
        _ => Ok(()),
    }
}

/// Reads what a pod's annotations name.
///
/// # Errors
/// When the node has no way to the API, the server does not answer, or does not have it for us.
pub(crate) async fn read(kubeconfig: Option<&Path>, namespace: &str, annotations: &PodAnnotations) -> Result<Objects> {
    check(kubeconfig, annotations)?;
    if !annotations.seed_sources().iter().any(|(_, source)| source.is_of_api()) {
        return Ok(Objects::new());
    }
    let mut last = None;
    let read = async {
        let client = cluster::client(kubeconfig, DEADLINE).await.map_err(no_way)?;
        let mut pause = FIRST_PAUSE;
        loop {
            match read_by(&client, namespace, annotations).await {
                Err(error) if error.kind() == Kind::Unavailable => last = Some(error),
                other => return other,
            }
            sleep(pause).await;
            pause *= 2;
        }
    };
    timeout(DEADLINE, read).await.unwrap_or_else(|_elapsed| {
        let what = format!("the API server did not give the pod's sources within {} s", DEADLINE.as_secs());
        Err(match last {
            Some(last) => Error::because(Kind::Unavailable, what, last),
            None => Error::new(Kind::Unavailable, what),
        })
    })
}

fn no_way(cause: impl std::error::Error + Send + Sync + 'static) -> Error {
    Error::because(Kind::State, "the pod's sources cannot be read by `seed_kubeconfig`", cause)
}

async fn read_by(client: &Client, namespace: &str, annotations: &PodAnnotations) -> Result<Objects> {
    let mut objects = Objects::new();
    for (key, source) in annotations.seed_sources().into_iter().filter(|(_, source)| source.is_of_api()) {
        if !objects.contains_key(source) {
            let object = get(client.clone(), namespace, source).await;
            objects.insert(source.clone(), object.map_err(|cause| refused(key, source, namespace, cause))?);
        }
    }
    Ok(objects)
}

async fn get(client: Client, namespace: &str, source: &Source) -> Result<Volume, kube::Error> {
    let mut files = BTreeMap::new();
    let mut add = |key: String, bytes: Vec<u8>| files.insert(key, VolumeFile { bytes, mode: MODE });
    match source {
        Source::Secret(name) => {
            let secret = Api::<Secret>::namespaced(client, namespace).get(name).await?;
            for (key, bytes) in secret.data.into_iter().flatten() {
                add(key, bytes.0);
            }
        }
        Source::ConfigMap(name) | Source::Volume(name) => {
            let map = Api::<ConfigMap>::namespaced(client, namespace).get(name).await?;
            for (key, text) in map.data.into_iter().flatten() {
                add(key, text.into_bytes());
            }
            for (key, bytes) in map.binary_data.into_iter().flatten() {
                add(key, bytes.0);
            }
        }
    }
    Ok(Volume(files))
}

fn refused(key: &str, source: &Source, namespace: &str, cause: kube::Error) -> Error {
    let what = format!("annotation {key}: the API server did not give {source} of namespace {namespace:?}");
    let kube::Error::Api(status) = &cause else { return Error::because(Kind::Unavailable, what, cause) };
    match status.code {
        404 => Error::new(Kind::State, format!("annotation {key}: namespace {namespace:?} has no {source}")),
        401 | 403 => {
            let what = format!(
                "annotation {key}: the API server does not let this node read {source} of namespace {namespace:?}: a kubelet may read what the \
                 spec of a pod on its node refers to; mount it, or refer to it by `envFrom`"
            );
            Error::new(Kind::Denied, what)
        }
        code => Error::new(Kind::Unavailable, format!("{what}: it answered {code}: {}", status.message)),
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use common::Chain;
    use kube::client::Body;
    use serde_json::{Value, json};
    use tonic::codegen::http;

    use super::*;

    const USER_DATA: &str = "VirtletCloudInitUserDataSource";
    const FILES: &str = "VirtletFilesFromDataSource";
    const SSH_KEYS: &str = "VirtletSSHKeySource";

    fn annotations(pairs: &[(&str, &str)]) -> PodAnnotations {
        PodAnnotations::parse(&pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect()).expect("right")
    }

    /// A server that has these objects of namespace `team`, by kind and name. What it has not is refused with this code.
    fn server(objects: &[(&str, Value)], otherwise: u16) -> Client {
        let objects: BTreeMap<String, Value> =
            objects.iter().map(|(path, object)| (format!("/api/v1/namespaces/team/{path}"), object.clone())).collect();
        let service = tower::service_fn(move |request: http::Request<Body>| {
            let object = objects.get(request.uri().path()).cloned();
            async move {
                let refusal = json!({
                    "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "message": "no", "code": otherwise,
                });
                let (code, body) = object.map_or((otherwise, refusal), |object| (200, object));
                let body = Body::from(body.to_string().into_bytes());
                Ok::<_, Infallible>(http::Response::builder().status(code).body(body).expect("an answer"))
            }
        });
        Client::new(service, "default")
    }

    #[tokio::test]
    async fn objects_of_the_pods_namespace_are_read_whole_and_once() {
        let map = json!({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "cloud"},
            "data": {"user-data": "#!/bin/sh"}, "binaryData": {"blob": "AAE="},
        });
        let secret =
            json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "keys"}, "data": {"k": "a2VwdA=="}});
        let client = server(&[("configmaps/cloud", map), ("secrets/keys", secret)], 404);
        let said = [(USER_DATA, "configmap/cloud"), (SSH_KEYS, "secret/keys/k"), (FILES, "Secret/keys")];
        let objects = read_by(&client, "team", &annotations(&said)).await.expect("read");
        let shown: Vec<_> = objects.iter().map(|(source, object)| format!("{source} {object:?}")).collect();
        assert_eq!(shown, ["configmap/cloud {\"blob\": 2, \"user-data\": 9}", "secret/keys {\"k\": 4}"]);
        let of_volumes = annotations(&[(FILES, "volume/v")]);
        assert!(read(None, "team", &of_volumes).await.expect("nothing of the API").is_empty());
    }

    #[tokio::test]
    async fn what_cannot_be_read_is_named_with_what_to_do() {
        let said = annotations(&[(FILES, "secret/keys")]);
        let mut told = vec![read(None, "team", &said).await.expect_err("off")];
        for code in [404, 403, 500] {
            told.push(read_by(&server(&[], code), "team", &said).await.expect_err("refused"));
        }
        let shown: Vec<_> = told.iter().map(|error| format!("{:?}: {}", error.kind(), Chain(error))).collect();
        insta::assert_snapshot!(shown.join("\n"));
    }
}
