use rcgen::{CertificateParams, IsCa, KeyPair, PKCS_ECDSA_P256_SHA256, PKCS_ED25519};

use super::*;

struct Made {
    cert: String,
    key: KeyPair,
}

fn made(is_ca: IsCa, key: KeyPair) -> Made {
    let mut params = CertificateParams::new(vec!["a.example".into()]).expect("parameters");
    params.is_ca = is_ca;
    Made { cert: params.self_signed(&key).expect("a certificate").pem(), key }
}

fn leaf() -> Made {
    made(IsCa::NoCa, KeyPair::generate().expect("a key"))
}

fn authority() -> Made {
    made(IsCa::Ca(rcgen::BasicConstraints::Unconstrained), KeyPair::generate().expect("a key"))
}

/// Numbers of authorities and chains, or why not.
fn added(cert: &str, key: Option<&str>) -> Result<(usize, usize), String> {
    let mut identity = Identity::default();
    let spec = CertificateSpec { cert: cert.to_owned(), key: key.map(str::to_owned) };
    identity.add("test", &spec).map_err(|error| error.to_string())?;
    Ok((identity.authorities.len(), identity.shown.len()))
}

/// A key in the older encoding (RFC 5915), taken out of the newer one.
fn sec1(key: &KeyPair) -> String {
    let der = key.serialize_der();
    // The last octet string of PKCS#8 holds it; its own outer tag comes after a header of two bytes.
    let at = der.windows(2).position(|bytes| bytes == [0x30, 0x6b]).expect("a P-256 key");
    let text = base64::Engine::encode(&base64::engine::general_purpose::STANDARD, &der[at..at + 0x6d]);
    format!("-----BEGIN EC PRIVATE KEY-----\n{text}\n-----END EC PRIVATE KEY-----\n")
}

#[test]
fn records_are_sorted_by_what_they_hold() {
    let (leaf, authority) = (leaf(), authority());
    let key = leaf.key.serialize_pem();
    let both = format!("{}{}", leaf.cert, authority.cert);
    assert_eq!(added(&authority.cert, None), Ok((1, 0)));
    assert_eq!(added(&format!("{0}{0}", authority.cert), None), Ok((2, 0)));
    assert_eq!(added(&leaf.cert, None), Ok((0, 0)), "left out");
    assert_eq!(added(&both, None), Ok((1, 0)));
    assert_eq!(added(&leaf.cert, Some(&key)), Ok((0, 1)));
    assert_eq!(added(&both, Some(&key)), Ok((0, 1)), "an authority beside a key is no root");
    assert_eq!(added(&format!("{key}{both}"), None), Ok((0, 1)), "the key may stand among the certificates");
    assert_eq!(added(&authority.cert, Some(&authority.key.serialize_pem())), Ok((0, 1)));
}

#[test]
fn the_chain_begins_with_the_certificate_of_the_key() {
    let (leaf, one, two) = (leaf(), authority(), authority());
    let mut identity = Identity::default();
    let spec =
        CertificateSpec { cert: format!("{}{}{}", one.cert, two.cert, leaf.cert), key: Some(leaf.key.serialize_pem()) };
    identity.add("test", &spec).expect("a chain");
    let chain: Vec<_> = identity.shown[0].cert.iter().map(|der| der.to_vec()).collect();
    let expected: Vec<_> = [&leaf, &one, &two]
        .map(|made| CertificateDer::from_pem_slice(made.cert.as_bytes()).expect("PEM").to_vec())
        .into();
    assert_eq!(chain, expected);
}

#[test]
fn keys_of_all_encodings_are_read() {
    let ec = made(IsCa::NoCa, KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).expect("a key"));
    let ed = made(IsCa::NoCa, KeyPair::generate_for(&PKCS_ED25519).expect("a key"));
    assert_eq!(added(&ec.cert, Some(&ec.key.serialize_pem())), Ok((0, 1)), "PKCS#8, EC");
    assert_eq!(added(&ed.cert, Some(&ed.key.serialize_pem())), Ok((0, 1)), "PKCS#8, Ed25519");
    assert_eq!(added(&ec.cert, Some(&sec1(&ec.key))), Ok((0, 1)), "SEC1");
    let with_parameters =
        format!("-----BEGIN EC PARAMETERS-----\nBggqhkjOPQMBBw==\n-----END EC PARAMETERS-----\n{}", sec1(&ec.key));
    assert_eq!(added(&ec.cert, Some(&with_parameters)), Ok((0, 1)), "SEC1 as OpenSSL writes it");
    for key in [include_str!("testdata/rsa-pkcs1.key"), include_str!("testdata/rsa-pkcs8.key")] {
        assert_eq!(added(include_str!("testdata/rsa.crt"), Some(key)), Ok((0, 1)), "RSA");
    }
}

#[test]
fn anything_wrong_spoils_the_record() {
    let (leaf, other) = (leaf(), other_key());
    let key = leaf.key.serialize_pem();
    let cut = &leaf.cert[..leaf.cert.len() / 2];
    let (pem, kind, none) = (
        "it is not sound PEM",
        "it holds PEM of a kind that is no certificate and no plain key",
        "it holds no certificate",
    );
    let unsound = "one of its certificates is not sound";
    let block = |kind: &str, body: &str| format!("-----BEGIN {kind}-----\n{body}\n-----END {kind}-----\n");
    let cases = [
        (String::new(), None, none),
        ("junk".into(), None, none),
        (key.clone(), None, none),
        (cut.to_owned(), None, pem),
        (leaf.cert.replace("MII", "M!I"), None, pem),
        (format!("{}{cut}", leaf.cert), None, pem),
        (block("CERTIFICATE", "AAAA"), None, unsound),
        (format!("{}{}", leaf.cert, block("CERTIFICATE", "MAA=")), None, unsound),
        (leaf.cert.clone(), Some(block("ENCRYPTED PRIVATE KEY", "AAAA")), kind),
        (block("CERTIFICATE REQUEST", "AAAA"), None, kind),
        (block("PUBLIC KEY", "AAAA"), None, kind),
        (leaf.cert.clone(), Some(format!("{key}{key}")), "it holds more than one key"),
        (format!("{}{key}", leaf.cert), Some(key.clone()), "it holds more than one key"),
        (leaf.cert.clone(), Some(other), "its key belongs to none of its certificates"),
        (
            leaf.cert.clone(),
            Some(block("PRIVATE KEY", "AAAA")),
            "its key cannot be used; RSA, EC (P-256, P-384) and Ed25519 can",
        ),
        (leaf.cert.clone(), Some(key[..key.len() / 2].to_owned()), pem),
    ];
    for (cert, key, expected) in cases {
        assert_eq!(added(&cert, key.as_deref()), Err(expected.into()), "{cert}\n{key:?}");
    }
}

fn other_key() -> String {
    KeyPair::generate().expect("a key").serialize_pem()
}
