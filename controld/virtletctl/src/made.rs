//! What a machine was made with that CRI does not tell of a container: its variables and its command. They are kept in an annotation
//! of the container, from which the next attempt has them. What virtletctl shows of it has no values of variables: they may be secrets.

use std::collections::HashMap;

use proto::cri::{ContainerConfig, KeyValue};
use serde::{Deserialize, Serialize};

const ANNOTATION: &str = "virtlet.cloud/made-with";
/// What is shown in place of a value.
const HIDDEN: &str = "(hidden)";

#[derive(Debug, Serialize, Deserialize)]
struct Made {
    env: Vec<(String, String)>,
    command: Vec<String>,
}

/// Keeps them, if there are any.
pub(super) fn keep(config: &mut ContainerConfig) {
    let variable = |it: &KeyValue| (it.key.clone(), String::from_utf8_lossy(&it.value).into_owned());
    let made = Made { env: config.envs.iter().map(variable).collect(), command: config.command.clone() };
    if made.env.is_empty() && made.command.is_empty() {
        return;
    }
    if let Ok(text) = serde_json::to_string(&made) {
        config.annotations.insert(ANNOTATION.to_owned(), text);
    }
}

/// Gives them to the next attempt, which has the annotations of the one before. What nobody kept stays as it is.
pub(super) fn give_back(config: &mut ContainerConfig) {
    let kept = config.annotations.get(ANNOTATION).and_then(|text| serde_json::from_str::<Made>(text).ok());
    let Some(Made { env, command }) = kept else { return };
    config.envs = env.into_iter().map(|(key, value)| KeyValue { key, value: value.into_bytes() }).collect();
    config.command = command;
}

/// Annotations as they are shown: of variables that are kept, with their names alone; of an annotation of that name that is not ours,
/// nothing.
pub(super) fn shown(annotations: &HashMap<String, String>) -> HashMap<String, String> {
    let mut shown = annotations.clone();
    if let Some(kept) = shown.get_mut(ANNOTATION) {
        *kept = without_values(kept).unwrap_or_else(|| HIDDEN.to_owned());
    }
    shown
}

fn without_values(kept: &str) -> Option<String> {
    let mut made: Made = serde_json::from_str(kept).ok()?;
    made.env.iter_mut().for_each(|(_, value)| HIDDEN.clone_into(value));
    serde_json::to_string(&made).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_next_attempt_has_variables_and_command_of_the_one_before() {
        let mut first = ContainerConfig {
            envs: vec![KeyValue { key: "A".into(), value: b"b=\"c\"".into() }],
            command: vec!["sleep".into(), "1".into()],
            ..Default::default()
        };
        keep(&mut first);
        let mut next = ContainerConfig { annotations: first.annotations.clone(), ..Default::default() };
        give_back(&mut next);
        assert_eq!((&next.envs, &next.command), (&first.envs, &first.command));
    }

    #[test]
    fn values_of_variables_are_not_shown() {
        let of =
            |text: &str| HashMap::from([("a".to_owned(), "b".to_owned()), (ANNOTATION.to_owned(), text.to_owned())]);
        for (kept, wanted) in [
            (
                r#"{"env":[["KEY","secret"],["EMPTY",""]],"command":["sleep","1"]}"#,
                r#"{"env":[["KEY","(hidden)"],["EMPTY","(hidden)"]],"command":["sleep","1"]}"#,
            ),
            (r#"{"env":[],"command":[]}"#, r#"{"env":[],"command":[]}"#),
            ("secret", "(hidden)"),
            (r#"{"env":{"KEY":"secret"}}"#, "(hidden)"),
        ] {
            assert_eq!(shown(&of(kept)), of(wanted), "{kept}");
        }
        let others = HashMap::from([("a".to_owned(), "b".to_owned())]);
        assert_eq!(shown(&others), others);
    }

    #[test]
    fn nothing_is_kept_of_nothing_and_nothing_given_back() {
        let mut config = ContainerConfig::default();
        keep(&mut config);
        assert!(config.annotations.is_empty());
        for text in ["", "{}", "[]"] {
            let mut config = ContainerConfig::default();
            config.annotations.insert(ANNOTATION.into(), text.into());
            give_back(&mut config);
            assert!(config.envs.is_empty() && config.command.is_empty(), "{text}");
        }
    }
}
