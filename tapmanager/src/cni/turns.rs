//! Turns of plugins: how many run at a time, and which is next.
//!
//! Called by [`super::ask`]. All plugins that make or remove links wait for one lock of the kernel (RTNL), and start programs
//! besides. So where many are asked for at once, few at a time are done sooner than all together. A plugin that works for a
//! pod (ADD, DEL, CHECK) waits for its turn; who asked first is first.
//!
//! A plugin that hangs keeps no other pod from its network:
//! - A turn lasts [`LASTS`]. A plugin that runs longer waits for something else than a processor or RTNL (a DHCP server, a
//!   daemon of its network). It runs on, and counts no more.
//! - A plugin of a network that ran so long is slow, until it is quick again. What is slow needs no turn, those included
//!   that wait for one. So however many hang, others wait once, and for about as long as a turn lasts.
//!
//! A plugin's deadline begins when it is started: waiting for a turn takes nothing from it.

use std::collections::BTreeSet;
use std::future::Future;
use std::pin::pin;
use std::thread::available_parallelism;
use std::time::Duration;

use tokio::sync::{Semaphore, SemaphorePermit, watch};
use tokio::time::timeout;

/// How long a plugin that runs counts. Most take tens of milliseconds, some that start many programs a second.
const LASTS: Duration = Duration::from_secs(2);
/// Plugins at a time, for each processor: they also wait for the kernel, while others can work.
const FOR_EACH_PROCESSOR: usize = 4;

