//! Gathers the input of a file: the nodes below a group, and the elements that it needs.

use std::sync::Arc;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;

use super::branch::{Depth, GroupArray, GroupTree};
use super::content::NoContent;
use super::dataset::MAX_DIMENSIONS;
use super::georef::grid::Grid;
use super::georef::{RasterMetadata, crs_metadata};
use super::group_column::GroupColumn;
use super::node::{Elements, ViewNode};
use super::nodes::Nodes;
use crate::store::{Key, ListingSupport, StoreError, list_prefixes};
use crate::zarr::{Array, Node};

/// The maximum number of nodes below a group.
const MAX_NODES: usize = 4096;
/// The maximum memory of their metadata and texts, in bytes.
const MAX_BYTES: u64 = 256 << 20;
/// The maximum depth of nested groups.
const MAX_DEPTH: usize = 64;
/// The maximum number of remote nodes that are read to find out whether there is any array.
const MAX_LOOKED_AT: usize = 256;
/// The maximum size of the arrays of one file, in bytes, for which metadata alone prove that the file exists.
/// Gaps and wider numbers cannot bring such a file to the size limit.
const MAX_CERTAIN_BYTES: u64 = 1 << 58;

/// The remaining budget of one file.
#[derive(Debug)]
struct Room {
    nodes: usize,
    bytes: u64,
    /// The maximum of a single node, in bytes.
    node_bytes: u64,
    /// Whether elements (texts and coordinates) are read.
    has_elements: bool,
}

impl Room {
    /// Takes one node, or memory for its content, from the budget.
    fn take(&mut self, bytes: u64) -> Result<(), NoContent> {
        let nodes = self.nodes.checked_sub(1).ok_or_else(|| {
            NoContent::Absent(format!("more than {MAX_NODES} nodes are below it"))
        })?;
        let left = self.bytes.checked_sub(bytes).ok_or_else(|| {
            NoContent::Absent("metadata below it are too long for one file".into())
        })?;
        (self.nodes, self.bytes) = (nodes, left);
        Ok(())
    }
}

impl Nodes {
    /// Returns a group with its arrays and, depending on `depth`, all nodes below it.
    ///
    /// # Errors
    /// [`NoContent::Absent`] if one file cannot contain that many nodes; errors of the store.
    pub(super) async fn group_tree(
        self: &Arc<Self>,
        node: &Arc<ViewNode>,
        depth: Depth,
    ) -> Result<GroupTree, NoContent> {
        self.group_tree_with(node, depth, true).await
    }

    /// Returns the budget of one file.
    fn room(&self, has_elements: bool) -> Room {
        let limit = self.engine().memory_limit_bytes();
        let bytes = (limit / 8).min(MAX_BYTES);
        Room {
            nodes: MAX_NODES,
            bytes,
            node_bytes: bytes,
            has_elements,
        }
    }

    async fn group_tree_with(
        self: &Arc<Self>,
        node: &Arc<ViewNode>,
        depth: Depth,
        has_elements: bool,
    ) -> Result<GroupTree, NoContent> {
        let mut room = self.room(has_elements);
        let has_crs = self.is_below_crs(node).await?;
        let mut tree = self.gather(node, depth, 0, has_crs, &mut room).await?;
        if matches!(depth, Depth::Own | Depth::All) {
            self.inherit_coordinates(&mut tree, has_crs, &mut room)
                .await?;
        }
        Ok(tree)
    }

