//! Providers of catalogs (Simple Streams, Glance, Lago) against servers that say what a test wants.

mod glance;
mod lago;
mod rig;
mod simplestreams;
