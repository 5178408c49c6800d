//! Manifests as `kubectl apply` takes them, judged without a cluster: would their pods become machines here?
//!
//! [`vmspec::manifest`] finds the pods in a file, also those that a Deployment or another owner would make. [`kubelet`] makes of each what a
//! kubelet would ask for. [`judge`] then takes the same steps as the daemon does for such a call, up to the first that needs the node:
//! nothing is asked, pulled or made.

#[cfg(test)]
mod documents;
mod flexvolume;
mod judge;
mod kubelet;
#[cfg(test)]
mod rendered;

pub use self::judge::{Verdict, judge};
