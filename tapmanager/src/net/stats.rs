//! Counters of NICs, from the guest's point of view. Pure.
//!
//! A tap's counters are the machine's: what it received the guest sent. A macvtap's are the guest's own, but it does not
//! count what the redirect puts into it: the redirect does, from when it was made or made again.
//!
//! What filters drop is counted by the queueing discipline that they hang on, not by the link.

use std::collections::BTreeMap;

use proto::tap::{Nic, NicStats};

use super::{path, tap_name};
use crate::sys::link::Counted;

/// What the kernel counted, by the index of links.
#[derive(Debug, Default)]
pub(super) struct Counts {
    /// By links themselves.
    pub(super) counted: BTreeMap<u32, Counted>,
    /// Frames that guards dropped.
    pub(super) refused: BTreeMap<u32, u64>,
    /// Packets and bytes that redirects took from links; asked for where there is a macvtap.
    pub(super) redirected: BTreeMap<u32, (u64, u64)>,
}

/// The counters of `nics`. Zeros for a NIC whose links are gone, and for one that is passed through: its card counts.
pub(super) fn of(nics: &[Nic], counts: &Counts) -> Vec<NicStats> {
    let Counts { counted, refused, redirected } = counts;
    let find = |name: &_| {
        let (index, (_, stats)) = counted.iter().find(|(_, (other, _))| other == name)?;
        Some((*index, *stats, refused.get(index).copied().unwrap_or(0)))
    };
    let of = |(place, nic): (usize, &Nic)| {
        let (_, tap, tap_refused) = find(&tap_name(place)).unwrap_or_default();
        let sent_refused = |dropped: u64| dropped.saturating_add(tap_refused);
        if path::of(nic.kind).counts_at_redirect() {
            let (index, link, _) = find(&nic.name).unwrap_or_default();
            let (rx_packets, rx_bytes) = redirected.get(&index).copied().unwrap_or_default();
            return NicStats {
                name: nic.name.clone(),
                rx_bytes,
                rx_packets,
                rx_errors: link.rx_errors,
                rx_dropped: tap.rx_dropped,
                tx_bytes: tap.tx_bytes,
                tx_packets: tap.tx_packets,
                tx_errors: tap.tx_errors,
                tx_dropped: sent_refused(tap.tx_dropped),
            };
        }
        NicStats {
            name: nic.name.clone(),
            rx_bytes: tap.tx_bytes,
            rx_packets: tap.tx_packets,
            rx_errors: tap.tx_errors,
            rx_dropped: tap.tx_dropped,
            tx_bytes: tap.rx_bytes,
            tx_packets: tap.rx_packets,
            tx_errors: tap.rx_errors,
            tx_dropped: sent_refused(tap.rx_dropped),
        }
    };
    nics.iter().enumerate().map(of).collect()
}
