//! NumPy's file format (NEP 1, `numpy/lib/format.py`): a header and the elements in C order.

use super::Renderer;
use super::row::{FormatRow, Listing, ViewName};
use crate::node::ArrayView;
use crate::view::file::layout::{ArrayExtent, ElementOrder, Segment, VirtualFile};
use crate::zarr::Fixed;

/// The rows of the table of formats.
pub(super) const ROWS: &[FormatRow] = &[FormatRow::new(
    "npy",
    ViewName::Suffix(".npy"),
    "NumPy",
    r#"python3 -c 'import numpy, sys; print(numpy.load(sys.argv[1], mmap_mode="r"))'"#,
    Renderer::Array(render),
)
.expressing(&[])
.also_called(&["numpy"])
.listed(Listing::ViewsAndGroup)];

/// Renders a whole array as a `.npy` file.
///
/// # Errors
/// The file would exceed 2^63 - 1 bytes.
fn render(view: &ArrayView<'_>) -> Result<VirtualFile, String> {
    let header = header(view.data_type(), view.shape())?;
    let elements =
        ArrayExtent::new(0, view.reader, ElementOrder::RowMajor, None).map(Segment::Array);
    let parts = [Some(Segment::Bytes(header)), elements];
    VirtualFile::of_array(view.reader, parts.into_iter().flatten())
}

/// Returns the header of a `.npy` file, padded so that the elements begin at a multiple of 64 bytes.
fn header(data_type: &Fixed, shape: &[u64]) -> Result<Vec<u8>, String> {
    let lengths: String = shape.iter().map(|length| format!("{length}, ")).collect();
    // A tuple of one element needs a trailing comma.
    let shape = match shape.len() {
        0 | 1 => lengths.trim_end_matches(' '),
        _ => lengths.trim_end_matches(", "),
    };
    let descr = data_type.numpy_literal();
    let text = format!("{{'descr': {descr}, 'fortran_order': False, 'shape': ({shape}), }}");
    // Version 1 has a 16-bit length, version 2 a 32-bit length, and version 3 is UTF-8.
    let version: u8 = match (text.is_ascii(), text.len() < 65_000) {
        (false, _) => 3,
        (true, true) => 1,
        (true, false) => 2,
    };
    let before = if version == 1 { 10 } else { 12 };
    let padded = (before + text.len() + 1).next_multiple_of(64);
    let length = padded - before;
    let too_long = || format!("a header of {length} bytes");
    let mut header = b"\x93NUMPY".to_vec();
    header.extend([version, 0]);
    match version {
        1 => header.extend(u16::try_from(length).map_err(|_| too_long())?.to_le_bytes()),
        _ => header.extend(u32::try_from(length).map_err(|_| too_long())?.to_le_bytes()),
    }
    header.extend(text.as_bytes());
    header.resize(padded - 1, b' ');
    header.push(b'\n');
    Ok(header)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::zarr::{ByteOrder, Scalar};

    #[test]
    fn headers_match_numpy() {
        let f4 = Fixed {
            scalar: Scalar::Float(ByteOrder::Little),
            size_bytes: 4,
        };
        for (shape, written) in [
            (&[][..], "()"),
            (&[5], "(5,)"),
            (&[5, 7], "(5, 7)"),
            (&[0, 1, 2], "(0, 1, 2)"),
        ] {
            let header = header(&f4, shape).unwrap();
            let text = format!("{{'descr': '<f4', 'fortran_order': False, 'shape': {written}, }}");
            assert_eq!(header.len(), 128);
            assert_eq!(&header[..10], b"\x93NUMPY\x01\0\x76\0");
            assert_eq!(std::str::from_utf8(&header[10..]).unwrap().trim_end(), text);
            assert_eq!(header.last(), Some(&b'\n'));
        }
    }
}
