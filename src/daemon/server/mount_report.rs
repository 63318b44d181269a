//! The report of a new mount: lines on standard error and in the log, and the name in the mount table.

use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};

use futures_util::FutureExt;

use serde_json::{Map, Value, json};

use super::{Failure, Source, mountpoint};
use crate::cli::{HelperOptions, MountOptions, MountedTree, ViewsListing};
use crate::fs::Fs;
use crate::inspect;
use crate::runtime::block_on;
use crate::store::{Key, Store};
use crate::view::shell_quoted;

/// Returns whether the report is printed: on a terminal, and for mount(8) with its option -v, but
/// not for scripts, fstab and systemd.
pub(super) fn is_wanted(helper: Option<&HelperOptions>) -> bool {
    match helper {
        Some(helper) => helper.is_verbose,
        None => super::private_mountpoint().is_none() && io::stderr().is_terminal(),
    }
}

/// The width of a terminal in columns.
const COLUMNS: usize = 80;
/// The prefix of each line.
const PROGRAM: &str = "zarrfs: ";

/// Returns the report: the source and, if this process has mounted it, the location of its views
/// and the command to unmount. A `detailed` report also has a summary of the source and some names
/// of views, for which metadata are read.
pub(super) fn lines(
    store: &dyn Store,
    root: &Key,
    fs: &Fs,
    (mountpoint, is_own): (&str, bool),
    options: &MountOptions,
    detailed: bool,
) -> Vec<String> {
    let views = match is_own {
        true => views_directory(Path::new(mountpoint), options),
        false => None,
    };
    let has_views = views.is_some();
    let details = async {
        let names = match has_views {
            true => fs.example_views().await,
            false => Vec::new(),
        };
        (inspect::summary(store, root).await, names)
    };
    let (summary, names) = match store.capabilities().is_remote {
        _ if !detailed => (None, Vec::new()),
        // The mount is ready, and must not wait for the network to describe itself.
        true => match details.now_or_never() {
            Some((summary, names)) => (Some(summary), names),
            None => (Some("metadata not read yet".into()), Vec::new()),
        },
        false => {
            let (summary, names) = block_on(details);
            (Some(summary), names)
        }
    };
    let mut lines = vec![format!("{} is mounted on {mountpoint}", store.label())];
    if let Some(summary) = summary {
        let whole = format!("{}: {summary}", lines.concat());
        match fits(&whole) {
            true => lines = vec![whole],
            false => lines.push(summary),
        }
    }
    lines.extend(views.map(|views| views_line(&views.to_string_lossy(), &names)));
    if is_own {
        let quoted = shell_quoted(mountpoint);
        lines.push(format!("to unmount: zarrfs umount {quoted}"));
    }
    let lines = lines.iter();
    lines
        .map(|line| inspect::printable(line).into_owned())
        .collect()
}

fn fits(line: &str) -> bool {
    PROGRAM.len() + line.chars().count() <= COLUMNS
}

/// Returns the line of the views, with as many names as fit, but at least one.
fn views_line(directory: &str, names: &[String]) -> String {
    let mut line = format!("views: {directory}");
    for (i, name) in names.iter().enumerate() {
        let longer = match i {
            0 => format!("{line} ({name})"),
            _ => format!("{}, {name})", line.trim_end_matches(')')),
        };
        if i > 0 && !fits(&longer) {
            break;
        }
        line = longer;
    }
    line
}

/// Prints the report.
pub(super) fn print(lines: &[String]) {
    // A mount works without the report.
    let text: String = lines
        .iter()
        .map(|line| format!("{PROGRAM}{line}\n"))
        .collect();
    let _ = io::stderr().write_all(text.as_bytes());
}

/// Prints the mount as a JSON document.
///
/// # Errors
/// If the mount table or standard output fails.
pub(super) fn print_json(
    mountpoint: &Path,
    options: &MountOptions,
    pid: u32,
) -> Result<(), Failure> {
    let path = mountpoint::resolve(mountpoint)?;
    let entry = mountpoint::entry(&path)?;
    let views = views_directory(&path, options);
    let members = json!({
        "source": entry.map(|entry| entry.source),
        "mountpoint": path.to_string_lossy(),
        "pid": pid,
        "views": views.map(|views| views.to_string_lossy().into_owned()),
    });
    let members: Map<String, Value> = members.as_object().cloned().unwrap_or_default();
    let document = inspect::document("mount", members);
    Ok(inspect::print(format!("{document:#}\n").as_bytes())?)
}

/// Returns the directory of the views of the root.
fn views_directory(mountpoint: &Path, options: &MountOptions) -> Option<PathBuf> {
    match (options.tree, options.views) {
        (MountedTree::Native, ViewsListing::Off) => None,
        (MountedTree::Native, _) => Some(mountpoint.join(".zarrfs")),
        (MountedTree::Both, _) => Some(mountpoint.join("views")),
        (MountedTree::Views, _) => Some(mountpoint.to_owned()),
    }
}

/// Returns the source for the mount table: as given, so that mount(8) finds the fstab line. A URL
/// that may contain a secret is replaced by its label.
pub(super) fn mount_name(source: &Source, label: &str) -> String {
    let Source::Argument(given) = source else {
        return label.to_owned();
    };
    match given.to_str() {
        Some(text) if text.contains("://") && text.contains(['@', '?', '#', ';']) => {
            label.to_owned()
        }
        Some(text) if text.contains("://") || text.starts_with("zip::") => text.to_owned(),
        // Readers of the mount table have another working directory.
        text => match std::path::absolute(text.map_or(&**given, without_scheme)) {
            Ok(path) => path.to_string_lossy().into_owned(),
            Err(_) => label.to_owned(),
        },
    }
}

/// Returns the path of a URL `file:PATH`.
fn without_scheme(source: &str) -> &Path {
    Path::new(source.strip_prefix("file:").unwrap_or(source))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_many_names_of_views_are_shown_as_fit() {
        let names = ["ocean.nc", "sst.tif", "sst.npy"].map(str::to_owned);
        assert_eq!(
            views_line("/mnt/.zarrfs", &names),
            "views: /mnt/.zarrfs (ocean.nc, sst.tif, sst.npy)"
        );
        assert_eq!(views_line("/mnt", &[]), "views: /mnt");
        let long = format!("/{}", "m".repeat(50));
        assert_eq!(
            views_line(&long, &names),
            format!("views: {long} (ocean.nc)")
        );
    }

    #[test]
    fn the_mount_table_shows_the_source_and_no_secret() {
        let shown = |given: &str| mount_name(&Source::Argument(given.into()), "label");
        for given in [
            "/data/a@b?.zip",
            "s3://b/x/",
            "https://h/x.zip|zip:a",
            "zip::s3://b/x",
        ] {
            assert_eq!(shown(given), given);
        }
        let here = std::env::current_dir().unwrap();
        for given in ["./b.zip", "file:b.zip"] {
            assert_eq!(shown(given), here.join("b.zip").to_str().unwrap());
        }
        for secret in [
            "https://u:p@h/x",
            "https://h/x?sig=1",
            "zip::https://h/x?sig=1",
        ] {
            assert_eq!(shown(secret), "label");
        }
        assert_eq!(mount_name(&Source::Demo, "label"), "label");
    }
}
