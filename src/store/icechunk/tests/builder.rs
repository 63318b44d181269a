//! Writes the files of a repository.

use std::collections::BTreeMap;

use crate::store::icechunk::format::FileType;
use crate::store::icechunk::id::ObjectId;
use crate::store::{Key, MemoryStore};

/// A field of a table.
#[derive(Debug, Clone)]
pub(super) enum Field {
    /// A number or a struct.
    Fixed(Vec<u8>),
    /// A vector of this number of numbers or structs, or a string.
    Items(u32, Vec<u8>),
    Table(Fields),
    Tables(Vec<Fields>),
}

/// Fields with their slots.
pub(super) type Fields = Vec<(usize, Field)>;

pub(super) fn text(text: &str) -> Field {
    bytes(text.as_bytes())
}

pub(super) fn bytes(bytes: &[u8]) -> Field {
    Field::Items(u32::try_from(bytes.len()).unwrap(), bytes.to_vec())
}

pub(super) fn numbers(numbers: &[u32]) -> Field {
    let bytes = numbers.iter().flat_map(|number| number.to_le_bytes());
    Field::Items(u32::try_from(numbers.len()).unwrap(), bytes.collect())
}

fn patch(out: &mut [u8], at: usize, target: usize) {
    let offset = u32::try_from(target - at).unwrap();
    out[at..at + 4].copy_from_slice(&offset.to_le_bytes());
}

fn write_table(fields: &Fields, out: &mut Vec<u8>) -> usize {
    let slots = fields.iter().map(|(slot, _)| slot + 1).max().unwrap_or(0);
    let vtable = out.len();
    let mut entries = vec![0_u16; slots];
    let mut inline = vec![0; 4];
    for (slot, field) in fields {
        entries[*slot] = u16::try_from(inline.len()).unwrap();
        match field {
            Field::Fixed(bytes) => inline.extend(bytes),
            _ => inline.extend([0; 4]),
        }
    }
    out.extend(u16::try_from(4 + 2 * slots).unwrap().to_le_bytes());
    out.extend(u16::try_from(inline.len()).unwrap().to_le_bytes());
    out.extend(entries.iter().flat_map(|entry| entry.to_le_bytes()));
    let table = out.len();
    inline[..4].copy_from_slice(&i32::try_from(table - vtable).unwrap().to_le_bytes());
    out.extend(&inline);
    for (slot, field) in fields {
        if !matches!(field, Field::Fixed(_)) {
            let target = write_field(field, out);
            patch(out, table + usize::from(entries[*slot]), target);
        }
    }
    table
}

fn write_field(field: &Field, out: &mut Vec<u8>) -> usize {
    match field {
        Field::Fixed(_) => unreachable!("it is inside of its table"),
        Field::Table(fields) => write_table(fields, out),
        Field::Items(count, bytes) => {
            let start = out.len();
            out.extend(count.to_le_bytes());
            out.extend(bytes);
            start
        }
        Field::Tables(tables) => {
            let start = out.len();
            out.extend(u32::try_from(tables.len()).unwrap().to_le_bytes());
            out.extend(vec![0; 4 * tables.len()]);
            for (place, fields) in tables.iter().enumerate() {
                let target = write_table(fields, out);
                patch(out, start + 4 + 4 * place, target);
            }
            start
        }
    }
}

/// The header of a file.
pub(super) fn header(of: FileType, compression: u8) -> Vec<u8> {
    let mut file = b"ICE\xf0\x9f\xa7\x8aCHUNK".to_vec();
    file.extend(format!("{:<24}", "zarrfs-test").bytes());
    file.extend([2, of as u8, compression]);
    file
}

/// A file with a root table.
pub(super) fn file(of: FileType, root: &Fields) -> Vec<u8> {
    let mut body = vec![0; 4];
    let table = write_table(root, &mut body);
    patch(&mut body, 0, table);
    [header(of, 0), body].concat()
}

/// A reference to a chunk.
#[derive(Debug, Clone)]
pub(super) struct Chunk {
    pub(super) index: Vec<u32>,
    pub(super) fields: Fields,
}

pub(super) fn inline(index: &[u32], value: &[u8]) -> Chunk {
    Chunk {
        index: index.to_vec(),
        fields: vec![(1, bytes(value))],
    }
}

pub(super) fn native(index: &[u32], id: ObjectId, offset: u64, length: u64) -> Chunk {
    Chunk {
        index: index.to_vec(),
        fields: vec![
            (2, Field::Fixed(offset.to_le_bytes().to_vec())),
            (3, Field::Fixed(length.to_le_bytes().to_vec())),
            (4, Field::Fixed(id.0.to_vec())),
        ],
    }
}

pub(super) fn virtual_chunk(index: &[u32], url: &str) -> Chunk {
    Chunk {
        index: index.to_vec(),
        fields: vec![
            (3, Field::Fixed(7_u64.to_le_bytes().to_vec())),
            (5, text(url)),
        ],
    }
}

pub(super) fn id(number: u8) -> ObjectId {
    ObjectId([number; 12])
}

pub(super) fn node_id(number: u8) -> [u8; 8] {
    [number; 8]
}

