//! A login as text, and as a digest that identifies it without revealing it.

use sha2::{Digest as _, Sha256};
use vmimage::digest::hex;

use crate::sources::net::Auth;
use crate::sources::provider::Want;

/// Tells logins apart without telling them.
pub(super) fn fingerprint(want: &Want) -> String {
    let Some(auth) = &want.auth else { return String::new() };
    hex(&Sha256::digest(login(auth, &want.auth_server)))
}

/// A login as a text, which is as secret. `server` is the one that it is for.
pub(super) fn login(auth: &Auth, server: &str) -> String {
    match auth {
        Auth::Basic { user, password } => format!("basic {}:{user}:{password} {server}", user.len()),
        Auth::Bearer(token) => format!("bearer {token} {server}"),
    }
}
