//! Columns of AnnData that are groups of two arrays (anndata, "On-disk format"): categorical arrays, with `codes`
//! and `categories`, and nullable arrays, with `values` and `mask`.

use std::collections::HashMap;
use std::sync::Arc;

use super::tree::TreeScope;
use crate::conventions::anndata::{ColumnArrays, ColumnEncoding};
use crate::node::{ContentError, Number, NumberKind, ViewNode};
use crate::view::file::nodes::Nodes;
use crate::zarr::{Fixed, Scalar};

/// The maximum number of decoded rows of one column.
const MAX_ROWS: u64 = 4 << 20;

/// A group that is a column.
#[derive(Debug, Clone)]
pub(in crate::view) struct GroupColumn {
    /// The group.
    pub(in crate::view) node: Arc<ViewNode>,
    /// The name of the dimension of the rows, and their count.
    pub(in crate::view) dimension: (Option<String>, u64),
    /// The values, or why they cannot be read.
    pub(in crate::view) values: Result<GroupValues, String>,
}

/// The values of a column that is a group.
#[derive(Debug, Clone)]
pub(in crate::view) enum GroupValues {
    Texts(Arc<Categories>),
    Elements(Arc<NullableElements>),
}

impl GroupValues {
    /// Returns the memory of the values in bytes.
    pub(in crate::view) fn memory_bytes(&self) -> usize {
        match self {
            Self::Texts(values) => values.memory_bytes(),
            Self::Elements(values) => values.memory_bytes(),
        }
    }
}

/// Numbers or booleans of which some may be missing.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::view) struct NullableElements {
    /// The type of an element.
    pub(in crate::view) data_type: Fixed,
    /// The element of each row; any element for a row without a value.
    elements: Vec<u8>,
    /// One byte for each row: not 0 if the row has no value.
    mask: Vec<u8>,
}

impl NullableElements {
    /// `elements` has one element for each byte of `mask`, which is not 0 for rows without a value.
    pub(in crate::view) fn new(data_type: Fixed, elements: Vec<u8>, mask: Vec<u8>) -> Self {
        Self {
            data_type,
            elements,
            mask,
        }
    }

    /// Returns the value of each code, which is an index into `values`; the code -1 is a row without a value.
    fn of_codes(data_type: Fixed, values: &[u8], codes: &[i32]) -> Result<Self, String> {
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
    pub(in crate::view) fn memory_bytes(&self) -> usize {
        self.elements.len() + self.mask.len()
    }

    /// Returns the element of each row; `None` for a row without a value.
    pub(in crate::view) fn rows(&self) -> impl ExactSizeIterator<Item = Option<&[u8]>> {
        let elements = self.elements.chunks_exact(self.data_type.size_bytes);
        let rows = elements.zip(&self.mask);
        rows.map(|(element, is_missing)| (*is_missing == 0).then_some(element))
    }

    /// Returns whether any row lacks a value.
    pub(in crate::view) fn has_nulls(&self) -> bool {
        self.mask.iter().any(|is_missing| *is_missing != 0)
    }
}

/// The different values of a column, and the index of the value of each row.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::view) struct Categories {
    /// The different values.
    texts: Vec<String>,
    /// The index of the value of each row; negative if the row has no value.
    codes: Vec<i32>,
}

impl Categories {
    /// Checks that each code is the index of a text, or -1.
    fn new(texts: Vec<String>, codes: Vec<i32>) -> Result<Self, String> {
        let count = i32::try_from(texts.len()).map_err(|_| "too many categories")?;
        match codes.iter().find(|code| !(-1..count).contains(*code)) {
            Some(code) => Err(format!("code {code} of {count} categories")),
            None => Ok(Self { texts, codes }),
        }
    }

