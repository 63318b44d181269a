//! Chunk key encodings (v2, "Storing arrays"; v3 core, "Chunk key encoding"; N5, "File-system
//! specification").

use std::fmt::Write as _;
use std::sync::Arc;

use serde_json::Value;

use super::codec_chain::named_configuration;
use super::error::{MetadataError, excerpt};
use super::fanout::Fanout;
use super::key_template::KeyTemplate;

/// A chunk key encoding: maps chunk indices to keys relative to the array, and back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChunkKeys {
    /// The encoding: the prefix of the key, and the order of the chunk indices.
    pub encoding: KeyEncoding,
    /// The separator of the chunk indices. For a template, whether keys have directories.
    pub separator: Separator,
}

/// The encodings of the core specification and of extensions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KeyEncoding {
    /// `c/0/1`; `c` for an array without axes.
    Default,
    /// `0.1`; `0` for an array without axes. The only encoding of Zarr v2.
    V2,
    /// `1/0`: as [`KeyEncoding::V2`], with the indices in reverse order. The only encoding of N5.
    N5,
    /// Texts and indices in any order.
    Template(Arc<KeyTemplate>),
    /// `c/1/001/234/0/005`: indices in groups of digits.
    Fanout(Fanout),
}

/// The separator of the chunk indices in a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Separator {
    /// `.`: all chunks in one directory.
    Dot,
    /// `/`: one directory level for each axis.
    Slash,
}

impl ChunkKeys {
    /// Parses the `dimension_separator` of a v2 array (default: `.`).
    ///
    /// # Errors
    /// The separator is neither `.` nor `/`.
    pub fn from_v2(separator: Option<&Value>) -> Result<Self, MetadataError> {
        let separator = match separator {
            None | Some(Value::Null) => Separator::Dot,
            Some(value) => Separator::parse("dimension_separator", value)?,
        };
        Ok(Self {
            encoding: KeyEncoding::V2,
            separator,
        })
    }

    /// Parses the v3 `chunk_key_encoding` of an array with `rank` axes.
    ///
    /// # Errors
    /// An unknown encoding is unsupported; any separator other than `.` and `/` is invalid, and so is an encoding that
    /// does not fit the array.
    pub fn from_v3(value: &Value, rank: usize) -> Result<Self, MetadataError> {
        let (name, configuration) = named_configuration("chunk_key_encoding", value)?;
        let (encoding, default) = match name {
            "default" => (KeyEncoding::Default, Separator::Slash),
            "v2" => (KeyEncoding::V2, Separator::Dot),
            "fanout" => {
                return Ok(Self {
                    encoding: KeyEncoding::Fanout(Fanout::parse(value)?),
                    separator: Separator::Slash,
                });
            }
            _ => {
                let template = KeyTemplate::parse(value, rank)?;
                return Ok(Self {
                    separator: match template.len() {
                        1 => Separator::Dot,
                        _ => Separator::Slash,
                    },
                    encoding: KeyEncoding::Template(Arc::new(template)),
                });
            }
        };
        let separator = match configuration.and_then(|members| members.get("separator")) {
            None | Some(Value::Null) => default,
            Some(value) => Separator::parse("chunk_key_encoding", value)?,
        };
        Ok(Self {
            encoding,
            separator,
        })
    }

    /// Returns the key of a chunk.
    pub fn encode(&self, index: &[u64]) -> String {
        match &self.encoding {
            KeyEncoding::Template(template) => return template.encode(index),
            KeyEncoding::Fanout(fanout) => return fanout.encode(index),
            KeyEncoding::Default | KeyEncoding::V2 | KeyEncoding::N5 => {}
        }
        let mut key = String::new();
        if self.encoding == KeyEncoding::Default {
            key.push('c');
        } else if index.is_empty() {
            key.push('0');
        }
        let push = |i: &u64| {
            if !key.is_empty() {
                key.push(self.separator.as_char());
            }
            // Writing to a String is infallible.
            let _ = write!(key, "{i}");
        };
        match self.encoding {
            KeyEncoding::N5 => index.iter().rev().for_each(push),
            _ => index.iter().for_each(push),
        }
        key
    }

