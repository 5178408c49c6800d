//! Writes figures as OpenMetrics' text: a method for each sort that [`super::facts`] has.

use std::fmt::Error;

use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Unit;

/// The text under way.
pub(super) struct Page<'a>(DescriptorEncoder<'a>);

impl<'a> Page<'a> {
    pub(super) fn new(encoder: DescriptorEncoder<'a>) -> Self {
        Self(encoder)
    }

    pub(super) fn info(&mut self, name: &str, help: &str, labels: impl EncodeLabelSet) -> Result<(), Error> {
        self.0.encode_descriptor(name, help, None, MetricType::Info)?.encode_info(&labels)
    }

    pub(super) fn bytes(&mut self, name: &str, help: &str, bytes: u64) -> Result<(), Error> {
        self.0.encode_descriptor(name, help, Some(&Unit::Bytes), MetricType::Gauge)?.encode_gauge(&bytes)
    }

    pub(super) fn gauge(&mut self, name: &str, help: &str, value: u64) -> Result<(), Error> {
        self.0.encode_descriptor(name, help, None, MetricType::Gauge)?.encode_gauge(&value)
    }

    pub(super) fn counter(&mut self, name: &str, help: &str, value: u64) -> Result<(), Error> {
        let mut counter = self.0.encode_descriptor(name, help, None, MetricType::Counter)?;
        counter.encode_counter::<NoLabelSet, _, u64>(&value, None)
    }

    pub(super) fn seconds(&mut self, name: &str, help: &str, value: f64) -> Result<(), Error> {
        let mut counter = self.0.encode_descriptor(name, help, Some(&Unit::Seconds), MetricType::Counter)?;
        counter.encode_counter::<NoLabelSet, _, f64>(&value, None)
    }

    pub(super) fn sizes<L: EncodeLabelSet>(
        &mut self,
        name: &str,
        help: &str,
        samples: impl Iterator<Item = (L, u64)>,
    ) -> Result<(), Error> {
        self.gauges_in(Some(&Unit::Bytes), name, help, samples)
    }

    pub(super) fn gauges<L: EncodeLabelSet>(
        &mut self,
        name: &str,
        help: &str,
        samples: impl Iterator<Item = (L, u64)>,
    ) -> Result<(), Error> {
        self.gauges_in(None, name, help, samples)
    }

    fn gauges_in<L: EncodeLabelSet>(
        &mut self,
        unit: Option<&Unit>,
        name: &str,
        help: &str,
        mut samples: impl Iterator<Item = (L, u64)>,
    ) -> Result<(), Error> {
        let mut family = self.0.encode_descriptor(name, help, unit, MetricType::Gauge)?;
        samples.try_for_each(|(labels, value)| family.encode_family(&labels)?.encode_gauge(&value))
    }

    pub(super) fn counters<L: EncodeLabelSet>(
        &mut self,
        name: &str,
        help: &str,
        unit: Option<&Unit>,
        mut samples: impl Iterator<Item = (L, u64)>,
    ) -> Result<(), Error> {
        let mut family = self.0.encode_descriptor(name, help, unit, MetricType::Counter)?;
        samples.try_for_each(|(labels, value)| {
            family.encode_family(&labels)?.encode_counter::<NoLabelSet, _, u64>(&value, None)
        })
    }
}
