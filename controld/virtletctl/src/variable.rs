//! Variables of a command line, as docker has them: `NAME=VALUE`, or `NAME` alone for the value that it has here.

/// Reads one.
pub(super) fn parse(text: &str) -> Result<String, String> {
    let name = text.split_once('=').map_or(text, |(name, _)| name);
    if name.is_empty() { Err("must be NAME=VALUE or NAME".into()) } else { Ok(text.to_owned()) }
}

/// A variable with its value, which may be our own; `None` if we have none of that name.
pub(super) fn valued(variable: &str) -> Option<(String, String)> {
    if let Some((name, value)) = variable.split_once('=') {
        return Some((name.to_owned(), value.to_owned()));
    }
    #[expect(clippy::disallowed_methods, reason = "of the user's environment, the variables that the user names")]
    let value = std::env::var(variable).ok()?;
    Some((variable.to_owned(), value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_variable_has_its_value_or_ours() {
        assert_eq!(valued("A=b=c"), Some(("A".into(), "b=c".into())));
        assert_eq!(valued("PATH").map(|(name, _)| name).as_deref(), Some("PATH"));
        assert_eq!(valued("NOT_IN_OUR_ENVIRONMENT"), None);
        assert!(parse("A").is_ok() && parse("A=").is_ok() && parse("=b").is_err() && parse("").is_err());
    }
}
