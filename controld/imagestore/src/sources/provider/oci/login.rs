//! The login of a registry's caller, and where it may be sent.

use base64::Engine as _;
use common::Reason;
use url::{Host, Url};

use crate::sources::net::Auth;

/// The user that stands for "the password is an identity token", as Docker's credential helpers have it.
const TOKEN_USER: &str = "<token>";

const NO_LOGIN: &str = "`auth` of the pull secret is not `user:password` in Base64";

/// The login of a pull secret in the words of CRI's `AuthConfig`, where empty texts are what is not given. The most
/// specific one counts: a token for the registry itself, then user and password, then an identity token, then `auth`.
///
/// # Errors
/// When `auth` is what counts and is nothing that can be.
pub fn login(
    username: &str,
    password: &str,
    auth: &str,
    identity_token: &str,
    registry_token: &str,
) -> Result<Option<Auth>, Reason> {
    let basic = |user: &str, password: &str| Auth::Basic { user: user.to_owned(), password: password.to_owned() };
    if !registry_token.is_empty() {
        return Ok(Some(Auth::Bearer(registry_token.to_owned())));
    }
    if !identity_token.is_empty() {
        return Ok(Some(basic(TOKEN_USER, identity_token)));
    }
    if !username.is_empty() {
        return Ok(Some(basic(username, password)));
    }
    if auth.is_empty() {
        return Ok(None);
    }
    let decoded = base64::engine::general_purpose::STANDARD.decode(auth.trim()).ok();
    let text = decoded.and_then(|decoded| String::from_utf8(decoded).ok());
    // Some tools pad with NUL.
    let pair = text.as_ref().and_then(|text| text.trim_end_matches('\0').split_once(':'));
    let (user, password) = pair.ok_or(Reason::new(NO_LOGIN))?;
    Ok(Some(basic(user, password)))
}

/// The identity token of a login, if it is one.
pub(super) fn identity_token(auth: &Auth) -> Option<&str> {
    match auth {
        Auth::Basic { user, password } if user == TOKEN_USER => Some(password),
        _ => None,
    }
}

/// Where to get a token from. `secret` says that a login is sent there.
pub(super) fn realm(text: &str, registry: &Url, secret: bool, allowed: &[String]) -> Result<Url, Reason> {
    let no_url = || Reason::new("the registry names no URL to get a token from");
    let url = Url::parse(text).map_err(|_| no_url())?;
    let host = url.host_str().ok_or_else(no_url)?.to_owned();
    match (url.scheme(), registry.scheme()) {
        ("https", _) | ("http", "http") => {}
        ("http", _) => return Err(Reason::new(format!("the registry wants a token from `{host}` without encryption"))),
        _ => return Err(no_url()),
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err(Reason::new("the registry wants a token from a URL with a login in it"));
    }
    let authority = url.port().map_or_else(|| host.clone(), |port| format!("{host}:{port}"));
    let is_allowed = allowed.iter().any(|allowed| *allowed == host || *allowed == authority);
    if secret && !is_allowed && !is_same_site(&url, registry) {
        return Err(Reason::new(format!(
            "the registry wants its login sent to `{host}`; if that is right, add it to `token_hosts`"
        )));
    }
    Ok(url)
}

/// Whether two hosts are of one owner: the same one, or names below the name that the registry's host is below.
fn is_same_site(realm: &Url, registry: &Url) -> bool {
    if realm.host() == registry.host() {
        return true;
    }
    let (Some(Host::Domain(realm)), Some(Host::Domain(registry))) = (realm.host(), registry.host()) else {
        return false;
    };
    let is_below = |parent: &str| realm == parent || realm.strip_suffix(parent).is_some_and(|rest| rest.ends_with('.'));
    let parent = registry.split_once('.').map(|(_, parent)| parent).filter(|parent| is_owned(parent));
    is_below(registry) || parent.is_some_and(is_below)
}

