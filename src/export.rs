//! `zarrfs export`: writes one view to a file or to standard output, without a mount.
//!
//! The content goes to a temporary file in the same directory, which is renamed when it is
//! complete. Blocks of zeros become holes.

mod parts;

use std::ffi::{OsStr, OsString};
use std::fs::{File, OpenOptions};
use std::io::{self, IsTerminal, Write};
use std::ops::Range;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::UNIX_EPOCH;

use futures_util::{StreamExt, stream};
use rustix::fs::{CWD, RenameFlags, renameat, renameat_with};
use serde_json::{Map, Value};

use self::parts::PartialFile;
use crate::array::{Engine, EngineOptions};
use crate::cli::{DEMO, ExportArgs};
use crate::inspect::{self, Failure, OpenedSource, Part, Transfer, default_memory_limit_bytes};
use crate::machine::{cores, memory_bytes};
use crate::node::{ContentError, ViewNode};
use crate::runtime::block_on;
use crate::store::{ErrorKind, Object};
use crate::units::FOREVER;
use crate::view::{Format, FormatSet, Nodes, NodesOptions, ViewFile};

/// The size of one read in bytes, and the number of concurrent reads.
const PIECE_BYTES: usize = 4 << 20;
const PIECES: usize = 4;
/// The granularity of holes, in bytes.
const BLOCK_BYTES: usize = 64 << 10;
/// The number of chunks of a remote source that are fetched and decoded at the same time.
const REMOTE_PARALLEL: usize = 64;

/// Writes a view of a node.
///
/// # Errors
/// If the node or the view does not exist, the view cannot be read, or the file cannot be written.
/// An incomplete file is kept under its temporary name for `--resume`.
pub fn export(args: &ExportArgs) -> Result<(), Failure> {
    block_on(run(args))
}

async fn run(args: &ExportArgs) -> Result<(), Failure> {
    if let Some(file) = &args.file_after_key {
        let mut args = args.clone();
        args.source.path = Some(std::mem::replace(&mut args.file, file.clone()).into());
        args.file_after_key = None;
        return write_view(&args).await;
    }
    write_view(args).await
}

async fn write_view(args: &ExportArgs) -> Result<(), Failure> {
    let mut source = args.source.clone();
    if source.path.is_none() {
        let (place, key) = split_key(&source.source);
        (source.source, source.path) = (place, key);
    }
    let target = ExportTarget::new(args)?;
    let limit = args.memory_limit.unwrap_or_else(default_memory_limit_bytes);
    let opened = OpenedSource::with_hierarchy(&source, limit).await?;
    let is_remote = opened.store.capabilities().is_remote;
    let engine = Engine::new(EngineOptions {
        cache_bytes: (memory_bytes() / 8).min(2 << 30).min(limit),
        memory_limit_bytes: limit / 8 * 5,
        parallel: match is_remote {
            true => REMOTE_PARALLEL.max(cores()),
            false => cores(),
        },
        timeout: source.remote.timeout,
    })?;
    let options = NodesOptions {
        root: opened.root.clone(),
        formats: FormatSet::default(),
        ttl: FOREVER.into(),
        assume_wgs84: args.assume_wgs84,
    };
    let nodes = Nodes::new(Arc::clone(&opened.store), Arc::new(engine), options);
    let nodes = Arc::new(nodes);
    let node = nodes.node(&opened.root).await?;
    let format = target.format(&node)?;
    let content = match nodes.content(&node, format).await {
        Ok(content) => content,
        Err(error) => return Err(unavailable(&node, format, error)),
    };
    let file = ViewFile::of(&nodes, &node, content)
        .ok_or_else(|| format!("`{format}` is a directory, which `export` does not write"))
        .map_err(|message| ErrorKind::Usage.failure(message))?;
    let view = Arc::new(file).open().await?;
    match (args.part, target.file) {
        (Some(part), Some(file)) => target.write_part(&*view, is_remote, file, part).await?,
        _ => target.write(&*view).await?,
    }
    if args.json {
        let document = document(
            args,
            opened.store.label(),
            &node,
            (format, view.size_bytes()),
        );
        inspect::print(format!("{document:#}\n").as_bytes())?;
    }
    Ok(())
}

/// Describes the written file.
fn document(
    args: &ExportArgs,
    source: &str,
    node: &ViewNode,
    (format, size): (Format, u64),
) -> Value {
    let mut members = Map::new();
    let mut set = |name: &str, value: Value| _ = members.insert(name.into(), value);
    set("source", source.into());
    set("key", String::from_utf8_lossy(node.key().as_bytes()).into());
    set("format", format.name().into());
    set("file", args.file.to_string_lossy().into());
    set("size_bytes", size.into());
    if let Some(part) = args.part {
        set("part", part.to_string().into());
    }
    inspect::document("export", members)
}

