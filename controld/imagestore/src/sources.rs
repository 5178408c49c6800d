//! Where images come from: from the name in a pod to bytes that a server sends.
//!
//! | module | what it does |
//! |---|---|
//! | [`translate`] | turns names into URLs by rules |
//! | [`provider`] | asks one kind of source what it has: one trait, one module for each kind |
//! | [`net`] | speaks HTTP(S) for all of them |
//!
//! Knows nothing of where images lie: a source says what is
//! there and opens it, and writes no file.

pub mod net;
pub mod provider;
pub(crate) mod translate;