/// Builds a manifest; arrays are given by the numbers of their nodes.
pub(super) fn manifest(own: ObjectId, arrays: &[(u8, Vec<Chunk>)]) -> Vec<u8> {
    let arrays = arrays.iter().map(|(node, chunks)| {
        let refs = chunks.iter().map(|chunk| {
            let index = (0, numbers(&chunk.index));
            std::iter::once(index).chain(chunk.fields.clone()).collect()
        });
        vec![
            (0, Field::Fixed(node_id(*node).to_vec())),
            (1, Field::Tables(refs.collect())),
        ]
    });
    let root = vec![
        (0, Field::Fixed(own.0.to_vec())),
        (1, Field::Tables(arrays.collect())),
    ];
    file(FileType::Manifest, &root)
}

/// Manifests with the extents that they hold of an array.
pub(super) type Manifests = Vec<(ObjectId, Vec<[u32; 2]>)>;

/// A node of a snapshot.
#[derive(Debug, Clone)]
pub(super) struct Node {
    pub(super) path: &'static str,
    pub(super) number: u8,
    pub(super) document: String,
    /// The dimensions of an array, and its manifests with their extents.
    pub(super) array: Option<(usize, Manifests)>,
}

pub(super) fn group(path: &'static str) -> Node {
    Node {
        path,
        number: 0,
        document: r#"{"zarr_format": 3, "node_type": "group"}"#.into(),
        array: None,
    }
}

/// Builds an array with the chunk key encoding `encoding`.
pub(super) fn array(
    path: &'static str,
    number: u8,
    encoding: &str,
    dimensions: usize,
    manifests: Manifests,
) -> Node {
    Node {
        path,
        number,
        document: format!(r#"{{"node_type": "array", "chunk_key_encoding": {encoding}}}"#),
        array: Some((dimensions, manifests)),
    }
}

fn node(node: &Node) -> Fields {
    let (kind, data) = match &node.array {
        None => (2_u8, Vec::new()),
        Some((dimensions, manifests)) => {
            let manifests = manifests.iter().map(|(id, extents)| {
                let bytes = extents
                    .iter()
                    .flatten()
                    .flat_map(|number| number.to_le_bytes());
                let count = u32::try_from(extents.len()).unwrap();
                vec![
                    (0, Field::Fixed(id.0.to_vec())),
                    (1, Field::Items(count, bytes.collect())),
                ]
            });
            let shape = vec![Vec::new(); *dimensions];
            let data = vec![
                (0, Field::Items(0, Vec::new())),
                (2, Field::Tables(manifests.collect())),
                (3, Field::Tables(shape)),
            ];
            (1, data)
        }
    };
    vec![
        (0, Field::Fixed(node_id(node.number).to_vec())),
        (1, text(node.path)),
        (2, text(&node.document)),
        (3, Field::Fixed(vec![kind])),
        (4, Field::Table(data)),
    ]
}

/// Builds a snapshot.
pub(super) fn snapshot(own: ObjectId, nodes: &[Node]) -> Vec<u8> {
    let root = vec![
        (0, Field::Fixed(own.0.to_vec())),
        (2, Field::Tables(nodes.iter().map(node).collect())),
        (
            3,
            Field::Fixed(1_700_000_000_000_000_u64.to_le_bytes().to_vec()),
        ),
        (4, text("made by a test")),
    ];
    file(FileType::Snapshot, &root)
}

/// Builds the file `repo`: names of branches and tags with their snapshots, and whether it is offline.
pub(super) fn repository(refs: [&[(&str, ObjectId)]; 2], is_offline: bool) -> Vec<u8> {
    let all: BTreeMap<ObjectId, ()> = refs
        .iter()
        .copied()
        .flatten()
        .map(|(_, id)| (*id, ()))
        .collect();
    let ids: Vec<ObjectId> = all.into_keys().collect();
    let names = |refs: &[(&str, ObjectId)]| {
        let mut refs = refs.to_vec();
        refs.sort();
        let refs = refs.iter().map(|(name, id)| {
            let place = ids.iter().position(|known| known == id).unwrap();
            let place = u32::try_from(place).unwrap();
            vec![
                (0, text(name)),
                (1, Field::Fixed(place.to_le_bytes().to_vec())),
            ]
        });
        Field::Tables(refs.collect())
    };
    let snapshots = ids
        .iter()
        .map(|id| vec![(0, Field::Fixed(id.0.to_vec())), (3, text("a message"))]);
    let status = vec![
        (0, Field::Fixed(vec![if is_offline { 2 } else { 0 }])),
        (2, text("maintenance")),
    ];
    let root = vec![
        (1, names(refs[1])),
        (2, names(refs[0])),
        (4, Field::Tables(snapshots.collect())),
        (5, Field::Table(status)),
    ];
    file(FileType::Repository, &root)
}

/// Builds a store of files.
pub(super) fn store(files: impl IntoIterator<Item = (String, Vec<u8>)>) -> MemoryStore {
    let files = files.into_iter();
    MemoryStore::new(files.map(|(name, file)| (Key::new(name.as_bytes()).unwrap(), file)))
}
