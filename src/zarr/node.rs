//! The node of a directory, parsed from the documents in the directory.

use serde_json::{Map, Value};

use super::array::Array;
use super::consolidated::Consolidated;
use super::document::memory_bytes;
use super::error::{MetadataError, Unsupported};
use super::{ZarrFormat, n5, v2, v3};

/// The document of a v3 node.
pub const ZARR_JSON: &str = "zarr.json";

/// The document of a node in an N5 hierarchy.
pub const ATTRIBUTES_JSON: &str = "attributes.json";

/// The names of all metadata documents of a Zarr node, v3 first.
pub const DOCUMENT_NAMES: [&str; 4] = [ZARR_JSON, ".zarray", ".zgroup", ".zattrs"];

/// Returns the name, if it is one of [`DOCUMENT_NAMES`].
pub(super) fn document_name(name: &str) -> Option<&'static str> {
    DOCUMENT_NAMES.into_iter().find(|own| *own == name)
}

/// A group or an array.
#[derive(Debug, Clone, PartialEq)]
pub enum Node {
    /// A group.
    Group(Group),
    /// An array.
    Array(Box<Array>),
}

/// One group.
#[derive(Debug, Clone, PartialEq)]
pub struct Group {
    /// The version of the metadata.
    pub format: ZarrFormat,
    /// The attributes.
    pub attributes: Result<Map<String, Value>, MetadataError>,
    /// v3: the consolidated metadata in the group's document.
    pub consolidated: Option<Consolidated>,
    /// Unsupported extensions that must be understood.
    pub extensions: Vec<Unsupported>,
}

/// The documents in a directory; `None` if the store has proven that the key does not exist.
#[derive(Debug, Clone, Copy, Default)]
#[allow(missing_docs, reason = "the names of the keys")]
pub struct Documents<'a> {
    pub zarr_json: Option<&'a [u8]>,
    pub zarray: Option<&'a [u8]>,
    pub zgroup: Option<&'a [u8]>,
    pub zattrs: Option<&'a [u8]>,
    /// `attributes.json`; `None` outside of N5 hierarchies, where this key has no special meaning.
    pub attributes_json: Option<&'a [u8]>,
}

/// The result of [`Documents::node`].
#[derive(Debug, Clone, PartialEq)]
pub struct Detected {
    /// The node, or the error in its document.
    pub node: Result<Node, MetadataError>,
    /// The document from which the node was parsed.
    pub read: &'static str,
    /// The specification of this document.
    pub format: ZarrFormat,
    /// Other documents of a node in the same directory, for a warning.
    pub ignored: Vec<&'static str>,
}

impl Documents<'_> {
    /// Returns the node; `None` without a document. `zarr.json` takes precedence over v2, `.zarray` over
    /// `.zgroup`, and Zarr over N5, even if it is invalid: the other one describes a different node.
    ///
    /// A directory without documents is an implicit group if it is not empty (v2, "Groups"). The v3
    /// specification has no implicit groups, but many v3 stores do.
    pub fn node(&self) -> Option<Detected> {
        self.detect(v3::node)
    }

    /// As [`Documents::node`], without the consolidated metadata of a v3 group.
    pub fn own_node(&self) -> Option<Detected> {
        self.detect(v3::own_node)
    }

    /// Returns the maximum memory of [`Documents::own_node`] in bytes, which the caller reserves first.
    pub fn own_memory_bytes(&self) -> usize {
        let others = [self.zarray, self.zgroup, self.zattrs, self.attributes_json];
        let others = others.into_iter().flatten().map(memory_bytes);
        let zarr_json = self.zarr_json.map_or(0, v3::own_memory_bytes);
        others.fold(zarr_json, usize::saturating_add)
    }

    fn detect(&self, v3: fn(&[u8]) -> Result<Node, MetadataError>) -> Option<Detected> {
        let present = [
            ("zarr.json", self.zarr_json.is_some()),
            (".zarray", self.zarray.is_some()),
            (".zgroup", self.zgroup.is_some()),
            (ATTRIBUTES_JSON, self.attributes_json.is_some()),
        ];
        let mut present = present
            .into_iter()
            .filter(|(_, is)| *is)
            .map(|(name, _)| name);
        let read = present.next()?;
        let node = match (self.zarr_json, self.zarray, self.zgroup) {
            (Some(zarr_json), _, _) => v3(zarr_json),
            (None, Some(zarray), _) => {
                v2::array(zarray, self.zattrs).map(|array| Node::Array(Box::new(array)))
            }
            (None, None, Some(zgroup)) => v2::group(zgroup, self.zattrs).map(Node::Group),
            (None, None, None) => n5::node(self.attributes_json?),
        };
        Some(Detected {
            node,
            format: match read {
                ZARR_JSON => ZarrFormat::V3,
                ATTRIBUTES_JSON => ZarrFormat::N5,
                _ => ZarrFormat::V2,
            },
            read,
            ignored: present.collect(),
        })
    }
}

impl Node {
    /// Returns the group, if the node is a group.
    pub fn as_group(&self) -> Option<&Group> {
        match self {
            Self::Group(group) => Some(group),
            Self::Array(_) => None,
        }
    }

