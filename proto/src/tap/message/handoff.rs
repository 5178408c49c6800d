//! How a NIC of a hand-off is written: in one flat form, so that one that is a tap looks as it did before there were others.
//!
//! Called by serde for [`HandoffNic`].

use serde::{Deserialize, Serialize};

use super::{HandoffNic, HandoffTap, HandoffVfio, MacAddr};

/// A NIC as it is written. It has `vfio` alone, or what a tap has.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Form {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    mac: Option<MacAddr>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    mtu: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    queues: Option<u16>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    vhost: Option<u16>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    vfio: Option<HandoffVfio>,
}

/// It is neither.
#[derive(Debug, thiserror::Error)]
#[error("a NIC has `mac`, `mtu` and `queues`, or `vfio` alone")]
pub(super) struct FormError;

impl TryFrom<Form> for HandoffNic {
    type Error = FormError;

    fn try_from(form: Form) -> Result<Self, FormError> {
        match form {
            Form { mac: Some(mac), mtu: Some(mtu), queues: Some(queues), vhost, vfio: None } => {
                Ok(Self::Tap(HandoffTap { mac, mtu, queues, vhost: vhost.unwrap_or(0) }))
            }
            Form { mac: None, mtu: None, queues: None, vhost: None, vfio: Some(vfio) } => Ok(Self::Vfio { vfio }),
            _ => Err(FormError),
        }
    }
}

impl From<HandoffNic> for Form {
    fn from(nic: HandoffNic) -> Self {
        let none = Self { mac: None, mtu: None, queues: None, vhost: None, vfio: None };
        match nic {
            HandoffNic::Tap(HandoffTap { mac, mtu, queues, vhost }) => {
                Self { mac: Some(mac), mtu: Some(mtu), queues: Some(queues), vhost: Some(vhost), ..none }
            }
            HandoffNic::Vfio { vfio } => Self { vfio: Some(vfio), ..none },
        }
    }
}
