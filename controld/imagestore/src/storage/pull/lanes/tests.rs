use std::sync::Mutex;

use futures_util::FutureExt as _;
use futures_util::future::{BoxFuture, ready};
use vmimage::inspect::Policy;

use super::*;
use crate::sources::net::{Artifact, Body, Request, Validators};
use crate::sources::provider::{Answer, Caps, Locator, Provider, ProviderError, RemoteImage, Want};
use crate::storage::content::Giver;

/// Has a file, and serves parts of it in small pieces. Counts who asks.
#[derive(Debug)]
struct Server {
    file: Vec<u8>,
    asked: Mutex<Vec<(u64, u64)>>,
    /// Segments that begin there break off, or come from their beginning.
    broken: Option<u64>,
    whole: Option<u64>,
}

struct Slice(std::collections::VecDeque<u8>);

impl Body for Slice {
    fn read<'a>(&'a mut self, room: &'a mut [u8]) -> BoxFuture<'a, Result<usize, FetchError>> {
        async move {
            // Gives way to others, so that segments come side by side and not in their order.
            tokio::task::yield_now().await;
            let count = room.len().min(self.0.len()).min(1_000_003);
            room.iter_mut().zip(self.0.drain(..count)).for_each(|(to, from)| *to = from);
            Ok(count)
        }
        .boxed()
    }
}

impl Provider for Server {
    fn id(&self) -> &str {
        "fake"
    }

    fn caps(&self) -> Caps {
        Caps::default()
    }

    fn resolve<'a>(&'a self, _at: &'a Locator, _want: &'a Want) -> Answer<'a, RemoteImage> {
        ready(Err(ProviderError::Unknown { id: String::new() })).boxed()
    }

    fn find<'a>(&'a self, _name: &'a str, _want: &'a Want) -> Answer<'a, Option<RemoteImage>> {
        ready(Ok(None)).boxed()
    }

    fn open<'a>(&'a self, _image: &'a RemoteImage, ask: &'a Ask) -> Answer<'a, Opened> {
        let from = ask.from.clone().expect("a range");
        assert_eq!((from.etag.as_deref(), from.total), (Some("\"a\""), Some(self.file.len() as u64)));
        let end = ask.until.expect("a range");
        self.asked.lock().expect("sound").push((from.at, end));
        let until = if self.broken == Some(from.at) { end - 10 } else { end };
        let place = |at: u64| usize::try_from(at).expect("small");
        ready(Ok(Opened::Artifact(Artifact {
            length: Some(self.file.len() as u64),
            from: if self.whole == Some(from.at) { 0 } else { from.at },
            delimited: true,
            web_page: false,
            resumable: true,
            validators: Validators::default(),
            body: Box::new(Slice(self.file[place(from.at)..place(until)].iter().copied().collect())),
        })))
        .boxed()
    }
}

fn file() -> Vec<u8> {
    (0..5 * SEGMENT + 12_345).map(|at| (at * at / 5 % 253) as u8).collect()
}

fn server(broken: Option<u64>, whole: Option<u64>) -> Arc<Server> {
    Arc::new(Server { file: file(), asked: Mutex::default(), broken, whole })
}

fn lanes(server: &Arc<Server>, count: usize, at: u64) -> Lanes {
    let url = "http://host.example/x".parse().expect("a URL");
    let job = Job {
        provider: server.clone(),
        remote: RemoteImage::at("fake", Request::get(url)),
        giver: Giver { site: String::new(), host: None },
        promises: Vec::new(),
        known: None,
        expected: Policy { allow_raw: true, max_virtual_size: 0 }.into(),
        foreign: None,
        key: String::new(),
        flight: String::new(),
    };
    let mut lanes = Lanes::new(&Arc::new(job), &Arc::default(), Some("\"a\"".into()), at, server.file.len() as u64);
    lanes.set_count(count);
    lanes
}

