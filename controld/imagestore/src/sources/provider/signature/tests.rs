//! Signed texts, sound and otherwise. Keys are made here; two files are by GnuPG.

use std::sync::LazyLock;

use pgp::composed::{
    ArmorOptions, CleartextSignedMessage, DetachedSignature, KeyType, SecretKeyParams, SecretKeyParamsBuilder,
    SignedSecretKey, SubkeyParamsBuilder,
};
use pgp::packet::{Notation, SignatureConfig, Subpacket};
use pgp::types::{Duration as Lifetime, KeyDetails as _, Timestamp};
use pgp::types::{Password, SigningKey};
use rand::rngs::OsRng;

use super::*;

const DAY: u32 = 24 * 60 * 60;
const TEXT: &str = "[one]\nfile=one.xz\n- a list\n-----\nlast\n";

static ALICE: LazyLock<SignedSecretKey> = LazyLock::new(|| key("alice", |_| {}));
static MALLORY: LazyLock<SignedSecretKey> = LazyLock::new(|| key("mallory", |_| {}));

fn params(name: &str) -> SecretKeyParamsBuilder {
    let mut params = SecretKeyParamsBuilder::default();
    params.key_type(KeyType::Ed25519Legacy).can_certify(true).can_sign(true).primary_user_id(name.to_owned());
    params.created_at(days_ago(10));
    params
}

fn key(name: &str, change: impl FnOnce(&mut SecretKeyParamsBuilder)) -> SignedSecretKey {
    let mut params = params(name);
    change(&mut params);
    let params: SecretKeyParams = params.build().expect("parameters");
    params.generate(OsRng).expect("a key")
}

fn days_ago(days: u32) -> Timestamp {
    Timestamp::from_secs(Timestamp::now().as_secs() - days * DAY)
}

fn ring(keys: &[&SignedSecretKey]) -> KeyRing {
    let armored = keys.iter().map(|key| key.to_public_key().to_armored_string(ArmorOptions::default()).expect("armor"));
    KeyRing::parse(armored.collect::<String>().as_bytes()).expect("a ring")
}

/// How a signature is made; the default is sound.
struct Made {
    typ: SignatureType,
    hash: HashAlgorithm,
    created: Timestamp,
    more: Vec<Subpacket>,
}

impl Default for Made {
    fn default() -> Self {
        Self { typ: SignatureType::Text, hash: HashAlgorithm::Sha512, created: days_ago(1), more: Vec::new() }
    }
}

impl Made {
    fn config(self, key: &impl SigningKey) -> SignatureConfig {
        let mut config = SignatureConfig::v4(self.typ, key.algorithm(), self.hash);
        config.hashed_subpackets = vec![
            Subpacket::regular(SubpacketData::SignatureCreationTime(self.created)).expect("made"),
            Subpacket::regular(SubpacketData::IssuerFingerprint(key.fingerprint())).expect("made"),
        ];
        config.hashed_subpackets.extend(self.more);
        config
    }

    fn sign(self, key: &impl SigningKey) -> String {
        let text = TEXT.strip_suffix('\n').expect("ends a line");
        let signed = CleartextSignedMessage::new(text, self.config(key), key, &Password::empty()).expect("signed");
        signed.to_armored_string(ArmorOptions::default()).expect("armor")
    }

    fn detached(self, key: &impl SigningKey, document: &[u8]) -> Vec<u8> {
        let signature = self.config(key).sign(key, &Password::empty(), document).expect("signed");
        DetachedSignature::new(signature).to_armored_bytes(ArmorOptions::default()).expect("armor")
    }
}

fn sound() -> String {
    Made::default().sign(&ALICE.primary_key)
}

