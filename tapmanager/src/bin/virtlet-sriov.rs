//! The CNI plugin `virtlet-sriov`. See [`tapmanager::plugin`].
//!
//! Exit codes: 0 done, 1 failed; then standard output has the error as the CNI specification says.

use std::process::ExitCode;

fn main() -> ExitCode {
    tapmanager::plugin::run()
}
