//! Checks the source text: the order of the modules in `src/lib.rs` and of the rooms of remote sources, the attribute
//! names of conventions, and the fault
//! table.
//!
//! A module may name the modules of its own step of the order, and of all steps below.

#![allow(missing_docs, missing_debug_implementations)]
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod attribute_names;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use proc_macro2::{Delimiter, TokenStream, TokenTree};

/// Modules that are not in the order, with the module whose step they share.
const BESIDE: [(&str, &str); 8] = [
    ("inspect", "cli"),
    ("export", "cli"),
    ("prefetch", "hierarchy"),
    ("errno", "fuse"),
    ("latency", "sync"),
    ("recent_errors", "sync"),
    ("units", "sync"),
    ("machine", "sync"),
];

/// The modules that may name `fuser`.
const TRANSPORT: &[&str] = &["daemon", "fuse"];
/// The modules that may name inode numbers.
const INODES: &[&str] = &["fuse", "fs", "tree"];
/// The modules that may name files, sockets and system calls.
const SYSTEM: &[&str] = &[
    "main", "daemon", "export", "fuse", "errno", "store", "cache", "machine",
];
/// The files and folders that may name the clock of the system: those that no simulation runs. Others take the time
/// from `clock`.
const SYSTEM_CLOCK: &[&str] = &[
    "clock",
    "daemon",
    "fs/local_io",
    "fuse",
    "inspect",
    "machine/terminal",
    "main",
    "runtime/simulated",
    "store/database",
    "store/disk/space_budget",
];
/// What the store uses to compare values with the document that describes them. Modules above read through
/// `DocumentStore`, so that no value is used without a comparison.
const FRESHNESS: &[&str] = &[
    "AsOf",
    "Freshness",
    "distrust",
    "drop_value",
    "freshness",
    "invalidate_before",
    "stat_after",
    "stat_as_of",
];
/// The files of `array` that name a store itself: those that open an array, and the one that verifies values.
const STORES_IN_ARRAY: &[&str] = &[
    "array/chunks",
    "array/reader",
    "array/tests",
    "array/verify",
];

fn read(path: &str) -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(path)).unwrap()
}

/// Returns the line of `src/lib.rs` that states the order.
fn order() -> String {
    let lib = read("src/lib.rs");
    let mut lines = lib.lines().filter_map(|line| line.strip_prefix("//! "));
    lines
        .find(|line| line.starts_with("main →"))
        .unwrap()
        .into()
}

/// Returns the steps of the order, from the top.
fn steps() -> Vec<Vec<String>> {
    let order = order();
    let steps = order
        .split('→')
        .map(|step| step.trim_matches(['{', '}', ' ']));
    let names = |step: &str| step.split(',').map(|name| name.trim().to_owned()).collect();
    steps.map(names).collect()
}

/// Returns the step of a module; `None` if the name is not a module.
fn step_of(module: &str) -> Option<usize> {
    let beside = BESIDE.iter().find(|(name, _)| *name == module);
    let module = beside.map_or(module, |(_, other)| other);
    steps()
        .iter()
        .position(|step| step.iter().any(|name| name == module))
}

/// Appends the identifiers and punctuation of Rust code, without comments and literals.
fn push_words(code: TokenStream, words: &mut Vec<String>) {
    for token in code {
        match token {
            TokenTree::Group(group) => {
                let (open, close) = match group.delimiter() {
                    Delimiter::Brace => ("{", "}"),
                    _ => ("(", ")"),
                };
                words.push(open.into());
                push_words(group.stream(), words);
                words.push(close.into());
            }
            TokenTree::Literal(_) => {}
            token => words.push(token.to_string()),
        }
    }
}

fn words(code: &str) -> Vec<String> {
    let mut words = Vec::new();
    push_words(code.parse().unwrap(), &mut words);
    words
}

/// Returns the names that follow a path: those of `crate::{a::b, c}` after `crate` are `a` and `c`.
fn names_after<'a>(words: &'a [String], path: &[&str]) -> Vec<&'a str> {
    let root: Vec<&str> = path.iter().flat_map(|part| [*part, ":", ":"]).collect();
    let mut names = Vec::new();
    for start in 0..words.len() {
        let is_inside = start > 1 && words[start - 2..start].iter().all(|word| word == ":");
        let Some(rest) = words[start..].strip_prefix_by(&root) else {
            continue;
        };
        if is_inside {
            continue;
        }
        let mut depth = 0;
        let mut is_first = true;
        for word in rest {
            match word.as_str() {
                "{" => depth += 1,
                "}" => depth -= 1,
                "," => is_first = depth == 1,
                word if is_first => {
                    names.push(word);
                    is_first = false;
                }
                _ => {}
            }
            if depth == 0 {
                break;
            }
        }
    }
    names
}

trait StripPrefixBy {
    /// Returns the words after those of `prefix`.
    fn strip_prefix_by(&self, prefix: &[&str]) -> Option<&Self>;
}

