use super::*;
use serde_json::json;
use std::collections::HashSet;

fn keys(encoding: KeyEncoding, separator: Separator) -> ChunkKeys {
    ChunkKeys {
        encoding,
        separator,
    }
}

/// Collects all paths below a directory with their chunks.
fn walk(names: &ChunkNames, cell: ChunkDir, path: &str, found: &mut Vec<(String, u64)>) {
    for place in 0..names.len(cell) {
        let (name, leads) = names.nth(cell, place).unwrap();
        assert_eq!(
            names.find(cell, name.as_bytes()),
            Some(leads),
            "{path}/{name}"
        );
        let path = if path.is_empty() {
            name
        } else {
            format!("{path}/{name}")
        };
        match leads {
            ChunkEntry::Chunk(chunk) => found.push((path, chunk)),
            ChunkEntry::Directory(below) => walk(names, below, &path, found),
        }
    }
    assert_eq!(names.nth(cell, names.len(cell)), None);
}

#[test]
fn the_tree_has_the_key_of_every_chunk() {
    for counts in [&[][..], &[3], &[2, 3], &[2, 1, 12], &[2, 0, 3], &[0]] {
        for encoding in [KeyEncoding::Default, KeyEncoding::V2, KeyEncoding::N5] {
            for separator in [Separator::Dot, Separator::Slash] {
                let keys = keys(encoding.clone(), separator);
                let mut found = Vec::new();
                let names = ChunkNames::of_keys(keys.clone(), counts);
                walk(&names, ChunkDir::default(), "", &mut found);
                let chunks: u64 = counts.iter().product();
                let expected: Vec<(String, u64)> = (0..chunks)
                    .map(|linear| {
                        let mut left = linear;
                        let mut index: Vec<u64> = counts
                            .iter()
                            .rev()
                            .map(|count| {
                                let at = left % count;
                                left /= count;
                                at
                            })
                            .collect();
                        index.reverse();
                        (keys.encode(&index), linear)
                    })
                    .collect();
                // Directories of N5 list the last axis first.
                found.sort_by_key(|(_, linear)| *linear);
                assert_eq!(found, expected, "{counts:?} {keys:?}");
            }
        }
    }
}

#[test]
fn the_tree_of_a_template_has_the_key_of_every_chunk() {
    for (template, paths) in [
        ("images/{2}/{0}_{1:02}.jpeg", 3),
        ("{*}", 1),
        ("{1}/{-1}/{0}", 3),
        ("a/b/{2}{{/{*:03}", 4),
    ] {
        let encoding = json!({
            "name": "template",
            "configuration": {"template": template, "separator": "-"},
        });
        let keys = ChunkKeys::from_v3(&encoding, 3).unwrap();
        for counts in [[2, 1, 12], [3, 11, 2], [2, 0, 3], [u64::MAX, 2, 2]] {
            let names = ChunkNames::of_keys(keys.clone(), &counts);
            let mut found = Vec::new();
            if counts[0] < 4 {
                walk(&names, ChunkDir::default(), "", &mut found);
            }
            let decoded = found.iter().map(|(path, linear)| {
                let index = keys.decode(path.as_bytes(), &counts).unwrap();
                assert_eq!(keys.encode(&index), *path);
                assert_eq!(path.split('/').count(), paths);
                assert_eq!(
                    names.find_path(path.as_bytes()),
                    Some(ChunkEntry::Chunk(*linear))
                );
                let linear_of = |linear, (at, count): (&u64, &u64)| linear * count + at;
                assert_eq!(index.iter().zip(&counts).fold(0, linear_of), *linear);
                *linear
            });
            let mut decoded: Vec<u64> = decoded.collect();
            decoded.sort_unstable();
            let chunks = product(counts.iter().copied()).filter(|_| counts[0] < 4);
            let expected: Vec<u64> = (0..chunks.unwrap_or(0)).collect();
            assert_eq!(decoded, expected, "{template} {counts:?}");
        }
    }
}

#[test]
fn the_tree_of_fanout_has_the_key_of_every_chunk() {
    let encoding = json!({"name": "fanout", "configuration": {"max_children": 100}});
    for counts in [
        &[][..],
        &[1],
        &[101],
        &[10_101],
        &[1, 1, 1],
        &[3, 120, 2],
        &[101, 1, 100],
        &[2, 0, 3],
    ] {
        let keys = ChunkKeys::from_v3(&encoding, counts.len()).unwrap();
        let names = ChunkNames::of_keys(keys.clone(), counts);
        let mut found = Vec::new();
        walk(&names, ChunkDir::default(), "", &mut found);
        found.sort_by_key(|(_, linear)| *linear);
        let chunks: u64 = counts.iter().product();
        assert_eq!(u64::try_from(found.len()).unwrap(), chunks, "{counts:?}");
        for (place, (path, linear)) in (0..).zip(&found) {
            assert_eq!(*linear, place);
            let index = keys.decode(path.as_bytes(), counts).unwrap();
            assert_eq!(keys.encode(&index), *path);
            let linear_of = |linear, (at, count): (&u64, &u64)| linear * count + at;
            assert_eq!(index.iter().zip(counts).fold(0, linear_of), place);
        }
    }
    let keys = ChunkKeys::from_v3(&encoding, 2).unwrap();
    let largest = ChunkNames::of_keys(keys.clone(), &[u64::MAX / 2, 1]);
    let path = keys.encode(&[u64::MAX / 2 - 1, 0]);
    let last = Some(ChunkEntry::Chunk(u64::MAX / 2 - 1));
    assert_eq!(largest.find_path(path.as_bytes()), last);
    let deep = |components: usize| vec!["1"; components].join("/");
    assert!(largest.can_have_directory(deep(5).as_bytes()));
    assert!(!largest.can_have_directory(deep(25).as_bytes()));
    assert!(ChunkNames::of_keys(keys, &[u64::MAX, 1]).is_empty());
}

