//! The help of all commands on a terminal of 80 columns.

use std::process::{Command, Stdio};

use crate::place::output_of;
use crate::support::*;

/// The width of the terminal.
const COLUMNS: usize = 80;

fn help(arguments: &[&str]) -> String {
    let mut command = zarrfs();
    command.args(arguments).env("COLUMNS", COLUMNS.to_string());
    output_of(&mut command).ok().out.clone()
}

#[test]
fn every_help_text_fits_80_columns() {
    let pages = output_of(zarrfs().args(["man", "--list"])).ok().out.clone();
    let pages = pages.lines().filter_map(|page| page.strip_suffix(".1"));
    let commands: Vec<&str> = pages
        .filter_map(|page| page.strip_prefix("zarrfs-"))
        .collect();
    assert!(commands.len() > 10, "{commands:?}");
    let texts = commands
        .iter()
        .flat_map(|command| ["-h", "--help"].map(|option| vec![*command, option]))
        .chain([vec!["-h"], vec!["--help"], vec!["help"]]);
    for arguments in texts {
        for line in help(&arguments).lines() {
            assert!(line.chars().count() <= COLUMNS, "{arguments:?}: {line}");
        }
    }
}

#[test]
fn the_short_help_has_both_forms_groups_common_options_and_examples() {
    let short = help(&["-h"]);
    for words in [
        "zarrfs [mount] SOURCE [MOUNTPOINT] [OPTIONS]",
        "zarrfs COMMAND ...",
        "\nMount:\n  mount ",
        "\nShow a source:\n  tree ",
        "\nViews:\n  views ",
        "\nHelp:\n  help ",
        "Common options of a mount:",
        "--allow-other",
        "--anonymous",
        "Examples:\n  zarrfs ocean.zarr /mnt/ocean ",
        "zarrfs umount /mnt/ocean",
    ] {
        assert!(short.contains(words), "no {words:?} in {short}");
    }
    assert!(short.lines().count() <= 70, "{short}");
    let long = help(&["--help"]);
    let mount = help(&["mount", "-h"]);
    for option in ["--memory-limit", "--retries", "--nonempty"] {
        assert!(!short.contains(option), "{option} is rare");
        assert!(!mount.contains(option), "{option} is rare");
        assert!(long.contains(option), "no {option} in {long}");
    }
    let none = output_of(zarrfs().env("COLUMNS", "80"));
    assert_eq!((none.code, none.err), (Some(2), short));
}

/// Removes the overstrikes of bold and underlined letters: a letter or an underscore, and a backspace.
fn plain(text: &str) -> String {
    let mut plain = String::new();
    for sign in text.chars() {
        match sign {
            '\u{8}' => drop(plain.pop()),
            sign => plain.push(sign),
        }
    }
    plain
}

#[test]
fn a_topic_fits_80_columns_of_a_terminal() {
    let is_installed = |program: &str| Command::new(program).arg("--version").output().is_ok();
    if !is_installed("man") || !is_installed("script") {
        return skipped("needs man and script");
    }
    let zarrfs = zarrfs();
    let binary = zarrfs.get_program().to_str().unwrap();
    for topic in ["netcdf", "views", "options"] {
        let line = format!("stty rows 24 cols 80; exec '{binary}' help {topic}");
        let mut terminal = Command::new("script");
        terminal.args(["-qec", &line, "/dev/null"]);
        terminal
            .env("MANPAGER", "cat")
            .env("TERM", "dumb")
            .env_remove("MANWIDTH");
        let shown = plain(&run(terminal.stdin(Stdio::null())));
        assert!(
            shown.contains("NAME") && shown.contains("SEE ALSO"),
            "{shown}"
        );
        assert!(!shown.contains("|---"), "{shown}");
        for line in shown.lines().filter(|line| line.starts_with("       ")) {
            let example = line.starts_with("           ");
            assert!(
                example || line.trim_end().chars().count() <= COLUMNS,
                "{line}"
            );
        }
    }
}
