//! `msgpack2`: a MessagePack list of the elements, then the numpy type and the shape.

use serde_json::{Map, Number, Value};

use super::element::{Budget, Element, NODE_BYTES, flatten};
use super::error::{DecodeError, truncated};

/// The maximum nesting depth of lists and maps, as for JSON.
const MAX_DEPTH: usize = 128;

/// Decodes the list. Byte strings, which have no JSON form, and invalid UTF-8 are errors.
///
/// # Errors
/// The bytes are not such a list, or exceed the budget.
pub(super) fn decode(
    src: &[u8],
    expected: u64,
    budget: &mut Budget,
) -> Result<Vec<Element>, DecodeError> {
    let mut reader = Reader {
        rest: src,
        budget,
        has_constants: false,
    };
    let Value::Array(items) = reader.value(0)? else {
        return Err(DecodeError::corrupt("not a MessagePack list"));
    };
    if !reader.rest.is_empty() {
        let n = reader.rest.len();
        return Err(DecodeError::corrupt(format!("{n} bytes after the list")));
    }
    let element = match reader.has_constants {
        false => Element::from,
        true => Element::beside_constants,
    };
    let mut elements = budget.list(expected)?;
    elements.extend(flatten(items, expected)?.into_iter().map(element));
    Ok(elements)
}

struct Reader<'a, 'b> {
    rest: &'a [u8],
    budget: &'b mut Budget,
    /// Whether a number was not finite.
    has_constants: bool,
}

