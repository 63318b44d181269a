//! Tests of the keys that a repository shows as a store.

use std::ops::ControlFlow;
use std::sync::Arc;

use super::builder::{
    Chunk, array, group, id, inline, manifest, native, repository, snapshot, store, virtual_chunk,
};
use crate::runtime::block_on;
use crate::store::icechunk::id::ObjectId;
use crate::store::icechunk::{IcechunkError, IcechunkOptions, detect_local, open};
use crate::store::reference::{BaseLocation, ReferenceStore};
use crate::store::{
    AccessHint, Key, KeyClasses, OpenOptions, SourceInfo, Store, StoreError, read_to_end, visit_all,
};

const DEFAULT: &str = r#"{"name": "default", "configuration": {"separator": "/"}}"#;
const DOTS: &str = r#"{"name": "default", "configuration": {"separator": "."}}"#;
const V2: &str = r#"{"name": "v2", "configuration": {"separator": "."}}"#;
const V2_SLASHES: &str = r#"{"name": "v2", "configuration": {"separator": "/"}}"#;

type Files = Vec<(String, Vec<u8>)>;

fn key(text: &str) -> Key {
    Key::new(text.as_bytes()).unwrap()
}

fn opened(files: Files, reference: Option<&str>) -> Result<ReferenceStore, IcechunkError> {
    let store = Arc::new(store(files));
    let options = OpenOptions {
        icechunk: IcechunkOptions {
            reference: reference.map(str::to_owned),
            ..IcechunkOptions::default()
        },
        ..OpenOptions::default()
    };
    let base = BaseLocation::Directory("/nowhere".into());
    block_on(async {
        let layout = detect_local(&*store, KeyClasses::default()).await.unwrap();
        open(layout, Arc::clone(&store) as _, store, base, &options).await
    })
}

/// Returns the sorted names below a prefix, checking that a lookup of each returns the same attributes.
fn names(store: &dyn Store, prefix: &str) -> Vec<String> {
    block_on(async {
        let mut names = Vec::new();
        let mut listing = store.list(&key(prefix)).await.unwrap();
        visit_all(&mut *listing, &mut |listed| {
            if !matches!(listed.name, b"." | b"..") {
                let name = String::from_utf8(listed.name.to_vec()).unwrap();
                names.push((name, listed.kind, listed.stat));
            }
            ControlFlow::Continue(())
        })
        .await
        .unwrap();
        for (name, kind, stat) in &names {
            let found = store
                .stat(&key(prefix).join(name.as_bytes()).unwrap())
                .await
                .unwrap();
            assert_eq!((found.kind, Some(found)), (*kind, *stat), "{prefix} {name}");
        }
        let mut names: Vec<String> = names.into_iter().map(|(name, ..)| name).collect();
        names.sort();
        names
    })
}

fn value(store: &dyn Store, name: &str) -> Result<Vec<u8>, StoreError> {
    block_on(async {
        let object = store.open(&key(name), AccessHint::Ranges).await?;
        read_to_end(&*object, &key(name), 1 << 20).await
    })
}

fn is_absent(store: &dyn Store, name: &str) -> bool {
    let stat = block_on(store.stat(&key(name)));
    matches!(
        stat,
        Err(StoreError::NotFound { .. } | StoreError::NotAPrefix { .. })
    )
}

fn with_refs(mut files: Files) -> Files {
    let refs = [("main", id(100)), ("dev", id(100))];
    files.push((
        "repo".into(),
        repository([&refs, &[("v1", id(100))]], false),
    ));
    files
}

fn file(directory: &str, id: ObjectId, bytes: Vec<u8>) -> (String, Vec<u8>) {
    (format!("{directory}/{id}"), bytes)
}

/// Builds a repository with all kinds of names and of chunks.
fn all_kinds() -> Files {
    let square: Vec<Chunk> = [[0, 0], [0, 1], [2, 1]]
        .map(|index| inline(&index, format!("{index:?}").as_bytes()))
        .into();
    let one = |number| vec![(id(number), vec![[0, 3], [0, 2]])];
    let nodes = [
        group("/"),
        group("/g"),
        group("/g-x"),
        array("/g/nested", 1, DEFAULT, 2, one(1)),
        array("/g/dots", 2, DOTS, 2, one(1)),
        array("/g/v2", 3, V2, 2, one(1)),
        array("/g/v2-slashes", 4, V2_SLASHES, 2, one(1)),
        array("/g/scalar", 5, DEFAULT, 0, vec![(id(1), vec![])]),
        array("/g/empty", 6, DEFAULT, 1, vec![]),
        array(
            "/implied/deep/array",
            7,
            DEFAULT,
            1,
            vec![(id(2), vec![[0, 4]])],
        ),
        group("/.."),
        group("/a//b"),
        group("/g/zarr.json"),
    ];
    let kinds = vec![
        native(&[0], id(50), 2, 3),
        native(&[1], id(51), 0, 1),
        native(&[2], id(50), 3, 100),
        virtual_chunk(&[3], "file:///elsewhere/data"),
        inline(&[4], b"outside of the extents"),
    ];
    let arrays: Vec<(u8, Vec<Chunk>)> = (1..=4).map(|number| (number, square.clone())).collect();
    let scalar = (5, vec![inline(&[], b"scalar")]);
    let arrays: Vec<_> = arrays.into_iter().chain([scalar]).collect();
    with_refs(vec![
        file("snapshots", id(100), snapshot(id(100), &nodes)),
        file("manifests", id(1), manifest(id(1), &arrays)),
        file("manifests", id(2), manifest(id(2), &[(7, kinds)])),
        file("chunks", id(50), b"0123456789".to_vec()),
    ])
}

