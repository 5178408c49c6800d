//! What images are: whether a file is a disk image that may be used, and how one of another kind becomes such a file.
//!
//! | module | what it does |
//! |---|---|
//! | [`inspect`] | judges a file by its own bytes: qcow2 or raw, how large, on which image it stands |
//! | [`decode`] | decompresses, in a process that can reach nothing |
//! | [`convert`] | has a confined `qemu-img` make qcow2 of a few other formats |
//! | [`tar`] | reads archives as they stream by |
//! | [`declared`] | the formats that a rule or a source may say that an image has |
//!
//! May know the crate's leaves (`digest`, `error`), and nothing of where images come from or where they lie: a limit or a
//! policy is an argument.

pub(crate) mod convert;
pub(crate) mod declared;
pub(crate) mod decode;
pub(crate) mod inspect;
pub mod tar;
