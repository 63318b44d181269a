//! The nodes of a group, for completions.

use std::path::Path;
use std::time::Duration;

use super::Failure;
use super::node::{self, NodeState};
use crate::cli::DEMO;
use crate::hierarchy::KEY_CLASSES;
use crate::runtime::block_on;
use crate::store::{
    DatabaseOptions, Key, OpenOptions, SourceName, Store, list_prefixes, open_demo,
};
use crate::zarr::Node;

/// The largest number of nodes that are returned.
const MAX_CHILDREN: usize = 1_000;
/// The time to wait for a locked database.
const LOCK_WAIT: Duration = Duration::from_millis(500);

/// Returns the names of the nodes in a group of a local source; names of groups end with `/`. For a
/// remote source, the result is empty, because a completion must not wait for the network.
///
/// # Errors
/// If the source cannot be opened or listed.
pub fn child_nodes(source: &Path, group: &str) -> Result<Vec<String>, Failure> {
    block_on(children(source, group))
}

async fn children(source: &Path, group: &str) -> Result<Vec<String>, Failure> {
    let options = OpenOptions {
        database: DatabaseOptions {
            timeout: LOCK_WAIT,
            ..DatabaseOptions::default()
        },
        classes: KEY_CLASSES,
        ..OpenOptions::default()
    };
    let (store, base) = if source == Path::new(DEMO) {
        (open_demo(&options)?, Key::root())
    } else {
        let name = SourceName::parse(source)?;
        if name.path().is_none() {
            return Ok(Vec::new());
        }
        (name.open(&options).await?, name.root().clone())
    };
    let group = base.join_key(&Key::new(group.trim_matches('/').as_bytes())?);
    if is_array(&*store, &group).await {
        return Ok(Vec::new());
    }
    let mut children = Vec::new();
    for name in list_prefixes(&*store, &group, MAX_CHILDREN).await? {
        let suffix = match is_array(&*store, &group.join(&name)?).await {
            true => "",
            false => "/",
        };
        // Names that are not text cannot be typed.
        children.extend(String::from_utf8(name).ok().map(|name| name + suffix));
    }
    Ok(children)
}

async fn is_array(store: &dyn Store, key: &Key) -> bool {
    match node::read(store, key).await.state {
        NodeState::Node(node) => matches!(*node, Node::Array(_)),
        _ => false,
    }
}
