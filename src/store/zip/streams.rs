//! Decoders of entries of the methods bzip2, lzma and xz (APPNOTE 4.4.5), which zipfile of Python and 7-Zip
//! write. An entry is decoded whole.

use std::io::{self, Read};

use bzip2::bufread::BzDecoder;
use liblzma::bufread::XzDecoder;
use liblzma::stream::Stream;

use super::index::EntryMethod;
use super::inflate;

/// The address space in bytes that a decoder may take besides twice the entry; liblzma allocates the
/// dictionary without touching it.
const DICTIONARY_LIMIT: u64 = 128 << 20;
/// The smallest dictionary of LZMA in bytes.
const MIN_DICTIONARY_BYTES: u32 = 4096;

/// Decodes an entry to exactly the length of `target`.
pub(super) fn exact(
    method: EntryMethod,
    compressed: &[u8],
    target: &mut [u8],
) -> Result<(), String> {
    let bad = |error| bad(method, error);
    let mut decoder = decoder(method, compressed, target.len())?;
    let mut filled = 0;
    while let Some(rest) = target.get_mut(filled..).filter(|rest| !rest.is_empty()) {
        match decoder.read(rest).map_err(bad)? {
            0 => {
                return Err(format!(
                    "decodes to {filled} bytes, {} declared",
                    target.len()
                ));
            }
            read => filled += read,
        }
    }
    match decoder.read(&mut [0]).map_err(bad)? {
        0 => Ok(()),
        _ => Err(format!("decodes to more than the {filled} bytes declared")),
    }
}

/// Decodes an entry to exactly `size` bytes; memory grows with the actual output.
pub(super) fn growing(
    method: EntryMethod,
    compressed: &[u8],
    size: usize,
    bytes: &mut Vec<u8>,
) -> Result<(), String> {
    let decoder = decoder(method, compressed, size)?;
    inflate::growing(decoder, size, bytes, |error| bad(method, error))
}

fn bad(method: EntryMethod, error: io::Error) -> String {
    let name = match method {
        EntryMethod::Bzip2 => "bzip2",
        EntryMethod::Lzma => "lzma",
        _ => "xz",
    };
    format!("bad {name} data: {error}")
}

fn decoder<'a>(
    method: EntryMethod,
    compressed: &'a [u8],
    size: usize,
) -> Result<Box<dyn Read + 'a>, String> {
    let memory_bytes = (size as u64)
        .saturating_mul(2)
        .saturating_add(DICTIONARY_LIMIT);
    let stream = match method {
        EntryMethod::Bzip2 => return Ok(Box::new(BzDecoder::new(compressed))),
        EntryMethod::Lzma => {
            let (header, body) = alone(compressed, size).ok_or("bad lzma header")?;
            let stream = Stream::new_lzma_decoder(memory_bytes);
            let stream = stream.map_err(|error| bad(method, error.into()))?;
            let whole = io::Cursor::new(header).chain(body);
            return Ok(Box::new(XzDecoder::new_stream(whole, stream)));
        }
        _ => Stream::new_stream_decoder(memory_bytes, 0),
    };
    let stream = stream.map_err(|error| bad(method, error.into()))?;
    Ok(Box::new(XzDecoder::new_stream(compressed, stream)))
}

/// Returns the header of an `.lzma` file with the parameters of an entry (APPNOTE 5.8.8), and the bytes after
/// those. The dictionary is no larger than the entry, because a larger one is useless.
fn alone(compressed: &[u8], size: usize) -> Option<([u8; 13], &[u8])> {
    let (&[_, _, 5, 0, properties, a, b, c, d], body) = compressed.split_first_chunk::<9>()? else {
        return None;
    };
    let most = u32::try_from(size)
        .unwrap_or(u32::MAX)
        .max(MIN_DICTIONARY_BYTES);
    let dictionary = u32::from_le_bytes([a, b, c, d]).min(most);
    let mut header = [0; 13];
    let parts = [properties]
        .into_iter()
        .chain(dictionary.to_le_bytes())
        .chain((size as u64).to_le_bytes());
    for (place, byte) in header.iter_mut().zip(parts) {
        *place = byte;
    }
    Some((header, body))
}

