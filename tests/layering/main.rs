//! Level: the source text. The house has one way down (see the crate's own page): each module
//! names only modules below it, only the transport names its library, only the store reaches
//! the source, and inode numbers end at the tree.

#![allow(missing_docs, missing_debug_implementations)]
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A module of the crate's root and what it may name.
struct Layer {
    name: &'static str,
    /// Modules; all of them stand further down in the table.
    below: &'static [&'static str],
    /// Things of outside that not every module may name.
    may: &'static [May],
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum May {
    /// The crate `fuser`.
    Transport,
    /// Inode numbers.
    Inodes,
    /// Files, sockets and the kernel.
    System,
}

use May::{Inodes, System, Transport};

/// From the top of the house to its ground. The command line stands below the daemon: it is only
/// the options that are declared there.
const LAYERS: [Layer; 17] = [
    Layer {
        name: "main",
        below: &["daemon", "inspect", "cli"],
        may: &[System],
    },
    Layer {
        name: "daemon",
        below: &[
            "inspect", "cli", "fuse", "fs", "tree", "view", "explore", "array", "store", "machine",
        ],
        may: &[Transport, System],
    },
    Layer {
        name: "inspect",
        below: &[
            "cli", "view", "explore", "array", "codec", "zarr", "store", "units", "machine",
        ],
        may: &[],
    },
    Layer {
        name: "cli",
        below: &["fuse", "view", "codec", "store", "units"],
        may: &[],
    },
    Layer {
        name: "fuse",
        below: &["errno", "fs", "tree", "store"],
        may: &[Transport, Inodes, System],
    },
    Layer {
        name: "errno",
        below: &["fs", "store"],
        may: &[System],
    },
    Layer {
        name: "fs",
        below: &["tree", "store"],
        may: &[Inodes],
    },
    Layer {
        name: "tree",
        below: &["view", "translate", "store"],
        may: &[Inodes],
    },
    Layer {
        name: "view",
        below: &["array", "translate", "codec", "zarr", "store"],
        may: &[],
    },
    Layer {
        name: "translate",
        below: &["array", "codec", "zarr", "store"],
        may: &[],
    },
    Layer {
        name: "explore",
        below: &["zarr", "store"],
        may: &[],
    },
    Layer {
        name: "array",
        below: &["codec", "zarr", "store", "units"],
        may: &[],
    },
    Layer {
        name: "codec",
        below: &["zarr"],
        may: &[],
    },
    Layer {
        name: "zarr",
        below: &[],
        may: &[],
    },
    Layer {
        name: "store",
        below: &[],
        may: &[System],
    },
    Layer {
        name: "machine",
        below: &[],
        may: &[System],
    },
    Layer {
        name: "units",
        below: &[],
        may: &[],
    },
];

fn layer(name: &str) -> &'static Layer {
    let mut layers = LAYERS.iter();
    let found = layers.find(|layer| layer.name == name);
    found.unwrap_or_else(|| panic!("the module `{name}` has no row in this test's table"))
}

/// A word or a sign of the code, and its line.
#[derive(Debug, PartialEq)]
struct Token {
    text: String,
    line: usize,
}

/// Splits Rust into words and signs; comments and literals are left out.
fn tokens(source: &str) -> Vec<Token> {
    let code: Vec<char> = source.chars().collect();
    let at = |i: usize| code.get(i).copied().unwrap_or('\n');
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    let mut tokens = Vec::new();
    let (mut i, mut line) = (0, 1);
    while i < code.len() {
        let start = i;
        match at(i) {
            '/' if at(i + 1) == '/' => {
                while at(i) != '\n' {
                    i += 1;
                }
            }
            '/' if at(i + 1) == '*' => i = after_block_comment(&code, i),
            'r' | 'b' | 'c' if raw_hashes(&code, i).is_some() => i = after_raw_string(&code, i),
            '"' => i = after_quoted(&code, i, '"'),
            '\'' if at(i + 1) == '\\' || at(i + 2) == '\'' => i = after_quoted(&code, i, '\''),
            c if is_word(c) => {
                while is_word(at(i)) {
                    i += 1;
                }
                let text = code[start..i].iter().collect();
                tokens.push(Token { text, line });
            }
            ':' if at(i + 1) == ':' => {
                i += 2;
                let text = "::".to_owned();
                tokens.push(Token { text, line });
            }
            c => {
                i += 1;
                if !c.is_whitespace() {
                    let text = c.to_string();
                    tokens.push(Token { text, line });
                }
            }
        }
        line += code[start..i].iter().filter(|&&c| c == '\n').count();
    }
    tokens
}

