//! The form of the elements in an encoded chunk, for file formats whose chunks have the same form.

use std::sync::Arc;

use super::pipeline::Pipeline;
use super::stage::{Action, Stage};

/// A bytes-to-bytes codec that other file formats have too.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ByteCodec {
    /// One zlib stream (RFC 1950).
    Zlib,
    /// Zstandard frames (RFC 8878).
    Zstd,
    /// Byte shuffle of elements of this size: their first bytes, then their second bytes, and so on.
    Shuffle {
        /// Size of an element in bytes.
        element_bytes: u64,
    },
    /// The bytes, followed by the checksum of HDF5 in little-endian order.
    Fletcher32,
    /// An image of JPEG with one or three components of 8 bits, in rows.
    Jpeg {
        /// An image without pixels, with the tables that all chunks lack.
        tables: Option<Arc<[u8]>>,
        /// Whether three components are YCbCr, else RGB.
        is_ycbcr: bool,
    },
}

impl ByteCodec {
    /// Returns a name for messages.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Zlib => "zlib",
            Self::Zstd => "zstd",
            Self::Shuffle { .. } => "shuffle",
            Self::Fletcher32 => "fletcher32",
            Self::Jpeg { .. } => "jpeg",
        }
    }
}

/// The form of the elements in an encoded chunk; they are in C order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredForm {
    /// Whether numbers have the opposite byte order of the data type.
    pub is_swapped: bool,
    /// The codecs, in the order of encoding.
    pub codecs: Vec<ByteCodec>,
}

impl Pipeline {
    /// Returns the form of the stored elements.
    ///
    /// # Errors
    /// Returns the name of the first codec that other file formats do not have.
    pub fn stored_form(&self) -> Result<StoredForm, String> {
        let mut form = StoredForm {
            is_swapped: false,
            codecs: Vec::new(),
        };
        for stage in self.stages().iter().rev() {
            // Swapping bytes is the only stage that decodes in place.
            if matches!(stage.action, Action::InPlace(_)) {
                form.is_swapped = !form.is_swapped;
                continue;
            }
            let codec = stage.byte_codec();
            form.codecs.push(codec.ok_or_else(|| stage.name.clone())?);
        }
        Ok(form)
    }
}

impl Stage {
    fn byte_codec(&self) -> Option<ByteCodec> {
        match &self.action {
            Action::Verify(codec) => codec.byte_codec(),
            Action::Decode(codec) => codec.byte_codec(),
            Action::InPlace(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::zarr::Array;

    fn form(metadata: &str) -> Result<StoredForm, String> {
        let array = match metadata.contains("codecs") {
            true => Array::from_v3(metadata.as_bytes()).unwrap(),
            false => Array::from_v2(metadata.as_bytes(), None).unwrap(),
        };
        let parts = array.decodable().unwrap();
        let shape = parts.grid.regular_chunk_shape().unwrap();
        let pipeline =
            Pipeline::new(parts.codecs, parts.data_type, &shape, parts.fill_value).unwrap();
        pipeline.stored_form()
    }

    fn v2(order: &str, filters: &str, compressor: &str) -> Result<StoredForm, String> {
        form(&format!(
            r#"{{"zarr_format": 2, "shape": [4, 4], "chunks": [2, 4], "dtype": ">i2", "fill_value": 0,
            "order": "{order}", "filters": {filters}, "compressor": {compressor}}}"#
        ))
    }

    fn v3(codecs: &str) -> Result<StoredForm, String> {
        form(&format!(
            r#"{{"zarr_format": 3, "node_type": "array", "shape": [4], "data_type": "float64",
            "chunk_grid": {{"name": "regular", "configuration": {{"chunk_shape": [2]}}}},
            "chunk_key_encoding": {{"name": "default"}}, "fill_value": 0, "codecs": [{codecs}]}}"#
        ))
    }

    #[test]
    fn codecs_of_other_formats_are_known_in_the_order_of_encoding() {
        let plain = |codecs: &[ByteCodec]| StoredForm {
            is_swapped: false,
            codecs: codecs.to_vec(),
        };
        assert_eq!(v2("C", "null", "null"), Ok(plain(&[])));
        let zlib = r#"{"id": "zlib", "level": 3}"#;
        let filters = r#"[{"id": "shuffle", "elementsize": 2}, {"id": "fletcher32"}]"#;
        let shuffle = ByteCodec::Shuffle { element_bytes: 2 };
        let expected = [shuffle, ByteCodec::Fletcher32, ByteCodec::Zlib];
        assert_eq!(v2("C", filters, zlib), Ok(plain(&expected)));
        let big = r#"{"name": "bytes", "configuration": {"endian": "big"}},
            {"name": "numcodecs.shuffle"}, {"name": "zstd"}"#;
        let expected = StoredForm {
            is_swapped: true,
            codecs: vec![ByteCodec::Shuffle { element_bytes: 8 }, ByteCodec::Zstd],
        };
        assert_eq!(v3(big), Ok(expected));
    }

    #[test]
    fn codecs_that_other_formats_lack_are_named() {
        assert_eq!(v2("F", "null", "null"), Err("order F".into()));
        let gzip = v2("C", "null", r#"{"id": "gzip"}"#);
        assert_eq!(gzip, Err("gzip".into()));
        let little = r#"{"name": "bytes", "configuration": {"endian": "little"}}"#;
        let crc = v3(&format!(r#"{little}, {{"name": "crc32c"}}"#));
        assert_eq!(crc, Err("crc32c".into()));
    }
}
