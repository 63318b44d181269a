//! Manual pages: warnings of mandoc and groff, and references to other pages.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::place::output_of;
use crate::support::*;

/// Pages of other packages to which the manual pages refer.
const OTHERS: [&str; 6] = [
    "fstab.5",
    "fuse.4",
    "fusermount3.1",
    "mount.8",
    "systemd.automount.5",
    "umount.8",
];

/// Writes all pages to a directory.
fn write_pages(directory: &Path) -> Vec<PathBuf> {
    let list = output_of(zarrfs().args(["man", "--list"]));
    let files = list.ok().out.lines();
    files
        .map(|file| {
            let path = directory.join(file);
            std::fs::write(&path, &output_of(zarrfs().args(["man", file])).ok().out).unwrap();
            path
        })
        .collect()
}

fn is_installed(program: &str) -> bool {
    Command::new("sh")
        .args(["-c", &format!("command -v {program}")])
        .output()
        .is_ok_and(|found| found.status.success())
}

#[test]
fn mandoc_and_groff_accept_every_page() {
    if !is_installed("mandoc") || !is_installed("groff") {
        return skipped("needs mandoc and groff");
    }
    let dir = scratch();
    let pages = write_pages(dir.path());
    let lint = output_of(Command::new("mandoc").arg("-Tlint").args(&pages));
    assert_eq!((lint.out.as_str(), lint.err.as_str()), ("", ""));
    for page in pages {
        let mut groff = Command::new("groff");
        groff
            .args(["-ww", "-man", "-Tutf8", "-rLL=80n", "-z"])
            .arg(&page);
        let set = output_of(&mut groff);
        assert_eq!((set.code, set.err.as_str()), (Some(0), ""), "{page:?}");
    }
}

#[test]
fn a_page_refers_only_to_pages_that_exist() {
    let dir = scratch();
    let pages = write_pages(dir.path());
    let name = |path: &PathBuf| path.file_name().unwrap().to_str().unwrap().to_owned();
    let known: BTreeSet<String> = pages.iter().map(name).collect();
    for page in &pages {
        let text = std::fs::read_to_string(page).unwrap();
        let (_, seen) = text.split_once(".SH \"SEE ALSO\"\n").unwrap();
        let seen = seen
            .replace("\\fB", "")
            .replace("\\fR", "")
            .replace("\\-", "-");
        let seen: Vec<String> = seen
            .split(',')
            .map(|entry| entry.trim().trim_end_matches(')').replace('(', "."))
            .collect();
        assert!(!seen.is_empty());
        for entry in seen {
            let exists = known.contains(&entry) || OTHERS.contains(&entry.as_str());
            assert!(exists, "{page:?}: {entry}");
        }
    }
    output_of(zarrfs().args(["man", "bogus"])).failed(1, &["bogus", "man --list"]);
}

#[test]
fn every_command_has_a_page_with_its_options() {
    for (command, option) in [
        ("mount", "\\-\\-memory\\-limit"),
        ("check", "\\-\\-jobs"),
        ("export", "\\-\\-as"),
    ] {
        let page = output_of(zarrfs().args(["man", command]));
        assert!(page.ok().out.contains(option), "{page:?}");
    }
    let whole = output_of(zarrfs().arg("man"));
    for section in [
        "SYNOPSIS",
        "EXAMPLES",
        "COMMANDS",
        "TOPICS",
        "ENVIRONMENT",
        "EXIT STATUS",
        "FILES",
    ] {
        assert!(
            whole.ok().out.contains(&format!(".SH \"{section}\"")),
            "no {section}"
        );
    }
}
