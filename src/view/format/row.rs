//! A row of the table of formats, and the constants that rows share.

use super::Renderer;
use crate::conventions::description::Field::{self, *};
use crate::node::ContentError;

/// The file name of a view.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ViewName {
    /// A fixed name, only in the directory of the node's views.
    Own(&'static str),
    /// A fixed name; `<array>.<name>` in the directory of its group.
    Member(&'static str),
    /// `<node><suffix>`.
    Suffix(&'static str),
}

/// The directories that list the files of a format by default. A file that is not listed can be opened by name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Listing {
    /// None. Few nodes need such a format.
    ByName,
    /// The directory of the node's views.
    Views,
    /// The directory of the node's views, and the directory of its group.
    ViewsAndGroup,
}

/// One row of the table.
#[derive(Debug, Clone, Copy)]
pub(super) struct FormatRow {
    /// The name in `--formats`.
    pub(super) name: &'static str,
    /// Other words for the format, as programs and file names have them.
    pub(super) other_words: &'static [&'static str],
    pub(super) file_name: ViewName,
    /// A description of the format in a few words.
    pub(super) description: &'static str,
    /// A command that reads a file of the format, without the file.
    pub(super) command: &'static str,
    /// The suffix of the file that the command reads, if that is another file of the array.
    pub(super) command_suffix: Option<&'static str>,
    pub(super) listing: Listing,
    pub(super) renderer: Renderer,
    /// The fields of descriptions that the files express; `None` if they have no elements of arrays.
    pub(super) expresses: Option<&'static [Field]>,
}

impl FormatRow {
    /// Returns a row of a format that the directory of the node's views lists.
    pub(super) const fn new(
        name: &'static str,
        file_name: ViewName,
        description: &'static str,
        command: &'static str,
        renderer: Renderer,
    ) -> Self {
        Self {
            name,
            other_words: &[],
            file_name,
            description,
            command,
            command_suffix: None,
            listing: Listing::Views,
            renderer,
            expresses: None,
        }
    }

    /// Sets the fields of descriptions that the files express. What a file cannot express of a field that its format
    /// can express is a note of the file.
    pub(super) const fn expressing(mut self, fields: &'static [Field]) -> Self {
        self.expresses = Some(fields);
        self
    }

    /// Sets other words for the format.
    pub(super) const fn also_called(mut self, words: &'static [&'static str]) -> Self {
        self.other_words = words;
        self
    }

    /// Sets the suffix of the file that the command reads, which is another file of the array.
    pub(super) const fn read_through(mut self, suffix: &'static str) -> Self {
        self.command_suffix = Some(suffix);
        self
    }

    /// Sets the directories that list the files by default.
    pub(super) const fn listed(mut self, listing: Listing) -> Self {
        self.listing = listing;
        self
    }
}

/// The metadata of GDAL.
pub(super) const GDAL: &[Field] = &[
    Coordinates,
    Missing,
    Packing,
    HeaderPacking,
    ValueUnits,
    ReferenceSystem,
];

/// A command that reads JSON documents.
pub(super) const JSON_TOOL: &str = "python3 -m json.tool";

/// Returns the result of a check that proves whether a file exists.
pub(super) fn proven(checked: Result<(), String>) -> Result<bool, ContentError> {
    Ok(checked.map(|()| true)?)
}
