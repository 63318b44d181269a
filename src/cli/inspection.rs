//! The commands that read a source or a running mount.

use std::ffi::{OsStr, OsString};
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};
use clap_complete::Shell;

use super::{RemoteArgs, TargetArgs};
use crate::inspect::Part;
use crate::store::Key;
use crate::units::{parse_memory_limit, parse_timeout};
use crate::view::Format;

/// The source of a command.
#[derive(Debug, Clone, Args)]
pub struct SourceArgs {
    /// A directory with a Zarr hierarchy, a zip archive or a database of one, an Icechunk repository,
    /// references to a hierarchy, or `demo:` for the store inside the binary
    pub source: PathBuf,
    /// Read only the part of the hierarchy below this key
    #[arg(long, value_name = "KEY")]
    pub path: Option<OsString>,
    /// Follow symbolic links that lead out of a source directory
    #[arg(hide_short_help = true, long)]
    pub follow_symlinks: bool,
    /// The branch, tag or snapshot of an Icechunk repository [default: main]
    #[arg(hide_short_help = true, long = "ref", value_name = "NAME")]
    pub reference: Option<String>,
    /// Options for references.
    #[command(flatten)]
    pub targets: TargetArgs,
    /// Options for remote sources.
    #[command(flatten)]
    pub remote: RemoteArgs,
}

/// Returns the key that an argument names. Slashes around it are ignored.
///
/// # Errors
/// The argument, and why it is no key.
pub fn key_of(argument: &OsStr) -> Result<Key, String> {
    let bytes = argument.as_encoded_bytes();
    let is_name = |byte: &u8| *byte != b'/';
    let first = bytes.iter().position(is_name).unwrap_or(bytes.len());
    let last = bytes
        .iter()
        .rposition(is_name)
        .map_or(first, |last| last + 1);
    let key = Key::new(bytes.get(first..last).unwrap_or_default());
    key.map_err(|error| format!("{}: {error}", argument.display()))
}

impl SourceArgs {
    /// Returns the key after the source, or else that of `--path`.
    pub(super) fn path_or<'a>(&'a self, key: &'a Option<OsString>) -> &'a Option<OsString> {
        match key {
            Some(_) => key,
            None => &self.path,
        }
    }

    /// Returns the source with `key` as its path, if it is given.
    #[must_use]
    pub fn at(&self, key: &Option<OsString>) -> Self {
        Self {
            path: self.path_or(key).clone(),
            ..self.clone()
        }
    }
}

/// `zarrfs tree SOURCE [KEY]`.
#[derive(Debug, Args)]
pub struct TreeArgs {
    /// The source.
    #[command(flatten)]
    pub source: SourceArgs,
    /// A group or an array, such as `air/temp`; the same as --path
    #[arg(value_name = "KEY", conflicts_with = "path")]
    pub key: Option<OsString>,
    /// Levels to show below the first node; 0 shows that node alone [default: all]
    #[arg(long, value_name = "N")]
    pub depth: Option<usize>,
    /// Print one JSON document instead of a tree
    #[arg(long)]
    pub json: bool,
}

/// `zarrfs info SOURCE [KEY]`.
#[derive(Debug, Args)]
pub struct InfoArgs {
    /// The source.
    #[command(flatten)]
    pub source: SourceArgs,
    /// A group or an array, such as `air/temp`; the same as --path
    #[arg(value_name = "KEY", conflicts_with = "path")]
    pub key: Option<OsString>,
    /// Print one JSON document instead of lines
    #[arg(long)]
    pub json: bool,
    /// Also show a picture of the array or image (its `.png` view) on the terminal; for a group, those of its
    /// arrays
    #[arg(long, value_name = "PROTOCOL", num_args = 0..=1, require_equals = true,
        default_missing_value = "auto", conflicts_with = "json")]
    pub preview: Option<PreviewProtocol>,
}

/// How a terminal gets a picture.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum PreviewProtocol {
    /// The best of these that the terminal says it has; nothing is written to a pipe.
    Auto,
    /// The graphics protocol of kitty.
    Kitty,
    /// Inline images of iTerm2.
    Iterm,
    /// Sixel graphics.
    Sixel,
    /// Half blocks as text in colours.
    Blocks,
}

