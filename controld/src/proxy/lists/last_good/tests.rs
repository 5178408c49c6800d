use proptest::prelude::*;
use prost::Message as _;
use proto::cri::{Container, Image, ListPodSandboxResponse, PodSandbox};

use super::*;
use crate::proxy::lists::filter;

fn list(ids: &[&str]) -> Bytes {
    let items = ids.iter().map(|id| PodSandbox { id: (*id).into(), ..Default::default() }).collect();
    Bytes::from(ListPodSandboxResponse { items }.encode_to_vec())
}

/// What kubelet would be told.
fn told(good: &LastGood, now: Instant) -> Option<Vec<String>> {
    let kept = good.answer(now)?;
    let items = wire::items(&kept.list).expect("a list");
    let kept = filter::kept(Kind::Sandboxes, &[], items, &kept.gone).expect("a list").concat();
    let list = ListPodSandboxResponse::decode(&*kept).expect("a list").items;
    Some(list.into_iter().map(|sandbox| sandbox.id).collect())
}

#[test]
fn before_there_was_a_list_there_is_none() {
    let mut good = LastGood::default();
    let now = Instant::now();
    good.make("a", list(&["a"]));
    good.remove("b");
    assert_eq!(good.answer(now), None, "an empty list would be a lie");
    let asked = good.ask();
    good.keep(asked, list(&[]), now);
    assert_eq!(told(&good, now), Some(vec![]));
}

#[test]
fn what_was_removed_through_us_is_gone_however_late_an_older_list_comes() {
    let (mut good, now) = (LastGood::default(), Instant::now());
    let first = good.ask();
    good.keep(first, list(&["a", "b"]), now);
    let slow = good.ask();
    good.remove("a");
    assert_eq!(told(&good, now), Some(vec!["b".into()]));
    good.keep(slow, list(&["a", "b", "c"]), now);
    assert_eq!(told(&good, now), Some(vec!["b".into(), "c".into()]), "asked for before the removal");
    let after = good.ask();
    good.keep(after, list(&["a"]), now);
    assert_eq!(told(&good, now), Some(vec!["a".into()]), "the default says that it has it again");
}

/// kubelet would make it again.
#[test]
fn what_was_made_through_us_is_listed_until_a_list_may_have_it() {
    let (mut good, now) = (LastGood::default(), Instant::now());
    let first = good.ask();
    good.keep(first, list(&["a"]), now);
    let slow = good.ask();
    good.make("b", list(&["b"]));
    assert_eq!(told(&good, now), Some(vec!["a".into(), "b".into()]));
    good.keep(slow, list(&["a"]), now);
    assert_eq!(told(&good, now), Some(vec!["a".into(), "b".into()]), "asked for before it was made");
    good.remove("b");
    assert_eq!(told(&good, now), Some(vec!["a".into()]));
    let after = good.ask();
    good.keep(after, list(&["a"]), now);
    assert_eq!(told(&good, now), Some(vec!["a".into()]));
}

#[test]
fn a_newer_list_is_not_replaced_by_an_older_one_and_its_age_is_told() {
    let (mut good, now) = (LastGood::default(), Instant::now());
    let (slow, quick) = (good.ask(), good.ask());
    let later = now + Duration::from_secs(5);
    good.keep(quick, list(&["new"]), now);
    good.keep(slow, list(&["old"]), later);
    assert_eq!(told(&good, later), Some(vec!["new".into()]));
    assert_eq!(good.shown(later).map(|(age, _)| age), Some(Duration::from_secs(5)));
}

#[test]
fn containers_go_with_their_sandbox_and_images_by_any_name() {
    let mut good = LastGood::default();
    for name in ["s1", "nginx:latest"] {
        good.remove(name);
    }
    let asked = good.ask();
    good.remove("s2");
    good.remove("x@sha256:1");
    good.keep(asked, Bytes::new(), Instant::now());
    let gone = good.answer(Instant::now()).expect("a list").gone;
    let container = |sandbox: &str| {
        Container { id: "c".into(), pod_sandbox_id: sandbox.into(), ..Default::default() }.encode_to_vec()
    };
    assert_eq!(gone.has(Kind::Containers, &container("s2")), Ok(true));
    assert_eq!(gone.has(Kind::Containers, &container("s1")), Ok(false), "from before the list");
    let image = Image { id: "sha256:9".into(), repo_digests: vec!["x@sha256:1".into()], ..Default::default() };
    assert_eq!(gone.has(Kind::Images, &image.encode_to_vec()), Ok(true));
    assert_eq!(gone.has(Kind::Containers, &[0x0a, 9]), Err(Malformed));
}

#[test]
fn an_old_list_is_told_of_at_three_ages() {
    let mut ages = Ages::default();
    let mut told = |seconds| ages.is_news(Duration::from_secs(seconds));
    assert_eq!(
        [1, 29, 30, 31, 299, 300, 301, 4000, 9000].map(&mut told),
        [false, false, true, false, false, true, false, true, false]
    );
    ages.fresh();
    assert!(ages.is_news(Duration::from_secs(400)) && !ages.is_news(Duration::from_secs(401)));
}

