//! What images of VMs are: how one is called, and what a file of one is. Pure judgement and bytes that stream by; knows of no server,
//! no store and no pod. A limit or a policy is an argument.
//!
//! | module | what it does |
//! |---|---|
//! | [`name`] | reads image names, and makes them of URLs and files |
//! | [`digest`] | digests, and ids of images |
//! | [`inspect`] | judges a file by its own bytes: qcow2 or raw, how large, on which image it stands |
//! | [`decode`] | decompresses, also in a process of its own that reaches nothing but its three pipes |
//! | [`convert`] | has a confined `qemu-img` make qcow2 of a few other formats |
//! | [`tar`] | reads archives as they stream by |
//! | [`declared`] | the formats that a rule or a source may say that an image has |
//! | [`error`] | classes of failures, and texts from outside as errors show them |
//!
//! Three rooms, each of which knows those below it: `convert` and `declared`; `decode`, `inspect`, `name` and `tar`; `digest` and
//! `error`. `imagestore` brings images by all of this, and `virtletctl` judges files and names before it asks controld.

pub mod convert;
pub mod declared;
pub mod decode;
pub mod digest;
pub mod error;
pub mod inspect;
pub mod name;
pub mod tar;
