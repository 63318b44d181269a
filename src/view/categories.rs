//! Categorical columns of AnnData: a group with the arrays `codes` and `categories` (anndata, "On-disk
//! format", categorical arrays).

use std::sync::Arc;

use super::branch::Depth;
use super::content::NoContent;
use super::node::ViewNode;
use super::nodes::Nodes;
use super::number::{Number, NumberKind};

/// The maximum number of decoded codes of one column.
const MAX_CODES: u64 = 4 << 20;

/// A group that is a categorical column.
#[derive(Debug, Clone)]
pub(super) struct CategoricalColumn {
    /// The group.
    pub(super) node: Arc<ViewNode>,
    /// The name of the dimension of the codes, and their count.
    pub(super) dimension: (Option<String>, u64),
    /// The values, or why they cannot be read.
    pub(super) values: Result<Arc<Categories>, String>,
}

/// The different values of a column, and the index of the value of each row.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Categories {
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

    /// Returns the different values.
    pub(super) fn texts(&self) -> &[String] {
        &self.texts
    }

    /// Returns the index of the value of each row; `None` for a row without a value.
    pub(super) fn codes(&self) -> impl ExactSizeIterator<Item = Option<u32>> {
        self.codes.iter().map(|code| u32::try_from(*code).ok())
    }

    /// Returns the value of each row; `None` for a row without a value.
    pub(super) fn rows(&self) -> impl ExactSizeIterator<Item = Option<&str>> {
        self.codes().map(|code| {
            let text = self.texts.get(usize::try_from(code?).ok()?)?;
            Some(text.as_str())
        })
    }

    /// Returns the memory of the texts and codes in bytes.
    pub(super) fn memory_bytes(&self) -> usize {
        let texts = self.texts.iter();
        let texts: usize = texts.map(|text| text.len() + size_of::<String>()).sum();
        texts + size_of_val(&self.codes[..])
    }
}

/// Returns whether the attributes of a group declare a categorical column.
pub(super) fn is_categorical(node: &ViewNode) -> bool {
    let attributes = node.metadata().attributes().ok();
    let kind = attributes.and_then(|members| members.get("encoding-type"));
    !node.is_array() && kind.is_some_and(|kind| kind == "categorical")
}

impl Nodes {
    /// Returns the categorical column of a group; `None` if the group has no codes along one axis.
    ///
    /// # Errors
    /// Errors of the store.
    pub(super) async fn categorical_column(
        self: &Arc<Self>,
        node: &Arc<ViewNode>,
    ) -> Result<Option<CategoricalColumn>, NoContent> {
        let child = |name: &[u8]| node.key().join(name).ok();
        let (Some(codes), Some(categories)) = (child(b"codes"), child(b"categories")) else {
            return Ok(None);
        };
        let Some(codes) = self.node_if_present(&codes).await? else {
            return Ok(None);
        };
        let Some(([length], name)) = codes.metadata().as_array().and_then(|array| {
            let name = array.dimension_names.first().cloned().flatten();
            Some((<[u64; 1]>::try_from(&array.shape[..]).ok()?, name))
        }) else {
            return Ok(None);
        };
        let values = match self.node_if_present(&categories).await? {
            Some(categories) => self.categories(&codes, &categories).await?,
            None => Err("it has no categories".into()),
        };
        Ok(Some(CategoricalColumn {
            node: Arc::clone(node),
            dimension: (name, length),
            values: values.map(Arc::new),
        }))
    }

    /// Decodes the categories. The inner error is the reason why they cannot be decoded.
    async fn categories(
        self: &Arc<Self>,
        codes: &ViewNode,
        categories: &ViewNode,
    ) -> Result<Result<Categories, String>, NoContent> {
        let texts = match self.texts_of(categories, Depth::Table).await? {
            Some(Ok(texts)) => texts,
            Some(Err(why)) => return Ok(Err(why)),
            None => return Ok(Err("its categories are no text".into())),
        };
        if texts.iter().any(|text| text.contains('\0')) {
            return Ok(Err("text with NUL in it".into()));
        }
        let view = codes.array_view();
        let number = view.as_ref().and_then(|view| view.number());
        let Some((number, 1)) = number.filter(|(number, _)| number.kind != NumberKind::Float)
        else {
            return Ok(Err("its codes are no integers".into()));
        };
        let most = MAX_CODES.min(self.engine().memory_limit_bytes() / 64);
        let count = view.map_or(0, |view| view.shape().iter().product());
        if count > most {
            return Ok(Err(format!("more than {most} rows of categories")));
        }
        let bytes = self.all_bytes(codes).await?;
        let code = |bytes: &[u8]| i32::try_from(Number::read(number, bytes)?.whole()?).ok();
        let codes: Option<Vec<i32>> = bytes.chunks_exact(number.size_bytes).map(code).collect();
        let codes = codes.ok_or_else(|| "its codes are too large".to_owned());
        Ok(codes.and_then(|codes| Categories::new(texts.to_vec(), codes)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
