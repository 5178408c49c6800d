//! Lists of checksums as publishers put them beside their images: `SHA256SUMS`, `CHECKSUM`, `IMAGE.sha512`.
//!
//! A translation rule names one by `checksums`. What it says of the image is a promise of the source, which the store
//! holds the bytes to, and by which it knows that an image did not change. A list is as good as the way it came: over TLS it
//! is the word of its server, and it is never fetched by a redirect out of TLS.
//!
//! | line | written by |
//! |---|---|
//! | `HEX  NAME`, `HEX *NAME` | sha256sum, sha512sum |
//! | `SHA256 (NAME) = HEX` | sha256sum --tag, BSD's sha256 |
//! | `HEX` | whoever has a list of one file |
//!
//! All other lines (comments, the armour of a signature) are passed over. Digests weaker than SHA-256 count for nothing.

use common::Reason;
use hyper::StatusCode;
use url::Url;
use vmimage::error::printable;

use super::{Covers, HashAlg, ImageHash, Promise, ProviderError};
use crate::sources::net::{Client, Request, decoded, redacted};

/// Largest list: those of whole mirrors have some hundred KiB.
const LARGEST: usize = 1 << 20;

/// What the list that `request` asks for promises of the image behind a URL. Its errors are of `provider`.
pub(super) async fn promised(
    provider: &str,
    client: &Client,
    request: &Request,
    image: &Url,
) -> Result<Vec<Promise>, ProviderError> {
    let list = request.url();
    let unusable = |cause: Reason| ProviderError::Metadata {
        provider: provider.to_owned(),
        what: format!("list of checksums `{}`", redacted(list)),
        cause: cause.into(),
    };
    let answer = client.small(request, LARGEST, None).await?;
    match answer.status {
        StatusCode::OK => {}
        // Says nothing of the image.
        StatusCode::NOT_FOUND | StatusCode::GONE => return Err(unusable(Reason::new("nothing is there"))),
        _ => return Err(answer.refusal().into()),
    }
    let text = String::from_utf8_lossy(&answer.body);
    let is_beside = list.path().len() > image.path().len() && list.path().starts_with(image.path());
    let is_own = is_beside && list.origin() == image.origin();
    let hashes = found(&text, &file_name(image), is_own).map_err(unusable)?;
    Ok(hashes.into_iter().map(|hash| Promise { hash, covers: Covers::Hosted }).collect())
}

/// The file's name in a URL.
fn file_name(url: &Url) -> String {
    decoded(url.path().rsplit('/').next().unwrap_or_default())
}

/// What a list says of a file. If it is the file's `own` list and has but one line, it may call the file by another name:
/// what is linked to the newest of several builds has the name of that build in its list.
fn found(text: &str, file: &str, own: bool) -> Result<Vec<ImageHash>, Reason> {
    let entries: Vec<_> = text.lines().filter_map(entry).collect();
    let named = entries.iter().filter(|(name, _)| name.is_some_and(|name| name == file)).map(|(_, hash)| hash);
    let mut hashes: Vec<ImageHash> = named.cloned().collect();
    if hashes.is_empty() && own {
        hashes.extend(entries.iter().map(|(_, hash)| hash.clone()));
    }
    hashes.sort();
    hashes.dedup();
    let file = printable(file);
    if hashes.is_empty() {
        return Err(Reason::new(format!("it has no SHA-256 or SHA-512 of `{file}`")));
    }
    if hashes.windows(2).any(|pair| pair[0].alg() == pair[1].alg()) {
        return Err(Reason::new(format!("it has more than one {} of `{file}`", hashes[0].alg().name())));
    }
    Ok(hashes)
}

/// The file that a line is of, if it says so, and its digest.
fn entry(line: &str) -> Option<(Option<&str>, ImageHash)> {
    let line = line.trim_end_matches(['\r', ' ', '\t']);
    for (prefix, alg) in [("SHA256 (", HashAlg::Sha256), ("SHA512 (", HashAlg::Sha512)] {
        if let Some(rest) = line.strip_prefix(prefix) {
            let (name, hex) = rest.rsplit_once(") = ")?;
            return Some((Some(plain(name)), ImageHash::new(alg, hex).ok()?));
        }
    }
    let (hex, name) = match line.split_once([' ', '\t']) {
        Some((hex, rest)) => (hex, Some(rest.trim_start_matches([' ', '\t']))),
        None => (line, None),
    };
    let hash = [HashAlg::Sha256, HashAlg::Sha512].into_iter().find_map(|alg| ImageHash::new(alg, hex).ok())?;
    Some((name.map(|name| plain(name.strip_prefix('*').unwrap_or(name))), hash))
}

