//! Where spans of traced calls go, by kubelet's names of these settings (`KubeletConfiguration.tracing`).

use std::fmt;

use serde::Deserialize;
use tonic::codegen::http::Uri;
use tonic::codegen::http::uri::{Authority, Scheme};

/// kubelet's default: a collector on the node.
const DEFAULT: &str = "http://localhost:4317/";

/// Traces of calls.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TracingConfig {
    /// The collector.
    pub endpoint: Collector,
    /// How many of a million calls are traced whose caller does not say whether it traces; what it says is followed.
    pub sampling_rate_per_million: u32,
}

/// A collector of OpenTelemetry's (OTLP over gRPC, without TLS), by its URL.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct Collector(Uri);

/// Why a text names no collector.
#[derive(Debug, thiserror::Error)]
pub enum CollectorError {
    #[error(
        "collectors are spoken to without TLS; name one on this node or on a network of the nodes' own, as `host:port`"
    )]
    Tls,
    #[error("not of the form `host:port` or `http://host:port`; OTLP over gRPC has port 4317")]
    Form,
}

impl Collector {
    /// Its URL, as gRPC takes it.
    #[must_use]
    pub fn uri(&self) -> &Uri {
        &self.0
    }
}

impl TryFrom<String> for Collector {
    type Error = CollectorError;

    /// `host:port`, as kubelet has it, or a URL, as OpenTelemetry has it.
    fn try_from(text: String) -> Result<Self, CollectorError> {
        if text.starts_with("https:") {
            return Err(CollectorError::Tls);
        }
        let address = text.strip_prefix("http://").unwrap_or(&text);
        let address = address.strip_suffix('/').unwrap_or(address);
        let authority: Authority = address.parse().map_err(|_| CollectorError::Form)?;
        if authority.host().is_empty() || authority.port_u16().is_none() || address.contains('@') {
            return Err(CollectorError::Form);
        }
        let uri = Uri::builder().scheme(Scheme::HTTP).authority(authority).path_and_query("/").build();
        uri.map(Self).map_err(|_| CollectorError::Form)
    }
}

impl Default for Collector {
    fn default() -> Self {
        Self(Uri::from_static(DEFAULT))
    }
}

impl fmt::Display for Collector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_collector_is_an_address_or_a_url() {
        for (text, uri) in [
            ("localhost:4317", "http://localhost:4317/"),
            ("http://localhost:4317", "http://localhost:4317/"),
            ("http://collector.monitoring.svc:4317/", "http://collector.monitoring.svc:4317/"),
            ("192.0.2.1:14317", "http://192.0.2.1:14317/"),
            ("[::1]:4317", "http://[::1]:4317/"),
        ] {
            let collector = Collector::try_from(text.to_owned()).expect(text);
            assert_eq!(collector.uri().to_string(), uri);
        }
        assert_eq!(Collector::default(), Collector::try_from("localhost:4317".to_owned()).expect("kubelet's"));
    }

    #[test]
    fn what_cannot_be_used_says_what_can() {
        let refused = |text: &str| Collector::try_from(text.to_owned()).expect_err(text).to_string();
        assert!(refused("https://collector:4317").contains("without TLS"));
        for text in [
            "",
            "localhost",
            ":4317",
            "http://",
            "http://collector",
            "http://collector:4317/v1/traces",
            "http://user:PW@collector:4317",
            "unix:/run/collector.sock",
            "collector:65536",
            "dns:collector:4317",
        ] {
            assert!(refused(text).contains("port 4317"), "{text}");
        }
    }
}