/// A network, the kind of one of its plugins, and the command: an ADD may hang where a DEL is quick.
type Plugin = (String, String, &'static str);

#[derive(Debug)]
pub(super) struct Turns {
    free: Semaphore,
    slow: watch::Sender<BTreeSet<Plugin>>,
}

// === impl Turns ===

impl Turns {
    /// So many plugins at a time; as fit this machine without a number.
    pub(super) fn new(at_once: Option<u16>) -> Self {
        // One processor at least runs this.
        let derived = || available_parallelism().map_or(1, usize::from) * FOR_EACH_PROCESSOR;
        let at_once = at_once.map_or_else(derived, usize::from);
        Self { free: Semaphore::new(at_once), slow: watch::Sender::new(BTreeSet::new()) }
    }

    /// Does `work`, a run of the plugin `kind` for `network` on `command`, when it is its turn.
    pub(super) async fn take<T>(
        &self,
        network: &str,
        kind: &str,
        command: &'static str,
        work: impl Future<Output = T>,
    ) -> T {
        let plugin = (network.to_owned(), kind.to_owned(), command);
        let turn = self.wait_for(&plugin).await;
        let mut work = pin!(work);
        let in_time = timeout(LASTS, &mut work).await;
        drop(turn);
        if let Ok(done) = in_time {
            self.slow.send_if_modified(|slow| slow.remove(&plugin));
            return done;
        }
        self.slow.send_if_modified(|slow| slow.insert(plugin));
        work.await
    }

    /// `None` if the plugin is slow, and needs no turn.
    async fn wait_for(&self, plugin: &Plugin) -> Option<SemaphorePermit<'_>> {
        let mut slow = self.slow.subscribe();
        tokio::select! {
            biased;
            _ = slow.wait_for(|slow| slow.contains(plugin)) => None,
            // It is never closed. The queue is in the order in which it was joined.
            turn = self.free.acquire() => turn.ok(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use tokio::task::JoinSet;
    use tokio::time::{Instant, sleep};

    use super::*;

    const QUICK: Duration = Duration::from_millis(100);
    const HANGS: Duration = Duration::from_secs(60);

    /// What ran: the name of each, and when it began and ended.
    type Log = Arc<Mutex<Vec<(String, Duration, Duration)>>>;

    struct Bed {
        turns: Arc<Turns>,
        begun: Instant,
        log: Log,
        runs: JoinSet<()>,
    }

    impl Bed {
        fn new(at_once: u16) -> Self {
            let turns = Arc::new(Turns::new(Some(at_once)));
            Self { turns, begun: Instant::now(), log: Log::default(), runs: JoinSet::new() }
        }

        /// Asks for a run of `network`'s plugin that takes so long.
        async fn ask(&mut self, network: &'static str, takes: Duration) {
            self.ask_to("ADD", network, takes).await;
        }

        async fn ask_to(&mut self, command: &'static str, network: &'static str, takes: Duration) {
            let (turns, log, begun) = (Arc::clone(&self.turns), Arc::clone(&self.log), self.begun);
            self.runs.spawn(async move {
                let work = async {
                    let started = begun.elapsed();
                    sleep(takes).await;
                    (started, begun.elapsed())
                };
                let (started, ended) = turns.take(network, "bridge", command, work).await;
                log.lock().expect("lock").push((network.to_owned(), started, ended));
            });
            // It joins the queue before the next is asked for.
            tokio::task::yield_now().await;
        }

        /// When each began, in the order of their ends.
        async fn done(mut self) -> Vec<(String, Duration)> {
            while let Some(run) = self.runs.join_next().await {
                run.expect("no panic");
            }
            let log = self.log.lock().expect("lock");
            log.iter().map(|(network, started, _)| (network.clone(), *started)).collect()
        }
    }

    fn began(at: &[(String, Duration)], network: &str) -> Vec<u128> {
        at.iter().filter(|(of, _)| of == network).map(|(_, started)| started.as_millis()).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn so_many_run_at_a_time_and_who_asked_first_is_first() {
        let mut bed = Bed::new(2);
        for network in ["a", "b", "c", "d", "e"] {
            bed.ask(network, QUICK).await;
        }
        let done = bed.done().await;
        let begun: Vec<_> = done.iter().map(|(network, started)| (network.as_str(), started.as_millis())).collect();
        assert_eq!(begun, [("a", 0), ("b", 0), ("c", 100), ("d", 100), ("e", 200)]);
    }

    #[tokio::test(start_paused = true)]
    async fn plugins_that_hang_hold_up_others_for_one_turn() {
        let mut bed = Bed::new(2);
        for _ in 0..40 {
            bed.ask("hangs", HANGS).await;
        }
        bed.ask("works", QUICK).await;
        let done = bed.done().await;
        assert_eq!(began(&done, "works"), [LASTS.as_millis()]);
        let hanging = began(&done, "hangs");
        assert_eq!((hanging.len(), hanging.iter().max().copied()), (40, Some(LASTS.as_millis())));
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_known_to_be_slow_holds_up_nobody_until_it_is_quick_again() {
        let mut bed = Bed::new(1);
        bed.ask("dhcp", HANGS).await;
        sleep(LASTS + QUICK).await;
        // It runs still.
        bed.ask("dhcp", QUICK).await;
        bed.ask("works", QUICK).await;
        sleep(QUICK / 2).await;
        let slow = |bed: &Bed| bed.turns.slow.borrow().len();
        assert_eq!(slow(&bed), 1);
        sleep(QUICK).await;
        assert_eq!(slow(&bed), 0, "it was quick");
        bed.ask("works", QUICK).await;
        bed.ask("dhcp", QUICK).await;
        let done = bed.done().await;
        let (dhcp, works) = (began(&done, "dhcp"), began(&done, "works"));
        assert_eq!(works[0], dhcp[0], "both at once, with one turn: {done:?}");
        assert_eq!(dhcp[1], works[1] + QUICK.as_millis(), "one after the other: {done:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_quick_del_does_not_hide_that_adds_hang() {
        let mut bed = Bed::new(1);
        bed.ask("hangs", HANGS).await;
        sleep(LASTS + QUICK).await;
        bed.ask_to("DEL", "hangs", QUICK).await;
        sleep(QUICK * 2).await;
        let begun = bed.begun.elapsed();
        bed.ask("hangs", HANGS).await;
        bed.ask("works", QUICK).await;
        assert_eq!(began(&bed.done().await, "works"), [begun.as_millis()], "no ADD that hangs took the turn again");
    }

    #[tokio::test(start_paused = true)]
    async fn whoever_gives_up_waiting_leaves_the_queue() {
        let mut bed = Bed::new(1);
        bed.ask("works", QUICK).await;
        let given_up = timeout(QUICK / 2, bed.turns.take("other", "bridge", "ADD", async {})).await;
        assert!(given_up.is_err());
        bed.ask("last", QUICK).await;
        assert_eq!(began(&bed.done().await, "last"), [QUICK.as_millis()]);
    }

    #[test]
    fn without_a_number_there_are_some_for_each_processor() {
        let processors = available_parallelism().expect("told").get();
        assert_eq!(Turns::new(None).free.available_permits(), 4 * processors);
        assert_eq!(Turns::new(Some(1)).free.available_permits(), 1);
    }
}
