//! How much of something there is at a time: connections, streams, and answers that are large.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use hyper::StatusCode;
use hyper::body::Bytes;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

use super::refusal::Refusal;

/// Who wants room for something large waits for it so long.
const WAIT: Duration = Duration::from_secs(10);

/// Streams: so many of all, and of each namespace.
#[derive(Debug)]
pub(super) struct Sessions {
    all: Arc<Semaphore>,
    most: usize,
    most_of_one: usize,
    /// Of each namespace that has one.
    of_each: Mutex<BTreeMap<String, usize>>,
}

/// Room for a stream, as long as this is there.
#[derive(Debug)]
pub(super) struct Session {
    sessions: Arc<Sessions>,
    namespace: String,
    _of_all: OwnedSemaphorePermit,
}

/// Room for what is large.
#[derive(Debug, Clone)]
pub(super) struct Room {
    places: Arc<Semaphore>,
    most: usize,
    what: &'static str,
}

/// Bytes for which there has to be room until the last of them was sent: as long as anybody holds them, they hold it.
struct Held {
    bytes: Vec<u8>,
    _room: OwnedSemaphorePermit,
}

impl Sessions {
    pub(super) fn new(most: usize, most_of_one: usize) -> Self {
        Self { all: Arc::new(Semaphore::new(most)), most, most_of_one, of_each: Mutex::default() }
    }

    /// Room for one of a namespace.
    pub(super) fn begin(self: &Arc<Self>, namespace: &str) -> Result<Session, Refusal> {
        let of_all = Arc::clone(&self.all).try_acquire_owned();
        let of_all = of_all.map_err(|_| full(&format!("this replica of the server has {} streams", self.most)))?;
        self.with(|of_each| {
            let count = of_each.get(namespace).copied().unwrap_or_default();
            if count >= self.most_of_one {
                return Err(full(&format!("namespace {namespace} has {count} streams at this replica of the server")));
            }
            of_each.insert(namespace.to_owned(), count + 1);
            Ok(())
        })?;
        Ok(Session { sessions: Arc::clone(self), namespace: namespace.to_owned(), _of_all: of_all })
    }

    /// Returns when there is none.
    pub(super) async fn ended(&self) {
        all_of(&self.all, self.most).await;
    }

    fn with<T>(&self, what: impl FnOnce(&mut BTreeMap<String, usize>) -> T) -> T {
        what(&mut self.of_each.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.sessions.with(|of_each| {
            let left = of_each.get(&self.namespace).copied().unwrap_or_default().saturating_sub(1);
            if left == 0 {
                of_each.remove(&self.namespace);
            } else {
                of_each.insert(self.namespace.clone(), left);
            }
        });
    }
}

impl Room {
    /// For so many of `what`.
    pub(super) fn new(most: usize, what: &'static str) -> Self {
        Self { places: Arc::new(Semaphore::new(most)), most, what }
    }

    /// Room for one of them.
    pub(super) async fn take(&self) -> Result<OwnedSemaphorePermit, Refusal> {
        let place = timeout(WAIT, Arc::clone(&self.places).acquire_owned()).await.ok().and_then(Result::ok);
        place.ok_or_else(|| full(&format!("this replica of the server has {} {} on their way", self.most, self.what)))
    }
}

/// Bytes that hold room.
pub(super) fn held(bytes: Vec<u8>, room: OwnedSemaphorePermit) -> Bytes {
    Bytes::from_owner(Held { bytes, _room: room })
}

impl AsRef<[u8]> for Held {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

/// Returns when nobody holds a place.
pub(super) async fn all_of(places: &Semaphore, most: usize) {
    let _ = places.acquire_many(u32::try_from(most).unwrap_or(u32::MAX)).await;
}

fn full(has: &str) -> Refusal {
    Refusal::new(StatusCode::TOO_MANY_REQUESTS, format!("{has}; end some, or try again"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn one_namespace_leaves_room_for_others() {
        let sessions = Arc::new(Sessions::new(3, 2));
        let first = sessions.begin("a").expect("room");
        let second = sessions.begin("a").expect("room");
        let refused = sessions.begin("a").expect_err("full");
        assert!(refused.code == 429 && refused.message.contains("namespace a has 2 streams"), "{refused:?}");
        let other = sessions.begin("b").expect("room");
        let refused = sessions.begin("c").expect_err("full");
        assert!(refused.code == 429 && refused.message.contains("has 3 streams"), "{refused:?}");
        drop(first);
        let third = sessions.begin("a").expect("room again");
        drop((second, third, other));
        assert!(sessions.with(|of_each| of_each.is_empty()));
        sessions.ended().await;
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_holds_its_room_until_its_last_byte_is_gone() {
        let room = Room::new(1, "pictures");
        let bytes = held(b"PNG".to_vec(), room.take().await.expect("room"));
        let last = bytes.slice(2..);
        drop(bytes);
        let refused = room.take().await.expect_err("full");
        assert!(refused.code == 429 && refused.message.contains("1 pictures on their way"), "{refused:?}");
        assert_eq!(&*last, b"G");
        drop(last);
        drop(room.take().await.expect("room again"));
    }
}
