//! The Secret that all replicas have their certificate of, and what is to be done with it.

use std::collections::BTreeMap;
use std::sync::Arc;

use common::Reason;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::jiff::Timestamp;
use kube::core::ObjectMeta;
use rustls::ServerConfig;

use super::material::Material;
use crate::names::{MANAGED_BY, OPERATOR};
use crate::objects::Meta as _;

const TYPE: &str = "kubernetes.io/tls";
const CERTIFICATE: &str = "tls.crt";
const KEY: &str = "tls.key";
const AUTHORITIES: &str = "ca.crt";
const AUTHORITY_KEY: &str = "ca.key";
/// Annotation that says how long the authority is good.
const EXPIRES: &str = "virtlet.k8s/authority-expires";

/// What is to be done.
#[derive(Debug)]
pub(super) enum Step {
    /// A new certificate is to be made. With what there is, if there is something.
    Make(Option<Material>),
    /// The one that is there is to be used.
    Use(Material, Arc<ServerConfig>),
}

/// What is to be done with the Secret of this name as it is.
///
/// # Errors
/// When it is somebody else's and has nothing that can be used.
pub(super) fn decide(secret: Option<&Secret>, name: &str, host: &str, now: Timestamp) -> Result<Step, Reason> {
    let Some(secret) = secret else { return Ok(Step::Make(None)) };
    let is_ours = secret.label(MANAGED_BY) == Some(OPERATOR);
    let material = read(secret);
    let judged = material.as_ref().map(|material| material.judge(host, now));
    match (material, judged) {
        // Somebody else renews his own.
        (Some(material), Some(Ok(good))) if !(is_ours && good.is_due) => Ok(Step::Use(material, good.server)),
        (material, _) if is_ours => Ok(Step::Make(material)),
        (_, judged) => {
            let text = format!(
                "Secret `{name}` is somebody else's and has no certificate for `{host}`; delete it, or renew it"
            );
            let reason = Reason::new(text);
            Err(match judged {
                Some(Err(why)) => reason.with(why),
                _ => reason,
            })
        }
    }
}

/// The Secret with another certificate in it; a new one of this name if there was none.
pub(super) fn with(before: Option<Secret>, name: &str, material: &Material) -> Secret {
    let mut secret = before.unwrap_or_else(|| Secret {
        metadata: ObjectMeta {
            name: Some(name.to_owned()),
            labels: Some([(MANAGED_BY.to_owned(), OPERATOR.to_owned())].into()),
            ..ObjectMeta::default()
        },
        type_: Some(TYPE.to_owned()),
        ..Secret::default()
    });
    let Material { certificate, key, authorities, authority_key, authority_expires } = material.clone();
    let all = [
        (CERTIFICATE, Some(certificate)),
        (KEY, Some(key)),
        (AUTHORITIES, Some(authorities)),
        (AUTHORITY_KEY, authority_key),
    ];
    let all = all.into_iter().filter_map(|(key, text)| Some((key.to_owned(), ByteString(text?.into_bytes()))));
    secret.data = Some(all.collect());
    let annotations = secret.metadata.annotations.get_or_insert_default();
    annotations.extend(authority_expires.map(|expires| (EXPIRES.to_owned(), expires.to_string())));
    secret
}

fn read(secret: &Secret) -> Option<Material> {
    let data = secret.data.as_ref()?;
    Some(Material {
        certificate: text(data, CERTIFICATE)?,
        key: text(data, KEY)?,
        authorities: text(data, AUTHORITIES)?,
        authority_key: text(data, AUTHORITY_KEY),
        authority_expires: secret.annotation(EXPIRES).and_then(|text| text.parse().ok()),
    })
}

fn text(data: &BTreeMap<String, ByteString>, key: &str) -> Option<String> {
    String::from_utf8(data.get(key)?.0.clone()).ok()
}

#[cfg(test)]
mod tests;
