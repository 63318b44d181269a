//! The chunk key encoding `fanout` of zarr-extensions (pull request 31): each index is split into groups of decimal
//! digits, so that no directory has more than a given number of entries.
//!
//! The key of the chunk (1234, 5) with at most 1,000 entries is `c/1/001/234/0/005`: for each axis, the number of
//! groups after the first one, and the groups. So the number of names in a key depends on the index, and the
//! directories of one axis are a tree of their own, which [`Fanout`] numbers: 0 is where the axis begins, then come the
//! directories of each number of groups.

use std::fmt::Write as _;
use std::ops::RangeInclusive;

use serde_json::Value;

use super::chunk_key::canonical;
use super::codec_chain::named_configuration;
use super::error::{MetadataError, excerpt};

/// The number of entries of a directory if an encoding does not name it.
const DEFAULT_MAX_CHILDREN: u64 = 1000;
const MIN_MAX_CHILDREN: u64 = 100;

/// The encoding, with the number of digits of a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fanout {
    digits: u32,
}

/// What an entry of a directory of one axis is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AxisEntry {
    /// A directory, by its number.
    Directory(u64),
    /// The end of an index.
    Index(u64),
}

/// A directory of one axis.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum AxisDirectory {
    /// The directory in which the axis begins; its entries are the numbers of groups.
    Start,
    /// A directory of the indices that have `groups` groups, of which the first `read` ones are known: they are the
    /// digits of `prefix`.
    Groups { groups: u32, read: u32, prefix: u64 },
}

impl Fanout {
    /// Parses the encoding `fanout`.
    ///
    /// # Errors
    /// `max_children` is no whole number of at least 100.
    pub(super) fn parse(encoding: &Value) -> Result<Self, MetadataError> {
        let (_, configuration) = named_configuration("chunk_key_encoding", encoding)?;
        let max_children = match configuration.and_then(|members| members.get("max_children")) {
            None => DEFAULT_MAX_CHILDREN,
            Some(value) => value
                .as_u64()
                .filter(|most| *most >= MIN_MAX_CHILDREN)
                .ok_or_else(|| {
                    let what = format!(
                        "max_children {} instead of a number of at least {MIN_MAX_CHILDREN}",
                        excerpt(value)
                    );
                    MetadataError::invalid("chunk_key_encoding", what)
                })?,
        };
        // Between two powers of 10, the lower one holds.
        Ok(Self {
            digits: max_children.ilog10(),
        })
    }

    /// Returns the key of a chunk.
    pub(super) fn encode(self, index: &[u64]) -> String {
        let mut key = String::from("c");
        for at in index {
            let groups = self.groups(*at);
            // Writing to a String is infallible.
            let _ = write!(key, "/{}", groups - 1);
            for left in (0..groups).rev() {
                let _ = write!(key, "/{}", self.group(self.without(*at, left)));
            }
        }
        key
    }

    /// Returns the index of the chunk with this key, in a grid with `counts` chunks along each axis.
    pub(super) fn decode(self, key: &[u8], counts: &[u64]) -> Option<Vec<u64>> {
        let mut names = key.split(|byte| *byte == b'/');
        if names.next() != Some(b"c") {
            return None;
        }
        let mut index = Vec::with_capacity(counts.len());
        for count in counts {
            let mut directory = 0;
            index.push(loop {
                match self.find(*count, directory, names.next()?)? {
                    AxisEntry::Directory(below) => directory = below,
                    AxisEntry::Index(at) => break at,
                }
            });
        }
        names.next().is_none().then_some(index)
    }

    /// Returns the largest number of names that a key of an array with `rank` axes can have.
    pub(super) fn max_names(self, rank: usize) -> usize {
        let of_axis = usize::try_from(self.groups(u64::MAX) + 1).unwrap_or(usize::MAX);
        rank.saturating_mul(of_axis).saturating_add(1)
    }

    /// Returns the number of directories of an axis with `count` indices; at most `count`, or 2 if there are few.
    pub(super) fn directories(self, count: u64) -> u64 {
        let levels = self.levels(count);
        levels.map(|level| level.directories).sum::<u64>() + 1
    }

