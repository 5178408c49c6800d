//! Reads a CPU out of what a pod says, with Virtlet's names: those of libvirt's elements and attributes, in any letter case.

use serde_json::Value;

use super::{
    CacheMode, CpuCache, CpuCheck, CpuFeature, CpuMatch, CpuMode, CpuSetting, Fallback, FeaturePolicy, NamedModel,
    Topology,
};

/// Most features. No CPU has as many.
const MAX_FEATURES: usize = 256;
/// Longest name of a model, vendor or feature.
const MAX_NAME: usize = 64;
/// Letters of a vendor's id, by CPUID.
const VENDOR_ID: usize = 12;
/// Most of each level of a topology.
const MAX_LEVEL: u64 = 255;

/// Why a value describes no CPU.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NoCpuSetting {
    #[error("{0} is not a map")]
    NotMap(&'static str),
    #[error("unknown field {field:?} of {of}; there is {}", .known.join(", "))]
    Unknown { field: String, of: &'static str, known: &'static [&'static str] },
    #[error("field {field:?} of {of} is there twice")]
    Twice { field: String, of: &'static str },
    #[error("`numa` is not supported: the guest has as much memory as the pod's limit says")]
    Numa,
    #[error("`{field}` is not one of {}", .all.join(", "))]
    NotOneOf { field: &'static str, all: &'static [&'static str] },
    #[error("`{0}` is not a name")]
    NotName(&'static str),
    #[error("`vendorid` is not {VENDOR_ID} printable ASCII characters")]
    NotVendorId,
    #[error("`{field}` is not a whole number from 1 to {most}")]
    NotNumber { field: &'static str, most: u64 },
    #[error("`features` is not a list of at most {MAX_FEATURES} maps with `name` and `policy`")]
    NotFeatures,
    #[error("feature `{0}` is there twice")]
    FeatureTwice(String),
    #[error("mode `custom` needs a `model`")]
    NoModel,
    #[error("a `model` is for mode `custom` alone")]
    ModelWithoutCustom,
    #[error("`{0}` is missing")]
    Missing(&'static str),
}

type Result<T> = std::result::Result<T, NoCpuSetting>;

impl CpuSetting {
    /// # Errors
    /// When it is no description of a CPU, or one of what we do not have.
    pub fn of(value: &Value) -> Result<Self> {
        let known: &[_] = &["mode", "match", "check", "model", "vendor", "topology", "cache", "features", "numa"];
        let fields = Fields::of(value, "the CPU", known)?;
        if fields.get("numa").is_some() {
            return Err(NoCpuSetting::Numa);
        }
        let model = fields.get("model").map(named_model).transpose()?;
        let given = fields.word("mode", CpuMode::of, CpuMode::WORDS)?;
        // As libvirt takes it.
        let mode = given.unwrap_or(CpuMode::Custom);
        match (mode, &model) {
            (CpuMode::Custom, None) => return Err(NoCpuSetting::NoModel),
            (CpuMode::Custom, Some(_)) | (_, None) => {}
            (_, Some(_)) => return Err(NoCpuSetting::ModelWithoutCustom),
        }
        Ok(Self {
            mode,
            matches: fields.word("match", CpuMatch::of, CpuMatch::WORDS)?,
            check: fields.word("check", CpuCheck::of, CpuCheck::WORDS)?,
            model,
            vendor: fields.name("vendor")?,
            topology: fields.get("topology").map(topology).transpose()?,
            cache: fields.get("cache").map(cache).transpose()?,
            features: fields.get("features").map(features).transpose()?.unwrap_or_default(),
        })
    }
}

fn named_model(value: &Value) -> Result<NamedModel> {
    // libvirt's short form.
    if let Value::String(name) = value {
        return Ok(NamedModel {
            name: plain(name).ok_or(NoCpuSetting::NotName("model"))?,
            fallback: None,
            vendor_id: None,
        });
    }
    let fields = Fields::of(value, "`model`", &["fallback", "value", "vendorid"])?;
    let vendor_id = match fields.get("vendorid") {
        None => None,
        Some(Value::String(id)) if id.len() == VENDOR_ID && id.bytes().all(|byte| matches!(byte, b' '..=b'~')) => {
            Some(id.clone())
        }
        Some(_) => return Err(NoCpuSetting::NotVendorId),
    };
    Ok(NamedModel {
        name: fields.name("value")?.ok_or(NoCpuSetting::Missing("value"))?,
        fallback: fields.word("fallback", Fallback::of, Fallback::WORDS)?,
        vendor_id,
    })
}

fn topology(value: &Value) -> Result<Topology> {
    let fields = Fields::of(value, "`topology`", &["sockets", "dies", "cores", "threads"])?;
    let level = |field| Ok::<_, NoCpuSetting>(fields.number(field, MAX_LEVEL)?.unwrap_or(1));
    Ok(Topology {
        sockets: level("sockets")?,
        dies: level("dies")?,
        cores: level("cores")?,
        threads: level("threads")?,
    })
}

fn cache(value: &Value) -> Result<CpuCache> {
    let fields = Fields::of(value, "`cache`", &["level", "mode"])?;
    let level = fields.number("level", 3)?;
    Ok(CpuCache {
        level: level.and_then(|level| u8::try_from(level).ok()),
        mode: fields.word("mode", CacheMode::of, CacheMode::WORDS)?.ok_or(NoCpuSetting::Missing("mode"))?,
    })
}

/// Those of a list.
pub(in crate::plan) fn features(value: &Value) -> Result<Vec<CpuFeature>> {
    let list = value.as_array().filter(|list| list.len() <= MAX_FEATURES).ok_or(NoCpuSetting::NotFeatures)?;
    let mut features: Vec<CpuFeature> = Vec::new();
    for one in list {
        let fields = Fields::of(one, "a feature", &["name", "policy"])?;
        let name = fields.name("name")?.ok_or(NoCpuSetting::NotFeatures)?;
        if features.iter().any(|other| other.name == name) {
            return Err(NoCpuSetting::FeatureTwice(name));
        }
        // As libvirt takes it.
        let policy = fields.word("policy", FeaturePolicy::of, FeaturePolicy::WORDS)?.unwrap_or(FeaturePolicy::Require);
        features.push(CpuFeature { name, policy });
    }
    Ok(features)
}

/// The name, if it is one: no separator of XML's or of QEMU's.
fn plain(name: &str) -> Option<String> {
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    (!name.is_empty() && name.len() <= MAX_NAME && name.chars().all(fits)).then(|| name.to_owned())
}

/// The fields of a map, by their names in small letters.
struct Fields<'a>(Vec<(&'static str, &'a Value)>);

impl<'a> Fields<'a> {
    fn of(value: &'a Value, of: &'static str, known: &'static [&'static str]) -> Result<Self> {
        let mut fields: Vec<(&'static str, &Value)> = Vec::new();
        for (field, value) in value.as_object().ok_or(NoCpuSetting::NotMap(of))? {
            let cut = || field.chars().take(MAX_NAME).collect();
            let Some(name) = known.iter().find(|name| name.eq_ignore_ascii_case(field)) else {
                return Err(NoCpuSetting::Unknown { field: cut(), of, known });
            };
            if fields.iter().any(|(other, _)| other == name) {
                return Err(NoCpuSetting::Twice { field: cut(), of });
            }
            fields.push((name, value));
        }
        Ok(Self(fields))
    }

    /// One that is there and not null.
    fn get(&self, field: &str) -> Option<&'a Value> {
        let (_, value) = self.0.iter().find(|(name, _)| *name == field)?;
        (!value.is_null()).then_some(*value)
    }

    fn word<T>(
        &self,
        field: &'static str,
        of: impl Fn(&str) -> Option<T>,
        all: &'static [&'static str],
    ) -> Result<Option<T>> {
        let Some(value) = self.get(field) else { return Ok(None) };
        value.as_str().and_then(of).map(Some).ok_or(NoCpuSetting::NotOneOf { field, all })
    }

    fn name(&self, field: &'static str) -> Result<Option<String>> {
        let Some(value) = self.get(field) else { return Ok(None) };
        value.as_str().and_then(plain).map(Some).ok_or(NoCpuSetting::NotName(field))
    }

    fn number(&self, field: &'static str, most: u64) -> Result<Option<u16>> {
        let Some(value) = self.get(field) else { return Ok(None) };
        let number = value.as_u64().filter(|number| (1..=most).contains(number));
        number.and_then(|number| u16::try_from(number).ok()).map(Some).ok_or(NoCpuSetting::NotNumber { field, most })
    }
}