#[test]
fn every_chunk_key_encoding_has_its_names() {
    let store = opened(all_kinds(), None).unwrap();
    assert_eq!(names(&store, ""), ["g", "g-x", "implied", "zarr.json"]);
    assert_eq!(names(&store, "implied"), ["deep"]);
    assert_eq!(names(&store, "g/nested"), ["c", "zarr.json"]);
    assert_eq!(names(&store, "g/nested/c"), ["0", "2"]);
    assert_eq!(names(&store, "g/nested/c/0"), ["0", "1"]);
    assert_eq!(names(&store, "g/nested/c/2"), ["1"]);
    assert_eq!(
        names(&store, "g/dots"),
        ["c.0.0", "c.0.1", "c.2.1", "zarr.json"]
    );
    assert_eq!(names(&store, "g/v2"), ["0.0", "0.1", "2.1", "zarr.json"]);
    assert_eq!(names(&store, "g/v2-slashes"), ["0", "2", "zarr.json"]);
    assert_eq!(names(&store, "g/v2-slashes/0"), ["0", "1"]);
    assert_eq!(names(&store, "g/scalar"), ["c", "zarr.json"]);
    assert_eq!(names(&store, "g/empty"), ["zarr.json"]);
    assert_eq!(value(&store, "g/nested/c/2/1").unwrap(), b"[2, 1]");
    assert_eq!(value(&store, "g/dots/c.0.1").unwrap(), b"[0, 1]");
    assert_eq!(value(&store, "g/scalar/c").unwrap(), b"scalar");
    for name in [
        "h",
        "g/nested/c/1",
        "g/nested/c/0/2",
        "g/nested/c/0/0/0",
        "g/nested/0",
        "g/nested/c.0.0",
        "g/empty/c",
        "g/empty/c/0",
        "g/c",
        "g/c/0",
        "implied/zarr.json",
        "zarr.json/x",
        "g/nested/c/00/0",
        "g/scalar/c/0",
        "g/v2/0",
        "g/v2-slashes/1",
    ] {
        assert!(is_absent(&store, name), "{name}");
        assert!(block_on(store.list(&key(name))).is_err(), "{name}");
    }
}

#[test]
fn a_chunk_that_cannot_be_read_is_an_error_of_that_chunk_only() {
    let store = opened(all_kinds(), None).unwrap();
    assert_eq!(names(&store, "implied/deep/array/c"), ["0", "1", "2", "3"]);
    let chunk = |number: u8| value(&store, &format!("implied/deep/array/c/{number}"));
    assert_eq!(chunk(0).unwrap(), b"234");
    let error = chunk(1).unwrap_err();
    assert!(!matches!(error, StoreError::NotFound { .. }), "{error}");
    assert!(
        error.to_string().contains(&format!("chunks/{}", id(51))),
        "{error}"
    );
    assert!(
        matches!(chunk(2), Err(StoreError::Corrupt { .. })),
        "beyond the end"
    );
    assert!(
        matches!(chunk(3), Err(StoreError::Denied { .. })),
        "not allowed"
    );
    assert!(is_absent(&store, "implied/deep/array/c/4"));
}

/// Builds an array of `chunks` chunks in one dimension, in manifests of `each` chunks.
fn long(encoding: &str, chunks: u32, each: u32) -> Files {
    let extents: Vec<[u32; 2]> = (0..chunks)
        .step_by(each as usize)
        .map(|at| [at, (at + each).min(chunks)])
        .collect();
    let numbered = || (1_u8..).zip(extents.iter());
    let mut manifests: Vec<_> = numbered()
        .map(|(number, extent)| (id(number), vec![*extent]))
        .collect();
    manifests.reverse();
    let nodes = [array("/", 1, encoding, 1, manifests)];
    let mut files = vec![file("snapshots", id(100), snapshot(id(100), &nodes))];
    for (number, [from, to]) in numbered() {
        let refs = (*from..*to)
            .map(|at| inline(&[at], &at.to_le_bytes()))
            .collect();
        files.push(file(
            "manifests",
            id(number),
            manifest(id(number), &[(1, refs)]),
        ));
    }
    with_refs(files)
}

