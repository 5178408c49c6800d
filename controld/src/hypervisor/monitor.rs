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

/// What has become of a guest since its memory was written.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Since {
    /// Nothing.
    Stood,
    /// It was reset where it stood, and stands.
    Reset,
    /// It was let go on, and is in this state by now, perhaps paused again.
    Moved(String),
    /// QEMU does not tell.
    Untold,
}

/// What has become of a guest: QEMU has a state of its own for one that was written, to which nothing leads back.
pub(super) fn since_save(answer: &str) -> Since {
    let Ok(Status { r#return: RunState { status } }) = serde_json::from_str(answer) else { return Since::Untold };
    match &*status {
        // libvirt is told of the memory's end a moment before QEMU changes its state.
        "postmigrate" | "finish-migrate" => Since::Stood,
        "prelaunch" => Since::Reset,
        // A guest that has taken QEMU over may say anything, and errors show it.
        word if is_word(word) => Since::Moved(status),
        _ => Since::Untold,
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
            since_save(&format!(r#"{{"return":{{"status":"{status}","running":false}},"id":"libvirt-7"}}"#))
        };
        assert_eq!(
            [of("postmigrate"), of("finish-migrate"), of("prelaunch")],
            [Since::Stood, Since::Stood, Since::Reset]
        );
        for moved in ["running", "paused", "io-error", "shutdown"] {
            assert_eq!(of(moved), Since::Moved(moved.to_owned()));
        }
        for junk in ["", "{}", r#"{"return":{}}"#, r#"{"error":{"class":"GenericError","desc":"no"}}"#] {
            assert_eq!(since_save(junk), Since::Untold, "{junk}");
        }
        for word in ["a\\nb".to_owned(), "a".repeat(MAX_STATE + 1)] {
            assert_eq!(of(&word), Since::Untold);
        }
    }
}
