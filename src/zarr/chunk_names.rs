//! Chunk keys as a tree of directories, which is computed for grids of any size.

#[cfg(test)]
mod tests;

use std::sync::Arc;

use super::array::Array;
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

    /// Returns whether a larger grid of the same array can have a directory at a path. Where the names of axes are
    /// more than numbers, only the number of components is checked.
    pub fn can_have_directory(&self, path: &[u8]) -> bool {
        let axes = self.counts.len();
        let mut names = path.split(|byte| *byte == b'/');
        let components = names.clone().count();
        match &self.style {
            Style::Flat(_) => false,
            Style::Template(template) => components < template.len(),
            Style::Fanout(fanout) => axes > 0 && components < fanout.max_names(axes),
            Style::Nested { prefix: true } => {
                components <= axes
                    && names.next() == Some(b"c")
                    && names.all(|name| canonical(name).is_some())
            }
            Style::Nested { prefix: false } | Style::Reversed => {
                components < axes && names.all(|name| canonical(name).is_some())
            }
        }
    }

    /// Returns whether the directory of the array shows the same names for each grid that has chunks.
    pub fn has_fixed_root(&self) -> bool {
        matches!(self.style, Style::Nested { prefix: true }) && !self.is_empty()
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