/// Whether a domain is one that somebody owns, and not one below which anybody may have a name: `com`, `co.uk`.
fn is_owned(domain: &str) -> bool {
    let labels: Vec<_> = domain.split('.').collect();
    match *labels {
        [] | [_] => false,
        // Countries' domains have short second levels for all of the country.
        [second, top] => second.len() > 3 || top.len() > 2,
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn basic(user: &str, password: &str) -> Option<Auth> {
        Some(Auth::Basic { user: user.into(), password: password.into() })
    }

    #[test]
    fn pull_secrets_are_logins() {
        let pair = |text: &str| base64::engine::general_purpose::STANDARD.encode(text);
        for (fields, expected) in [
            (["", "", "", "", ""], Ok(None)),
            (["u", "p", "", "", ""], Ok(basic("u", "p"))),
            (["u", "", "", "", ""], Ok(basic("u", ""))),
            (["u", "p", &pair("x:y"), "", ""], Ok(basic("u", "p"))),
            (["", "", &pair("x:y:z"), "", ""], Ok(basic("x", "y:z"))),
            (["", "", &pair("x:y\0\0"), "", ""], Ok(basic("x", "y"))),
            (["", "", &pair("x"), "", ""], Err(NO_LOGIN)),
            (["", "", "%%%", "", ""], Err(NO_LOGIN)),
            (["u", "p", "", "refresh", ""], Ok(basic("<token>", "refresh"))),
            (["u", "p", &pair("x:y"), "refresh", "token"], Ok(Some(Auth::Bearer("token".into())))),
        ] {
            let got = login(fields[0], fields[1], fields[2], fields[3], fields[4]);
            assert_eq!(got.map_err(|error| error.to_string()), expected.map_err(str::to_owned), "{fields:?}");
        }
        assert_eq!(identity_token(&basic("<token>", "refresh").expect("one")), Some("refresh"));
        assert_eq!(identity_token(&basic("user", "refresh").expect("one")), None);
    }

    #[test]
    fn logins_go_to_the_own_site_of_a_registry_alone() {
        let allowed = ["sso.example".to_owned(), "sso2.example:8443".to_owned()];
        for (text, registry, secret, expected) in [
            ("https://auth.docker.io/token", "https://registry-1.docker.io", true, Ok(())),
            ("https://gitlab.example/jwt", "https://registry.gitlab.example", true, Ok(())),
            ("https://quay.io/v2/auth", "https://quay.io", true, Ok(())),
            ("https://auth.quay.io/v2/auth", "https://quay.io", true, Ok(())),
            ("https://quay.io:8443/v2/auth", "https://quay.io", true, Ok(())),
            ("https://evil.io/v2/auth", "https://quay.io", true, Err("evil.io")),
            ("https://evilquay.io/v2/auth", "https://quay.io", true, Err("evilquay.io")),
            ("https://quay.io.evil.example/", "https://quay.io", true, Err("quay.io.evil.example")),
            ("https://evil.co.uk/", "https://registry.co.uk", true, Err("evil.co.uk")),
            ("https://auth.firm.co.uk/", "https://registry.firm.co.uk", true, Ok(())),
            ("https://sso.example/", "https://quay.io", true, Ok(())),
            ("https://sso2.example:8443/", "https://quay.io", true, Ok(())),
            ("https://sso2.example/", "https://quay.io", true, Err("sso2.example")),
            ("https://evil.example/", "https://quay.io", false, Ok(())),
            ("https://10.0.0.2/", "https://10.0.0.1", true, Err("10.0.0.2")),
            ("http://127.0.0.1:5001/", "http://127.0.0.1:5000", true, Ok(())),
            ("http://quay.io/", "https://quay.io", false, Err("without encryption")),
            ("https://user:secret@quay.io/", "https://quay.io", false, Err("a login in it")),
            ("https://user@quay.io/", "https://quay.io", false, Err("a login in it")),
            ("ftp://quay.io/", "https://quay.io", false, Err("no URL")),
            ("file:///etc/passwd", "http://quay.io", false, Err("no URL")),
            ("/token", "https://quay.io", false, Err("no URL")),
        ] {
            let registry = Url::parse(registry).expect("a URL");
            match (realm(text, &registry, secret, &allowed), expected) {
                (Ok(_), Ok(())) => {}
                (Err(error), Err(part)) => assert!(error.to_string().contains(part), "{text}: {error}"),
                (got, expected) => panic!("{text}: {got:?}, not {expected:?}"),
            }
        }
    }
}
