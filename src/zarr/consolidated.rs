//! Consolidated metadata: all documents of a hierarchy in a single document (`.zmetadata` of v2; inline in
//! the `zarr.json` of a v3 group).
//!
//! Consolidated metadata are a copy that may be stale. If a node's own document is read, that document takes
//! precedence. The copy saves the requests that discover nodes.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::chunk_names::ChunkNames;
use super::document::{object, parse, parse_object};
use super::error::{MetadataError, excerpt};
use super::node::{DOCUMENT_NAMES, Documents, Node, ZARR_JSON, document_name};
use super::{v2, v3};

/// The documents of the nodes of a hierarchy as parsed JSON, by the node's path and the document's name.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Consolidated {
    nodes: BTreeMap<String, BTreeMap<&'static str, Value>>,
    skipped: usize,
}

impl Consolidated {
    /// Parses `.zmetadata`.
    ///
    /// # Errors
    /// The document is not JSON, its `zarr_consolidated_format` is not 1, or it has no `metadata`.
    pub fn from_zmetadata(bytes: &[u8]) -> Result<Self, MetadataError> {
        let mut document = parse_object(".zmetadata", bytes)?;
        match document.get("zarr_consolidated_format") {
            Some(format) if format.as_u64() == Some(1) => {}
            other => {
                let found = excerpt(other.unwrap_or(&Value::Null));
                let what = format!("zarr_consolidated_format {found}");
                return Err(MetadataError::unsupported(what));
            }
        }
        let metadata = document.remove("metadata").unwrap_or(Value::Null);
        let mut consolidated = Self::default();
        for (key, value) in object("metadata", metadata)? {
            let (path, name) = key.rsplit_once('/').unwrap_or(("", &key));
            match document_name(name).filter(|name| *name != ZARR_JSON && is_path(path)) {
                Some(name) => consolidated.insert(path.to_owned(), name, value),
                None => consolidated.skipped += 1,
            }
        }
        Ok(consolidated)
    }

    /// Parses the `consolidated_metadata` of a v3 group; `None` if the value is null or of an unknown kind,
    /// which readers may ignore.
    pub(super) fn from_v3(value: Value) -> Option<Self> {
        let Value::Object(mut members) = value else {
            return None;
        };
        if members.get("kind").and_then(Value::as_str) != Some("inline") {
            return None;
        }
        let Some(Value::Object(metadata)) = members.remove("metadata") else {
            return None;
        };
        let mut consolidated = Self::default();
        for (path, value) in metadata {
            if path.is_empty() || !is_path(&path) {
                consolidated.skipped += 1;
                continue;
            }
            consolidated.insert(path, ZARR_JSON, value);
        }
        Some(consolidated)
    }

    fn insert(&mut self, path: String, name: &'static str, document: Value) {
        let documents = self.nodes.entry(path).or_default();
        documents.insert(name, document);
    }

    /// Returns the node at a path relative to the group; `None` if the path has no document. The empty path
    /// is the group itself (v2 only).
    pub fn node(&self, path: &str) -> Option<Result<Node, MetadataError>> {
        let document = |name| self.document(path, name).cloned();
        let zattrs = Ok(document(".zattrs"));
        if let Some(zarr_json) = document(ZARR_JSON) {
            Some(v3::node_from(zarr_json))
        } else if let Some(zarray) = document(".zarray") {
            let array = v2::array_from(zarray, zattrs);
            Some(array.map(|array| Node::Array(Box::new(array))))
        } else {
            let zgroup = document(".zgroup")?;
            Some(v2::group_from(zgroup, zattrs).map(Node::Group))
        }
    }

    /// Returns the paths of all nodes, in byte order.
    pub fn paths(&self) -> impl Iterator<Item = &str> {
        self.nodes.keys().map(String::as_str)
    }