fn refusal(text: &str, keys: &KeyRing) -> String {
    let error = verify_clearsigned(text.as_bytes(), keys).expect_err("refused");
    match error {
        SignatureError::Forged { .. } => "forged".to_owned(),
        SignatureError::Stranger { .. } => "stranger".to_owned(),
        SignatureError::Key { .. } => "key".to_owned(),
        SignatureError::Packet(_) => "packet".to_owned(),
        SignatureError::Control { .. } => "control".to_owned(),
        SignatureError::Encoding(_) => "encoding".to_owned(),
        error => error.to_string(),
    }
}

#[test]
fn a_signed_text_is_the_text_that_was_signed() {
    let verified = verify_clearsigned(sound().as_bytes(), &ring(&[&ALICE])).expect("sound");
    assert_eq!(verified.text, TEXT);
    assert_eq!(verified.fingerprint, format!("{:X}", ALICE.fingerprint()));
}

#[test]
fn gnupg_signs_what_we_verify() {
    let keys = KeyRing::parse(include_bytes!("fixtures/gnupg-key.asc")).expect("a ring");
    let verified = verify_clearsigned(include_bytes!("fixtures/gnupg-text.asc"), &keys).expect("sound");
    // Signed by a subkey; the tab and the blanks at ends of lines are not part of it.
    assert_eq!(verified.text, "[one-1]\nname=-A\n-----\n- x\n\nlast\n");
    assert_eq!(verified.fingerprint, keys.fingerprints()[0]);
}

#[test]
fn what_is_around_the_signed_text_is_never_part_of_it() {
    let keys = ring(&[&ALICE]);
    let text = |signed: String| verify_clearsigned(signed.as_bytes(), &keys).map(|verified| verified.text).ok();
    let sound = sound();
    // Not covered by the signature, and so not in what is read.
    assert_eq!(text(sound.replace("file=one.xz\n", "file=one.xz \t \n")).as_deref(), Some(TEXT));
    assert_eq!(text(format!("{sound}\n[two]\nfile=evil\n")).as_deref(), Some(TEXT));
    assert_eq!(text(sound.clone()).as_deref(), Some(TEXT));
}

#[test]
fn anything_but_one_sound_signed_text_is_refused() {
    let keys = ring(&[&ALICE]);
    let sound = sound();
    let body = sound.split_once("\n\n").expect("headers").1;
    let cases: &[(&str, String, &str)] = &[
        ("nothing", String::new(), "not signed; configure `insecure` for it if that is intended"),
        ("unsigned", TEXT.into(), "not signed; configure `insecure` for it if that is intended"),
        ("tampered", sound.replace("one.xz", "two.xz"), "forged"),
        ("a line more", sound.replace("last\n", "last\nmore\n"), "forged"),
        ("a line less", sound.replace("file=one.xz\n", ""), "forged"),
        ("an empty line before", sound.replace("\n\n", "\n\n\n"), "forged"),
        ("text before", format!("[two]\n{sound}"), "it does not begin with a signed text"),
        ("blank before", format!("\n{sound}"), "it does not begin with a signed text"),
        ("byte order mark", format!("\u{feff}{sound}"), "it does not begin with a signed text"),
        (
            "header injected",
            sound.replace("\n\n", "\nNotDashEscaped: yes\n\n"),
            "header `NotDashEscaped: yes` in a signed text; only `Hash` may be there",
        ),
        (
            "text as header",
            sound.replace("\n\n", "\n[two]\n\n"),
            "header `[two]` in a signed text; only `Hash` may be there",
        ),
        (
            "blank line of blanks",
            sound.replacen("\n\n", "\n \n\n", 1),
            "header ` ` in a signed text; only `Hash` may be there",
        ),
        (
            "blank after the first line",
            sound.replacen("-----\n", "----- \n", 1),
            "it does not begin with a signed text",
        ),
        ("two texts", format!("{sound}{sound}"), "there is more than one signed block"),
        ("two texts, one after junk", format!("{sound}junk\n{sound}"), "there is more than one signed block"),
        (
            "text within a text",
            format!("-----BEGIN PGP SIGNED MESSAGE-----\n\n{sound}"),
            "a line of the signed text begins with an unescaped hyphen",
        ),
        ("no end", sound.replace("-----END PGP SIGNATURE-----", ""), "the signature has no end"),
        (
            "no signature",
            sound[..sound.find("-----BEGIN PGP SIGNATURE").expect("there")].into(),
            "the signed text has no signature",
        ),
        (
            "only headers",
            "-----BEGIN PGP SIGNED MESSAGE-----\nHash: SHA512".into(),
            "the signed text ends in its headers",
        ),
        ("unescaped", sound.replace("- -----", "-----"), "a line of the signed text begins with an unescaped hyphen"),
        (
            "inline message",
            "-----BEGIN PGP MESSAGE-----\n\nabcd\n-----END PGP MESSAGE-----\n".into(),
            "it does not begin with a signed text",
        ),
        ("key in place of the signature", body.into(), "it does not begin with a signed text"),
        ("NUL", sound.replace("last", "la\0st"), "control"),
        ("form feed", sound.replace("last", "last\x0c"), "control"),
        ("carriage return", sound.replace('\n', "\r\n"), "control"),
        ("C1 control", sound.replace("last", "la\u{85}st"), "control"),
        ("by another", Made::default().sign(&MALLORY.primary_key), "stranger"),
    ];
    for (case, text, expected) in cases {
        assert_eq!(&refusal(text, &keys), expected, "{case}");
    }
    assert!(matches!(verify_clearsigned(b"\xff-----BEGIN PGP", &keys), Err(SignatureError::Encoding(_))));
}

