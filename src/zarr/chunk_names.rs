//! Chunk keys as a tree of directories, which is computed for grids of any size.

use super::array::Array;
use std::sync::Arc;

use super::chunk_key::{ChunkKeys, KeyEncoding, Separator, canonical};
use super::fanout::{AxisEntry, Fanout};
use super::grid::product;
use super::key_template::KeyTemplate;

/// The chunk keys of a grid; empty if the grid has no chunks, or more than a `u64` can count.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChunkNames {
    style: Style,
    /// The number of chunks along each axis, in the order of the components of a path.
    counts: Vec<u64>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Style {
    /// One directory with the keys of all chunks.
    Flat(ChunkKeys),
    /// A directory for each axis but the last, inside a directory `c` if there is a prefix.
    Nested { prefix: bool },
    /// A directory for each axis but the first, beginning with the last axis (N5).
    Reversed,
    /// A directory for each name of a template but the last. `counts` are those of the axes.
    Template(Arc<KeyTemplate>),
    /// The directories of each axis inside each other, inside a directory `c`.
    Fanout(Fanout),
}

/// A directory of chunk keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct ChunkDir {
    /// The number of path components below the array; for `fanout`, that of the axes and the prefix which begin there.
    pub depth: u8,
    /// The linear index of these components, of which the last one varies fastest. For `fanout`, that of the indices
    /// along the axes before, and then of the directory of the axis.
    pub index: u64,
}

/// An entry of a directory of chunk keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChunkEntry {
    /// A directory.
    Directory(ChunkDir),
    /// A chunk, by its linear index in the grid.
    Chunk(u64),
}

impl ChunkNames {
    /// Returns the chunk keys of a grid with `counts` chunks along each axis.
    pub fn of_keys(keys: ChunkKeys, counts: &[u64]) -> Self {
        let mut counts = counts.to_vec();
        let style = match (keys.separator, &keys.encoding) {
            (_, KeyEncoding::Template(template)) => Style::Template(Arc::clone(template)),
            (_, KeyEncoding::Fanout(fanout)) => Style::Fanout(*fanout),
            (Separator::Slash, KeyEncoding::N5) => {
                counts.reverse();
                Style::Reversed
            }
            (Separator::Slash, KeyEncoding::Default) => Style::Nested { prefix: true },
            (Separator::Slash, KeyEncoding::V2) => Style::Nested { prefix: false },
            (Separator::Dot, _) => Style::Flat(keys),
        };
        Self { style, counts }
    }

    /// Returns the chunk keys of an array; `None` if its grid or key encoding is not supported.
    pub fn of_array(array: &Array) -> Option<Self> {
        let (Ok(keys), Ok(grid)) = (&array.chunk_keys, &array.grid) else {
            return None;
        };
        Some(Self::of_keys(keys.clone(), grid.shape()))
    }

    /// Returns keys with one directory for each axis but the last.
    pub fn nested(counts: &[u64]) -> Self {
        Self {
            style: Style::Nested { prefix: false },
            counts: counts.to_vec(),
        }
    }

    /// Returns the keys of the same grid with one directory for each axis but the last; `None` if they would have
    /// no directories.
    pub fn with_directories(&self) -> Option<Self> {
        (self.counts.len() > 1).then(|| Self::nested(&self.counts))
    }

    /// Returns the axis whose indices name the entries of a directory; `None` for the prefix.
    fn axis(&self, cell: ChunkDir) -> Option<usize> {
        let depth = usize::from(cell.depth);
        match self.style {
            Style::Nested { prefix: true } | Style::Fanout(_) => depth.checked_sub(1),
            _ => Some(depth),
        }
    }

    /// Returns the number of chunks.
    fn chunks(&self) -> u64 {
        let chunks = product(self.counts.iter().copied()).unwrap_or(0);
        match self.style {
            // The directories of an axis with one index are two.
            Style::Fanout(_) if chunks > u64::MAX / 2 => 0,
            _ => chunks,
        }
    }

    /// Returns the number of names in a directory.
    pub fn len(&self, cell: ChunkDir) -> u64 {
        let chunks = self.chunks();
        match &self.style {
            Style::Flat(_) => chunks,
            _ if chunks == 0 => 0,
            Style::Template(template) if usize::from(cell.depth) >= template.len() => 0,
            Style::Template(template) => template
                .axes(cell.depth.into())
                .filter_map(|axis| self.counts.get(axis))
                .product(),
            Style::Fanout(fanout) => match self.axis(cell) {
                // The prefix.
                None => 1,
                Some(axis) => {
                    let (count, _, directory) = self.in_axis(*fanout, axis, cell);
                    fanout.len(count, directory)
                }
            },
            Style::Nested { .. } | Style::Reversed => match self.axis(cell) {
                // The prefix.
                None => 1,
                Some(axis) if self.counts.is_empty() && axis == 0 => 1,
                Some(axis) => self.counts.get(axis).copied().unwrap_or(0),
            },
        }
    }

