//! Packs the page of `vnc --browser` into the program: our own files in `web`, and those that `web/fetch.sh` has brought, in the directory
//! that `VIRTLET_WEB` names. Without that, the program has no page, and says so when it is asked for one.

use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use flate2::Compression;
use flate2::write::GzEncoder;

/// Our own.
const OURS: &str = "web";
const WEB: &str = "VIRTLET_WEB";

fn main() -> io::Result<()> {
    println!("cargo::rerun-if-changed={OURS}");
    println!("cargo::rerun-if-env-changed={WEB}");
    let out = PathBuf::from(std::env::var_os("OUT_DIR").ok_or_else(|| io::Error::other("cargo names no OUT_DIR"))?);
    let mut files = Vec::new();
    if let Some(web) = std::env::var_os(WEB).filter(|web| !web.is_empty()) {
        let web = PathBuf::from(web);
        println!("cargo::rerun-if-changed={}", web.display());
        let absent =
            |cause| io::Error::other(format!("no {WEB} `{}`: make it by web/fetch.sh: {cause}", web.display()));
        for folder in [Path::new(OURS), &web] {
            collect(folder, "", &mut files).map_err(absent)?;
        }
    }
    files.sort();
    let mut table = String::from("&[\n");
    for (number, (path, file)) in files.iter().enumerate() {
        let Some(mime) = mime(path) else { continue };
        let packed = out.join(format!("{number}.gz"));
        // Without a time in it.
        let mut gzip = GzEncoder::new(fs::File::create(&packed)?, Compression::best());
        gzip.write_all(&fs::read(file)?)?;
        gzip.finish()?;
        table += &format!(
            "File {{ path: {path:?}, mime: {mime:?}, gzip: include_bytes!({:?}) }},\n",
            packed.display().to_string()
        );
    }
    fs::write(out.join("page.rs"), table + "]\n")
}

/// What is served, and as what. All else in these folders is for builders.
fn mime(path: &str) -> Option<&'static str> {
    match path.rsplit_once('.')?.1 {
        "html" => Some("text/html; charset=utf-8"),
        "css" => Some("text/css; charset=utf-8"),
        "js" | "mjs" => Some("text/javascript; charset=utf-8"),
        _ => None,
    }
}

/// All files below a folder, with their paths from there on, each with a slash in front.
fn collect(folder: &Path, at: &str, files: &mut Vec<(String, PathBuf)>) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let path = format!("{at}/{}", entry.file_name().to_string_lossy());
        if entry.file_type()?.is_dir() {
            collect(&entry.path(), &path, files)?;
        } else {
            files.push((path, entry.path()));
        }
    }
    Ok(())
}
