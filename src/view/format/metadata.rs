//! Texts about a node: its attributes, its metadata and the list of its views.

mod hierarchy_findings;
pub(in crate::view) mod readme;
mod stale_copies;
mod view_list;

use super::Renderer;
use super::row::{FormatRow, JSON_TOOL, ViewName};
use crate::node::ViewNode;
use crate::node::pretty;
use crate::translate::{zmetadata_json, zom_json};

/// The rows of the table of formats.
pub(super) const ROWS: &[FormatRow] = &[
    FormatRow::new(
        "attributes",
        ViewName::Own("attributes.json"),
        "the attributes",
        JSON_TOOL,
        Renderer::Node(ViewNode::attributes_text),
    ),
    FormatRow::new(
        "info",
        ViewName::Own("info.json"),
        "the metadata",
        JSON_TOOL,
        Renderer::Node(|node| Ok(pretty(&node.info()))),
    ),
    FormatRow::new(
        "readme",
        ViewName::Own("README.txt"),
        "this list",
        "cat",
        Renderer::Readme,
    ),
    FormatRow::new(
        "views",
        ViewName::Member("views.json"),
        "this list as JSON",
        JSON_TOOL,
        Renderer::ViewList,
    ),
    FormatRow::new(
        "zom",
        ViewName::Own("zom.json"),
        "the metadata of the group and all nodes below it as a Zarr Object Model",
        JSON_TOOL,
        Renderer::Hierarchy(zom_json),
    ),
    FormatRow::new(
        "zmetadata",
        ViewName::Own(".zmetadata"),
        "consolidated metadata of Zarr v2",
        JSON_TOOL,
        Renderer::Hierarchy(zmetadata_json),
    ),
];
