//! Why a text is no configuration, told without the text: a line of it may hold a login.

/// Why a text is no configuration.
#[derive(Debug, thiserror::Error)]
#[error("line {line}{}: {problem}", key.as_ref().map(|key| format!(" (`{key}`)")).unwrap_or_default())]
pub struct SyntaxError {
    /// Where, counted from 1.
    line: usize,
    /// The key of that line, or its table.
    key: Option<String>,
    /// What is wrong.
    pub(super) problem: String,
}

impl SyntaxError {
    /// What is wrong with `text`.
    pub(super) fn new(text: &str, cause: &toml::de::Error) -> Self {
        let start = cause.span().map_or(0, |span| span.start);
        let before = text.get(..start).unwrap_or_default();
        let line = before.bytes().filter(|byte| *byte == b'\n').count();
        let key = text.lines().nth(line).and_then(key_of);
        Self { line: line + 1, key, problem: without_login(cause.message()) }
    }
}

/// The key or table that a line is about, if that is nothing else.
fn key_of(line: &str) -> Option<String> {
    let line = line.trim();
    let key = match line.strip_prefix('[') {
        Some(table) => table.trim_matches(['[', ']']),
        None => line.split_once('=')?.0,
    };
    let key = key.trim();
    let is_key = !key.is_empty() && key.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte));
    is_key.then(|| key.to_owned())
}

/// A message without what it quotes, if there may be a login in it.
fn without_login(message: &str) -> String {
    let quotes = ['"', '`'];
    match (message.find(quotes), message.rfind(quotes)) {
        (Some(from), Some(to)) if message.contains('@') => {
            format!("{}...{}", message.get(..=from).unwrap_or_default(), message.get(to..).unwrap_or_default())
        }
        _ => message.to_owned(),
    }
}
