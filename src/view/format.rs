//! The table of view formats: name, kind of node, and the pure function that renders it.
//!
//! Each format is a module with its `ROWS`, its header code and its tests. A new format is such a module, and a line in
//! `format/table.rs`.

mod bgen;
mod bin;
mod chunks;
mod classic_netcdf;
pub(super) mod csv;
mod envi;
mod fits;
pub(super) mod format_set;
mod genotypes;
mod geotiff;
mod h5ad;
pub(super) mod image_stack;
mod imagej;
pub(super) mod json;
pub(super) mod metadata;
mod mrc;
pub(super) mod netcdf4;
mod nifti;
mod npy;
mod nrrd;
mod ome_tiff;
pub(super) mod packed;
mod parquet;
pub(super) mod plain_hdf5;
mod plink;
pub(super) mod png;
mod raw_data;
mod row;
mod table;
mod vrt;

use futures_util::future::BoxFuture;

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use self::metadata::readme::shell_quoted;
use self::row::{FormatRow, Listing, ViewName};
use self::table::TABLE;
use super::file::layout::VirtualFile;
use super::file::nodes::Nodes;
use super::group::tree::{GroupTree, TreeScope};
use crate::conventions::description::Field;
use crate::node::{ArrayView, ContentError, NodeResolver, ViewNode};
use crate::translate::{RenderHierarchy, Target};
use crate::units::nearest;

/// Separates the name of the node and the suffix if a group or another file has the plain name.
pub const ESCAPE: &str = "~view";

/// A view format: the index of its row in the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Format(u8);

/// A function that fails if the metadata of the nodes of a group do not prove that the group has a file.
pub(super) type CheckFile =
    for<'a> fn(&'a Arc<Nodes>, &'a Arc<ViewNode>) -> BoxFuture<'a, Result<(), ContentError>>;

/// A function that reads nodes and elements of a group, and returns a file of them.
pub(super) type LoadFile = for<'a> fn(
    &'a Arc<Nodes>,
    &'a Arc<ViewNode>,
) -> BoxFuture<'a, Result<VirtualFile, ContentError>>;