    /// Returns the index of the chunk with this key, in a grid with `grid_shape` chunks along each axis. Only
    /// canonical keys of [`ChunkKeys::encode`] are accepted: no leading zeros, no signs, and no index outside
    /// of the grid.
    pub fn decode(&self, key: &[u8], grid_shape: &[u64]) -> Option<Vec<u64>> {
        let separator = self.separator.as_byte();
        let numbers = match (&self.encoding, grid_shape.is_empty()) {
            (KeyEncoding::Template(template), _) => return template.decode(key, grid_shape),
            (KeyEncoding::Fanout(fanout), _) => return fanout.decode(key, grid_shape),
            (KeyEncoding::Default, true) => return (key == b"c").then(Vec::new),
            (KeyEncoding::V2 | KeyEncoding::N5, true) => return (key == b"0").then(Vec::new),
            (KeyEncoding::Default, false) => key.strip_prefix(b"c")?.strip_prefix(&[separator])?,
            (KeyEncoding::V2 | KeyEncoding::N5, false) => key,
        };
        let rank = grid_shape.len();
        let mut index = Vec::with_capacity(rank);
        for part in numbers.split(|byte| *byte == separator) {
            let axis = match self.encoding {
                KeyEncoding::N5 => rank.checked_sub(index.len() + 1)?,
                _ => index.len(),
            };
            let count = grid_shape.get(axis)?;
            index.push(canonical(part).filter(|i| i < count)?);
        }
        if self.encoding == KeyEncoding::N5 {
            index.reverse();
        }
        (index.len() == rank).then_some(index)
    }
}

impl Separator {
    fn parse(field: &str, value: &Value) -> Result<Self, MetadataError> {
        match value.as_str() {
            Some(".") => Ok(Self::Dot),
            Some("/") => Ok(Self::Slash),
            _ => {
                let what = format!("a separator {} instead of \".\" or \"/\"", excerpt(value));
                Err(MetadataError::invalid(field, what))
            }
        }
    }

    /// Returns the separator as a character.
    pub fn as_char(self) -> char {
        char::from(self.as_byte())
    }

    fn as_byte(self) -> u8 {
        match self {
            Self::Dot => b'.',
            Self::Slash => b'/',
        }
    }
}