#[test]
fn an_array_with_an_unknown_encoding_has_its_document_and_no_chunks_that_can_be_named() {
    let manifests = vec![(id(1), vec![[0, 3]])];
    let nodes = [array("/", 1, r#"{"name": "other"}"#, 1, manifests)];
    let chunks = vec![(1, vec![inline(&[0], b"0")])];
    let store = opened(
        with_refs(vec![
            file("snapshots", id(100), snapshot(id(100), &nodes)),
            file("manifests", id(1), manifest(id(1), &chunks)),
        ]),
        None,
    );
    let store = store.unwrap();
    assert!(!value(&store, "zarr.json").unwrap().is_empty());
    assert!(is_absent(&store, ".zarray"));
    for chunk in ["c/0", "0"] {
        let error = value(&store, chunk).unwrap_err();
        assert!(matches!(error, StoreError::Unsupported { .. }), "{error}");
    }
}

#[test]
fn a_listing_of_many_pages_and_manifests_has_every_name_once() {
    for (encoding, prefix, each) in [
        (DEFAULT, "c", 5000),
        (DEFAULT, "c", 700),
        (V2, "", 5000),
        (V2, "", 1024),
        (V2_SLASHES, "", 333),
    ] {
        let store = opened(long(encoding, 5000, each), None).unwrap();
        let mut expected: Vec<String> = (0..5000).map(|at: u32| at.to_string()).collect();
        if prefix.is_empty() {
            expected.push("zarr.json".into());
        }
        expected.sort();
        assert_eq!(names(&store, prefix), expected, "{encoding} {each}");
    }
}

#[test]
fn a_branch_a_tag_or_an_identifier_selects_a_version() {
    let by_id = id(100).to_string();
    for name in [None, Some("main"), Some("dev"), Some("v1"), Some(&by_id)] {
        let store = opened(all_kinds(), name).unwrap();
        let is_branch = matches!(name, None | Some("main" | "dev"));
        assert_eq!(store.capabilities().immutable, !is_branch, "{name:?}");
    }
    for name in ["v2", "", "a/b", &id(101).to_string()] {
        let error = opened(all_kinds(), Some(name)).unwrap_err().to_string();
        assert!(error.contains("branches: dev, main; tags: v1"), "{error}");
    }
    let history = block_on(opened(all_kinds(), None).unwrap().history());
    let history = history.unwrap().unwrap();
    assert_eq!((history.branches.len(), history.tags.len()), (2, 1));
    assert_eq!(history.versions[0].message, "a message");
}

#[test]
fn an_offline_repository_is_not_read() {
    let mut files = all_kinds();
    files.last_mut().unwrap().1 = repository([&[("main", id(100))], &[]], true);
    let error = opened(files, None).unwrap_err().to_string();
    assert!(error.contains("offline: maintenance"), "{error}");
}

#[test]
fn files_that_are_missing_are_errors_of_the_keys_that_need_them() {
    let without = |name: String| {
        let files = all_kinds().into_iter().filter(|(file, _)| *file != name);
        opened(files.collect(), None)
    };
    let store = without(format!("manifests/{}", id(1))).unwrap();
    assert!(matches!(
        value(&store, "g/nested/c/0/0"),
        Err(StoreError::Corrupt { .. })
    ));
    assert!(block_on(store.list(&key("g/nested/c"))).is_err());
    assert_eq!(value(&store, "implied/deep/array/c/0").unwrap(), b"234");
    let error = without(format!("snapshots/{}", id(100)))
        .unwrap_err()
        .to_string();
    assert!(error.contains(&format!("snapshots/{}", id(100))), "{error}");
}

/// Builds the files of version 1 of the format, with a file for each branch and tag.
fn version_1() -> Files {
    let mut files = all_kinds();
    files.retain(|(name, _)| name != "repo");
    let document = format!(r#"{{"snapshot":"{}"}}"#, id(100)).into_bytes();
    for name in ["branch.main", "branch.dev", "tag.v1", "tag.gone"] {
        files.push((format!("refs/{name}/ref.json"), document.clone()));
    }
    files.push(("refs/tag.gone/ref.json.deleted".into(), Vec::new()));
    files.push(("refs/branch.bad/ref.json".into(), b"{}".to_vec()));
    files
}

#[test]
fn branches_and_tags_of_version_1_are_files() {
    for name in [None, Some("dev"), Some("v1")] {
        let store = opened(version_1(), name).unwrap();
        assert_eq!(value(&store, "g/scalar/c").unwrap(), b"scalar");
    }
    let error = opened(version_1(), Some("bad")).unwrap_err().to_string();
    assert!(error.contains("refs/branch.bad/ref.json"), "{error}");
    let mut files = version_1();
    files.retain(|(name, _)| !name.contains("bad"));
    let error = opened(files, Some("gone")).unwrap_err().to_string();
    assert!(error.contains("branches: dev, main; tags: v1"), "{error}");
}