    /// Returns the number of entries of a directory of an axis with `count` indices.
    pub(super) fn len(self, count: u64, directory: u64) -> u64 {
        match self.directory(count, directory) {
            Some(directory) => length(&self.entries(count, directory)),
            None => 0,
        }
    }

    /// Returns the name at a position in a directory of an axis with `count` indices, and its entry.
    pub(super) fn nth(self, count: u64, directory: u64, place: u64) -> Option<(String, AxisEntry)> {
        let directory = self.directory(count, directory)?;
        let entries = self.entries(count, directory);
        let value = entries.start().checked_add(place)?;
        let entry = self.entry(count, directory, value)?;
        let name = match directory {
            AxisDirectory::Start => (value - 1).to_string(),
            AxisDirectory::Groups { .. } => self.group(value),
        };
        Some((name, entry))
    }

    /// Returns the entry of a name in a directory of an axis with `count` indices.
    pub(super) fn find(self, count: u64, directory: u64, name: &[u8]) -> Option<AxisEntry> {
        let directory = self.directory(count, directory)?;
        let value = match directory {
            AxisDirectory::Start => canonical(name)?.checked_add(1)?,
            AxisDirectory::Groups { prefix, .. } => {
                let digits = str::from_utf8(name).ok()?;
                let is_group = name.iter().all(u8::is_ascii_digit)
                    && u32::try_from(name.len()) == Ok(self.digits);
                let group: u64 = digits.parse().ok().filter(|_| is_group)?;
                prefix.checked_mul(self.base())?.checked_add(group)?
            }
        };
        self.entry(count, directory, value)
    }

    /// Returns what a value leads to: a number of groups, or the digits of an index so far.
    fn entry(self, count: u64, directory: AxisDirectory, value: u64) -> Option<AxisEntry> {
        if !self.entries(count, directory).contains(&value) {
            return None;
        }
        let below = match directory {
            AxisDirectory::Start => AxisDirectory::Groups {
                groups: u32::try_from(value).ok()?,
                read: 0,
                prefix: 0,
            },
            AxisDirectory::Groups { groups, read, .. } if read + 1 == groups => {
                return Some(AxisEntry::Index(value));
            }
            AxisDirectory::Groups { groups, read, .. } => AxisDirectory::Groups {
                groups,
                read: read + 1,
                prefix: value,
            },
        };
        Some(AxisEntry::Directory(self.number(count, below)))
    }

    /// Returns the values of the entries of a directory: numbers of groups, or digits of an index up to the next group.
    fn entries(self, count: u64, directory: AxisDirectory) -> RangeInclusive<u64> {
        let Some(last) = count.checked_sub(1) else {
            return no_values();
        };
        match directory {
            AxisDirectory::Start => 1..=self.groups(last).into(),
            AxisDirectory::Groups {
                groups,
                read,
                prefix,
            } => {
                let Some(first) = prefix.checked_mul(self.base()) else {
                    return no_values();
                };
                let values = self.values(last, groups, read + 1);
                let end = first.saturating_add(self.base() - 1);
                *values.start().max(&first)..=*values.end().min(&end)
            }
        }
    }

    /// Returns the digits of the first `read` groups of all indices up to `last` that have `groups` groups.
    fn values(self, last: u64, groups: u32, read: u32) -> RangeInclusive<u64> {
        // The first group of several is not 0.
        let first = match groups {
            1 => 0,
            _ => self.power(read - 1),
        };
        first..=self.without(last, groups - read).min(self.power(read) - 1)
    }

    /// Returns the levels of directories of an axis, below the one in which it begins.
    fn levels(self, count: u64) -> impl Iterator<Item = AxisLevel> {
        let last = count.checked_sub(1);
        last.into_iter().flat_map(move |last| {
            (1..=self.groups(last)).flat_map(move |groups| {
                (0..groups).map(move |read| {
                    let values = match read {
                        0 => 0..=0,
                        _ => self.values(last, groups, read),
                    };
                    AxisLevel {
                        groups,
                        read,
                        first: *values.start(),
                        directories: length(&values),
                    }
                })
            })
        })
    }

