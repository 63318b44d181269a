//! `zarrfs info --preview`: the quick look of a node on a terminal, from its `.png` view.
//!
//! A terminal is asked for its protocols (`terminal`). The view is decoded and resized to what fits (`picture`), and
//! written as an image of the protocol or as text (`encode`). Nothing of the source but colours and escaped captions
//! is written.

mod encode;
mod picture;
mod terminal;

use std::io::{self, Write};
use std::sync::Arc;

use self::picture::Picture;
use self::terminal::Terminal;
use super::Failure;
use super::output::{ARRAY, HEADING, printable, styled_stdout};
use crate::cli::PreviewProtocol;
use crate::node::{ContentError, ViewNode};
use crate::store::{ErrorKind, Key};
use crate::view::{Format, Nodes, ViewFile};

pub(super) use self::terminal::check;

/// The largest number of arrays of a group that are shown.
const MAX_ARRAYS: usize = 8;
/// The shortest side of a picture of a group's array, in pixels. Bounds of coordinates have two.
const MIN_SIDE: u32 = 3;

/// Writes the picture of a node. A group without one has those of its arrays, which are at `keys`, at half the size.
///
/// # Errors
/// If there is no picture, one cannot be read, or the output cannot be written.
pub(super) async fn write(
    protocol: PreviewProtocol,
    nodes: &Arc<Nodes>,
    node: &Arc<ViewNode>,
    keys: &[Key],
) -> Result<(), Failure> {
    let failed = |reason: String| {
        let key = node.key();
        ErrorKind::NoView.failure(format!("{key}: no preview: {reason}"))
    };
    let reason = match read(nodes, node).await {
        Ok(picture) => {
            let terminal = Terminal::of_stdout(protocol);
            return write_picture(&terminal, &picture, "Preview", 1);
        }
        Err(ContentError::Absent(reason)) => reason,
        Err(error) => return Err(error.into_error(node.key()).into()),
    };
    if node.is_array() {
        return Err(failed(reason));
    }
    let mut terminal = None;
    let mut failure = None;
    let mut shown = 0;
    for key in keys {
        let array = nodes.node(key).await?;
        let picture = match read(nodes, &array).await {
            Ok(picture) => picture,
            Err(ContentError::Absent(_)) => continue,
            Err(error) => {
                failure.get_or_insert(error.into_error(key));
                continue;
            }
        };
        if picture.width.min(picture.height) < MIN_SIDE {
            continue;
        }
        if shown == MAX_ARRAYS {
            let mut out = styled_stdout();
            writeln!(
                out,
                "    ... and more arrays: zarrfs info SOURCE KEY --preview"
            )?;
            break;
        }
        let terminal = terminal.get_or_insert_with(|| Terminal::of_stdout(protocol));
        write_picture(terminal, &picture, array.name(), 2)?;
        shown += 1;
    }
    match failure {
        Some(failure) => Err(failure.into()),
        None if shown == 0 => Err(failed(format!(
            "{reason}, and no array in it has a picture"
        ))),
        None => Ok(()),
    }
}

/// Reads the `.png` view of a node.
async fn read(nodes: &Arc<Nodes>, node: &Arc<ViewNode>) -> Result<Picture, ContentError> {
    let format: Format = "png".parse()?;
    let content = nodes.content(node, format).await?;
    let file = ViewFile::of(nodes, node, content).ok_or_else(|| "no file".to_owned())?;
    let file = Arc::new(file).open().await?;
    let size = usize::try_from(file.size_bytes()).map_err(|error| error.to_string())?;
    let data = file.read(0, size).await?;
    let picture = Picture::of_png(data.bytes(&[])?);
    Ok(picture.map_err(|error| error.to_string())?)
}

/// Writes a heading, what the picture shows, and the picture, which fits a part of the terminal.
fn write_picture(
    terminal: &Terminal,
    picture: &Picture,
    heading: &str,
    part: u32,
) -> Result<(), Failure> {
    let mut out = styled_stdout();
    match part {
        1 => writeln!(out, "{HEADING}{heading}:{HEADING:#}")?,
        _ => writeln!(out, "{ARRAY}{}{ARRAY:#}:", printable(heading))?,
    }
    for text in &picture.captions {
        writeln!(out, "    {}", printable(text))?;
    }
    out.flush()?;
    drop(out);
    let image = encode::image(terminal, picture, part)?;
    let mut out = io::stdout().lock();
    out.write_all(&image)?;
    Ok(out.flush()?)
}
