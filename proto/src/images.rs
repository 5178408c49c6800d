//! The service for looking after a node's images, beside CRI on the same socket.
//!
//! Generated from `images/admin.proto`.

#![allow(missing_docs, clippy::allow_attributes_without_reason, reason = "generated from images/admin.proto")]

use std::fmt;

include!("../generated/virtlet.images.v1.rs");

/// The credentials of a pull. Shows which parts are set, never what they are.
impl fmt::Debug for Auth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = |secret: &str| if secret.is_empty() { "" } else { "(redacted)" };
        f.debug_struct("Auth")
            .field("username", &self.username)
            .field("password", &shown(&self.password))
            .field("bearer_token", &shown(&self.bearer_token))
            .finish()
    }
}
