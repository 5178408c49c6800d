//! Counters of NICs, from the guest's point of view. Pure.
//!
//! A tap's counters are the machine's: what it received the guest sent. A macvtap's are the guest's own, but it does not
//! count what the redirect puts into it: what its link received and the guard let pass stands for that.
//!
//! What filters drop is counted by the queueing discipline that they hang on, not by the link.

use std::collections::BTreeMap;

use proto::tap::{DataPath, Nic, NicStats};

use super::tap_name;
use crate::sys::link::Counted;

/// The counters of `nics`, from those of links and filters by index. Zeros for a NIC whose links are gone.
pub(super) fn of(nics: &[Nic], counted: &BTreeMap<u32, Counted>, refused: &BTreeMap<u32, u64>) -> Vec<NicStats> {
    let find = |name: &_| {
        let (index, (_, stats)) = counted.iter().find(|(_, (other, _))| other == name)?;
        Some((*stats, refused.get(index).copied().unwrap_or(0)))
    };
    let of = |(place, nic): (usize, &Nic)| {
        let (tap, tap_refused) = find(&tap_name(place)).unwrap_or_default();
        let sent_refused = |dropped: u64| dropped.saturating_add(tap_refused);
        if nic.data_path == DataPath::Macvtap {
            let (link, link_refused) = find(&nic.name).unwrap_or_default();
            return NicStats {
                name: nic.name.clone(),
                rx_bytes: link.rx_bytes,
                rx_packets: link.rx_packets.saturating_sub(link_refused),
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
