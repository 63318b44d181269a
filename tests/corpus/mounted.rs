//! Cases run through a real mount, with this process as the client.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::io::Errno;
use zarrfs::errno::errno_name;

use crate::cases::{Case, Expect, Outcome, random};
use crate::in_process::{compare_listings, sample};
use crate::support::{Mount, Refusal, scratch, wait_until};

/// A file that must fail, but returns more bytes than this, is endless.
const ENDLESS_BYTES: usize = 256 << 20;
/// The number of failures in one second that the log contains at least.
const LOGGED_FAILURES: usize = 8;

/// Runs a case. Returns all problems.
pub fn check(case: &Case) -> Vec<String> {
    let mut problems = Vec::new();
    let dir = scratch();
    let source = dir.path().join("case.zip");
    fs::write(&source, &case.archive).unwrap();
    let limit = case.memory_limit_bytes.map(|limit| limit.to_string());
    let mut arguments = vec!["--force"];
    if let Some(limit) = &limit {
        arguments.extend(["--memory-limit", limit]);
    }
    match (&case.expect, Mount::attempt(&source, &arguments)) {
        (Expect::Refused(gist), Err(refusal)) => {
            problems.extend(check_refusal(&refusal, gist));
        }
        (Expect::RefusedOrServed, Err(refusal)) => problems.extend(check_refusal(&refusal, "")),
        (Expect::Refused(gist), Ok(_)) => problems.push(format!("not refused (`{gist}`)")),
        (_, Err(refusal)) => problems.push(format!("refused: {refusal:?}")),
        (_, Ok(mount)) => {
            problems.extend(compare_listings(&case.listing(), &listing(mount.path())));
            problems.extend(check_files(case, &mount));
            if let Some(gist) = case.note {
                if !logged(&mount, &[gist]) {
                    problems.push(format!("the log does not say `{gist}`: {}", mount.log()));
                }
                arguments.push("--strict");
                match Mount::attempt(&source, &arguments) {
                    Ok(_) => problems.push("not refused by --strict".into()),
                    Err(refusal) => problems.extend(check_refusal(&refusal, gist)),
                }
            }
            if mount.log().contains("bug:") {
                problems.push(format!("something panicked: {}", mount.log()));
            }
        }
    }
    problems
}

/// Checks the message of a refused mount. [`Mount::attempt`] has proved that nothing is left mounted.
fn check_refusal(refusal: &Refusal, gist: &str) -> Vec<String> {
    let mut problems = Vec::new();
    if refusal.code != Some(32) {
        problems.push(format!("exit code {:?}", refusal.code));
    }
    if !refusal.stderr.contains(gist) || !refusal.stderr.contains("case.zip") {
        problems.push(format!("`{}` does not say `{gist}`", refusal.stderr.trim()));
    }
    problems
}

/// Returns every path below `root`, and whether it is a directory.
fn listing(root: &Path) -> BTreeMap<Vec<u8>, bool> {
    let mut all = BTreeMap::new();
    let mut pending = vec![(root.to_path_buf(), Vec::new())];
    while let Some((directory, prefix)) = pending.pop() {
        for entry in fs::read_dir(&directory).unwrap() {
            let entry = entry.unwrap();
            let mut path = prefix.clone();
            if !path.is_empty() {
                path.push(b'/');
            }
            path.extend_from_slice(entry.file_name().as_bytes());
            let kind = entry.file_type().unwrap();
            assert!(kind.is_dir() || kind.is_file(), "{entry:?} is {kind:?}");
            assert!(
                all.insert(path.clone(), kind.is_dir()).is_none(),
                "{entry:?} is listed twice"
            );
            if kind.is_dir() {
                pending.push((entry.path(), path));
            }
        }
    }
    all
}

fn at(mount: &Mount, path: &[u8]) -> PathBuf {
    mount.join(OsStr::from_bytes(path))
}

/// Reads a whole file, independently of its reported size.
fn read(path: &Path) -> Result<Vec<u8>, io::Error> {
    let mut file = File::open(path)?;
    let mut all = Vec::new();
    let mut buffer = vec![0; 1 << 20];
    loop {
        let n = file.read(&mut buffer)?;
        all.extend_from_slice(&buffer[..n]);
        if n == 0 || all.len() > ENDLESS_BYTES {
            return Ok(all);
        }
    }
}