#[test]
fn an_id_that_was_cut_short_is_gone_as_well() {
    let (mut good, now) = (LastGood::default(), Instant::now());
    let asked = good.ask();
    let one = "ab".repeat(32);
    good.keep(asked, list(&[&one, "ab"]), now);
    good.remove(&one[..13]);
    good.remove("abab");
    assert_eq!(told(&good, now), Some(vec!["ab".into()]), "and what is too short means but itself");
}

/// RemoveImage by one name, and by what crictl prints of an id.
#[test]
fn a_name_that_begins_as_a_removed_one_stays_and_an_image_goes_by_its_short_id() {
    let (mut good, now) = (LastGood::default(), Instant::now());
    let asked = good.ask();
    good.keep(asked, Bytes::new(), now);
    let hash = format!("4f0c1b9a7d3e{}", "0".repeat(52));
    let image = |id: &str, tag: &str| {
        Image { id: id.into(), repo_tags: vec![tag.into()], ..Default::default() }.encode_to_vec()
    };
    let gone = |good: &LastGood, id: &str, tag: &str| {
        good.answer(now).expect("a list").gone.has(Kind::Images, &image(id, tag)).expect("an image")
    };
    good.remove("docker.io/library/nginx:1");
    assert!(gone(&good, "sha256:1", "docker.io/library/nginx:1"));
    assert!(!gone(&good, "sha256:1", "docker.io/library/nginx:1.25"));
    let other = format!("sha256:{hash}");
    assert!(!gone(&good, &other, "x"));
    good.remove(&hash[..13]);
    assert!(gone(&good, &other, "x") && !gone(&good, "sha256:1", &hash), "and no name is an id");
}

#[test]
fn changes_without_a_list_are_bounded() {
    let (mut good, now) = (LastGood::default(), Instant::now());
    let asked = good.ask();
    good.keep(asked, list(&["a"]), now);
    for number in 0..=MOST_CHANGES {
        good.remove(&number.to_string());
    }
    assert_eq!(good.answer(now), None, "rather none than a wrong one");
    let asked = good.ask();
    good.keep(asked, list(&["a"]), now);
    good.make("b", Bytes::from(vec![0; MOST_MADE + 1]));
    assert_eq!(good.answer(now), None);
}

#[derive(Debug, Clone)]
enum Step {
    Ask,
    /// Of the lists under way, this one; the default has looked when it was asked, or looks now.
    Answer(usize, bool),
    Make(u8),
    Remove(u8),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        Just(Step::Ask),
        (0..4usize, any::<bool>()).prop_map(|(at, late)| Step::Answer(at, late)),
        (0..5u8).prop_map(Step::Make),
        (0..5u8).prop_map(Step::Remove),
    ]
}

proptest! {
    /// Against a default that looks for a list at some time between question and answer: what is answered from here is what there is, each
    /// thing once, when all changes go through us. With ids that are not used again, as those of runtimes are.
    #[test]
    fn the_answer_is_what_the_default_has(steps in proptest::collection::vec(step(), 0..60)) {
        let now = Instant::now();
        let mut good = LastGood::default();
        let mut has: BTreeMap<u8, u32> = BTreeMap::new();
        let mut number = 0;
        let mut under_way: Vec<(Asked, Bytes)> = Vec::new();
        let mut answered = false;
        let name = |(id, number): (&u8, &u32)| format!("{id}-{number:04}");
        let look = |has: &BTreeMap<u8, u32>| {
            let ids: Vec<_> = has.iter().map(name).collect();
            list(&ids.iter().map(String::as_str).collect::<Vec<_>>())
        };
        for step in steps {
            match step {
                Step::Ask => {
                    let asked = good.ask();
                    under_way.push((asked, look(&has)));
                }
                Step::Answer(at, late) if at < under_way.len() => {
                    let (asked, early) = under_way.remove(at);
                    good.keep(asked, if late { look(&has) } else { early }, now);
                    answered = true;
                }
                Step::Answer(..) => {}
                Step::Make(id) => {
                    number += 1;
                    if let std::collections::btree_map::Entry::Vacant(free) = has.entry(id) {
                        free.insert(number);
                        let id = name((&id, &number));
                        good.make(&id, list(&[&id]));
                    }
                }
                Step::Remove(id) => {
                    if let Some(number) = has.remove(&id) {
                        good.remove(&name((&id, &number)));
                    }
                }
            }
            let told = told(&good, now);
            prop_assert_eq!(told.is_some(), answered);
            if let Some(mut told) = told {
                told.sort();
                prop_assert_eq!(told, has.iter().map(name).collect::<Vec<_>>());
            }
        }
    }
}
