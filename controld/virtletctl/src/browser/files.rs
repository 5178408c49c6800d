//! The files of the page, as `build.rs` has packed them into the program.

use std::io::{self, Read as _};

use flate2::read::GzDecoder;

/// A file.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct File {
    /// Where it is served, with a slash in front.
    pub(super) path: &'static str,
    pub(super) mime: &'static str,
    pub(super) gzip: &'static [u8],
}

/// All there are; none if the program was built without a page.
pub(super) static FILES: &[File] = include!(concat!(env!("OUT_DIR"), "/page.rs"));

impl File {
    /// Its bytes as they are, for who takes no gzip.
    pub(super) fn plain(&self) -> io::Result<Vec<u8>> {
        let mut plain = Vec::new();
        GzDecoder::new(self.gzip).read_to_end(&mut plain)?;
        Ok(plain)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_page_asks_for_is_there() {
        let find = |path: &str| FILES.iter().find(|file| file.path == path);
        if FILES.is_empty() {
            return;
        }
        for file in FILES {
            let text = String::from_utf8(file.plain().expect("gzip")).expect("text");
            let folder = file.path.rsplit_once('/').expect("a slash").0;
            let quoted = text.split(['"', '\'']).filter(|word| word.ends_with("js") || word.ends_with(".css"));
            for word in quoted.filter(|word| word.starts_with('.') || file.mime.starts_with("text/html")) {
                let mut path: Vec<&str> = folder.split('/').collect();
                for step in word.split('/') {
                    match step {
                        "." => {}
                        ".." => drop(path.pop()),
                        name => path.push(name),
                    }
                }
                let path = path.join("/");
                assert!(find(&path).is_some(), "{}: no {path}", file.path);
            }
        }
        assert!(find("/index.html").is_some() && find("/novnc/core/rfb.js").is_some());
    }
}