impl<'a> Reader<'a, '_> {
    fn take(&mut self, n: usize) -> Result<&'a [u8], DecodeError> {
        let Some((bytes, rest)) = self.rest.split_at_checked(n) else {
            return Err(truncated(self.rest.len(), n));
        };
        self.rest = rest;
        Ok(bytes)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], DecodeError> {
        super::error::head(self.take(N)?)
    }

    fn u8(&mut self) -> Result<u8, DecodeError> {
        self.array().map(u8::from_be_bytes)
    }

    fn u16(&mut self) -> Result<u16, DecodeError> {
        self.array().map(u16::from_be_bytes)
    }

    fn u32(&mut self) -> Result<u32, DecodeError> {
        self.array().map(u32::from_be_bytes)
    }

    fn value(&mut self, depth: usize) -> Result<Value, DecodeError> {
        if depth > MAX_DEPTH {
            return Err(DecodeError::corrupt(format!(
                "nested deeper than {MAX_DEPTH}"
            )));
        }
        self.budget.take(NODE_BYTES)?;
        let kind = self.u8()?;
        Ok(match kind {
            0..=0x7f => kind.into(),
            0x80..=0x8f => self.map(u32::from(kind & 0xf), depth)?,
            0x90..=0x9f => self.list(u32::from(kind & 0xf), depth)?,
            0xa0..=0xbf => self.text(u32::from(kind & 0x1f))?.into(),
            0xc0 => Value::Null,
            0xc2 => false.into(),
            0xc3 => true.into(),
            0xca => {
                let number = f32::from_be_bytes(self.array()?).into();
                self.float(number)
            }
            0xcb => {
                let number = f64::from_be_bytes(self.array()?);
                self.float(number)
            }
            0xcc => self.u8()?.into(),
            0xcd => self.u16()?.into(),
            0xce => self.u32()?.into(),
            0xcf => u64::from_be_bytes(self.array()?).into(),
            0xd0 => i8::from_be_bytes(self.array()?).into(),
            0xd1 => i16::from_be_bytes(self.array()?).into(),
            0xd2 => i32::from_be_bytes(self.array()?).into(),
            0xd3 => i64::from_be_bytes(self.array()?).into(),
            0xd9 => {
                let n = self.u8()?.into();
                self.text(n)?.into()
            }
            0xda => {
                let n = self.u16()?.into();
                self.text(n)?.into()
            }
            0xdb => {
                let n = self.u32()?;
                self.text(n)?.into()
            }
            0xdc => {
                let n = self.u16()?.into();
                self.list(n, depth)?
            }
            0xdd => {
                let n = self.u32()?;
                self.list(n, depth)?
            }
            0xde => {
                let n = self.u16()?.into();
                self.map(n, depth)?
            }
            0xdf => {
                let n = self.u32()?;
                self.map(n, depth)?
            }
            0xe0..=0xff => kind.cast_signed().into(),
            _ => {
                return Err(DecodeError::corrupt(format!(
                    "MessagePack type {kind:#x} has no JSON form"
                )));
            }
        })
    }

    fn float(&mut self, v: f64) -> Value {
        if let Some(number) = Number::from_f64(v) {
            return Value::Number(number);
        }
        self.has_constants = true;
        match v {
            v if v.is_nan() => "NaN".into(),
            f64::INFINITY => "Infinity".into(),
            _ => "-Infinity".into(),
        }
    }

    fn text(&mut self, n: u32) -> Result<String, DecodeError> {
        let bytes = self.take(n as usize)?;
        self.budget.take(bytes.len())?;
        match std::str::from_utf8(bytes) {
            Ok(text) => Ok(text.to_owned()),
            Err(error) => Err(DecodeError::corrupt(error.to_string())),
        }
    }

    fn list(&mut self, n: u32, depth: usize) -> Result<Value, DecodeError> {
        // The list grows with the actual items, not with the declared count.
        let mut items = Vec::new();
        for _ in 0..n {
            items.push(self.value(depth + 1)?);
        }
        Ok(Value::Array(items))
    }

    fn map(&mut self, n: u32, depth: usize) -> Result<Value, DecodeError> {
        let mut map = Map::new();
        for _ in 0..n {
            // numcodecs refuses other keys, too.
            let Value::String(key) = self.value(depth + 1)? else {
                return Err(DecodeError::corrupt("a key of a map that is no text"));
            };
            map.insert(key, self.value(depth + 1)?);
        }
        Ok(Value::Object(map))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn parse(src: &[u8], expected: u64) -> Result<Vec<Element>, DecodeError> {
        decode(src, expected, &mut Budget::new(100_000))
    }

    /// `[1, "two", [3, -4.5], {"k": None}, "|O", [4]]`
    const CHUNK: &[u8] = &[
        0x96, 1, 0xa3, b't', b'w', b'o', 0x92, 3, 0xcb, 0xc0, 0x12, 0, 0, 0, 0, 0, 0, 0x81, 0xa1,
        b'k', 0xc0, 0xa2, b'|', b'O', 0x91, 4,
    ];

    #[test]
    fn keys_that_are_maps_are_refused() {
        // Each level would escape the quotes of the one inside, which doubles its length.
        let nested = [vec![0x81; 40], vec![0xa1, b'"'], vec![0; 40]].concat();
        let error = parse(&nested, 1).unwrap_err();
        assert!(format!("{error:?}").contains("no text"), "{error:?}");
    }

    #[test]
    fn values_decode_and_every_truncation_is_an_error() {
        let expected = [json!(1), json!("two"), json!([3, -4.5]), json!({"k": null})];
        assert_eq!(parse(CHUNK, 4).unwrap(), expected.map(Element::from));
        for n in 0..CHUNK.len() {
            assert!(parse(&CHUNK[..n], 4).is_err(), "{n}");
        }
        assert!(parse(&[CHUNK, &[0]].concat(), 4).is_err());
        assert!(parse(CHUNK, 5).is_err());
    }

    #[test]
    fn declared_sizes_depth_and_byte_strings_are_refused() {
        assert!(parse(&[0xdd, 0xff, 0xff, 0xff, 0xff], 1).is_err());
        assert!(parse(&[0x91; 10_000], 1).is_err());
        assert!(parse(&[0x93, 0xc4, 1, b'x', 0xa2, b'|', b'O', 0x91, 1], 1).is_err());
        assert!(
            parse(
                &[0x93, 0xca, 0x7f, 0xc0, 0, 0, 0xa2, b'|', b'O', 0x91, 1],
                1
            )
            .unwrap()
                == [Element::beside_constants(json!("NaN"))]
        );
    }
}
