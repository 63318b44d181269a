//! Local headers: each precedes the bytes of an entry, and must agree with the directory.

use super::index::Node;

/// Length of the fixed part in bytes.
pub(super) const HEADER_BYTES: usize = 30;

/// The fixed part of a local header (APPNOTE 4.3.7).
#[derive(Debug)]
pub(super) struct LocalHeader {
    flags: u16,
    method: u16,
    crc: u32,
    compressed_bytes: u32,
    size_bytes: u32,
    pub(super) name_bytes: usize,
    pub(super) extra_bytes: usize,
}

/// Flag: sizes and CRC follow the data.
const FLAG_DESCRIPTOR: u16 = 1 << 3;
const FLAG_ENCRYPTED: u16 = 1;

impl LocalHeader {
    pub(super) fn parse(bytes: &[u8]) -> Option<Self> {
        let fixed = bytes.get(..HEADER_BYTES)?.strip_prefix(b"PK\x03\x04")?;
        let u16_at = |at: usize| Some(u16::from_le_bytes(fixed.get(at..at + 2)?.try_into().ok()?));
        let u32_at = |at: usize| Some(u32::from_le_bytes(fixed.get(at..at + 4)?.try_into().ok()?));
        Some(Self {
            flags: u16_at(2)?,
            method: u16_at(4)?,
            crc: u32_at(10)?,
            compressed_bytes: u32_at(14)?,
            size_bytes: u32_at(18)?,
            name_bytes: u16_at(22)?.into(),
            extra_bytes: u16_at(24)?.into(),
        })
    }

    /// Compares with the directory; the error is the field that differs, with both of its values.
    pub(super) fn agrees(&self, node: &Node, extra: &[u8]) -> Result<(), (&'static str, u64, u64)> {
        let method = node.method().number().unwrap_or(0);
        if self.method != method {
            return Err(("method", method.into(), self.method.into()));
        }
        if self.flags & FLAG_ENCRYPTED != 0 {
            return Err(("encryption flag", 0, 1));
        }
        let (mut compressed_bytes, mut size_bytes) =
            (self.compressed_bytes.into(), self.size_bytes.into());
        if self.compressed_bytes == u32::MAX || self.size_bytes == u32::MAX {
            let mut fields = zip64_field(extra);
            if self.size_bytes == u32::MAX {
                size_bytes = fields.next().unwrap_or(size_bytes);
            }
            if self.compressed_bytes == u32::MAX {
                compressed_bytes = fields.next().unwrap_or(compressed_bytes);
            }
        }
        let written_later = self.flags & FLAG_DESCRIPTOR != 0;
        for (what, there, here) in [
            ("crc32", node.crc().into(), self.crc.into()),
            ("compressed size", node.compressed_bytes(), compressed_bytes),
            ("size", node.size_bytes(), size_bytes),
        ] {
            let unknown = written_later && (here == 0 || here == u64::from(u32::MAX));
            if there != here && !unknown {
                return Err((what, there, here));
            }
        }
        Ok(())
    }
}

/// Iterates over the numbers in the zip64 extra field (APPNOTE 4.5.3).
fn zip64_field(extra: &[u8]) -> impl Iterator<Item = u64> {
    let mut rest = extra;
    let mut found: &[u8] = &[];
    while let [id0, id1, length0, length1, data @ ..] = rest {
        let length = usize::from(u16::from_le_bytes([*length0, *length1]));
        if [*id0, *id1] == [1, 0] {
            found = data.get(..length).unwrap_or_default();
            break;
        }
        rest = data.get(length..).unwrap_or_default();
    }
    found
        .chunks_exact(8)
        .filter_map(|number| Some(u64::from_le_bytes(number.try_into().ok()?)))
}
