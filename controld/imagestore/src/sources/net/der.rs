//! Reads the two fields of a certificate (RFC 5280) that decide its use: the issuer, and whether it is an authority.
//!
//! Pure. Bytes that are not a certificate give `None`; the TLS library checks signatures and dates.

/// What was looked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Facts<'a> {
    /// The issuer's name, as DER.
    pub(super) issuer: &'a [u8],
    /// Whether it may sign certificates (`basicConstraints`).
    pub(super) is_authority: bool,
}

const BOOLEAN: u8 = 0x01;
const OCTET_STRING: u8 = 0x04;
const OID: u8 = 0x06;
const SEQUENCE: u8 = 0x30;
/// Explicit tags of `version` and `extensions` in a certificate.
const VERSION: u8 = 0xa0;
const EXTENSIONS: u8 = 0xa3;
/// 2.5.29.19
const BASIC_CONSTRAINTS: [u8; 3] = [0x55, 0x1d, 0x13];

/// Reads a certificate.
pub(super) fn facts(certificate: &[u8]) -> Option<Facts<'_>> {
    let mut outer = Reader(certificate);
    let mut certificate = Reader(outer.value(SEQUENCE)?);
    let mut signed = Reader(certificate.value(SEQUENCE)?);
    if signed.peek() == Some(VERSION) {
        signed.any()?;
    }
    // Serial number and algorithm.
    signed.any()?;
    signed.any()?;
    let issuer = signed.whole(SEQUENCE)?;
    let mut is_authority = false;
    while let Some((tag, value)) = signed.any() {
        if tag == EXTENSIONS {
            let mut extensions = Reader(Reader(value).value(SEQUENCE)?);
            while let Some(extension) = extensions.value(SEQUENCE) {
                is_authority |= says_authority(extension)?;
            }
            extensions.end()?;
        }
    }
    signed.end()?;
    outer.end()?;
    Some(Facts { issuer, is_authority })
}

/// Whether an extension makes its certificate an authority.
fn says_authority(extension: &[u8]) -> Option<bool> {
    let mut fields = Reader(extension);
    let is_about_it = fields.value(OID)? == BASIC_CONSTRAINTS;
    if fields.peek() == Some(BOOLEAN) {
        fields.any()?;
    }
    let value = fields.value(OCTET_STRING)?;
    if !is_about_it {
        return Some(false);
    }
    let mut constraints = Reader(Reader(value).value(SEQUENCE)?);
    // By default it is none.
    Some(constraints.peek() == Some(BOOLEAN) && constraints.any()?.1 != [0])
}

/// Takes DER apart, one value after another.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn peek(&self) -> Option<u8> {
        self.0.first().copied()
    }

    /// The next value and its tag.
    fn any(&mut self) -> Option<(u8, &'a [u8])> {
        let whole = self.next_whole()?;
        let header = if whole[1] < 0x80 { 2 } else { 2 + usize::from(whole[1] & 0x7f) };
        Some((whole[0], &whole[header..]))
    }

    /// The next value, which must have that tag.
    fn value(&mut self, tag: u8) -> Option<&'a [u8]> {
        (self.peek()? == tag).then(|| self.any())?.map(|(_, value)| value)
    }

    /// Likewise, with tag and length.
    fn whole(&mut self, tag: u8) -> Option<&'a [u8]> {
        (self.peek()? == tag).then(|| self.next_whole())?
    }

    fn next_whole(&mut self) -> Option<&'a [u8]> {
        let (&[tag, short], rest) = self.0.split_first_chunk::<2>()?;
        // Nothing in a certificate has a tag of several bytes.
        if tag & 0x1f == 0x1f {
            return None;
        }
        let (header, length) = match short {
            0..=0x7f => (2, usize::from(short)),
            // None has 4 GiB, and 0x80 is no DER.
            0x81..=0x84 => {
                let digits = rest.get(..usize::from(short & 0x7f))?;
                let length = digits
                    .iter()
                    .try_fold(0_usize, |length, &byte| length.checked_mul(256)?.checked_add(usize::from(byte)))?;
                (2 + digits.len(), length)
            }
            _ => return None,
        };
        let whole = self.0.get(..header.checked_add(length)?)?;
        self.0 = &self.0[whole.len()..];
        Some(whole)
    }

    /// Nothing may be left.
    fn end(&self) -> Option<()> {
        self.0.is_empty().then_some(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, KeyPair};

    use super::*;

    fn made(is_ca: IsCa) -> Vec<u8> {
        let mut params = CertificateParams::new(vec!["a.example".into()]).expect("parameters");
        params.is_ca = is_ca;
        params.distinguished_name.push(DnType::CommonName, "some one");
        params.self_signed(&KeyPair::generate().expect("a key")).expect("a certificate").der().to_vec()
    }

    #[test]
    fn authorities_are_told_from_others() {
        for (is_ca, expected) in [
            (IsCa::NoCa, false),
            (IsCa::ExplicitNoCa, false),
            (IsCa::Ca(BasicConstraints::Unconstrained), true),
            (IsCa::Ca(BasicConstraints::Constrained(0)), true),
        ] {
            let der = made(is_ca);
            let facts = facts(&der).expect("a certificate");
            assert_eq!(facts.is_authority, expected, "{is_ca:?}");
            assert_eq!(facts.issuer[0], SEQUENCE);
            assert!(facts.issuer.windows(8).any(|bytes| bytes == b"some one"));
        }
    }

    #[test]
    fn what_is_cut_off_or_longer_is_no_certificate() {
        let mut der = made(IsCa::NoCa);
        for length in 0..der.len() {
            assert_eq!(facts(&der[..length]), None, "{length}");
        }
        der.push(0);
        assert_eq!(facts(&der), None);
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(at in 0_usize..300, byte: u8, junk in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = facts(&junk);
            let mut der = made(IsCa::Ca(BasicConstraints::Unconstrained));
            let at = at % der.len();
            der[at] = byte;
            let _ = facts(&der);
        }
    }
}
