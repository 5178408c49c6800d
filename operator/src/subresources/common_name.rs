//! Whose a certificate is, by its common name: the one thing that Kubernetes tells front proxies by. Pure.
//!
//! The certificate was verified before, with all that this needs of its form; what is not found here is simply nobody's.

/// Tags of DER.
const INTEGER: u8 = 0x02;
const OBJECT: u8 = 0x06;
const SEQUENCE: u8 = 0x30;
const SET: u8 = 0x31;
const VERSION: u8 = 0xa0;
/// `UTF8String`, `PrintableString`, `IA5String`.
const TEXTS: [u8; 3] = [0x0c, 0x13, 0x16];
/// 2.5.4.3.
const COMMON_NAME: &[u8] = &[0x55, 0x04, 0x03];
/// Bytes that a length is written in, at most.
const MAX_LENGTH: usize = 4;

/// The subject's common name, of a certificate in DER; the last, if it has several.
pub(super) fn common_name(certificate: &[u8]) -> Option<&str> {
    let (certificate, _) = take(certificate, SEQUENCE)?;
    let (mut signed, _) = take(certificate, SEQUENCE)?;
    if let Some((_, rest)) = take(signed, VERSION) {
        signed = rest;
    }
    // Serial number, algorithm, issuer, validity.
    for tag in [INTEGER, SEQUENCE, SEQUENCE, SEQUENCE] {
        (_, signed) = take(signed, tag)?;
    }
    let (mut subject, _) = take(signed, SEQUENCE)?;
    let mut found = None;
    while let Some((mut names, rest)) = take(subject, SET) {
        subject = rest;
        while let Some((name, rest)) = take(names, SEQUENCE) {
            names = rest;
            let (kind, value) = take(name, OBJECT)?;
            if kind == COMMON_NAME {
                let (text, _) = TEXTS.iter().find_map(|tag| take(value, *tag))?;
                found = Some(std::str::from_utf8(text).ok()?);
            }
        }
    }
    found
}

/// What an element with this tag holds, and what is behind it.
fn take(bytes: &[u8], tag: u8) -> Option<(&[u8], &[u8])> {
    let (first, rest) = bytes.split_first()?;
    let (&length, rest) = rest.split_first()?;
    let (length, rest) = match length {
        0..0x80 => (usize::from(length), rest),
        _ => {
            let (digits, rest) =
                rest.split_at_checked(usize::from(length & 0x7f)).filter(|(all, _)| all.len() <= MAX_LENGTH)?;
            (digits.iter().fold(0, |length, digit| (length << 8) | usize::from(*digit)), rest)
        }
    };
    rest.split_at_checked(length).filter(|_| *first == tag)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rcgen::{CertificateParams, DnType, DnValue, KeyPair};

    use super::*;

    fn made(names: &[(DnType, DnValue)]) -> Vec<u8> {
        let mut params = CertificateParams::new(["a.example.com".to_owned()]).expect("parameters");
        params.distinguished_name = rcgen::DistinguishedName::new();
        for (kind, value) in names {
            params.distinguished_name.push(kind.clone(), value.clone());
        }
        let key = KeyPair::generate().expect("a key");
        params.self_signed(&key).expect("a certificate").der().to_vec()
    }

    #[test]
    fn it_is_found_among_others() {
        let long = "x".repeat(200);
        for name in ["front-proxy-client", "é", &*long] {
            let der = made(&[
                (DnType::OrganizationName, DnValue::Utf8String("system:masters".to_owned())),
                (DnType::CommonName, DnValue::Utf8String(name.to_owned())),
            ]);
            assert_eq!(common_name(&der), Some(name));
        }
        let printable = DnValue::PrintableString("front".try_into().expect("letters"));
        assert_eq!(common_name(&made(&[(DnType::CommonName, printable)])), Some("front"));
        let organization = DnValue::Utf8String("front-proxy-client".to_owned());
        assert_eq!(common_name(&made(&[(DnType::OrganizationName, organization)])), None);
    }

    proptest! {
        #[test]
        fn anything_may_be_asked_of(bytes in proptest::collection::vec(any::<u8>(), 0..200), at in 0..600_usize, byte: u8) {
            let _ = common_name(&bytes);
            let mut der = made(&[(DnType::CommonName, DnValue::Utf8String("x".to_owned()))]);
            let at = at % der.len();
            der[at] = byte;
            let _ = common_name(&der[..at]);
            let _ = common_name(&der);
        }
    }
}
