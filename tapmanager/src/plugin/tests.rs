mod commands;
mod crash;
mod model;
mod race;
mod vfs;
