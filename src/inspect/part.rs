//! A share of a work that several processes do, such as the tasks of a batch system.

use std::fmt;
use std::hash::Hasher;
use std::ops::Range;
use std::str::FromStr;

use siphasher::sip::SipHasher13;

use crate::store::Key;

/// The largest number of parts.
const MAX_COUNT: u32 = 1_000_000;

/// One of several parts, written as `I/N`: the part I, from 1, of N.
///
/// # Examples
/// ```
/// use zarrfs::inspect::Part;
///
/// let second: Part = "2/3".parse()?;
/// assert_eq!(second.range(90, 10), 30..60);
/// assert!("4/3".parse::<Part>().is_err());
/// # Ok::<(), String>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Part {
    /// From 1.
    index: u32,
    count: u32,
}

impl Part {
    /// Returns the number of the part, from 1.
    pub fn index(self) -> u32 {
        self.index
    }

    /// Returns the number of all parts.
    pub fn count(self) -> u32 {
        self.count
    }

    /// Returns whether this is the first part.
    pub(super) fn is_first(self) -> bool {
        self.index == 1
    }

    /// Returns whether a key is in this part. Each key is in one part, which is the same in all processes.
    pub(super) fn has(self, key: &Key) -> bool {
        let mut hasher = SipHasher13::new();
        hasher.write(key.as_bytes());
        hasher.finish() % u64::from(self.count) == u64::from(self.index - 1)
    }

    /// Returns the bytes of a file of `size` bytes that are in this part: whole blocks, and the rest of the last one.
    pub fn range(self, size: u64, block_bytes: u64) -> Range<u64> {
        let blocks = u128::from(size.div_ceil(block_bytes.max(1)));
        let end_of = |part: u32| {
            let blocks = blocks * u128::from(part) / u128::from(self.count);
            let blocks = u64::try_from(blocks).unwrap_or(u64::MAX);
            blocks.saturating_mul(block_bytes.max(1)).min(size)
        };
        end_of(self.index - 1)..end_of(self.index)
    }
}

impl FromStr for Part {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let numbers = text.split_once('/');
        let numbers =
            numbers.and_then(|(index, count)| Some((index.parse().ok()?, count.parse().ok()?)));
        match numbers {
            Some((index, count)) if index >= 1 && index <= count && count <= MAX_COUNT => {
                Ok(Self { index, count })
            }
            _ => Err(format!(
                "expected I/N, the part I of N from 1/N to N/N, with N up to {MAX_COUNT}"
            )),
        }
    }
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.index, self.count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(count: u32) -> Vec<Part> {
        let part = |index| format!("{index}/{count}").parse().unwrap();
        (1..=count).map(part).collect()
    }

    #[test]
    fn each_key_and_each_byte_is_in_one_part() {
        for count in [1, 2, 7] {
            for number in 0..500 {
                let key = Key::new(format!("a/c/{number}").as_bytes()).unwrap();
                let having = parts(count).into_iter().filter(|part| part.has(&key));
                assert_eq!(having.count(), 1);
            }
            for size in [0, 1, 99, 100, 12_345] {
                let mut end = 0;
                for part in parts(count) {
                    let range = part.range(size, 100);
                    assert_eq!(range.start, end);
                    assert!(range.start.is_multiple_of(100) || range.is_empty());
                    end = range.end;
                }
                assert_eq!(end, size);
            }
        }
        assert_eq!(parts(2).last().unwrap().range(u64::MAX, 1).end, u64::MAX);
    }

    #[test]
    fn what_is_no_part_is_refused() {
        for text in [
            "",
            "1",
            "0/2",
            "3/2",
            "1/0",
            "-1/2",
            "1/2/3",
            "1/1000001",
            "a/b",
        ] {
            assert!(text.parse::<Part>().is_err(), "{text}");
        }
    }
}