    /// Returns the different values of `texts`, in the order of the first row of each; rows for which `mask` is
    /// set have no value.
    fn of_rows(texts: &[String], mask: &[u8]) -> Result<Self, String> {
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
    pub(in crate::view) fn texts(&self) -> &[String] {
        &self.texts
    }

    /// Returns the index of the value of each row; `None` for a row without a value.
    pub(in crate::view) fn codes(&self) -> impl ExactSizeIterator<Item = Option<u32>> {
        self.codes.iter().map(|code| u32::try_from(*code).ok())
    }

    /// Returns the value of each row; `None` for a row without a value.
    pub(in crate::view) fn rows(&self) -> impl ExactSizeIterator<Item = Option<&str>> {
        self.codes().map(|code| {
            let text = self.texts.get(usize::try_from(code?).ok()?)?;
            Some(text.as_str())
        })
    }

    /// Returns the memory of the texts and codes in bytes.
    pub(in crate::view) fn memory_bytes(&self) -> usize {
        let texts = self.texts.iter();
        let texts: usize = texts.map(|text| text.len() + size_of::<String>()).sum();
        texts + size_of_val(&self.codes[..])
    }
}

/// The reason for a column whose mask does not fit.
const NO_MASK: &str = "its mask has no boolean for each value";

/// Returns whether an array has a boolean for each element of another one.
fn is_mask_of(mask: &ViewNode, values: &ViewNode) -> bool {
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
fn is_plain(data_type: &Fixed) -> bool {
    matches!(data_type.scalar, Scalar::Bool) || matches!(Number::of(data_type), Some((_, 1)))
}

impl Nodes {
    /// Returns the column that a group is; `None` for other groups, and if no array has its rows along one axis.
    ///
    /// # Errors
    /// Errors of the store.
    pub(in crate::view) async fn group_column(
        self: &Arc<Self>,
        node: &Arc<ViewNode>,
    ) -> Result<Option<GroupColumn>, ContentError> {
        let Some(members) = ColumnArrays::of(node) else {
            return Ok(None);
        };
        let child = |name: &str| node.key().join(name.as_bytes()).ok();
        let (Some(rows), Some(other)) = (child(members.rows), child(members.other)) else {
            return Ok(None);
        };
        let Some(rows) = self.node_if_present(&rows).await? else {
            return Ok(None);
        };
        let Some(([length], name)) = rows.metadata().as_array().and_then(|array| {
            let name = array.dimension_names.first().cloned().flatten();
            Some((<[u64; 1]>::try_from(&array.shape[..]).ok()?, name))
        }) else {
            return Ok(None);
        };
        let most = MAX_ROWS.min(self.engine().memory_limit_bytes() / 64);
        let texts = |values: Result<_, _>| values.map(|texts| GroupValues::Texts(Arc::new(texts)));
        let values = match self.node_if_present(&other).await? {
            _ if length > most => Err(format!("more than {most} rows of a group")),
            None => Err(format!("it has no `{}`", members.other)),
            Some(other) => match members.kind {
                ColumnEncoding::Categorical => self.categories(&rows, &other, most).await?,
                ColumnEncoding::NullableStrings => {
                    texts(self.nullable_strings(&rows, &other).await?)
                }
                ColumnEncoding::NullableElements => {
                    let elements = self.nullable_elements(&rows, &other).await?;
                    elements.map(|values| GroupValues::Elements(Arc::new(values)))
                }
            },
        };
        Ok(Some(GroupColumn {
            node: Arc::clone(node),
            dimension: (name, length),
            values,
        }))
    }

    /// Decodes texts of a column. The inner error is the reason why they cannot be decoded.
    async fn column_texts(
        self: &Arc<Self>,
        node: &ViewNode,
    ) -> Result<Result<Arc<Vec<String>>, String>, ContentError> {
        Ok(match self.texts_of(node, TreeScope::Table).await? {
            Some(Ok(texts)) if texts.iter().any(|text| text.contains('\0')) => {
                Err("text with NUL in it".into())
            }
            Some(texts) => texts,
            None => Err(format!("`{}` is no text", node.name())),
        })
    }

    /// Decodes strings of which some are missing. The inner error is the reason why they cannot be decoded.
    async fn nullable_strings(
        self: &Arc<Self>,
        values: &ViewNode,
        mask: &ViewNode,
    ) -> Result<Result<Categories, String>, ContentError> {
        if !is_mask_of(mask, values) {
            return Ok(Err(NO_MASK.into()));
        }
        let texts = match self.column_texts(values).await? {
            Ok(texts) => texts,
            Err(why) => return Ok(Err(why)),
        };
        let mask = self.all_bytes(mask).await?;
        Ok(Categories::of_rows(&texts, &mask))
    }

    /// Decodes numbers or booleans of which some are missing. The inner error is the reason why they cannot be
    /// decoded.
    async fn nullable_elements(
        self: &Arc<Self>,
        values: &ViewNode,
        mask: &ViewNode,
    ) -> Result<Result<NullableElements, String>, ContentError> {
        if !is_mask_of(mask, values) {
            return Ok(Err(NO_MASK.into()));
        }
        let data_type = values.array_view().map(|view| view.data_type().clone());
        let Some(data_type) = data_type.filter(is_plain) else {
            return Ok(Err("its values are no numbers or booleans".into()));
        };
        let elements = self.all_bytes(values).await?;
        let mask = self.all_bytes(mask).await?;
        Ok(Ok(NullableElements::new(data_type, elements, mask)))
    }

    /// Decodes a categorical column. The inner error is the reason why it cannot be decoded.
    async fn categories(
        self: &Arc<Self>,
        codes: &ViewNode,
        categories: &ViewNode,
        most: u64,
    ) -> Result<Result<GroupValues, String>, ContentError> {
        let view = categories.array_view();
        let data_type = view.filter(|view| is_plain(view.data_type()));
        let Some(data_type) = data_type.map(|view| view.data_type().clone()) else {
            let texts = match self.column_texts(categories).await? {
                Ok(texts) => texts,
                Err(why) => return Ok(Err(why)),
            };
            let codes = self.codes(codes).await?;
            let values = codes.and_then(|codes| Categories::new(texts.to_vec(), codes));
            return Ok(values.map(|values| GroupValues::Texts(Arc::new(values))));
        };
        let array = categories.metadata().as_array();
        if !array.is_some_and(|array| matches!(array.shape[..], [count] if count <= most)) {
            return Ok(Err(format!(
                "`categories` has more than {most} values, or several axes"
            )));
        }
        let values = self.all_bytes(categories).await?;
        let codes = self.codes(codes).await?;
        let rows = codes.and_then(|codes| NullableElements::of_codes(data_type, &values, &codes));
        Ok(rows.map(|rows| GroupValues::Elements(Arc::new(rows))))
    }

    /// Reads the codes of a categorical column. The inner error is the reason why they cannot be read.
    async fn codes(&self, codes: &ViewNode) -> Result<Result<Vec<i32>, String>, ContentError> {
        let view = codes.array_view();
        let number = view.as_ref().and_then(|view| view.number());
        let Some((number, 1)) = number.filter(|(number, _)| number.kind != NumberKind::Float)
        else {
            return Ok(Err("its codes are no integers".into()));
        };
        let bytes = self.all_bytes(codes).await?;
        let code = |bytes: &[u8]| i32::try_from(Number::read(number, bytes)?.whole()?).ok();
        let codes: Option<Vec<i32>> = bytes.chunks_exact(number.size_bytes).map(code).collect();
        Ok(codes.ok_or_else(|| "its codes are too large".to_owned()))
    }
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
