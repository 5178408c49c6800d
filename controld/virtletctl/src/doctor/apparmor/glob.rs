//! Patterns of AppArmor's file rules (apparmor.d(5), "Globbing"): `*` and `?` stay within a name, `**` does not, `{a,b}` is either.

/// Longest pattern, in bytes; the kernel's paths are no longer.
const MAX_PATTERN: usize = 4096;
/// Most patterns that one with alternatives becomes.
const MAX_EXPANDED: usize = 512;

/// Whether `path` fits. A pattern that is not understood, is too long or has too many alternatives fits nothing.
pub(super) fn fits(pattern: &str, path: &str) -> bool {
    if pattern.len() > MAX_PATTERN {
        return false;
    }
    let path: Vec<char> = path.chars().collect();
    expand(pattern).iter().any(|plain| tokens(plain).is_some_and(|tokens| fits_tokens(&tokens, &path)))
}

#[derive(Debug, PartialEq, Eq)]
enum Token {
    Exact(char),
    /// `?`
    One,
    /// `*`
    Within,
    /// `**`
    Across,
    /// `[a-c]`, or `[^a-c]`.
    Class {
        not: bool,
        ranges: Vec<(char, char)>,
    },
}

/// All patterns without alternatives; none if there are too many, or a brace is missing.
fn expand(pattern: &str) -> Vec<String> {
    let mut open = vec![pattern.to_owned()];
    let mut plain = Vec::new();
    while let Some(next) = open.pop() {
        if open.len() + plain.len() > MAX_EXPANDED {
            return Vec::new();
        }
        let Some(begin) = next.find('{') else {
            plain.push(next);
            continue;
        };
        let Some((alternatives, rest)) = alternatives(&next[begin + 1..]) else { return Vec::new() };
        open.extend(alternatives.iter().map(|one| format!("{}{one}{rest}", &next[..begin])));
    }
    plain
}

/// Those of a text that begins behind a brace, and what comes behind its end.
fn alternatives(text: &str) -> Option<(Vec<&str>, &str)> {
    let (mut depth, mut from, mut found) = (0_usize, 0, Vec::new());
    for (at, c) in text.char_indices() {
        match c {
            '{' => depth += 1,
            '}' if depth == 0 => {
                found.push(&text[from..at]);
                return Some((found, &text[at + 1..]));
            }
            '}' => depth -= 1,
            ',' if depth == 0 => {
                found.push(&text[from..at]);
                from = at + 1;
            }
            _ => {}
        }
    }
    None
}

fn tokens(pattern: &str) -> Option<Vec<Token>> {
    let mut tokens = Vec::new();
    let mut chars = pattern.chars().peekable();
    while let Some(c) = chars.next() {
        tokens.push(match c {
            '\\' => Token::Exact(chars.next()?),
            '?' => Token::One,
            '*' if chars.next_if_eq(&'*').is_some() => Token::Across,
            '*' => Token::Within,
            '[' => {
                let not = chars.next_if_eq(&'^').is_some();
                let mut ranges = Vec::new();
                loop {
                    let from = chars.next()?;
                    if from == ']' {
                        break Token::Class { not, ranges };
                    }
                    let to = if chars.next_if_eq(&'-').is_some() { chars.next()? } else { from };
                    ranges.push((from, to));
                }
            }
            c => Token::Exact(c),
        });
    }
    Some(tokens)
}

/// In time of pattern times path, whatever the pattern.
fn fits_tokens(tokens: &[Token], path: &[char]) -> bool {
    // Whether the tokens so far fit the first so many characters.
    let mut reached = vec![false; path.len() + 1];
    reached[0] = true;
    for token in tokens {
        let mut next = vec![false; path.len() + 1];
        for (at, _) in reached.iter().enumerate().filter(|(_, reached)| **reached) {
            match token {
                Token::Within | Token::Across => {
                    next[at] = true;
                    let free = |c: &&char| *token == Token::Across || **c != '/';
                    let run = path[at..].iter().take_while(free).count();
                    next[at..=at + run].fill(true);
                }
                single => {
                    if path.get(at).is_some_and(|c| single.takes(*c)) {
                        next[at + 1] = true;
                    }
                }
            }
        }
        reached = next;
    }
    reached.last().copied().unwrap_or(false)
}

impl Token {
    /// Of those that take one character.
    fn takes(&self, c: char) -> bool {
        match self {
            Self::Exact(exact) => *exact == c,
            Self::One => c != '/',
            Self::Class { not, ranges } => {
                c != '/' && *not != ranges.iter().any(|(from, to)| (*from..=*to).contains(&c))
            }
            Self::Within | Self::Across => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_fit_as_the_manual_has_it() {
        let path = "/usr/lib/virtlet/vmwrapper";
        for pattern in [
            path,
            "/usr/lib/virtlet/*",
            "/usr/lib/**",
            "/**",
            "/usr/{lib,lib64}/virtlet/vmw*",
            "/{usr/,}lib/virtlet/vmwrapper",
            "/usr/{lib{,64},libexec}/virtlet/vmwrapper",
            "/usr/lib/virtlet/vmwrap[a-p]er",
            "/usr/lib/virtlet/vmwrap[^a-o]er",
            "/usr/lib/virtlet/vmwrappe?",
            "/usr/lib/virtlet/vmwra\\pper",
        ] {
            assert!(fits(pattern, path), "{pattern}");
        }
        for pattern in
            ["/usr/lib/*", "/usr/bin/*", "/usr/lib/virtlet/", "/usr/lib?virtlet/vmwrapper", "", "/usr/{lib", "/usr/["]
        {
            assert!(!fits(pattern, path), "{pattern}");
        }
    }

    #[test]
    fn hostile_patterns_take_no_time() {
        assert!(!fits(&"**a".repeat(1300), &"a".repeat(1000)));
        assert!(!fits(&"{a,b}".repeat(64), "a"));
        for length in [4000, 100_000] {
            assert!(!fits(&"{".repeat(length), "a") && !fits(&"a".repeat(length), "a"));
        }
    }
}