fn after_block_comment(code: &[char], start: usize) -> usize {
    let (mut i, mut depth) = (start, 0);
    while i + 1 < code.len() {
        match [code[i], code[i + 1]] {
            ['/', '*'] => (i, depth) = (i + 2, depth + 1),
            ['*', '/'] => (i, depth) = (i + 2, depth - 1),
            _ => i += 1,
        }
        if depth == 0 {
            return i;
        }
    }
    code.len()
}

/// The number of `#` of the raw string that begins here, if one does.
fn raw_hashes(code: &[char], start: usize) -> Option<usize> {
    if start > 0 && (code[start - 1].is_alphanumeric() || code[start - 1] == '_') {
        return None;
    }
    let prefix = code[start..]
        .iter()
        .take_while(|c| "bc".contains(**c))
        .count();
    let rest = code[start + prefix..].strip_prefix(&['r'])?;
    let hashes = rest.iter().take_while(|c| **c == '#').count();
    (rest.get(hashes) == Some(&'"')).then_some(hashes)
}

fn after_raw_string(code: &[char], start: usize) -> usize {
    let hashes = raw_hashes(code, start).unwrap_or(0);
    let end = format!("\"{}", "#".repeat(hashes));
    let end: Vec<char> = end.chars().collect();
    let open = start + code[start..].iter().position(|&c| c == '"').unwrap();
    let closed = code[open + 1..].windows(end.len()).position(|w| w == end);
    closed.map_or(code.len(), |n| open + 1 + n + end.len())
}

fn after_quoted(code: &[char], start: usize, quote: char) -> usize {
    let mut i = start + 1;
    while i < code.len() && code[i] != quote {
        i += if code[i] == '\\' { 2 } else { 1 };
    }
    (i + 1).min(code.len())
}