/// The function that renders a format, by kind of node.
#[derive(Debug, Clone, Copy)]
pub enum Renderer {
    /// A text of any node.
    Node(fn(&ViewNode) -> Result<Vec<u8>, String>),
    /// The list of the views of a node, with diagnostics.
    Readme,
    /// The list of views as JSON.
    ViewList,
    /// The elements of variable length as text.
    Elements,
    /// A directory of chunks.
    Chunks,
    /// A directory of inner chunks.
    Inner,
    /// A file of an array that depends only on its own metadata.
    Array(fn(&ArrayView<'_>) -> Result<VirtualFile, String>),
    /// A file of an array and other nodes. The first function returns whether metadata alone prove that the
    /// second one succeeds.
    ArrayWithNodes(
        fn(&ArrayView<'_>, &dyn NodeResolver) -> Result<bool, ContentError>,
        fn(&ArrayView<'_>, &dyn NodeResolver) -> Result<VirtualFile, ContentError>,
    ),
    /// A file of an array and other nodes. Only rendering tells whether it exists.
    UncheckedArray(fn(&ArrayView<'_>, &dyn NodeResolver) -> Result<VirtualFile, ContentError>),
    /// A file of an array, or of a group that is an image of OME-NGFF.
    Image(fn(&ViewNode, &dyn NodeResolver) -> Result<VirtualFile, ContentError>),
    /// A file of the stored chunks of an array. The first function fails if metadata do not prove it exists.
    StoredArray(
        fn(&ArrayView<'_>, &dyn NodeResolver) -> Result<(), ContentError>,
        fn(&ArrayView<'_>, &dyn NodeResolver) -> Result<VirtualFile, ContentError>,
    ),
    /// A file of the stored chunks of an array, or of a group and all groups below it.
    StoredChunks(fn(&GroupTree) -> Result<VirtualFile, String>),
    /// A text of a group and the documents of all nodes below it.
    Hierarchy(RenderHierarchy),
    /// A file of the arrays of a group, or of all nodes below it. The first function returns whether metadata
    /// alone prove that an array is a variable of the file. The second one renders the file if any array is a
    /// variable.
    Group(
        TreeScope,
        fn(&ViewNode) -> bool,
        fn(&GroupTree) -> Result<VirtualFile, String>,
    ),
    /// A file of a group and all groups below it, or of an array with its coordinates. The functions are those of
    /// `Group`.
    Variables(
        fn(&ViewNode) -> bool,
        fn(&GroupTree) -> Result<VirtualFile, String>,
    ),
    /// A table of the arrays of a group: of a group, or, along its own dimension, of an array with one axis. The
    /// first function returns whether metadata alone prove that an array is a column.
    Table(
        fn(&ViewNode) -> bool,
        fn(&GroupTree, Option<&ViewNode>) -> Result<VirtualFile, String>,
    ),
    /// A file of a group for which the first function returns true. The second one fails if metadata do not prove
    /// that it exists. The third one reads the nodes and elements that the file needs.
    Loaded(fn(&ViewNode) -> bool, CheckFile, LoadFile),
    /// A file of all nodes below a group, if the first function returns true for the group.
    GroupOfKind(
        fn(&ViewNode) -> bool,
        fn(&GroupTree) -> Result<VirtualFile, String>,
    ),
}

impl Format {
    /// Returns all formats, in listing order.
    ///
    /// # Examples
    /// ```
    /// use zarrfs::view::Format;
    ///
    /// // A format is called by its name, its suffix or a common word.
    /// let tif: Format = "geotiff".parse()?;
    /// assert_eq!((tif.name(), ".tif".parse()), ("tif", Ok(tif)));
    /// assert!(Format::all().any(|format| format == tif));
    /// // What a description says beside these fields is named in README.txt.
    /// assert!(tif.expresses().is_some_and(|fields| !fields.is_empty()));
    /// # Ok::<_, Box<dyn std::error::Error>>(())
    /// ```
    pub fn all() -> impl Iterator<Item = Self> {
        (0..TABLE.len()).filter_map(|place| u8::try_from(place).ok().map(Self))
    }

    fn row(self) -> &'static FormatRow {
        // Only `all` constructs formats, so the index is valid.
        TABLE.get(usize::from(self.0)).unwrap_or(&TABLE[0])
    }

    /// Returns the name of the format in `--formats`.
    pub fn name(self) -> &'static str {
        self.row().name
    }

    /// Returns the fields of a description that files of the format express; `None` if they have no elements of
    /// arrays.
    pub fn expresses(self) -> Option<&'static [Field]> {
        self.row().expresses
    }

    /// Returns the function that renders the format.
    pub fn renderer(self) -> Renderer {
        self.row().renderer
    }

    /// Returns a number that identifies the format.
    pub fn number(self) -> u8 {
        self.0
    }

    /// Returns whether the format applies to every node.
    pub fn is_of_node(self) -> bool {
        self.is_always_listed() || matches!(self.renderer(), Renderer::ViewList)
    }

    /// Returns whether directories list the format whatever `--formats` says.
    pub(super) fn is_always_listed(self) -> bool {
        matches!(self.renderer(), Renderer::Node(_) | Renderer::Readme)
    }

    /// Returns whether a directory lists the format by default: that of the node's views (`is_of_array`), or that of
    /// the node's group.
    fn is_listed_by_default(self, is_of_array: bool) -> bool {
        match self.row().listing {
            Listing::ByName => false,
            Listing::Views => is_of_array,
            Listing::ViewsAndGroup => true,
        }
    }

    /// Returns whether the format applies to groups.
    pub fn is_of_group(self) -> bool {
        matches!(
            self.renderer(),
            Renderer::Group(..)
                | Renderer::Variables(..)
                | Renderer::GroupOfKind(..)
                | Renderer::Loaded(..)
                | Renderer::Hierarchy(_)
        )
    }

    /// Returns whether the format applies to arrays (`is_array`), or to groups.
    pub fn suits(self, is_array: bool) -> bool {
        let is_of_both = self.is_of_node()
            || self.is_image()
            || matches!(
                self.renderer(),
                Renderer::StoredChunks(_) | Renderer::Table(..) | Renderer::Variables(..)
            );
        is_of_both || self.is_of_group() != is_array
    }

    /// Returns whether the format applies to arrays and to those groups that are images.
    pub fn is_image(self) -> bool {
        matches!(self.renderer(), Renderer::Image(_))
    }

    /// Returns whether no directory lists the format for arrays: each array of a dimension has the same table.
    pub fn is_unlisted(self, is_array: bool) -> bool {
        is_array && matches!(self.renderer(), Renderer::Table(..))
    }

    /// Returns whether the directory of a group lists the format only for the group: its file has the arrays too.
    pub fn is_unlisted_in_group(self) -> bool {
        matches!(
            self.renderer(),
            Renderer::Table(..) | Renderer::Variables(..)
        )
    }

    /// Returns whether the format has stored chunks; the size of each has to be looked up.
    pub fn is_packed(self) -> bool {
        matches!(
            self.renderer(),
            Renderer::StoredArray(..) | Renderer::StoredChunks(_)
        )
    }

    /// Returns whether the format depends on other nodes.
    pub fn is_of_many(self) -> bool {
        self.is_of_group()
            || self.is_packed()
            || matches!(
                self.renderer(),
                Renderer::ArrayWithNodes(..)
                    | Renderer::UncheckedArray(_)
                    | Renderer::Image(_)
                    | Renderer::Table(..)
                    | Renderer::Readme
                    | Renderer::ViewList
            )
    }

    /// Returns whether the size of a file depends on other nodes or on elements, beside the node's metadata.
    pub fn is_costly(self) -> bool {
        self.is_of_many() || matches!(self.renderer(), Renderer::Elements)
    }

    /// Returns whether file names of the format begin with the name of the node.
    pub fn is_named_after_node(self) -> bool {
        matches!(self.row().file_name, ViewName::Suffix(_))
    }

    /// Returns whether the format is a directory.
    pub fn is_directory(self) -> bool {
        matches!(self.renderer(), Renderer::Chunks | Renderer::Inner)
    }

    /// Returns the file name in the directory of the views of the node `name`.
    pub fn own_name(self, name: &str) -> String {
        match self.row().file_name {
            ViewName::Own(own) | ViewName::Member(own) => own.into(),
            ViewName::Suffix(suffix) => format!("{name}{suffix}"),
        }
    }

    /// Returns the file name in the directory of the views of a node: with [`ESCAPE`] if another format of
    /// the node has the plain name.
    pub fn unique_name(self, name: &str, is_array: bool) -> String {
        let plain = self.own_name(name);
        let mut formats = Self::all().filter(|format| format.suits(is_array));
        match formats.find(|format| format.own_name(name) == plain) {
            Some(first) if first != self => self.escaped_name(name, ESCAPE),
            _ => plain,
        }
    }

    /// Returns a description of the format in a few words.
    pub(super) fn description(self) -> &'static str {
        self.row().description
    }

    /// Returns a command that reads the file `own_name` of the format; `own_name` may be a path.
    pub fn example(self, own_name: &str) -> String {
        let row = self.row();
        let file = match (row.command_suffix, row.file_name) {
            (Some(other), ViewName::Suffix(suffix)) => {
                let stem = own_name.strip_suffix(suffix).unwrap_or(own_name);
                format!("{stem}{other}")
            }
            _ => own_name.to_owned(),
        };
        format!("{} {}", row.command, shell_quoted(&file))
    }

    /// Returns the file name with `escape` before the suffix, for use when the plain name is taken.
    pub fn escaped_name(self, name: &str, escape: &str) -> String {
        match self.row().file_name {
            ViewName::Own(own) | ViewName::Member(own) => {
                let (stem, suffix) = own.split_at(own.rfind('.').unwrap_or(own.len()));
                format!("{stem}{escape}{suffix}")
            }
            ViewName::Suffix(suffix) => format!("{name}{escape}{suffix}"),
        }
    }

    /// Returns the file name in the directory of a group, for the node `name`; `None` if only the directory
    /// of the node's views has the file.
    pub fn name_beside(self, name: &str) -> Option<String> {
        match self.row().file_name {
            ViewName::Own(_) => None,
            ViewName::Member(word) => Some(format!("{name}.{word}")),
            ViewName::Suffix(suffix) => Some(format!("{name}{suffix}")),
        }
    }

    /// Returns what a name in a directory of views can mean, in the order of the table.
    pub fn parse_name(name: &[u8]) -> impl Iterator<Item = ParsedName<'_>> {
        Self::all().filter_map(move |format| {
            let subject = match format.row().file_name {
                ViewName::Own(own) => fixed(own, name)?,
                ViewName::Member(word) => fixed(word, name).or_else(|| {
                    let stem = name.strip_suffix(word.as_bytes())?.strip_suffix(b".")?;
                    (!stem.is_empty()).then_some(Subject::Member(stem))
                })?,
                ViewName::Suffix(suffix) => {
                    let stem = name.strip_suffix(suffix.as_bytes())?;
                    (!stem.is_empty()).then_some(Subject::Node(stem))?
                }
            };
            Some(ParsedName { format, subject })
        })
    }

    /// Returns the nodes and formats that a name in the directory of a group can mean.
    pub fn parse_beside(name: &[u8]) -> impl Iterator<Item = (&[u8], Self)> {
        Self::parse_name(name).filter_map(|name| Some((name.beside(false)?, name.format)))
    }
}

/// Parses the name of a file that is the same for every node, with [`ESCAPE`] or without.
fn fixed<'a>(own: &str, name: &'a [u8]) -> Option<Subject<'a>> {
    if name == own.as_bytes() {
        return Some(Subject::Fixed { is_escaped: false });
    }
    let (stem, suffix) = own.split_at(own.rfind('.').unwrap_or(own.len()));
    let middle = name.strip_prefix(stem.as_bytes())?;
    let middle = middle.strip_suffix(suffix.as_bytes())?;
    (middle == ESCAPE.as_bytes()).then_some(Subject::Fixed { is_escaped: true })
}

/// One meaning of a name in a directory of views.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ParsedName<'a> {
    /// The format of the file.
    pub format: Format,
    subject: Subject<'a>,
}

