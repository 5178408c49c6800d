//! `VirtletSSHKeys`: lines of an `authorized_keys` file (sshd(8), AUTHORIZED_KEYS FILE FORMAT).

use std::fmt;

use super::Problem;

/// Most keys of a pod, by source.
pub(crate) const MAX_KEYS: usize = 64;
/// Longest key, in bytes.
const MAX_LEN: usize = 16 << 10;
/// Types of keys that OpenSSH knows; each may have [`CERTIFICATE`] after it.
const TYPES: [&str; 8] = [
    "ssh-ed25519",
    "ssh-rsa",
    "ssh-dss",
    "ecdsa-sha2-nistp256",
    "ecdsa-sha2-nistp384",
    "ecdsa-sha2-nistp521",
    "sk-ssh-ed25519",
    "sk-ecdsa-sha2-nistp256",
];
const CERTIFICATE: &str = "-cert-v01";
/// Ends the names of types that OpenSSH made up by itself.
const OPENSSH: &str = "@openssh.com";

/// One line with a public key. `Debug` does not show it.
#[derive(Clone, PartialEq, Eq)]
pub struct SshKey(String);

/// The keys in the order of their lines, none twice.
pub(crate) fn parse(text: &str) -> Result<Vec<SshKey>, Problem> {
    let mut keys = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        if line.len() > MAX_LEN {
            return Err(Problem::LongKey { line: number, limit: MAX_LEN });
        }
        if !is_key(line) {
            return Err(Problem::NotKey { line: number });
        }
        let key = SshKey(line.to_owned());
        if !keys.contains(&key) {
            keys.push(key);
        }
        // Bounds the search above too.
        if keys.len() > MAX_KEYS {
            return Err(Problem::ManyKeys { count: count(text), limit: MAX_KEYS });
        }
    }
    Ok(keys)
}

fn count(text: &str) -> usize {
    text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#')).count()
}

/// Whether a line is `[options] type base64 [comment]`.
fn is_key(line: &str) -> bool {
    if line.chars().any(|c| c.is_control() && c != '\t') {
        return false;
    }
    is_plain_key(line) || after_options(line).is_some_and(is_plain_key)
}

fn is_plain_key(line: &str) -> bool {
    let mut words = line.split_ascii_whitespace();
    words.next().is_some_and(is_type) && words.next().is_some_and(is_blob)
}

fn is_type(word: &str) -> bool {
    let name = word.strip_suffix(OPENSSH).unwrap_or(word);
    TYPES.contains(&name.strip_suffix(CERTIFICATE).unwrap_or(name))
}

/// The key in base64. It starts with the length of the type's name as 32 bits, big endian (RFC 4253, 6.6), so its first
/// 24 bits are zero.
fn is_blob(word: &str) -> bool {
    let digits = word.trim_end_matches('=');
    digits.starts_with("AAAA")
        && word.len().is_multiple_of(4)
        && word.len() - digits.len() <= 2
        && digits.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'+' | b'/'))
}

/// What follows the options: the first space outside of quotes ends them; a quote may be escaped.
fn after_options(line: &str) -> Option<&str> {
    let mut quoted = false;
    let mut escaped = false;
    for (at, c) in line.char_indices() {
        match c {
            '"' if !escaped => quoted = !quoted,
            ' ' | '\t' if !quoted => return line.get(at..),
            _ => {}
        }
        escaped = c == '\\' && !escaped;
    }
    None
}

// === impl SshKey ===

impl SshKey {
    /// The line.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for SshKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SshKey(hidden)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BLOB: &str = "AAAAC3NzaC1lZDI1NTE5AAAAIIGY8yBGq0dNL3ZpV7c6vXTXQYV0sHSFdp7JzTQkzDq5";

    #[test]
    fn lines_are_trimmed_and_kept_once() {
        let text = format!("\n# mine\n  ssh-ed25519 {BLOB} me \r\n\t\nssh-ed25519 {BLOB} me\nssh-rsa {BLOB}\n");
        let keys = parse(&text).expect("keys");
        let lines: Vec<&str> = keys.iter().map(SshKey::as_str).collect();
        assert_eq!(lines, [format!("ssh-ed25519 {BLOB} me"), format!("ssh-rsa {BLOB}")]);
        assert_eq!(format!("{keys:?}"), "[SshKey(hidden), SshKey(hidden)]");
        assert_eq!(parse("\n#\n \n"), Ok(Vec::new()));
    }

    #[test]
    fn what_openssh_takes_is_a_key() {
        for line in [
            format!("ssh-ed25519 {BLOB}"),
            format!("ssh-ed25519\t{BLOB}\tcaf\u{e9} au lait"),
            format!("sk-ssh-ed25519@openssh.com {BLOB} yubi"),
            format!("ssh-rsa-cert-v01@openssh.com {BLOB}"),
            format!("sk-ecdsa-sha2-nistp256-cert-v01@openssh.com {BLOB}"),
            format!("ecdsa-sha2-nistp521 {BLOB}"),
            format!("no-pty,command=\"echo \\\"a b\\\"\",from=\"10.0.0.0/8\" ssh-ed25519 {BLOB} x"),
            "ssh-rsa AAAAB3NzaA==".to_owned(),
        ] {
            assert!(parse(&line).is_ok(), "{line}");
        }
    }

    #[test]
    fn anything_else_is_refused_by_its_line() {
        for bad in [
            "hello".to_owned(),
            "ssh-ed25519".to_owned(),
            format!("ssh-foo {BLOB}"),
            format!("ed25519 {BLOB}"),
            format!("SSH-RSA {BLOB}"),
            "ssh-rsa BAAAB3Nz".to_owned(),
            "ssh-rsa AAAAB3N".to_owned(),
            "ssh-rsa AAAA=AAA".to_owned(),
            "ssh-rsa AAAA-_AA".to_owned(),
            "ssh-rsa A===".to_owned(),
            format!("ssh-rsa {BLOB} a\u{1b}[2J"),
            format!("command=\"unclosed ssh-rsa {BLOB}"),
            "-----BEGIN OPENSSH PRIVATE KEY-----".to_owned(),
        ] {
            assert_eq!(parse(&format!("# x\n{bad}\n")), Err(Problem::NotKey { line: 2 }), "{bad}");
        }
    }

    #[test]
    fn keys_are_bounded_in_number_and_length() {
        let lines = |count: usize| -> String { (0..count).map(|n| format!("ssh-rsa {BLOB} {n}\n")).collect() };
        assert_eq!(parse(&lines(64)).map(|keys| keys.len()), Ok(64));
        assert_eq!(parse(&lines(66)), Err(Problem::ManyKeys { count: 66, limit: 64 }));
        let long = format!("ssh-rsa {BLOB} {}", "c".repeat(MAX_LEN));
        assert_eq!(parse(&long), Err(Problem::LongKey { line: 1, limit: MAX_LEN }));
    }
}
