//! The file of one block: its format, and the checks before any byte of it is used.
//!
//! | bytes | content |
//! |---|---|
//! | 8 | `zarrfsDB` |
//! | 4 | version of the format |
//! | 4 | length of the name |
//! | n | name |
//! | 8 | length of the data |
//! | 4 | CRC-32C of all of the above and the data |
//! | m | data, to the end of the file |
//!
//! Numbers are little-endian.

use std::io::{self, Read};

use siphasher::sip128::SipHasher24;

#[cfg(test)]
use crate::runtime::simulated::{Mutation, is_mutated};

const MAGIC: [u8; 8] = *b"zarrfsDB";

/// Increase this number and [`super::cache_dir::VERSION_NAME`] with every change of the layout, the
/// checksum or the path of a block.
pub(super) const FORMAT_VERSION: u32 = 1;

/// Limit of the name of a block in bytes; keys have a few KiB at most.
const MAX_NAME_BYTES: usize = 64 * 1024;

/// Directory and file name of a block, below the directory of the version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct BlockPath {
    pub(super) subdir: String,
    pub(super) file: String,
}

impl BlockPath {
    /// Derives the path from a hash of the name. Names can share a path, so the file holds the name too.
    pub(super) fn of(name: &[u8]) -> Self {
        let file = format!("{:032x}", SipHasher24::new().hash(name).as_u128());
        Self {
            subdir: file.chars().take(2).collect(),
            file,
        }
    }
}