    /// Returns the number of directories in a directory, whose entries are all directories or all chunks.
    pub fn directories(&self, cell: ChunkDir) -> u64 {
        let len = self.len(cell);
        match self.style {
            Style::Flat(_) => 0,
            _ if len == 0 => 0,
            _ => match self.nth(cell, 0) {
                Some((_, ChunkEntry::Directory(_))) => len,
                Some((_, ChunkEntry::Chunk(_))) | None => 0,
            },
        }
    }

    /// Returns whether a larger grid of the same array can have a directory with this number of components below the
    /// array.
    pub fn can_have_directory(&self, components: usize) -> bool {
        let axes = self.counts.len();
        !self.is_empty()
            && match &self.style {
                Style::Flat(_) => false,
                Style::Template(template) => components < template.len(),
                Style::Fanout(fanout) => axes > 0 && components < fanout.max_names(axes),
                Style::Nested { prefix } => components < axes + usize::from(*prefix),
                Style::Reversed => components < axes,
            }
    }

    /// Returns whether the grid has no chunk keys.
    pub fn is_empty(&self) -> bool {
        self.len(ChunkDir::default()) == 0
    }

    /// Returns the name at a position in a directory, and its entry.
    pub fn nth(&self, cell: ChunkDir, place: u64) -> Option<(String, ChunkEntry)> {
        if place >= self.len(cell) {
            return None;
        }
        match &self.style {
            Style::Flat(keys) => {
                let mut left = place;
                let mut index: Vec<u64> = Vec::with_capacity(self.counts.len());
                for count in self.counts.iter().rev() {
                    index.push(left % count);
                    left /= count;
                }
                index.reverse();
                Some((keys.encode(&index), ChunkEntry::Chunk(place)))
            }
            Style::Nested { .. } | Style::Reversed => match self.axis(cell) {
                None => Some(("c".into(), self.below(cell, 0))),
                Some(_) => Some((place.to_string(), self.below(cell, place))),
            },
            Style::Fanout(fanout) => match self.axis(cell) {
                None => Some(("c".into(), self.below(cell, 0))),
                Some(axis) => {
                    let (count, _, directory) = self.in_axis(*fanout, axis, cell);
                    let (name, entry) = fanout.nth(count, directory, place)?;
                    Some((name, self.of_axis_entry(*fanout, axis, cell, entry)))
                }
            },
            Style::Template(template) => {
                let depth = usize::from(cell.depth);
                let mut index = vec![0; self.counts.len()];
                self.unravel(place, template.axes(depth), &mut index);
                Some((template.name(depth, &index), self.below(cell, place)))
            }
        }
    }

    /// Returns the entry at a relative path; the empty path is the array's directory.
    pub fn find_path(&self, path: &[u8]) -> Option<ChunkEntry> {
        let mut found = ChunkEntry::Directory(ChunkDir::default());
        if path.is_empty() {
            return Some(found);
        }
        for name in path.split(|byte| *byte == b'/') {
            let ChunkEntry::Directory(cell) = found else {
                return None;
            };
            found = self.find(cell, name)?;
        }
        Some(found)
    }

    /// Returns the entry of a name in a directory.
    pub fn find(&self, cell: ChunkDir, name: &[u8]) -> Option<ChunkEntry> {
        match &self.style {
            _ if self.chunks() == 0 => None,
            Style::Template(template) => {
                let depth = usize::from(cell.depth);
                let mut index = vec![0; self.counts.len()];
                template.read(depth, name, &self.counts, &mut index)?;
                Some(self.below(cell, self.ravel(template.axes(depth), &index)))
            }
            Style::Fanout(fanout) => match self.axis(cell) {
                None => (name == b"c").then(|| self.below(cell, 0)),
                Some(axis) => {
                    let (count, _, directory) = self.in_axis(*fanout, axis, cell);
                    let entry = fanout.find(count, directory, name)?;
                    Some(self.of_axis_entry(*fanout, axis, cell, entry))
                }
            },
            Style::Flat(keys) => {
                let index = keys.decode(name, &self.counts)?;
                let linear = index
                    .iter()
                    .zip(&self.counts)
                    .fold(0, |linear, (i, count)| linear * count + i);
                Some(ChunkEntry::Chunk(linear))
            }
            Style::Nested { .. } | Style::Reversed => {
                let place = match self.axis(cell) {
                    None if name == b"c" => 0,
                    None => return None,
                    Some(_) => canonical(name)?,
                };
                (place < self.len(cell)).then(|| self.below(cell, place))
            }
        }
    }

