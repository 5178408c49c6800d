//! Extended headers, which say more of the entry that follows than its own header can (POSIX pax, and what GNU adds to it).

use super::TarError;
use super::fields::decimal;
use super::sparse::{MAX_PIECES, Piece};

/// Headers in front of one entry. Writers make three at most, but archives that are joined have one for all entries (`g`) of each of
/// them, also of those in which nothing follows it.
const MAX_AHEAD: usize = 16;
const TWO_THINGS: TarError = TarError::Extension("two things said of one entry");

/// What extended headers say of the entry that follows.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Extended {
    pub(super) path: Option<Vec<u8>>,
    pub(super) target: Option<Vec<u8>>,
    pub(super) size: Option<u64>,
    pub(super) sparse_name: Option<Vec<u8>>,
    pub(super) sparse_size: Option<u64>,
    pub(super) sparse_version: Option<(u64, u64)>,
    pub(super) major: Option<u64>,
    pub(super) minor: Option<u64>,
    pub(super) map: Vec<Piece>,
    pub(super) has_map: bool,
    pub(super) pending: Option<u64>,
}

impl Extended {
    pub(super) fn is_sparse(&self) -> bool {
        self.has_map || self.sparse_version.is_some() || self.sparse_size.is_some() || self.sparse_name.is_some()
    }
}

/// The headers in front of an entry. What they say of it twice is the same both times: of two, readers differ over which counts. Of all
/// entries from here on (`g`) a later one takes the place of one before, and nothing is kept of either. They are not many, so that what
/// is read for one entry has a bound.
#[derive(Debug, Default)]
pub(super) struct Ahead {
    count: usize,
    long_path: Option<Vec<u8>>,
    long_target: Option<Vec<u8>>,
    pax: Option<Extended>,
}

impl Ahead {
    pub(super) fn long_path(&mut self, path: Vec<u8>) -> Result<(), TarError> {
        self.another()?;
        same(&mut self.long_path, path)
    }

    pub(super) fn long_target(&mut self, target: Vec<u8>) -> Result<(), TarError> {
        self.another()?;
        same(&mut self.long_target, target)
    }

    pub(super) fn pax(&mut self, header: &[u8]) -> Result<(), TarError> {
        self.another()?;
        let said = parse_pax(header)?;
        // Who puts two maps together has one of twice as many pieces.
        if self.pax.is_some() && said.is_sparse() {
            return Err(TWO_THINGS);
        }
        same(&mut self.pax, said)
    }

    pub(super) fn global(&mut self, header: &[u8]) -> Result<(), TarError> {
        self.another()?;
        let all = parse_pax(header)?;
        if all.path.is_some() || all.target.is_some() || all.size.is_some() || all.is_sparse() {
            return Err(TarError::Extension("one name or size for all entries"));
        }
        Ok(())
    }

    /// Whether there is nothing that an entry must follow.
    pub(super) fn is_empty(&self) -> bool {
        self.long_path.is_none() && self.long_target.is_none() && self.pax.is_none()
    }

    /// What all of them say.
    pub(super) fn together(self) -> Result<Extended, TarError> {
        let mut all = self.pax.unwrap_or_default();
        for (long, slot) in [(self.long_path, &mut all.path), (self.long_target, &mut all.target)] {
            long.map_or(Ok(()), |long| same(slot, long))?;
        }
        Ok(all)
    }

    fn another(&mut self) -> Result<(), TarError> {
        self.count += 1;
        if self.count > MAX_AHEAD { Err(TarError::Extension("too many in front of one entry")) } else { Ok(()) }
    }
}

/// Fills a slot, unless there is something else in it.
fn same<T: PartialEq>(slot: &mut Option<T>, value: T) -> Result<(), TarError> {
    let is_other = slot.as_ref().is_some_and(|before| *before != value);
    *slot = Some(value);
    if is_other { Err(TWO_THINGS) } else { Ok(()) }
}

/// Records `length key=value` of a pax header (POSIX pax, extended header).
pub(super) fn parse_pax(mut bytes: &[u8]) -> Result<Extended, TarError> {
    let mut extended = Extended::default();
    let wrong = TarError::Extension;
    while !bytes.is_empty() {
        let blank = bytes.iter().position(|byte| *byte == b' ').ok_or(wrong("no length"))?;
        let length = decimal(&bytes[..blank]).and_then(|length| usize::try_from(length).ok());
        let length = length.filter(|length| (blank + 2..=bytes.len()).contains(length)).ok_or(wrong("length"))?;
        let (record, rest) = bytes.split_at(length);
        bytes = rest;
        let record = record[blank + 1..].strip_suffix(b"\n").ok_or(wrong("no end"))?;
        let equals = record.iter().position(|byte| *byte == b'=').ok_or(wrong("no value"))?;
        let (key, value) = (&record[..equals], &record[equals + 1..]);
        let number = || decimal(value).ok_or(wrong("no number"));
        match key {
            b"linkpath" => extended.target = Some(value.to_vec()),
            b"path" => extended.path = Some(value.to_vec()),
            b"size" => extended.size = Some(number()?),
            b"GNU.sparse.name" => extended.sparse_name = Some(value.to_vec()),
            b"GNU.sparse.realsize" | b"GNU.sparse.size" => extended.sparse_size = Some(number()?),
            b"GNU.sparse.major" => extended.major = Some(number()?),
            b"GNU.sparse.minor" => extended.minor = Some(number()?),
            b"GNU.sparse.offset" => {
                extended.has_map = true;
                if extended.pending.replace(number()?).is_some() {
                    return Err(TarError::Sparse("a piece without a length"));
                }
            }
            b"GNU.sparse.numbytes" => {
                let at = extended.pending.take().ok_or(TarError::Sparse("a piece without a place"))?;
                extended.map.push(Piece { at, length: number()? });
            }
            b"GNU.sparse.map" => {
                extended.has_map = true;
                extended.map = parse_map(value)?;
            }
            // How many there are is seen anyway.
            b"GNU.sparse.numblocks" => extended.has_map = true,
            _ if key.starts_with(b"GNU.sparse.") => return Err(TarError::Sparse("unknown word")),
            _ => {}
        }
        if extended.map.len() > MAX_PIECES {
            return Err(TarError::Sparse("too many pieces"));
        }
    }
    if extended.pending.is_some() {
        return Err(TarError::Sparse("a piece without a length"));
    }
    if let Some(major) = extended.major {
        extended.sparse_version = Some((major, extended.minor.unwrap_or(0)));
    }
    Ok(extended)
}

/// The map of pax 0.1: places and lengths, all joined by commas.
fn parse_map(value: &[u8]) -> Result<Vec<Piece>, TarError> {
    if value.is_empty() {
        return Ok(Vec::new());
    }
    let numbers: Option<Vec<_>> = value.split(|byte| *byte == b',').map(decimal).collect();
    let numbers = numbers.filter(|numbers| numbers.len() % 2 == 0).ok_or(TarError::Sparse("no number"))?;
    Ok(numbers.chunks_exact(2).map(|pair| Piece { at: pair[0], length: pair[1] }).collect())
}
