//! The summary of a hierarchy in the mount report.

use super::node::{self, NodeState};
use super::output::{count, printable, size, tuple};
use crate::hierarchy::find_hierarchies;
use crate::store::{Key, Store};
use crate::zarr::{Array, Consolidated, Node, ZarrFormat};

/// The largest number of hierarchies of a collection in the summary.
const MAX_NAMED: usize = 3;
/// The largest number of nodes whose sizes are added up.
const MAX_SIZED: usize = 20_000;

/// Summarizes the node at `root` and, if it has consolidated metadata, the nodes below it. Reads
/// only the documents of `root`.
pub async fn summary(store: &dyn Store, root: &Key) -> String {
    let node = match node::read(store, root).await.state {
        NodeState::Node(node) => node,
        NodeState::Directory => {
            let found = find_hierarchies(store, root).await;
            return match found.is_empty() {
                true => "no Zarr metadata at its top".into(),
                false => {
                    let names = found.summary(MAX_NAMED);
                    printable(&format!("a collection of hierarchies: {names}")).into_owned()
                }
            };
        }
        NodeState::Broken {
            failure: Some(_), ..
        } => return "metadata not read yet".into(),
        NodeState::Broken {
            document, reason, ..
        } => {
            return printable(&format!("{document} is invalid: {reason}")).into_owned();
        }
    };
    let format = match node.format() {
        ZarrFormat::V2 => "Zarr v2",
        ZarrFormat::V3 => "Zarr v3",
        ZarrFormat::N5 => "N5",
    };
    match &*node {
        Node::Array(array) => format!("{format}, {}", of_array(array)),
        Node::Group(_) => match node::consolidated(store, root, &node).await {
            Ok(Some(consolidated)) => format!("{format}, {}", of_consolidated(&consolidated)),
            Ok(None) | Err(_) => format!("{format} group"),
        },
    }
}

fn of_array(array: &Array) -> String {
    let info = array.info();
    let shape = info.get("shape").map_or_else(|| "?".to_owned(), tuple);
    let data_type = match &array.data_type {
        Ok(data_type) => data_type.to_string(),
        Err(_) => "?".to_owned(),
    };
    let text = format!("array {data_type} {shape}");
    let text = printable(&text);
    match array.size_bytes() {
        Some(bytes) => format!("{text}, {} decoded", size(bytes)),
        None => text.into_owned(),
    }
}

fn of_consolidated(consolidated: &Consolidated) -> String {
    let (mut groups, mut arrays) = (0_u64, 0_u64);
    let mut bytes = Some(0_u64);
    for (i, path) in consolidated.paths().enumerate() {
        if !consolidated.is_array(path) {
            groups += u64::from(!path.is_empty());
            continue;
        }
        arrays += 1;
        let node = (i < MAX_SIZED).then(|| consolidated.node(path));
        let node = node.flatten();
        let array = node.and_then(Result::ok);
        let more = array
            .as_ref()
            .and_then(|node| node.as_array()?.size_bytes());
        bytes = bytes
            .zip(more)
            .and_then(|(sum, more)| sum.checked_add(more));
    }
    let mut text = match groups {
        0 => count(arrays, "array"),
        _ => format!("{}, {}", count(groups, "group"), count(arrays, "array")),
    };
    if let Some(bytes) = bytes {
        text.push_str(&format!(", {} decoded", size(bytes)));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime::block_on;
    use crate::store::MemoryStore;

    fn of(documents: &[(&str, &str)]) -> String {
        let store = MemoryStore::new(documents.iter().map(|(key, text)| {
            let key = Key::new(key.as_bytes()).unwrap();
            (key, text.as_bytes().to_vec())
        }));
        block_on(summary(&store, &Key::root()))
    }

    const GROUP: &str = r#"{"zarr_format":3,"node_type":"group"}"#;
    const ZARRAY: &str = r#"{"zarr_format":2,"shape":[4,5],"chunks":[2,5],"dtype":"<f4","compressor":null,"filters":null,"fill_value":0,"order":"C"}"#;

    #[test]
    fn the_summary_is_that_of_the_documents_of_the_root() {
        assert_eq!(of(&[("zarr.json", GROUP)]), "Zarr v3 group");
        assert_eq!(of(&[("a/b", "")]), "no Zarr metadata at its top");
        assert_eq!(
            of(&[("a/zarr.json", GROUP)]),
            "a collection of hierarchies: a"
        );
        assert_eq!(
            of(&[(".zarray", ZARRAY)]),
            "Zarr v2, array <f4 (4, 5), 80 B decoded"
        );
        let zmetadata = format!(
            r#"{{"zarr_consolidated_format":1,"metadata":{{".zgroup":{{"zarr_format":2}},"g/.zgroup":{{"zarr_format":2}},"g/a/.zarray":{ZARRAY}}}}}"#
        );
        let documents = [
            (".zgroup", r#"{"zarr_format":2}"#),
            (".zmetadata", &zmetadata),
        ];
        assert_eq!(of(&documents), "Zarr v2, 1 group, 1 array, 80 B decoded");
        assert!(of(&[("zarr.json", "{\u{1b}")]).starts_with("zarr.json is invalid: "));
    }
}
