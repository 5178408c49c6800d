//! `kubernetes.io/ingress-bandwidth` and `kubernetes.io/egress-bandwidth`: limits of a pod's traffic. Pure.
//!
//! The keys, the unit (bits per second as a quantity) and the range are those of Kubernetes' network plugin support.

use std::collections::BTreeMap;

use common::quantity;
use proto::tap::Bandwidth;

use super::Problem;
use super::reader::Reader;

const INGRESS: &str = "kubernetes.io/ingress-bandwidth";
const EGRESS: &str = "kubernetes.io/egress-bandwidth";
/// Least and most rate that Kubernetes takes, in bits per second.
const LEAST: u64 = 1_000;
const MOST: u64 = 1_000_000_000_000_000;
/// The plugin wants a burst; this one, in bits, is what other runtimes give it.
const BURST: u64 = i32::MAX as u64;

/// The limits, if there are any; what is wrong goes to `reader`.
pub(super) fn of(all: &BTreeMap<String, String>, reader: &mut Reader<'_>) -> Option<Bandwidth> {
    let mut rate = |key: &str| {
        let text = all.get(key).filter(|text| !text.is_empty())?;
        parse(text).map_err(|problem| reader.refuse(key, problem)).ok()
    };
    let (ingress_rate, egress_rate) = (rate(INGRESS), rate(EGRESS));
    (ingress_rate.is_some() || egress_rate.is_some()).then(|| Bandwidth {
        ingress_rate,
        ingress_burst: ingress_rate.map(|_| BURST),
        egress_rate,
        egress_burst: egress_rate.map(|_| BURST),
    })
}

fn parse(text: &str) -> Result<u64, Problem> {
    let value = || text.to_owned();
    match quantity::bytes(text) {
        Ok(rate) if rate < LEAST => Err(Problem::Below { value: value(), limit: LEAST }),
        Ok(rate) if rate <= MOST => Ok(rate),
        Ok(_) | Err(quantity::QuantityError::TooLarge) => Err(Problem::Over { value: value(), limit: MOST }),
        Err(quantity::QuantityError::Negative) => Err(Problem::Below { value: value(), limit: LEAST }),
        Err(quantity::QuantityError::Malformed) => Err(Problem::NotQuantity(value())),
    }
}

#[cfg(test)]
mod tests {
    use super::super::PodAnnotations;
    use super::*;

    fn parsed(ingress: &str, egress: &str) -> Result<Option<Bandwidth>, String> {
        let all = [(INGRESS.to_owned(), ingress.to_owned()), (EGRESS.to_owned(), egress.to_owned())].into();
        PodAnnotations::parse(&all).map(|parsed| parsed.bandwidth).map_err(|error| error.to_string())
    }

    #[test]
    fn quantities_are_bits_per_second() {
        assert_eq!(parsed("", ""), Ok(None));
        let both = parsed("10M", "1Gi").expect("parses").expect("is there");
        assert_eq!((both.ingress_rate, both.egress_rate), (Some(10_000_000), Some(1 << 30)));
        assert_eq!(parsed("", "1k").expect("parses").expect("is there").ingress_burst, None);
    }

    #[test]
    fn rates_out_of_range_are_refused_by_name() {
        for (ingress, problem) in [("999", "is below 1000"), ("2P", "is over the limit"), ("fast", "is not a quantity")]
        {
            let error = parsed(ingress, "").expect_err("refused");
            assert!(error.contains(INGRESS) && error.contains(problem), "{error}");
        }
    }
}
