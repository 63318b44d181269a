//! Arrays that the test writes itself, and their expected elements.

use std::collections::BTreeMap;
use std::io::Write;
use std::rc::Rc;

use flate2::Compression;
use flate2::write::{GzEncoder, ZlibEncoder};
use proptest::prelude::*;
use serde_json::{Value, json};

/// The compression of a chunk.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Codec {
    None,
    Zlib,
    Gzip,
    Zstd,
}

/// A data type: its name in v3, its name in v2 without the byte order, and its size in bytes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct DataType(&'static str, &'static str, usize);

const DATA_TYPES: [DataType; 4] = [
    DataType("uint8", "u1", 1),
    DataType("int16", "i2", 2),
    DataType("uint32", "u4", 4),
    DataType("float64", "f8", 8),
];

/// One axis of an array.
#[derive(Debug, Clone, Copy)]
pub struct Axis {
    pub length: usize,
    /// The length of an inner chunk in elements, or of a chunk without shards.
    pub chunk: usize,
    /// The number of inner chunks of a shard.
    pub inner: usize,
}

/// The storage of an array.
#[derive(Debug, Clone)]
pub struct Array {
    pub is_v3: bool,
    pub axes: Vec<Axis>,
    pub data_type: DataType,
    pub codec: Codec,
    pub is_big_endian: bool,
    /// Whether the last axis varies slowest.
    pub is_reversed: bool,
    pub is_slash: bool,
    pub is_sharded: bool,
    pub fill: u8,
}

pub fn array(is_v3: bool) -> impl Strategy<Value = Array> {
    let axis = (1_usize..6, 1_usize..4, 1_usize..3);
    let axis = axis.prop_map(|(length, chunk, inner)| Axis {
        length,
        chunk,
        inner,
    });
    let codecs = match is_v3 {
        true => vec![Codec::None, Codec::Gzip, Codec::Zstd],
        false => vec![Codec::None, Codec::Zlib, Codec::Gzip, Codec::Zstd],
    };
    (
        prop::collection::vec(axis, 0..3),
        prop::sample::select(DATA_TYPES.to_vec()),
        prop::sample::select(codecs),
        any::<[bool; 4]>(),
        0_u8..3,
    )
        .prop_map(move |(axes, data_type, codec, flags, fill)| Array {
            is_v3,
            is_sharded: is_v3 && flags[3] && !axes.is_empty(),
            axes,
            data_type,
            codec,
            is_big_endian: flags[0] && data_type.2 > 1,
            is_reversed: flags[1],
            is_slash: flags[2],
            fill,
        })
}

/// The decoded elements of the parts of a chunk in C order, little-endian; `None` for an inner
/// chunk that the shard lacks.
type Parts = Vec<Option<Vec<u8>>>;

/// One version of a chunk.
#[derive(Debug)]
pub struct Chunk {
    pub encoded: Vec<u8>,
    /// The inner chunks, or one part without shards.
    parts: Parts,
    encoded_parts: Parts,
}

/// The chunks of a source, by their number in C order.
pub type Chunks = BTreeMap<usize, Rc<Chunk>>;

/// Returns all positions of a grid in C order.
fn positions(lengths: &[usize]) -> Vec<Vec<usize>> {
    lengths.iter().fold(vec![Vec::new()], |all, length| {
        let extend =
            |position: Vec<usize>| (0..*length).map(move |at| [&position[..], &[at]].concat());
        all.into_iter().flat_map(extend).collect()
    })
}

/// Returns the number of a position in C order.
fn number(position: &[usize], lengths: &[usize]) -> usize {
    let axes = position.iter().zip(lengths);
    axes.fold(0, |number, (at, length)| number * length + at)
}

impl Array {
    /// Returns the shape of an inner chunk, or of a chunk without shards, in elements.
    fn part_shape(&self) -> Vec<usize> {
        self.axes.iter().map(|axis| axis.chunk).collect()
    }

    /// Returns the number of parts of a stored chunk along each axis.
    fn parts_grid(&self) -> Vec<usize> {
        let inner = |axis: &Axis| if self.is_sharded { axis.inner } else { 1 };
        self.axes.iter().map(inner).collect()
    }

    /// Returns the number of stored chunks along each axis.
    fn grid(&self) -> Vec<usize> {
        let parts = self.parts_grid();
        let axes = self.axes.iter().zip(parts);
        axes.map(|(axis, parts)| axis.length.div_ceil(axis.chunk * parts))
            .collect()
    }

