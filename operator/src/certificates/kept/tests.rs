use super::*;

const HOST: &str = "virtlet-operator.virtlet-system.svc";
const NAME: &str = "virtlet-operator-tls";

fn day(day: i64) -> Timestamp {
    Timestamp::from_second(1_800_000_000 + day * 24 * 3600).expect("a time")
}

fn ours() -> (Material, Secret) {
    let made = Material::make(HOST, day(0), None).expect("made");
    let secret = with(None, NAME, &made);
    (made, secret)
}

fn somebodys() -> Secret {
    let mut secret = ours().1;
    secret.metadata.labels = None;
    secret
}

#[test]
fn what_is_written_is_read() {
    let (made, secret) = ours();
    assert_eq!(secret.type_.as_deref(), Some("kubernetes.io/tls"));
    assert_eq!(read(&secret), Some(made));
}

#[test]
fn a_renewed_secret_keeps_what_is_not_of_it() {
    let (_, mut secret) = ours();
    secret.metadata.resource_version = Some("7".to_owned());
    secret.metadata.annotations.get_or_insert_default().insert("a".to_owned(), "b".to_owned());
    let next = Material::make(HOST, day(61), None).expect("made");
    let secret = with(Some(secret), NAME, &next);
    assert_eq!(secret.metadata.resource_version.as_deref(), Some("7"));
    assert_eq!(secret.annotation("a"), Some("b"));
    assert_eq!(read(&secret), Some(next));
}

#[test]
fn ours_is_made_used_and_renewed() {
    assert!(matches!(decide(None, NAME, HOST, day(0)), Ok(Step::Make(None))));
    let (made, secret) = ours();
    assert!(matches!(decide(Some(&secret), NAME, HOST, day(30)), Ok(Step::Use(used, _)) if used == made));
    assert!(matches!(decide(Some(&secret), NAME, HOST, day(61)), Ok(Step::Make(Some(before))) if before == made));
    assert!(matches!(decide(Some(&secret), NAME, "other.name.svc", day(0)), Ok(Step::Make(Some(_)))));
    let empty = Secret { data: None, ..secret };
    assert!(matches!(decide(Some(&empty), NAME, HOST, day(0)), Ok(Step::Make(None))));
}

#[test]
fn somebody_elses_is_used_as_long_as_it_is_good_and_never_written() {
    let secret = somebodys();
    assert!(matches!(decide(Some(&secret), NAME, HOST, day(61)), Ok(Step::Use(..))));
    let told = decide(Some(&secret), NAME, HOST, day(91)).expect_err("expired");
    assert!(told.to_string().contains("is somebody else's"), "{told}");
    assert!(decide(Some(&Secret { data: None, ..secret }), NAME, HOST, day(0)).is_err());
}