    /// Returns the array, if the node is an array.
    pub fn as_array(&self) -> Option<&Array> {
        match self {
            Self::Group(_) => None,
            Self::Array(array) => Some(array),
        }
    }

    /// Returns the version of the metadata.
    pub fn format(&self) -> ZarrFormat {
        match self {
            Self::Group(group) => group.format,
            Self::Array(array) => array.format,
        }
    }

    /// Returns the attributes.
    ///
    /// # Errors
    /// The error of the document.
    pub fn attributes(&self) -> Result<&Map<String, Value>, &MetadataError> {
        match self {
            Self::Group(group) => group.attributes.as_ref(),
            Self::Array(array) => array.attributes.as_ref(),
        }
    }
}

impl Group {
    /// Parses a v2 group: `.zgroup`, and `.zattrs` if it exists.
    ///
    /// # Errors
    /// The document is not JSON, or its `zarr_format` is not 2.
    pub fn from_v2(zgroup: &[u8], zattrs: Option<&[u8]>) -> Result<Self, MetadataError> {
        v2::group(zgroup, zattrs)
    }

    /// Returns a group without a document.
    pub fn implicit(format: ZarrFormat) -> Self {
        Self {
            format,
            attributes: Ok(Map::new()),
            consolidated: None,
            extensions: Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ARRAY_V3: &[u8] =
        br#"{"zarr_format":3,"node_type":"array","shape":[2],"data_type":"int8",
        "chunk_grid":{"name":"regular","configuration":{"chunk_shape":[2]}},
        "chunk_key_encoding":"default","fill_value":0,"codecs":["bytes"]}"#;
    const ARRAY_V2: &[u8] =
        br#"{"zarr_format":2,"shape":[2],"chunks":[2],"dtype":"|i1","fill_value":0}"#;
    const DATASET: &[u8] =
        br#"{"dimensions":[2],"blockSize":[2],"dataType":"int8","compression":{"type":"raw"}}"#;
    const GROUP_V2: &[u8] = br#"{"zarr_format":2}"#;

    #[test]
    fn v3_takes_precedence_over_v2_and_arrays_over_groups() {
        let all = Documents {
            zarr_json: Some(ARRAY_V3),
            zarray: Some(ARRAY_V2),
            zgroup: Some(GROUP_V2),
            zattrs: Some(b"{\"a\":1}"),
            attributes_json: Some(DATASET),
        };
        let found = all.node().unwrap();
        assert_eq!(
            (found.read, found.ignored),
            ("zarr.json", vec![".zarray", ".zgroup", "attributes.json"])
        );
        assert_eq!(found.node.unwrap().format(), ZarrFormat::V3);
        let v2 = Documents {
            zarr_json: None,
            ..all
        };
        let found = v2.node().unwrap();
        assert_eq!(
            (found.read, found.ignored),
            (".zarray", vec![".zgroup", "attributes.json"])
        );
        assert!(found.node.unwrap().as_array().is_some());
        let n5 = Documents {
            zarray: None,
            zgroup: None,
            ..v2
        };
        let found = n5.node().unwrap();
        assert_eq!((found.read, found.ignored), ("attributes.json", vec![]));
        assert_eq!(found.node.unwrap().format(), ZarrFormat::N5);
    }

    #[test]
    fn an_invalid_document_keeps_its_precedence() {
        let documents = Documents {
            zarr_json: Some(b"{"),
            zarray: Some(ARRAY_V2),
            ..Documents::default()
        };
        let found = documents.node().unwrap();
        assert!(matches!(found.node, Err(MetadataError::Json { .. })));
        assert_eq!((found.read, found.ignored), ("zarr.json", vec![".zarray"]));
    }

    #[test]
    fn a_directory_without_documents_is_no_node() {
        assert_eq!(Documents::default().node(), None);
        let attributes = Documents {
            zattrs: Some(b"{}"),
            ..Documents::default()
        };
        assert_eq!(attributes.node(), None);
        let implicit = Group::implicit(ZarrFormat::V2);
        assert_eq!(
            (implicit.format, implicit.attributes),
            (ZarrFormat::V2, Ok(Map::new()))
        );
    }

    #[test]
    fn groups_have_attributes_and_name_unsupported_extensions() {
        let group = Group::from_v2(GROUP_V2, Some(b"{\"a\":1}")).unwrap();
        assert_eq!(group.attributes.unwrap().get("a"), Some(&1.into()));
        assert!(Group::from_v2(b"{}", None).is_err());
        assert!(Group::from_v2(b"{\"zarr_format\":3}", None).is_err());
        assert!(Group::from_v2(b"{\"zarr_format\":\"2\"}", None).is_ok());
        let text = br#"{"zarr_format":3,"node_type":"group","attributes":{"a":1},
            "x":{"must_understand":false},"y":{},"consolidated_metadata":null}"#;
        let node = v3::node(text).unwrap();
        assert_eq!(node.attributes().unwrap().len(), 1);
        let group = node.as_group().unwrap();
        assert_eq!(group.consolidated, None);
        let names: Vec<String> = group.extensions.iter().map(ToString::to_string).collect();
        assert_eq!(names, ["must_understand extension y is not supported"]);
    }
}