    /// Sets the indices along some axes from their linear index, of which the last one varies fastest.
    fn unravel(&self, mut linear: u64, axes: impl Iterator<Item = usize>, index: &mut [u64]) {
        let axes: Vec<usize> = axes.collect();
        for axis in axes.into_iter().rev() {
            let count = self.counts.get(axis).map_or(1, |count| *count.max(&1));
            if let Some(at) = index.get_mut(axis) {
                *at = linear % count;
            }
            linear /= count;
        }
    }

    /// Returns the linear index of the indices along some axes.
    fn ravel(&self, axes: impl Iterator<Item = usize>, index: &[u64]) -> u64 {
        axes.fold(0, |linear, axis| {
            let count = self.counts.get(axis).copied().unwrap_or(1);
            linear * count + index.get(axis).copied().unwrap_or(0)
        })
    }

    /// Returns the linear index of a chunk in the grid, from the linear index of its path components.
    fn in_grid(&self, index: u64) -> u64 {
        match &self.style {
            Style::Reversed => {}
            Style::Template(template) => {
                let axes = (0..template.len()).flat_map(|name| template.axes(name));
                let mut at = vec![0; self.counts.len()];
                self.unravel(index, axes, &mut at);
                return self.ravel(0..self.counts.len(), &at);
            }
            _ => return index,
        }
        let mut left = index;
        // The last component is the index along the first axis of the grid.
        self.counts.iter().rev().fold(0, |linear, count| {
            let at = left % count.max(&1);
            left /= count.max(&1);
            linear * count + at
        })
    }

    /// Returns the number of indices along the axis of a directory of `fanout`, the linear index along the axes before
    /// it, and the number of the directory of the axis.
    fn in_axis(&self, fanout: Fanout, axis: usize, cell: ChunkDir) -> (u64, u64, u64) {
        let count = self.counts.get(axis).copied().unwrap_or(0);
        let directories = fanout.directories(count);
        (count, cell.index / directories, cell.index % directories)
    }

    /// Returns the entry of a directory of `fanout`.
    fn of_axis_entry(
        &self,
        fanout: Fanout,
        axis: usize,
        cell: ChunkDir,
        entry: AxisEntry,
    ) -> ChunkEntry {
        let (count, before, _) = self.in_axis(fanout, axis, cell);
        match entry {
            AxisEntry::Directory(directory) => ChunkEntry::Directory(ChunkDir {
                depth: cell.depth,
                index: before * fanout.directories(count) + directory,
            }),
            AxisEntry::Index(at) => {
                let index = before * count + at;
                match self.counts.get(axis + 1) {
                    None => ChunkEntry::Chunk(index),
                    Some(next) => ChunkEntry::Directory(ChunkDir {
                        depth: cell.depth + 1,
                        index: index * fanout.directories(*next),
                    }),
                }
            }
        }
    }

    /// Returns the entry at a position of a nested directory.
    fn below(&self, cell: ChunkDir, place: u64) -> ChunkEntry {
        if let Style::Template(template) = &self.style {
            let index = cell.index * self.len(cell) + place;
            return match usize::from(cell.depth) + 1 == template.len() {
                true => ChunkEntry::Chunk(self.in_grid(index)),
                false => ChunkEntry::Directory(ChunkDir {
                    depth: cell.depth + 1,
                    index,
                }),
            };
        }
        let axis = self.axis(cell);
        let index = match axis.and_then(|axis| self.counts.get(axis)) {
            Some(count) => cell.index * count + place,
            None => cell.index,
        };
        let is_last = match axis {
            None => self.counts.is_empty(),
            Some(axis) => axis + 1 >= self.counts.len(),
        };
        match is_last {
            true => ChunkEntry::Chunk(self.in_grid(index)),
            false => ChunkEntry::Directory(ChunkDir {
                depth: cell.depth + 1,
                index,
            }),
        }
    }
}

#[cfg(test)]
mod tests {
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
        assert!(largest.can_have_directory(5) && !largest.can_have_directory(25));
        assert!(ChunkNames::of_keys(keys, &[u64::MAX, 1]).is_empty());
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
}