fn unavailable(node: &ViewNode, format: Format, error: ContentError) -> Failure {
    let key = node.key();
    match error {
        ContentError::Absent(reason) => {
            ErrorKind::NoView.failure(format!("{key}: no `{format}`: {reason}"))
        }
        failed => failed.into_error(key).into(),
    }
}

/// Splits `SOURCE:KEY`. An existing path, or a URL with a pipeline (`|zip:`), is a source without a key.
fn split_key(given: &Path) -> (PathBuf, Option<OsString>) {
    let whole = || (given.to_owned(), None);
    let bytes = given.as_os_str().as_bytes();
    // A URL is text.
    let text = given.to_str().unwrap_or_default();
    if let Some(key) = bytes.strip_prefix(DEMO.as_bytes()) {
        let key = (!key.is_empty()).then(|| OsStr::from_bytes(key).to_owned());
        return (DEMO.into(), key);
    }
    let split = |at: usize| {
        let (source, key) = bytes.split_at(at);
        let key = OsStr::from_bytes(key.get(1..).unwrap_or_default());
        (
            PathBuf::from(OsStr::from_bytes(source)),
            Some(key.to_owned()),
        )
    };
    if let Some((_, behind)) = text.split_once("://") {
        // A colon in the authority precedes a port or a password.
        let authority = behind.find('/').unwrap_or(behind.len());
        let path = text.len() - behind.len() + authority;
        let colon = text.get(path..).and_then(|path| path.rfind(':'));
        return match colon.filter(|_| !text.contains('|')) {
            Some(colon) => split(path + colon),
            None => whole(),
        };
    }
    if given.exists() {
        return whole();
    }
    let mut colons = (1..bytes.len())
        .rev()
        .filter(|at| bytes.get(*at) == Some(&b':'));
    let source = |at: &usize| {
        let path = bytes.get(..*at).unwrap_or_default();
        Path::new(OsStr::from_bytes(path)).exists()
    };
    colons.find(source).map_or_else(whole, split)
}

/// The destination of a view.
struct ExportTarget<'a> {
    /// `None` writes to standard output.
    file: Option<&'a Path>,
    format: Option<Format>,
    overwrite: bool,
    resume: bool,
}

impl<'a> ExportTarget<'a> {
    fn new(args: &'a ExportArgs) -> Result<Self, Failure> {
        let file = (args.file != Path::new("-")).then_some(&*args.file);
        let target = Self {
            file,
            format: args.format,
            overwrite: args.overwrite,
            resume: args.resume,
        };
        let refused = |kind: ErrorKind, reason: &str| Err(kind.failure(reason));
        let Some(file) = file else {
            return match args {
                ExportArgs { format: None, .. } => refused(
                    ErrorKind::Usage,
                    "standard output has no suffix: choose a format with --as, such as --as nc",
                ),
                ExportArgs { resume: true, .. } => {
                    refused(ErrorKind::Usage, "--resume needs a file")
                }
                ExportArgs { part: Some(_), .. } => {
                    refused(ErrorKind::Usage, "--part needs a file")
                }
                ExportArgs { json: true, .. } => refused(
                    ErrorKind::Usage,
                    "--json needs a file: standard output has the content",
                ),
                _ if io::stdout().is_terminal() => refused(
                    ErrorKind::Usage,
                    "standard output is a terminal; redirect it, or give the name of a file",
                ),
                _ => Ok(target),
            };
        };
        let shown = file.display();
        let directory = directory_of(file);
        if file.is_dir() {
            let message = format!("{shown}: a directory; give the name of a file");
            return refused(ErrorKind::Usage, &message);
        }
        if file.exists() && !args.overwrite {
            return refused(
                ErrorKind::Exists,
                &format!("{shown}: the file exists; --overwrite replaces it"),
            );
        }
        if !directory.is_dir() {
            let message = format!("{shown}: {} is no directory", directory.display());
            return refused(ErrorKind::NotADirectory, &message);
        }
        Ok(target)
    }

