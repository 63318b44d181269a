//! The compact protocol of Thrift, as far as Parquet metadata needs it.
//!
//! <https://github.com/apache/thrift/blob/master/doc/specs/thrift-compact-protocol.md>

/// Types of fields and list elements.
pub(super) mod types {
    pub(in super::super) const TRUE: u8 = 1;
    pub(in super::super) const FALSE: u8 = 2;
    pub(in super::super) const BYTE: u8 = 3;
    pub(in super::super) const I16: u8 = 4;
    pub(in super::super) const I32: u8 = 5;
    pub(in super::super) const I64: u8 = 6;
    pub(in super::super) const DOUBLE: u8 = 7;
    pub(in super::super) const BINARY: u8 = 8;
    pub(in super::super) const LIST: u8 = 9;
    pub(in super::super) const SET: u8 = 10;
    pub(in super::super) const MAP: u8 = 11;
    pub(in super::super) const STRUCT: u8 = 12;
}

/// Largest nesting depth of skipped structures.
const MAX_DEPTH: u32 = 16;

/// A result whose error says why the bytes are invalid.
pub(super) type Result<T> = std::result::Result<T, &'static str>;

const TOO_SHORT: &str = "its metadata end too early";

/// Bytes that are consumed from the front.
#[derive(Debug, Clone, Copy)]
pub(super) struct Thrift<'a>(pub(super) &'a [u8]);

impl<'a> Thrift<'a> {
    fn take(&mut self, length: usize) -> Result<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(length).ok_or(TOO_SHORT)?;
        self.0 = rest;
        Ok(taken)
    }

    fn byte(&mut self) -> Result<u8> {
        let (byte, rest) = self.0.split_first().ok_or(TOO_SHORT)?;
        self.0 = rest;
        Ok(*byte)
    }

    /// Reads an unsigned number of at most 64 bits (ULEB128).
    pub(super) fn varint(&mut self) -> Result<u64> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err("a number in its metadata is too long")
    }

    /// Reads a signed number of any width (zigzag).
    pub(super) fn number(&mut self) -> Result<i64> {
        let value = self.varint()?;
        Ok((value >> 1).cast_signed() ^ -(value & 1).cast_signed())
    }

    /// Reads a number that must not be negative.
    pub(super) fn size(&mut self) -> Result<u64> {
        u64::try_from(self.number()?).map_err(|_| "a size in its metadata is negative")
    }

    pub(super) fn binary(&mut self) -> Result<&'a [u8]> {
        let length = usize::try_from(self.varint()?).map_err(|_| TOO_SHORT)?;
        self.take(length)
    }

    /// Reads the elements of a list with `read`.
    pub(super) fn list<T>(
        &mut self,
        mut read: impl FnMut(&mut Self) -> Result<T>,
    ) -> Result<Vec<T>> {
        let (_, length) = self.list_header()?;
        // The length is untrusted, so nothing is allocated for it; each element takes at least a byte.
        let mut elements = Vec::new();
        for _ in 0..length {
            elements.push(read(self)?);
        }
        Ok(elements)
    }

    fn list_header(&mut self) -> Result<(u8, u64)> {
        let header = self.byte()?;
        let length = match header >> 4 {
            15 => self.varint()?,
            length => length.into(),
        };
        match length <= self.0.len() as u64 {
            true => Ok((header & 15, length)),
            false => Err(TOO_SHORT),
        }
    }

    /// Reads a structure: `read` is called with the number and the type of each field, and returns
    /// whether it has read the field.
    pub(super) fn structure(
        &mut self,
        mut read: impl FnMut(&mut Self, i64, u8) -> Result<bool>,
    ) -> Result<()> {
        let mut number = 0_i64;
        loop {
            let header = self.byte()?;
            if header == 0 {
                return Ok(());
            }
            let kind = header & 15;
            number = match header >> 4 {
                0 => self.number()?,
                delta => number.saturating_add(delta.into()),
            };
            if !read(self, number, kind)? {
                self.skip(kind, 0)?;
            }
        }
    }

    fn skip(&mut self, kind: u8, depth: u32) -> Result<()> {
        if depth > MAX_DEPTH {
            return Err("its metadata are nested too deep");
        }
        match kind {
            types::TRUE | types::FALSE => {}
            types::BYTE => drop(self.byte()?),
            types::I16 | types::I32 | types::I64 => drop(self.varint()?),
            types::DOUBLE => drop(self.take(8)?),
            types::BINARY => drop(self.binary()?),
            types::LIST | types::SET => {
                let (kind, length) = self.list_header()?;
                for _ in 0..length {
                    self.skip_element(kind, depth)?;
                }
            }
            types::MAP => {
                let length = self.varint()?;
                let kinds = if length > 0 { self.byte()? } else { 0 };
                for _ in 0..length {
                    self.skip_element(kinds >> 4, depth)?;
                    self.skip_element(kinds & 15, depth)?;
                }
            }
            types::STRUCT => loop {
                let header = self.byte()?;
                if header == 0 {
                    break;
                }
                if header >> 4 == 0 {
                    self.varint()?;
                }
                self.skip(header & 15, depth + 1)?;
            },
            _ => return Err("its metadata have a field of an unknown type"),
        }
        Ok(())
    }

    /// Skips a list element. A boolean takes a byte in a list, and none in a structure.
    fn skip_element(&mut self, kind: u8, depth: u32) -> Result<()> {
        match kind {
            types::TRUE | types::FALSE => self.byte().map(drop),
            kind => self.skip(kind, depth + 1),
        }
    }
}
