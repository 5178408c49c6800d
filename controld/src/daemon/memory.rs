//! How much memory the allocator keeps for itself.
//!
//! glibc gives each thread a heap of its own, up to eight for each processor, and none of them ever gets small. Threads here
//! come and go and share little work at a time: one heap does, and with fifty sandboxes it is 5 MiB less.
//!
//! glibc asks the kernel for large pieces one by one, and gives each back when it is freed. But with the first one that is
//! freed it takes all of that size for worth keeping (mallopt(3), "dynamic mmap threshold"), and from then on a daemon has
//! the blocks of its largest pull for ever. A threshold that is set stays.
//!
//! Smaller pieces are cut out of the heap, of which glibc gives back only what is free at its end: one piece there that lives on keeps all
//! that was freed before it. So whoever knows that much of it is free says so.

#![expect(unsafe_code, reason = "the allocator is set up by a call of C; nothing outside this file makes it")]

/// From this size on, in bytes: below the blocks of a pull (1 MiB), above what comes and goes
/// all the time. The value that glibc begins with.
const LARGE: libc::c_int = 128 * 1024;
/// Bytes in free pieces that are worth a walk through the heap, for which all who allocate wait.
const WORTH: usize = 4 << 20;

/// Has the allocator keep one heap, and give large pieces back when they are freed. To be called before there are threads.
pub(super) fn keep_little() {
    // SAFETY: takes two integers and no pointers, and nothing depends on its success.
    unsafe { libc::mallopt(libc::M_ARENA_MAX, 1) };
    // SAFETY: as above.
    unsafe { libc::mallopt(libc::M_MMAP_THRESHOLD, LARGE) };
}

/// Gives whole pages in the heap that are free back to the kernel. Blocks, for some milliseconds where it is a lot.
pub(super) fn give_back() {
    // SAFETY: takes nothing, and counts under the allocator's own lock.
    let free = unsafe { libc::mallinfo2() }.fordblks;
    if free >= WORTH {
        // SAFETY: takes an integer, and touches only what is free, under the same lock.
        unsafe { libc::malloc_trim(0) };
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;
    use std::sync::Arc;
    use std::time::Duration;

    use futures_util::FutureExt as _;
    use futures_util::future::BoxFuture;
    use procfs::process::Process;
    use streaming::client::{Options, attach};
    use streaming::{AttachRequest, Backend, Config, Server, Session, SessionError};
    use tokio::io::AsyncWriteExt as _;
    use tokio::time::timeout;

    use super::*;

    const SESSIONS: usize = 12;
    const MIB: u64 = 1 << 20;
    static PIECE: [u8; 64 << 10] = [7; 64 << 10];
    const DEADLINE: Duration = Duration::from_secs(60);

    /// Never reads.
    #[derive(Debug)]
    struct Deaf;

    impl Backend for Deaf {
        fn attach<'a>(&'a self, _: &'a str, session: Session) -> BoxFuture<'a, Result<(), SessionError>> {
            async move {
                let _session = session;
                std::future::pending().await
            }
            .boxed()
        }
    }

    fn resident() -> u64 {
        let status = Process::myself().and_then(|process| process.status()).expect("own figures");
        status.vmrss.expect("counted") * 1024
    }

    #[test]
    fn what_sessions_kept_is_given_back_after_the_last_one() {
        let mut child = Command::new(std::env::current_exe().expect("exe"));
        child.args(["--ignored", "--exact", "--test-threads=1", "--nocapture"]);
        let output = child.arg("daemon::memory::tests::keeps_much_and_gives_it_back").output().expect("runs");
        let said = String::from_utf8_lossy(&output.stdout);
        let (why, passed) = (String::from_utf8_lossy(&output.stderr), said.contains("1 passed"));
        assert!(output.status.success() && passed, "{said}{why}");
    }

    #[test]
    #[ignore = "counts the memory of its process; the test above runs it in one of its own"]
    fn keeps_much_and_gives_it_back() {
        keep_little();
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
        runtime.expect("a runtime").block_on(async {
            let address = "127.0.0.1:0".parse().expect("an address");
            let server = Server::bind(Config::at(address), Arc::new(Deaf)).await.expect("serves");
            let before = resident();
            let (mut sessions, mut lives_on) = (Vec::new(), Vec::new());
            for number in 0..SESSIONS {
                let wanted = AttachRequest {
                    container_id: number.to_string(),
                    stdin: true,
                    stdout: false,
                    stderr: false,
                    tty: false,
                    stdin_once: false,
                };
                let options = Options { stdin: true, stdout: false, stderr: false, tty: false };
                let url = server.attach_url(wanted).expect("a URL");
                let mut session = attach(&url, options).await.expect("attached");
                let mut stdin = session.stdin.take().expect("stdin");
                // Less than the server keeps for a stream, so it takes all but what is on its way.
                for _ in 0..48 {
                    timeout(DEADLINE, stdin.write_all(&PIECE)).await.expect("taken in time").expect("taken");
                    lives_on.push(Box::new([1_u8; 200]));
                }
                sessions.push((session, stdin));
            }
            let loaded = resident();
            assert!(loaded > before + 24 * MIB, "{before} before, {loaded} with sessions");
            drop(sessions);
            timeout(DEADLINE, server.all_ended()).await.expect("they end");
            give_back();
            let after = resident();
            assert!(after < before + (loaded - before) / 3, "{before} before, {loaded} with sessions, {after} after");
            drop(lives_on);
        });
    }
}
