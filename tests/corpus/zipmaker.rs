//! A zip writer for invalid archives: every field of every record can be set, and nothing is
//! checked. Section numbers are those of APPNOTE 6.3.10.

use crate::coders::{deflate, zstd_frame};
use crate::records::{
    DirectoryValues, central_header, data_descriptor, end_record, end_records64, local_header,
};

pub const STORED: u16 = 0;
pub const DEFLATED: u16 = 8;
pub const ZSTD: u16 = 93;

/// Sizes and CRC follow the data (flag bit 3).
pub const FLAG_DESCRIPTOR: u16 = 1 << 3;
pub const FLAG_ENCRYPTED: u16 = 1;
pub const FLAG_STRONG_ENCRYPTION: u16 = 1 << 6;
pub const FLAG_UTF8: u16 = 1 << 11;
pub const FLAG_MASKED: u16 = 1 << 13;

/// The fields that local and central headers of an entry have in common.
#[derive(Debug, Clone)]
pub struct Fields {
    pub version: u16,
    pub flags: u16,
    pub method: u16,
    /// MS-DOS time in the low half, and date in the high half.
    pub time: u32,
    pub crc: u32,
    pub compressed: u64,
    pub size: u64,
    /// Whether the sizes are in a zip64 extra field (section 4.5.3).
    pub zip64: bool,
    pub name: Vec<u8>,
    pub extra: Vec<u8>,
    /// The declared length of the name, instead of the real one; likewise for the extra field.
    pub name_length: Option<u16>,
    pub extra_length: Option<u16>,
}

/// The data descriptor of a streamed entry (section 4.3.9).
#[derive(Debug, Clone, Copy)]
pub struct Descriptor {
    pub signature: bool,
    pub zip64: bool,
}

/// The offset of the local header in the central header.
#[derive(Debug, Clone, Copy)]
pub enum Offset {
    /// The real offset.
    Real,
    /// This offset.
    At(u64),
    /// The offset of another entry.
    Of(usize),
}

/// One entry: a local header, its data, a central header.
#[derive(Debug, Clone)]
pub struct Entry {
    pub local: Fields,
    pub central: Fields,
    pub data: Vec<u8>,
    pub descriptor: Option<Descriptor>,
    pub offset: Offset,
    pub disk: u16,
    pub made_by: u16,
    /// The Unix mode in the upper half, MS-DOS attributes in the lower.
    pub external: u32,
    pub comment: Vec<u8>,
    /// Whether both the local header and the data are left out.
    pub only_central: bool,
    /// Whether the central header is left out.
    pub only_local: bool,
}

impl Entry {
    /// Creates an entry whose compressed form is `data`.
    pub fn coded(name: impl AsRef<[u8]>, method: u16, content: &[u8], data: Vec<u8>) -> Self {
        let fields = Fields {
            version: 20,
            flags: 0,
            method,
            time: 0x5921_0000,
            crc: crc32fast::hash(content),
            compressed: data.len() as u64,
            size: content.len() as u64,
            zip64: false,
            name: name.as_ref().to_vec(),
            extra: Vec::new(),
            name_length: None,
            extra_length: None,
        };
        Self {
            local: fields.clone(),
            central: fields,
            data,
            descriptor: None,
            offset: Offset::Real,
            disk: 0,
            made_by: 0x0314,
            external: 0o100_644 << 16,
            comment: Vec::new(),
            only_central: false,
            only_local: false,
        }
    }

    pub fn stored(name: impl AsRef<[u8]>, content: &[u8]) -> Self {
        Self::coded(name, STORED, content, content.to_vec())
    }

    pub fn deflated(name: impl AsRef<[u8]>, content: &[u8]) -> Self {
        Self::coded(name, DEFLATED, content, deflate(content))
    }

    pub fn zstd(name: impl AsRef<[u8]>, content: &[u8]) -> Self {
        Self::coded(name, ZSTD, content, zstd_frame(content))
    }

    /// Creates a directory, as most writers store it.
    pub fn directory(name: impl AsRef<[u8]>) -> Self {
        let mut entry = Self::stored(name, b"");
        entry.external = 0o40_755 << 16 | 0x10;
        entry
    }

    /// Changes both headers.
    pub fn both(mut self, change: impl Fn(&mut Fields)) -> Self {
        change(&mut self.local);
        change(&mut self.central);
        self
    }

    pub fn local(mut self, change: impl FnOnce(&mut Fields)) -> Self {
        change(&mut self.local);
        self
    }

    pub fn central(mut self, change: impl FnOnce(&mut Fields)) -> Self {
        change(&mut self.central);
        self
    }

    pub fn with(mut self, change: impl FnOnce(&mut Self)) -> Self {
        change(&mut self);
        self
    }