/// Parses a number in canonical decimal form.
pub(super) fn canonical(digits: &[u8]) -> Option<u64> {
    if !digits.iter().all(u8::is_ascii_digit) || (digits.len() > 1 && digits.starts_with(b"0")) {
        return None;
    }
    str::from_utf8(digits).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn keys(value: Value) -> ChunkKeys {
        ChunkKeys::from_v3(&value, 2).unwrap()
    }

    #[test]
    fn indices_become_keys_and_keys_become_indices() {
        let config = |name: &str, separator: &str| {
            keys(json!({"name": name, "configuration": {"separator": separator}}))
        };
        let cases = [
            (keys(json!("default")), "c/1/20/3", "c"),
            (config("default", "/"), "c/1/20/3", "c"),
            (config("default", "."), "c.1.20.3", "c"),
            (keys(json!({"name": "v2"})), "1.20.3", "0"),
            (config("v2", "/"), "1/20/3", "0"),
            (ChunkKeys::from_v2(None).unwrap(), "1.20.3", "0"),
            (
                ChunkKeys::from_v2(Some(&json!(null))).unwrap(),
                "1.20.3",
                "0",
            ),
            (
                ChunkKeys::from_v2(Some(&json!("/"))).unwrap(),
                "1/20/3",
                "0",
            ),
        ];
        for (keys, key, scalar) in cases {
            assert_eq!(keys.encode(&[1, 20, 3]), key);
            assert_eq!(
                keys.decode(key.as_bytes(), &[2, 21, 4]),
                Some(vec![1, 20, 3])
            );
            assert_eq!(keys.encode(&[]), scalar);
            assert_eq!(keys.decode(scalar.as_bytes(), &[]), Some(vec![]));
        }
    }

    #[test]
    fn every_index_round_trips_through_its_key() {
        for encoding in [KeyEncoding::Default, KeyEncoding::V2] {
            for separator in [Separator::Dot, Separator::Slash] {
                let keys = ChunkKeys {
                    encoding: encoding.clone(),
                    separator,
                };
                for i in 0..12 {
                    for j in [0, 9, 10, u64::MAX - 1] {
                        let key = keys.encode(&[i, j]);
                        let index = keys.decode(key.as_bytes(), &[12, u64::MAX]);
                        assert_eq!(index, Some(vec![i, j]), "{key}");
                    }
                }
            }
        }
    }

    #[test]
    fn keys_of_n5_have_the_fastest_axis_first() {
        let keys = ChunkKeys {
            encoding: KeyEncoding::N5,
            separator: Separator::Slash,
        };
        for (index, key) in [(&[1, 20, 3][..], "3/20/1"), (&[7], "7"), (&[], "0")] {
            assert_eq!(keys.encode(index), key);
            let counts: Vec<u64> = index.iter().map(|i| i + 1).collect();
            assert_eq!(keys.decode(key.as_bytes(), &counts), Some(index.to_vec()));
        }
        for key in ["1/20/3", "3/20", "3/20/1/0", "3/20/01", "3.20.1"] {
            assert_eq!(keys.decode(key.as_bytes(), &[2, 21, 4]), None, "{key}");
        }
    }

    #[test]
    fn only_the_canonical_key_within_the_grid_is_a_chunk() {
        let default = keys(json!("default"));
        for key in [
            "c",
            "c/",
            "c/0",
            "c/0/0/0",
            "c/00/0",
            "c/0/01",
            "c/+1/0",
            "c/-1/0",
            "c/ 1/0",
            "c/2/0",
            "c/0/2",
            "0/0",
            "c.0.0",
            "c/0.0",
            "c/0/0/",
            "/c/0/0",
            "c//0",
            "c/0x1/0",
            "c/18446744073709551616/0",
            "C/0/0",
            "",
            "zarr.json",
        ] {
            assert_eq!(default.decode(key.as_bytes(), &[2, 2]), None, "{key}");
        }
        assert_eq!(default.decode(b"c/\xff/0", &[2, 2]), None);
        assert_eq!(default.decode(b"c/0", &[]), None);
        let v2 = ChunkKeys::from_v2(None).unwrap();
        for key in [
            "", ".", "0", "0.", ".0", "0.0.0", "00.0", "0/0", ".zarray", "0.2",
        ] {
            assert_eq!(v2.decode(key.as_bytes(), &[2, 2]), None, "{key}");
        }
        assert_eq!(v2.decode(b"1", &[]), None);
        assert_eq!(v2.decode(b"0.0", &[0, 2]), None);
    }

    #[test]
    fn unknown_encodings_and_separators_are_named() {
        let unknown = ChunkKeys::from_v3(&json!({"name": "fan"}), 2).unwrap_err();
        assert_eq!(
            unknown.to_string(),
            "chunk key encoding fan is not supported"
        );
        let odd = json!({"name": "v2", "configuration": {"separator": "-"}});
        let found = ChunkKeys::from_v3(&odd, 2).unwrap_err().to_string();
        assert_eq!(
            found,
            "chunk_key_encoding: a separator \"-\" instead of \".\" or \"/\""
        );
        assert!(ChunkKeys::from_v2(Some(&json!(""))).is_err());
        assert!(ChunkKeys::from_v2(Some(&json!(1))).is_err());
    }
}
