//! The help of the program: both forms of use, the commands in groups, common options, and examples.

use std::fmt::Write;

use clap::builder::Styles;
use clap::{Args, Subcommand};

use super::{Command, MountArgs};

/// The commands in groups, in the order of their use.
const GROUPS: [(&str, &[&str]); 4] = [
    (
        "Mount",
        &["mount", "umount", "mounts", "run", "stats", "demo"],
    ),
    ("Show a source", &["tree", "info", "check"]),
    ("Views", &["views", "path", "export"]),
    ("Help", &["help", "man", "completions"]),
];

/// The width of the command names in columns.
const NAMES: usize = 12;

#[cfg(not(feature = "mount"))]
const EXAMPLES: &str = "
  zarrfs export ocean.zarr ocean.nc     # or a zip, a database, a URL
  zarrfs export ocean.zarr:sst sst.tif  # an array
  zarrfs info ocean.zarr sst

This build has no FUSE: mount, umount, mounts, run, stats and demo say so.
`zarrfs COMMAND -h` describes a command, `zarrfs help` lists the topics of the
manual.";

#[cfg(feature = "mount")]
const EXAMPLES: &str = "
  zarrfs ocean.zarr /mnt/ocean              # or a zip, a database, a URL
  ncdump -h /mnt/ocean/.zarrfs/ocean.nc     # a view
  zarrfs umount /mnt/ocean
  zarrfs run ocean.zarr -- ncdump -h {nc}   # a mount for one command
  zarrfs export ocean.zarr:sst sst.tif      # without a mount

`zarrfs COMMAND -h` describes a command, `zarrfs help` lists the topics of the
manual.";

/// Returns the clap template for the help of the program.
pub(super) fn template() -> String {
    let commands = Command::augment_subcommands(clap::Command::new("zarrfs"));
    let mut text = "{about-with-newline}\n{usage-heading} {usage}\n\n".to_owned();
    for (title, names) in GROUPS {
        text.push_str(&heading(title));
        for name in names {
            let about = commands
                .find_subcommand(name)
                .and_then(|found| found.get_about());
            let about = about.map(ToString::to_string).unwrap_or_default();
            let literal = Styles::styled().get_literal().to_owned();
            // Writing to a String cannot fail.
            let _ = writeln!(text, "  {literal}{name:<NAMES$}{literal:#} {about}");
        }
        text.push('\n');
    }
    text + &heading("Options") + "{options}{after-help}"
}

/// Returns the end of `-h`: common mount options, and examples.
pub(super) fn short_end() -> String {
    if cfg!(not(feature = "mount")) {
        return format!("{}{EXAMPLES}", heading("Examples").trim_end());
    }
    let options = mount_options(false);
    let (common, examples) = (heading("Common options of a mount"), heading("Examples"));
    format!("{common}{options}\n\n{}{}", examples.trim_end(), EXAMPLES)
}

/// Returns the end of `--help`: examples, and all mount options.
pub(super) fn long_end() -> String {
    let examples = heading("Examples");
    format!(
        "{}{EXAMPLES}\n\n{}",
        examples.trim_end(),
        mount_options(true)
    )
}

/// Returns the mount options: all, or only the common ones of `mount -h`.
fn mount_options(is_all: bool) -> String {
    let command = MountArgs::augment_args(clap::Command::new("zarrfs"));
    let command = command
        .disable_help_flag(true)
        .max_term_width(super::MAX_WIDTH);
    let mut command = match is_all {
        true => command
            .mut_args(|arg| arg.hide_short_help(false))
            .help_template("{all-args}"),
        false => command.help_template("{options}"),
    };
    let text = command.render_help().ansi().to_string();
    text.trim_end().to_owned()
}

fn heading(title: &str) -> String {
    let style = Styles::styled().get_header().to_owned();
    format!("{style}{title}:{style:#}\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_command_is_in_one_group() {
        let commands = Command::augment_subcommands(clap::Command::new("zarrfs"));
        let shown = commands
            .get_subcommands()
            .filter(|found| !found.is_hide_set());
        let mut names: Vec<&str> = shown.map(clap::Command::get_name).collect();
        let mut grouped: Vec<&str> = GROUPS
            .iter()
            .flat_map(|(_, names)| *names)
            .copied()
            .collect();
        names.sort_unstable();
        grouped.sort_unstable();
        assert_eq!(grouped, names);
    }
}
