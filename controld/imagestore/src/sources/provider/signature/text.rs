//! The frame of a signed text: where the text is, and where its signature (RFC 9580, 7).

use super::SignatureError;

const BEGIN_TEXT: &str = "-----BEGIN PGP SIGNED MESSAGE-----";
const BEGIN_SIGNATURE: &str = "-----BEGIN PGP SIGNATURE-----";
const END_SIGNATURE: &str = "-----END PGP SIGNATURE-----";

/// A signed text, taken apart.
#[derive(Debug)]
pub(super) struct Framed<'a> {
    /// What the signature is of: unescaped lines without blanks at their ends, joined by CR LF.
    pub(super) signed: String,
    /// The same lines, each ended by a line feed.
    pub(super) text: String,
    /// The armored block.
    pub(super) signature: &'a str,
}

/// Takes a signed text apart. What follows its last line is left out.
pub(super) fn framed(bytes: &[u8]) -> Result<Framed<'_>, SignatureError> {
    let document = std::str::from_utf8(bytes).map_err(SignatureError::Encoding)?;
    if !super::looks_signed(bytes) {
        return Err(SignatureError::Unsigned);
    }
    for (at, line) in document.split('\n').enumerate() {
        if line.chars().any(|c| c.is_control() && c != '\t') {
            return Err(SignatureError::Control { line: at + 1 });
        }
    }
    let rest = document.strip_prefix(BEGIN_TEXT).and_then(|rest| rest.strip_prefix('\n'));
    let Some(rest) = rest else {
        return Err(SignatureError::Frame("it does not begin with a signed text"));
    };
    let body = after_headers(rest)?;
    let (lines, block) = split_at_signature(body)?;
    let signature = block_alone(block)?;

    let lines: Vec<_> = lines.iter().map(|line| unescaped(line)).collect::<Result<_, _>>()?;
    let mut text = lines.join("\n");
    text.push('\n');
    Ok(Framed { signed: lines.join("\r\n"), text, signature })
}

fn after_headers(mut rest: &str) -> Result<&str, SignatureError> {
    loop {
        let Some((line, after)) = rest.split_once('\n') else {
            return Err(SignatureError::Frame("the signed text ends in its headers"));
        };
        if line.is_empty() {
            return Ok(after);
        }
        let names_hashes = line
            .strip_prefix("Hash: ")
            .is_some_and(|names| names.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | ',' | ' ')));
        if !names_hashes {
            return Err(SignatureError::Header { header: vmimage::error::printable(line) });
        }
        rest = after;
    }
}

/// Lines of the text, and all from the signature's first line on.
fn split_at_signature(body: &str) -> Result<(Vec<&str>, &str), SignatureError> {
    let mut lines = Vec::new();
    let mut at = 0;
    for line in body.split_inclusive('\n') {
        let content = line.strip_suffix('\n').unwrap_or(line);
        if content == BEGIN_SIGNATURE {
            return Ok((lines, &body[at..]));
        }
        lines.push(content);
        at += line.len();
    }
    Err(SignatureError::Frame("the signed text has no signature"))
}

/// The signature's block, if it is the last one.
fn block_alone(block: &str) -> Result<&str, SignatureError> {
    let mut end = 0;
    for line in block.split_inclusive('\n') {
        end += line.len();
        if line.trim_end() == END_SIGNATURE {
            return if super::looks_signed(&block.as_bytes()[end..]) {
                Err(SignatureError::Frame("there is more than one signed block"))
            } else {
                Ok(&block[..end])
            };
        }
    }
    Err(SignatureError::Frame("the signature has no end"))
}

/// A line as it was signed. Blanks at its end are not (RFC 9580, 7.2).
fn unescaped(line: &str) -> Result<&str, SignatureError> {
    let line = line.trim_end_matches([' ', '\t']);
    match line.strip_prefix('-') {
        None => Ok(line),
        // `- ` alone was trimmed to `-`: an escaped empty line.
        Some("") => Ok(""),
        Some(rest) => rest
            .strip_prefix(' ')
            .ok_or(SignatureError::Frame("a line of the signed text begins with an unescaped hyphen")),
    }
}