#[cfg(test)]
mod tests {
    use super::*;

    const CONTENT: &[u8] = b"hello hello hello";
    /// `zipfile` of Python, with `ZIP_BZIP2`.
    const BZIP2: &[u8] = &[
        66, 90, 104, 57, 49, 65, 89, 38, 83, 89, 158, 98, 91, 254, 0, 0, 2, 145, 0, 64, 0, 2, 68,
        160, 0, 33, 20, 96, 102, 130, 145, 239, 35, 71, 11, 185, 34, 156, 40, 72, 79, 49, 45, 255,
        0,
    ];
    /// `zipfile` of Python, with `ZIP_LZMA`: the stream has an end marker.
    const LZMA: &[u8] = &[
        9, 4, 5, 0, 93, 0, 0, 128, 0, 0, 52, 25, 73, 238, 141, 233, 79, 127, 53, 197, 163, 255,
        255, 120, 164, 0, 0,
    ];
    /// `lzma.compress` of Python.
    const XZ: &[u8] = &[
        253, 55, 122, 88, 90, 0, 0, 4, 230, 214, 180, 70, 2, 0, 33, 1, 22, 0, 0, 0, 116, 47, 229,
        163, 224, 0, 16, 0, 11, 93, 0, 52, 25, 73, 238, 141, 233, 79, 126, 21, 224, 0, 0, 0, 75,
        136, 230, 218, 68, 128, 7, 118, 0, 1, 39, 17, 188, 39, 243, 144, 31, 182, 243, 125, 1, 0,
        0, 0, 0, 4, 89, 90,
    ];
    /// 7-Zip with `-meos=off`, 30 times `hello, `: the stream has no end marker.
    const LZMA_OF_7_ZIP: &[u8] = &[
        26, 2, 5, 0, 93, 0, 16, 0, 0, 0, 52, 25, 73, 238, 141, 239, 140, 141, 147, 210, 220, 128, 0,
    ];

    fn decode(method: EntryMethod, compressed: &[u8], size: usize) -> Result<Vec<u8>, String> {
        let mut target = vec![0; size];
        let decoded = exact(method, compressed, &mut target).map(|()| target);
        let mut grown = Vec::new();
        let same = growing(method, compressed, size, &mut grown).map(|()| grown);
        assert_eq!(decoded.is_ok(), same.is_ok());
        if decoded.is_ok() {
            assert_eq!(decoded, same);
        }
        decoded
    }

    #[test]
    fn entries_of_python_and_7_zip_are_decoded() {
        for (method, compressed) in [
            (EntryMethod::Bzip2, BZIP2),
            (EntryMethod::Lzma, LZMA),
            (EntryMethod::Xz, XZ),
        ] {
            assert_eq!(decode(method, compressed, CONTENT.len()).unwrap(), CONTENT);
        }
        let expected = b"hello, ".repeat(30);
        assert_eq!(
            decode(EntryMethod::Lzma, LZMA_OF_7_ZIP, 210).unwrap(),
            expected
        );
    }

    #[test]
    fn wrong_sizes_and_damage_are_errors() {
        for (method, compressed) in [
            (EntryMethod::Bzip2, BZIP2),
            (EntryMethod::Lzma, LZMA),
            (EntryMethod::Xz, XZ),
        ] {
            for size in [0, 16, 18, 99] {
                assert!(
                    decode(method, compressed, size).is_err(),
                    "{method:?} {size}"
                );
            }
            for end in 0..compressed.len() - 8 {
                let cut = decode(method, &compressed[..end], CONTENT.len());
                assert!(cut.is_err(), "{method:?} {end}");
            }
            assert!(decode(method, b"no such data", CONTENT.len()).is_err());
        }
    }
}
