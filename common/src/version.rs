//! What a program says its version is.
//!
//! The `main` of a program reads what it is built of, in `VIRTLET_COMMIT`, and passes the text on: what a library read would have the
//! library, and all that is linked with it, built anew for each commit.

/// The release, and behind a `+`, as semantic versions have it, the commit that the program was built of. kubelet wants to be able to
/// read it.
#[must_use]
pub fn version(release: &str, commit: Option<&str>) -> String {
    match commit {
        Some(commit) if !commit.is_empty() => format!("{release}+{commit}"),
        _ => release.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::version;

    #[test]
    fn a_commit_is_told_if_there_is_one() {
        assert_eq!(version("1.2.3", Some("0123456789ab-dirty")), "1.2.3+0123456789ab-dirty");
        // Sources without their history.
        assert_eq!(version("1.2.3", Some("")), "1.2.3");
        assert_eq!(version("1.2.3", None), "1.2.3");
    }
}
