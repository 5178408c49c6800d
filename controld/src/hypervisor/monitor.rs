//! What QEMU answers on its monitor (QMP). Pure.

use serde::Deserialize;

/// What of an answer that is looked at.
#[derive(Debug, Deserialize)]
struct Answer {
    error: Option<Refusal>,
}

#[derive(Debug, Deserialize)]
struct Refusal {
    desc: String,
}

/// What `query-status` answers.
#[derive(Debug, Deserialize)]
struct Status {
    r#return: RunState,
}

#[derive(Debug, Deserialize)]
struct RunState {
    status: String,
}

/// Longest run state of QEMU's, in bytes.
const MAX_STATE: usize = 32;
/// Asks for QEMU's run state.
pub(super) const QUERY_STATUS: &str = r#"{"execute":"query-status"}"#;

/// What the guest does since its memory was written, if it does not just stand still: QEMU has a state of its own for that, to which
/// nothing leads back, be the guest let go on, paused again or reset.
pub(super) fn moved_since_save(answer: &str) -> Option<String> {
    match serde_json::from_str::<Status>(answer) {
        // libvirt is told of the memory's end a moment before QEMU changes its state.
        Ok(Status { r#return: RunState { status } }) if matches!(&*status, "postmigrate" | "finish-migrate") => None,
        // A guest that has taken QEMU over may say anything, and errors show it.
        Ok(Status { r#return: RunState { status } }) if is_word(&status) => Some(status),
        Ok(_) | Err(_) => Some("in a state that it does not tell".to_owned()),
    }
}

fn is_word(state: &str) -> bool {
    state.len() <= MAX_STATE && state.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'-')
}

/// Why QEMU has not done what it was told, if it has not.
pub(super) fn refusal(answer: &str) -> Option<String> {
    match serde_json::from_str::<Answer>(answer) {
        Ok(answer) => answer.error.map(|refusal| refusal.desc),
        Err(_) => Some("its answer is not JSON".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_done_or_says_why_not() {
        assert_eq!(refusal(r#"{"return":{},"id":"libvirt-9"}"#), None);
        let refused = r#"{"id":"libvirt-9","error":{"class":"DeviceNotFound","desc":"Device 'vwnet7' not found"}}"#;
        assert_eq!(refusal(refused).as_deref(), Some("Device 'vwnet7' not found"));
        assert_eq!(refusal("").as_deref(), Some("its answer is not JSON"));
    }

    #[test]
    fn a_guest_that_somebody_has_let_go_on_or_reset_since_its_save_is_told_from_one_that_stands() {
        let of = |status: &str| {
            moved_since_save(&format!(r#"{{"return":{{"status":"{status}","running":false}},"id":"libvirt-7"}}"#))
        };
        assert_eq!([of("postmigrate"), of("finish-migrate")], [None, None]);
        for moved in ["running", "paused", "prelaunch", "io-error", "shutdown"] {
            assert_eq!(of(moved).as_deref(), Some(moved));
        }
        for junk in ["", "{}", r#"{"return":{}}"#, r#"{"error":{"class":"GenericError","desc":"no"}}"#] {
            assert!(moved_since_save(junk).is_some(), "{junk}");
        }
        for word in ["a\\nb".to_owned(), "a".repeat(MAX_STATE + 1)] {
            assert_eq!(of(&word).as_deref(), Some("in a state that it does not tell"));
        }
    }
}
