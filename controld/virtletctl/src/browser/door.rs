//! Who may see the page: who has the cookie, which the first who comes with the token gets.
//!
//! A token is in a URL, and so in terminals, in lists of processes and in a browser's history; it opens once. Cookies know no ports, so the
//! cookie's name has ours in it, and the page is below a path that is a secret, too: to servers at other ports, whose pages do not know
//! it, a browser does not show the cookie.

use std::sync::atomic::{AtomicBool, Ordering};

use hyper::header::{COOKIE, HeaderMap, HeaderValue};
use uuid::Uuid;

#[derive(Debug)]
pub(super) struct Door {
    port: u16,
    token: String,
    spent: AtomicBool,
    cookie: String,
    place: String,
}

impl Door {
    pub(super) fn new(port: u16) -> Self {
        Self { port, token: secret(), spent: AtomicBool::new(false), cookie: secret(), place: format!("/{}", secret()) }
    }

    pub(super) fn token(&self) -> &str {
        &self.token
    }

    /// What all paths of the page begin with, a slash behind it.
    pub(super) fn place(&self) -> &str {
        &self.place
    }

    /// The cookie, for the first who has the token.
    pub(super) fn enter(&self, token: &str) -> Option<HeaderValue> {
        if !is_same(token, &self.token) || self.spent.swap(true, Ordering::Relaxed) {
            return None;
        }
        let cookie = format!("{}={}; Path={}/; HttpOnly; SameSite=Strict", self.name(), self.cookie, self.place);
        HeaderValue::from_str(&cookie).ok()
    }

    /// Whether a request brings the cookie.
    pub(super) fn knows(&self, headers: &HeaderMap) -> bool {
        let name = self.name();
        let cookies = headers.get_all(COOKIE).iter().filter_map(|line| line.to_str().ok());
        let mut cookies = cookies.flat_map(|line| line.split(';')).filter_map(|one| one.trim().split_once('='));
        cookies.any(|(its, value)| its == name && is_same(value, &self.cookie))
    }

    fn name(&self) -> String {
        format!("virtlet-{}", self.port)
    }
}

/// 244 bits of the system's randomness, as hexadecimal digits: a UUID of this kind has 122.
fn secret() -> String {
    format!("{}{}", Uuid::new_v4().simple(), Uuid::new_v4().simple())
}

/// Takes as long wherever the first difference is.
fn is_same(said: &str, secret: &str) -> bool {
    let differ = said.bytes().zip(secret.bytes()).fold(0, |differ, (one, other)| differ | (one ^ other));
    said.len() == secret.len() && std::hint::black_box(differ) == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(cookie: &str) -> HeaderMap {
        [(COOKIE, cookie.parse().expect("a header"))].into_iter().collect()
    }

    #[test]
    fn a_token_opens_once() {
        let door = Door::new(6080);
        assert_eq!(door.token().len(), 64);
        assert_ne!(door.token(), Door::new(6080).token());
        for wrong in ["", "0", &door.token()[1..], &format!("{}0", door.token()), &"0".repeat(64)] {
            assert_eq!(door.enter(wrong), None, "{wrong}");
        }
        let cookie = door.enter(door.token()).expect("the first time");
        assert_eq!(door.enter(door.token()), None);
        let cookie = cookie.to_str().expect("text");
        let (pair, rest) = cookie.split_once("; ").expect("attributes");
        assert_eq!(rest, format!("Path={}/; HttpOnly; SameSite=Strict", door.place()));
        assert!(door.place().len() == 65 && door.place() != Door::new(6080).place());
        assert!(pair.starts_with("virtlet-6080=") && !pair.contains(door.token()), "{pair}");
        assert!(door.knows(&with(pair)));
        assert!(door.knows(&with(&format!("other=1; {pair}"))));
    }

    #[test]
    fn no_other_cookie_is_known() {
        let door = Door::new(6080);
        let value = door.cookie.clone();
        for wrong in ["", "virtlet-6080=", &format!("virtlet-6081={value}"), &format!("virtlet-6080={value}0"), &value]
        {
            assert!(!door.knows(&with(wrong)), "{wrong}");
        }
        assert!(!door.knows(&HeaderMap::new()));
    }
}
