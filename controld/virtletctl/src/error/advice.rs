//! What a user can do about an error.

use std::io;

use streaming::client::EndError;
use tonic::Code;

use super::CtlError;

impl CtlError {
    /// What to do about it, if that is not in the text already.
    pub(super) fn advice(&self) -> Option<&'static str> {
        match self {
            Self::Connect { cause, .. } if cause.kind() == io::ErrorKind::PermissionDenied => {
                Some("are you root? the socket is for root only")
            }
            Self::Connect { .. } => Some("is controld running? --socket says where"),
            Self::Call { cause, .. } | Self::Image { cause, .. } if cause.is_lost_connection() => {
                Some("is controld running?")
            }
            // Without a word of its own, the call is unknown there.
            Self::Call { cause, .. } | Self::Image { cause, .. }
                if cause.0.code() == Code::Unimplemented && cause.0.message().is_empty() =>
            {
                Some("is that the socket of a controld of this version?")
            }
            Self::Deadline { .. } => Some("see controld's log; `virtletctl ps -a` shows what became of it"),
            Self::Answer { .. } => Some("is that the socket of a controld of this version?"),
            Self::NoPod { text, .. } if text == "aux" => {
                Some("processes of a guest are shown by `virtletctl exec POD ps aux`")
            }
            Self::NoPod { text, .. } if text.contains(':') => Some("`virtletctl image inspect NAME` tells of an image"),
            Self::NoPod { text, .. } if text.contains(['.', '/']) => {
                Some("a pod of a namespace is NAMESPACE/NAME, or NAME with -n NAMESPACE; `virtletctl ps -a` lists all")
            }
            Self::NoPod { .. } => Some("`virtletctl ps -a` lists all"),
            Self::Ambiguous { .. } => Some("write NAMESPACE/NAME, or more of an id"),
            Self::PodExists { .. } => Some("choose another --name, or remove it first"),
            Self::Running(_) => Some(
                "stop it first by `virtletctl stop`; or remove it by `rm -f`, which ends it at once, or `rm -f -t 30`, which \
                 lets it shut down",
            ),
            Self::NotRunning(_) | Self::NotYet(_) => Some("`virtletctl ps -a` shows how it is"),
            Self::Command(EndError::Lost(_)) => {
                Some("did controld restart? the command was killed with it; see `journalctl -u controld`")
            }
            Self::Session(EndError::Lost(_)) => {
                Some("did controld restart? the machine runs on; see `journalctl -u controld`")
            }
            Self::NotOurs(_) => Some(
                "whoever made it, such as kubelet, decides on that; `virtletctl exec POD reboot` has the guest reboot",
            ),
            Self::Late { .. } => Some("`virtletctl logs` and `virtletctl console` show what the guest does"),
            Self::Uncertain(_) => Some("stop it first, once libvirt answers again"),
            Self::NoContainer(_) => Some("it may be starting; `virtletctl ps -a` shows it"),
            Self::NoFile { cause, .. } => cause.advice(),
            Self::OfCluster(error) => error.advice(),
            Self::OfImage(error) => error.advice(),
            Self::Twice { .. } => Some("leave one of them out"),
            Self::LeftBehind { .. } => Some("remove it with `virtletctl rm -f`"),
            _ => None,
        }
    }
}
