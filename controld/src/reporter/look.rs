//! Asks one guest, from time to time, what it is.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Semaphore, watch};
use tokio::time::sleep;

use super::report::Known;
use crate::guest::agents::{Agents, Told};
use crate::model::Container;

/// Guests that are asked at a time: each answer takes memory.
static AT_A_TIME: Semaphore = Semaphore::const_new(16);
/// Until a guest that has answered is asked again.
const AGAIN: Duration = Duration::from_secs(60);
/// Until one is that has not: at first, and at most.
const MISSED: [Duration; 2] = [Duration::from_secs(5), Duration::from_secs(60)];
/// As often in a row nobody has to answer until there is no agent: one that is busy is late.
const MISSES: u32 = 2;

/// Asks for ever. One that is paused cannot answer, and is not asked.
pub(super) async fn look(
    agents: &Agents,
    mut container: watch::Receiver<Arc<Container>>,
    known: &watch::Sender<Known>,
) {
    let [mut pause, late] = MISSED;
    let mut missed = 0;
    while container.wait_for(|container| container.pause.is_none()).await.is_ok() {
        let id = container.borrow().machine.id;
        let told = {
            // Fails only if it was closed, which nobody does.
            let _turn = AT_A_TIME.acquire().await;
            agents.tell(id).await
        };
        if told.is_none() && container.borrow().pause.is_some() {
            continue;
        }
        let is_there = told.is_some();
        missed = if is_there { 0 } else { missed + 1 };
        known.send_if_modified(|known| take(known, told, missed));
        if is_there {
            [pause, _] = MISSED;
            sleep(AGAIN).await;
        } else {
            sleep(pause).await;
            pause = late.min(pause * 2);
        }
    }
}

/// Notes what was told, or that so often in a row nothing was; whether that is news.
fn take(known: &mut Known, told: Option<Told>, missed: u32) -> bool {
    let before = known.clone();
    match told {
        Some(Told { os, nics }) => {
            known.has_agent = Some(true);
            // An agent that is late or frozen does not say it, and it is as it was.
            known.told.os = os.or(known.told.os.take());
            known.told.nics = nics.or(known.told.nics.take());
        }
        None if missed >= MISSES => known.has_agent = Some(false),
        None => {}
    }
    *known != before
}

#[cfg(test)]
mod tests {
    use proto::vm::guest::Os;

    use super::*;
    use crate::guest::agents::ToldNic;

    #[test]
    fn an_agent_is_gone_when_it_has_missed_twice_and_what_it_told_stays() {
        let mut known = Known::default();
        assert!(!take(&mut known, None, 1) && known.has_agent.is_none());
        assert!(take(&mut known, None, 2) && known.has_agent == Some(false));
        let told = Told { os: Some(Os { id: "a".into(), ..Os::default() }), nics: Some(vec![ToldNic::default()]) };
        assert!(take(&mut known, Some(told.clone()), 0) && !take(&mut known, Some(told.clone()), 0));
        assert!(!take(&mut known, None, 1) && known.has_agent == Some(true));
        assert!(take(&mut known, None, 2) && !take(&mut known, None, 3));
        assert_eq!(known, Known { has_agent: Some(false), told });
    }

    #[test]
    fn what_is_not_told_is_as_it_was() {
        let os = |id: &str| Some(Os { id: id.into(), ..Os::default() });
        let nics = Some(vec![ToldNic::default()]);
        let mut known = Known::default();
        assert!(take(&mut known, Some(Told { os: os("a"), nics: nics.clone() }), 0));
        assert!(!take(&mut known, Some(Told::default()), 0), "one that is frozen");
        assert!(take(&mut known, Some(Told { os: os("b"), nics: None }), 0));
        assert_eq!(known.told, Told { os: os("b"), nics });
        assert!(take(&mut known, Some(Told { os: None, nics: Some(Vec::new()) }), 0));
        assert_eq!(known.told, Told { os: os("b"), nics: Some(Vec::new()) });
    }
}
