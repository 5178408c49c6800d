use proptest::prelude::*;

use super::*;

const TTL: Duration = Duration::from_secs(120);

fn pod(n: u8) -> PodId {
    format!("pod{n}").parse().expect("pod id")
}

fn tokens() -> (Tokens, Instant) {
    (Tokens::new(TTL), Instant::now())
}

#[test]
fn works_once() {
    let (mut tokens, now) = tokens();
    let token = tokens.arm(pod(1), [1; 16], now);
    assert_eq!(tokens.redeem(&token, now), Ok(pod(1)));
    assert_eq!(tokens.redeem(&token, now), Err(Refused));
    assert_eq!(tokens.refused(), 1);
}

#[test]
fn lapses_at_its_deadline_and_not_before() {
    let (mut tokens, now) = tokens();
    let token = tokens.arm(pod(1), [1; 16], now);
    assert_eq!(tokens.redeem(&token, now + TTL - Duration::from_nanos(1)), Ok(pod(1)));
    let token = tokens.arm(pod(1), [2; 16], now);
    assert_eq!(tokens.redeem(&token, now + TTL), Err(Refused));
}

#[test]
fn arming_again_voids_the_earlier_token_of_that_pod_alone() {
    let (mut tokens, now) = tokens();
    let first = tokens.arm(pod(1), [1; 16], now);
    let other = tokens.arm(pod(2), [2; 16], now);
    let second = tokens.arm(pod(1), [3; 16], now);
    assert_eq!(tokens.redeem(&first, now), Err(Refused));
    assert_eq!(tokens.redeem(&second, now), Ok(pod(1)));
    assert_eq!(tokens.redeem(&other, now), Ok(pod(2)));
}

#[test]
fn disarming_and_turning_away_leave_other_tokens_alone() {
    let (mut tokens, now) = tokens();
    let gone = tokens.arm(pod(1), [1; 16], now);
    let stays = tokens.arm(pod(2), [2; 16], now);
    tokens.disarm(&pod(1));
    tokens.turned_away();
    assert_eq!(tokens.redeem(&gone, now), Err(Refused));
    assert_eq!(tokens.redeem(&stays, now), Ok(pod(2)));
    assert_eq!(tokens.refused(), 2);
}

#[test]
fn nothing_printable_shows_a_token() {
    let (mut tokens, now) = tokens();
    let token = tokens.arm(pod(1), [0xab; 16], now);
    assert!(!format!("{tokens:?} {Refused} {Refused:?}").contains(token.as_str()));
}

#[derive(Debug, Clone)]
enum Act {
    Arm(u8),
    Disarm(u8),
    /// The n-th token ever minted.
    Redeem(usize),
    Guess,
    Wait(u64),
}

fn acts() -> impl Strategy<Value = Vec<Act>> {
    let act = prop_oneof![
        (0..4u8).prop_map(Act::Arm),
        (0..4u8).prop_map(Act::Disarm),
        (0..20usize).prop_map(Act::Redeem),
        Just(Act::Guess),
        (0..100u64).prop_map(Act::Wait),
    ];
    proptest::collection::vec(act, 0..60)
}

proptest! {
    /// Against the plainest model: a list of everything minted, and what became of it.
    #[test]
    fn behaves_like_the_model(acts in acts()) {
        let (mut tokens, mut now) = tokens();
        let mut minted: Vec<(u8, Token, Instant, bool)> = Vec::new();
        let mut refused = 0;
        for act in acts {
            match act {
                Act::Arm(n) => {
                    let mut random = [0; 16];
                    random[0] = u8::try_from(minted.len()).expect("few") + 1;
                    let token = tokens.arm(pod(n), random, now);
                    minted.iter_mut().filter(|m| m.0 == n).for_each(|m| m.3 = false);
                    minted.push((n, token, now, true));
                }
                Act::Disarm(n) => {
                    tokens.disarm(&pod(n));
                    minted.iter_mut().filter(|m| m.0 == n).for_each(|m| m.3 = false);
                }
                Act::Redeem(i) => {
                    let Some((n, token, at, live)) = minted.get_mut(i) else { continue };
                    let good = *live && now < *at + TTL;
                    *live = false;
                    refused += u64::from(!good);
                    prop_assert_eq!(tokens.redeem(token, now), if good { Ok(pod(*n)) } else { Err(Refused) });
                }
                Act::Guess => {
                    refused += 1;
                    prop_assert_eq!(tokens.redeem(&Token::from_random([0xff; 16]), now), Err(Refused));
                }
                Act::Wait(seconds) => now += Duration::from_secs(seconds),
            }
            prop_assert_eq!(tokens.refused(), refused);
            prop_assert!(tokens.armed.len() <= 4);
        }
    }
}
