//! What `wait --for` names, in our words or kubectl's.

/// What is waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Until {
    /// The machine runs.
    Running,
    /// Its guest answers.
    Ready,
    /// The machine has ended.
    Stopped,
    /// The pod is gone.
    Removed,
}

/// Reads it.
pub(super) fn parse(text: &str) -> Result<Until, String> {
    match text.to_ascii_lowercase().as_str() {
        "running" | "jsonpath={.status.phase}=running" => Ok(Until::Running),
        "ready" | "condition=ready" | "condition=ready=true" => Ok(Until::Ready),
        "stopped" | "exited" => Ok(Until::Stopped),
        "removed" | "delete" => Ok(Until::Removed),
        _ => {
            Err("nothing that is waited for: running, ready, stopped or removed; kubectl's condition=Ready and delete"
                .into())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_waited_for_has_our_words_and_kubectls() {
        for (text, wanted) in [
            ("stopped", Until::Stopped),
            ("condition=Ready", Until::Ready),
            ("delete", Until::Removed),
            ("jsonpath={.status.phase}=Running", Until::Running),
        ] {
            assert_eq!(parse(text), Ok(wanted), "{text}");
        }
        for text in ["", "condition=Initialized", "healthy"] {
            parse(text).expect_err(text);
        }
    }
}