    /// Makes the entry streamed: the local header has neither sizes nor CRC.
    pub fn streamed(mut self, signature: bool, zip64: bool) -> Self {
        self.local.flags |= FLAG_DESCRIPTOR;
        self.central.flags |= FLAG_DESCRIPTOR;
        self.local.crc = 0;
        self.local.compressed = 0;
        self.local.size = 0;
        self.local.zip64 = zip64;
        self.descriptor = Some(Descriptor { signature, zip64 });
        self
    }
}

/// The fields of the end of central directory record (section 4.3.16) that are replaced.
#[derive(Debug, Clone, Default)]
pub struct End {
    pub disk: Option<u16>,
    pub directory_disk: Option<u16>,
    pub entries_here: Option<u16>,
    pub entries: Option<u16>,
    pub directory_bytes: Option<u32>,
    pub directory_offset: Option<u32>,
    pub comment_length: Option<u16>,
}

/// The fields of the zip64 records (sections 4.3.14 and 4.3.15) that are replaced.
#[derive(Debug, Clone, Default)]
pub struct End64 {
    pub record_bytes: Option<u64>,
    pub disk: Option<u32>,
    pub entries_here: Option<u64>,
    pub entries: Option<u64>,
    pub directory_bytes: Option<u64>,
    pub directory_offset: Option<u64>,
    pub locator_disk: Option<u32>,
    pub locator_offset: Option<u64>,
    pub disks: Option<u32>,
    /// Data after the fixed part of the record.
    pub extensible: Vec<u8>,
}

/// The description of an archive.
#[derive(Debug, Clone, Default)]
pub struct Zip {
    pub entries: Vec<Entry>,
    /// Bytes before the first entry.
    pub prefix: Vec<u8>,
    /// Whether the prefix was added later, so that offsets do not include it.
    pub prefix_uncounted: bool,
    /// Bytes between the last entry and the directory.
    pub before_directory: Vec<u8>,
    /// Bytes between the directory and the end records.
    pub after_directory: Vec<u8>,
    pub end: End,
    pub end64: Option<End64>,
    pub comment: Vec<u8>,
    /// Bytes after all records.
    pub suffix: Vec<u8>,
}

/// The positions of the parts in the file.
#[derive(Debug, Clone, Default)]
pub struct Layout {
    pub headers: Vec<usize>,
    pub data: Vec<usize>,
    pub directory: usize,
    pub end: usize,
}

impl Zip {
    pub fn of(entries: Vec<Entry>) -> Self {
        Self {
            entries,
            ..Self::default()
        }
    }

    pub fn with(mut self, change: impl FnOnce(&mut Self)) -> Self {
        change(&mut self);
        self
    }

    /// Returns the bytes of the archive.
    pub fn build(&self) -> Vec<u8> {
        self.build_with_layout().0
    }

    /// Returns the bytes of the archive, and the positions of its parts.
    pub fn build_with_layout(&self) -> (Vec<u8>, Layout) {
        let mut bytes = self.prefix.clone();
        let mut layout = Layout::default();
        for entry in &self.entries {
            layout.headers.push(bytes.len());
            if entry.only_central {
                layout.data.push(bytes.len());
                continue;
            }
            local_header(&mut bytes, &entry.local);
            layout.data.push(bytes.len());
            bytes.extend_from_slice(&entry.data);
            if let Some(descriptor) = entry.descriptor {
                data_descriptor(&mut bytes, &entry.central, descriptor);
            }
        }
        bytes.extend_from_slice(&self.before_directory);
        layout.directory = bytes.len();
        let uncounted = match self.prefix_uncounted {
            true => self.prefix.len() as u64,
            false => 0,
        };
        for (entry, here) in self.entries.iter().zip(&layout.headers) {
            if entry.only_local {
                continue;
            }
            let offset = match entry.offset {
                Offset::Real => *here as u64 - uncounted,
                Offset::At(offset) => offset,
                Offset::Of(other) => layout.headers[other] as u64 - uncounted,
            };
            central_header(&mut bytes, entry, offset);
        }
        let directory_bytes = bytes.len() - layout.directory;
        bytes.extend_from_slice(&self.after_directory);
        let counted = self.entries.iter().filter(|e| !e.only_local).count() as u64;
        let facts = DirectoryValues {
            entries: counted,
            directory_bytes: directory_bytes as u64,
            directory_offset: layout.directory as u64 - uncounted,
        };
        if let Some(end64) = &self.end64 {
            let record = bytes.len() as u64 - uncounted;
            end_records64(&mut bytes, end64, &facts, record);
        }
        layout.end = bytes.len();
        end_record(&mut bytes, &self.end, &facts, &self.comment);
        bytes.extend_from_slice(&self.suffix);
        (bytes, layout)
    }
}
