//! The container's variables as a file of the guest, which sh sources and systemd takes for an `EnvironmentFile`.

/// Where Virtlet has it.
pub(super) const FILE: &str = "/etc/cloud/environment";
/// Variables carry secrets.
pub(super) const MODE: u32 = 0o600;

/// A file of variables.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Environment {
    /// A line for each.
    pub(super) text: String,
    /// Names of those that no such file can hold.
    pub(super) skipped: Vec<String>,
}

/// Of variables as `NAME=value`. The last of a name counts.
pub(super) fn environment(variables: &[String]) -> Environment {
    let all: Vec<(&str, &str)> = variables.iter().filter_map(|variable| variable.split_once('=')).collect();
    let mut file = Environment::default();
    for (place, (name, value)) in all.iter().enumerate() {
        if all.iter().skip(place + 1).any(|(later, _)| later == name) {
            continue;
        }
        if !is_name(name) || value.contains(['\n', '\0']) {
            file.skipped.push(name.chars().map(|c| if c.is_control() { '?' } else { c }).take(64).collect());
            continue;
        }
        file.text.push_str(name);
        file.text.push('=');
        push_value(&mut file.text, value);
        file.text.push('\n');
    }
    file
}

/// Whether a variable is one of those that kubelet gives to every container for each service.
pub(super) fn is_of_service(variable: &str) -> bool {
    let name = variable.split_once('=').map_or(variable, |(name, _)| name);
    name.ends_with("_SERVICE_HOST")
        || name.contains("_SERVICE_PORT")
        || name.ends_with("_PORT")
        || name.contains("_PORT_")
}

fn is_name(name: &str) -> bool {
    name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

fn push_value(text: &mut String, value: &str) {
    let is_safe = |c: char| c.is_ascii_alphanumeric() || "_@%+=:,./-".contains(c);
    if value.chars().all(is_safe) {
        text.push_str(value);
        return;
    }
    text.push('"');
    for c in value.chars() {
        if matches!(c, '\\' | '"' | '$' | '`') {
            text.push('\\');
        }
        text.push(c);
    }
    text.push('"');
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use proptest::prelude::*;

    use super::*;

    fn of(variables: &[&str]) -> Environment {
        environment(&variables.iter().map(|variable| (*variable).to_owned()).collect::<Vec<_>>())
    }

    #[test]
    fn values_are_quoted_where_they_have_to_be() {
        let file = of(&[
            "PLAIN=a/b:c,d=e@f%+-._",
            "EMPTY=",
            "TWICE=first",
            "SPACE=a b",
            "ALL=\\ \" $x `id` ' # ;",
            "TAB=a\tb",
            "TWICE=last",
        ]);
        assert_eq!(file.skipped, Vec::<String>::new());
        insta::assert_snapshot!(file.text, @r##"
        PLAIN=a/b:c,d=e@f%+-._
        EMPTY=
        SPACE="a b"
        ALL="\\ \" \$x \`id\` ' # ;"
        TAB="a	b"
        TWICE=last
        "##);
    }

    #[test]
    fn what_no_file_can_hold_is_skipped_by_name() {
        let file = of(&["A=1", "a.b=2", "1A=3", "=4", "LINES=a\nb", "NUL=a\0b", "no value"]);
        assert_eq!(file.text, "A=1\n");
        assert_eq!(file.skipped, ["a.b", "1A", "", "LINES", "NUL"]);
    }

    #[test]
    fn those_of_services_are_known() {
        for name in
            ["KUBERNETES_SERVICE_HOST=10.0.0.1", "DB_SERVICE_PORT_SQL=1", "DB_PORT=tcp://x", "DB_PORT_1_TCP_ADDR=x"]
        {
            assert!(is_of_service(name), "{name}");
        }
        assert!(!is_of_service("PASSWORD=SERVICE_HOST") && !is_of_service("PORTS=1"));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]

        /// A shell that sources the file has the same values.
        #[test]
        fn a_shell_reads_it_back(value in "[^\n\0]{0,40}") {
            let file = environment(&[format!("X={value}")]);
            let script = format!("{}printf %s \"$X\"", file.text);
            let said = Command::new("sh").args(["-c", &script]).output().expect("a shell");
            prop_assert_eq!(String::from_utf8(said.stdout).expect("text"), value);
        }
    }
}
