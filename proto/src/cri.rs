//! CRI v1 as of cri-api 0.37: every message, and the 43 calls of its two services.
//!
//! Generated from `cri/api.proto`. Services that do not override a call answer `Unimplemented`.

#![allow(missing_docs, clippy::allow_attributes_without_reason, reason = "generated from cri/api.proto")]

use std::fmt;

include!("../generated/runtime.v1.rs");

/// The registry credentials of a pull. Shows which parts are set, never what they are.
impl fmt::Debug for AuthConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = |secret: &str| if secret.is_empty() { "" } else { "(redacted)" };
        f.debug_struct("AuthConfig")
            .field("username", &self.username)
            .field("password", &shown(&self.password))
            .field("auth", &shown(&self.auth))
            .field("server_address", &self.server_address)
            .field("identity_token", &shown(&self.identity_token))
            .field("registry_token", &shown(&self.registry_token))
            .finish()
    }
}