/// `zarrfs check SOURCE [KEY]`.
#[derive(Debug, Args)]
pub struct CheckArgs {
    /// The source.
    #[command(flatten)]
    pub source: SourceArgs,
    /// A group or an array, such as `air/temp`; the same as --path
    #[arg(value_name = "KEY", conflicts_with = "path")]
    pub key: Option<OsString>,
    /// Check only part I of N of the keys; N processes, one for each I, check all of them
    #[arg(long, value_name = "I/N")]
    pub part: Option<Part>,
    /// Add up the JSON documents of all parts, which are given instead of a source
    #[arg(long, conflicts_with_all = ["part", "path"])]
    pub merge: bool,
    /// More results of parts.
    #[arg(hide = true, requires = "merge")]
    pub more_results: Vec<PathBuf>,
    /// Chunks to decode at the same time [default: one per core, at least 16 for a
    /// remote source]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub jobs: Option<u16>,
    /// Fail also if something cannot be decoded or listed, or if an archive hides entries
    #[arg(long)]
    pub strict: bool,
    /// Memory limit for all decoding together [default: 1/2 of the memory]
    #[arg(long, value_name = "SIZE", value_parser = parse_memory_limit)]
    pub memory_limit: Option<u64>,
    /// Print one JSON document instead of lines
    #[arg(long)]
    pub json: bool,
}

/// `zarrfs export SOURCE[:KEY] FILE`.
#[derive(Debug, Clone, Args)]
pub struct ExportArgs {
    /// The source; `SOURCE:KEY` is `SOURCE --path KEY`.
    #[command(flatten)]
    pub source: SourceArgs,
    /// The file to write, whose suffix chooses the format, such as `ocean.nc`; `-` is standard output
    pub file: PathBuf,
    /// The file, if the argument before it is a key, as in other commands.
    #[arg(hide = true, conflicts_with = "path")]
    pub file_after_key: Option<PathBuf>,
    /// The format, such as nc, tif or npy [default: that of the suffix of FILE]
    #[arg(long = "as", value_name = "FORMAT")]
    pub format: Option<Format>,
    /// Replace an existing file
    #[arg(long)]
    pub overwrite: bool,
    /// Continue an export that was interrupted; the source must not have changed since
    #[arg(long)]
    pub resume: bool,
    /// Write only part I of N of the file; N processes, one for each I, write all of it
    #[arg(long, value_name = "I/N", conflicts_with = "resume")]
    pub part: Option<Part>,
    /// Print one JSON document that describes the file
    #[arg(long)]
    pub json: bool,
    /// Assume WGS 84 in a raster or NetCDF file: EPSG:4326 for latitudes and longitudes in degrees if no
    /// metadata name a system, its figure of the Earth for a grid mapping without one
    #[arg(long)]
    pub assume_wgs84: bool,
    /// Memory limit [default: 1/2 of the memory]
    #[arg(long, value_name = "SIZE", value_parser = parse_memory_limit)]
    pub memory_limit: Option<u64>,
}

/// `zarrfs stats [MOUNTPOINT]`.
#[derive(Debug, Args)]
pub struct StatsArgs {
    /// The mountpoint [default: all mounts whose metrics this user may read]
    pub mountpoint: Option<PathBuf>,
    /// Print the metrics again after each TIME, with the rates since the time before
    #[arg(long, value_name = "TIME", num_args = 0..=1, require_equals = true,
        default_missing_value = "2s", value_parser = parse_timeout)]
    pub watch: Option<Duration>,
    /// Print one JSON document instead of text; with --watch one on each line
    #[arg(long)]
    pub json: bool,
    /// Print the text format of Prometheus; a mount whose daemon does not answer has zarrfs_up 0
    #[arg(long, conflicts_with_all = ["watch", "json"])]
    pub prometheus: bool,
}

/// `zarrfs completions SHELL`.
#[derive(Debug, Args)]
pub struct CompletionsArgs {
    /// The shell
    pub shell: Shell,
}

/// `zarrfs __complete -- WORD...`.
#[derive(Debug, Args)]
pub struct CompleteArgs {
    /// The words have the quotes and backslashes of a shell
    #[arg(long)]
    pub quoted: bool,
    /// The command line up to the cursor; the last word is completed
    #[arg(last = true, required = true)]
    pub words: Vec<OsString>,
}

/// `zarrfs man [PAGE]`.
#[derive(Debug, Args)]
pub struct ManArgs {
    /// A command, a topic of the manual, or a page, such as zarrfs-views.7 [default: zarrfs itself]
    pub page: Option<String>,
    /// List the file names of all pages
    #[arg(long, conflicts_with = "page")]
    pub list: bool,
}