    /// Adds the coordinates of dimensions that have none in the tree, from the nearest group above it: the groups
    /// of an xarray DataTree inherit them.
    async fn inherit_coordinates(
        self: &Arc<Self>,
        tree: &mut GroupTree,
        has_crs: bool,
        room: &mut Room,
    ) -> Result<(), NoContent> {
        let mut inherited = Vec::new();
        for (dimension, length) in tree.without_coordinates() {
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
                    room.take(node.memory_bytes)?;
                    inherited.push(self.gather_array(node, Depth::Own, has_crs, room).await?);
                    break;
                }
            }
        }
        tree.arrays.extend(inherited);
        tree.arrays
            .sort_by(|one, other| one.node.name().cmp(other.node.name()));
        Ok(())
    }

    fn gather<'a>(
        self: &'a Arc<Self>,
        node: &'a Arc<ViewNode>,
        wanted: Depth,
        depth: usize,
        has_crs: bool,
        room: &'a mut Room,
    ) -> BoxFuture<'a, Result<GroupTree, NoContent>> {
        self.gather_level(node, wanted, depth, has_crs, room)
            .boxed()
    }

    async fn gather_level(
        self: &Arc<Self>,
        node: &Arc<ViewNode>,
        wanted: Depth,
        depth: usize,
        has_crs: bool,
        room: &mut Room,
    ) -> Result<GroupTree, NoContent> {
        let has_crs = has_crs || crs_metadata::may_give_crs(node);
        if depth > MAX_DEPTH {
            return Err(NoContent::Absent(format!(
                "more than {MAX_DEPTH} groups inside each other"
            )));
        }
        if let Some(why) = node.broken() {
            return Err(NoContent::Absent(why.to_owned()));
        }
        let mut branch = GroupTree::of_arrays(node, Vec::new());
        // First, so that the names come from the metadata that name all nodes.
        self.check_names(node).await?;
        let children = self.child_keys(node, room.nodes).await?;
        for child in children {
            if !has_text_name(&child) {
                room.take(child.as_bytes().len() as u64)?;
                branch.left_out.push((child, "its name is no UTF-8".into()));
                continue;
            }
            let child = self.node(&child).await?;
            if child.memory_bytes > room.node_bytes {
                room.take(0)?;
                let why = format!(
                    "its metadata take {} bytes of memory, {} are allowed for one file",
                    child.memory_bytes, room.node_bytes
                );
                branch.left_out.push((child.key().clone(), why));
                continue;
            }
            room.take(child.memory_bytes)?;
            if let Some(why) = child.broken() {
                // The nodes below it may be the chunks of an array.
                branch.left_out.push((child.key().clone(), why.to_owned()));
            } else if child.is_array() {
                let array = self.gather_array(child, wanted, has_crs, room).await?;
                branch.arrays.push(array);
            } else if wanted.is_one_group() {
                let column = match room.has_elements && wanted == Depth::Table {
                    true => self.gather_group_column(&child, room).await?,
                    false => None,
                };
                match column {
                    Some(column) => branch.group_columns.push(column),
                    None => branch.groups_left_out.push(child.name().to_owned()),
                }
            } else {
                let group = self
                    .gather(&child, wanted, depth + 1, has_crs, room)
                    .await?;
                let is_empty = group.arrays.is_empty() && group.groups.is_empty();
                match is_empty && child.is_implicit {
                    true => branch.left_out.extend(group.left_out),
                    false => branch.groups.push(group),
                }
            }
        }
        Ok(branch)
    }

    async fn gather_array(
        self: &Arc<Self>,
        node: Arc<ViewNode>,
        wanted: Depth,
        has_crs: bool,
        room: &mut Room,
    ) -> Result<GroupArray, NoContent> {
        let (mut texts, mut records, mut sequences) = (None, None, None);
        let (mut times, mut grid) = (None, None);
        if room.has_elements {
            texts = self.texts_of(&node, wanted).await?;
            match wanted {
                Depth::Raw => {
                    records = self.records_of(&node).await?;
                    sequences = self.sequences_of(&node).await?;
                }
                Depth::Table => times = self.missing_times(&node).await?.map(Arc::new),
                Depth::Own | Depth::All => grid = self.grid_of(&node, has_crs).await?,
            }
        }
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
        match room.bytes.checked_sub(decoded_bytes as u64) {
            Some(left) => room.bytes = left,
            None => {
                let too_much = "too much text for one file";
                texts = texts.map(|_| Err(too_much.into()));
                records = records.map(|_| Err(too_much.into()));
                sequences = sequences.map(|_| Err(too_much.into()));
            }
        }
        let times = times.filter(|times| {
            let left = room.bytes.checked_sub(times.memory_bytes() as u64);
            room.bytes = left.unwrap_or(room.bytes);
            left.is_some()
        });
        Ok(GroupArray {
            node,
            texts,
            records,
            sequences,
            times,
            grid,
            stored: None,
        })
    }

    /// Returns the column that a group is, if its values have room; `None` for other groups.
    async fn gather_group_column(
        self: &Arc<Self>,
        node: &Arc<ViewNode>,
        room: &mut Room,
    ) -> Result<Option<GroupColumn>, NoContent> {
        let Some(mut column) = self.group_column(node).await? else {
            return Ok(None);
        };
        let values = column.values.as_ref();
        let bytes = values.map_or(0, |values| values.memory_bytes());
        match room.bytes.checked_sub(bytes as u64) {
            Some(left) => room.bytes = left,
            None => column.values = Err("too much text for one file".into()),
        }
        Ok(Some(column))
    }

    /// Returns the group whose arrays are the columns of the table of a group, or of an array in it.
    ///
    /// # Errors
    /// As [`Nodes::group_tree`].
    pub(super) async fn table_tree(
        self: &Arc<Self>,
        node: &Arc<ViewNode>,
    ) -> Result<GroupTree, NoContent> {
        if !node.is_array() {
            return self.group_tree(node, Depth::Table).await;
        }
        if !node.key().is_root() {
            let group = self.node(&node.key().parent()).await?;
            return self.group_tree(&group, Depth::Table).await;
        }
        let mut room = self.room(true);
        let array = self.gather_array(Arc::clone(node), Depth::Table, false, &mut room);
        Ok(GroupTree::of_arrays(node, vec![array.await?]))
    }

    /// Returns a group or an array with all stored chunks that HDF5 can read unchanged. An array comes with
    /// the arrays of its group that are the coordinates of its dimensions.
    ///
    /// # Errors
    /// As [`Nodes::group_tree`].
    pub(super) async fn stored_tree(
        self: &Arc<Self>,
        node: &Arc<ViewNode>,
    ) -> Result<GroupTree, NoContent> {
        let mut tree = match node.metadata() {
            Node::Group(_) => self.group_tree(node, Depth::All).await?,
            Node::Array(array) => self.array_tree(node, array).await?,
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
            return Err(NoContent::Absent(why.clone()));
        }
        Ok(tree)
    }

    /// Returns an array and the coordinates of its dimensions.
    async fn array_tree(
        self: &Arc<Self>,
        node: &Arc<ViewNode>,
        array: &Array,
    ) -> Result<GroupTree, NoContent> {
        let has_crs = self.is_below_crs(node).await?;
        let mut nodes = vec![Arc::clone(node)];
        for (name, length) in array.dimension_names.iter().zip(&array.shape) {
            let key = name.as_ref().filter(|_| !node.key().is_root());
            let key = key.and_then(|name| node.key().parent().join(name.as_bytes()).ok());
            let Some(key) = key.filter(|key| nodes.iter().all(|node| node.key() != key)) else {
                continue;
            };
            if let Some(coordinate) = self.node_if_present(&key).await?
                && let Some(view) = coordinate.array_view()
                && view.shape() == [*length]
            {
                nodes.push(coordinate);
            }
        }
        nodes.sort_by(|one, other| one.name().cmp(other.name()));
        let mut room = self.room(true);
        let mut arrays = Vec::with_capacity(nodes.len());
        for node in nodes {
            let array = self.gather_array(node, Depth::All, has_crs, &mut room);
            arrays.push(array.await?);
        }
        Ok(GroupTree::of_arrays(node, arrays))
    }

    /// Returns whether a group above the node declares a coordinate reference system for arrays below it.
    async fn is_below_crs(&self, node: &ViewNode) -> Result<bool, NoContent> {
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
    ) -> Result<Option<Arc<Grid>>, NoContent> {
        match node.array_view() {
            Some(view) if has_crs || crs_metadata::may_give_crs(node) => {
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
    pub(super) async fn check_names(&self, node: &ViewNode) -> Result<(), NoContent> {
        if self.store().capabilities().listing == ListingSupport::Complete {
            return Ok(());
        }
        match self.store().incomplete_listing(node.key()).await? {
            Some(unknown) => Err(NoContent::Absent(unknown.what)),
            None => Ok(()),
        }
    }

    /// Returns the keys that may be nodes of a group, in order. If there are more than `most`, returns some of
    /// them, which are more than `most`.
    async fn child_keys(&self, node: &ViewNode, most: usize) -> Result<Vec<Key>, StoreError> {
        let names = list_prefixes(&**self.store(), node.key(), most).await?;
        let keys = names.iter().filter_map(|name| node.key().join(name).ok());
        Ok(keys.collect())
    }

    /// Returns whether metadata alone prove that a file of a group can be made. `is_certain` returns whether
    /// metadata prove that an array is a variable. No elements are read.
    ///
    /// # Errors
    /// [`NoContent::Absent`] if the file has too many nodes; errors of the store.
    pub(super) async fn has_certain(
        self: &Arc<Self>,
        node: &Arc<ViewNode>,
        depth: Depth,
        is_certain: fn(&ViewNode) -> bool,
    ) -> Result<bool, NoContent> {
        if self.store().capabilities().is_remote {
            // Each node may take a remote request.
            return match self.finds_certain(node, depth, is_certain).await? {
                true => self.check_names(node).await.map(|()| true),
                false => Ok(false),
            };
        }
        let branch = self.group_tree_with(node, depth, false).await?;
        let arrays = branch.all_arrays();
        let views = || arrays.iter().filter_map(|leaf| leaf.node.array_view());
        // Each axis may have its own dimension, and complex parts or characters add one more.
        let dimensions: usize = views().map(|view| view.shape().len() + 1).sum();
        let bytes = views().try_fold(0_u64, |sum, view| {
            sum.checked_add(view.reader.chunk_major_bytes())
        });
        let is_within_limits =
            dimensions <= MAX_DIMENSIONS && bytes.is_some_and(|bytes| bytes <= MAX_CERTAIN_BYTES);
        Ok(is_within_limits && arrays.iter().any(|leaf| is_certain(&leaf.node)))
    }

    /// Returns whether `is_certain` is true for an array in a group, or below it. Also true if the group has
    /// more than [`MAX_LOOKED_AT`] nodes.
    async fn finds_certain(
        &self,
        node: &ViewNode,
        depth: Depth,
        is_certain: fn(&ViewNode) -> bool,
    ) -> Result<bool, StoreError> {
        let mut left = MAX_LOOKED_AT;
        let mut groups = vec![node.key().clone()];
        while let Some(key) = groups.pop() {
            let group = self.node(&key).await?;
            let children = self.child_keys(&group, left).await?;
            for key in children.into_iter().filter(has_text_name) {
                let Some(rest) = left.checked_sub(1) else {
                    return Ok(true);
                };
                left = rest;
                let child = self.node(&key).await?;
                match &child.elements {
                    _ if child.broken().is_some() => {}
                    Elements::None if !depth.is_one_group() => groups.push(key),
                    _ if is_certain(&child) => return Ok(true),
                    _ => {}
                }
            }
        }
        Ok(false)
    }
}

/// Returns whether the last component of a key can be used in file names.
fn has_text_name(key: &Key) -> bool {
    let name = key.as_bytes().rsplit(|byte| *byte == b'/').next();
    name.is_some_and(|name| std::str::from_utf8(name).is_ok())
}
