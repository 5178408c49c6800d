//! Where images lie: on disk by their digest, with their names and their users, and how they get there.
//!
//! | module | what it does |
//! |---|---|
//! | [`store`] | the [`Store`](store::Store), which callers use: pulls, lists, leases, removals |
//! | [`pull`] | one pull, step by step |
//! | [`ingest`] | takes in the bytes of one image: decompresses, hashes, judges and writes them in one pass |
//! | [`content`] | what is on disk, and the same in memory: images, names, leases |
//! | [`fit`] | whether an image that is here is one that a runtime handler takes |
//! | [`config`] | the settings of a store |
//!
//! The upper storey: may know [`sources`](crate::sources).

pub(crate) mod config;
pub(crate) mod content;
pub(crate) mod fit;
pub(crate) mod ingest;
pub(crate) mod pull;
pub(crate) mod store;
