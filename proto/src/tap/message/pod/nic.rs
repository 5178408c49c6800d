//! How a NIC is written: in one flat form, so that one that is a tap looks as it did before there were others.
//!
//! Called by serde for [`Nic`], on the wire and in the records of both daemons.

use ipnetwork::IpNetwork;
use serde::{Deserialize, Serialize};

use super::{DataPath, IfName, MacAddr, Nic, NicKind, Route, Tap, Vfio};

/// A NIC as it is written. It has `queues` if it is a tap, or else `vfio`.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Form {
    name: IfName,
    #[serde(default)]
    network: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    data_path: Option<DataPath>,
    mac: MacAddr,
    mtu: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    queues: Option<u16>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    vfio: Option<Vfio>,
    addresses: Vec<IpNetwork>,
    routes: Vec<Route>,
}

/// It is neither, or both.
#[derive(Debug, thiserror::Error)]
#[error("NIC `{name}` has {found}; a tap has `queues`, and a NIC that is passed through `vfio` alone")]
pub(super) struct FormError {
    name: IfName,
    found: &'static str,
}

impl TryFrom<Form> for Nic {
    type Error = FormError;

    fn try_from(form: Form) -> Result<Self, FormError> {
        let Form { name, network, data_path, mac, mtu, queues, vfio, addresses, routes } = form;
        let kind = match (queues, data_path, vfio) {
            (Some(queues), data_path, None) => NicKind::Tap(Tap { data_path: data_path.unwrap_or_default(), queues }),
            (None, None, Some(vfio)) => NicKind::Vfio(vfio),
            (None, _, None) => return Err(FormError { name, found: "neither `queues` nor `vfio`" }),
            (_, _, Some(_)) => return Err(FormError { name, found: "`vfio` and the keys of a tap" }),
        };
        Ok(Self { name, network, mac, mtu, kind, addresses, routes })
    }
}

impl From<Nic> for Form {
    fn from(nic: Nic) -> Self {
        let Nic { name, network, mac, mtu, kind, addresses, routes } = nic;
        let (data_path, queues, vfio) = match kind {
            NicKind::Tap(Tap { data_path, queues }) => (Some(data_path), Some(queues), None),
            NicKind::Vfio(vfio) => (None, None, Some(vfio)),
        };
        Self { name, network, data_path, mac, mtu, queues, vfio, addresses, routes }
    }
}
