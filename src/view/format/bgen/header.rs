//! The header of a BGEN file with its sample block, and the `.sample` file (BGEN format, "The header block" and
//! "Sample identifier block").

use std::io::Write;

use super::super::genotypes::Samples;
use crate::conventions::vcf_zarr::SAMPLE_NAME;
use crate::fallible::{List, NoMemory};
use crate::node::ContentError;

/// The length of the header block.
const HEADER_BYTES: u32 = 20;
/// Names of samples, layout 2, and blocks of zlib.
const FLAGS: u32 = 1 << 31 | 2 << 2 | 1;

/// Returns the bytes before the first record: the offset of that record, the header block and the sample block.
///
/// # Errors
/// Returns what the file cannot have so many of, or which name is too long.
pub(super) fn header(variants: u64, samples: &Samples) -> Result<Vec<u8>, ContentError> {
    let variants = u32::try_from(variants).map_err(|_| too_many("variants", variants))?;
    let mut names = List::default();
    let mut count = 0;
    for name in samples.names() {
        let length = u16::try_from(name.len()).map_err(|_| {
            let bytes = name.len();
            format!("`{SAMPLE_NAME}` has a name of {bytes} bytes; BGEN has at most 65535")
        })?;
        names.extend_from_slice(&length.to_le_bytes());
        names.extend_from_slice(name.as_bytes());
        count += 1_u64;
    }
    let count = u32::try_from(count).map_err(|_| too_many("samples", count))?;
    let block_bytes = u32::try_from(names.len())
        .ok()
        .and_then(|bytes| bytes.checked_add(8))
        .filter(|bytes| bytes.checked_add(HEADER_BYTES).is_some());
    let block_bytes = block_bytes.ok_or("the names of the samples are longer than 4 GiB")?;
    let mut header = List::default();
    header.extend((HEADER_BYTES + block_bytes).to_le_bytes());
    for number in [HEADER_BYTES, variants, count] {
        header.extend(number.to_le_bytes());
    }
    header.extend_from_slice(b"bgen");
    for number in [FLAGS, block_bytes, count] {
        header.extend(number.to_le_bytes());
    }
    header.extend_from_slice(&names.finish()?);
    Ok(header.finish()?)
}

fn too_many(what: &str, count: u64) -> String {
    format!("{count} {what}; BGEN has at most {}", u32::MAX)
}

/// Returns the `.sample` file: two lines of names and types of columns, then each sample with its name as both IDs.
///
/// # Errors
/// The system has no memory for it.
pub(super) fn sample_file(samples: &Samples) -> Result<Vec<u8>, NoMemory> {
    let mut text = List::default();
    text.extend_from_slice(b"ID_1 ID_2 missing\n0 0 0\n");
    for name in samples.names() {
        // The end returns a failure.
        let _ = writeln!(text, "{name} {name} 0");
    }
    text.finish()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    fn samples(names: &[&str]) -> Samples {
        let names = names.iter().map(|name| (*name).to_owned());
        Samples::new(Arc::new(names.collect()))
    }

    #[test]
    fn samples_are_in_the_header_and_in_the_sample_file() {
        let samples = samples(&["a", "", "b c"]);
        let expected = [
            &[40, 0, 0, 0, 20, 0, 0, 0, 7, 0, 0, 0, 2, 0, 0, 0][..],
            b"bgen\x09\0\0\x80\x10\0\0\0\x02\0\0\0",
            b"\x01\0a\x03\0b c",
        ];
        let mut expected = expected.concat();
        let length = u32::try_from(expected.len() - 4).unwrap();
        expected.splice(..4, length.to_le_bytes());
        expected.splice(24..28, (length - 20).to_le_bytes());
        assert_eq!(header(7, &samples).unwrap(), expected);
        let text = sample_file(&samples).unwrap();
        assert_eq!(text, b"ID_1 ID_2 missing\n0 0 0\na a 0\nb c b c 0\n");
    }

    #[test]
    fn what_the_fields_cannot_hold_is_named() {
        let error = |variants, names: &[&str]| match header(variants, &samples(names)) {
            Err(ContentError::Absent(why)) => why,
            other => panic!("{other:?}"),
        };
        assert!(error(1 << 32, &[]).starts_with("4294967296 variants"));
        let long = "x".repeat(65536);
        assert!(error(1, &[&long]).contains("a name of 65536 bytes"));
    }
}