    fn shape(&self) -> Vec<usize> {
        self.axes.iter().map(|axis| axis.length).collect()
    }

    /// Returns the number of chunks of the grid.
    pub fn chunk_count(&self) -> usize {
        self.grid().iter().product()
    }

    /// Returns the key of a chunk, relative to the array.
    pub fn chunk_key(&self, chunk: usize) -> String {
        let position = &positions(&self.grid())[chunk];
        key_of(position, self.is_v3, self.is_slash)
    }

    /// Returns the positions of the inner chunks, or of the chunks without shards.
    pub fn part_positions(&self) -> Vec<Vec<usize>> {
        let axes = self.axes.iter();
        positions(
            &axes
                .map(|axis| axis.length.div_ceil(axis.chunk))
                .collect::<Vec<_>>(),
        )
    }

    /// Returns the chunk of a part, and the number of the part in the chunk.
    pub fn place_of_part(&self, part: &[usize]) -> (usize, usize) {
        let parts = self.parts_grid();
        let axes = || part.iter().zip(&parts);
        let chunk: Vec<usize> = axes().map(|(at, parts)| at / parts).collect();
        let inner: Vec<usize> = axes().map(|(at, parts)| at % parts).collect();
        (number(&chunk, &self.grid()), number(&inner, &parts))
    }

