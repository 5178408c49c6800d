//! Pulls from servers that behave, and from many that do not. Everything goes through the store's public face.

mod behaviour;
mod by_url;
mod checksums;
mod converted;
mod full;
mod grants;
mod handlers;
mod hostile;
mod import;
mod layers;
mod logins;
mod offline;
mod registries;
mod resume;
mod rig;
mod together;