    fn directory(self, count: u64, number: u64) -> Option<AxisDirectory> {
        let Some(mut left) = number.checked_sub(1) else {
            return Some(AxisDirectory::Start);
        };
        for level in self.levels(count) {
            if left < level.directories {
                return Some(AxisDirectory::Groups {
                    groups: level.groups,
                    read: level.read,
                    prefix: level.first + left,
                });
            }
            left -= level.directories;
        }
        None
    }

    fn number(self, count: u64, directory: AxisDirectory) -> u64 {
        let AxisDirectory::Groups {
            groups,
            read,
            prefix,
        } = directory
        else {
            return 0;
        };
        let mut number = 1;
        for level in self.levels(count) {
            if (level.groups, level.read) == (groups, read) {
                return number + prefix.saturating_sub(level.first);
            }
            number += level.directories;
        }
        number
    }

    /// Returns the number of entries that a directory has at most.
    fn base(self) -> u64 {
        10_u64.saturating_pow(self.digits)
    }

    /// Returns the base to the power of `groups`, or the largest number.
    fn power(self, groups: u32) -> u64 {
        self.base().saturating_pow(groups)
    }

    /// Returns an index without its last groups.
    fn without(self, at: u64, groups: u32) -> u64 {
        (0..groups).fold(at, |at, _| at / self.base())
    }

    /// Returns the number of groups of an index.
    fn groups(self, at: u64) -> u32 {
        at.checked_ilog10().unwrap_or(0) / self.digits + 1
    }

    /// Returns the text of the last group of a number.
    fn group(self, value: u64) -> String {
        let digits = usize::try_from(self.digits).unwrap_or(0);
        format!("{:0digits$}", value % self.base())
    }
}

/// The directories of one axis in which the same number of groups is known.
#[derive(Debug, Clone, Copy)]
struct AxisLevel {
    groups: u32,
    read: u32,
    /// The prefix of the first directory.
    first: u64,
    directories: u64,
}

fn length(values: &RangeInclusive<u64>) -> u64 {
    match values.is_empty() {
        true => 0,
        false => (values.end() - values.start()).saturating_add(1),
    }
}

