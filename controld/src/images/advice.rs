//! What an operator can do about a pull that failed: the key of the configuration that stands in its way, if one does.

use std::io;

use imagestore::{FetchError, PullError};
use rustls::InvalidMessage;

/// Behind the word that the image was not pulled. `is_registry` tells whether a provider is one of registries.
pub(super) fn of(cause: &PullError, is_registry: impl Fn(&str) -> bool) -> &'static str {
    match cause.fetch() {
        Some(FetchError::Address { .. }) if is_local(cause) => {
            "; nothing was brought to this node under that name, see `virtletctl image import`"
        }
        Some(FetchError::Address { address, .. }) if address.to_canonical().is_loopback() => {
            "; to have images from this node itself, set `images.network.allow_loopback`"
        }
        Some(FetchError::Address { .. }) => "; see the keys of `images.network`",
        Some(FetchError::Tls { cause: tls, .. }) if speaks_no_tls(tls) => of_plain_http(cause, is_registry),
        _ => "",
    }
}

/// Whether the name is one of images that come from no server.
fn is_local(cause: &PullError) -> bool {
    match cause {
        PullError::Find { image, .. } | PullError::Download { image, .. } => image.is_local(),
        _ => false,
    }
}

/// What has to say that a server speaks plain HTTP: that by which it was found.
fn of_plain_http(cause: &PullError, is_registry: impl Fn(&str) -> bool) -> &'static str {
    const ANY_REGISTRY: &str =
        "; of a registry that speaks plain HTTP, name the host in `plain_http` of a provider of type `oci`";
    match cause {
        PullError::Download { url, .. } if ["oci://", "docker://"].iter().any(|scheme| url.starts_with(scheme)) => {
            ANY_REGISTRY
        }
        PullError::Download { by, .. } if by.starts_with("rule ") => {
            "; of a server that speaks plain HTTP, begin the rule's `url` with `http://`"
        }
        PullError::Download { by, .. } if by.starts_with("URL ") => {
            "; of a server that speaks plain HTTP, begin the URL with `http://`"
        }
        _ => match cause.asked() {
            // Of the one that is there without having been configured, there is no `plain_http`.
            Some("registries") => {
                "; of a server that speaks plain HTTP, set `images.protocol`, translate the name to a URL, or name a registry's \
                 host in `plain_http` of a provider of type `oci`"
            }
            Some(provider) if is_registry(provider) => {
                "; of a registry that speaks plain HTTP, name the host in `plain_http` of that provider"
            }
            Some(_) => "; of a source that speaks plain HTTP, begin the provider's address with `http://`",
            None => "; of a server that speaks plain HTTP, set `images.protocol`, or translate the name to a URL",
        },
    }
}

/// Whether the server has answered, and not in TLS.
fn speaks_no_tls(cause: &io::Error) -> bool {
    let cause = cause.get_ref().and_then(|cause| cause.downcast_ref::<rustls::Error>());
    matches!(cause, Some(rustls::Error::InvalidMessage(InvalidMessage::InvalidContentType)))
}