    /// Returns the names of the documents of a path, in the order of [`DOCUMENT_NAMES`].
    pub fn documents(&self, path: &str) -> impl Iterator<Item = &'static str> + use<> {
        let present = DOCUMENT_NAMES.map(|name| self.document(path, name).map(|_| name));
        present.into_iter().flatten()
    }

    /// Returns a document of a path.
    pub fn document(&self, path: &str, name: &str) -> Option<&Value> {
        self.nodes.get(path)?.get(name)
    }

    /// Returns whether the documents of a path are those of an array, valid or not.
    pub fn is_array(&self, path: &str) -> bool {
        match self.document(path, ZARR_JSON) {
            Some(zarr_json) => v3::is_array(zarr_json),
            None => self.document(path, ".zarray").is_some(),
        }
    }

    /// Returns the chunk keys of the array at a path, without parsing its other metadata. `None` if the path
    /// is no array, or its chunk grid or chunk key encoding is not supported.
    pub fn chunk_names(&self, path: &str) -> Option<ChunkNames> {
        match self.document(path, ZARR_JSON) {
            Some(zarr_json) => v3::chunk_names(zarr_json),
            None => v2::chunk_names(self.document(path, ".zarray")?),
        }
    }

    /// Returns the distinct names of the children of a path: nodes, and groups without a document that have
    /// nodes below them. Takes time proportional to the number of nodes below the path.
    pub fn children(&self, path: &str) -> BTreeSet<&str> {
        let prefix = match path {
            "" => String::new(),
            path => format!("{path}/"),
        };
        self.nodes
            .range(prefix.clone()..)
            .map_while(|(path, _)| path.strip_prefix(&prefix))
            .filter_map(|rest| rest.split('/').next())
            .filter(|name| !name.is_empty())
            .collect()
    }

    /// Returns how the documents of a node differ from their copies, as a sentence for users. `None` if all are equal
    /// as JSON, ignoring the consolidated metadata of a v3 group. Documents that are not JSON are not compared.
    pub fn difference(&self, path: &str, own: &Documents<'_>) -> Option<String> {
        let documents = [
            (ZARR_JSON, own.zarr_json),
            (".zarray", own.zarray),
            (".zgroup", own.zgroup),
            (".zattrs", own.zattrs),
        ];
        let mut nodes = documents.iter().take(3);
        let is_node = nodes.any(|(_, text)| text.is_some());
        let is_copied = self.documents(path).any(|name| name != ".zattrs");
        match (is_copied, is_node) {
            // The consolidated metadata of a v3 group do not contain the group.
            (false, true) if path.is_empty() => return None,
            (false, true) => return Some(format!("{STALE}: it is not in them")),
            (true, false) => {
                return Some(format!("{STALE}: it is in them, and not there any more"));
            }
            (false, false) => return None,
            (true, true) => {}
        }
        let mut differing = documents.into_iter().filter_map(|(name, text)| {
            let copy = self.document(path, name);
            let own = match text {
                Some(text) => Some(parse(text).ok()?),
                None => None,
            };
            let is_same = copy.map(without_copies) == own.as_ref().map(without_copies);
            (!is_same).then(|| difference(name, copy, own.as_ref()))
        });
        let difference = differing.next()?;
        Some(format!("{STALE}: {difference}"))
    }

    /// Returns the number of entries that are not documents of nodes, or have an invalid path.
    pub fn skipped(&self) -> usize {
        self.skipped
    }
}

/// The beginning of the sentence about a difference.
const STALE: &str = "the consolidated metadata are stale";

/// Returns a document without the consolidated metadata of a v3 group.
fn without_copies(document: &Value) -> Value {
    let mut document = document.clone();
    if let Some(members) = document.as_object_mut() {
        members.remove("consolidated_metadata");
    }
    document
}

/// Returns the difference between a document and its copy, of which one may not exist.
fn difference(name: &str, copy: Option<&Value>, own: Option<&Value>) -> String {
    let (copy, own) = match (copy, own) {
        (Some(copy), Some(own)) => (copy, own),
        (None, _) => return format!("{name} is not in them"),
        (Some(_), None) => return format!("{name} is in them, and not there any more"),
    };
    for member in ["node_type", "shape"] {
        let [copied, own] = [copy, own].map(|document| document.get(member));
        if copied != own {
            let [copied, own] = [copied, own].map(|value| excerpt(value.unwrap_or(&Value::Null)));
            return format!("{member} {copied} in them, {own} in {name}");
        }
    }
    format!("another {name} is in them")
}

