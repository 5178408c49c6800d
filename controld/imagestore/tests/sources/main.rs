//! Providers of catalogs (Simple Streams, Glance, Lago, virt-builder, registries) against servers that say what a test
//! wants.

mod glance;
mod lago;
mod oci;
mod rig;
mod simplestreams;
mod virt_builder;
