use super::*;

/// Part of the tree: a script that a test writes may still be open for writing in a process forked meanwhile by another
/// test, and then cannot be run.
pub(in crate::hypervisor) fn fixture(name: &str) -> PathBuf {
    let crate_dir = std::env::var_os("CARGO_MANIFEST_DIR").expect("cargo names it to a test");
    Path::new(&crate_dir).join("src/hypervisor/accel/fixtures").join(name)
}

fn question(dir: &Path) -> Question {
    Question {
        configured: Accel::Auto,
        emulator: "/usr/bin/qemu-system-x86_64".into(),
        kernel: None,
        deadline: Duration::from_secs(60),
        work_dir: dir.to_owned(),
        device: "/dev/null".into(),
    }
}

#[tokio::test]
async fn a_configured_accelerator_is_not_probed() {
    let dir = tempfile::tempdir().expect("tempdir");
    for (configured, wanted) in [(Accel::Kvm, Accelerator::Kvm), (Accel::Qemu, Accelerator::Qemu)] {
        let question = Question { configured, emulator: "/nonexistent".into(), ..question(dir.path()) };
        assert_eq!(decide(&question).await.accelerator, wanted);
    }
}

#[tokio::test]
async fn an_emulator_that_ends_or_is_absent_proves_nothing() {
    let dir = tempfile::tempdir().expect("tempdir");
    let kernel = Path::new("/nonexistent/vmlinuz");
    let ended = probe::reaches_init(&question(dir.path()), kernel, "tcg").await.expect_err("no kernel");
    assert!(matches!(&ended, probe::ProbeError::Ended { said } if said.contains("/nonexistent/vmlinuz")), "{ended}");
    let absent = Question { emulator: "/nonexistent/qemu".into(), ..question(dir.path()) };
    let error = probe::reaches_init(&absent, kernel, "tcg").await.expect_err("no emulator");
    assert!(matches!(error, probe::ProbeError::Run { .. }), "{error}");
    assert_eq!(std::fs::read_dir(dir.path()).expect("dir").count(), 0, "no initrd is left");
}

#[tokio::test]
async fn an_emulator_that_says_nothing_is_given_up() {
    let dir = tempfile::tempdir().expect("tempdir");
    let question = Question {
        emulator: fixture("silent_emulator.sh"),
        deadline: Duration::from_millis(200),
        ..question(dir.path())
    };
    let error = probe::reaches_init(&question, Path::new("/x"), "kvm").await.expect_err("silent");
    assert!(matches!(error, probe::ProbeError::Deadline { .. }), "{error}");
}

#[tokio::test]
async fn what_the_emulator_started_ends_with_it() {
    let dir = tempfile::tempdir().expect("tempdir");
    let held = dir.path().join("held");
    nix::unistd::mkfifo(&held, nix::sys::stat::Mode::S_IRWXU).expect("fifo");
    let mut end = tokio::net::unix::pipe::OpenOptions::new().open_receiver(&held).expect("opened");
    let question = Question { emulator: fixture("forking_emulator.sh"), ..question(dir.path()) };
    probe::reaches_init(&question, Path::new("/x"), "kvm").await.expect("says the line");
    // Reads to the end only when nobody holds the other end any more.
    let mut read = Vec::new();
    let ended = tokio::io::AsyncReadExt::read_to_end(&mut end, &mut read);
    tokio::time::timeout(Duration::from_secs(10), ended).await.expect("nobody is left").expect("read");
}

#[test]
fn a_new_emulator_has_another_fingerprint_and_the_wrapper_another_change_time() {
    let dir = tempfile::tempdir().expect("tempdir");
    let program = dir.path().join("program");
    std::fs::write(&program, "one").expect("written");
    let before = Fingerprint::of(&program).expect("there");
    assert_eq!(Fingerprint::of(&program).expect("there"), before);
    std::fs::write(dir.path().join("new"), "two").expect("written");
    std::fs::rename(dir.path().join("new"), &program).expect("replaced");
    assert_ne!(Fingerprint::of(&program).expect("there"), before);

    let found = std::fs::metadata(&program).expect("there");
    refresh_wrapper(&program).expect("refreshed");
    let after = std::fs::metadata(&program).expect("there");
    assert_eq!(after.mtime_nsec(), found.mtime_nsec(), "what make looks at stays");
    assert!((after.ctime(), after.ctime_nsec()) > (found.ctime(), found.ctime_nsec()), "what libvirt looks at moves");
    assert!(refresh_wrapper(&dir.path().join("absent")).is_err());
}
