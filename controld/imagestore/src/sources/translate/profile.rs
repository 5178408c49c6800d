//! Transport profiles as a configuration writes them: how the requests of a rule are sent.
//!
//! Every key is optional, and `null` is the same as absent. A profile is used as a whole or not at all. A rule that
//! names a profile which cannot be used is not used either, since without it the download would go another way than
//! asked.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use common::Reason;
use serde::Deserialize;

use crate::sources::net::{CertificateSpec, Transport, TransportSpec};

/// One profile.
#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields, rename_all = "camelCase", default)]
pub(super) struct ProfileDoc {
    /// Milliseconds; nothing or less is no limit.
    timeout: Option<i64>,
    /// Negative is the same as absent.
    max_redirects: Option<i64>,
    proxy: Option<String>,
    tls: Option<TlsDoc>,
    allow_downgrade: Option<bool>,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields, rename_all = "camelCase", default)]
struct TlsDoc {
    certificates: Option<Vec<CertificateDoc>>,
    server_name: Option<String>,
    insecure: Option<bool>,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
struct CertificateDoc {
    cert: Option<String>,
    key: Option<String>,
}

impl ProfileDoc {
    pub(super) fn into_spec(self) -> TransportSpec {
        let tls = self.tls.unwrap_or_default();
        let certificates = tls.certificates.unwrap_or_default().into_iter().map(CertificateDoc::into_spec).collect();
        TransportSpec {
            timeout: self.timeout.and_then(|ms| u64::try_from(ms).ok()).filter(|ms| *ms > 0).map(Duration::from_millis),
            max_redirects: self.max_redirects.filter(|n| *n >= 0).map(|n| u32::try_from(n).unwrap_or(u32::MAX)),
            proxy: self.proxy.filter(|proxy| !proxy.is_empty()),
            certificates,
            server_name: tls.server_name.filter(|name| !name.is_empty()),
            insecure: tls.insecure.unwrap_or_default(),
            allow_downgrade: self.allow_downgrade.unwrap_or_default(),
        }
    }
}

impl CertificateDoc {
    fn into_spec(self) -> CertificateSpec {
        CertificateSpec { cert: self.cert.unwrap_or_default(), key: self.key.filter(|key| !key.is_empty()) }
    }
}

/// The profiles of one configuration: those that can be used, and why the others cannot.
pub(super) struct Profiles {
    usable: BTreeMap<String, Option<Arc<Transport>>>,
    pub(super) bad: Vec<(String, Reason)>,
}

impl Profiles {
    /// Builds them; `config` makes their names differ from those of other configurations.
    pub(super) fn build(config: &str, docs: BTreeMap<String, Option<ProfileDoc>>) -> Self {
        let mut bad = Vec::new();
        let mut usable = BTreeMap::new();
        for (name, doc) in docs {
            let spec = doc.unwrap_or_default().into_spec();
            let built =
                Transport::new(&format!("{config}:{name}"), &spec).map_err(|cause| bad.push((name.clone(), cause)));
            usable.insert(name, built.ok());
        }
        Self { usable, bad }
    }

    /// The profile that a rule names; the empty name is the configuration's default if it has one, else everybody's.
    pub(super) fn get(&self, name: &str) -> Result<Arc<Transport>, NoProfile> {
        match self.usable.get(name) {
            Some(Some(transport)) => Ok(transport.clone()),
            Some(None) => Err(NoProfile::Unusable),
            None if name.is_empty() => Ok(Transport::plain()),
            None => Err(NoProfile::Undefined),
        }
    }
}

/// Why a rule has no transport.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NoProfile {
    Undefined,
    Unusable,
}
