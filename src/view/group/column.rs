//! Columns of AnnData that are groups of two arrays (anndata, "On-disk format"): categorical arrays, with `codes`
//! and `categories`, and nullable arrays, with `values` and `mask`.

use std::sync::Arc;

use super::tree::TreeScope;
use crate::conventions::anndata::{ColumnArrays, ColumnEncoding};
use crate::conventions::column::{Categories, NO_MASK, NullableElements, is_mask_of, is_plain};
use crate::node::{ContentError, Number, NumberKind, ViewNode};
use crate::view::file::nodes::Nodes;

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
