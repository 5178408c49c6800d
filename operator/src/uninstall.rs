//! `uninstall`: removes what `install` printed, and nothing that does not carry its label. May be done again at any point.
//!
//! What is left of VMs is refused first, since a definition takes its objects along, and nobody would end what they stand for. With
//! `--delete-vms` they are deleted while the operator is still there to see to it. Definitions go last, after all else that needs them.

use std::io::Write;
use std::time::Duration;

use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use kube::api::{DeleteParams, ListParams, Preconditions};
use kube::core::DynamicObject;
use kube::runtime::wait::{await_condition, conditions};
use kube::{Api, Client};
use serde_json::{Value, json};

use crate::cluster::{ClusterError, api_of, call, words_of};
use crate::install::is_ours;
use crate::manifests::crds::DEFINITIONS;
use crate::manifests::{self, Settings};
use crate::names::{OPERATOR, SUBRESOURCES_TLS_SECRET, TLS_SECRET};

/// So many objects are named of those that are in the way.
const NAMED: usize = 3;
/// Objects of a page of a list, and of those that are waited for at a time.
const PAGE: u32 = 500;
const AT_A_TIME: usize = 16;

/// Why something of the installation is still there.
#[derive(Debug, thiserror::Error)]
pub enum UninstallError {
    /// They would go with their definitions, and their VMs would run on with nobody who knows them.
    #[error("there are still {}; delete them, or have --delete-vms do it", .0.join("; "))]
    InUse(Vec<String>),
    /// The operator does not see to it, or a VM takes its time.
    #[error("{what} is not gone after {} s; does the operator run?", deadline.as_secs())]
    Stays { what: String, deadline: Duration },
    #[error("failed to wait for the end of {what}")]
    Wait {
        what: String,
        #[source]
        cause: Box<kube::runtime::wait::Error>,
    },
    #[error(transparent)]
    Cluster(#[from] ClusterError),
    #[error("failed to print")]
    Output(#[from] std::io::Error),
}

/// Removes an installation, and prints a line for each thing of it.
///
/// # Errors
/// When VMs are in the way, something does not go within `deadline`, or the cluster refuses.
pub async fn run(
    client: &Client,
    settings: &Settings,
    delete_vms: bool,
    deadline: Duration,
    out: &mut (dyn Write + Send),
) -> Result<(), UninstallError> {
    let kinds = own_kinds(client, settings).await?;
    if delete_vms {
        for kind in &kinds {
            delete_all(client, kind, deadline, out).await?;
        }
    } else {
        in_use(client, &kinds).await?;
    }
    for object in everything(settings).iter().rev() {
        remove(client, object, deadline, out).await?;
    }
    // Who knows what else is in it.
    let namespace = &settings.namespace;
    writeln!(
        out,
        "Namespace `{namespace}` stays, with what is not ours in it; `kubectl delete namespace {namespace}` removes it"
    )?;
    Ok(())
}

/// As installed, with what the operator makes for itself.
fn everything(settings: &Settings) -> Vec<Value> {
    let mut all = manifests::all(settings);
    all.retain(|object| object["kind"] != "Namespace");
    let own = [
        ("v1", "Secret", TLS_SECRET),
        ("v1", "Secret", SUBRESOURCES_TLS_SECRET),
        ("coordination.k8s.io/v1", "Lease", OPERATOR),
    ];
    let own = own.map(|(version, kind, name)| {
        json!({"apiVersion": version, "kind": kind, "metadata": {"name": name, "namespace": settings.namespace}})
    });
    // Before them in this order, so after them when they go.
    let at = all.iter().position(|object| object["kind"] == "Deployment").unwrap_or(all.len());
    all.splice(at..at, own);
    all
}

/// Kinds whose definition is there and ours, as objects of them begin.
async fn own_kinds(client: &Client, settings: &Settings) -> Result<Vec<Value>, ClusterError> {
    let mut kinds = Vec::new();
    for definition in &DEFINITIONS {
        let name = definition.crd_name(settings.group);
        let api = api_of(client, &json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition"}));
        let found = call(|| format!("look for CustomResourceDefinition `{name}`"), api.get_metadata_opt(&name)).await?;
        if found.is_some_and(|found| is_ours(&found.metadata)) {
            kinds.push(json!({"apiVersion": settings.group.api_version(), "kind": definition.name}));
        }
    }
    Ok(kinds)
}

async fn in_use(client: &Client, kinds: &[Value]) -> Result<(), UninstallError> {
    let mut all = Vec::new();
    for kind in kinds {
        let name = kind["kind"].as_str().unwrap_or_default();
        let (found, more) = page(client, kind, None).await?;
        let some: Vec<String> =
            found.iter().take(NAMED).map(|(namespace, name, _)| format!("`{namespace}/{name}`")).collect();
        let rest = if found.len() > NAMED || more.is_some() { ", ..." } else { "" };
        if !some.is_empty() {
            all.push(format!("{name} {}{rest}", some.join(", ")));
        }
    }
    if all.is_empty() { Ok(()) } else { Err(UninstallError::InUse(all)) }
}

/// Namespace, name and uid.
type Found = (String, String, String);

/// Some objects of a kind, and where the rest begins.
async fn page(client: &Client, kind: &Value, from: Option<&str>) -> Result<(Vec<Found>, Option<String>), ClusterError> {
    let mut params = ListParams::default().limit(PAGE);
    if let Some(from) = from {
        params = params.continue_token(from);
    }
    let name = kind["kind"].as_str().unwrap_or_default();
    let list = call(|| format!("list each {name}"), api_of(client, kind).list_metadata(&params)).await?;
    let found = list.items.into_iter().map(|item| {
        let metadata = item.metadata;
        (metadata.namespace.unwrap_or_default(), metadata.name.unwrap_or_default(), metadata.uid.unwrap_or_default())
    });
    Ok((found.collect(), list.metadata.continue_.filter(|token| !token.is_empty())))
}

/// Deletes the objects of a kind, and waits until their finalizers are off.
async fn delete_all(
    client: &Client,
    kind: &Value,
    deadline: Duration,
    out: &mut (dyn Write + Send),
) -> Result<(), UninstallError> {
    let mut all = Vec::new();
    let mut from = None;
    loop {
        let (found, more) = page(client, kind, from.as_deref()).await?;
        all.extend(found);
        match more {
            Some(_) => from = more,
            None => break,
        }
    }
    let mut gone = stream::iter(all)
        .map(|(namespace, name, uid)| {
            let mut object = kind.clone();
            object["metadata"] = json!({"name": name, "namespace": namespace});
            async move {
                let api = api_of(client, &object);
                delete(&api, &object, &uid).await?;
                wait_gone(api, &object, &uid, deadline).await?;
                Ok::<_, UninstallError>(words_of(&object))
            }
        })
        .buffer_unordered(AT_A_TIME);
    while let Some(object) = gone.try_next().await? {
        writeln!(out, "{object} deleted")?;
    }
    Ok(())
}

/// Removes a part of the installation if it is there and ours.
async fn remove(
    client: &Client,
    object: &Value,
    deadline: Duration,
    out: &mut (dyn Write + Send),
) -> Result<(), UninstallError> {
    let (api, words) = (api_of(client, object), words_of(object));
    let name = object["metadata"]["name"].as_str().unwrap_or_default();
    let Some(found) = call(|| format!("look for {words}"), api.get_metadata_opt(name)).await? else {
        return Ok(());
    };
    if !is_ours(&found.metadata) {
        writeln!(out, "{words} stays: it is not ours")?;
        return Ok(());
    }
    let uid = found.metadata.uid.unwrap_or_default();
    delete(&api, object, &uid).await?;
    if object["kind"] == "CustomResourceDefinition" {
        wait_gone(api, object, &uid, deadline).await?;
    }
    writeln!(out, "{words} removed")?;
    Ok(())
}

async fn delete(api: &Api<DynamicObject>, object: &Value, uid: &str) -> Result<(), ClusterError> {
    let name = object["metadata"]["name"].as_str().unwrap_or_default();
    // Not another one that has come in its place.
    let only = Preconditions { uid: Some(uid.to_owned()), resource_version: None };
    let params = DeleteParams { preconditions: Some(only), ..DeleteParams::background() };
    let delete = async {
        match api.delete(name, &params).await {
            Ok(_) => Ok(()),
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
            Err(other) => Err(other),
        }
    };
    call(|| format!("delete {}", words_of(object)), delete).await
}

async fn wait_gone(
    api: Api<DynamicObject>,
    object: &Value,
    uid: &str,
    deadline: Duration,
) -> Result<(), UninstallError> {
    let name = object["metadata"]["name"].as_str().unwrap_or_default();
    match tokio::time::timeout(deadline, await_condition(api, name, conditions::is_deleted(uid))).await {
        Ok(Ok(_)) => Ok(()),
        Ok(Err(cause)) => Err(UninstallError::Wait { what: words_of(object), cause: Box::new(cause) }),
        Err(_) => Err(UninstallError::Stays { what: words_of(object), deadline }),
    }
}
