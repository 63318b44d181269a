//! Directories of decoded chunks. Their files are those of the chunks, and have no header.

use super::Renderer;
use super::row::{FormatRow, ViewName};

/// The rows of the table of formats.
pub(super) const ROWS: &[FormatRow] = &[
    FormatRow::new(
        "chunks",
        ViewName::Member("chunks"),
        "a directory of decoded chunks",
        "ls",
        Renderer::Chunks,
    )
    .expressing(&[]),
    FormatRow::new(
        "inner",
        ViewName::Member("inner"),
        "a directory of the decoded inner chunks of the shards",
        "ls",
        Renderer::Inner,
    )
    .expressing(&[]),
];
