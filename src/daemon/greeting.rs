//! What is said of a mount: one line for who has just made it, and a name in the mount table.

use std::io::{self, IsTerminal, Write};
use std::path::Path;

use super::Source;
use crate::cli::{Asked, MountOptions, TreeShown, Views};
use crate::inspect;
use crate::store::{Key, Store, never_waiting};

/// A person who looks at a terminal is told; scripts, fstab and systemd are not. mount(8) has an
/// option of its own for it.
pub(super) fn is_wanted(asked: Option<&Asked>) -> bool {
    match asked {
        Some(asked) => asked.is_verbose,
        None => io::stderr().is_terminal(),
    }
}

/// Says what was mounted where, and where its decoded files are.
pub(super) fn say(store: &dyn Store, root: &Key, mountpoint: &Path, options: &MountOptions) {
    let ask = || inspect::summary(store, root);
    let what = match store.capabilities().is_remote {
        // The mount answers already; nobody waits for a network to hear what it is.
        true => never_waiting(ask),
        false => ask(),
    };
    let views = match (options.tree, options.views) {
        (TreeShown::Native, Views::Off) => String::new(),
        (TreeShown::Native, _) => {
            format!("; decoded files: {}/.zarrfs", mountpoint.display())
        }
        (TreeShown::Both, _) => format!("; decoded files: {}/views", mountpoint.display()),
        (TreeShown::Views, _) => "; shown are decoded files".into(),
    };
    let (label, shown) = (store.label(), mountpoint.display());
    // A standard error that can not be written to changes nothing.
    let line = format!("{label} is mounted on {shown}: {what}{views}");
    let _ = writeln!(io::stderr(), "zarrfs: {}", inspect::printable(&line));
}

/// The source as the mount table shows it: as it was given, so that mount(8) finds the line of
/// fstab again, but for URLs with something in them that may be secret.
pub(super) fn mount_name(source: &Source, label: &str) -> String {
    let Source::Given(given) = source else {
        return label.to_owned();
    };
    match given.to_str() {
        Some(text) if text.contains("://") && text.contains(['@', '?', '#', ';']) => {
            label.to_owned()
        }
        Some(text) if text.contains("://") || text.starts_with("zip::") => text.to_owned(),
        // Whoever reads the table is in another directory.
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
