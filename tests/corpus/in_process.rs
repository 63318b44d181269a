//! Cases run against the zip store in this process.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write;
use std::ops::ControlFlow;
use std::sync::Arc;

use rustix::fs::{MemfdFlags, Timespec, Timestamps};
use rustix::io::Errno;
use zarrfs::fs::FsError;
use zarrfs::runtime::block_on;
use zarrfs::store::{
    AccessHint, BUFFER_HEADROOM_BYTES, Data, Key, Kind, LocalReadError, Object, ReadMode, Store,
    StoreError, ZipError, ZipOptions, ZipStore,
};

use crate::allocations;
use crate::cases::{Case, Expect, Outcome, random};
use crate::remote;

/// A file that must fail, but returns more bytes than this, is endless.
const ENDLESS_BYTES: usize = 256 << 20;
/// Of archives with more files, only some files are read.
const MANY_FILES: usize = 1000;

/// A function that opens an archive, either local or remote.
type Open<'a> = &'a dyn Fn(ZipOptions) -> Result<ZipStore, ZipError>;

/// Runs a case, with the archive in a file and on a server. Returns all problems.
pub fn check(case: &Case) -> Vec<String> {
    let file = memory_file(&case.archive);
    let mut problems = check_where(case, &|options| open_file(&file, options));
    let remote = check_where(case, &|options| {
        remote::open(&case.archive, remote::TAILS[0], options)
    });
    problems.extend(remote.into_iter().map(|what| format!("remote: {what}")));
    problems.extend(remote::differences(&case.archive, options(case)));
    problems
}

fn options(case: &Case) -> ZipOptions {
    ZipOptions {
        memory_limit_bytes: case
            .memory_limit_bytes
            .unwrap_or(ZipOptions::default().memory_limit_bytes),
        ..ZipOptions::default()
    }
}

fn check_where(case: &Case, open: Open<'_>) -> Vec<String> {
    let mut problems = Vec::new();
    let options = options(case);
    let ((opened, listed), biggest) = allocations::biggest_during(|| {
        let opened = open(options);
        let listed = opened.as_ref().ok().map(listing);
        (opened, listed)
    });
    if biggest > allocations::allowed(case.archive.len()) {
        problems.push(format!(
            "{biggest} bytes at once for an archive of {}",
            case.archive.len()
        ));
    }
    match (&case.expect, opened) {
        (Expect::Refused(gist), Err(error)) => {
            if !error.to_string().contains(gist) {
                problems.push(format!("`{error}` does not say `{gist}`"));
            }
        }
        (Expect::Refused(gist), Ok(_)) => problems.push(format!(
            "not refused (`{gist}`), shows {:?}",
            listed.map(|l| l.len())
        )),
        (Expect::RefusedOrServed, Err(_)) => {}
        (_, Err(error)) => problems.push(format!("refused: {error}")),
        (_, Ok(store)) => {
            let listed = listed.unwrap_or_default();
            problems.extend(compare_listings(
                &case.listing(),
                &listed.iter().map(|(k, v)| (k.clone(), v.0)).collect(),
            ));
            problems.extend(check_files(case, &store, &listed));
            let verifying = open(ZipOptions {
                verify: true,
                ..options
            });
            match verifying {
                Ok(store) => problems.extend(check_verified(case, &store)),
                Err(error) => problems.push(format!("refused only by --verify: {error}")),
            }
            problems.extend(check_strict(case, open, options));
        }
    }
    problems
}

/// Returns the missing and the superfluous paths.
pub fn compare_listings(
    expected: &BTreeMap<Vec<u8>, bool>,
    found: &BTreeMap<Vec<u8>, bool>,
) -> Vec<String> {
    let show = |path: &[u8]| path.escape_ascii().to_string();
    let missing = expected
        .iter()
        .filter(|(path, kind)| found.get(*path) != Some(kind));
    let extra = found
        .iter()
        .filter(|(path, kind)| expected.get(*path) != Some(kind));
    missing
        .map(|(path, _)| format!("not listed: {}", show(path)))
        .chain(extra.map(|(path, _)| format!("listed: {}", show(path))))
        .take(10)
        .collect()
}

/// Returns an unlinked file with this content and an old modification time.
pub fn memory_file(content: &[u8]) -> File {
    let memory = rustix::fs::memfd_create("corpus", MemfdFlags::CLOEXEC).unwrap();
    let mut file = File::from(memory);
    file.write_all(content).unwrap();
    let then = Timespec {
        tv_sec: 1_600_000_000,
        tv_nsec: 0,
    };
    rustix::fs::futimens(
        &file,
        &Timestamps {
            last_access: then,
            last_modification: then,
        },
    )
    .unwrap();
    file
}

/// Opens an archive in a file.
pub fn open_file(file: &File, options: ZipOptions) -> Result<ZipStore, ZipError> {
    ZipStore::open(file.try_clone().unwrap(), "corpus", options)
}

