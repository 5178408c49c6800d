//! What an operator can do about a pull that failed: the key of the configuration that stands in its way, if one does.

use std::io;

use imagestore::{FetchError, PullError};
use rustls::InvalidMessage;

/// Behind the word that the image was not pulled.
pub(super) fn of(cause: &PullError) -> &'static str {
    match cause.fetch() {
        Some(FetchError::Address { address, .. }) if address.to_canonical().is_loopback() => {
            "; to have images from this node itself, set `images.network.allow_loopback`"
        }
        Some(FetchError::Address { .. }) => "; see the keys of `images.network`",
        Some(FetchError::Tls { cause, .. }) if speaks_no_tls(cause) => {
            "; of a server that speaks plain HTTP, set `images.protocol`, or translate the name to a URL"
        }
        _ => "",
    }
}

/// Whether the server has answered, and not in TLS.
fn speaks_no_tls(cause: &io::Error) -> bool {
    let cause = cause.get_ref().and_then(|cause| cause.downcast_ref::<rustls::Error>());
    matches!(cause, Some(rustls::Error::InvalidMessage(InvalidMessage::InvalidContentType)))
}
