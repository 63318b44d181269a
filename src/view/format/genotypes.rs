//! What the formats of genotypes have in common: the form of the calls, the samples, and the variants of a group of VCF
//! Zarr. Texts and positions are loaded when a file is opened, within the memory limit.

mod alleles;
mod calls;
mod variants;

use std::sync::Arc;

use crate::conventions::vcf_zarr::{ALLELE, GENOTYPE, SAMPLE_NAME};
use crate::node::{ContentError, ViewNode};
use crate::view::file::nodes::Nodes;

pub(super) use self::alleles::{Alleles, KeptVariants};
pub(super) use self::calls::Calls;
pub(super) use self::variants::{Variant, Variants};

/// The names of the samples. An empty name is a sample that was removed, and that files leave out.
#[derive(Debug)]
pub(super) struct Samples(Arc<Vec<String>>);

impl Samples {
    /// Returns samples with these names.
    pub(super) fn new(names: Arc<Vec<String>>) -> Self {
        Self(names)
    }

    /// Reads the names of the samples of these calls.
    ///
    /// # Errors
    /// Returns how they contradict the calls; errors of the store.
    pub(super) async fn load(
        nodes: &Arc<Nodes>,
        group: &ViewNode,
        calls: &Calls,
    ) -> Result<Self, ContentError> {
        let names = names(nodes, group, SAMPLE_NAME).await?;
        match names.len() as u64 == calls.samples {
            true => Ok(Self::new(names)),
            false => Err(other_length(SAMPLE_NAME, names.len() as u64, calls.samples)),
        }
    }

    /// Returns the samples in the files, in order.
    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.0
            .iter()
            .map(String::as_str)
            .filter(|name| !name.is_empty())
    }

    /// Returns the indices of the samples in the files; `None` if that is all of them.
    pub(super) fn kept(&self) -> Option<Vec<usize>> {
        let is_kept = |index: &usize| self.0.get(*index).is_some_and(|name| !name.is_empty());
        let kept: Vec<usize> = (0..self.0.len()).filter(is_kept).collect();
        (kept.len() < self.0.len()).then_some(kept)
    }

    /// Checks that blanks can separate the names.
    ///
    /// # Errors
    /// Returns which name has a blank in it.
    pub(super) fn check_blanks(&self) -> Result<(), String> {
        without_blanks(&self.0, SAMPLE_NAME)
    }
}

/// Checks that blanks can separate the texts of an array of this name.
///
/// # Errors
/// Returns which text has a blank in it.
pub(super) fn without_blanks(texts: &[String], array: &str) -> Result<(), String> {
    let has_blank = |text: &String| text.contains(|c: char| c.is_whitespace() || c == '\0');
    match texts.iter().position(has_blank) {
        Some(index) => Err(format!(
            "`{array}` has a blank in the text {index}, and blanks separate the columns of the file"
        )),
        None => Ok(()),
    }
}

/// Returns the array of the genotypes, and its form.
///
/// # Errors
/// Returns why files cannot have such genotypes; errors of the store.
pub(super) async fn calls(
    nodes: &Arc<Nodes>,
    group: &ViewNode,
) -> Result<(Arc<ViewNode>, Calls), ContentError> {
    let node = member(nodes, group, GENOTYPE).await?;
    let calls = match node.array_view() {
        Some(view) => Calls::of(&view)?,
        None => return Err(missing(GENOTYPE)),
    };
    Ok((node, calls))
}

/// Reads the alleles of all variants.
///
/// # Errors
/// Returns how they contradict the calls; errors of the store.
pub(super) async fn alleles(
    nodes: &Arc<Nodes>,
    group: &ViewNode,
    calls: &Calls,
) -> Result<Alleles, ContentError> {
    let node = member(nodes, group, ALLELE).await?;
    let shape = node.metadata().as_array().map(|array| array.shape.clone());
    let Some([variants, alleles]) = shape.and_then(|shape| <[u64; 2]>::try_from(shape).ok()) else {
        return Err(format!("`{ALLELE}` has not two axes").into());
    };
    if variants != calls.variants {
        return Err(other_length(ALLELE, variants, calls.variants));
    }
    let names = texts(nodes, &node, ALLELE).await?;
    Ok(Alleles::new(names, alleles)?)
}

