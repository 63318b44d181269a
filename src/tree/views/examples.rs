//! Names of views for the mount report.

use std::sync::Arc;

use super::ViewTree;
use crate::node::ViewNode;
use crate::store::list_prefixes;
use crate::view::{Format, Renderer};

/// The largest number of nodes of the root that are examined.
const MAX_NODES: usize = 16;

impl ViewTree {
    /// Returns names of views of the root and of one array in it, preferably of an array with a `.tif` view.
    pub(super) async fn examples(&self) -> Vec<String> {
        let Ok(root) = self.nodes.node(&self.root).await else {
            return Vec::new();
        };
        if root.is_array() {
            return self.names_of(&root, &["tif", "npy"]).await;
        }
        let mut names = Vec::new();
        let listed = list_prefixes(&**self.nodes.store(), &self.root, MAX_NODES).await;
        let mut of_first = Vec::new();
        for name in listed.unwrap_or_default() {
            let child = self.child(&root, &name).await.ok().flatten();
            let Some(child) = child.filter(|child| child.is_array()) else {
                continue;
            };
            if names.is_empty() {
                names.extend(group_view(&root, &child));
            }
            let of_array = self.names_of(&child, &["tif", "npy"]).await;
            if of_array.len() > 1 {
                names.extend(of_array);
                return names;
            }
            if of_first.is_empty() {
                of_first = of_array;
            }
        }
        names.extend(of_first);
        names
    }

    /// Returns the names of the formats in `words` that a node has.
    async fn names_of(&self, node: &Arc<ViewNode>, words: &[&str]) -> Vec<String> {
        let mut names = Vec::new();
        for format in words.iter().filter_map(|word| word.parse::<Format>().ok()) {
            if self.nodes.check(node, format).await.is_ok() {
                names.push(format.own_name(node.name()));
            }
        }
        names
    }
}

/// Returns the name of a group's NetCDF file, if an array in it is certainly one of its variables.
fn group_view(group: &ViewNode, array: &ViewNode) -> Option<String> {
    let format = "nc".parse::<Format>().ok()?;
    match format.renderer() {
        Renderer::Variables(metadata_prove, _) if metadata_prove(array) => {
            Some(format.own_name(group.name()))
        }
        _ => None,
    }
}