/// Returns every path below the root, whether it is a directory, and its size.
pub fn listing(store: &ZipStore) -> BTreeMap<Vec<u8>, (bool, u64)> {
    let mut all = BTreeMap::new();
    let mut pending = vec![Key::root()];
    while let Some(prefix) = pending.pop() {
        let mut listing = block_on(store.list(&prefix)).unwrap();
        listing
            .visit(0, &mut |listed| {
                if matches!(listed.name, b"." | b"..") {
                    return ControlFlow::Continue(());
                }
                let key = prefix.join(listed.name).unwrap();
                let is_directory = listed.kind == Kind::Prefix;
                let size = listed.stat.unwrap().size_bytes;
                let before = all.insert(key.as_bytes().to_vec(), (is_directory, size));
                assert!(before.is_none(), "{key} is listed twice");
                if is_directory {
                    pending.push(key);
                }
                ControlFlow::Continue(())
            })
            .unwrap();
    }
    all
}

/// Returns the errno and the message of a failure.
pub fn errno_and_message(error: StoreError) -> (Errno, String) {
    let words = error.to_string();
    (zarrfs::errno::errno(&FsError::Store(error)), words)
}

/// Opens the value of a key.
pub fn open_object(store: &ZipStore, key: &Key) -> Result<Arc<dyn Object>, StoreError> {
    block_on(store.open(key, AccessHint::Ranges))
}

/// Reads a range and waits for the result, like the file system.
pub fn read_blocking(
    object: &dyn Object,
    offset: u64,
    size: usize,
    buffer: &mut [u8],
) -> Result<Data, StoreError> {
    match object.as_local() {
        Some(local) => (local.read_local(offset, size, buffer, ReadMode::Blocking))
            .map_err(LocalReadError::of_blocking),
        None => block_on(object.read(offset, size)),
    }
}

/// Reads one range.
pub fn read_range(object: &dyn Object, offset: u64, size: usize) -> Result<Vec<u8>, StoreError> {
    let mut buffer = vec![0xa5; size + BUFFER_HEADROOM_BYTES];
    let data = read_blocking(object, offset, size, &mut buffer)?;
    Ok(data.bytes(&buffer).unwrap().to_vec())
}

/// Reads all of an object in reads of `piece` bytes.
pub fn read_to_end(object: &dyn Object, piece: usize) -> Result<Vec<u8>, StoreError> {
    let mut all = Vec::new();
    let mut buffer = vec![0xa5; piece + BUFFER_HEADROOM_BYTES];
    loop {
        let offset = all.len() as u64;
        // A read without waiting returns the same bytes, or that it would block.
        let local = object.as_local();
        let at_hand =
            local.map(|local| local.read_local(offset, piece, &mut buffer, ReadMode::NonBlocking));
        let data = match at_hand {
            None | Some(Err(LocalReadError::WouldBlock)) => {
                read_blocking(object, offset, piece, &mut buffer)?
            }
            Some(data) => data.map_err(LocalReadError::of_blocking)?,
        };
        let bytes = data.bytes(&buffer).unwrap();
        all.extend_from_slice(bytes);
        if bytes.len() < piece || all.len() > ENDLESS_BYTES {
            return Ok(all);
        }
    }
}

fn open_and_read(store: &ZipStore, path: &[u8], piece: usize) -> Result<Vec<u8>, StoreError> {
    let object = open_object(store, &Key::new(path).unwrap())?;
    read_to_end(object.as_ref(), piece)
}

/// Returns the files to be read: all, or a sample of very many.
pub fn sample(case: &Case) -> impl Iterator<Item = (&Vec<u8>, &Outcome)> + Clone {
    let step = if case.files.len() > MANY_FILES {
        997
    } else {
        1
    };
    case.files.iter().step_by(step)
}

/// Checks the bad files first, then the good ones.
fn check_files(
    case: &Case,
    store: &ZipStore,
    listed: &BTreeMap<Vec<u8>, (bool, u64)>,
) -> Vec<String> {
    let mut problems = Vec::new();
    let is_good = |outcome: &Outcome| matches!(outcome, Outcome::Bytes(_));
    let bad = sample(case).filter(|(_, outcome)| !is_good(outcome));
    let good = sample(case).filter(|(_, outcome)| is_good(outcome));
    for (path, outcome) in bad.chain(good) {
        let shown = path.escape_ascii().to_string();
        if let (Outcome::Bytes(content), Some((_, size))) = (outcome, listed.get(path))
            && *size != content.len() as u64
        {
            problems.push(format!("{shown} is listed with {size} bytes"));
        }
        // Twice, because a failure must be permanent.
        for round in 0..2 {
            let piece = if round == 0 { 1 << 20 } else { 64 << 10 };
            if let Some(problem) = compare_outcome(outcome, open_and_read(store, path, piece)) {
                problems.push(format!("{shown}, read {round}: {problem}"));
            }
        }
        if let Outcome::FailsToOpen(errno, _) = outcome
            && let Ok(key) = Key::new(path)
        {
            match open_object(store, &key)
                .map(|_| ())
                .map_err(errno_and_message)
            {
                Err((found, _)) if found == *errno => {}
                other => problems.push(format!("{shown}: open gives {other:?}")),
            }
            if store.capabilities().open_infallible {
                problems.push(format!(
                    "{shown}: the store capabilities that all can be opened"
                ));
            }
        }
        if let Outcome::Bytes(content) = outcome {
            problems
                .extend(check_ranges(store, path, content).map(|what| format!("{shown}: {what}")));
        }
    }
    problems
}

