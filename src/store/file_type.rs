//! The format of a file that is no zip archive, from its first bytes.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

const BERKELEY: &str = "a Berkeley DB 1.85 database, which this version does not read";

const GIT_LFS: &str = "a pointer of Git LFS without the content: fetch it with `git lfs pull`";
const GIT_ANNEX: &str = "a pointer of git-annex without the content: fetch it with `git annex get`";

const HDF5: &str = "an HDF5 (or NetCDF-4) file: programs open it without a mount";
const NETCDF: &str = "a NetCDF file: programs open it without a mount";
const TIFF: &str = "a TIFF file: programs open it without a mount";
const TAR: &str = "a tar archive: unpack it, or mount it with ratarmount";

/// Magic numbers: their offset, their bytes, and the name of the format. Formats of scientific data
/// come before archives and compressed files.
const FORMATS: [(usize, &[u8], &str); 23] = [
    (0, b"version https://git-lfs.github.com/spec/", GIT_LFS),
    (0, b"/annex/objects/", GIT_ANNEX),
    (0, b"\x89HDF\r\n\x1a\n", HDF5),
    (512, b"\x89HDF\r\n\x1a\n", HDF5),
    (0, b"CDF\x01", NETCDF),
    (0, b"CDF\x02", NETCDF),
    (0, b"CDF\x05", NETCDF),
    (0, b"GRIB", "a GRIB file"),
    (0, b"II*\0", TIFF),
    (0, b"MM\0*", TIFF),
    (0, b"\x93NUMPY", "a NumPy file"),
    (0, b"SQLite format 3\0", "an SQLite database"),
    (0, b"\x61\x15\x06\x00", BERKELEY),
    (0, b"\x00\x06\x15\x61", BERKELEY),
    (0, b"\x62\x31\x05\x00", BERKELEY),
    (0, b"\x00\x05\x31\x62", BERKELEY),
    (0, b"REDIS0", "a dump of a Redis database"),
    (257, b"ustar", TAR),
    (
        0,
        b"\x1f\x8b",
        "a gzip file (or a tar.gz archive): unpack it first",
    ),
    (
        0,
        b"\x28\xb5\x2f\xfd",
        "a zstd file (or a tar.zst archive): unpack it first",
    ),
    (
        0,
        b"\xfd7zXZ\0",
        "an xz file (or a tar.xz archive): unpack it first",
    ),
    (
        0,
        b"BZh",
        "a bzip2 file (or a tar.bz2 archive): unpack it first",
    ),
    (0, b"7z\xbc\xaf\x27\x1c", "a 7z archive: unpack it first"),
];

/// Number of leading bytes that hold all magic numbers.
pub const HEADER_BYTES: usize = 520;

/// The first bytes of an entry of a zip archive.
pub(super) const ZIP_ENTRY: &[u8; 4] = b"PK\x03\x04";

/// Whether a file begins with an entry of a zip archive.
pub(super) fn is_zip_entry(path: &Path) -> bool {
    let mut magic = [0; ZIP_ENTRY.len()];
    let read = File::open(path).and_then(|file| file.read_exact_at(&mut magic, 0));
    read.is_ok() && magic == *ZIP_ENTRY
}

/// The description of an empty file.
const EMPTY: &str = "an empty file";
/// The beginnings of HTML pages, compared case-insensitively.
const PAGES: [&[u8]; 2] = [b"<!doctype html", b"<html"];
const PAGE: &str = "an HTML page, such as one of an error or for signing in";
/// The beginning of an XML document.
const XML: &[u8] = b"<?xml";
const XML_DOCUMENT: &str = "an XML document, such as an error of an object store";
/// The description of a JSON document that is no source.
const JSON: &str = "a JSON document without references, and no STAC item or collection";
/// The description of a zip archive that is a file in a directory.
const ZIP: &str = "a zip archive, which can be a source";

/// Describes a file with these first bytes, also if it is a zip archive; `None` if they identify no format.
pub fn file_format(header: &[u8]) -> Option<&'static str> {
    match header.starts_with(ZIP_ENTRY) {
        true => Some(ZIP),
        false => of_header(header),
    }
}

