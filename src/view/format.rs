//! The names of computed files.

use std::fmt;
use std::str::FromStr;

use crate::translate::Target;

/// A kind of computed file, or of directory of computed files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Format {
    /// `chunks/`: each chunk, decoded.
    Chunks,
    /// `inner/`: each inner chunk of sharded arrays, decoded.
    Inner,
    /// The whole array as a NumPy file.
    Npy,
    /// The whole array, elements only.
    Bin,
    /// An ENVI header for `.bin`.
    Hdr,
    /// A GDAL virtual raster over `.bin`.
    Vrt,
    /// A NRRD header for `.bin`.
    Nhdr,
    /// Elements of variable length, as JSON.
    Json,
    /// `attributes.json`.
    Attributes,
    /// `info.json`: what was understood of the node.
    Info,
    /// `why.txt`: what is not there, and why.
    Why,
}

impl Format {
    /// All of them, in the order of listings.
    pub const ALL: [Self; 11] = [
        Self::Attributes,
        Self::Info,
        Self::Why,
        Self::Npy,
        Self::Bin,
        Self::Hdr,
        Self::Vrt,
        Self::Nhdr,
        Self::Json,
        Self::Chunks,
        Self::Inner,
    ];

    /// What `--formats` calls it.
    pub fn word(self) -> &'static str {
        match self {
            Self::Chunks => "chunks",
            Self::Inner => "inner",
            Self::Npy => "npy",
            Self::Bin => "bin",
            Self::Hdr => "hdr",
            Self::Vrt => "vrt",
            Self::Nhdr => "nhdr",
            Self::Json => "json",
            Self::Attributes => "attributes",
            Self::Info => "info",
            Self::Why => "why",
        }
    }

    /// Whether it is of the node and not of the elements of an array.
    pub fn is_of_node(self) -> bool {
        matches!(self, Self::Attributes | Self::Info | Self::Why)
    }

    /// Whether it is a directory.
    pub fn is_directory(self) -> bool {
        matches!(self, Self::Chunks | Self::Inner)
    }

    /// Its name in the directory of the views of the node `name`.
    pub fn own_name(self, name: &str) -> String {
        match self {
            Self::Attributes => "attributes.json".into(),
            Self::Info => "info.json".into(),
            Self::Why => "why.txt".into(),
            Self::Chunks | Self::Inner => self.word().into(),
            _ => self.name_beside(name),
        }
    }

    /// Its name in the directory of a group, for the array `name` in it.
    pub fn name_beside(self, name: &str) -> String {
        format!("{name}.{}", self.word())
    }

    /// The array and the format that a name in the directory of a group stands for.
    pub fn parse_beside(name: &[u8]) -> Option<(&[u8], Self)> {
        let dot = name.iter().rposition(|b| *b == b'.')?;
        let (array, suffix) = (name.get(..dot)?, name.get(dot + 1..)?);
        let format = Self::ALL
            .into_iter()
            .find(|format| !format.is_of_node() && format.word().as_bytes() == suffix)?;
        (!array.is_empty()).then_some((array, format))
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

impl FromStr for Format {
    type Err = String;

    fn from_str(word: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|format| format.word() == word);
        found.ok_or_else(|| {
            let words = Self::ALL.iter().map(|format| format.word());
            let translations = Target::ALL.iter().map(|target| target.word());
            let words: Vec<&str> = words.chain(translations).collect();
            format!("unknown format `{word}`; there are {}", words.join(", "))
        })
    }
}

/// The formats and translations that are listed; all others can be opened by name all the same.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FormatSet(Vec<Format>, Vec<Target>);

impl FormatSet {
    /// Whether a format is listed. What a node says of itself always is.
    pub fn lists(&self, format: Format) -> bool {
        format.is_of_node() || self.0.contains(&format)
    }

    /// Whether a translation of the hierarchy is listed.
    pub fn lists_translation(&self, target: Target) -> bool {
        self.1.contains(&target)
    }
}

impl Default for FormatSet {
    fn default() -> Self {
        Self(Format::ALL.to_vec(), Target::ALL.to_vec())
    }
}

/// Words between commas, or between `+` or `:` where commas mean something else. Nothing is all.
impl FromStr for FormatSet {
    type Err = String;

    fn from_str(list: &str) -> Result<Self, String> {
        let words = list.split([',', '+', ':']).filter(|word| !word.is_empty());
        if words.clone().next().is_none() {
            return Ok(Self::default());
        }
        let mut set = Self(Vec::new(), Vec::new());
        for word in words {
            match Target::ALL.into_iter().find(|target| target.word() == word) {
                Some(target) => set.1.push(target),
                None => set.0.push(word.parse()?),
            }
        }
        Ok(set)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_understood_as_they_are_given() {
        for format in Format::ALL
            .into_iter()
            .filter(|format| !format.is_of_node())
        {
            let name = format.name_beside("a.b");
            let parsed = Format::parse_beside(name.as_bytes());
            assert_eq!(parsed, Some((&b"a.b"[..], format)));
            assert_eq!(format.word().parse(), Ok(format));
        }
        for name in ["npy", ".npy", "a.exe", "a", "", "a.info", "a.Npy"] {
            assert_eq!(Format::parse_beside(name.as_bytes()), None, "{name}");
        }
    }

    #[test]
    fn a_list_names_what_it_does_not_know() {
        let set: FormatSet = "npy,chunks".parse().unwrap();
        assert!(set.lists(Format::Npy) && set.lists(Format::Why) && !set.lists(Format::Bin));
        assert_eq!("".parse(), Ok(FormatSet::default()));
        assert!(!set.lists_translation(Target::V2));
        let set: FormatSet = "as-v2,npy,unsharded".parse().unwrap();
        assert!(set.lists_translation(Target::V2) && set.lists_translation(Target::Unsharded));
        assert!(!set.lists_translation(Target::V3) && set.lists(Format::Npy));
        assert!(
            "npy,doc"
                .parse::<FormatSet>()
                .unwrap_err()
                .contains("`doc`")
        );
    }
}
