//! Names of chunks below an array, as given by `chunk_key_encoding` in its metadata (Zarr v3, "Chunk key
//! encoding").

use serde_json::Value;

use super::format::FormatError;

/// The chunk key encoding of an array.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ChunkKeys {
    /// Whether names begin with `c`.
    has_c: bool,
    /// Whether each coordinate is a component of its own.
    is_nested: bool,
    dimensions: usize,
}

/// A parsed name below an array.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ChunkName {
    /// A common prefix of chunk names, with the coordinates in it.
    Prefix(Vec<u32>),
    /// A chunk.
    Chunk(Vec<u32>),
}

/// The kind of names directly below a prefix.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ChildNames {
    /// Only the prefix `c`.
    C,
    /// Chunks, named by all of their coordinates.
    Flat,
    /// Prefixes or chunks, named by their next coordinate.
    Nested,
}

impl ChunkKeys {
    /// The encoding of an array with this number of dimensions, from its `zarr.json`.
    pub(super) fn of_document(document: &[u8], dimensions: usize) -> Result<Self, FormatError> {
        let document: Value = serde_json::from_slice(document)
            .map_err(|error| FormatError::malformed(format!("its zarr.json: {error}")))?;
        let encoding = document.get("chunk_key_encoding");
        let name = match encoding {
            Some(Value::String(name)) => Some(name.as_str()),
            encoding => encoding.and_then(|encoding| encoding.get("name")?.as_str()),
        };
        let separator = encoding
            .and_then(|encoding| encoding.get("configuration")?.get("separator"))
            .map(Value::as_str);
        let (has_c, by_default) = match name {
            Some("default") => (true, "/"),
            Some("v2") => (false, "."),
            _ => {
                let what = "its zarr.json names no chunk_key_encoding that is known";
                return Err(FormatError::Unsupported(what.into()));
            }
        };
        let is_nested = match separator.unwrap_or(Some(by_default)) {
            Some("/") => true,
            Some(".") => false,
            _ => return Err(FormatError::malformed("the separator in its zarr.json")),
        };
        Ok(Self {
            has_c,
            is_nested,
            dimensions,
        })
    }

    /// Parses a key below the array; `None` if it cannot name one of its chunks.
    pub(super) fn parse(&self, below: &[u8]) -> Option<ChunkName> {
        let coordinates = match (self.has_c, self.dimensions) {
            (false, 0) => return (below == b"0").then(|| ChunkName::Chunk(Vec::new())),
            (true, 0) => return (below == b"c").then(|| ChunkName::Chunk(Vec::new())),
            (false, _) => Some(below),
            (true, _) if self.is_nested && below == b"c" => None,
            (true, _) => {
                let (separator, coordinates) = below.strip_prefix(b"c")?.split_first()?;
                (*separator == self.separator()).then_some(())?;
                Some(coordinates)
            }
        };
        let split = |text: &[u8]| {
            let parts = text.split(|byte| *byte == self.separator());
            // One part more than there are dimensions is enough to reject a name.
            let parts = parts.take(self.dimensions.saturating_add(1));
            parts.map(coordinate).collect::<Option<Vec<u32>>>()
        };
        let coordinates = coordinates.map_or_else(|| Some(Vec::new()), split)?;
        match coordinates.len() {
            all if all == self.dimensions => Some(ChunkName::Chunk(coordinates)),
            some if some < self.dimensions && self.is_nested => {
                Some(ChunkName::Prefix(coordinates))
            }
            _ => None,
        }
    }

    fn separator(&self) -> u8 {
        if self.is_nested { b'/' } else { b'.' }
    }

    /// The kind of names directly below the array.
    pub(super) fn top(&self) -> ChildNames {
        match (self.has_c, self.is_nested && self.dimensions > 0) {
            (true, true) => ChildNames::C,
            (false, true) => ChildNames::Nested,
            (_, false) => ChildNames::Flat,
        }
    }

    /// The name of a chunk directly below its array ([`ChildNames::Flat`]).
    pub(super) fn flat_name(&self, coordinates: impl Iterator<Item = u32>) -> String {
        let mut name = String::from(if self.has_c { "c" } else { "" });
        for coordinate in coordinates {
            if !name.is_empty() {
                name.push('.');
            }
            name.push_str(&coordinate.to_string());
        }
        match name.is_empty() {
            true => "0".into(),
            false => name,
        }
    }
}

