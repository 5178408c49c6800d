//! One-shot tokens. Pure but for the system's randomness; the time is passed in.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use tokio::time::Instant;
use uuid::Uuid;

/// Bytes of randomness in a token: eight characters.
const LEN: usize = 6;

/// What waits for its client.
#[derive(Debug)]
pub(super) struct Tokens<T> {
    ttl: Duration,
    limit: usize,
    waiting: BTreeMap<String, T>,
    /// Tokens by age, those among them that are used up too.
    by_age: VecDeque<(Instant, String)>,
}

impl<T> Tokens<T> {
    pub(super) fn new(ttl: Duration, limit: usize) -> Self {
        Self { ttl, limit, waiting: BTreeMap::new(), by_age: VecDeque::new() }
    }

    /// A token for `item`. `None` if there are too many.
    pub(super) fn insert(&mut self, item: T, now: Instant) -> Option<String> {
        self.expire(now);
        if self.by_age.len() >= self.limit {
            return None;
        }
        let token = std::iter::repeat_with(random).find(|token| !self.waiting.contains_key(token))?;
        self.waiting.insert(token.clone(), item);
        self.by_age.push_back((now, token.clone()));
        Some(token)
    }

    /// What the token stands for; it stays good.
    pub(super) fn get(&mut self, token: &str, now: Instant) -> Option<&T> {
        self.expire(now);
        self.waiting.get(token)
    }

    /// What the token stands for; it is used up.
    pub(super) fn take(&mut self, token: &str, now: Instant) -> Option<T> {
        self.expire(now);
        let item = self.waiting.remove(token)?;
        self.by_age.retain(|(_, other)| other != token);
        Some(item)
    }

    fn expire(&mut self, now: Instant) {
        while let Some((born, token)) = self.by_age.front() {
            if now.duration_since(*born) < self.ttl {
                return;
            }
            self.waiting.remove(token);
            self.by_age.pop_front();
        }
    }
}

/// From the system: the first six bytes of a version 4 UUID are nothing but random.
fn random() -> String {
    let bytes = Uuid::new_v4().into_bytes();
    URL_SAFE_NO_PAD.encode(bytes.first_chunk::<LEN>().unwrap_or(&[0; LEN]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_good_once_and_for_a_minute() {
        let now = Instant::now();
        let mut tokens = Tokens::new(Duration::from_secs(60), 10);
        let first = tokens.insert(1, now).expect("room");
        let second = tokens.insert(2, now).expect("room");
        assert_eq!(first.len(), 8);
        assert!(first.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte)), "{first}");
        assert_ne!(first, second);
        assert_eq!(tokens.get(&first, now), Some(&1));
        assert_eq!(tokens.take(&first, now), Some(1));
        assert_eq!(tokens.take(&first, now), None, "used");
        assert_eq!(tokens.take("AAAAAAAA", now), None);
        assert_eq!(tokens.get(&second, now + Duration::from_secs(59)), Some(&2));
        assert_eq!(tokens.take(&second, now + Duration::from_secs(60)), None, "too old");
    }

    #[test]
    fn tokens_are_limited() {
        let now = Instant::now();
        let mut tokens = Tokens::new(Duration::from_secs(60), 2);
        let first = tokens.insert((), now).expect("room");
        tokens.insert((), now + Duration::from_secs(1)).expect("room");
        assert_eq!(tokens.insert((), now + Duration::from_secs(2)), None);
        tokens.take(&first, now + Duration::from_secs(2)).expect("there");
        tokens.insert((), now + Duration::from_secs(2)).expect("room of the used one");
        assert_eq!(tokens.insert((), now + Duration::from_secs(60)), None);
        tokens.insert((), now + Duration::from_secs(61)).expect("room of the old one");
    }
}
