//! Writes archives for tests.

#![allow(clippy::cast_possible_truncation)]

use std::ops::Range;

/// An archive to write.
#[derive(Debug, Clone, Default)]
pub(crate) struct ZipBuilder {
    /// Bytes before the archive, which offsets do not count.
    pub(crate) prefix: Vec<u8>,
    /// Names and contents, and which of them are compressed.
    pub(crate) entries: Vec<(String, Vec<u8>, bool)>,
    /// The length of the extra field of each local header.
    pub(crate) extra: usize,
    pub(crate) zip64: bool,
    /// Offset and size of the directory to claim instead of the real ones.
    pub(crate) claims: Option<(u32, u32)>,
    pub(crate) comment: Vec<u8>,
}

impl ZipBuilder {
    /// Adds an entry.
    pub(crate) fn add(&mut self, name: impl Into<String>, content: Vec<u8>, deflate: bool) {
        self.entries.push((name.into(), content, deflate));
    }

    /// Returns the archive, and the range of its directory.
    pub(crate) fn make(&self) -> (Vec<u8>, Range<u64>) {
        let (mut all, mut directory) = (self.prefix.clone(), Vec::new());
        for (name, content, deflate) in &self.entries {
            let data = match deflate {
                true => deflated(content),
                false => content.clone(),
            };
            let mut crc = flate2::Crc::new();
            crc.update(content);
            let offset = all.len() - self.prefix.len();
            let mut shared = Vec::new();
            for part in [20_u16, 0, if *deflate { 8 } else { 0 }, 0, 0x5921] {
                shared.extend(part.to_le_bytes());
            }
            for part in [crc.sum(), data.len() as u32, content.len() as u32] {
                shared.extend(part.to_le_bytes());
            }
            shared.extend((name.len() as u16).to_le_bytes());
            all.extend(b"PK\x03\x04");
            all.extend(&shared);
            all.extend((self.extra as u16).to_le_bytes());
            all.extend(name.as_bytes());
            all.resize(all.len() + self.extra, 0);
            all.extend(&data);
            directory.extend(b"PK\x01\x02\x14\x03");
            directory.extend(&shared);
            directory.extend([0; 12]);
            directory.extend((offset as u32).to_le_bytes());
            directory.extend(name.as_bytes());
        }
        let place = all.len() as u64..(all.len() + directory.len()) as u64;
        let start = all.len() - self.prefix.len();
        all.extend(&directory);
        let count = self.entries.len();
        if self.zip64 {
            let record = all.len() - self.prefix.len();
            all.extend(b"PK\x06\x06");
            all.extend(44_u64.to_le_bytes());
            all.extend([45, 3, 45, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
            for part in [count, count, directory.len(), start] {
                all.extend((part as u64).to_le_bytes());
            }
            all.extend(b"PK\x06\x07\0\0\0\0");
            all.extend((record as u64).to_le_bytes());
            all.extend(1_u32.to_le_bytes());
        }
        all.extend(b"PK\x05\x06\0\0\0\0");
        let (offset, length) = match self.claims {
            Some(claims) => claims,
            None if self.zip64 => (u32::MAX, u32::MAX),
            None => (start as u32, directory.len() as u32),
        };
        let count = if self.zip64 { u16::MAX } else { count as u16 };
        all.extend(count.to_le_bytes());
        all.extend(count.to_le_bytes());
        all.extend(length.to_le_bytes());
        all.extend(offset.to_le_bytes());
        all.extend((self.comment.len() as u16).to_le_bytes());
        all.extend(&self.comment);
        (all, place)
    }
}

fn deflated(content: &[u8]) -> Vec<u8> {
    let mut compressor = libdeflater::Compressor::new(libdeflater::CompressionLvl::fastest());
    let mut bytes = vec![0; compressor.deflate_compress_bound(content.len())];
    let length = compressor.deflate_compress(content, &mut bytes).unwrap();
    bytes.truncate(length);
    bytes
}