async fn read_all(lanes: &mut Lanes) -> Result<Vec<u8>, DownloadError> {
    let mut all = Vec::new();
    let mut room = vec![0; 700_001];
    loop {
        match lanes.read(&mut room).await? {
            0 => return Ok(all),
            count => all.extend_from_slice(&room[..count]),
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn segments_come_out_in_their_order() {
    for count in [1, 4, 9] {
        for at in [3 * SEGMENT - 1, 5 * SEGMENT + 12_344] {
            let server = server(None, None);
            let all = read_all(&mut lanes(&server, count, at)).await.expect("read");
            assert!(all == server.file[usize::try_from(at).expect("small")..], "{count} from {at}");
            let mut asked = server.asked.lock().expect("sound").clone();
            asked.sort_unstable();
            assert!(asked[0].0 == at && asked.last().expect("some").1 == server.file.len() as u64);
            assert!(asked.windows(2).all(|pair| pair[0].1 == pair[1].0), "each byte once: {asked:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn no_more_than_the_lanes_are_fetched_ahead() {
    let server = server(None, None);
    let mut lanes = lanes(&server, 2, 0);
    lanes.read(&mut [0; 10]).await.expect("read");
    // One is handed out, two are fetched.
    assert_eq!(lanes.fetching.len(), 2);
    assert!(server.asked.lock().expect("sound").len() <= 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_segment_that_fails_ends_it() {
    for failing in [0, SEGMENT, 5 * SEGMENT] {
        for server in [server(Some(failing), None), server(None, Some(failing))] {
            // The very first byte of the file is where a whole body begins, too.
            if failing == 0 && server.whole.is_some() {
                continue;
            }
            assert!(read_all(&mut lanes(&server, 3, 0)).await.is_err(), "{failing}");
        }
    }
}

const SECOND: Duration = Duration::from_secs(1);

/// Each step: lanes that are in use, bytes per second, share of the time spent waiting; and what comes of it.
fn decide(steps: &[(f64, f64)], left: u64) -> Vec<usize> {
    let mut pace = Pace::new();
    let mut lanes = 1;
    steps
        .iter()
        .map(|(rate, share)| {
            let bytes = 2 * SEGMENT * lanes as u64;
            let time = SECOND.mul_f64(bytes as f64 / rate);
            lanes = pace.note(bytes, time, time.mul_f64(*share), left).unwrap_or(lanes);
            lanes
        })
        .collect()
}

#[test]
fn more_lanes_are_taken_as_long_as_they_help() {
    let plenty = 1 << 30;
    // Throttled for each connection.
    assert_eq!(decide(&[(40e6, 0.9), (80e6, 0.9), (160e6, 0.9), (10e6, 0.9)], plenty), [2, 4, 4, 4]);
    // The way itself is full.
    assert_eq!(decide(&[(40e6, 0.9), (41e6, 0.9), (41e6, 0.9)], plenty), [2, 1, 1]);
    assert_eq!(decide(&[(40e6, 0.9), (80e6, 0.9), (82e6, 0.9), (80e6, 0.9)], plenty), [2, 4, 2, 2]);
    // Our side is what is slow, or would be.
    assert_eq!(decide(&[(FAST, 0.9), (FAST, 0.9)], plenty), [1, 1]);
    assert_eq!(decide(&[(900e6, 0.3), (900e6, 0.3)], plenty), [1, 1]);
    // The first bytes were faster than the others.
    let passed = 2 * LEAST.div_ceil(2 * SEGMENT);
    let mut steps = vec![(300e6, 0.9), (80e6, 0.9)];
    steps.extend(vec![(40e6, 0.9); usize::try_from(passed / 2).expect("small") + 1]);
    steps.extend([(80e6, 0.9)]);
    let decided = decide(&steps, plenty);
    assert_eq!((&decided[..3], &decided[decided.len() - 2..]), (&[2, 1, 1][..], &[2, 4][..]), "{decided:?}");
    // It begins to throttle later.
    assert_eq!(decide(&[(900e6, 0.3), (40e6, 0.9), (80e6, 0.9)], plenty), [1, 2, 4]);
    // Not worth it.
    assert_eq!(decide(&[(40e6, 0.9), (40e6, 0.9)], LEAST - 1), [1, 1]);
}

#[test]
fn a_decision_takes_enough_bytes() {
    let mut pace = Pace::new();
    for _ in 0..15 {
        assert_eq!(pace.note(SEGMENT / 8, SECOND, SECOND, 1 << 30), None);
    }
    assert_eq!(pace.note(SEGMENT / 8, SECOND, SECOND, 1 << 30), Some(2));
}
