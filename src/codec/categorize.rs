//! `categorize`: integers that index labels from 1; any other number is an empty text.

use serde_json::Value;

use crate::zarr::ByteOrder;

use super::config::Config;
use super::element::{Budget, Element};
use super::error::{CodecError, DecodeError};
use super::number::{BLOCK, Block, Number, NumberKind};
use super::stage::{Decode, Size};

/// Decodes `categorize`.
#[derive(Debug)]
pub(super) struct Categorize {
    labels: Vec<String>,
    encoded: Number,
}

impl Categorize {
    /// Parses `labels` and `astype` (default: one byte).
    ///
    /// # Errors
    /// The labels are not strings, or the numbers are not integers.
    pub(super) fn new(config: Config<'_>) -> Result<Self, CodecError> {
        let labels = config.required("labels", config.list("labels")?)?;
        let labels: Option<Vec<String>> = labels
            .iter()
            .map(|label| label.as_str().map(str::to_owned))
            .collect();
        let labels = labels.ok_or_else(|| config.invalid("labels are not all strings"))?;
        let byte = Number {
            kind: NumberKind::UInt,
            width: 1,
            order: ByteOrder::Little,
        };
        let encoded = config.number("astype")?.unwrap_or(byte);
        if !matches!(encoded.kind, NumberKind::Int | NumberKind::UInt) {
            let what = format!("categorize with astype of {:?}", encoded.kind);
            return Err(CodecError::unsupported(what));
        }
        Ok(Self { labels, encoded })
    }

    fn label(&self, number: i128) -> &str {
        let index = usize::try_from(number - 1).ok();
        index
            .and_then(|i| self.labels.get(i))
            .map_or("", String::as_str)
    }

    fn for_each(
        &self,
        src: &[u8],
        mut f: impl FnMut(&str) -> Result<(), DecodeError>,
    ) -> Result<(), DecodeError> {
        let mut block = self.encoded.block();
        for src in src.chunks(BLOCK * self.encoded.width) {
            self.encoded.read(src, &mut block);
            let count = src.len() / self.encoded.width;
            match &block {
                Block::Int(v) => v
                    .iter()
                    .take(count)
                    .try_for_each(|n| f(self.label((*n).into())))?,
                Block::UInt(v) => v
                    .iter()
                    .take(count)
                    .try_for_each(|n| f(self.label((*n).into())))?,
                Block::Float(_) => {}
            }
        }
        Ok(())
    }

    /// Returns the labels of an array of objects.
    pub(super) fn elements(
        &self,
        src: &[u8],
        expected: u64,
        budget: &mut Budget,
    ) -> Result<Vec<Element>, DecodeError> {
        let width = self.encoded.width as u64;
        if expected.checked_mul(width) != Some(src.len() as u64) {
            let n = src.len();
            return Err(DecodeError::corrupt(format!(
                "{n} bytes, expected {expected} numbers of {width}"
            )));
        }
        let mut elements = budget.list(expected)?;
        self.for_each(src, |label| {
            budget.take(label.len())?;
            elements.push(Element::Text(label.to_owned()));
            Ok(())
        })?;
        Ok(elements)
    }

    pub(super) fn encoded_bytes(&self) -> u64 {
        self.encoded.width as u64
    }

    /// Returns the labels of an array of fixed-length text (`dtype` `<U6`); `None` if `dtype` is of a
    /// different kind.
    pub(super) fn fixed(self, config: Config<'_>) -> Result<Option<FixedLabels>, CodecError> {
        let dtype = config
            .get("dtype")
            .and_then(Value::as_str)
            .and_then(|dtype| dtype.split_at_checked(2));
        let (order, length) = match dtype {
            Some(("<U" | "=U", length)) => (ByteOrder::Little, length),
            Some((">U", length)) => (ByteOrder::Big, length),
            _ => return Ok(None),
        };
        let length: Option<usize> = length.parse().ok().filter(|n| (1..1 << 20).contains(n));
        Ok(length.map(|code_points| FixedLabels {
            labels: self,
            order,
            code_points,
        }))
    }
}

/// Labels as fixed-length text, truncated or padded with zeros.
#[derive(Debug)]
pub(super) struct FixedLabels {
    labels: Categorize,
    order: ByteOrder,
    code_points: usize,
}

impl Decode for FixedLabels {
    fn encoded_size(&self, decoded: Size) -> Option<Size> {
        let text = self.code_points as u64 * 4;
        let number = self.labels.encoded_bytes();
        decoded.try_map(|n| match n.is_multiple_of(text) {
            true => (n / text).checked_mul(number),
            false => None,
        })
    }

    fn decode(&self, src: &[u8], dst: &mut [u8]) -> Result<usize, DecodeError> {
        let limit = dst.len();
        let mut rest = dst;
        self.labels.for_each(src, |label| {
            let room = std::mem::take(&mut rest);
            let Some((to, after)) = room.split_at_mut_checked(self.code_points * 4) else {
                return Err(DecodeError::overflow(limit));
            };
            to.fill(0);
            for (to, c) in to.as_chunks_mut::<4>().0.iter_mut().zip(label.chars()) {
                *to = match self.order {
                    ByteOrder::Little => u32::from(c).to_le_bytes(),
                    ByteOrder::Big => u32::from(c).to_be_bytes(),
                };
            }
            rest = after;
            Ok(())
        })?;
        Ok(limit - rest.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn known_numbers_become_labels_and_unknown_ones_empty_text() {
        let value = json!({"labels": ["red", "green"], "dtype": "<U3"});
        let config = Config {
            codec: "categorize",
            map: value.as_object().unwrap(),
        };
        let codec = Categorize::new(config).unwrap();
        let elements = codec
            .elements(&[2, 0, 1, 9], 4, &mut Budget::new(1000))
            .unwrap();
        let expected = ["green", "", "red", ""].map(|s| Element::Text(s.into()));
        assert_eq!(elements, expected);
        assert!(
            codec
                .elements(&[2, 0, 1], 4, &mut Budget::new(1000))
                .is_err()
        );
        let fixed = codec.fixed(config).unwrap().unwrap();
        let mut dst = [9; 24];
        assert_eq!(fixed.decode(&[2, 0], &mut dst).unwrap(), 24);
        assert_eq!(dst[..13], [b'g', 0, 0, 0, b'r', 0, 0, 0, b'e', 0, 0, 0, 0]);
        assert!(fixed.decode(&[2, 0, 1], &mut dst).is_err());
    }
}
