//! Loads the input of a file: the nodes below a group ([`GroupTree`]), and the elements that the file needs.

mod array_tree;
mod grid_mappings;
mod proof;

use std::sync::Arc;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;

use super::column::GroupColumn;
use super::tree::{DecodedTexts, GroupArray, GroupTree, TreeScope};
use crate::clock::Instant;
use crate::conventions::cf::grid_mapping::DEFAULT_GRID_MAPPING;
use crate::conventions::description::DeclaredAxes;
use crate::conventions::georef::grid::Grid;
use crate::conventions::georef::{RasterMetadata, crs_metadata};
use crate::conventions::missing::{ZeroFill, values_in_tables, zero_fill};
use crate::node::{ContentError, ViewNode};
use crate::runtime;
use crate::store::{Key, ListingSupport, StoreError, list_prefixes};
use crate::view::file::nodes::Nodes;
use crate::zarr::Node;

/// The maximum number of nodes below a group.
const MAX_NODES: usize = 4096;
/// The maximum memory of their metadata and texts, in bytes.
const MAX_BYTES: u64 = 256 << 20;
/// The maximum depth of nested groups.
const MAX_DEPTH: usize = 64;

/// The remaining budget of one file.
#[derive(Debug)]
struct TreeBudget {
    nodes: usize,
    bytes: u64,
    /// The maximum of a single node, in bytes.
    node_bytes: u64,
    /// Whether elements (texts and coordinates) are read.
    has_elements: bool,
    /// Until when elements are read: the request that needs the file has to end in time.
    deadline: Instant,
}

impl TreeBudget {
    /// Takes one node, or memory for its content, from the budget.
    fn take(&mut self, bytes: u64) -> Result<(), ContentError> {
        let nodes = self.nodes.checked_sub(1).ok_or_else(Self::too_many)?;
        let left = self.bytes.checked_sub(bytes).ok_or_else(|| {
            ContentError::Absent("metadata below it are too long for one file".into())
        })?;
        (self.nodes, self.bytes) = (nodes, left);
        Ok(())
    }

    fn too_many() -> ContentError {
        ContentError::Absent(format!("more than {MAX_NODES} nodes are below it"))
    }
}

/// The results of `texts_of`, `records_of` and `sequences_of`.
type DecodedValues = (
    Option<DecodedTexts>,
    Option<Result<Arc<Vec<u8>>, String>>,
    Option<Result<Arc<Vec<Vec<u8>>>, String>>,
);

impl TreeBudget {
    /// Reads elements of a node until the deadline.
    async fn within<T>(
        &self,
        node: &ViewNode,
        read: impl Future<Output = Result<T, ContentError>>,
    ) -> Result<T, ContentError> {
        let left = self.deadline.saturating_duration_since(Instant::now());
        let late = || {
            let (key, what) = (node.key().clone(), "elements".to_owned());
            Err(StoreError::TimedOut { key, what }.into())
        };
        runtime::timeout(left, read).await.unwrap_or_else(late)
    }
}

/// Separates the errors of reading elements, which concern one array of a file, from those that concern the file:
/// other metadata, or none, and a lack of memory, which says nothing of the array.
fn or_error<T>(read: Result<T, ContentError>) -> Result<Result<T, StoreError>, ContentError> {
    match read {
        Ok(found) => Ok(Ok(found)),
        Err(ContentError::Failed(stale @ StoreError::Stale { .. })) => Err(stale.into()),
        Err(ContentError::Failed(error)) if error.lacks_memory() => Err(error.into()),
        Err(ContentError::Failed(error)) => Ok(Err(error)),
        Err(error) => Err(error),
    }
}

impl Nodes {
    /// Returns a group with its arrays and, depending on `scope`, all nodes below it.
    ///
    /// # Errors
    /// [`ContentError::Absent`] if one file cannot contain that many nodes; errors of the store.
    pub(in crate::view) async fn group_tree(
        self: &Arc<Self>,
        node: &Arc<ViewNode>,
        scope: TreeScope,
    ) -> Result<GroupTree, ContentError> {
        self.group_tree_with(node, scope, true).await
    }

