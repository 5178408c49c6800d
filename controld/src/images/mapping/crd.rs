//! VirtletImageMapping as the API server knows it: the form of a translation configuration, told as a schema.
//!
//! Only the schema is made of these types. What comes from the cluster is read by the image store, which reads files by
//! the same code: so an object means what a file of the same text means, and one that a laxer schema let in spoils only
//! itself. A test holds the two to each other.

#![expect(unreachable_pub, reason = "KubeSchema makes copies of the types inside of functions")]

use std::collections::BTreeMap;
use std::fmt;

use kube::{CustomResource, CustomResourceExt as _, KubeSchema};
use serde::{Deserialize, Serialize};

/// Translates names of images to places that they are downloaded from. Only objects in the namespace that the nodes
/// watch count, kube-system by default.
#[derive(CustomResource, KubeSchema, Debug, Clone, Default, Serialize, Deserialize)]
#[kube(
    group = "virtlet.k8s",
    version = "v1",
    kind = "VirtletImageMapping",
    plural = "virtletimagemappings",
    shortname = "vim",
    namespaced,
    doc = "Where nodes download images of machines from: a translation configuration, as its files have it.",
    printcolumn = r#"{"name": "Prefix", "type": "string", "jsonPath": ".spec.prefix"}"#
)]
pub struct ImageMappingSpec {
    /// Only for names that begin with this and a slash; the rules see the rest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prefix: Option<String>,
    /// Only for pods of these runtime handlers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub handlers: Option<Vec<String>>,
    /// The rules. Any fixed name comes before any regexp, otherwise the first that fits is taken.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 10000))]
    pub translations: Option<Vec<TranslationRule>>,
    /// How to download, by names that rules refer to. The empty name is for rules that refer to none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub transports: Option<BTreeMap<String, TransportProfile>>,
}

/// From a name, or from all names that fit a regexp, to a place.
#[derive(KubeSchema, Debug, Clone, Default, Serialize, Deserialize)]
#[x_kube(validation = Rule::new("has(self.name) || has(self.regexp)").message("a rule needs `name` or `regexp`"))]
#[x_kube(validation = Rule::new("has(self.url) || has(self.platforms)").message("a rule needs `url` or `platforms`"))]
pub struct TranslationRule {
    /// The name, without prefix, tag and digest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 255))]
    pub name: Option<String>,
    /// Names that match this (RE2, not anchored), if the node has such rules switched on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 4096))]
    pub regexp: Option<String>,
    /// The place. With a regexp, `$1` and `${name}` stand for its groups and `$$` for a dollar sign. {arch},
    /// {uname_arch}, {dpkg_arch}, {os}, {os_version} and {variant} stand for the guest's platform.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 8192))]
    pub url: Option<String>,
    /// Digest that the image must have.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = r"^(sha256:[0-9a-f]{64}|sha512:[0-9a-f]{128})$"))]
    pub digest: Option<String>,
    /// Format that the image is declared to have.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = r"^(qcow2|raw|vmdk|vhd|vhdx|vdi)$"))]
    pub format: Option<String>,
    /// Places by guest platform: `linux/arm64`, `linux/arm/v7`, `windows/amd64:10.0.20348`. If there are any, `url` is
    /// for the default platform alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub platforms: Option<BTreeMap<String, Place>>,
    /// How to download.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub transport: Option<String>,
}

/// A place for one platform.
#[derive(KubeSchema, Debug, Clone, Default, Serialize, Deserialize)]
pub struct Place {
    /// As `url` of a rule.
    #[schemars(length(min = 1, max = 8192))]
    pub url: String,
    /// As `digest` of a rule.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = r"^(sha256:[0-9a-f]{64}|sha512:[0-9a-f]{128})$"))]
    pub digest: Option<String>,
}

/// How to download.
#[derive(KubeSchema, Debug, Clone, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TransportProfile {
    /// Milliseconds for the whole download; 0 is no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout: Option<i64>,
    /// Most redirects that are followed; 9 if it is not said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_redirects: Option<i32>,
    /// URL of a proxy, in place of the one in the node's environment.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub proxy: Option<String>,
    /// TLS.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tls: Option<Tls>,
    /// Whether redirects from https to http are followed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allow_downgrade: Option<bool>,
}

/// TLS of a download.
#[derive(KubeSchema, Debug, Clone, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Tls {
    /// Authorities to trust beside the system's, and certificates to show.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 100))]
    pub certificates: Option<Vec<Certificate>>,
    /// Name to ask for and to find in the server's certificate, in place of the URL's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server_name: Option<String>,
    /// Takes any certificate of the server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub insecure: Option<bool>,
}

/// Certificates in PEM, and the key of those that are to be shown.
#[derive(KubeSchema, Clone, Default, Serialize, Deserialize)]
pub struct Certificate {
    /// Certificates; the key may stand among them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cert: Option<String>,
    /// The key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
}

impl fmt::Debug for Certificate {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("Certificate(...)")
    }
}

/// The CustomResourceDefinition, for `kubectl apply`.
///
/// # Errors
/// Never, as it is a constant.
pub fn definition() -> Result<String, serde_saphyr::ser::Error> {
    serde_saphyr::to_string(&VirtletImageMapping::crd())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_definition_in_deploy_is_this_one() {
        let deployed = include_str!("../../../../deploy/crd-virtletimagemapping.yaml");
        let now = definition().expect("constant");
        assert!(
            deployed == now,
            "write it anew: cargo run -p controld --bin controld -- crd > deploy/crd-virtletimagemapping.yaml\n{now}"
        );
    }

    #[test]
    fn what_the_schema_allows_the_store_understands() {
        let digest = Some(format!("sha256:{}", "ab".repeat(32)));
        let place = Place { url: "https://h.example/x".into(), digest: digest.clone() };
        let rule = TranslationRule {
            name: Some("x".into()),
            regexp: Some("^x(.*)$".into()),
            url: Some("https://h.example/{arch}$1".into()),
            digest,
            format: Some("qcow2".into()),
            platforms: Some([("linux/arm64".into(), place)].into()),
            transport: Some("t".into()),
        };
        let tls = Tls { certificates: Some(vec![]), server_name: Some("h.example".into()), insecure: Some(true) };
        let profile = TransportProfile {
            timeout: Some(1),
            max_redirects: Some(0),
            proxy: Some("http://p.example:3128".into()),
            tls: Some(tls),
            allow_downgrade: Some(true),
        };
        let spec = ImageMappingSpec {
            prefix: Some("p".into()),
            handlers: Some(vec!["vm".into()]),
            translations: Some(vec![rule]),
            transports: Some([("t".into(), profile)].into()),
        };
        let text = serde_json::to_string(&spec).expect("JSON");
        let problems = imagestore::Mappings::default().put("all", &text);
        assert!(problems.is_empty(), "{problems:?}");
        // Every key of the schema is in it, or this test says less than its name.
        let keys = text.matches("\":").count();
        assert_eq!(keys, 23, "{text}");
    }
}