    /// Returns the format of `--as`, or that of the longest matching suffix of the file name.
    fn format(&self, node: &ViewNode) -> Result<Format, Failure> {
        let kind = match node.is_array() {
            true => "an array",
            false => "a group",
        };
        let suits = |format: &Format| format.suits(node.is_array()) && !format.is_directory();
        let words = || {
            let words = Format::all().filter(suits).map(Format::name);
            words.collect::<Vec<_>>().join(", ")
        };
        if let Some(format) = self.format {
            return match suits(&format) {
                true => Ok(format),
                false => Err(ErrorKind::NoView.failure(format!(
                    "{}: it is {kind}, which has no `{format}`; there are {}",
                    node.key(),
                    words()
                ))),
            };
        }
        let name = self.file.and_then(Path::file_name).unwrap_or_default();
        let named = Format::parse_beside(name.as_bytes());
        let named = named.filter(|(_, format)| !format.is_directory());
        let named = named
            .min_by_key(|(stem, _)| stem.len())
            .map(|named| named.1);
        let of_name = || Format::all().find(|f| suits(f) && name == OsStr::new(&f.own_name("")));
        // An extension such as `.tiff`.
        let of_extension = || {
            let extension = Path::new(name).extension()?.to_str()?;
            extension.parse().ok().filter(suits)
        };
        // A shorter suffix is not meant: `x.cdf.nc` is no `nc`.
        let of_suffix = || match named {
            Some(format) => Some(format).filter(suits),
            None => of_extension(),
        };
        // A whole name takes precedence over its suffix: `attributes.json` has no elements.
        of_name().or_else(of_suffix).ok_or_else(|| {
            let key = node.key();
            let name = name.to_string_lossy();
            let why = match (named, node.is_array()) {
                (Some(format), true) => {
                    format!("`{format}` is a view of a group: leave out the array behind SOURCE")
                }
                (Some(format), false) => {
                    format!("`{format}` is a view of an array: SOURCE:KEY names one")
                }
                (None, _) => "the suffix is not that of a view".to_owned(),
            };
            let words = words();
            let message =
                format!("{name}: {why}; {key} is {kind}, and --as chooses one of {words}");
            ErrorKind::NoView.failure(message)
        })
    }

    async fn write(&self, view: &dyn Object) -> Result<(), Failure> {
        let size = view.size_bytes();
        let Some(file) = self.file else {
            let mut out = io::stdout().lock();
            let progress = Transfer::new(size, 0);
            copy(view, 0..size, &progress, |_, bytes| out.write_all(bytes)).await?;
            return Ok(out.flush()?);
        };
        let part = part_name(file, view.version().0, size);
        let failed = |error: io::Error| ErrorKind::at(&part, error);
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(!self.resume);
        let output = options.open(&part).map_err(failed)?;
        let length = output.metadata().map_err(failed)?.len();
        // An interruption may have left the piece after the last complete one half written.
        let start = length.min(size) / PIECE_BYTES as u64 * PIECE_BYTES as u64;
        let progress = Transfer::new(size, start);
        let written = copy(view, start..size, &progress, |at, bytes| {
            put(&output, at, bytes)
        })
        .await;
        let finished = written.and_then(|()| {
            output.set_len(size).map_err(failed)?;
            output.sync_all().map_err(failed)?;
            rename(CWD, &part, file, self.overwrite)
        });
        finished.map_err(|error| {
            let (part, kind) = (part.display(), ErrorKind::of(&*error));
            kind.failure(format!(
                "{error} (what was written is in {part}; --resume continues it)"
            ))
        })
    }
}

impl ExportTarget<'_> {
    /// Writes one part of a file. The process that completes the last part gives the file its name. All processes must
    /// see the same directory.
    async fn write_part(
        &self,
        view: &dyn Object,
        is_remote: bool,
        file: &Path,
        part: Part,
    ) -> Result<(), Failure> {
        let size = view.size_bytes();
        let version = match is_remote {
            true => view.version().0.into(),
            // The version has the number of the device, which machines assign differently.
            false => {
                let modified = view.stat()?.modified;
                modified
                    .duration_since(UNIX_EPOCH)
                    .unwrap_or_default()
                    .as_nanos()
            }
        };
        let output = PartialFile::open(file, version, size, part)?;
        if !output.has(part.index())? {
            let range = part.range(size, PIECE_BYTES as u64);
            let progress = Transfer::new(range.end - range.start, 0);
            copy(view, range, &progress, |at, bytes| {
                write_blocks(&output.data, at, bytes)
            })
            .await?;
            output
                .data
                .sync_all()
                .map_err(|error| output.failed(error))?;
        }
        if let Some(other) = output.finish(part, file, self.overwrite)? {
            let left = format!("part {part} is written; part {other} is not yet\n");
            io::stderr().write_all(left.as_bytes())?;
        }
        Ok(())
    }
}