#[test]
fn a_signature_must_be_strong_of_the_right_kind_and_of_now() {
    let keys = ring(&[&ALICE]);
    let expiry =
        |days: u32| Subpacket::regular(SubpacketData::SignatureExpirationTime(Lifetime::from_secs(days * DAY)));
    let notation = Notation { readable: true, name: "a@b.example".into(), value: "must".into() };
    let cases: Vec<(&str, Made, &str)> = vec![
        (
            "expired",
            Made { created: days_ago(3), more: vec![expiry(2).expect("made")], ..Made::default() },
            "the signature has expired",
        ),
        (
            "of tomorrow",
            Made { created: Timestamp::from_secs(Timestamp::now().as_secs() + 2 * DAY), ..Made::default() },
            "the signature was made in the future; check the clock",
        ),
        (
            "a binary one",
            Made { typ: SignatureType::Binary, ..Made::default() },
            "the signature is of another type than this document must have",
        ),
        (
            "a critical notation",
            Made {
                more: vec![Subpacket::critical(SubpacketData::Notation(notation)).expect("made")],
                ..Made::default()
            },
            "the signature has a critical part that is not known here",
        ),
    ];
    for (case, made, expected) in cases {
        assert_eq!(refusal(&made.sign(&ALICE.primary_key), &keys), expected, "{case}");
    }
    for (hash, expected) in [
        (HashAlgorithm::Md5, "signed over MD5, which can be forged"),
        (HashAlgorithm::Ripemd160, "signed over RIPEMD160, which can be forged"),
        (HashAlgorithm::Sha1, "signed over SHA1, which can be forged"),
        (HashAlgorithm::Sha224, "signed over SHA224, which can be forged"),
    ] {
        // The library does not make such: the name of the hash alone is changed.
        let signed = Made::default().config(&ALICE.primary_key).sign(&ALICE.primary_key, &Password::empty(), &b"x"[..]);
        let bytes = signed.expect("signed").signature().expect("bytes").clone();
        let config = Made { hash, ..Made::default() }.config(&ALICE.primary_key);
        let signature = Signature::from_config(config, [0, 0], bytes).expect("made");
        let text = CleartextSignedMessage::new_many("x", |_| Ok(vec![signature])).expect("made");
        assert_eq!(refusal(&text.to_armored_string(ArmorOptions::default()).expect("armor"), &keys), expected);
    }
    let keys = KeyRing::parse(include_bytes!("fixtures/gnupg-key.asc")).expect("a ring");
    assert_eq!(refusal(include_str!("fixtures/gnupg-sha1.asc"), &keys), "signed over SHA1, which can be forged");
}