/// Why a block is not returned.
#[derive(Debug, thiserror::Error)]
pub(super) enum InvalidBlock {
    /// The file does not hold the whole block with this name.
    #[error("{0}")]
    Invalid(&'static str),
    /// The file cannot be read.
    #[error("{0}")]
    Unreadable(#[from] io::Error),
    /// Memory for the block cannot be allocated; the file may be valid.
    #[error("no memory for it")]
    NoMemory,
}

/// Returns the bytes before the data; `None` if the name is too long.
pub(super) fn head(name: &[u8], data: &[u8]) -> Option<Vec<u8>> {
    let mut head = start(name)?;
    head.extend_from_slice(&u64::try_from(data.len()).ok()?.to_le_bytes());
    let checksum = crc32c::crc32c_append(crc32c::crc32c(&head), data);
    head.extend_from_slice(&checksum.to_le_bytes());
    Some(head)
}

/// Returns the part of the head that depends on the name alone.
fn start(name: &[u8]) -> Option<Vec<u8>> {
    if name.len() > MAX_NAME_BYTES {
        return None;
    }
    let mut start = MAGIC.to_vec();
    start.extend_from_slice(&FORMAT_VERSION.to_le_bytes());
    start.extend_from_slice(&u32::try_from(name.len()).ok()?.to_le_bytes());
    start.extend_from_slice(name);
    Some(start)
}

/// Reads the block with this name from a file of this length.
pub(super) fn read(
    mut file: impl Read,
    file_bytes: u64,
    name: &[u8],
    max_bytes: u64,
) -> Result<Vec<u8>, InvalidBlock> {
    const WRONG_LENGTH: InvalidBlock = InvalidBlock::Invalid("its length is not that of the block");
    let start = start(name).ok_or(InvalidBlock::Invalid("its name is too long"))?;
    let mut head = vec![0; start.len()];
    let mut data_bytes = [0; 8];
    let mut checksum = [0; 4];
    let head_bytes = start.len() + data_bytes.len() + checksum.len();
    let expected_bytes = u64::try_from(head_bytes)
        .ok()
        .and_then(|head_bytes| file_bytes.checked_sub(head_bytes))
        .ok_or(WRONG_LENGTH)?;
    if expected_bytes > max_bytes {
        return Err(InvalidBlock::Invalid("it is longer than the block can be"));
    }
    file.read_exact(&mut head)?;
    if head != start {
        return Err(InvalidBlock::Invalid(
            "it is not a block of this name and format",
        ));
    }
    file.read_exact(&mut data_bytes)?;
    file.read_exact(&mut checksum)?;
    if u64::from_le_bytes(data_bytes) != expected_bytes {
        return Err(WRONG_LENGTH);
    }
    let size = usize::try_from(expected_bytes).map_err(|_| InvalidBlock::NoMemory)?;
    let mut data = Vec::new();
    data.try_reserve_exact(size)
        .map_err(|_| InvalidBlock::NoMemory)?;
    file.take(expected_bytes).read_to_end(&mut data)?;
    if data.len() != size {
        return Err(WRONG_LENGTH);
    }
    head.extend_from_slice(&data_bytes);
    let found = crc32c::crc32c_append(crc32c::crc32c(&head), &data);
    #[cfg(test)]
    if is_mutated(Mutation::UncheckedBlock) {
        return Ok(data);
    }
    if found != u32::from_le_bytes(checksum) {
        return Err(InvalidBlock::Invalid("its checksum is wrong"));
    }
    Ok(data)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(name: &[u8], data: &[u8]) -> Vec<u8> {
        [&head(name, data).unwrap(), data].concat()
    }

    fn read_all(file: &[u8], name: &[u8], max_bytes: u64) -> Result<Vec<u8>, InvalidBlock> {
        read(file, file.len() as u64, name, max_bytes)
    }

    /// If this fails, files of the released version can no longer be read, and the format needs a new
    /// version number.
    #[test]
    fn the_bytes_and_the_path_of_a_block_are_constant() {
        let expected = [
            b"zarrfsDB".as_slice(),
            &[1, 0, 0, 0],
            &[4, 0, 0, 0],
            b"name",
            &[9, 0, 0, 0, 0, 0, 0, 0],
            &[115, 239, 145, 8],
            b"some data",
        ]
        .concat();
        assert_eq!(file(b"name", b"some data"), expected);
        assert_eq!(
            BlockPath::of(b"name"),
            BlockPath {
                subdir: "52".into(),
                file: "52c708f93671958038e00e11c64d5df4".into()
            }
        );
        assert_eq!(FORMAT_VERSION, 1);
    }

    #[test]
    fn written_blocks_are_read_back() {
        let long = vec![7; 100_000];
        for (name, data) in [
            (b"".as_slice(), b"".as_slice()),
            (b"a/b\0\xff", b"x"),
            (b"n", &long),
        ] {
            let read = read_all(&file(name, data), name, data.len() as u64);
            assert_eq!(read.unwrap(), data);
        }
    }

    #[test]
    fn every_flipped_bit_and_every_truncation_is_found() {
        let whole = file(b"the name", b"the data of it");
        for byte in 0..whole.len() {
            for bit in 0..8 {
                let mut bad = whole.clone();
                bad[byte] ^= 1 << bit;
                assert!(read_all(&bad, b"the name", 1000).is_err(), "{byte}.{bit}");
            }
            assert!(read_all(&whole[..byte], b"the name", 1000).is_err());
            let short = read(&whole[..byte], whole.len() as u64, b"the name", 1000);
            assert!(short.is_err(), "{byte} bytes of a file that was longer");
        }
        let longer = [whole.as_slice(), b"\0"].concat();
        assert!(read_all(&longer, b"the name", 1000).is_err());
    }

    #[test]
    fn blocks_of_another_name_or_above_the_size_limit_are_refused() {
        let whole = file(b"one", b"12345");
        assert!(read_all(&whole, b"two", 1000).is_err());
        assert!(read_all(&whole, b"one", 4).is_err());
        assert_eq!(read_all(&whole, b"one", 5).unwrap(), b"12345");
        assert!(head(&vec![0; MAX_NAME_BYTES + 1], b"").is_none());
    }

    #[test]
    fn a_false_length_reserves_no_memory() {
        let mut head = start(b"n").unwrap();
        head.extend_from_slice(&(u64::MAX - 29).to_le_bytes());
        head.extend_from_slice(&[0; 4]);
        let huge = read(head.as_slice(), u64::MAX, b"n", u64::MAX);
        assert!(matches!(huge, Err(InvalidBlock::NoMemory)), "{huge:?}");
    }
}
