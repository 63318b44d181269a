//! The commands of the README and the manual, run exactly as written.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use crate::support::*;

#[test]
fn every_command_of_the_readme_and_the_manual_works() {
    let here = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests");
    if !here.join("views/.venv").exists() {
        return skipped("needs tests/views/setup.sh");
    }
    let scratch = scratch();
    let mut driver = Command::new("python3");
    driver.arg(here.join("manual/commands.py"));
    driver.arg(env!("CARGO_BIN_EXE_zarrfs")).arg(scratch.path());
    let ran = run_for(&mut driver, Duration::from_secs(280));
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(
        ran.status.success(),
        "{}\n{}",
        text(&ran.stdout),
        text(&ran.stderr)
    );
}

#[test]
fn the_readme_is_short_and_has_every_topic() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let readme = std::fs::read_to_string(root.join("README.md")).unwrap();
    assert!(readme.lines().count() <= 300, "{}", readme.lines().count());
    for topic in zarrfs::cli::TOPICS {
        let link = format!(
            "[`{0}`](src/manual/{0}.md) | {1} |",
            topic.name,
            topic.title()
        );
        assert!(readme.contains(&link), "{link}");
    }
    let pages = std::fs::read_dir(root.join("src/manual")).unwrap();
    let pages = pages.filter(|page| {
        page.as_ref()
            .unwrap()
            .path()
            .extension()
            .is_some_and(|e| e == "md")
    });
    assert_eq!(pages.count(), zarrfs::cli::TOPICS.len());
}