/// Returns the parent directory of a file.
fn directory_of(file: &Path) -> &Path {
    let parent = file
        .parent()
        .filter(|parent| !parent.as_os_str().is_empty());
    parent.unwrap_or(Path::new("."))
}

/// Renames a complete file, whose name is one in `directory`. Without `overwrite`, a target that has been created
/// meanwhile is kept.
fn rename(directory: impl AsFd, part: &Path, file: &Path, overwrite: bool) -> Result<(), Failure> {
    let flags = match overwrite {
        true => RenameFlags::empty(),
        false => RenameFlags::NOREPLACE,
    };
    let renamed = match renameat_with(&directory, part, CWD, file, flags) {
        // The file system does not support `RENAME_NOREPLACE`.
        Err(rustix::io::Errno::INVAL) if !file.exists() => renameat(&directory, part, CWD, file),
        renamed => renamed,
    };
    let renamed = renamed.map_err(io::Error::from);
    renamed.map_err(|error| ErrorKind::at(file, error))
}

/// Returns the name of an incomplete file, which is unique to the file, its metadata version and its size.
fn part_name(file: &Path, version: u64, size: u64) -> PathBuf {
    let mut name = OsString::from(".");
    name.push(file.file_name().unwrap_or_default());
    name.push(format!(".{version:016x}-{size}.part"));
    file.with_file_name(name)
}

/// Writes bytes at an offset of a file that is long enough and has zeros, or the same bytes, there. Blocks of zeros are
/// not written and stay holes.
fn write_blocks(output: &File, at: u64, bytes: &[u8]) -> io::Result<()> {
    let mut at = at;
    for block in bytes.chunks(BLOCK_BYTES) {
        if block.iter().any(|byte| *byte != 0) {
            output.write_all_at(block, at)?;
        }
        at = at.saturating_add(block.len() as u64);
    }
    Ok(())
}

/// Writes bytes at an offset. Whole blocks of zeros are not written and stay holes.
fn put(output: &File, at: u64, bytes: &[u8]) -> io::Result<()> {
    let end = at.saturating_add(bytes.len() as u64);
    // An interrupted write may have left bytes after `at`. The file length never covers unwritten
    // bytes, because `--resume` continues at the end of the file.
    output.set_len(at)?;
    write_blocks(output, at, bytes)?;
    output.set_len(end)
}

/// Reads a range of a view with several concurrent reads, and passes the pieces to `put` in order.
async fn copy(
    view: &dyn Object,
    range: Range<u64>,
    progress: &Transfer,
    mut put: impl FnMut(u64, &[u8]) -> io::Result<()>,
) -> Result<(), Failure> {
    let end = range.end;
    let offsets = range.step_by(PIECE_BYTES);
    let read = |at: u64| async move {
        let left = usize::try_from(end - at).unwrap_or(PIECE_BYTES);
        let length = left.min(PIECE_BYTES);
        (at, length, view.read(at, length).await)
    };
    let mut pieces = stream::iter(offsets.map(read)).buffered(PIECES);
    while let Some((at, length, data)) = pieces.next().await {
        let data = data?;
        let bytes = data.bytes(&[])?;
        if bytes.len() != length {
            let got = bytes.len();
            let message = format!("{got} bytes of {length} at {at}: it has changed");
            return Err(ErrorKind::Changed.failure(message));
        }
        put(at, bytes)?;
        progress.advance(length as u64);
    }
    progress.finish();
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_follows_the_last_colon_that_belongs_to_no_port_and_no_path() {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
        std::fs::create_dir(path("a.zarr")).unwrap();
        std::fs::create_dir(path("b:c")).unwrap();
        let cases = [
            ("demo:".into(), "demo:".into(), None),
            ("demo:v3/sst".into(), "demo:".into(), Some("v3/sst")),
            (path("a.zarr"), path("a.zarr"), None),
            (path("a.zarr:g/x"), path("a.zarr"), Some("g/x")),
            (path("b:c"), path("b:c"), None),
            (path("b:c:x:y"), path("b:c"), Some("x:y")),
            (path("none:x"), path("none:x"), None),
            ("http://h:80/a".into(), "http://h:80/a".into(), None),
            ("s3://b/a:g/x".into(), "s3://b/a".into(), Some("g/x")),
            (
                "s3://b/a.zip|zip:g".into(),
                "s3://b/a.zip|zip:g".into(),
                None,
            ),
        ];
        for (given, source, key) in cases {
            let expected = (PathBuf::from(source), key.map(OsString::from));
            assert_eq!(split_key(Path::new(&given)), expected, "{given}");
        }
    }
}