/// Returns whether a path is valid: no component is empty, `.` or `..`, or contains NUL. The root is the
/// empty path.
fn is_path(path: &str) -> bool {
    let component = |part: &str| !matches!(part, "" | "." | "..") && !part.contains('\0');
    path.is_empty() || path.split('/').all(component)
}

#[cfg(test)]
mod tests {
    use super::*;

    const V2: &[u8] = br#"{"zarr_consolidated_format":1,"metadata":{
        ".zgroup":{"zarr_format":2},".zattrs":{"t":1},
        "a/.zgroup":{"zarr_format":2},"a-x/.zgroup":{"zarr_format":2},
        "a/b/c/.zarray":{"zarr_format":2,"shape":[2],"chunks":[2],"dtype":"<i2","fill_value":0},
        "a/b/c/.zattrs":{"units":"K"},
        "bad/.zarray":{"zarr_format":2},
        "only/.zattrs":{},
        "../x/.zgroup":{"zarr_format":2},"/y/.zgroup":{},"a//b/.zgroup":{},"z/.zother":{}}}"#;

    const V3: &[u8] = br#"{"zarr_format":3,"node_type":"group","consolidated_metadata":{
        "kind":"inline","must_understand":false,"metadata":{
        "g":{"zarr_format":3,"node_type":"group","attributes":{"d":0},
             "consolidated_metadata":{"kind":"inline","metadata":{}}},
        "g/x":{"zarr_format":3,"node_type":"array","shape":[2],"data_type":"int8",
               "chunk_grid":{"name":"regular","configuration":{"chunk_shape":[2]}},
               "chunk_key_encoding":"default","fill_value":0,"codecs":["bytes"]},
        "../up":{"zarr_format":3,"node_type":"group"}, "":{}}}}"#;

    fn v3(text: &[u8]) -> Option<Consolidated> {
        v3::node(text)
            .unwrap()
            .as_group()
            .unwrap()
            .consolidated
            .clone()
    }

    #[test]
    fn zmetadata_yields_the_node_of_each_path() {
        let copy = Consolidated::from_zmetadata(V2).unwrap();
        let root = copy.node("").unwrap().unwrap();
        assert_eq!(root.attributes().unwrap().len(), 1);
        let array = copy.node("a/b/c").unwrap().unwrap();
        assert_eq!(
            array.as_array().unwrap().attribute("units"),
            Some(&"K".into())
        );
        assert!(copy.node("bad").unwrap().is_err());
        for nothing in ["a/b", "only", "x", "../x", "a/b/c/d"] {
            assert_eq!(copy.node(nothing), None, "{nothing}");
        }
        assert_eq!(copy.skipped(), 4);
    }

    #[test]
    fn arrays_and_chunk_keys_are_known_without_parsing_nodes() {
        let copy = Consolidated::from_zmetadata(V2).unwrap();
        let documents = |path: &str| copy.documents(path).collect::<Vec<_>>();
        assert_eq!(documents(""), [".zgroup", ".zattrs"]);
        assert_eq!(documents("a/b/c"), [".zarray", ".zattrs"]);
        assert!(documents("a/b").is_empty() && documents("x").is_empty());
        assert!(copy.is_array("a/b/c") && copy.is_array("bad"));
        assert!(!copy.is_array("a") && !copy.is_array("only") && !copy.is_array("x"));
        let names = copy.chunk_names("a/b/c").unwrap();
        assert!(names.find_path(b"0").is_some() && names.find_path(b"1").is_none());
        assert_eq!(copy.chunk_names("bad"), None);
        assert_eq!(copy.chunk_names("a"), None);
        let copy = v3(V3).unwrap();
        assert_eq!(copy.documents("g").collect::<Vec<_>>(), ["zarr.json"]);
        assert!(copy.is_array("g/x") && !copy.is_array("g"));
        let names = copy.chunk_names("g/x").unwrap();
        assert!(names.find_path(b"c/0").is_some() && names.find_path(b"c/1").is_none());
        assert_eq!(copy.chunk_names("g"), None);
    }

    #[test]
    fn children_are_nodes_and_implicit_groups() {
        let copy = Consolidated::from_zmetadata(V2).unwrap();
        let names = |path: &str| copy.children(path).into_iter().collect::<Vec<_>>();
        assert_eq!(names(""), ["a", "a-x", "bad", "only"]);
        assert_eq!(names("a"), ["b"]);
        assert_eq!(names("a/b"), ["c"]);
        assert!(names("a/b/c").is_empty() && names("nothing").is_empty());
    }

    #[test]
    fn inline_metadata_of_v3_yield_the_node_of_each_path() {
        let copy = v3(V3).unwrap();
        assert!(copy.node("g").unwrap().unwrap().as_group().is_some());
        assert!(copy.node("g/x").unwrap().unwrap().as_array().is_some());
        assert_eq!(copy.node("../up"), None);
        assert_eq!(copy.skipped(), 2);
        assert_eq!(copy.paths().collect::<Vec<_>>(), ["g", "g/x"]);
        let unknown = br#"{"zarr_format":3,"node_type":"group","consolidated_metadata":{"kind":"x","metadata":{}}}"#;
        assert_eq!(v3(unknown), None);
    }

    #[test]
    fn consolidated_copies_are_compared_as_json() {
        let copy = Consolidated::from_zmetadata(V2).unwrap();
        let own = |zarray: &'static str, zattrs: &'static str| Documents {
            zarray: Some(zarray.as_bytes()).filter(|text| !text.is_empty()),
            zattrs: Some(zattrs.as_bytes()).filter(|text| !text.is_empty()),
            ..Documents::default()
        };
        let zarray = r#"{"fill_value": 0, "zarr_format":2,"shape":[2],"chunks":[2],"dtype":"<i2"}"#;
        let longer = r#"{"fill_value": 0, "zarr_format":2,"shape":[3],"chunks":[2],"dtype":"<i2"}"#;
        let differs = |path: &str, own: Documents<'_>| copy.difference(path, &own);
        assert_eq!(differs("a/b/c", own(zarray, r#"{"units": "K"}"#)), None);
        assert_eq!(differs("a/b/c", own("{", r#"{"units": "K"}"#)), None);
        assert_eq!(differs("x", own("", "")), None);
        let says = |path: &str, own: Documents<'_>, what: &str| {
            let found = differs(path, own).unwrap();
            assert_eq!(found, format!("{STALE}: {what}"));
        };
        let shapes = "shape [2] in them, [3] in .zarray";
        says("a/b/c", own(longer, r#"{"units": "K"}"#), shapes);
        says("a/b/c", own(zarray, "{}"), "another .zattrs is in them");
        says(
            "a/b/c",
            own(zarray, ""),
            ".zattrs is in them, and not there any more",
        );
        says(
            "a/b/c",
            own("", ""),
            "it is in them, and not there any more",
        );
        says("added", own(zarray, ""), "it is not in them");
        let copy = v3(V3).unwrap();
        let group = br#"{"zarr_format":3,"node_type":"group","attributes":{"d":0}}"#;
        let own = Documents {
            zarr_json: Some(group),
            ..Documents::default()
        };
        assert_eq!(copy.difference("g", &own), None);
        assert_eq!(copy.difference("", &own), None);
    }

    #[test]
    fn invalid_consolidated_documents_are_refused() {
        for text in [
            &b"{"[..],
            b"[]",
            b"{}",
            br#"{"zarr_consolidated_format":2,"metadata":{}}"#,
            br#"{"zarr_consolidated_format":1}"#,
            br#"{"zarr_consolidated_format":1,"metadata":[]}"#,
        ] {
            assert!(Consolidated::from_zmetadata(text).is_err());
        }
    }
}