impl StripPrefixBy for [String] {
    fn strip_prefix_by(&self, prefix: &[&str]) -> Option<&Self> {
        let (start, rest) = self.split_at_checked(prefix.len())?;
        (start == prefix).then_some(rest)
    }
}

/// A source file.
struct Source {
    path: PathBuf,
    /// The top-level module.
    module: String,
    /// The number of modules from the root of the crate.
    depth: usize,
    words: Vec<String>,
}

fn sources() -> Vec<Source> {
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut pending = vec![src.clone()];
    let mut sources = Vec::new();
    while let Some(directory) = pending.pop() {
        for entry in fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                pending.push(path);
                continue;
            }
            let modules = path.strip_prefix(&src).unwrap().with_extension("");
            let modules: Vec<_> = modules.iter().map(|p| p.to_str().unwrap()).collect();
            if path.extension().is_some_and(|e| e == "rs") && modules != ["lib"] {
                sources.push(Source {
                    module: modules[0].to_owned(),
                    depth: modules.len(),
                    words: words(&fs::read_to_string(&path).unwrap()),
                    path,
                });
            }
        }
    }
    sources
}

impl Source {
    /// Returns the top-level modules that the file names.
    fn modules(&self) -> Vec<&str> {
        let mut modules = names_after(&self.words, &["crate"]);
        modules.extend(names_after(&self.words, &vec!["super"; self.depth]));
        if self.module == "main" {
            modules.extend(names_after(&self.words, &["zarrfs"]));
        }
        modules.retain(|name| *name != self.module && step_of(name).is_some());
        modules
    }

    fn names_system(&self) -> bool {
        let of_std = names_after(&self.words, &["std"]);
        of_std.iter().any(|name| ["fs", "net", "os"].contains(name))
            || !names_after(&self.words, &["rustix"]).is_empty()
    }
}

fn is_inode_type(word: &str) -> bool {
    let lower = word.to_lowercase();
    word.starts_with(char::is_uppercase) && (lower == "ino" || lower.starts_with("inode"))
}

#[test]
fn every_module_is_in_the_order() {
    let lib = words(&read("src/lib.rs"));
    for pair in lib.windows(2).filter(|pair| pair[0] == "mod") {
        assert!(
            step_of(&pair[1]).is_some(),
            "{} is not in the order",
            pair[1]
        );
    }
}

#[test]
fn readme_and_contributing_quote_the_order() {
    for path in ["README.md", "CONTRIBUTING.md"] {
        let text = read(path);
        let words: Vec<&str> = text.split_whitespace().collect();
        assert!(
            words.join(" ").contains(&order()),
            "{path} lacks: {}",
            order()
        );
    }
}

