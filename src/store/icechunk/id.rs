//! IDs of files, which are also their names, in Crockford's Base 32 (Icechunk specification, "Common Types").

use std::fmt;

/// The digits, without I, L, O and U.
const DIGITS: &[u8; 32] = b"0123456789ABCDEFGHJKMNPQRSTVWXYZ";
/// The length of an ID as text, in bytes.
const TEXT_BYTES: usize = 20;

/// The ID of a snapshot, a manifest or a file of chunks.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct ObjectId(pub(super) [u8; 12]);

impl ObjectId {
    /// Parses an ID, case-insensitively.
    pub(super) fn parse(text: &str) -> Option<Self> {
        if text.len() != TEXT_BYTES {
            return None;
        }
        let mut bits = 0_u128;
        for letter in text.bytes() {
            let letter = letter.to_ascii_uppercase();
            let digit = DIGITS.iter().position(|known| *known == letter)?;
            bits = (bits << 5) | digit as u128;
        }
        // The text has 100 bits; the last 4 are padding.
        let [_, _, _, _, id @ ..] = (bits >> 4).to_be_bytes();
        (bits & 0xf == 0).then_some(Self(id))
    }
}

impl fmt::Display for ObjectId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bytes = self.0.iter();
        let bits = bytes.fold(0_u128, |bits, byte| (bits << 8) | u128::from(*byte)) << 4;
        (0..TEXT_BYTES).rev().try_for_each(|place| {
            let digit = usize::try_from((bits >> (5 * place)) & 31).unwrap_or_default();
            let digit = DIGITS.get(digit).copied().unwrap_or_default();
            write!(f, "{}", char::from(digit))
        })
    }
}

impl fmt::Debug for ObjectId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identifiers_are_written_as_the_specification_does() {
        let first = [
            0x0b, 0x1c, 0xc8, 0xd6, 0x78, 0x75, 0x80, 0xf0, 0xe3, 0x3a, 0x65, 0x34,
        ];
        assert_eq!(ObjectId(first).to_string(), "1CECHNKREP0F1RSTCMT0");
        assert_eq!(
            ObjectId::parse("1cechnkrep0f1rstcmt0"),
            Some(ObjectId(first))
        );
        for bad in [
            "",
            "1CECHNKREP0F1RSTCMT1",
            "1CECHNKREP0F1RSTCMU0",
            "1CECHNKREP0F1RSTCMT",
        ] {
            assert_eq!(ObjectId::parse(bad), None, "{bad}");
        }
    }
}
