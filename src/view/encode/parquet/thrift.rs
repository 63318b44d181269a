//! Writes structures in the compact protocol of Thrift.
//!
//! <https://github.com/apache/thrift/blob/master/doc/specs/thrift-compact-protocol.md>

const TRUE: u8 = 1;
const FALSE: u8 = 2;
const BYTE: u8 = 3;
const I32: u8 = 5;
const I64: u8 = 6;
const BINARY: u8 = 8;
const LIST: u8 = 9;
const STRUCT: u8 = 12;

/// The fields of a structure, in ascending order of their IDs, which differ by at most 15.
#[derive(Debug, Default)]
pub(super) struct Fields {
    bytes: Vec<u8>,
    /// The ID of the last field.
    last: u8,
}

impl Fields {
    /// Returns the bytes of a structure.
    pub(super) fn structure(write: impl FnOnce(&mut Self)) -> Vec<u8> {
        let mut fields = Self::default();
        fields.nest(write);
        fields.bytes
    }

    fn nest(&mut self, write: impl FnOnce(&mut Self)) {
        let outer = std::mem::take(&mut self.last);
        write(self);
        self.bytes.push(0);
        self.last = outer;
    }

    fn header(&mut self, number: u8, kind: u8) {
        let delta = number - self.last;
        debug_assert!((1..=15).contains(&delta));
        self.bytes.push(delta << 4 | kind);
        self.last = number;
    }

    fn varint(&mut self, mut value: u64) {
        while value > 0x7f {
            self.bytes.push(value.to_le_bytes()[0] | 0x80);
            value >>= 7;
        }
        self.bytes.push(value.to_le_bytes()[0]);
    }

    fn number(&mut self, value: i64) {
        self.varint(((value << 1) ^ (value >> 63)).cast_unsigned());
    }

    fn text(&mut self, text: &[u8]) {
        self.varint(text.len() as u64);
        self.bytes.extend_from_slice(text);
    }

    fn list(&mut self, number: u8, kind: u8, length: usize) {
        self.header(number, LIST);
        match u8::try_from(length) {
            Ok(short @ 0..15) => self.bytes.push(short << 4 | kind),
            _ => {
                self.bytes.push(0xf0 | kind);
                self.varint(length as u64);
            }
        }
    }

    pub(super) fn boolean(&mut self, number: u8, value: bool) {
        self.header(number, if value { TRUE } else { FALSE });
    }

    pub(super) fn byte(&mut self, number: u8, value: u8) {
        self.header(number, BYTE);
        self.bytes.push(value);
    }

    pub(super) fn i32(&mut self, number: u8, value: i32) {
        self.header(number, I32);
        self.number(value.into());
    }

    pub(super) fn i64(&mut self, number: u8, value: i64) {
        self.header(number, I64);
        self.number(value);
    }

    pub(super) fn binary(&mut self, number: u8, value: &[u8]) {
        self.header(number, BINARY);
        self.text(value);
    }

    pub(super) fn nested(&mut self, number: u8, write: impl FnOnce(&mut Self)) {
        self.header(number, STRUCT);
        self.nest(write);
    }

    pub(super) fn structures<T>(
        &mut self,
        number: u8,
        items: impl ExactSizeIterator<Item = T>,
        write: impl Fn(&mut Self, T),
    ) {
        self.list(number, STRUCT, items.len());
        for item in items {
            self.nest(|fields| write(fields, item));
        }
    }

    pub(super) fn numbers(&mut self, number: u8, values: &[i32]) {
        self.list(number, I32, values.len());
        values.iter().for_each(|value| self.number((*value).into()));
    }

    pub(super) fn texts(&mut self, number: u8, texts: &[&str]) {
        self.list(number, BINARY, texts.len());
        texts.iter().for_each(|text| self.text(text.as_bytes()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn structures_have_the_bytes_of_the_specification() {
        let bytes = Fields::structure(|fields| {
            fields.i32(1, -1);
            fields.i64(3, 300);
            fields.binary(4, b"ab");
            fields.nested(5, |inner| {
                inner.boolean(1, true);
                inner.byte(2, 8);
            });
            fields.numbers(6, &[0; 15]);
            fields.texts(7, &["x"]);
        });
        let mut expected = vec![0x15, 1, 0x26, 0xd8, 4, 0x18, 2, b'a', b'b'];
        expected.extend([0x1c, 0x11, 0x13, 8, 0, 0x19, 0xf5, 15]);
        expected.extend([0; 15]);
        expected.extend([0x19, 0x18, 1, b'x', 0]);
        assert_eq!(bytes, expected);
    }
}
