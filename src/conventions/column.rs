//! The values of a column of a table, of which some rows may have none: categorical and nullable arrays of AnnData
//! (anndata, "On-disk format"), and arrays with missing values.

use std::collections::HashMap;

use crate::node::{Number, ViewNode};
use crate::zarr::{Fixed, Scalar};

/// Numbers or booleans of which some may be missing.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct NullableElements {
    /// The type of an element.
    pub(crate) data_type: Fixed,
    /// The element of each row; any element for a row without a value.
    elements: Vec<u8>,
    /// One byte for each row: not 0 if the row has no value.
    mask: Vec<u8>,
}

impl NullableElements {
    /// `elements` has one element for each byte of `mask`, which is not 0 for rows without a value.
    pub(crate) fn new(data_type: Fixed, elements: Vec<u8>, mask: Vec<u8>) -> Self {
        Self {
            data_type,
            elements,
            mask,
        }
    }

    /// Returns the value of each code, which is an index into `values`; the code -1 is a row without a value.
    pub(crate) fn of_codes(data_type: Fixed, values: &[u8], codes: &[i32]) -> Result<Self, String> {
        let size = data_type.size_bytes;
        let none = vec![0; size];
        let mut elements = Vec::with_capacity(codes.len().saturating_mul(size));
        let mut mask = Vec::with_capacity(codes.len());
        let values = values.chunks_exact(size.max(1));
        for &code in codes {
            let value = usize::try_from(code)
                .ok()
                .and_then(|code| values.clone().nth(code));
            match value {
                Some(value) => elements.extend_from_slice(value),
                None if code == -1 => elements.extend_from_slice(&none),
                None => {
                    return Err(format!("code {code} of {} categories", values.len()));
                }
            }
            mask.push(u8::from(code == -1));
        }
        Ok(Self::new(data_type, elements, mask))
    }

    /// Returns the memory of the elements in bytes.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.elements.len() + self.mask.len()
    }

    /// Returns the element of each row; `None` for a row without a value.
    pub(crate) fn rows(&self) -> impl ExactSizeIterator<Item = Option<&[u8]>> {
        let elements = self.elements.chunks_exact(self.data_type.size_bytes);
        let rows = elements.zip(&self.mask);
        rows.map(|(element, is_missing)| (*is_missing == 0).then_some(element))
    }

    /// Returns whether any row lacks a value.
    pub(crate) fn has_nulls(&self) -> bool {
        self.mask.iter().any(|is_missing| *is_missing != 0)
    }
}

/// The different values of a column, and the index of the value of each row.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Categories {
    /// The different values.
    texts: Vec<String>,
    /// The index of the value of each row; negative if the row has no value.
    codes: Vec<i32>,
}

impl Categories {
    /// Checks that each code is the index of a text, or -1.
    pub(crate) fn new(texts: Vec<String>, codes: Vec<i32>) -> Result<Self, String> {
        let count = i32::try_from(texts.len()).map_err(|_| "too many categories")?;
        match codes.iter().find(|code| !(-1..count).contains(*code)) {
            Some(code) => Err(format!("code {code} of {count} categories")),
            None => Ok(Self { texts, codes }),
        }
    }

    /// Returns the different values of `texts`, in the order of the first row of each; rows for which `mask` is
    /// set have no value.
    pub(crate) fn of_rows(texts: &[String], mask: &[u8]) -> Result<Self, String> {
        if texts.len() != mask.len() {
            return Err(format!(
                "{} values, but a mask of {}",
                texts.len(),
                mask.len()
            ));
        }
        let mut known: HashMap<&str, i32> = HashMap::new();
        let mut different = Vec::new();
        let mut codes = Vec::with_capacity(texts.len());
        for (text, is_missing) in texts.iter().zip(mask) {
            codes.push(match *is_missing {
                0 => *known.entry(text).or_insert_with(|| {
                    different.push(text.clone());
                    // The number of rows is limited.
                    i32::try_from(different.len() - 1).unwrap_or(i32::MAX)
                }),
                _ => -1,
            });
        }
        Self::new(different, codes)
    }

    /// Returns the different values.
    pub(crate) fn texts(&self) -> &[String] {
        &self.texts
    }

    /// Returns the index of the value of each row; `None` for a row without a value.
    pub(crate) fn codes(&self) -> impl ExactSizeIterator<Item = Option<u32>> {
        self.codes.iter().map(|code| u32::try_from(*code).ok())
    }

    /// Returns the value of each row; `None` for a row without a value.
    pub(crate) fn rows(&self) -> impl ExactSizeIterator<Item = Option<&str>> {
        self.codes().map(|code| {
            let text = self.texts.get(usize::try_from(code?).ok()?)?;
            Some(text.as_str())
        })
    }

    /// Returns the memory of the texts and codes in bytes.
    pub(crate) fn memory_bytes(&self) -> usize {
        let texts = self.texts.iter();
        let texts: usize = texts.map(|text| text.len() + size_of::<String>()).sum();
        texts + size_of_val(&self.codes[..])
    }
}

/// The reason for a column whose mask does not fit.
pub(crate) const NO_MASK: &str = "its mask has no boolean for each value";

/// Returns whether an array has a boolean for each element of another one.
pub(crate) fn is_mask_of(mask: &ViewNode, values: &ViewNode) -> bool {
    let shape = |node: &ViewNode| {
        let array = node.metadata().as_array();
        array.map(|array| array.shape.clone())
    };
    let is_bool = mask
        .array_view()
        .is_some_and(|view| matches!(view.data_type().scalar, Scalar::Bool));
    is_bool && shape(mask) == shape(values)
}

/// Returns whether elements are numbers or booleans.
pub(crate) fn is_plain(data_type: &Fixed) -> bool {
    matches!(data_type.scalar, Scalar::Bool) || matches!(Number::of(data_type), Some((_, 1)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn masked_rows_have_no_value() {
        let texts = ["b", "a", "", "b"].map(str::to_owned);
        let known = Categories::of_rows(&texts, &[0, 1, 0, 0]).unwrap();
        assert_eq!(known.texts(), ["b", ""]);
        let rows: Vec<_> = known.rows().collect();
        assert_eq!(rows, [Some("b"), None, Some(""), Some("b")]);
        assert!(Categories::of_rows(&texts, &[0]).is_err());
    }

    #[test]
    fn codes_of_numbers_become_the_numbers() {
        let data_type = Fixed {
            scalar: Scalar::Int(crate::zarr::ByteOrder::Little),
            size_bytes: 2,
        };
        let values = [7_i16, -1].map(i16::to_le_bytes).concat();
        let of = |codes: &[i32]| NullableElements::of_codes(data_type.clone(), &values, codes);
        let found = of(&[1, -1, 0]).unwrap();
        let rows: Vec<_> = found.rows().collect();
        assert_eq!(rows, [Some(&values[2..]), None, Some(&values[..2])]);
        for codes in [[2], [-2]] {
            let why = of(&codes).unwrap_err();
            assert!(why.contains("of 2 categories"), "{why}");
        }
    }

    #[test]
    fn codes_are_those_of_categories_or_of_no_value() {
        let texts = || vec!["a".to_owned(), "b".to_owned()];
        let known = Categories::new(texts(), vec![1, -1, 0]).unwrap();
        let rows: Vec<_> = known.rows().collect();
        assert_eq!(rows, [Some("b"), None, Some("a")]);
        for codes in [vec![2], vec![-2], vec![0, i32::MAX]] {
            let why = Categories::new(texts(), codes).unwrap_err();
            assert!(why.contains("of 2 categories"), "{why}");
        }
    }
}