/// Describes a value that stands for the content that should be in its place, such as a pointer of Git LFS or an
/// HTML page; otherwise `None`.
pub fn stand_in(value: &[u8]) -> Option<&'static str> {
    of_header(value).filter(|what| [GIT_LFS, GIT_ANNEX, PAGE, XML_DOCUMENT].contains(what))
}

/// Describes a file; `None` if its first bytes identify no format.
pub(super) fn describe(file: &File) -> Option<&'static str> {
    let mut header = [0; HEADER_BYTES];
    let mut filled = 0;
    while let Some(rest) = header.get_mut(filled..).filter(|rest| !rest.is_empty()) {
        match file.read_at(rest, filled as u64) {
            Ok(0) => break,
            Ok(more) => filled += more,
            Err(_) => return None,
        }
    }
    of_source(header.get(..filled)?)
}

/// Describes a file with these first bytes, if it is no source; `None` if they identify no format.
pub(super) fn of_source(header: &[u8]) -> Option<&'static str> {
    let text = header.trim_ascii_start();
    match header {
        [] => Some(EMPTY),
        _ if text.starts_with(b"{") => Some(JSON),
        _ => of_header(header),
    }
}

fn of_header(header: &[u8]) -> Option<&'static str> {
    let text = header.trim_ascii_start();
    let begins = |page: &&[u8]| {
        let start = text.get(..page.len());
        start.is_some_and(|start| start.eq_ignore_ascii_case(page))
    };
    if PAGES.iter().any(begins) {
        return Some(PAGE);
    }
    if begins(&XML) {
        return Some(XML_DOCUMENT);
    }
    let mut formats = FORMATS.iter();
    let found = formats.find(|(offset, magic, _)| {
        let there = header.get(*offset..);
        there.is_some_and(|there| there.starts_with(magic))
    });
    found.map(|(_, _, what)| *what)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn magic_numbers_identify_file_types() {
        let mut tar = vec![0; 512];
        tar[257..262].copy_from_slice(b"ustar");
        assert_eq!(of_header(&tar), Some(TAR));
        let mut with_user_block = vec![b'x'; 520];
        with_user_block[512..].copy_from_slice(b"\x89HDF\r\n\x1a\n");
        let hdf5 = Some(HDF5);
        assert_eq!(of_header(&with_user_block), hdf5);
        assert_eq!(of_header(b"\x89HDF\r\n\x1a\n"), hdf5);
        assert_eq!(of_header(b"CDF\x02\0"), Some(NETCDF));
        assert_eq!(of_header(b""), None);
        assert_eq!(of_header(b"CDF"), None);
        assert_eq!(of_header(b"text"), None);
        assert_eq!(of_header(b"\n<!DOCTYPE HTML><title>"), Some(PAGE));
        assert_eq!(of_header(b"<Html lang=en>"), Some(PAGE));
        assert_eq!(of_header(b"<htm"), None);
        assert_eq!(
            of_header(b"<?xml version=\"1.0\"?><Error>"),
            Some(XML_DOCUMENT)
        );
        let pointer = b"version https://git-lfs.github.com/spec/v1\noid sha256:00";
        assert_eq!(of_header(pointer), Some(GIT_LFS));
        assert_eq!(
            of_header(b"/annex/objects/SHA256E-s5--00.zip\n"),
            Some(GIT_ANNEX)
        );
        assert_eq!(of_header(b"{}"), None);
        assert_eq!(of_source(b" {}"), Some(JSON));
        assert_eq!(of_source(b""), Some(EMPTY));
        assert_eq!(of_source(b"CDF\x01"), Some(NETCDF));
        assert_eq!(file_format(b"PK\x03\x04\0"), Some(ZIP));
        assert_eq!(file_format(b"CDF\x01"), Some(NETCDF));
        assert_eq!(stand_in(pointer), Some(GIT_LFS));
        assert_eq!(stand_in(b"\x1f\x8b"), None);
        let empty = tempfile::tempfile().unwrap();
        assert_eq!(describe(&empty), Some(EMPTY));
    }
}
