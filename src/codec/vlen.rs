//! `vlen-utf8`, `vlen-bytes` and `vlen-array`: a count, then the length and the bytes of each element. All
//! counts are little-endian `u32`. Bytes after the last element are ignored, as in numcodecs.

use super::element::{Budget, Element};
use super::error::{DecodeError, split_head, truncated};

/// The type of the elements.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Item {
    Text,
    Bytes,
    Array { item_bytes: usize },
}

impl Item {
    pub(super) fn decode(
        self,
        src: &[u8],
        expected: u64,
        budget: &mut Budget,
    ) -> Result<Vec<Element>, DecodeError> {
        let (count, mut rest) = split_head(src)?;
        let count = u32::from_le_bytes(count);
        if u64::from(count) != expected {
            return Err(DecodeError::corrupt(format!(
                "{count} elements, expected {expected}"
            )));
        }
        // Each element has at least a length, so a wrong count allocates no list.
        if (rest.len() as u64) / 4 < expected {
            return Err(DecodeError::corrupt(format!(
                "{count} elements in {} bytes",
                src.len()
            )));
        }
        let mut elements = budget.list(expected)?;
        for index in 0..count {
            let (length, after) = split_head(rest)?;
            let length = u32::from_le_bytes(length) as usize;
            let Some((bytes, after)) = after.split_at_checked(length) else {
                return Err(truncated(after.len(), length));
            };
            budget.take(length)?;
            elements.push(
                self.element(bytes)
                    .map_err(|what| DecodeError::corrupt(format!("element {index}: {what}")))?,
            );
            rest = after;
        }
        Ok(elements)
    }

    fn element(self, bytes: &[u8]) -> Result<Element, String> {
        match self {
            Self::Text => match std::str::from_utf8(bytes) {
                Ok(text) => Ok(Element::Text(text.to_owned())),
                Err(error) => Err(error.to_string()),
            },
            Self::Bytes => Ok(Element::Bytes(bytes.to_vec())),
            Self::Array { item_bytes } if bytes.len().is_multiple_of(item_bytes) => {
                Ok(Element::Array(bytes.to_vec()))
            }
            Self::Array { item_bytes } => Err(format!(
                "{} bytes are no items of {item_bytes}",
                bytes.len()
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decode(
        item: Item,
        src: &[u8],
        expected: u64,
        limit: usize,
    ) -> Result<Vec<Element>, DecodeError> {
        item.decode(src, expected, &mut Budget::new(limit))
    }

    const TWO: &[u8] = &[2, 0, 0, 0, 2, 0, 0, 0, 0xc3, 0xa5, 0, 0, 0, 0];

    #[test]
    fn elements_are_split_and_checked() {
        let text = |s: &str| Element::Text(s.into());
        assert_eq!(
            decode(Item::Text, TWO, 2, 1000).unwrap(),
            [text("\u{e5}"), text("")]
        );
        let bytes = decode(Item::Bytes, TWO, 2, 1000).unwrap();
        assert_eq!(
            bytes,
            [Element::Bytes(vec![0xc3, 0xa5]), Element::Bytes(vec![])]
        );
        let item = Item::Array { item_bytes: 2 };
        assert_eq!(
            decode(item, TWO, 2, 1000).unwrap()[0],
            Element::Array(vec![0xc3, 0xa5])
        );
        assert!(decode(Item::Array { item_bytes: 4 }, TWO, 2, 1000).is_err());
        for n in 0..TWO.len() {
            assert!(decode(Item::Text, &TWO[..n], 2, 1000).is_err(), "{n}");
        }
    }

    #[test]
    fn wrong_counts_invalid_text_and_too_much_data_are_errors() {
        assert!(decode(Item::Text, TWO, 3, 1000).is_err());
        let mut bad = TWO.to_vec();
        bad[8] = 0xff;
        assert!(decode(Item::Text, &bad, 2, 1000).is_err());
        assert!(decode(Item::Bytes, &[0xff; 8], u64::from(u32::MAX), 1000).is_err());
        assert!(matches!(
            decode(Item::Text, TWO, 2, 10),
            Err(DecodeError::Memory { .. })
        ));
    }
}
