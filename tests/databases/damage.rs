//! Pages that are overwritten, one at a time: the keys in them fail with errors, and are never absent.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::FileExt;
use std::path::Path;

use zarrfs::runtime::block_on;
use zarrfs::store::{
    AccessHint, Key, Listed, OpenOptions, SourceName, Store, StoreError, read_to_end, visit_all,
};

use crate::support::*;
use crate::{KINDS, write};

const PAGE_BYTES: usize = 4096;

pub(crate) fn open(path: &Path) -> Option<Box<dyn Store>> {
    let source = SourceName::parse(path).unwrap();
    block_on(source.open(&OpenOptions::default())).ok()
}

pub(crate) fn read(store: &dyn Store, key: &Key) -> Result<Vec<u8>, StoreError> {
    block_on(async {
        let object = store.open(key, AccessHint::Ranges).await?;
        read_to_end(&*object, key, 1 << 20).await
    })
}

/// Adds all keys below a prefix; `None` if a listing fails.
pub(crate) fn keys(store: &dyn Store, prefix: &Key, found: &mut Vec<Key>) -> Option<()> {
    let mut names = Vec::new();
    block_on(async {
        let mut listing = store.list(prefix).await.ok()?;
        let mut note = |listed: Listed<'_>| {
            if !matches!(listed.name, b"." | b"..") {
                names.push((listed.name.to_vec(), listed.kind));
            }
            std::ops::ControlFlow::Continue(())
        };
        visit_all(&mut *listing, &mut note).await.ok()
    })?;
    for (name, kind) in names {
        let key = prefix.join(&name).ok()?;
        match kind {
            zarrfs::store::Kind::Prefix => keys(store, &key, found)?,
            zarrfs::store::Kind::Object => found.push(key),
        }
    }
    Some(())
}

#[test]
fn a_damaged_page_is_an_error_and_never_absence() {
    let scratch = scratch();
    for kind in KINDS {
        let source = scratch.path().join(kind);
        run(write().args(["small", kind]).arg(&source));
        let data = match source.is_dir() {
            true => source.join("data.mdb"),
            false => source,
        };
        let store = open(&data).unwrap();
        let mut all = Vec::new();
        keys(&*store, &Key::root(), &mut all).unwrap();
        assert_eq!(all.len(), 153, "{kind}");
        let values: BTreeMap<Key, Vec<u8>> = all
            .iter()
            .map(|key| (key.clone(), read(&*store, key).unwrap()))
            .collect();
        drop(store);
        let mut content = used(&data);
        let damaged = scratch.path().join(format!("{kind}-damaged"));
        let (mut errors, mut refused) = (0, 0);
        for page in 0..content.len() / PAGE_BYTES {
            let range = page * PAGE_BYTES..(page + 1) * PAGE_BYTES;
            let original = content[range.clone()].to_vec();
            for fill in [Some(0), Some(0xff), Some(b'a'), None] {
                match fill {
                    Some(byte) => content[range.clone()].fill(byte),
                    // Simulates a lost write: the page has the content of another page.
                    None => content.copy_within(2 * PAGE_BYTES..3 * PAGE_BYTES, range.start),
                }
                fs::write(&damaged, &content).unwrap();
                content[range.clone()].copy_from_slice(&original);
                let Some(store) = open(&damaged) else {
                    refused += 1;
                    continue;
                };
                for (key, value) in &values {
                    match read(&*store, key) {
                        // Pages of long values have no checksum.
                        Ok(found) if value.len() > PAGE_BYTES => {
                            assert_eq!(found.len(), value.len(), "{kind}: {page}: {key}");
                        }
                        Ok(found) => assert!(found == *value, "{kind}: {page}: {key} is wrong"),
                        Err(StoreError::NotFound { .. } | StoreError::NotAPrefix { .. }) => {
                            panic!("{kind}: page {page}, {fill:?}: {key} is said to be absent")
                        }
                        Err(_) => errors += 1,
                    }
                }
                let mut found = Vec::new();
                if keys(&*store, &Key::root(), &mut found).is_some() {
                    assert_eq!(found, all, "{kind}: page {page}: a listing lacks names");
                }
            }
        }
        assert!(
            errors > 50 && refused > 0,
            "{kind}: {errors} errors, {refused} refused"
        );
    }
}

/// Returns the pages of a file that are in use: the file of an LMDB database is as long as its map.
fn used(path: &Path) -> Vec<u8> {
    let mut bytes = vec![0; 1 << 20];
    let length = fs::File::open(path)
        .unwrap()
        .read_at(&mut bytes, 0)
        .unwrap();
    bytes.truncate(length);
    let end = bytes.iter().rposition(|byte| *byte != 0).unwrap();
    bytes.truncate((end / PAGE_BYTES + 1) * PAGE_BYTES);
    bytes
}

#[test]
fn a_truncated_database_is_an_error_and_never_absence() {
    let scratch = scratch();
    for kind in ["sqlite", "lmdb0", "lmdb1"] {
        let source = scratch.path().join(kind);
        run(write().args(["small", kind]).arg(&source));
        let data = match source.is_dir() {
            true => source.join("data.mdb"),
            false => source,
        };
        let content = used(&data);
        let cut = scratch.path().join(format!("{kind}-cut"));
        for pages in 1..content.len() / PAGE_BYTES {
            fs::write(&cut, &content[..pages * PAGE_BYTES]).unwrap();
            let Some(store) = open(&cut) else { continue };
            for key in ["a3/3", "a5/145", "long/0", ".zgroup"] {
                let key = Key::new(key.as_bytes()).unwrap();
                let found = read(&*store, &key);
                let is_absent = matches!(found, Err(StoreError::NotFound { .. }));
                assert!(!is_absent, "{kind}: {key} of {pages} pages");
            }
        }
    }
}

#[test]
fn changed_bytes_end_no_reader() {
    let scratch = scratch();
    for kind in KINDS {
        let source = scratch.path().join(kind);
        run(write().args(["small", kind]).arg(&source));
        let data = match source.is_dir() {
            true => source.join("data.mdb"),
            false => source,
        };
        let original = used(&data);
        let changed = scratch.path().join(format!("{kind}-changed"));
        let mut state = 1_u64;
        for _ in 0..60 {
            let mut content = original.clone();
            // The headers of pages and entries contain offsets, sizes and page numbers.
            for _ in 0..4 {
                state = state
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1);
                let page = (state >> 33) as usize % (content.len() / PAGE_BYTES);
                let byte = (state >> 20) as usize % 64;
                content[page * PAGE_BYTES + byte] ^= 1 << ((state >> 50) % 8);
            }
            fs::write(&changed, &content).unwrap();
            let Some(store) = open(&changed) else {
                continue;
            };
            let mut found = Vec::new();
            let _ = keys(&*store, &Key::root(), &mut found);
            for key in found {
                let _ = read(&*store, &key);
            }
        }
    }
}
