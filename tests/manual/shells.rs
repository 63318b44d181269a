//! Completions in real shells.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use crate::support::*;

/// A line before TAB, and the words of the shell's line after TAB.
type Case = (&'static str, &'static [&'static str]);

/// Lines with one completion each.
const CASES: [Case; 13] = [
    ("zarrfs umou", &["zarrfs", "umount"]),
    ("zarrfs src mnt --vie", &["zarrfs", "src", "mnt", "--views"]),
    (
        "zarrfs src mnt --views li",
        &["zarrfs", "src", "mnt", "--views", "list"],
    ),
    (
        "zarrfs src mnt --views=li",
        &["zarrfs", "src", "mnt", "--views=list"],
    ),
    (
        "zarrfs src mnt -o ttl=1s,allow_o",
        &["zarrfs", "src", "mnt", "-o", "ttl=1s,allow_other"],
    ),
    (
        "zarrfs src mnt --formats npy,chu",
        &["zarrfs", "src", "mnt", "--formats", "npy,chunks"],
    ),
    (
        "zarrfs s3://b/x mnt --anon",
        &["zarrfs", "s3://b/x", "mnt", "--anonymous"],
    ),
    ("zarrfs tree sto", &["zarrfs", "tree", "store.zarr"]),
    (
        "zarrfs store.zarr mnt --path gr",
        &["zarrfs", "store.zarr", "mnt", "--path", "group/"],
    ),
    (
        "zarrfs info store.zarr group/ar",
        &["zarrfs", "info", "store.zarr", "group/array"],
    ),
    (
        "zarrfs info a\\ store.zarr my\\ gr",
        &["zarrfs", "info", "a store.zarr", "my group/"],
    ),
    ("zarrfs tree a\\ sto", &["zarrfs", "tree", "a store.zarr"]),
    ("zarrfs help netc", &["zarrfs", "help", "netcdf"]),
];

fn is_installed(shell: &str) -> bool {
    Command::new(shell)
        .arg("--version")
        .output()
        .is_ok_and(|output| output.status.success())
}

/// Creates the stores that the lines name.
fn write_stores(directory: &Path) {
    for (store, child) in [("store.zarr", "group"), ("a store.zarr", "my group")] {
        let root = directory.join(store);
        for group in [root.clone(), root.join(child)] {
            std::fs::create_dir_all(&group).unwrap();
            std::fs::write(
                group.join("zarr.json"),
                r#"{"zarr_format":3,"node_type":"group"}"#,
            )
            .unwrap();
        }
        let array = root.join(child).join("array");
        std::fs::create_dir(&array).unwrap();
        std::fs::write(array.join(".zarray"), r#"{"zarr_format":2,"shape":[1],"chunks":[1],"dtype":"<i4","compressor":null,"filters":null,"fill_value":0,"order":"C"}"#).unwrap();
    }
}

/// Types lines in a shell. Returns the words after TAB for each line.
fn typed(shell: &str, directory: &Path, lines: &[String]) -> Vec<Vec<String>> {
    let driver = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/manual/shell.py");
    let mut python = Command::new("python3");
    python
        .arg(driver)
        .arg(env!("CARGO_BIN_EXE_zarrfs"))
        .arg(shell);
    python.args(lines).current_dir(directory);
    let typed = run_for(&mut python, Duration::from_secs(200));
    assert!(typed.status.success(), "{typed:?}");
    let text = String::from_utf8(typed.stdout).unwrap();
    let lines = text.lines();
    lines
        .map(|line| line.split('\u{1f}').map(str::to_owned).collect())
        .collect()
}

fn completes(shell: &str) {
    if !is_installed(shell) {
        return skipped("needs bash, zsh and fish");
    }
    let scratch = scratch();
    write_stores(scratch.path());
    let mount = Mount::new(scratch.path().join("store.zarr"));
    let point = mount.path().to_str().unwrap();
    let (start, _) = point.split_at(point.len() - 2);
    let mut lines: Vec<String> = CASES.iter().map(|(line, _)| (*line).to_owned()).collect();
    lines.push(format!("zarrfs umount {start}"));
    lines.push(format!("zarrfs stats {start}"));
    let found = typed(shell, scratch.path(), &lines);
    for ((line, wanted), found) in CASES.iter().zip(&found) {
        // zsh removes the slash of a directory when the cursor leaves it.
        let is_source = wanted
            .last()
            .is_some_and(|word| word.ends_with("store.zarr"));
        let mut found = found.clone();
        if let Some(last) = found.last_mut().filter(|_| is_source) {
            *last = last.trim_end_matches('/').to_owned();
        }
        assert_eq!(found, *wanted, "{shell}: {line}");
    }
    assert_eq!(found[CASES.len()], ["zarrfs", "umount", point], "{shell}");
    assert_eq!(
        found[CASES.len() + 1],
        ["zarrfs", "stats", point],
        "{shell}"
    );
}

#[test]
fn bash_completes_words_at_the_cursor() {
    completes("bash");
}

#[test]
fn zsh_completes_words_at_the_cursor() {
    completes("zsh");
}

#[test]
fn fish_completes_words_at_the_cursor() {
    completes("fish");
}
