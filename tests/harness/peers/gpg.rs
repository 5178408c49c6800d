//! GnuPG with a home of its own: makes a key and signs indexes as their publishers do.

use std::fs;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};

use crate::command::{command, run};

/// A key.
#[derive(Debug)]
pub struct Key {
    home: PathBuf,
    /// Its fingerprint.
    pub fingerprint: String,
}

impl Key {
    /// Makes a key that signs, of an algorithm as `gpg` names it (`ed25519`, `rsa2048`), in a new directory `home`.
    ///
    /// # Errors
    /// When `gpg` fails.
    pub fn create(home: &Path, algorithm: &str) -> Result<Self> {
        fs::DirBuilder::new().recursive(true).mode(0o700).create(home)?;
        let mut key = Self { home: home.to_owned(), fingerprint: String::new() };
        key.gpg(&["--quick-gen-key", "Publisher <publisher@images.test>", algorithm, "sign", "never"])?;
        let listed = key.gpg(&["--with-colons", "--list-keys"])?;
        let line = listed.lines().find(|line| line.starts_with("fpr:")).context("a key without a fingerprint")?;
        key.fingerprint = line.trim_end_matches(':').rsplit(':').next().unwrap_or_default().to_owned();
        Ok(key)
    }

    /// Writes `TEXT` as `signed`, clear text with its signature.
    ///
    /// # Errors
    /// When `gpg` fails.
    pub fn clearsign(&self, text: &Path, signed: &Path) -> Result<()> {
        let [text, signed] = [text, signed].map(|path| path.display().to_string());
        self.gpg(&["--digest-algo", "SHA256", "--output", &signed, "--clearsign", &text]).map(drop)
    }

    /// Writes the public half, in ASCII armour; the file.
    ///
    /// # Errors
    /// When `gpg` fails.
    pub fn export(&self) -> Result<PathBuf> {
        self.export_as("public.asc", &["--armor"])
    }

    /// Writes the public half as a key ring; the file.
    ///
    /// # Errors
    /// When `gpg` fails.
    pub fn export_ring(&self) -> Result<PathBuf> {
        self.export_as("public.gpg", &[])
    }

    fn export_as(&self, name: &str, options: &[&str]) -> Result<PathBuf> {
        let file = self.home.join(name);
        let output = file.display().to_string();
        self.gpg(&[options, &["--output", &output, "--export"]].concat())?;
        Ok(file)
    }

    fn gpg(&self, args: &[&str]) -> Result<String> {
        let home = self.home.display().to_string();
        let quiet = ["--homedir", &home, "--quiet", "--batch", "--yes", "--no-tty", "--pinentry-mode", "loopback"];
        run(command("gpg", quiet).args(["--passphrase", ""]).args(args))
    }
}
