//! VirtletImageMapping as the API server knows it: the form of a translation configuration, told as a schema.
//!
//! The definition is a file in `deploy/`, which nodes need not read: `controld crd` prints it. What comes from the cluster is read by the
//! image store, which reads files by the same code: so an object means what a file of the same text means, and one that a laxer schema
//! let in spoils only itself. A test holds the two to each other.

use kube::api::{ApiResource, GroupVersionKind};

/// The CustomResourceDefinition, for `kubectl apply`.
pub const DEFINITION: &str = include_str!("../../../../deploy/crd-virtletimagemapping.yaml");

/// Where the API server has the objects.
pub(super) fn resource() -> ApiResource {
    let kind = GroupVersionKind::gvk("virtlet.k8s", "v1", "VirtletImageMapping");
    ApiResource::from_gvk_with_plural(&kind, "virtletimagemappings")
}

#[cfg(test)]
mod tests {
    use serde_json::{Map, Value, json};

    use super::*;

    fn definition() -> Value {
        serde_saphyr::from_str(DEFINITION).expect("YAML")
    }

    #[test]
    fn the_definition_is_of_what_is_watched() {
        let (definition, watched) = (definition(), resource());
        let spec = &definition["spec"];
        assert_eq!(definition["metadata"]["name"], format!("{}.{}", watched.plural, watched.group));
        assert_eq!((&spec["group"], &spec["scope"]), (&json!(watched.group), &json!("Namespaced")));
        assert_eq!(spec["names"]["kind"], watched.kind);
        assert_eq!(spec["names"]["plural"], watched.plural);
        let versions = spec["versions"].as_array().expect("versions");
        assert_eq!(versions.len(), 1);
        assert_eq!(versions[0]["name"], watched.version);
    }

    /// A value with every key that a schema has.
    fn sample(key: &str, schema: &Value) -> Value {
        let text = match (key, schema["type"].as_str().expect("a type")) {
            (_, "object") => {
                let mut all = Map::new();
                for (key, schema) in schema["properties"].as_object().into_iter().flatten() {
                    all.insert(key.clone(), sample(key, schema));
                }
                if let Some(schema) = schema.get("additionalProperties") {
                    let key = if key == "platforms" { "linux/arm64" } else { "t" };
                    all.insert(key.to_owned(), sample(key, schema));
                }
                return Value::Object(all);
            }
            // The store wants them to be certificates.
            ("certificates", "array") => return json!([]),
            (_, "array") => return json!([sample(key, &schema["items"])]),
            (_, "boolean") => return json!(true),
            (_, "integer") => return json!(1),
            ("checksums", _) => "https://h.example/{arch}/SHA256SUMS".into(),
            ("digest", _) => format!("sha256:{}", "ab".repeat(32)),
            ("format", _) => "qcow2".into(),
            ("name", _) => "x".into(),
            ("prefix" | "handlers", _) => "p".into(),
            ("proxy", _) => "http://p.example:3128".into(),
            ("regexp", _) => "^x(.*)$".into(),
            ("serverName", _) => "h.example".into(),
            ("transport", _) => "t".into(),
            ("url", _) => "https://h.example/{arch}$1".into(),
            (key, kind) => panic!("no sound {kind} is known for `{key}`: say one here"),
        };
        Value::String(text)
    }

    #[test]
    fn what_the_schema_allows_the_store_understands() {
        let spec = &definition()["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"];
        let text = sample("spec", spec).to_string();
        let problems = imagestore::Mappings::default().put("all", &text);
        assert!(problems.is_empty(), "{problems:?}");
        // Keys of maps among them; only those of certificates are not in it.
        let keys = text.matches("\":").count();
        assert_eq!(keys, 25, "{text}");
    }
}
