//! virt-builder.
#![allow(dead_code)]
pub mod index;
