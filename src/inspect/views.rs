//! The list of the views of a node, read from a source without a mount.

use std::ffi::OsStr;
use std::sync::Arc;

use serde_json::Value;

use super::{Failure, OpenedSource, default_memory_limit_bytes, engine};
use crate::cli::{SourceArgs, key_of};
use crate::runtime::block_on;
use crate::units::FOREVER;
use crate::view::{Format, FormatSet, Nodes, NodesOptions, Renderer, ViewFile};

/// Returns the content of `views.json` of the node at `key`, as a mount of the source has it.
///
/// # Errors
/// If the source cannot be opened, or does not have the node.
pub fn view_list(source: &SourceArgs, key: &OsStr) -> Result<Value, Failure> {
    block_on(read(source, key))
}

async fn read(source: &SourceArgs, key: &OsStr) -> Result<Value, Failure> {
    let limit = default_memory_limit_bytes();
    let opened = OpenedSource::with_hierarchy(source, limit).await?;
    let key = opened.root.join_key(&key_of(key)?);
    let label = opened.store.label();
    let missing = |error| format!("{label}: {error}");
    opened.store.stat(&key).await.map_err(missing)?;
    opened.check_collection(&key).await?;
    let options = NodesOptions {
        root: opened.root.clone(),
        formats: FormatSet::default(),
        ttl: FOREVER.into(),
        assume_wgs84: false,
    };
    let store = Arc::clone(&opened.store);
    let nodes = Arc::new(Nodes::new(store, Arc::new(engine(limit)?), options));
    let node = nodes.node(&key).await?;
    let is_list = |format: &Format| matches!(format.renderer(), Renderer::ViewList);
    let format = Format::all().find(is_list).ok_or("no list of views")?;
    let content = nodes.content(&node, format).await;
    let content = content.map_err(|none| none.into_error(&key))?;
    let file = ViewFile::of(&nodes, &node, content).ok_or("no list of views")?;
    let file = Arc::new(file).open().await?;
    let size = usize::try_from(file.size_bytes())?;
    let data = file.read(0, size).await?;
    Ok(serde_json::from_slice(data.bytes(&[])?)?)
}