fn plain(name: &str) -> &str {
    name.strip_prefix("./").unwrap_or(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn a() -> String {
        "ab".repeat(32)
    }

    fn b() -> String {
        "cd".repeat(64)
    }

    fn read(text: &str, own: bool) -> Result<Vec<String>, String> {
        let found = found(text, "disk.qcow2", own).map_err(|error| error.to_string())?;
        Ok(found.iter().map(ToString::to_string).collect())
    }

    #[test]
    fn every_publisher_is_understood() {
        let (a, b) = (a(), b());
        let (of_a, of_b) = (vec![format!("sha256:{a}")], vec![format!("sha512:{b}")]);
        for (text, expected) in [
            (format!("{a}  disk.qcow2\n"), &of_a),
            (format!("{a} *disk.qcow2\r\n{b} *other.qcow2"), &of_a),
            (format!("{b}  other\n{b}  ./disk.qcow2"), &of_b),
            (
                format!("# disk.qcow2: 5 bytes\nSHA256 (disk.qcow2) = {a}\nSHA256 (disk.qcow2.x) = {}", "0".repeat(64)),
                &of_a,
            ),
            (format!("SHA512 (./disk.qcow2) = {b}"), &of_b),
            (
                format!(
                    "-----BEGIN PGP SIGNED MESSAGE-----\nHash: SHA256\n\nSHA256 (disk.qcow2) = {a}\n-----BEGIN PGP SIGNATURE-----\n\niQ=="
                ),
                &of_a,
            ),
            // Twice the same is once.
            (format!("{a}  disk.qcow2\n{}  disk.qcow2", a.to_uppercase()), &of_a),
            // What is weak is passed over.
            (format!("{}  disk.qcow2\n{a}  disk.qcow2", "0".repeat(32)), &of_a),
        ] {
            assert_eq!(read(&text, false).as_ref(), Ok(expected), "{text}");
        }
        let both = read(&format!("SHA256 (disk.qcow2) = {a}\nSHA512 (disk.qcow2) = {b}"), false);
        assert_eq!(both, Ok([of_a, of_b].concat()));
    }

    #[test]
    fn the_list_of_one_file_may_call_it_otherwise() {
        let (a, b) = (a(), b());
        for text in [a.clone(), format!("{a}\n"), format!("{a}  disk-build-7.qcow2\n"), format!("SHA256 (x) = {a}")] {
            assert_eq!(read(&text, true), Ok(vec![format!("sha256:{a}")]), "{text}");
            assert!(read(&text, false).is_err(), "{text}");
        }
        // A line with its name is the one, whatever else there is.
        let other = "0".repeat(64);
        assert_eq!(read(&format!("{other}  x\n{b}  disk.qcow2"), true), Ok(vec![format!("sha512:{b}")]));
        assert!(read(&format!("{other}  x\n{a}  y"), true).is_err(), "which of them?");
    }

    #[test]
    fn what_says_nothing_sure_is_refused() {
        let (a, b) = (a(), b());
        let (nothing, several) =
            ("it has no SHA-256 or SHA-512 of `disk.qcow2`", "it has more than one sha256 of `disk.qcow2`");
        for (text, expected) in [
            (String::new(), nothing),
            ("<html>not found</html>".into(), nothing),
            (format!("{a}  disk.qcow2.xz\n{a}  xdisk.qcow2\n{a}  dir/disk.qcow2"), nothing),
            (format!("{}  disk.qcow2", "0".repeat(40)), nothing),
            (format!("{a}g  disk.qcow2\n{}  disk.qcow2", &a[1..]), nothing),
            (format!("SHA1 (disk.qcow2) = {}\nMD5 (disk.qcow2) = {}", "0".repeat(40), "0".repeat(32)), nothing),
            (format!("SHA256 (disk.qcow2) = {b}"), nothing),
            (format!("SHA256 (disk.qcow2 = {a}"), nothing),
            (format!("{a}  disk.qcow2\n{}  disk.qcow2", "0".repeat(64)), several),
        ] {
            assert_eq!(read(&text, false), Err(expected.to_owned()), "{text}");
        }
    }

    proptest::proptest! {
        #[test]
        fn no_list_makes_it_panic(text: String, odd in "[ -~\\n]{0,200}") {
            for own in [true, false] {
                let _ = read(&text, own);
                let _ = read(&odd, own);
            }
        }
    }
}