    /// Encodes a chunk whose elements are derived from `seed`.
    pub fn write_chunk(&self, seed: u64) -> Chunk {
        let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
        let mut next = || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state.to_le_bytes()[3]
        };
        let bytes = self.part_shape().iter().product::<usize>() * self.data_type.2;
        let count: usize = self.parts_grid().iter().product();
        let mut parts = Parts::new();
        for _ in 0..count {
            let is_present = !self.is_sharded || next() % 4 > 0;
            parts.push(is_present.then(|| (0..bytes).map(|_| next()).collect()));
        }
        let encode = |part: &Option<Vec<u8>>| Some(self.encode(part.as_ref()?));
        let encoded_parts: Parts = parts.iter().map(encode).collect();
        let encoded = match self.is_sharded {
            true => Self::write_shard(&encoded_parts),
            false => encoded_parts.iter().flatten().flatten().copied().collect(),
        };
        Chunk {
            encoded,
            parts,
            encoded_parts,
        }
    }

    fn write_shard(encoded_parts: &Parts) -> Vec<u8> {
        let (mut shard, mut index) = (Vec::new(), Vec::new());
        for part in encoded_parts {
            let range = match part {
                Some(encoded) => {
                    shard.extend_from_slice(encoded);
                    [shard.len() - encoded.len(), encoded.len()].map(|n| n as u64)
                }
                None => [u64::MAX; 2],
            };
            index.extend(range.iter().flat_map(|word| word.to_le_bytes()));
        }
        let checksum = crc32c::crc32c(&index).to_le_bytes();
        [shard, index, checksum.to_vec()].concat()
    }

    /// Encodes elements given in C order, little-endian.
    fn encode(&self, elements: &[u8]) -> Vec<u8> {
        let (shape, size) = (self.part_shape(), self.data_type.2);
        let mut bytes = elements.to_vec();
        if self.is_reversed {
            let reversed: Vec<usize> = shape.iter().rev().copied().collect();
            let all = positions(&reversed).into_iter();
            bytes = all
                .flat_map(|mut position| {
                    position.reverse();
                    let start = number(&position, &shape) * size;
                    elements[start..start + size].to_vec()
                })
                .collect();
        }
        if self.is_big_endian {
            swap(&mut bytes, size);
        }
        let written = "memory can be written to";
        match self.codec {
            Codec::None => bytes,
            Codec::Zlib => {
                let mut encoder = ZlibEncoder::new(Vec::new(), Compression::fast());
                encoder.write_all(&bytes).expect(written);
                encoder.finish().expect(written)
            }
            Codec::Gzip => {
                let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
                encoder.write_all(&bytes).expect(written);
                encoder.finish().expect(written)
            }
            Codec::Zstd => zstd::bulk::compress(&bytes, 1).expect(written),
        }
    }

    /// Returns one fill value, little-endian.
    fn fill_bytes(&self) -> Vec<u8> {
        match self.data_type.2 {
            8 => f64::from(self.fill).to_le_bytes().to_vec(),
            size => u64::from(self.fill).to_le_bytes()[..size].to_vec(),
        }
    }

    /// Converts elements to the byte order of views: that of the v2 document, and little-endian for v3.
    fn to_view(&self, mut bytes: Vec<u8>) -> Vec<u8> {
        if self.is_big_endian && !self.is_v3 {
            swap(&mut bytes, self.data_type.2);
        }
        bytes
    }

    /// Returns the elements of a part, little-endian.
    fn part<'a>(&self, chunks: &'a Chunks, part: &[usize]) -> Option<&'a [u8]> {
        let (chunk, inner) = self.place_of_part(part);
        chunks.get(&chunk)?.parts[inner].as_deref()
    }

    /// Returns the relative directory, with a leading `/`, of the chunks of parts at these
    /// positions of the first axes.
    pub fn directory_key(&self, axes: &[usize]) -> String {
        let shards = axes.iter().zip(self.parts_grid());
        let shards = shards.map(|(at, parts)| format!("/{}", at / parts));
        let prefix = if self.is_v3 { "/c" } else { "" };
        prefix
            .chars()
            .chain(shards.collect::<String>().chars())
            .collect()
    }

    /// Returns the stored bytes of a part; `None` if it is absent.
    pub fn encoded_part<'a>(&self, chunks: &'a Chunks, part: &[usize]) -> Option<&'a [u8]> {
        let (chunk, inner) = self.place_of_part(part);
        chunks.get(&chunk)?.encoded_parts[inner].as_deref()
    }

    /// Returns the view of a part: all elements of a chunk, or of an inner chunk.
    pub fn part_view(&self, chunks: &Chunks, part: &[usize]) -> Vec<u8> {
        let count = self.part_shape().iter().product();
        self.to_view(match self.part(chunks, part) {
            Some(elements) => elements.to_vec(),
            None => self.fill_bytes().repeat(count),
        })
    }

    /// Returns the elements in a box of the array, and the chunk of each.
    fn elements(
        &self,
        chunks: &Chunks,
        at: impl IntoIterator<Item = Vec<usize>>,
    ) -> Vec<(usize, Vec<u8>)> {
        let (shape, size) = (self.part_shape(), self.data_type.2);
        let element = |position: Vec<usize>| {
            let axes = || position.iter().zip(&shape);
            let part: Vec<usize> = axes().map(|(at, length)| at / length).collect();
            let inner: Vec<usize> = axes().map(|(at, length)| at % length).collect();
            let start = number(&inner, &shape) * size;
            let bytes = match self.part(chunks, &part) {
                Some(elements) => elements[start..start + size].to_vec(),
                None => self.fill_bytes(),
            };
            (self.place_of_part(&part).0, self.to_view(bytes))
        };
        at.into_iter().map(element).collect()
    }

    /// Returns the view of a chunk: all its elements, including those beyond the edge of the array.
    pub fn chunk_view(&self, chunks: &Chunks, chunk: usize) -> Vec<u8> {
        let position = &positions(&self.grid())[chunk];
        let axes = self.part_shape().into_iter().zip(self.parts_grid());
        let shape: Vec<usize> = axes.map(|(chunk, parts)| chunk * parts).collect();
        let all = positions(&shape).into_iter();
        let of_array = all.map(|within| {
            let axes = within.iter().zip(position.iter().zip(&shape));
            axes.map(|(at, (chunk, length))| chunk * length + at)
                .collect()
        });
        let elements = self.elements(chunks, of_array).into_iter();
        elements.flat_map(|(_, bytes)| bytes).collect()
    }

    /// Returns all elements in C order, and the chunk of each byte.
    pub fn decoded(&self, chunks: &Chunks) -> (Vec<u8>, Vec<usize>) {
        let elements = self.elements(chunks, positions(&self.shape()));
        let owners = elements
            .iter()
            .flat_map(|(chunk, bytes)| vec![*chunk; bytes.len()]);
        let owners = owners.collect();
        (
            elements.into_iter().flat_map(|(_, bytes)| bytes).collect(),
            owners,
        )
    }

    /// Returns the data type in NumPy's notation.
    pub fn numpy_type(&self) -> String {
        let order = match self.data_type.2 {
            1 => '|',
            _ if self.is_big_endian && !self.is_v3 => '>',
            _ => '<',
        };
        format!("{order}{}", self.data_type.1)
    }

    /// Returns the whole array as a `.npy` file (NEP 1), and the offset of its elements.
    pub fn npy(&self, elements: &[u8]) -> (Vec<u8>, usize) {
        let lengths: Vec<String> = self.shape().iter().map(usize::to_string).collect();
        let comma = if lengths.len() == 1 { "," } else { "" };
        let mut header = format!(
            "{{'descr': '{}', 'fortran_order': False, 'shape': ({}{comma}), }}",
            self.numpy_type(),
            lengths.join(", ")
        );
        while (10 + header.len() + 1) % 64 > 0 {
            header.push(' ');
        }
        header.push('\n');
        let length = u16::try_from(header.len()).expect("few axes").to_le_bytes();
        let file = [b"\x93NUMPY\x01\0", &length[..], header.as_bytes(), elements].concat();
        (file, 10 + header.len())
    }

    /// Returns the names and contents of the documents.
    pub fn documents(&self, attributes: &Value) -> Vec<(&'static str, Value)> {
        let size = |axis: &Axis| axis.chunk * if self.is_sharded { axis.inner } else { 1 };
        let chunks: Vec<usize> = self.axes.iter().map(size).collect();
        let separator = |slash| if slash { "/" } else { "." };
        if !self.is_v3 {
            let id = match self.codec {
                Codec::None => Value::Null,
                Codec::Zlib => json!({"id": "zlib", "level": 1}),
                Codec::Gzip => json!({"id": "gzip", "level": 1}),
                Codec::Zstd => json!({"id": "zstd", "level": 1}),
            };
            let array = json!({
                "zarr_format": 2, "shape": self.shape(), "chunks": chunks,
                "dtype": self.numpy_type(), "compressor": id, "filters": null,
                "fill_value": self.fill, "order": if self.is_reversed { "F" } else { "C" },
                "dimension_separator": separator(self.is_slash),
            });
            return vec![(".zarray", array), (".zattrs", attributes.clone())];
        }
        let endian = if self.is_big_endian { "big" } else { "little" };
        let bytes = |endian| json!({"name": "bytes", "configuration": {"endian": endian}});
        let mut codecs = vec![bytes(endian)];
        if self.is_reversed {
            let order: Vec<usize> = (0..self.axes.len()).rev().collect();
            codecs.insert(
                0,
                json!({"name": "transpose", "configuration": {"order": order}}),
            );
        }
        match self.codec {
            Codec::Gzip => codecs.push(json!({"name": "gzip", "configuration": {"level": 1}})),
            Codec::Zstd => codecs
                .push(json!({"name": "zstd", "configuration": {"level": 1, "checksum": false}})),
            _ => {}
        }
        if self.is_sharded {
            codecs = vec![json!({"name": "sharding_indexed", "configuration": {
                "chunk_shape": self.part_shape(), "codecs": codecs,
                "index_codecs": [bytes("little"), {"name": "crc32c"}], "index_location": "end",
            }})];
        }
        let array = json!({
            "zarr_format": 3, "node_type": "array", "shape": self.shape(),
            "data_type": self.data_type.0, "fill_value": self.fill, "codecs": codecs,
            "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": chunks}},
            "chunk_key_encoding": {"name": "default",
                "configuration": {"separator": separator(self.is_slash)}},
            "attributes": attributes,
        });
        vec![("zarr.json", array)]
    }
}

fn swap(bytes: &mut [u8], size: usize) {
    bytes.chunks_exact_mut(size).for_each(<[u8]>::reverse);
}

/// Returns the key of a position, in the encoding `default` of v3 or that of v2.
pub fn key_of(position: &[usize], is_v3: bool, is_slash: bool) -> String {
    let mut parts: Vec<String> = position.iter().map(usize::to_string).collect();
    match is_v3 {
        true => parts.insert(0, "c".into()),
        false if parts.is_empty() => parts.push("0".into()),
        false => {}
    }
    parts.join(if is_slash { "/" } else { "." })
}

/// Returns an array of three chunks with all encoding steps; in v3, it is sharded.
pub fn sample(is_v3: bool) -> Array {
    let axis = |length, chunk, inner| Axis {
        length,
        chunk,
        inner,
    };
    Array {
        is_v3,
        axes: vec![axis(5, 2, 2), axis(3, 3, 1)],
        data_type: DATA_TYPES[1],
        codec: Codec::Zstd,
        is_big_endian: true,
        is_reversed: true,
        is_slash: is_v3,
        is_sharded: is_v3,
        fill: 1,
    }
}
