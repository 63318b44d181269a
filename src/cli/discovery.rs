//! The commands that list and find views, and `run`.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::Args;

use super::{MountOptions, SourceArgs};

/// `zarrfs views MOUNT|SOURCE [KEY]`.
#[derive(Debug, Args)]
pub struct ViewsArgs {
    /// The source, or a directory of a mount
    #[command(flatten)]
    pub source: SourceArgs,
    /// A group or an array [default: the root]
    #[arg(value_name = "KEY", conflicts_with = "path")]
    pub key: Option<OsString>,
    /// Print one JSON document instead of a list
    #[arg(long)]
    pub json: bool,
}

/// `zarrfs path MOUNT [KEY] --as FORMAT`.
#[derive(Debug, Args)]
pub struct PathArgs {
    /// A directory of a mount
    #[arg(value_name = "MOUNT")]
    pub mount: PathBuf,
    /// A group or an array [default: the root]
    #[arg(value_name = "KEY")]
    pub key: Option<OsString>,
    /// The format of the view, such as nc, tif, npy, chunks or as-v2
    #[arg(long = "as", value_name = "FORMAT")]
    pub format: String,
}

/// `zarrfs run SOURCE [OPTIONS] -- COMMAND...`.
#[derive(Debug, Args)]
#[command(after_help = PLACEHOLDERS)]
pub struct RunArgs {
    /// The source, as for `zarrfs mount`
    pub source: PathBuf,
    /// All options of mount.
    #[command(flatten)]
    pub options: MountOptions,
    /// The command and its arguments; placeholders such as {nc} become paths of the mount
    #[arg(last = true, required = true, value_name = "COMMAND")]
    pub command: Vec<OsString>,
}

/// The help text of the placeholders of `run`.
const PLACEHOLDERS: &str = "In COMMAND and each of its arguments:
  {path}         the directory on which the source is mounted
  {views}        the directory of the views of the root
  {FORMAT}       the view of the root in a format: {nc}, {npy}, {as-v2}
  {NAME}         a view by its name: {sst.tif}, or {GROUP/NAME} for one of a group
  {{ and }}      the characters { and }

Examples:
  zarrfs run ocean.zarr -- ncdump -h {nc}
  zarrfs run s3://bucket/ocean.zarr --anonymous -- gdalinfo {sst.tif}
  zarrfs run ocean.zarr -- sh -c 'ls \"$1\" | wc -l' sh {path}

The exit code is that of COMMAND, 128+N if the signal N has ended it, 126 or 127 if it cannot be
started, and 125 if zarrfs itself fails.";
