use super::*;

const HOST: &str = "virtlet-operator.virtlet-system.svc";

fn day(day: i64) -> Timestamp {
    Timestamp::from_second(1_800_000_000 + day * 24 * 3600).expect("a time")
}

fn made() -> Material {
    Material::make(HOST, day(0), None).expect("made")
}

fn why(material: &Material, host: &str, now: Timestamp) -> String {
    common::Chain(&material.judge(host, now).expect_err("no good")).to_string()
}

#[test]
fn a_certificate_is_good_for_ninety_days_and_due_after_sixty() {
    let made = made();
    assert!(!made.judge(HOST, day(0)).expect("good").is_due);
    assert!(!made.judge(HOST, day(59)).expect("good").is_due);
    assert!(made.judge(HOST, day(61)).expect("good").is_due);
    assert!(made.judge(HOST, day(89)).expect("good").is_due);
    assert!(why(&made, HOST, day(91)).contains("nobody would trust the certificate"), "{}", why(&made, HOST, day(91)));
    // A clock that is a little behind.
    let before = day(0).checked_sub(Duration::from_secs(1800)).expect("a time");
    assert!(made.judge(HOST, before).is_ok());
}

#[test]
fn it_is_for_this_server_alone() {
    assert!(why(&made(), "virtlet-operator.default.svc", day(0)).contains("nobody would trust"));
    assert!(why(&made(), "no name", day(0)).contains("the server's name is none"));
}

#[test]
fn a_long_name_is_no_harm() {
    let host = format!("{}.{}.svc", "s".repeat(63), "n".repeat(63));
    let made = Material::make(&host, day(0), None).expect("made");
    assert!(made.judge(&host, day(0)).is_ok());
}

#[test]
fn the_next_one_is_of_the_same_authority_as_long_as_that_lasts() {
    let first = made();
    let second = Material::make(HOST, day(61), Some(&first)).expect("made");
    assert_eq!(second.authorities, first.authorities);
    assert!(second.certificate != first.certificate && second.key != first.key);
    assert!(!second.judge(HOST, day(61)).expect("good").is_due);
    // Two thirds of ten years are over.
    let late = day(2440);
    let mut last = Material::make(HOST, day(2400), Some(&second)).expect("made");
    assert_eq!(last.authorities, first.authorities);
    assert!(last.judge(HOST, late).expect("good").is_due);
    for _ in 0..2 {
        let next = Material::make(HOST, late, Some(&last)).expect("made");
        // The one before is trusted, too: others have a certificate of it yet.
        assert_eq!(next.authorities.matches("BEGIN CERTIFICATE").count(), 2);
        assert!(next.authorities.ends_with(&last.authority().expect("one")) && next.authorities != last.authorities);
        assert!(!next.judge(HOST, late).expect("good").is_due);
        let both = Material { certificate: last.certificate.clone(), key: last.key.clone(), ..next.clone() };
        assert!(both.judge(HOST, late).is_ok());
        last = Material { authority_expires: None, ..next };
    }
}

#[test]
fn an_authority_that_cannot_sign_is_replaced() {
    let (made, other) = (made(), made());
    for broken in [
        Material { authority_key: None, ..made.clone() },
        Material { authority_key: Some("no key".into()), ..made.clone() },
        Material { authority_key: other.authority_key, ..made.clone() },
        Material { authority_expires: None, ..made.clone() },
        Material { authorities: "no certificate".into(), ..made.clone() },
    ] {
        let next = Material::make(HOST, day(61), Some(&broken)).expect("made");
        assert!(!next.judge(HOST, day(61)).expect("good").is_due);
        assert_ne!(next.authorities, broken.authorities);
    }
}

#[test]
fn what_does_not_fit_together_is_told() {
    let (made, other) = (made(), made());
    for (broken, told) in [
        (Material { certificate: String::new(), ..made.clone() }, "there is no certificate"),
        (Material { certificate: "-----BEGIN CERTIFICATE-----\n!\n".into(), ..made.clone() }, "not in PEM"),
        (Material { authorities: String::new(), ..made.clone() }, "there is no authority"),
        (Material { authorities: other.authorities, ..made.clone() }, "nobody would trust"),
        (Material { key: "x".into(), ..made.clone() }, "there is no key"),
        (Material { key: other.key, ..made.clone() }, "cannot be used together"),
    ] {
        assert!(why(&broken, HOST, day(0)).contains(told), "{}", why(&broken, HOST, day(0)));
    }
}

#[test]
fn keys_are_shown_to_nobody() {
    assert!(!format!("{:?}", made()).contains("KEY"));
}
