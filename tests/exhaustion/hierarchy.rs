//! A hierarchy whose reads need large buffers: all kinds of codecs and all formats of views.

use std::fs;
use std::io::Write;
use std::path::Path;

use flate2::Compression;
use flate2::write::{GzEncoder, ZlibEncoder};
use serde_json::{Value, json};

use crate::zipmaker::{Entry, Offset, Zip};

/// The keys and values of the hierarchy.
pub type Values = Vec<(String, Vec<u8>)>;

/// Returns `count` bytes that do not compress to nothing, and differ between arrays.
fn noise(seed: u64, count: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut bytes = Vec::with_capacity(count);
    while bytes.len() < count {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        // Half of the bits are the same, so that codecs have something to do.
        bytes.extend(((state >> 33) as u32 & 0x0fff_0f0f).to_le_bytes());
    }
    bytes.truncate(count);
    bytes
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

fn zlib(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = ZlibEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

fn zstd(bytes: &[u8]) -> Vec<u8> {
    zstd::bulk::compress(bytes, 1).unwrap()
}

fn bz2(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = bzip2::write::BzEncoder::new(Vec::new(), bzip2::Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

fn xz(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = liblzma::write::XzEncoder::new(Vec::new(), 0);
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

/// The block format of numcodecs: the size and a block.
fn lz4(bytes: &[u8]) -> Vec<u8> {
    let mut encoded = (bytes.len() as u32).to_le_bytes().to_vec();
    encoded.extend(lz4_flex::block::compress(bytes));
    encoded
}

/// A Blosc 1 chunk whose content is copied (flag 2).
fn blosc(bytes: &[u8]) -> Vec<u8> {
    let size = bytes.len() as u32;
    let mut encoded = vec![2, 1, 0x2, 4];
    for number in [size, size, size + 16] {
        encoded.extend(number.to_le_bytes());
    }
    encoded.extend(bytes);
    encoded
}

/// The texts of a chunk as `vlen-utf8` encodes them.
fn texts(texts: impl ExactSizeIterator<Item = String>) -> Vec<u8> {
    let mut encoded = (texts.len() as u32).to_le_bytes().to_vec();
    for text in texts {
        encoded.extend((text.len() as u32).to_le_bytes());
        encoded.extend(text.bytes());
    }
    encoded
}

/// Writes the hierarchy.
#[derive(Default)]
struct Writer(Values);

/// An array of version 3.
struct Array<'a> {
    path: &'a str,
    shape: &'a [usize],
    chunk: &'a [usize],
    data_type: &'a str,
    dimensions: &'a [&'a str],
    codecs: Value,
    attributes: Value,
}

fn little() -> Value {
    json!({"name": "bytes", "configuration": {"endian": "little"}})
}

impl Writer {
    fn put(&mut self, key: impl Into<String>, bytes: impl Into<Vec<u8>>) {
        self.0.push((key.into(), bytes.into()));
    }

    fn json(&mut self, key: impl Into<String>, document: &Value) {
        self.put(key, document.to_string());
    }

    fn group(&mut self, path: &str, attributes: Value) {
        let document = json!({"zarr_format": 3, "node_type": "group", "attributes": attributes});
        self.json(format!("{path}zarr.json"), &document);
    }

    /// Writes an array, whose chunks `chunk` returns by their numbers.
    fn array(&mut self, array: &Array<'_>, chunk: impl Fn(usize) -> Vec<u8>) {
        let Array {
            path,
            shape,
            chunk: chunk_shape,
            data_type,
            ..
        } = array;
        let fill = match *data_type {
            "string" => json!(""),
            "bool" => json!(false),
            _ => json!(0),
        };
        self.json(
            format!("{path}/zarr.json"),
            &json!({
                "zarr_format": 3, "node_type": "array", "shape": shape, "data_type": data_type,
                "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": chunk_shape}},
                "chunk_key_encoding": {"name": "default", "configuration": {"separator": "/"}},
                "fill_value": fill, "codecs": array.codecs, "attributes": array.attributes,
                "dimension_names": array.dimensions,
            }),
        );
        let counts: Vec<usize> = shape
            .iter()
            .zip(*chunk_shape)
            .map(|(length, chunk)| length.div_ceil(*chunk))
            .collect();
        for number in 0..counts.iter().product() {
            let (mut left, mut place) = (number, Vec::new());
            for count in counts.iter().rev() {
                place.insert(0, (left % count).to_string());
                left /= count;
            }
            self.put(format!("{path}/c/{}", place.join("/")), chunk(number));
        }
    }

    /// Writes an array of version 2 with one chunk, of 200 x 500 16-bit numbers.
    fn v2(&mut self, name: &str, changes: &Value, encode: impl Fn(&[u8]) -> Vec<u8>) {
        let mut document = json!({
            "zarr_format": 2, "shape": [200, 500], "chunks": [200, 500], "dtype": "<i2", "fill_value": 0,
            "order": "C", "filters": null, "compressor": null,
        });
        for (key, value) in changes.as_object().unwrap() {
            document[key] = value.clone();
        }
        self.json(format!("v2/{name}/.zarray"), &document);
        self.put(
            format!("v2/{name}/0.0"),
            encode(&noise(name.len() as u64, 200_000)),
        );
    }

    fn climate(&mut self) {
        self.group("climate/", json!({"Conventions": "CF-1.8"}));
        let axes = [
            (
                "time",
                4,
                json!({"units": "days since 2000-01-01", "standard_name": "time"}),
            ),
            (
                "lat",
                200,
                json!({"units": "degrees_north", "standard_name": "latitude"}),
            ),
            (
                "lon",
                300,
                json!({"units": "degrees_east", "standard_name": "longitude"}),
            ),
        ];
        for (name, length, attributes) in axes {
            let values = (0..length).flat_map(|at| (at as f64 / 2.0).to_le_bytes());
            let values: Vec<u8> = values.collect();
            let array = Array {
                path: &format!("climate/{name}"),
                shape: &[length],
                chunk: &[length],
                data_type: "float64",
                dimensions: &[name],
                codecs: json!([little()]),
                attributes,
            };
            self.array(&array, |_| values.clone());
        }
        let array = Array {
            path: "climate/t2m",
            shape: &[4, 200, 300],
            chunk: &[2, 200, 300],
            data_type: "float32",
            dimensions: &["time", "lat", "lon"],
            codecs: json!([little(), {"name": "zstd", "configuration": {"level": 1, "checksum": false}}]),
            attributes: json!({"units": "K", "scale_factor": 0.5, "add_offset": 1.0}),
        };
        self.array(&array, |chunk| zstd(&noise(chunk as u64, 480_000)));
    }

    fn images(&mut self) {
        let array = Array {
            path: "image",
            shape: &[300, 400, 3],
            chunk: &[300, 400, 3],
            data_type: "uint8",
            dimensions: &["y", "x", "c"],
            codecs: json!([{"name": "bytes"}, {"name": "gzip", "configuration": {"level": 1}}]),
            attributes: json!({}),
        };
        self.array(&array, |_| gzip(&noise(7, 360_000)));
        let array = Array {
            path: "plain",
            shape: &[400, 300],
            chunk: &[200, 300],
            data_type: "uint16",
            dimensions: &["y", "x"],
            codecs: json!([{"name": "bytes", "configuration": {"endian": "big"}}]),
            attributes: json!({}),
        };
        self.array(&array, |chunk| noise(chunk as u64, 120_000));
    }

    /// Writes an array of one shard of four inner chunks.
    fn shard(&mut self) {
        let array = Array {
            path: "sharded",
            shape: &[256, 512],
            chunk: &[256, 512],
            data_type: "int32",
            dimensions: &["y", "x"],
            codecs: json!([{"name": "sharding_indexed", "configuration": {
                "chunk_shape": [128, 256],
                "codecs": [little(), {"name": "zstd", "configuration": {"level": 1, "checksum": false}}],
                "index_codecs": [little(), {"name": "crc32c"}],
                "index_location": "end",
            }}]),
            attributes: json!({}),
        };
        self.array(&array, |_| {
            let (mut shard, mut index) = (Vec::new(), Vec::new());
            for inner in 0..4 {
                let encoded = zstd(&noise(inner, 131_072));
                index.extend((shard.len() as u64).to_le_bytes());
                index.extend((encoded.len() as u64).to_le_bytes());
                shard.extend(encoded);
            }
            index.extend(crc32c::crc32c(&index).to_le_bytes());
            shard.extend(index);
            shard
        });
    }

    /// Writes texts, one for each row of a table.
    fn texts(&mut self, path: &str, dimension: &str, rows: usize, text: impl Fn(usize) -> String) {
        let array = Array {
            path,
            shape: &[rows],
            chunk: &[rows],
            data_type: "string",
            dimensions: &[dimension],
            codecs: json!([{"name": "vlen-utf8"}]),
            attributes: json!({"encoding-type": "string-array", "encoding-version": "0.2.0"}),
        };
        self.array(&array, |_| texts((0..rows).map(&text)));
    }

    fn numbers(&mut self, path: &str, dimensions: &[&str], shape: &[usize], data_type: &str) {
        let size = match data_type {
            "int8" | "bool" => 1,
            "int32" | "float32" => 4,
            _ => 8,
        };
        let bytes = shape.iter().product::<usize>() * size;
        let array = Array {
            path,
            shape,
            chunk: shape,
            data_type,
            dimensions,
            codecs: json!([little(), {"name": "zstd", "configuration": {"level": 1, "checksum": false}}]),
            attributes: json!({"encoding-type": "array", "encoding-version": "0.2.0"}),
        };
        self.array(&array, |_| {
            let values = noise(path.len() as u64, bytes);
            // Booleans, genotypes and numbers of contigs are 0 or 1, and integers have 32 bits.
            let values: Vec<u8> = match size {
                1 => values.iter().map(|value| value & 1).collect(),
                8 => values
                    .chunks(8)
                    .flat_map(|value| [&value[..3], &[0; 5]].concat())
                    .collect(),
                _ => values,
            };
            zstd(&values)
        });
    }

    fn categories(&mut self, path: &str, dimension: &str, rows: usize) {
        self.group(
            &format!("{path}/"),
            json!({"encoding-type": "categorical", "encoding-version": "0.2.0", "ordered": false}),
        );
        self.numbers(&format!("{path}/codes"), &[dimension], &[rows], "int8");
        self.texts(&format!("{path}/categories"), "category", 2, |row| {
            format!("kind {row}")
        });
    }

    fn table(&mut self) {
        self.group("table/", json!({}));
        self.numbers("table/number", &["row"], &[20_000], "int64");
        self.numbers("table/value", &["row"], &[20_000], "float32");
        self.texts("table/name", "row", 20_000, |row| format!("row {row}"));
        self.categories("table/kind", "row", 20_000);
    }

    fn cells(&mut self) {
        let encoding = |name: &str| json!({"encoding-type": name, "encoding-version": "0.1.0"});
        self.group("cells/", encoding("anndata"));
        self.numbers("cells/X", &["cell", "gene"], &[600, 100], "float32");
        for (axis, dimension, rows) in [("obs", "cell", 600), ("var", "gene", 100)] {
            let attributes = json!({
                "encoding-type": "dataframe", "encoding-version": "0.2.0", "_index": "_index",
                "column-order": ["kind"],
            });
            self.group(&format!("cells/{axis}/"), attributes);
            self.texts(&format!("cells/{axis}/_index"), dimension, rows, |row| {
                format!("{axis} {row}")
            });
            self.categories(&format!("cells/{axis}/kind"), dimension, rows);
        }
    }

    fn calls(&mut self) {
        self.group("calls/", json!({"vcf_zarr_version": "0.4"}));
        let (variants, samples) = (4000, 50);
        self.numbers(
            "calls/call_genotype",
            &["variants", "samples", "ploidy"],
            &[variants, samples, 2],
            "int8",
        );
        self.numbers(
            "calls/call_genotype_phased",
            &["variants", "samples"],
            &[variants, samples],
            "bool",
        );
        self.numbers("calls/variant_contig", &["variants"], &[variants], "int8");
        let array = Array {
            path: "calls/variant_position",
            shape: &[variants],
            chunk: &[variants],
            data_type: "int32",
            dimensions: &["variants"],
            codecs: json!([little()]),
            attributes: json!({}),
        };
        self.array(&array, |_| {
            (1..=variants as u32).flat_map(u32::to_le_bytes).collect()
        });
        let array = Array {
            path: "calls/variant_allele",
            shape: &[variants, 2],
            chunk: &[variants, 2],
            data_type: "string",
            dimensions: &["variants", "alleles"],
            codecs: json!([{"name": "vlen-utf8"}]),
            attributes: json!({}),
        };
        self.array(&array, |_| {
            texts((0..2 * variants).map(|at| "ACGT"[at % 2..][..1 + at % 3].to_owned()))
        });
        self.texts("calls/contig_id", "contigs", 2, |row| {
            format!("chr{}", row + 1)
        });
        self.texts("calls/sample_id", "samples", samples, |row| {
            format!("sample{row}")
        });
    }

    fn old_codecs(&mut self) {
        self.json("v2/.zgroup", &json!({"zarr_format": 2}));
        let compressor = |id: &str| json!({"compressor": {"id": id}});
        self.v2("none", &json!({}), <[u8]>::to_vec);
        self.v2(
            "zlib",
            &json!({"compressor": {"id": "zlib", "level": 1}}),
            zlib,
        );
        self.v2("zstd", &compressor("zstd"), zstd);
        self.v2("bz2", &compressor("bz2"), bz2);
        self.v2(
            "lzma",
            &json!({"compressor": {"id": "lzma", "format": 1, "check": -1}}),
            xz,
        );
        self.v2("lz4", &compressor("lz4"), lz4);
        let compressor =
            json!({"id": "blosc", "cname": "lz4", "clevel": 1, "shuffle": 0, "blocksize": 0});
        self.v2("blosc", &json!({"compressor": compressor}), blosc);
        let filters = json!([{"id": "delta", "dtype": "<i2"}, {"id": "shuffle", "elementsize": 2}]);
        let filtered = json!({"filters": filters, "compressor": {"id": "zlib", "level": 1}});
        self.v2("filtered", &filtered, zlib);
        self.v2(
            "reversed",
            &json!({"order": "F", "dtype": ">i2", "compressor": {"id": "zlib", "level": 1}}),
            zlib,
        );
        let scaled = json!([{"id": "fixedscaleoffset", "scale": 10, "offset": 0, "dtype": "<f8", "astype": "<i2"}]);
        self.v2(
            "scaled",
            &json!({"dtype": "<f8", "filters": scaled}),
            <[u8]>::to_vec,
        );
    }

    /// Writes an array with so many chunks that their names are large.
    fn chunks(&mut self) {
        let array = Array {
            path: "chunks",
            shape: &[3000],
            chunk: &[1],
            data_type: "int8",
            dimensions: &["x"],
            codecs: json!([little()]),
            attributes: json!({}),
        };
        self.array(&array, |chunk| vec![chunk as u8]);
    }
}

/// Returns the hierarchy.
pub fn values() -> Values {
    let mut writer = Writer::default();
    writer.group("", json!({}));
    writer.climate();
    writer.images();
    writer.shard();
    writer.table();
    writer.cells();
    writer.calls();
    writer.old_codecs();
    writer.chunks();
    writer.0
}

/// Returns an array of `count` short chunks.
pub fn many_values(count: usize) -> Values {
    let mut writer = Writer::default();
    writer.put(".zgroup", *br#"{"zarr_format": 2}"#);
    let document = json!({
        "zarr_format": 2, "shape": [count], "chunks": [1], "dtype": "|u1", "order": "C",
        "compressor": null, "filters": null, "fill_value": 0,
    });
    writer.json("a/.zarray", &document);
    for number in 0..count {
        writer.put(format!("a/{number}"), [number as u8]);
    }
    writer.0
}

/// Writes a zip archive whose index takes all ways: one name occurs twice, and two entries have the same bytes.
pub fn zip_with_odd_entries(values: &Values) -> Vec<u8> {
    let entries = values.iter().map(|(key, value)| Entry::stored(key, value));
    let mut entries: Vec<_> = entries.collect();
    entries.push(Entry::stored("a/0", &[9]));
    let other = entries.len();
    entries.push(Entry::stored("x", &[1]));
    entries.push(Entry::stored("y", &[1]).with(|entry| entry.offset = Offset::Of(other)));
    Zip::of(entries).build()
}

/// Writes references to `count` short chunks in many files, of which only the first exists, and to many directories.
pub fn write_references(count: usize, path: &Path) {
    let mut references = serde_json::Map::new();
    for (key, value) in many_values(count) {
        let reference = match key.strip_prefix("a/").map(str::parse::<usize>) {
            Some(Ok(number)) => json!([format!("part-{}.bin", number / 2), number % 2, 1]),
            _ => Value::from(String::from_utf8(value).unwrap()),
        };
        references.insert(key, reference);
    }
    for number in 0..count / 8 {
        references.insert(format!("b/{number}/x"), json!("v"));
    }
    fs::write(path.with_file_name("part-0.bin"), [5, 6]).unwrap();
    let document = json!({"version": 1, "refs": references});
    fs::write(path, document.to_string()).unwrap();
}

/// Writes the hierarchy as a directory.
pub fn write_directory(values: &Values, directory: &Path) {
    for (key, value) in values {
        let path = directory.join(key);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, value).unwrap();
    }
}

/// Writes the hierarchy as a zip archive, every second value of which is deflated.
pub fn write_zip(values: &Values, path: &Path) {
    let entries = values
        .iter()
        .enumerate()
        .map(|(number, (key, value))| match number % 2 {
            0 => Entry::stored(key, value),
            _ => Entry::deflated(key, value),
        });
    fs::write(path, Zip::of(entries.collect()).build()).unwrap();
}