/// Parses a coordinate, which has neither a sign nor leading zeros.
fn coordinate(text: &[u8]) -> Option<u32> {
    let is_number = !text.is_empty() && text.iter().all(u8::is_ascii_digit);
    let is_canonical = text == b"0" || text.first() != Some(&b'0');
    (is_number && is_canonical).then_some(())?;
    std::str::from_utf8(text).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(encoding: &str, dimensions: usize) -> ChunkKeys {
        let document = format!(r#"{{"chunk_key_encoding": {encoding}}}"#);
        ChunkKeys::of_document(document.as_bytes(), dimensions).unwrap()
    }

    const DEFAULT: &str = r#"{"name": "default", "configuration": {"separator": "/"}}"#;
    const DOTS: &str = r#"{"name": "default", "configuration": {"separator": "."}}"#;
    const V2: &str = r#"{"name": "v2"}"#;
    const V2_SLASHES: &str = r#"{"name": "v2", "configuration": {"separator": "/"}}"#;

    #[test]
    fn names_of_chunks_are_those_of_the_encoding() {
        use ChunkName::{Chunk, Prefix};
        let cases = [
            (DEFAULT, 2, "c/1/20", Some(Chunk(vec![1, 20]))),
            (DEFAULT, 2, "c/1", Some(Prefix(vec![1]))),
            (DEFAULT, 2, "c", Some(Prefix(vec![]))),
            (DEFAULT, 2, "c/1/2/3", None),
            (DEFAULT, 2, "c/01/2", None),
            (DEFAULT, 2, "c/1/", None),
            (DEFAULT, 2, "c/1/-2", None),
            (DEFAULT, 2, "c/1/4294967296", None),
            (DEFAULT, 2, "c/1.2", None),
            (DEFAULT, 2, "1/2", None),
            (DEFAULT, 0, "c", Some(Chunk(vec![]))),
            (DEFAULT, 0, "c/0", None),
            (r#""default""#, 1, "c/7", Some(Chunk(vec![7]))),
            (DOTS, 2, "c.1.2", Some(Chunk(vec![1, 2]))),
            (DOTS, 2, "c", None),
            (DOTS, 2, "c.1", None),
            (DOTS, 2, "c/1/2", None),
            (V2, 2, "1.2", Some(Chunk(vec![1, 2]))),
            (V2, 2, "1", None),
            (V2, 1, "1", Some(Chunk(vec![1]))),
            (V2, 0, "0", Some(Chunk(vec![]))),
            (V2_SLASHES, 2, "1/2", Some(Chunk(vec![1, 2]))),
            (V2_SLASHES, 2, "1", Some(Prefix(vec![1]))),
            (V2_SLASHES, 0, "0", Some(Chunk(vec![]))),
        ];
        for (encoding, dimensions, name, expected) in cases {
            let parsed = keys(encoding, dimensions).parse(name.as_bytes());
            assert_eq!(parsed, expected, "{encoding} {dimensions} {name}");
        }
    }

    #[test]
    fn listed_names_are_those_that_are_found() {
        for (encoding, dimensions) in [(DOTS, 2), (DOTS, 0), (V2, 3), (V2, 0), (DEFAULT, 0)] {
            let keys = keys(encoding, dimensions);
            let coordinates = vec![4; dimensions];
            assert_eq!(keys.top(), ChildNames::Flat);
            let name = keys.flat_name(coordinates.iter().copied());
            assert_eq!(
                keys.parse(name.as_bytes()),
                Some(ChunkName::Chunk(coordinates))
            );
        }
        assert_eq!(keys(DEFAULT, 1).top(), ChildNames::C);
        assert_eq!(keys(V2_SLASHES, 1).top(), ChildNames::Nested);
    }

    #[test]
    fn other_encodings_are_refused() {
        for document in ["", "{}", r#"{"chunk_key_encoding": {"name": "x"}}"#] {
            assert!(
                ChunkKeys::of_document(document.as_bytes(), 1).is_err(),
                "{document}"
            );
        }
        let separator = r#"{"chunk_key_encoding":{"name":"v2","configuration":{"separator":"-"}}}"#;
        assert!(ChunkKeys::of_document(separator.as_bytes(), 1).is_err());
    }
}
