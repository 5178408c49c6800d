use super::*;

use std::os::unix::fs::{PermissionsExt as _, symlink};

struct Etc(tempfile::TempDir);

impl Etc {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn file(&self) -> PathBuf {
        self.0.path().join(NAME)
    }

    fn with(text: &str) -> Self {
        let etc = Self::new();
        fs::write(etc.file(), text).unwrap();
        etc
    }

    fn text(&self) -> String {
        fs::read_to_string(self.file()).unwrap()
    }

    fn resolver(&self) -> (Resolver, Option<String>) {
        Resolver::of(self.0.path(), &["ndots:5".into(), "edns0".into()]).unwrap()
    }
}

const LINE: &str = "options ndots:5 edns0\n";

#[test]
fn the_line_is_added_once_and_is_the_last_of_its_kind() {
    for (before, after) in [
        ("nameserver 10.0.0.1\n", format!("nameserver 10.0.0.1\n{LINE}")),
        ("nameserver 10.0.0.1", format!("nameserver 10.0.0.1\n{LINE}")),
        ("", LINE.to_owned()),
        ("options ndots:1\n", format!("options ndots:1\n{LINE}")),
        ("options ndots:5 edns0 \nsearch a\n", "options ndots:5 edns0 \nsearch a\n".to_owned()),
        ("options ndots:5 edns0\noptions ndots:1\n", format!("options ndots:1\n{LINE}")),
    ] {
        let etc = Etc::with(before);
        for _again in 0..2 {
            assert_eq!(etc.resolver().1, None);
            assert_eq!(etc.text(), after, "{before:?}");
        }
    }
}

#[test]
fn who_writes_the_file_anew_has_the_line_put_back() {
    let etc = Etc::new();
    let (mut resolver, left_alone) = etc.resolver();
    // No lease yet.
    assert!(left_alone.is_none() && !etc.file().exists());
    fs::write(etc.file(), "nameserver 10.0.0.1\n").unwrap();
    resolver.pump();
    assert_eq!(etc.text(), format!("nameserver 10.0.0.1\n{LINE}"));
    fs::set_permissions(etc.file(), fs::Permissions::from_mode(0o604)).unwrap();
    fs::write(etc.0.path().join("other"), "nameserver 10.0.0.2\n").unwrap();
    resolver.pump();
    assert_eq!(etc.text(), format!("nameserver 10.0.0.1\n{LINE}"));
    fs::set_permissions(etc.0.path().join("other"), fs::Permissions::from_mode(0o604)).unwrap();
    fs::rename(etc.0.path().join("other"), etc.file()).unwrap();
    resolver.pump();
    assert_eq!(etc.text(), format!("nameserver 10.0.0.2\n{LINE}"));
    assert_eq!(etc.file().metadata().unwrap().mode() & 0o777, 0o604);
    assert_eq!(fs::read_dir(etc.0.path()).unwrap().count(), 1);
}

#[test]
fn a_file_that_is_a_link_is_left_alone() {
    let etc = Etc::new();
    fs::write(etc.0.path().join("stub"), "nameserver 127.0.0.53\n").unwrap();
    symlink("stub", etc.file()).unwrap();
    let why = etc.resolver().1.expect("left alone");
    assert_eq!(
        why,
        format!(
            "options `ndots:5 edns0` of the resolver were not set in the guest: `{}` is a symlink to `stub`, so another program \
             keeps it; set them there",
            etc.file().display()
        )
    );
    assert_eq!(etc.text(), "nameserver 127.0.0.53\n");
}

#[test]
fn a_program_that_takes_the_line_out_again_and_again_has_its_way_for_a_while() {
    let etc = Etc::with("");
    let mut resolver = etc.resolver().0;
    let now = Instant::now();
    let mut looked = |now| {
        fs::write(etc.file(), "").unwrap();
        resolver.look(now).unwrap()
    };
    for _ in 1..MAX_REWRITES {
        assert_eq!(looked(now), Found::Rewritten);
    }
    assert_eq!(looked(now), Found::Fine);
    assert_eq!(etc.text(), "");
    assert_eq!(looked(now + WHILE), Found::Rewritten);
}

#[test]
fn what_cannot_be_an_option_is_refused() {
    let etc = Etc::with("");
    for option in ["", "a b", "a\nnameserver 1"] {
        let why = Resolver::of(etc.0.path(), &[option.into()]).unwrap_err();
        assert!(why.ends_with("one of them is empty or has white space in it") && why.lines().count() == 1, "{why}");
    }
    let why = Resolver::of(&etc.0.path().join("none"), &["ndots:5".into()]).unwrap_err();
    assert!(why.contains("none` not watched: No such file or directory"), "{why}");
    assert_eq!(etc.text(), "");
}
