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
}
