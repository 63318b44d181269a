//! Integers and ranges of untrusted files.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use crate::store::database::{Failure, corrupt};
use crate::store::{Key, StoreError};

/// The byte order of integers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ByteOrder {
    Little,
    Big,
}

impl ByteOrder {
    pub(super) fn u16(self, bytes: &[u8], at: usize) -> Option<u16> {
        let bytes = bytes.get(at..at.checked_add(2)?)?.try_into().ok()?;
        Some(match self {
            Self::Little => u16::from_le_bytes(bytes),
            Self::Big => u16::from_be_bytes(bytes),
        })
    }

    pub(super) fn u32(self, bytes: &[u8], at: usize) -> Option<u32> {
        let bytes = bytes.get(at..at.checked_add(4)?)?.try_into().ok()?;
        Some(match self {
            Self::Little => u32::from_le_bytes(bytes),
            Self::Big => u32::from_be_bytes(bytes),
        })
    }

    pub(super) fn u64(self, bytes: &[u8], at: usize) -> Option<u64> {
        let bytes = bytes.get(at..at.checked_add(8)?)?.try_into().ok()?;
        Some(match self {
            Self::Little => u64::from_le_bytes(bytes),
            Self::Big => u64::from_be_bytes(bytes),
        })
    }
}

/// A file with the size that it had in one state.
#[derive(Debug, Clone, Copy)]
pub(super) struct Bytes<'a> {
    file: &'a File,
    pub(super) size_bytes: u64,
}

impl<'a> Bytes<'a> {
    pub(super) fn new(file: &'a File, size_bytes: u64) -> Self {
        Self { file, size_bytes }
    }

    /// Fills `target` from `offset`.
    ///
    /// # Errors
    /// [`StoreError::Corrupt`] if the file ends before that.
    pub(super) fn read(&self, offset: u64, target: &mut [u8]) -> Result<(), Failure> {
        let end = offset.checked_add(target.len() as u64);
        if end.is_none_or(|end| end > self.size_bytes) {
            return Err(self.ends(offset, target.len()));
        }
        match self.file.read_exact_at(target, offset) {
            Ok(()) => Ok(()),
            Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => {
                Err(self.ends(offset, target.len()))
            }
            Err(e) => Err(Failure::Failed(StoreError::from_io(&Key::root(), e))),
        }
    }

    fn ends(&self, offset: u64, wanted: usize) -> Failure {
        let size_bytes = self.size_bytes;
        corrupt(format!(
            "{wanted} bytes at {offset:#x} of a file that has {size_bytes} bytes"
        ))
    }
}