/// Checks the bad files first, then the good ones.
fn check_files(case: &Case, mount: &Mount) -> Vec<String> {
    let mut problems = Vec::new();
    let is_good = |outcome: &Outcome| matches!(outcome, Outcome::Bytes(_));
    let bad = sample(case).filter(|(_, outcome)| !is_good(outcome));
    let good = sample(case).filter(|(_, outcome)| is_good(outcome));
    let failing = bad.clone().count();
    for (path, outcome) in bad.chain(good) {
        let shown = path.escape_ascii().to_string();
        let mut note = |what: String| problems.push(format!("{shown}: {what}"));
        // Paths longer than PATH_MAX cannot be opened by this process.
        if mount.path().as_os_str().len() + path.len() > 4000 {
            continue;
        }
        let file = at(mount, path);
        match fs::symlink_metadata(&file) {
            Ok(found) => {
                if !found.is_file() || found.mode() & 0o7777 != 0o644 {
                    note(format!("is {:?}", found.permissions().mode()));
                }
                if let Outcome::Bytes(content) = outcome
                    && found.len() != content.len() as u64
                {
                    note(format!("has {} bytes", found.len()));
                }
            }
            Err(error) => note(format!("stat: {error}")),
        }
        // Twice, because a failure must be permanent.
        for round in 0..2 {
            let (errnos, gist) = match (outcome, read(&file)) {
                (Outcome::Bytes(content), Ok(bytes)) if bytes == *content => {
                    if round == 0
                        && let Some(problem) = check_ranges(&file, content)
                    {
                        note(problem);
                    }
                    continue;
                }
                (Outcome::Bytes(_), other) => {
                    note(format!(
                        "read {round}: {:?}",
                        other.map(|bytes| bytes.len())
                    ));
                    continue;
                }
                (Outcome::BytesOrFails(content), Ok(bytes)) if bytes == *content => continue,
                (_, Ok(bytes)) => {
                    note(format!("read {round}: {} bytes are served", bytes.len()));
                    continue;
                }
                (outcome, Err(error)) => {
                    let (errnos, gist) = match outcome {
                        Outcome::FailsToOpen(errno, gist) => {
                            if File::open(&file).is_ok() {
                                note("open works".into());
                            }
                            (std::slice::from_ref(errno), *gist)
                        }
                        Outcome::Fails(errnos, gist) => (*errnos, *gist),
                        _ => (&[Errno::IO][..], ""),
                    };
                    let found = Errno::from_io_error(&error);
                    if !found.is_some_and(|errno| errnos.contains(&errno)) {
                        note(format!("read {round}: {error}, not {errnos:?}"));
                    }
                    (errnos, gist)
                }
            };
            let key = String::from_utf8_lossy(path).escape_debug().to_string();
            let is_logged = |errno: &Errno| logged(mount, &[gist, &key, errno_name(*errno)]);
            if failing <= LOGGED_FAILURES && !errnos.iter().any(is_logged) {
                note(format!(
                    "no line with `{gist}` and {errnos:?} in: {}",
                    mount.log()
                ));
            }
        }
    }
    problems
}

/// Returns whether the log soon has a warning with all of these words.
fn logged(mount: &Mount, words: &[&str]) -> bool {
    wait_until(Duration::from_secs(2), || {
        mount
            .log()
            .lines()
            .any(|line| line.contains("WARN") && words.iter().all(|word| line.contains(word)))
    })
}

/// Checks reads of random ranges, including ranges beyond the end.
fn check_ranges(path: &Path, content: &[u8]) -> Option<String> {
    let file = File::open(path).ok()?;
    let mut state = 0xbeef_u64 | (content.len() as u64) << 20;
    let mut buffer = vec![0; 5000];
    for _ in 0..5 {
        let offset = random(&mut state) % (content.len() as u64 + 10);
        let size = 1 + (random(&mut state) % 5000) as usize;
        let start = content.len().min(offset as usize);
        let expected = &content[start..content.len().min(start + size)];
        match file.read_at(&mut buffer[..size], offset) {
            Ok(n) if buffer[..n] == *expected => {}
            other => return Some(format!("pread of {size} at {offset}: {other:?}")),
        }
    }
    None
}