#[test]
fn only_names_of_chunks_can_be_directories_of_a_larger_grid() {
    for counts in [[0, 0], [2, 3]] {
        let names = ChunkNames::nested(&counts);
        assert!(names.can_have_directory(b"0") && names.can_have_directory(b"17"));
        for path in ["", "c", "017", ".git", "README", "1/1"] {
            assert!(!names.can_have_directory(path.as_bytes()), "{path}");
        }
        let keys = ChunkKeys::from_v3(&json!({"name": "default"}), 2).unwrap();
        let names = ChunkNames::of_keys(keys, &counts);
        assert!(names.can_have_directory(b"c") && names.can_have_directory(b"c/17"));
        for path in ["", "0", "c/x", "c/1/1", "README"] {
            assert!(!names.can_have_directory(path.as_bytes()), "{path}");
        }
    }
}

#[test]
fn directories_of_fanout_have_numbers_of_their_own() {
    let keys = ChunkKeys::from_v3(
        &json!({"name": "fanout", "configuration": {"max_children": 100}}),
        2,
    );
    let names = ChunkNames::of_keys(keys.unwrap(), &[120, 120]);
    let (mut pending, mut seen) = (vec![ChunkDir::default()], HashSet::new());
    while let Some(cell) = pending.pop() {
        assert!(seen.insert(cell), "{cell:?}");
        for place in 0..names.directories(cell) {
            if let Some((_, ChunkEntry::Directory(below))) = names.nth(cell, place) {
                pending.push(below);
            }
        }
    }
    // Of each axis: its beginning, two numbers of groups, and the first group of the indices from 100 on.
    assert_eq!(seen.len(), 1 + 4 + 120 * 4);
}

#[test]
fn non_canonical_names_are_not_found() {
    let flat = ChunkNames::of_keys(keys(KeyEncoding::V2, Separator::Dot), &[20, 3]);
    for name in [
        "", "0", "0.3", "20.0", "00.0", "0.0.0", "+1.0", "0.-0", "0.0 ", "c.0.0",
    ] {
        assert_eq!(
            flat.find(ChunkDir::default(), name.as_bytes()),
            None,
            "{name:?}"
        );
    }
    assert_eq!(
        flat.find(ChunkDir::default(), b"19.2"),
        Some(ChunkEntry::Chunk(59))
    );
    let nested = ChunkNames::of_keys(keys(KeyEncoding::Default, Separator::Slash), &[20, 3]);
    for name in ["0", "d", "", "C"] {
        assert_eq!(
            nested.find(ChunkDir::default(), name.as_bytes()),
            None,
            "{name:?}"
        );
    }
    let below = ChunkDir { depth: 1, index: 0 };
    for name in ["20", "007", "c", "-1", "\u{ff}"] {
        assert_eq!(nested.find(below, name.as_bytes()), None, "{name:?}");
    }
}

#[test]
fn a_grid_of_a_billion_chunks_takes_no_memory() {
    let names = ChunkNames::nested(&[1000, 1000, 1000]);
    let Some(ChunkEntry::Directory(cell)) = names.find(ChunkDir::default(), b"999") else {
        panic!();
    };
    let Some(ChunkEntry::Directory(cell)) = names.find(cell, b"0") else {
        panic!();
    };
    assert_eq!(names.find(cell, b"5"), Some(ChunkEntry::Chunk(999_000_005)));
}

#[test]
fn grids_without_chunks_or_of_too_many_have_no_names() {
    let far = u64::MAX;
    for counts in [&[far, far, 0][..], &[0, far, far], &[far, far], &[far; 64]] {
        for encoding in [KeyEncoding::Default, KeyEncoding::V2, KeyEncoding::N5] {
            for separator in [Separator::Dot, Separator::Slash] {
                let names = ChunkNames::of_keys(keys(encoding.clone(), separator), counts);
                assert!(names.is_empty(), "{counts:?}");
                assert_eq!(names.nth(ChunkDir::default(), 0), None);
                let keys = keys(encoding.clone(), separator).encode(&vec![1; counts.len()]);
                assert_eq!(names.find_path(keys.as_bytes()), None);
                assert_eq!(names.directories(ChunkDir::default()), 0);
            }
        }
    }
}

#[test]
fn paths_are_resolved() {
    let names = ChunkNames::of_keys(keys(KeyEncoding::Default, Separator::Slash), &[20, 3]);
    assert_eq!(names.find_path(b"c/19/2"), Some(ChunkEntry::Chunk(59)));
    let inner = ChunkDir { depth: 2, index: 4 };
    assert_eq!(names.find_path(b"c/4"), Some(ChunkEntry::Directory(inner)));
    assert_eq!(
        names.find_path(b""),
        Some(ChunkEntry::Directory(ChunkDir::default()))
    );
    for path in [&b"c/19/2/0"[..], b"c/19/3", b"c//2", b"/c", b"c/", b"19/2"] {
        assert_eq!(names.find_path(path), None, "{path:?}");
    }
    let counted = [b"".as_slice(), b"c", b"c/4"].map(|path| match names.find_path(path) {
        Some(ChunkEntry::Directory(cell)) => names.directories(cell),
        other => panic!("{other:?}"),
    });
    assert_eq!(counted, [1, 20, 0]);
}