    /// Returns the budget of one file.
    fn budget(&self, has_elements: bool) -> TreeBudget {
        let limit = self.engine().memory_limit_bytes();
        let bytes = (limit / 8).min(MAX_BYTES);
        TreeBudget {
            nodes: MAX_NODES,
            bytes,
            node_bytes: bytes,
            has_elements,
            deadline: Instant::now() + self.engine().timeout() / 3 * 2,
        }
    }

    async fn group_tree_with(
        self: &Arc<Self>,
        node: &Arc<ViewNode>,
        scope: TreeScope,
        has_elements: bool,
    ) -> Result<GroupTree, ContentError> {
        let mut budget = self.budget(has_elements);
        let has_crs = self.is_below_crs(node).await?;
        let mut tree = self
            .load_group(node, scope, 0, has_crs, &mut budget)
            .await?;
        if matches!(scope, TreeScope::Group | TreeScope::Subtree) {
            self.inherit_coordinates(&mut tree, has_crs, &mut budget)
                .await?;
            self.inherit_grid_mappings(&mut tree, &mut budget).await?;
        }
        Ok(tree)
    }

    /// Adds the coordinates of dimensions that have none in the tree, from the nearest group above it: the groups
    /// of an xarray DataTree inherit them.
    async fn inherit_coordinates(
        self: &Arc<Self>,
        tree: &mut GroupTree,
        has_crs: bool,
        budget: &mut TreeBudget,
    ) -> Result<(), ContentError> {
        let mut inherited = Vec::new();
        for (dimension, length) in tree.dimensions_without_coordinates() {
            let mut group = tree.node.key().clone();
            for _ in 0..MAX_DEPTH {
                if group.is_root() {
                    break;
                }
                group = group.parent();
                let Ok(key) = group.join(dimension.as_bytes()) else {
                    break;
                };
                if let Some(node) = self.node_if_present(&key).await?
                    && node.is_coordinate_of(&dimension, length)
                {
                    budget.take(node.memory_bytes)?;
                    inherited.push(
                        self.load_array(node, TreeScope::Group, has_crs, budget)
                            .await?,
                    );
                    break;
                }
            }
        }
        tree.arrays.extend(inherited);
        tree.arrays
            .sort_by(|one, other| one.node.name().cmp(other.node.name()));
        Ok(())
    }