/// Returns the texts of an array with one axis.
async fn names(
    nodes: &Arc<Nodes>,
    group: &ViewNode,
    name: &'static str,
) -> Result<Arc<Vec<String>>, ContentError> {
    let node = member(nodes, group, name).await?;
    texts(nodes, &node, name).await
}

/// Returns the texts of an array.
async fn texts(
    nodes: &Arc<Nodes>,
    node: &ViewNode,
    name: &str,
) -> Result<Arc<Vec<String>>, ContentError> {
    /// The estimated memory of a short text while it is decoded, in bytes.
    const TEXT_BYTES: u64 = 128;
    let memory = nodes.engine().memory_limit_bytes();
    let shape = node.metadata().as_array().map(|array| &array.shape[..]);
    let count = shape.unwrap_or_default().iter();
    let count = count.fold(1_u64, |count, axis| count.saturating_mul(*axis));
    if count.saturating_mul(TEXT_BYTES) > memory / 4 {
        let why =
            format!("`{name}` has {count} texts, which take too much memory: raise --memory-limit");
        return Err(why.into());
    }
    match nodes.texts_within(node, memory / 16).await? {
        Some(texts) => Ok(texts.map_err(|why| format!("`{name}`: {why}"))?),
        None => Err(format!("`{name}` is no text").into()),
    }
}

/// Returns the integers of an array with one axis of this length.
async fn integers(
    nodes: &Arc<Nodes>,
    group: &ViewNode,
    name: &'static str,
    count: u64,
) -> Result<Vec<i64>, ContentError> {
    let node = member(nodes, group, name).await?;
    let number = node.array_view().and_then(|view| match view.shape() {
        [length] => Some((view.number()?.0, *length)),
        _ => None,
    });
    let Some((number, length)) = number else {
        return Err(format!("`{name}` is no list of numbers").into());
    };
    if length != count {
        return Err(other_length(name, length, count));
    }
    let memory = nodes.engine().memory_limit_bytes();
    if count.saturating_mul(size_of::<i64>() as u64) > memory / 16 {
        let why = format!(
            "`{name}` has {count} numbers, which take too much memory: raise --memory-limit"
        );
        return Err(why.into());
    }
    let bytes = nodes.all_bytes(&node).await?;
    let integers = bytes.chunks_exact(number.size_bytes).map(|bytes| {
        let value = number.read(bytes)?.whole()?;
        i64::try_from(value).ok()
    });
    let integers: Option<Vec<i64>> = integers.collect();
    integers.ok_or_else(|| format!("`{name}` has numbers that are no integers").into())
}

/// Returns an array of the group.
///
/// # Errors
/// [`ContentError::Absent`] if there is none; errors of the store.
pub(super) async fn member(
    nodes: &Arc<Nodes>,
    group: &ViewNode,
    name: &str,
) -> Result<Arc<ViewNode>, ContentError> {
    let node = member_if_present(nodes, group, name).await?;
    node.ok_or_else(|| missing(name))
}

/// Returns an array of the group, if there is one.
///
/// # Errors
/// Errors of the store.
pub(super) async fn member_if_present(
    nodes: &Arc<Nodes>,
    group: &ViewNode,
    name: &str,
) -> Result<Option<Arc<ViewNode>>, ContentError> {
    let key = group.key().join(name.as_bytes());
    let key = key.map_err(|_| missing(name))?;
    nodes.node_if_present(&key).await
}

/// Returns that the group lacks an array.
pub(super) fn missing(name: &str) -> ContentError {
    ContentError::Absent(format!("the group has no readable array `{name}`"))
}

/// Returns that an array is not as long as the calls.
pub(super) fn other_length(name: &str, found: u64, expected: u64) -> ContentError {
    ContentError::Absent(format!(
        "`{name}` has the length {found}, and `{GENOTYPE}` {expected}"
    ))
}