fn no_values() -> RangeInclusive<u64> {
    RangeInclusive::new(1, 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn fanout(max_children: u64) -> Fanout {
        Fanout::parse(&json!({"name": "fanout", "configuration": {"max_children": max_children}}))
            .unwrap()
    }

    /// The keys are those that version 0.3.0 of the Python package `zarr-fanout-cke` makes.
    #[test]
    fn keys_are_those_of_the_writer() {
        let default = Fanout::parse(&json!("fanout")).unwrap();
        for (index, key) in [
            (&[][..], "c"),
            (&[0], "c/0/000"),
            (&[12], "c/0/012"),
            (&[999], "c/0/999"),
            (&[1000], "c/1/001/000"),
            (&[1234, 5, 67890], "c/1/001/234/0/005/1/067/890"),
            (
                &[1234, 5, 0, 6_789_012],
                "c/1/001/234/0/005/0/000/2/006/789/012",
            ),
            (
                &[123, 3_455_678, 9_123_432_435],
                "c/0/123/2/003/455/678/3/009/123/432/435",
            ),
        ] {
            assert_eq!(default.encode(index), key);
            let counts: Vec<u64> = index.iter().map(|at| at + 1).collect();
            assert_eq!(
                default.decode(key.as_bytes(), &counts),
                Some(index.to_vec())
            );
            assert_eq!(
                default.decode(key.as_bytes(), &vec![u64::MAX; index.len()]),
                Some(index.to_vec())
            );
            // The last index is out of the grid.
            if !index.is_empty() {
                assert_eq!(default.decode(key.as_bytes(), index), None, "{key}");
            }
        }
        for (index, key) in [(0, "c/0/00"), (12345, "c/2/01/23/45"), (250, "c/1/02/50")] {
            assert_eq!(fanout(100).encode(&[index]), key);
            assert_eq!(fanout(999).encode(&[index]), key);
        }
        let widest = fanout(u64::MAX);
        assert_eq!(widest.encode(&[7]), format!("c/0/{:019}", 7));
        assert_eq!(
            widest.encode(&[u64::MAX]),
            format!("c/1/{:019}/8446744073709551615", 1)
        );
    }

    #[test]
    fn other_names_are_no_keys() {
        let keys = fanout(100);
        for key in [
            "",
            "c",
            "c/",
            "c/0",
            "c/0/1",
            "c/0/001",
            "c/0/+1",
            "c/00/01",
            "c/1/00/01",
            "c/1/01",
            "c/2/00/01/01",
            "c/0/01/",
            "c/0/01/0",
            "0/01",
            "c/-1/01",
            "c/0/ 1",
            "c/0/\u{664}",
            "c/9/01",
            "c/18446744073709551615/01",
            "c/1/02/00",
        ] {
            assert_eq!(keys.decode(key.as_bytes(), &[200]), None, "{key}");
        }
        assert_eq!(keys.decode(b"c/1/01/99", &[200]), Some(vec![199]));
        assert_eq!(keys.decode(b"c/0/00", &[0]), None);
    }

    #[test]
    fn every_directory_has_the_names_of_its_indices() {
        for count in [
            0, 1, 2, 99, 100, 101, 9_999, 10_000, 10_001, 10_101, 123_456,
        ] {
            let keys = fanout(100);
            let directories = keys.directories(count);
            assert!(directories <= count.max(2), "{count}: {directories}");
            let (mut found, mut below) = (Vec::new(), Vec::new());
            for directory in 0..directories {
                let len = keys.len(count, directory);
                assert!(len <= 100 && (len > 0 || count == 0), "{count} {directory}");
                for place in 0..len {
                    let (name, entry) = keys.nth(count, directory, place).unwrap();
                    assert_eq!(keys.find(count, directory, name.as_bytes()), Some(entry));
                    match entry {
                        AxisEntry::Directory(number) => below.push(number),
                        AxisEntry::Index(at) => {
                            assert!(keys.encode(&[at]).ends_with(&format!("/{name}")));
                            found.push(at);
                        }
                    }
                }
                assert_eq!(keys.nth(count, directory, len), None);
            }
            found.sort_unstable();
            below.sort_unstable();
            assert_eq!(found, (0..count).collect::<Vec<u64>>());
            assert_eq!(below, (1..directories).collect::<Vec<u64>>());
            assert_eq!(keys.len(count, directories), 0);
        }
    }

    #[test]
    fn the_largest_axis_is_no_special_case() {
        for keys in [fanout(100), fanout(1000), fanout(u64::MAX)] {
            let directories = keys.directories(u64::MAX);
            assert!(directories < u64::MAX / 9);
            for directory in [0, 1, directories / 2, directories - 1] {
                let len = keys.len(u64::MAX, directory);
                let (name, entry) = keys.nth(u64::MAX, directory, len - 1).unwrap();
                assert_eq!(keys.find(u64::MAX, directory, name.as_bytes()), Some(entry));
                assert_eq!(keys.nth(u64::MAX, directory, len), None);
            }
            let last = u64::MAX - 1;
            let key = keys.encode(&[last]);
            assert_eq!(keys.decode(key.as_bytes(), &[u64::MAX]), Some(vec![last]));
            assert!(key.split('/').count() <= keys.max_names(1));
        }
    }

    #[test]
    fn a_number_of_entries_that_the_writer_refuses_is_invalid() {
        for most in [json!(99), json!(-1), json!("1000"), json!(1e3), json!(null)] {
            let encoding = json!({"name": "fanout", "configuration": {"max_children": most}});
            let found = Fanout::parse(&encoding).unwrap_err().to_string();
            assert!(
                found.starts_with("chunk_key_encoding: max_children "),
                "{found}"
            );
        }
    }
}