/// Checks reads of random ranges, including ranges beyond the end.
fn check_ranges(store: &ZipStore, path: &[u8], content: &[u8]) -> Option<String> {
    let object = match open_object(store, &Key::new(path).unwrap()) {
        Ok(object) => object,
        Err(error) => return Some(error.to_string()),
    };
    let mut state = 0x5eed_u64 | (content.len() as u64) << 20;
    for _ in 0..10 {
        let offset = random(&mut state) % (content.len() as u64 + 10);
        let size = 1 + (random(&mut state) % 5000) as usize;
        let start = content.len().min(offset as usize);
        let expected = &content[start..content.len().min(start + size)];
        match read_range(object.as_ref(), offset, size) {
            Ok(bytes) if bytes == expected => {}
            Ok(bytes) => {
                return Some(format!("{} wrong bytes at {offset}", bytes.len()));
            }
            Err(error) => return Some(format!("at {offset}: {error}")),
        }
    }
    None
}

/// Returns the problem of the result of reading a whole file, if any.
fn compare_outcome(outcome: &Outcome, result: Result<Vec<u8>, StoreError>) -> Option<String> {
    let result = result.map_err(errno_and_message);
    let (errnos, gist) = match (outcome, &result) {
        (Outcome::Bytes(content) | Outcome::BytesOrFails(content), Ok(bytes)) => {
            return (bytes != content).then(|| {
                let at = bytes.iter().zip(content).position(|(a, b)| a != b);
                format!(
                    "{} of {} bytes, wrong at {at:?}",
                    bytes.len(),
                    content.len()
                )
            });
        }
        (Outcome::Bytes(_), Err((errno, words))) => {
            return Some(format!("fails with {errno:?}: {words}"));
        }
        (Outcome::BytesOrFails(_), Err(_)) => (&[Errno::IO][..], ""),
        (Outcome::FailsToOpen(errno, gist), _) => (std::slice::from_ref(errno), *gist),
        (Outcome::Fails(errnos, gist), _) => (*errnos, *gist),
    };
    match result {
        Ok(bytes) => Some(format!("{} bytes are served (`{gist}`)", bytes.len())),
        Err((errno, _)) if !errnos.contains(&errno) => {
            Some(format!("fails with {errno:?}, not {errnos:?}"))
        }
        Err((_, words)) if !words.contains(gist) && !words.contains("found wrong before") => {
            Some(format!("`{words}` does not say `{gist}`"))
        }
        Err(_) => None,
    }
}

/// Checks that `--verify` serves no byte of a bad file.
fn check_verified(case: &Case, store: &ZipStore) -> Vec<String> {
    let mut problems = Vec::new();
    for (path, outcome) in sample(case) {
        let shown = path.escape_ascii().to_string();
        let key = Key::new(path).unwrap();
        let size = block_on(store.stat(&key)).map_or(0, |stat| stat.size_bytes);
        let opened = open_object(store, &key);
        match outcome {
            Outcome::Bytes(content) => {
                let middle = content.len() / 2;
                let expected = &content[middle..content.len().min(middle + 1)];
                let read = opened.and_then(|object| read_range(object.as_ref(), middle as u64, 1));
                if !read.is_ok_and(|bytes| bytes == expected) {
                    problems.push(format!("{shown} is not right with --verify"));
                }
            }
            Outcome::Fails(..) | Outcome::FailsToOpen(..) => {
                let Ok(object) = opened else { continue };
                for offset in [0, size / 2, size.saturating_sub(1)] {
                    if let Ok(bytes) = read_range(object.as_ref(), offset, 1) {
                        problems.push(format!(
                            "{shown}: --verify serves {bytes:?} at {offset} of {size}"
                        ));
                        break;
                    }
                }
            }
            Outcome::BytesOrFails(_) => {}
        }
    }
    problems
}

/// Checks that `--strict` refuses an archive exactly if the archive has a finding.
fn check_strict(case: &Case, open: Open<'_>, options: ZipOptions) -> Option<String> {
    let strict = ZipOptions {
        strict: true,
        ..options
    };
    match (case.note, open(strict)) {
        (None, Ok(_)) => None,
        (None, Err(error)) => match case.expect {
            Expect::Served => Some(format!("refused by --strict: {error}")),
            _ => None,
        },
        (Some(gist), Ok(_)) => Some(format!("not refused by --strict (`{gist}`)")),
        (Some(gist), Err(error)) => {
            let words = error.to_string();
            (!words.contains(gist)).then(|| format!("--strict: `{words}` does not say `{gist}`"))
        }
    }
}
