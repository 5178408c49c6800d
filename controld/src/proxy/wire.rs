//! Encoded protobuf, read without being decoded: the few fields that a decision takes, and where the items of a list begin.
//!
//! Input is another process's and may be anything. Nothing is copied and nothing recurses: a field is found by a walk over the fields
//! before it, whose number the message's length bounds. What is found is what a decoder would find: of a text that is there twice the
//! last one counts, and a message that is there twice is the merge of both (protobuf's encoding guide, "Last One Wins").

use bytes::{BufMut as _, Bytes};
use prost::encoding::{WireType, decode_key, decode_varint, encode_key, encode_varint};
use tonic::Status;

#[cfg(test)]
mod tests;

/// Bytes that are no message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not an encoded message")]
pub(super) struct Malformed;

/// What a client is told whose request cannot be read.
pub(super) fn refused(error: Malformed) -> Status {
    Status::invalid_argument(error.to_string())
}

/// One field of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Field<'a> {
    pub(super) number: u32,
    pub(super) value: Value<'a>,
    /// With its key, as it stands there.
    pub(super) whole: &'a [u8],
}

/// A field's value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Value<'a> {
    Varint(u64),
    /// A text, bytes, a message, or packed numbers.
    Bytes(&'a [u8]),
    /// A number of four or eight bytes, of which CRI has but those that we do not read.
    Fixed,
}

/// The fields of a message, in their order.
#[derive(Debug, Clone)]
pub(super) struct Fields<'a>(&'a [u8]);

/// The fields of `message`.
pub(super) fn fields(message: &[u8]) -> Fields<'_> {
    Fields(message)
}

impl<'a> Fields<'a> {
    fn take(&mut self) -> Result<Field<'a>, Malformed> {
        let before = self.0;
        let (number, kind) = decode_key(&mut self.0).map_err(|_| Malformed)?;
        let value = match kind {
            WireType::Varint => Value::Varint(decode_varint(&mut self.0).map_err(|_| Malformed)?),
            WireType::LengthDelimited => {
                let length = decode_varint(&mut self.0).map_err(|_| Malformed)?;
                Value::Bytes(self.skip(usize::try_from(length).map_err(|_| Malformed)?)?)
            }
            WireType::SixtyFourBit => self.skip(8).map(|_| Value::Fixed)?,
            WireType::ThirtyTwoBit => self.skip(4).map(|_| Value::Fixed)?,
            // proto3 has no groups.
            WireType::StartGroup | WireType::EndGroup => return Err(Malformed),
        };
        let length = before.len() - self.0.len();
        Ok(Field { number, value, whole: before.get(..length).ok_or(Malformed)? })
    }

    fn skip(&mut self, length: usize) -> Result<&'a [u8], Malformed> {
        let (taken, rest) = self.0.split_at_checked(length).ok_or(Malformed)?;
        self.0 = rest;
        Ok(taken)
    }
}

impl<'a> Iterator for Fields<'a> {
    type Item = Result<Field<'a>, Malformed>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.0.is_empty() {
            return None;
        }
        let field = self.take();
        if field.is_err() {
            // Nothing behind it can be told.
            self.0 = &[];
        }
        Some(field)
    }
}

/// Calls `found` with each value at `path`: messages in messages, and a field of the last of them.
pub(super) fn each<'a>(
    message: &'a [u8],
    path: &[u32],
    found: &mut dyn FnMut(Value<'a>) -> Result<(), Malformed>,
) -> Result<(), Malformed> {
    let Some((wanted, rest)) = path.split_first() else { return Ok(()) };
    for field in fields(message) {
        let field = field?;
        if field.number != *wanted {
            continue;
        }
        match field.value {
            value if rest.is_empty() => found(value)?,
            // Paths are constants of a few steps.
            Value::Bytes(inner) => each(inner, rest, found)?,
            _ => return Err(Malformed),
        }
    }
    Ok(())
}

/// The text at `path`; empty if there is none.
pub(super) fn text<'a>(message: &'a [u8], path: &[u32]) -> Result<&'a str, Malformed> {
    let mut last = "";
    each(message, path, &mut |value| {
        last = as_text(value)?;
        Ok(())
    })?;
    Ok(last)
}

/// What a map of texts at `path` has for `key`; nothing is not the same as an empty text.
pub(super) fn entry<'a>(message: &'a [u8], path: &[u32], key: &str) -> Result<Option<&'a str>, Malformed> {
    let mut last = None;
    each(message, path, &mut |value| {
        let Value::Bytes(entry) = value else { return Err(Malformed) };
        if text(entry, &[1])? == key {
            last = Some(text(entry, &[2])?);
        }
        Ok(())
    })?;
    Ok(last)
}

/// Whether anything that is not nothing stands at `path`.
pub(super) fn is_there(message: &[u8], path: &[u32]) -> Result<bool, Malformed> {
    let mut there = false;
    each(message, path, &mut |value| {
        there |= !matches!(value, Value::Bytes(bytes) if bytes.is_empty());
        Ok(())
    })?;
    Ok(there)
}

/// Puts a message of these bytes behind others, as field `number`.
pub(super) fn put(number: u32, content: &[&[u8]], into: &mut Vec<u8>) {
    encode_key(number, WireType::LengthDelimited, into);
    encode_varint(content.iter().map(|part| part.len() as u64).sum(), into);
    content.iter().for_each(|part| into.put_slice(part));
}

/// A message without those messages at `path` that `is_cut` says so of; all else as it stood.
pub(super) fn without(
    message: &[u8],
    path: &[u32],
    is_cut: &mut dyn FnMut(&[u8]) -> Result<bool, Malformed>,
) -> Result<Vec<u8>, Malformed> {
    let mut kept = Vec::with_capacity(message.len());
    for field in fields(message) {
        let field = field?;
        match (path, field.value) {
            ([wanted], Value::Bytes(inner)) if *wanted == field.number => {
                if !is_cut(inner)? {
                    kept.put_slice(field.whole);
                }
            }
            // Paths are constants of a few steps.
            ([wanted, rest @ ..], Value::Bytes(inner)) if *wanted == field.number => {
                put(field.number, &[&without(inner, rest, is_cut)?], &mut kept);
            }
            _ => kept.put_slice(field.whole),
        }
    }
    Ok(kept)
}

/// Whether these bytes are the fields of a message, one after the other. What is in them is not looked at.
pub(super) fn check(message: &[u8]) -> Result<(), Malformed> {
    fields(message).try_for_each(|field| field.map(drop))
}

/// The items of a list: each field 1 of an answer, with its key, of which any number together are such an answer again. Clones of
/// the same memory.
pub(super) fn items(list: &Bytes) -> Result<Vec<Bytes>, Malformed> {
    let mut items = Vec::new();
    for field in fields(list) {
        let field = field?;
        if field.number == 1 {
            items.push(list.slice_ref(field.whole));
        }
    }
    Ok(items)
}

/// What is in an item of a list.
pub(super) fn content(item: &[u8]) -> Result<&[u8], Malformed> {
    match fields(item).next() {
        Some(Ok(Field { value: Value::Bytes(content), .. })) => Ok(content),
        _ => Err(Malformed),
    }
}

fn as_text(value: Value<'_>) -> Result<&str, Malformed> {
    match value {
        Value::Bytes(bytes) => std::str::from_utf8(bytes).map_err(|_| Malformed),
        Value::Varint(_) | Value::Fixed => Err(Malformed),
    }
}