/// The first names behind each path that begins with `root`, where groups may stand:
/// `crate::{a::b, c}` names `a` and `c`.
fn names_behind<'a>(tokens: &'a [Token], root: &[&str]) -> Vec<&'a Token> {
    let mut names = Vec::new();
    for start in 0..tokens.len() {
        let rest = &tokens[start..];
        let is_root = rest.len() > root.len() && rest.iter().zip(root).all(|(t, r)| t.text == *r);
        // A longer path may end like the root.
        let begins = start == 0 || tokens[start - 1].text != "::";
        if !is_root || !begins {
            continue;
        }
        let rest = &rest[root.len()..];
        if rest[0].text != "{" {
            names.push(&rest[0]);
            continue;
        }
        let (mut depth, mut first) = (0, false);
        for token in rest {
            match token.text.as_str() {
                "{" => (depth, first) = (depth + 1, depth == 0),
                "}" => depth -= 1,
                "," => first = depth == 1,
                _ if first => {
                    names.push(token);
                    first = false;
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

/// A file of the source, its module in the crate's root, and how deep it is below the root.
struct Source {
    path: PathBuf,
    layer: &'static Layer,
    depth: usize,
    tokens: Vec<Token>,
}

fn sources() -> Vec<Source> {
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut open = vec![src.clone()];
    let mut sources = Vec::new();
    while let Some(directory) = open.pop() {
        for entry in fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                open.push(path);
                continue;
            }
            let within = path.strip_prefix(&src).unwrap().with_extension("");
            let parts: Vec<_> = within.iter().map(|p| p.to_str().unwrap()).collect();
            if path.extension().is_none_or(|e| e != "rs") || parts == ["lib"] {
                continue;
            }
            sources.push(Source {
                layer: layer(parts[0]),
                depth: parts.len(),
                tokens: tokens(&fs::read_to_string(&path).unwrap()),
                path,
            });
        }
    }
    sources
}

impl Source {
    /// Every module of the crate's root that the file names, however it gets there.
    fn edges(&self) -> Vec<&Token> {
        let mut edges = names_behind(&self.tokens, &["crate", "::"]);
        if self.layer.name == "main" {
            edges.extend(names_behind(&self.tokens, &["zarrfs", "::"]));
        }
        let up = ["super", "::"].repeat(self.depth);
        let through_super = names_behind(&self.tokens, &up).into_iter();
        edges.extend(through_super.filter(|name| LAYERS.iter().any(|l| l.name == name.text)));
        edges
    }

    fn names(&self, root: &[&str]) -> bool {
        !names_behind(&self.tokens, root).is_empty()
    }

    /// The first thing in the file that only some modules may name.
    fn reaches(&self, what: May) -> Option<String> {
        match what {
            Transport => {
                let mut words = self.tokens.iter();
                words.find(|t| t.text == "fuser").map(|t| t.text.clone())
            }
            Inodes => {
                let mut words = self.tokens.iter();
                words
                    .find(|t| is_inode_type(&t.text))
                    .map(|t| t.text.clone())
            }
            System => {
                let of_std = names_behind(&self.tokens, &["std", "::"]);
                let modules = ["fs", "net", "os"];
                let module = of_std.iter().find(|t| modules.contains(&t.text.as_str()));
                let own = self.names(&["rustix", "::"]).then(|| "rustix".to_owned());
                module.map(|t| format!("std::{}", t.text)).or(own)
            }
        }
    }
}

fn is_inode_type(word: &str) -> bool {
    let lower = word.to_lowercase();
    word.starts_with(char::is_uppercase) && (lower == "ino" || lower.starts_with("inode"))
}

#[test]
fn every_module_has_a_row_and_every_row_a_module() {
    let lib = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/lib.rs");
    let lib = tokens(&fs::read_to_string(lib).unwrap());
    let declared = lib.windows(2).filter(|pair| pair[0].text == "mod");
    let declared: BTreeSet<_> = declared.map(|pair| pair[1].text.as_str()).collect();
    let rows: BTreeSet<_> = LAYERS
        .iter()
        .map(|l| l.name)
        .filter(|n| *n != "main")
        .collect();
    assert_eq!(declared, rows);
}

#[test]
fn the_table_itself_goes_only_down() {
    for (i, layer) in LAYERS.iter().enumerate() {
        for name in layer.below {
            let below = LAYERS[i + 1..].iter().any(|l| l.name == *name);
            assert!(below, "{} -> {name} goes up", layer.name);
        }
    }
}

#[test]
fn no_module_names_one_above_it() {
    let mut wrong = Vec::new();
    let mut seen = BTreeSet::new();
    for source in sources() {
        let (from, below) = (source.layer.name, source.layer.below);
        for name in source.edges() {
            let to = name.text.as_str();
            let is_module = LAYERS.iter().any(|l| l.name == to);
            if to == from || !is_module {
                continue;
            }
            seen.insert((from, to.to_owned()));
            if !below.contains(&to) {
                wrong.push(format!(
                    "{}:{}: {from} -> {to}",
                    source.path.display(),
                    name.line
                ));
            }
        }
    }
    assert!(
        wrong.is_empty(),
        "these go up or past:\n{}",
        wrong.join("\n")
    );
    assert!(seen.contains(&("fs", "store".to_owned())), "{seen:?}");
}

#[test]
fn only_the_modules_that_may_reach_outside() {
    let mut wrong = Vec::new();
    for source in sources() {
        for what in [Transport, Inodes, System] {
            if source.layer.may.contains(&what) {
                continue;
            }
            if let Some(name) = source.reaches(what) {
                wrong.push(format!("{}: {what:?}: {name}", source.path.display()));
            }
        }
    }
    assert!(
        wrong.is_empty(),
        "these reach too far:\n{}",
        wrong.join("\n")
    );
}

#[test]
fn the_reader_of_this_test_sees_what_the_compiler_sees() {
    let source = r###"
        //! See [`crate::hidden`].
        /* crate::hidden /* nested */ crate::hidden */
        use crate::{fs::{self, File}, tree::Ino, store};
        pub(crate) fn f<'a>(x: &'a str) -> crate::errno::Errno {
            let _ = ("crate::hidden \" crate::hidden", r#"crate::hidden " "#, b"\\", '"', '\'');
            let _ = br"crate::hidden"; let r = 'r';
            other::crate_name::x(); super::super::cli::y(); std::fs::read(x)
        }
    "###;
    let tokens = tokens(source);
    let texts = |root: &[&str]| -> Vec<_> {
        let names = names_behind(&tokens, root);
        names.iter().map(|t| (t.text.clone(), t.line)).collect()
    };
    let named = |names: &[(&str, usize)]| -> Vec<_> {
        names
            .iter()
            .map(|(n, line)| ((*n).to_owned(), *line))
            .collect()
    };
    let of_crate = [("fs", 4), ("tree", 4), ("store", 4), ("errno", 5)];
    assert_eq!(texts(&["crate", "::"]), named(&of_crate));
    assert_eq!(texts(&["super", "::", "super", "::"]), named(&[("cli", 8)]));
    assert_eq!(texts(&["std", "::"]), named(&[("fs", 8)]));
    assert!(is_inode_type("INodeNo") && is_inode_type("Ino") && !is_inode_type("ino"));
    assert!(!is_inode_type("Inotify"));
}

/// The names of the rows in a line of the fault table, such as `A1 to A8, A11`.
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
    assert_eq!(faults.len(), 121);
    for (letter, number) in faults.iter().flat_map(|c| rows(c)) {
        let prefix = format!("{}{number:02}_", letter.to_ascii_lowercase());
        assert_ne!(
            tests.contains(&prefix),
            named.contains(&(letter, number)),
            "row {letter}{number} has either a test or a reason why not"
        );
    }
}
