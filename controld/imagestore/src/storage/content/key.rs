//! The key that an image is bound to: a reference and a runtime handler. The same reference may mean other bytes for
//! another handler, as its guests may run on another platform.

use std::fmt;

use vmimage::name::ImageRef;

/// Longest name of a handler (a DNS label, as Kubernetes has it).
const MAX: usize = 63;

/// A runtime handler, by the name of its directories. The default one has none of its own: its name may change, and
/// its links lie where Virtlet's do.
#[derive(Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Handler(String);

/// A reference, for a handler.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Key {
    pub(crate) handler: Handler,
    pub(crate) image: ImageRef,
}

impl Handler {
    /// The handler of that name, which is not the default one's. `None` if no handler can have that name.
    pub(crate) fn named(name: &str) -> Option<Self> {
        let allowed = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || matches!(byte, b'-' | b'.');
        let ends = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_alphanumeric);
        let bytes = name.as_bytes();
        let sound =
            bytes.len() <= MAX && bytes.iter().copied().all(allowed) && ends(bytes.first()) && ends(bytes.last());
        sound.then(|| Self(name.to_owned()))
    }

    pub(crate) fn is_default(&self) -> bool {
        self.0.is_empty()
    }

    /// Its name; empty for the default one.
    pub(crate) fn name(&self) -> &str {
        &self.0
    }

    /// Its directory below `refs/`. No handler's name begins with an underscore.
    pub(crate) fn refs_dir(&self) -> &str {
        if self.is_default() { "_default" } else { &self.0 }
    }
}

impl Key {
    pub(crate) fn new(handler: &Handler, image: &ImageRef) -> Self {
        Self { handler: handler.clone(), image: image.clone() }
    }
}

impl fmt::Debug for Handler {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "`{}`", self.refs_dir())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_handlers_are_names_of_directories() {
        for name in ["vm", "vm-arm64", "a.b", "1", &"x".repeat(63)] {
            assert_eq!(Handler::named(name).expect(name).refs_dir(), name);
        }
        for name in ["", ".", "..", "a/b", "_default", "-a", "a-", "VM", "a b", "a\0", "ä", &"x".repeat(64)] {
            assert_eq!(Handler::named(name), None, "{name}");
        }
        assert!(Handler::default().is_default());
    }
}
