//! Words for how a machine is: ours, and kubectl's phases for the same.

pub(super) const RUNNING: &str = "Running";
pub(super) const PAUSED: &str = "Paused";
pub(super) const PAUSED_DISK_FULL: &str = "PausedDiskFull";
pub(super) const EXITED: &str = "Exited";
pub(super) const CREATED: &str = "Created";
pub(super) const UNKNOWN: &str = "Unknown";
/// Of a pod without a machine that has its network.
pub(super) const EMPTY: &str = "Empty";
/// Of one that has none.
pub(super) const STOPPED: &str = "Stopped";

/// All of ours.
pub(super) const STATES: [&str; 8] = [RUNNING, PAUSED, PAUSED_DISK_FULL, EXITED, CREATED, UNKNOWN, EMPTY, STOPPED];
/// All of kubectl's.
pub(super) const PHASES: [&str; 5] = ["Pending", RUNNING, "Succeeded", "Failed", UNKNOWN];

/// kubectl's word for a state. Of a machine that has ended, its exit code says which.
pub(super) fn of(state: &str, exit_code: Option<i32>) -> &'static str {
    match (state, exit_code) {
        (EXITED, Some(0)) => "Succeeded",
        (EXITED, Some(_)) => "Failed",
        (CREATED | EMPTY | STOPPED, _) => "Pending",
        (RUNNING | PAUSED | PAUSED_DISK_FULL, _) => RUNNING,
        _ => UNKNOWN,
    }
}

#[cfg(test)]
mod tests {
    use proto::pause::Pause;

    use super::*;

    #[test]
    fn each_state_has_a_phase() {
        for (state, exit_code, phase) in [
            ("Running", None, "Running"),
            ("Paused", None, "Running"),
            ("PausedDiskFull", None, "Running"),
            ("Exited", Some(0), "Succeeded"),
            ("Exited", Some(137), "Failed"),
            ("Exited", None, "Unknown"),
            ("Created", None, "Pending"),
            ("Empty", None, "Pending"),
            ("Stopped", None, "Pending"),
            ("Unknown", None, "Unknown"),
        ] {
            assert_eq!(of(state, exit_code), phase, "{state}");
            assert!(STATES.contains(&state) && PHASES.contains(&phase), "{state}");
        }
        assert_eq!([Pause::ByHand, Pause::DiskFull].map(Pause::as_str), [PAUSED, PAUSED_DISK_FULL]);
    }
}
