//! The test bed: private worlds for cases, and the fixtures that live in them.
//!
//! `bed` (the only caller) runs every case as a process of its own in private mount, network, process, IPC, host name
//! and cgroup namespaces ([`cell`]), so a case has the standard paths, links, firewall and libvirt to itself, two cases
//! or two whole runs stand side by side, and nothing of the machine is touched. Nothing here sleeps: a wait is
//! [`wait::wait_for`], with a name and a deadline by the clock of [`pace`]. Nothing is retried.

pub mod agent_image;
pub mod browser;
pub mod canary;
pub mod capture;
pub mod case;
pub mod cell;
pub mod cluster;
pub mod cni;
pub mod collector;
pub mod command;
pub mod config;
pub mod containerd;
pub mod controld_metrics;
pub mod controllers;
pub mod cost;
pub mod counting;
pub mod cri;
pub mod critest;
pub mod daemon;
pub mod data_image;
pub mod device_plugin;
pub mod dice;
pub mod emulated;
pub mod emulator;
pub mod faulty_api;
pub mod flexvolumes;
pub mod forwarded;
pub mod frames;
pub mod guest;
pub mod handoff;
pub mod http;
pub mod image_node;
pub mod image_server;
pub mod installed;
mod json_lines;
pub mod kubeadm;
pub mod kubelet;
pub mod kubelet_volumes;
pub mod libvirt;
pub mod loop_device;
pub mod metrics_server;
pub mod modes;
pub mod net_node;
pub mod netns;
pub mod node;
pub mod numbers;
pub mod pace;
pub mod pages;
pub mod peers;
pub mod pings;
pub mod pss;
mod queue;
pub mod raw;
pub mod records;
mod report;
pub mod rfb;
pub mod runner;
pub mod sham_kubelet;
mod silence;
mod slots;
pub mod sriov;
pub mod store_view;
pub mod subresources;
pub mod subresources_server;
mod sweep;
pub mod taken;
pub mod terminal;
pub mod traffic;
pub mod view;
pub mod wait;
pub mod world;