    fn load_group<'a>(
        self: &'a Arc<Self>,
        node: &'a Arc<ViewNode>,
        scope: TreeScope,
        depth: usize,
        has_crs: bool,
        budget: &'a mut TreeBudget,
    ) -> BoxFuture<'a, Result<GroupTree, ContentError>> {
        self.load_members(node, scope, depth, has_crs, budget)
            .boxed()
    }

    async fn load_members(
        self: &Arc<Self>,
        node: &Arc<ViewNode>,
        scope: TreeScope,
        depth: usize,
        has_crs: bool,
        budget: &mut TreeBudget,
    ) -> Result<GroupTree, ContentError> {
        let has_crs = has_crs || crs_metadata::may_give_crs(node);
        if depth > MAX_DEPTH {
            return Err(ContentError::Absent(format!(
                "more than {MAX_DEPTH} groups inside each other"
            )));
        }
        if let Some(why) = node.broken() {
            return Err(ContentError::Absent(why.to_owned()));
        }
        let mut tree = GroupTree::of_arrays(node, Vec::new());
        // First, so that the names come from the metadata that name all nodes.
        self.check_names(node).await?;
        let children = self.child_keys(node, budget.nodes).await?;
        if children.len() > budget.nodes {
            return Err(TreeBudget::too_many());
        }
        let default = node.key().join(DEFAULT_GRID_MAPPING.as_bytes()).ok();
        let has_crs = has_crs || children.iter().any(|child| Some(child) == default.as_ref());
        for child in children {
            if !has_text_name(&child) {
                budget.take(child.as_bytes().len() as u64)?;
                tree.omitted.push((child, "its name is no UTF-8".into()));
                continue;
            }
            let child = self.node(&child).await?;
            if child.memory_bytes > budget.node_bytes {
                budget.take(0)?;
                let why = format!(
                    "its metadata take {} bytes of memory, {} are allowed for one file",
                    child.memory_bytes, budget.node_bytes
                );
                tree.omitted.push((child.key().clone(), why));
                continue;
            }
            budget.take(child.memory_bytes)?;
            if child.is_implicit && self.is_gone(&child).await? {
                let why = "consolidated metadata name it, and the source has no documents of it: it was removed after \
                           the metadata were consolidated";
                tree.omitted.push((child.key().clone(), why.into()));
                continue;
            }
            if let Some(why) = child.broken() {
                // The nodes below it may be the chunks of an array.
                tree.omitted.push((child.key().clone(), why.to_owned()));
            } else if child.is_array() {
                let array = self.load_array(child, scope, has_crs, budget).await?;
                tree.arrays.push(array);
            } else if scope.is_one_group() {
                let column = match budget.has_elements && scope == TreeScope::Table {
                    true => self.load_group_column(&child, budget).await?,
                    false => None,
                };
                match column {
                    Some(column) => tree.group_columns.push(column),
                    None => tree.omitted_groups.push(child.name().to_owned()),
                }
            } else {
                let group = self
                    .load_group(&child, scope, depth + 1, has_crs, budget)
                    .await?;
                let is_empty = group.arrays.is_empty() && group.groups.is_empty();
                match is_empty && child.is_implicit {
                    true => tree.omitted.extend(group.omitted),
                    false => tree.groups.push(group),
                }
            }
        }
        Ok(tree)
    }

    // Boxed, because groups load their arrays on the stack of all groups above them.
    fn load_array<'a>(
        self: &'a Arc<Self>,
        node: Arc<ViewNode>,
        scope: TreeScope,
        has_crs: bool,
        budget: &'a mut TreeBudget,
    ) -> BoxFuture<'a, Result<GroupArray, ContentError>> {
        self.load_elements(node, scope, has_crs, budget).boxed()
    }

    async fn load_elements(
        self: &Arc<Self>,
        node: Arc<ViewNode>,
        scope: TreeScope,
        has_crs: bool,
        budget: &mut TreeBudget,
    ) -> Result<GroupArray, ContentError> {
        let (mut texts, mut records, mut sequences) = (None, None, None);
        let (mut nulls, mut grid) = (Ok(None), None);
        let (mut unread, mut unread_place) = (None, None);
        let zero_fill = match budget.has_elements {
            true => self.resolve(|nodes| zero_fill(&node, nodes)).await?,
            false => ZeroFill::Unknown,
        };
        if budget.has_elements && scope == TreeScope::Table {
            texts = self.texts_of(&node, scope).await?;
            let array = node.metadata().as_array();
            let missing = array.map(|array| values_in_tables(array, zero_fill, &mut |_| {}));
            let found = self.null_rows(&node, &missing.unwrap_or_default()).await?;
            nulls = found.map(|found| found.map(Arc::new));
        } else if budget.has_elements {
            let elements = budget.within(&node, self.values_of(&node, scope)).await;
            match or_error(elements)? {
                Ok(found) => (texts, records, sequences) = found,
                Err(error) => unread = Some(error),
            }
        }
        if budget.has_elements && matches!(scope, TreeScope::Group | TreeScope::Subtree) {
            let found = budget.within(&node, self.grid_of(&node, has_crs)).await;
            match or_error(found)? {
                Ok(found) => grid = found,
                Err(error) => unread_place = Some(error),
            }
        }
        let axes = match or_error(self.axes(&node, scope, budget).await)? {
            Ok(found) => found,
            Err(error) => {
                unread_place = Some(error);
                DeclaredAxes::of_dimensions(&node)
            }
        };
        // At most one of them exists.
        let decoded_bytes = match (&texts, &records, &sequences) {
            (Some(Ok(texts)), _, _) => {
                let texts = texts.iter();
                texts
                    .map(|text| text.capacity() + size_of::<String>())
                    .sum()
            }
            (_, Some(Ok(bytes)), _) => bytes.len(),
            (_, _, Some(Ok(sequences))) => {
                let sequences = sequences.iter();
                let sizes = sequences.map(|items| items.capacity() + size_of::<Vec<u8>>());
                sizes.sum()
            }
            _ => 0,
        };
        match budget.bytes.checked_sub(decoded_bytes as u64) {
            Some(left) => budget.bytes = left,
            None => {
                let too_much = "too much text for one file";
                texts = texts.map(|_| Err(too_much.into()));
                records = records.map(|_| Err(too_much.into()));
                sequences = sequences.map(|_| Err(too_much.into()));
            }
        }
        if let Ok(Some(rows)) = &nulls {
            match budget.bytes.checked_sub(rows.memory_bytes() as u64) {
                Some(left) => budget.bytes = left,
                None => nulls = Err("too many values for one file".into()),
            }
        }
        Ok(GroupArray {
            node,
            axes,
            texts,
            records,
            sequences,
            nulls,
            zero_fill,
            grid,
            stored: None,
            unread,
            unread_place,
        })
    }

    /// Returns the axes of an array, with all that attributes say of them for a file of the format NetCDF.
    async fn axes(
        self: &Arc<Self>,
        node: &Arc<ViewNode>,
        scope: TreeScope,
        budget: &TreeBudget,
    ) -> Result<DeclaredAxes, ContentError> {
        if !budget.has_elements || !matches!(scope, TreeScope::Group | TreeScope::Subtree) {
            return Ok(DeclaredAxes::of_dimensions(node));
        }
        // A level of a NIfTI-Zarr image has its place in the elements of another array.
        let axes = self.resolve(|nodes| DeclaredAxes::of(node, nodes));
        budget.within(node, axes).await
    }

    /// Returns the texts, records and sequences of an array, of which at most one exists.
    async fn values_of(
        &self,
        node: &ViewNode,
        scope: TreeScope,
    ) -> Result<DecodedValues, ContentError> {
        let texts = self.texts_of(node, scope).await?;
        let records = match scope {
            TreeScope::RawSubtree | TreeScope::Subtree => self.records_of(node, scope).await?,
            TreeScope::Group | TreeScope::Table => None,
        };
        let sequences = match scope {
            TreeScope::RawSubtree => self.sequences_of(node).await?,
            _ => None,
        };
        Ok((texts, records, sequences))
    }

    /// Returns the column that a group is, if the budget allows its values; `None` for other groups.
    async fn load_group_column(
        self: &Arc<Self>,
        node: &Arc<ViewNode>,
        budget: &mut TreeBudget,
    ) -> Result<Option<GroupColumn>, ContentError> {
        let Some(mut column) = self.group_column(node).await? else {
            return Ok(None);
        };
        let values = column.values.as_ref();
        let bytes = values.map_or(0, |values| values.memory_bytes());
        match budget.bytes.checked_sub(bytes as u64) {
            Some(left) => budget.bytes = left,
            None => column.values = Err("too much text for one file".into()),
        }
        Ok(Some(column))
    }

    /// Returns the group whose arrays are the columns of the table of a group, or of an array in it.
    ///
    /// # Errors
    /// As [`Nodes::group_tree`].
    pub(in crate::view) async fn table_tree(
        self: &Arc<Self>,
        node: &Arc<ViewNode>,
    ) -> Result<GroupTree, ContentError> {
        if !node.is_array() {
            return self.group_tree(node, TreeScope::Table).await;
        }
        if !node.key().is_root() {
            let group = self.node(&node.key().parent()).await?;
            return self.group_tree(&group, TreeScope::Table).await;
        }
        let mut budget = self.budget(true);
        let array = self.load_array(Arc::clone(node), TreeScope::Table, false, &mut budget);
        Ok(GroupTree::of_arrays(node, vec![array.await?]))
    }

    /// Returns a group or an array with all stored chunks that HDF5 can read unchanged. An array comes with
    /// the arrays of its group that are the coordinates of its dimensions.
    ///
    /// # Errors
    /// As [`Nodes::group_tree`].
    pub(in crate::view) async fn stored_tree(
        self: &Arc<Self>,
        node: &Arc<ViewNode>,
    ) -> Result<GroupTree, ContentError> {
        let mut tree = match node.metadata() {
            Node::Group(_) => self.group_tree(node, TreeScope::Subtree).await?,
            Node::Array(_) => self.array_tree(node).await?,
        };
        for array in tree.all_arrays_mut() {
            array.stored = Some(self.stored_chunks(&array.node).await?);
        }
        if node.is_array()
            && let Some(array) = tree
                .arrays
                .iter()
                .find(|array| array.node.key() == node.key())
            && let Some(Err(why)) = &array.stored
        {
            return Err(ContentError::Absent(why.clone()));
        }
        Ok(tree)
    }

    /// Returns whether a group above the node declares a coordinate reference system for arrays below it.
    async fn is_below_crs(&self, node: &ViewNode) -> Result<bool, ContentError> {
        let mut key = node.key().clone();
        for _ in 0..MAX_DEPTH {
            if key.is_root() {
                break;
            }
            key = key.parent();
            let group = self.node_if_present(&key).await?;
            if group.is_some_and(|group| crs_metadata::may_give_crs(&group)) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Returns the grid of an array. Most arrays have no metadata that could describe one.
    async fn grid_of(
        self: &Arc<Self>,
        node: &ViewNode,
        has_crs: bool,
    ) -> Result<Option<Arc<Grid>>, ContentError> {
        match node.array_view() {
            Some(view)
                if has_crs || self.options().assume_wgs84 || crs_metadata::may_give_crs(node) =>
            {
                let grid = self
                    .resolve(|nodes| RasterMetadata::grid(&view, nodes))
                    .await?;
                Ok(grid.map(Arc::new))
            }
            _ => Ok(None),
        }
    }

    /// Fails if a group may have nodes that its listing lacks. A file without some variables would be
    /// mistaken for a file with all of them.
    pub(in crate::view) async fn check_names(&self, node: &ViewNode) -> Result<(), ContentError> {
        if self.store().capabilities().listing == ListingSupport::Complete {
            return Ok(());
        }
        match self.store().incomplete_listing(node.key()).await? {
            Some(unknown) => Err(ContentError::Absent(unknown.what)),
            None => Ok(()),
        }
    }

    /// Returns whether a node that was listed does not exist: the names in consolidated metadata can be older than the
    /// source.
    async fn is_gone(&self, node: &ViewNode) -> Result<bool, StoreError> {
        if self.store().capabilities().listing == ListingSupport::Complete {
            return Ok(false);
        }
        match self.store().stat(node.key()).await {
            Err(StoreError::NotFound { .. }) => Ok(true),
            found => found.map(|_| false),
        }
    }

    /// Returns the keys that may be nodes of a group, in order. If there are more than `most`, returns some of
    /// them, which are more than `most`.
    async fn child_keys(&self, node: &ViewNode, most: usize) -> Result<Vec<Key>, StoreError> {
        let names = list_prefixes(&**self.store(), node.key(), most).await?;
        let keys = names.iter().filter_map(|name| node.key().join(name).ok());
        Ok(keys.collect())
    }
}

/// Returns whether the last component of a key can be used in file names.
fn has_text_name(key: &Key) -> bool {
    let name = key.as_bytes().rsplit(|byte| *byte == b'/').next();
    name.is_some_and(|name| std::str::from_utf8(name).is_ok())
}