#[test]
fn a_signature_lives_as_long_as_it_says() {
    let keys = ring(&[&ALICE]);
    let expiry =
        |days: u32| Subpacket::regular(SubpacketData::SignatureExpirationTime(Lifetime::from_secs(days * DAY)));
    let lives = Made { created: days_ago(3), more: vec![expiry(4).expect("made")], ..Made::default() };
    assert!(verify_clearsigned(lives.sign(&ALICE.primary_key).as_bytes(), &keys).is_ok());
}

#[test]
fn another_signature_beside_that_of_our_key_does_not_matter() {
    let text = TEXT.strip_suffix('\n').expect("ends a line");
    let both = CleartextSignedMessage::new_many(text, |text| {
        let sign = |key: &SignedSecretKey| {
            Made::default().config(&key.primary_key).sign(&key.primary_key, &Password::empty(), text.as_bytes())
        };
        Ok(vec![sign(&MALLORY)?, sign(&ALICE)?])
    });
    let both = both.and_then(|both| both.to_armored_string(ArmorOptions::default())).expect("signed");
    assert!(verify_clearsigned(both.as_bytes(), &ring(&[&ALICE])).is_ok());
    assert_eq!(refusal(&both, &ring(&[&key("eve", |_| {})])), "stranger");
    assert_eq!(refusal(&both.replace("one.xz", "two.xz"), &ring(&[&ALICE])), "forged");
}

#[test]
fn a_subkey_signs_if_its_owner_says_so() {
    let with = |sign: bool| {
        key("carol", |params| {
            let mut subkey = SubkeyParamsBuilder::default();
            subkey.key_type(KeyType::Ed25519Legacy).can_sign(sign).can_authenticate(!sign).created_at(days_ago(9));
            params.subkey(subkey.build().expect("a subkey"));
        })
    };
    let (signs, does_not) = (with(true), with(false));
    let by = |key: &SignedSecretKey| Made::default().sign(&key.secret_subkeys[0].key);
    let verified = verify_clearsigned(by(&signs).as_bytes(), &ring(&[&signs])).expect("sound");
    assert_eq!(verified.fingerprint, format!("{:X}", signs.fingerprint()));
    assert_eq!(refusal(&by(&does_not), &ring(&[&does_not])), "key");

    // A key of somebody else, put below hers without a word of her.
    let mut adopted = ALICE.to_public_key();
    adopted.public_subkeys = signs.to_public_key().public_subkeys;
    let ring = KeyRing::parse(&adopted.to_armored_bytes(ArmorOptions::default()).expect("armor")).expect("a ring");
    assert_eq!(refusal(&by(&signs), &ring), "key");
}

#[test]
fn an_expired_or_revoked_key_signs_nothing() {
    // Expiry is said in the owner's signature of the name.
    let own = |expires: u32, typ: SignatureType| {
        let mut key = ALICE.to_public_key();
        let mut made = Made { typ, hash: HashAlgorithm::Sha256, ..Made::default() };
        if typ != SignatureType::KeyRevocation {
            made.more = vec![
                Subpacket::regular(SubpacketData::KeyExpirationTime(Lifetime::from_secs(expires * DAY))).expect("made"),
            ];
        }
        let config = made.config(&ALICE.primary_key);
        let signature = config.sign_key(&ALICE.primary_key, &Password::empty(), &key.primary_key).expect("signed");
        if typ == SignatureType::KeyRevocation {
            key.details.revocation_signatures.push(signature);
        } else {
            key.details.users.clear();
            key.details.direct_signatures.push(signature);
        }
        KeyRing::parse(&key.to_armored_bytes(ArmorOptions::default()).expect("armor")).expect("a ring")
    };
    let text = Made { created: days_ago(9), ..Made::default() }.sign(&ALICE.primary_key);
    assert!(verify_clearsigned(text.as_bytes(), &own(11, SignatureType::Key)).is_ok());
    assert_eq!(refusal(&text, &own(9, SignatureType::Key)), "key");
    assert_eq!(refusal(&text, &own(0, SignatureType::KeyRevocation)), "key");
}