/// The node that a name is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Subject<'a> {
    /// The node of the directory, because each node has a file of this name.
    Fixed { is_escaped: bool },
    /// The node of the directory, or one in it, with this name, which may be followed by [`ESCAPE`].
    Node(&'a [u8]),
    /// A node in the group of the directory.
    Member(&'a [u8]),
}

impl<'a> ParsedName<'a> {
    /// Returns whether this is the file of the node of the directory, which is named `node`; with [`ESCAPE`] if
    /// `is_escaped`.
    pub fn is_own(&self, node: &str, is_escaped: bool) -> bool {
        match self.subject {
            Subject::Fixed { is_escaped: has } => has == is_escaped,
            Subject::Node(_) => self.stem(is_escaped, false) == Some(node.as_bytes()),
            Subject::Member(_) => false,
        }
    }

    /// Returns the name of the node in the group of the directory whose file this can be; with [`ESCAPE`] if
    /// `is_escaped`.
    pub fn beside(&self, is_escaped: bool) -> Option<&'a [u8]> {
        self.stem(is_escaped, true)
    }

    fn stem(&self, is_escaped: bool, with_members: bool) -> Option<&'a [u8]> {
        let stem = match self.subject {
            Subject::Node(stem) => stem,
            Subject::Member(stem) if with_members => stem,
            Subject::Fixed { .. } | Subject::Member(_) => return None,
        };
        match is_escaped {
            true => stem.strip_suffix(ESCAPE.as_bytes()),
            false => Some(stem),
        }
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Format {
    type Err = String;

    /// Parses the name of a format, its suffix, or another word for it.
    fn from_str(name: &str) -> Result<Self, String> {
        let word = name.trim_start_matches('.').to_ascii_lowercase();
        let mut all = Self::all();
        let named = all.find(|format| format.row().other_words.iter().any(|other| *other == word));
        let word = named.map_or(&*word, |format| format.name());
        let mut found = Self::all().filter(|format| format.name() == word);
        let mut by_suffix = Self::all().filter(|format| match format.row().file_name {
            ViewName::Own(own) | ViewName::Member(own) => own.eq_ignore_ascii_case(word),
            ViewName::Suffix(suffix) => suffix.strip_prefix('.') == Some(word),
        });
        found.next().or_else(|| by_suffix.next()).ok_or_else(|| {
            let translations = Target::ALL.iter().map(|target| target.name());
            let names: Vec<&str> = Self::all().map(Self::name).chain(translations).collect();
            let others = Self::all().flat_map(|format| format.row().other_words.iter().copied());
            let near = nearest(word, names.iter().copied().chain(others));
            let near = near.map(|near| format!("did you mean `{near}`? "));
            format!(
                "unknown format `{name}`; {}there are {}",
                near.unwrap_or_default(),
                names.join(", ")
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn format(word: &str) -> Format {
        word.parse().unwrap()
    }

    #[test]
    fn a_suffix_names_its_format_and_an_unknown_word_gets_the_nearest_name() {
        for other in Format::all() {
            if let ViewName::Suffix(suffix) = other.row().file_name {
                let word = suffix.trim_start_matches('.');
                let taken = Format::all().any(|it| it != other && it.name() == word);
                assert!(taken || format(word) == other, "{suffix}");
                assert!(taken || format(suffix) == other, "{suffix}");
            }
        }
        for own in Format::all() {
            for word in own.row().other_words {
                assert_eq!(format(word), own, "{word}");
            }
        }
        let error = "parqet".parse::<Format>().unwrap_err();
        assert!(error.contains("did you mean `parquet`?"), "{error}");
        let error = "nothing-near".parse::<Format>().unwrap_err();
        assert!(!error.contains("did you mean"), "{error}");
    }

    #[test]
    fn names_parse_as_they_are_printed() {
        for format in Format::all() {
            assert_eq!(format.name().parse(), Ok(format));
            let Some(name) = format.name_beside("a.b") else {
                assert!(matches!(format.row().file_name, ViewName::Own(_)));
                continue;
            };
            let mut parsed = Format::parse_name(name.as_bytes());
            let is_it = |found: ParsedName<'_>| {
                found.format == format && found.beside(false) == Some(b"a.b")
            };
            assert!(parsed.any(is_it), "{name}");
        }
        for name in ["npy", ".npy", "a.exe", "a", "", "a.info", "a.Npy"] {
            assert_eq!(Format::parse_name(name.as_bytes()).count(), 0, "{name}");
        }
    }

    #[test]
    fn a_name_is_parsed_as_the_own_names_of_formats_are_made() {
        for format in Format::all() {
            for (name, is_escaped) in [
                (format.own_name("a.b"), false),
                (format.escaped_name("a.b", ESCAPE), true),
            ] {
                let mut parsed = Format::parse_name(name.as_bytes());
                let is_it = |found: ParsedName<'_>| {
                    found.format == format && found.is_own("a.b", is_escaped)
                };
                assert!(parsed.any(is_it), "{name}");
                let mut parsed = Format::parse_name(name.as_bytes());
                assert!(
                    !parsed.any(|found| found.is_own("a.b", !is_escaped)),
                    "{name}"
                );
            }
        }
    }

    #[test]
    fn an_example_reads_a_file_by_its_name() {
        for (word, expected) in [
            ("nc", "ncdump -h 'a b.nc'"),
            ("hdr", "gdalinfo 'a b.bin'"),
            ("aux", "gdalinfo 'a b.tif'"),
            ("chunks", "ls chunks"),
        ] {
            let format = format(word);
            assert_eq!(format.example(&format.own_name("a b")), expected);
        }
    }

    #[test]
    fn escaped_names_differ_from_plain_ones() {
        for (word, expected) in [
            ("attributes", "attributes~view.json"),
            ("zmetadata", "~view.zmetadata"),
            ("cdf", "a.b~view.cdf.nc"),
            ("json", "a.b~view.json"),
            ("chunks", "chunks~view"),
            ("views", "views~view.json"),
        ] {
            assert_eq!(format(word).escaped_name("a.b", "~view"), expected);
        }
    }

    #[test]
    fn two_formats_of_a_node_never_have_one_name() {
        assert_eq!(format("json").unique_name("info", true), "info~view.json");
        assert_eq!(format("info").unique_name("info", true), "info.json");
        assert_eq!(format("json").unique_name("views", true), "views~view.json");
        assert_eq!(format("json").unique_name("zom", true), "zom.json");
    }
}
