//! The report of a new mount: a line on standard error, and the name in the mount table.

use std::io::{self, IsTerminal, Write};
use std::path::Path;

use futures_util::FutureExt;

use super::Source;
use crate::cli::{HelperOptions, MountOptions, TreeShown, Views};
use crate::inspect;
use crate::runtime::block_on;
use crate::store::{Key, Store};

/// Returns whether the line is printed: on a terminal, and for mount(8) with its option -v, but not in
/// scripts, fstab and systemd.
pub(super) fn is_wanted(helper: Option<&HelperOptions>) -> bool {
    match helper {
        Some(helper) => helper.is_verbose,
        None => io::stderr().is_terminal(),
    }
}

/// Prints the source, the mountpoint, a summary and the directory of the views.
pub(super) fn print(store: &dyn Store, root: &Key, mountpoint: &Path, options: &MountOptions) {
    let summary = inspect::summary(store, root);
    let summary = match store.capabilities().is_remote {
        // The mount is ready, and does not wait for the network to describe itself.
        true => summary
            .now_or_never()
            .unwrap_or_else(|| "metadata not read yet".into()),
        false => block_on(summary),
    };
    let views = match (options.tree, options.views) {
        (TreeShown::Native, Views::Off) => String::new(),
        (TreeShown::Native, _) => {
            format!("; views: {}/.zarrfs", mountpoint.display())
        }
        (TreeShown::Both, _) => format!("; views: {}/views", mountpoint.display()),
        (TreeShown::Views, _) => "; the views are mounted".into(),
    };
    let (label, shown) = (store.label(), mountpoint.display());
    // A mount works without this line.
    let line = format!("{label} is mounted on {shown}: {summary}{views}");
    let _ = writeln!(io::stderr(), "zarrfs: {}", inspect::printable(&line));
}

/// Returns the source for the mount table: as given, so that mount(8) finds the line of fstab, but
/// the label for a URL that may contain a secret.
pub(super) fn mount_name(source: &Source, label: &str) -> String {
    let Source::Given(given) = source else {
        return label.to_owned();
    };
    match given.to_str() {
        Some(text) if text.contains("://") && text.contains(['@', '?', '#', ';']) => {
            label.to_owned()
        }
        Some(text) if text.contains("://") || text.starts_with("zip::") => text.to_owned(),
        // Readers of the table have another working directory.
        _ => match std::path::absolute(given) {
            Ok(path) => path.to_string_lossy().into_owned(),
            Err(_) => label.to_owned(),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mount_table_shows_the_source_and_no_secret() {
        let shown = |given: &str| mount_name(&Source::Given(given.into()), "label");
        for given in [
            "/data/a@b?.zip",
            "s3://b/x/",
            "https://h/x.zip|zip:a",
            "zip::s3://b/x",
        ] {
            assert_eq!(shown(given), given);
        }
        let here = std::env::current_dir().unwrap();
        assert_eq!(shown("./b.zip"), here.join("b.zip").to_str().unwrap());
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