#[test]
fn no_module_names_one_above_it() {
    let mut wrong = BTreeSet::new();
    let mut seen = BTreeSet::new();
    for source in sources() {
        for name in source.modules() {
            seen.insert(format!("{} -> {name}", source.module));
            if step_of(name) < step_of(&source.module) {
                wrong.insert(format!("{}: {name}", source.path.display()));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert!(seen.contains("fs -> store"), "{seen:?}");
}

#[test]
fn only_permitted_modules_name_the_transport_inodes_and_the_system() {
    let mut wrong = BTreeSet::new();
    for source in sources() {
        let has = |is_named: fn(&str) -> bool| source.words.iter().any(|word| is_named(word));
        for (modules, what, is_named) in [
            (TRANSPORT, "fuser", has(|word| word == "fuser")),
            (INODES, "inode numbers", has(is_inode_type)),
            (SYSTEM, "the system", source.names_system()),
        ] {
            if is_named && !modules.contains(&source.module.as_str()) {
                wrong.insert(format!("{}: {what}", source.path.display()));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn code_that_a_simulation_runs_takes_the_time_from_its_clock() {
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut wrong = BTreeSet::new();
    for source in sources() {
        let path = source.path.strip_prefix(&src).unwrap().with_extension("");
        let is_allowed = SYSTEM_CLOCK.iter().any(|allowed| path.starts_with(allowed));
        let mut imports = source.words.split(|word| word == ";");
        let is_system = imports.any(|import| {
            let has = |words: &[&str]| import.windows(words.len()).any(|own| own == words);
            has(&["std", ":", ":", "time"]) && import.iter().any(|word| word == "Instant")
        });
        if is_system && !is_allowed {
            wrong.insert(path);
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn only_the_store_compares_values_with_their_documents() {
    let is_freshness =
        |word: &&String| FRESHNESS.contains(&word.as_str()) || word.starts_with("check_document");
    let (mut wrong, mut used) = (BTreeSet::new(), 0);
    for source in sources() {
        let named = source.words.iter().filter(is_freshness);
        match source.module == "store" {
            true => used += named.count(),
            false => wrong.extend(named.map(|word| format!("{}: {word}", source.path.display()))),
        }
        let path = source.path.with_extension("");
        let names_store = source.words.windows(2).any(|pair| pair == ["dyn", "Store"]);
        if source.module == "array"
            && names_store
            && !STORES_IN_ARRAY
                .iter()
                .any(|allowed| path.ends_with(allowed))
        {
            wrong.insert(format!("{}: a store without a document", path.display()));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert!(used > 0);
}

/// Returns the rooms of `store/remote`, from the bottom, as its head states them. The last one is for all other modules.
fn rooms() -> Vec<String> {
    let head = read("src/store/remote.rs");
    let order = head.lines().find(|line| line.contains(" < ")).unwrap();
    let order = order.trim_start_matches("//! ");
    order.split(" < ").map(str::to_owned).collect()
}

#[test]
fn no_room_of_remote_sources_names_one_above_it() {
    let rooms = rooms();
    let room_of = |name: &str| {
        let room = rooms.iter().position(|room| room == name);
        room.unwrap_or(rooms.len() - 1)
    };
    let (mut wrong, mut seen) = (BTreeSet::new(), BTreeSet::new());
    for source in sources() {
        let path = source.path.with_extension("");
        let mut modules = path
            .iter()
            .skip_while(|part| *part != "src")
            .map(|p| p.to_str().unwrap());
        if modules.by_ref().take(3).ne(["src", "store", "remote"]) {
            continue;
        }
        let Some(module) = modules.next() else {
            continue;
        };
        let mut names = names_after(&source.words, &["crate", "store", "remote"]);
        names.extend(names_after(&source.words, &vec!["super"; source.depth - 2]));
        // A `super` in a module for tests is that of its file.
        let is_here = |name: &&str| {
            let file = Path::new("src/store/remote").join(name);
            name.starts_with(char::is_uppercase) || file.with_extension("rs").exists()
        };
        for name in names.into_iter().filter(is_here) {
            let own = &rooms[room_of(module)];
            seen.insert(format!("{own} -> {name}"));
            if room_of(name) > room_of(module) {
                wrong.insert(format!("{}: {name}", path.display()));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    for pair in ["store -> bytes", "bytes -> known", "known -> request"] {
        assert!(seen.contains(pair), "{seen:?}");
    }
}

#[test]
fn names_are_found_in_paths_and_groups_but_not_in_comments_and_literals() {
    let words = words(
        r###"
        //! See [`crate::hidden`].
        /* crate::hidden /* nested */ crate::hidden */
        use crate::{fs::{self, File}, tree::Ino, store};
        pub(crate) fn f<'a>(x: crate::errno::Errno) {
            let _ = ("crate::hidden", r#"crate::hidden " "#, b"\\", '"', '\'');
            super::super::cli::y(); std::fs::read(x); other::crate::z()
        }
    "###,
    );
    assert_eq!(
        names_after(&words, &["crate"]),
        ["fs", "tree", "store", "errno"]
    );
    assert_eq!(names_after(&words, &["super", "super"]), ["cli"]);
    assert_eq!(names_after(&words, &["std"]), ["fs"]);
    assert!(is_inode_type("INodeNo") && is_inode_type("Ino") && !is_inode_type("Inotify"));
}

/// Returns the row names in a line of the fault table, such as `A1 to A8, A11`.
fn rows(cell: &str) -> Vec<(char, u32)> {
    let row = |text: &str| {
        let mut text = text.trim().chars();
        let letter = text.next().unwrap();
        (letter, text.as_str().parse::<u32>().unwrap())
    };
    let ranges = cell.split(',').map(|part| match part.split_once(" to ") {
        Some((first, last)) => (row(first), row(last).1),
        None => (row(part), row(part).1),
    });
    ranges
        .flat_map(|((letter, first), last)| (first..=last).map(move |number| (letter, number)))
        .collect()
}

#[test]
fn each_row_of_the_fault_table_has_a_test_or_a_reason() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests");
    let table = fs::read_to_string(root.join("faults.md")).unwrap();
    let (table, elsewhere) = table.split_once("## Rows without a test").unwrap();
    let first_cell = |line: &str| line.split('|').nth(1).unwrap_or_default().trim().to_owned();
    let cells = |text: &str| -> Vec<String> {
        let lines = text.lines().filter(|line| line.starts_with("| "));
        let cells = lines.map(first_cell);
        let begins = |cell: &String| cell.starts_with(|c: char| ('A'..='J').contains(&c));
        cells.filter(begins).collect()
    };
    let named: BTreeSet<(char, u32)> = cells(elsewhere).iter().flat_map(|c| rows(c)).collect();
    let listed = Command::new("grep")
        .args(["-rhoE", "--include=*.rs", "--exclude-dir=.venv*"])
        .args(["--exclude-dir=node_modules", r"\b[a-j][0-9]{2}_[a-z]"])
        .arg(&root)
        .output()
        .unwrap();
    let tests = String::from_utf8(listed.stdout).unwrap();
    let faults = cells(table);
    assert_eq!(faults.len(), 132);
    for (letter, number) in faults.iter().flat_map(|c| rows(c)) {
        let prefix = format!("{}{number:02}_", letter.to_ascii_lowercase());
        assert_ne!(
            tests.contains(&prefix),
            named.contains(&(letter, number)),
            "row {letter}{number} has either a test or a reason why not"
        );
    }
}
