//! `zarrfs views` and `zarrfs path`: the views of a mount or of a source.

use std::ffi::{OsStr, OsString};
use std::fmt::Write;
use std::os::unix::ffi::OsStrExt;

use serde_json::{Map, Value};

use super::Failure;
use super::mounted_views::{MountedViews, NodeViews};
use crate::cli::{DEMO, PathArgs, SourceArgs, ViewsArgs, key_of};
use crate::inspect;
use crate::store::ErrorKind;
use crate::translate::Target;
use crate::view::{Format, shell_quoted};

/// Prints the views of a node.
///
/// # Errors
/// If the node does not exist, or its views cannot be read.
pub fn views(args: &ViewsArgs) -> Result<(), Failure> {
    let key = args.key.as_ref().or(args.source.path.as_ref());
    let key = key.map(OsString::as_os_str).unwrap_or_default();
    let list = match MountedViews::find(&args.source.source)? {
        Some(mounted) => {
            let node = mounted.node(key)?;
            let mut list = node.list()?;
            add_paths(&mut list, &node);
            list
        }
        None => {
            let source = SourceArgs {
                path: None,
                ..args.source.clone()
            };
            let mut list = inspect::view_list(&source, key)?;
            add_commands(&mut list, &source.source.to_string_lossy());
            list
        }
    };
    if args.json {
        return Ok(inspect::print(format!("{list:#}\n").as_bytes())?);
    }
    Ok(inspect::print(text(&list).as_bytes())?)
}

/// Calls `change` with each view of a list.
fn for_each_view(list: &mut Value, mut change: impl FnMut(&mut Map<String, Value>)) {
    let views = list.get_mut("views").and_then(Value::as_array_mut);
    for view in views.into_iter().flatten() {
        if let Some(view) = view.as_object_mut() {
            change(view);
        }
    }
}

fn member<'a>(view: &'a Map<String, Value>, name: &str) -> &'a str {
    view.get(name).and_then(Value::as_str).unwrap_or_default()
}

/// Adds a path to each view, and to its example.
fn add_paths(list: &mut Value, node: &NodeViews) {
    for_each_view(list, |view| {
        let word = member(view, "format").to_owned();
        let format = word.parse::<Format>().ok();
        let file = match format {
            // The tree of this mount does not contain this view.
            Some(format) => match node.path(format) {
                Ok(file) => file,
                Err(_) => return,
            },
            None => node.directory.join(&word),
        };
        let file = file.to_string_lossy();
        let example = match format {
            Some(format) => format.example(&file),
            None => format!("zarrfs tree {}", shell_quoted(&file)),
        };
        view.insert("example".into(), example.into());
        view.insert("path".into(), file.into());
    });
}

/// Replaces each example by a command for a source without a mount.
fn add_commands(list: &mut Value, source: &str) {
    let key = list["key"].as_str().unwrap_or_default().to_owned();
    for_each_view(list, |view| {
        let name = member(view, "name");
        let opened = match key.as_str() {
            "" => format!("{{{name}"),
            key => format!("{{{key}/{name}"),
        };
        if cfg!(not(feature = "mount")) {
            view.insert("example".into(), export_command(view, &key, source).into());
            return;
        }
        // The command may write a file with another suffix. Its file is the last word, quoted for the brace.
        let command = match member(view, "format").parse::<Format>() {
            Ok(format) => format.example(&opened),
            Err(_) => format!("zarrfs tree {}", shell_quoted(&opened)),
        };
        let command = format!("{}}}'", command.trim_end_matches('\''));
        let example = format!("zarrfs run {} -- {command}", shell_quoted(source));
        view.insert("example".into(), example.into());
    });
}

/// Returns the command that writes a view without FUSE; empty for a directory.
fn export_command(view: &Map<String, Value>, key: &str, source: &str) -> String {
    let format = member(view, "format").parse::<Format>();
    if format.map_or(true, Format::is_directory) {
        return "needs a mount, which this build cannot make".into();
    }
    let colon = if key.is_empty() || source == DEMO {
        ""
    } else {
        ":"
    };
    let (source, name) = (format!("{source}{colon}{key}"), member(view, "name"));
    format!(
        "zarrfs export {} {}",
        shell_quoted(&source),
        shell_quoted(name)
    )
}

fn text(list: &Value) -> String {
    let mut text = String::new();
    let members = |name: &str| list[name].as_array().into_iter().flatten();
    for view in members("views") {
        let member = |name: &str| inspect::printable(view[name].as_str().unwrap_or_default());
        let (name, description) = (member("name"), member("description"));
        let _ = writeln!(text, "{name}  ({description})\n    {}", member("example"));
    }
    if list["node_type"] == "group" {
        text.push_str("Arrays have views of their own, which a KEY behind the source lists.\n");
    }
    for path in members("hierarchies") {
        let path = inspect::printable(path.as_str().unwrap_or_default());
        let _ = writeln!(text, "{path}: a hierarchy with views of its own");
    }
    for diagnostic in members("diagnostics") {
        let reason = diagnostic["reason"].as_str().unwrap_or_default();
        let line = match diagnostic["view"].as_str() {
            Some(view) => format!("{view}: {reason}"),
            None => reason.to_owned(),
        };
        let _ = writeln!(text, "{}", inspect::printable(&line));
    }
    text
}

/// Prints the path of a view of a mount; for an array and a format of groups, of its group's view.
///
/// # Errors
/// If the view does not exist. The message has the reason, and the available formats.
pub fn path(args: &PathArgs) -> Result<(), Failure> {
    let shown = args.mount.display();
    let mounted = MountedViews::find(&args.mount)?.ok_or_else(|| {
        let message = format!(
            "{shown}: not a directory of a mount of zarrfs, or of one without views (`zarrfs mounts` lists mounts; \
             `zarrfs export SOURCE FILE` writes a view without one)"
        );
        ErrorKind::NotMounted.failure(message)
    })?;
    let key = args.key.as_deref().unwrap_or_default();
    let node = mounted.node(key)?;
    let path = match Target::ALL
        .iter()
        .find(|target| target.name() == args.format)
    {
        Some(target) => node.directory.join(target.name()),
        None => {
            let format: Format = args.format.parse()?;
            // For an array, a format of groups means the view of its group.
            match !format.suits(true) && node.is_array() {
                true => {
                    let group = key_of(key)?.parent();
                    let group = OsStr::from_bytes(group.as_bytes());
                    mounted.node(group)?.path(format)?
                }
                false => node.path(format)?,
            }
        }
    };
    match std::fs::symlink_metadata(&path) {
        Ok(_) => Ok(inspect::print(
            &[path.as_os_str().as_bytes(), b"\n"].concat(),
        )?),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            Err(node.missing(&name, &args.format))
        }
        Err(error) => Err(ErrorKind::at(&path, error)),
    }
}