#[test]
fn detached_signatures_are_of_the_bytes() {
    let binary = || Made { typ: SignatureType::Binary, ..Made::default() };
    let document = b"{\"format\": \"index:1.0\"}\r\n\0 \n";
    let keys = ring(&[&ALICE]);
    let armored = binary().detached(&ALICE.primary_key, document);
    assert_eq!(verify_detached(document, &armored, &keys).ok(), keys.fingerprints().pop());
    assert!(matches!(verify_detached(b"{}", &armored, &keys), Err(SignatureError::Forged { .. })));
    assert!(matches!(verify_detached(document, b"", &keys), Err(SignatureError::Packet(_))));
    let by_mallory = binary().detached(&MALLORY.primary_key, document);
    assert!(matches!(verify_detached(document, &by_mallory, &keys), Err(SignatureError::Stranger { .. })));
    let text = Made::default().detached(&ALICE.primary_key, document);
    assert!(matches!(verify_detached(document, &text, &keys), Err(SignatureError::Type)));
    let a_key = ALICE.to_public_key().to_armored_bytes(ArmorOptions::default()).expect("armor");
    assert!(verify_detached(document, &a_key, &keys).is_err());

    let mut plain = Vec::new();
    std::io::Read::read_to_end(&mut Dearmor::new(&armored[..]), &mut plain).expect("dearmored");
    assert!(verify_detached(document, &plain, &keys).is_ok());
    plain.truncate(plain.len() - 1);
    assert!(verify_detached(document, &plain, &keys).is_err());
}

#[test]
fn a_ring_is_read_and_pinned_or_refused() {
    let both = ring(&[&ALICE, &MALLORY]);
    let alice = format!("{:x}", ALICE.fingerprint());
    assert_eq!(both.fingerprints().len(), 2);
    let spaced = format!("{} {}", &alice[..20], &alice[20..]);
    let pinned = both.clone().pinned(&spaced).expect("there");
    assert_eq!(pinned.fingerprints(), [alice.to_ascii_uppercase()]);
    assert_eq!(refusal(&Made::default().sign(&MALLORY.primary_key), &pinned), "stranger");

    let absent = both.clone().pinned(&"a".repeat(40));
    assert!(absent.expect_err("absent").to_string().starts_with("no key with fingerprint AAAA"));
    for short in ["", "DEADBEEF", &alice[..39], &format!("{}g", &alice[..39])] {
        let error = both.clone().pinned(short).expect_err(short).to_string();
        assert!(error.starts_with(&format!("`{short}` is no fingerprint")), "{error}");
    }
    let binary = KeyRing::parse(&{
        let mut out = Vec::new();
        pgp::ser::Serialize::to_writer(&ALICE.to_public_key(), &mut out).expect("written");
        out
    });
    assert_eq!(binary.expect("a ring").fingerprints(), [alice.to_ascii_uppercase()]);
    for none in [&b""[..], b"hello", b"\x99\x01\x02", sound().as_bytes()] {
        assert!(KeyRing::parse(none).is_err());
    }
}

proptest::proptest! {
    #[test]
    fn no_bytes_make_it_panic(bytes: Vec<u8>, at in 0_usize..400, put: u8) {
        let keys = ring(&[&ALICE]);
        proptest::prop_assert!(verify_clearsigned(&bytes, &keys).is_err());
        proptest::prop_assert!(verify_detached(b"x", &bytes, &keys).is_err());
        let mut signed = sound().into_bytes();
        let at = at.min(signed.len() - 1);
        signed[at] = put;
        if let Ok(verified) = verify_clearsigned(&signed, &keys) {
            proptest::prop_assert_eq!(verified.text, TEXT);
        }
    }
}
