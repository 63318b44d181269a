//! The seeds of the targets: hostile archives, documents and chunks of the fixtures, listings.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::cases::{self, Case};

/// The size of the largest seed in bytes. Longer seeds are slow, and cover no additional code.
const MAX_BYTES: usize = 16 << 10;

/// Returns the seeds of a target.
pub fn of(target: &str) -> Vec<Vec<u8>> {
    let mut seeds = match target {
        "zip_index" => archives(),
        "node_v2" => [arrays_v2(), groups_v2()].concat(),
        "node_v3" => {
            let paths = [named("zarr.json"), named("attributes.json")].concat();
            let documents: Vec<_> = paths.iter().map(|path| bytes(path)).collect();
            [documents, written(&KEY_ENCODINGS)].concat()
        }
        "consolidated" => [consolidated(), written(&CONSOLIDATED)].concat(),
        "codec_chain" => [chunks(), chains()].concat(),
        "html_page" => written(&PAGES),
        "hub_page" => written(&HUB_PAGES),
        "xml_listing" => written(&LISTINGS),
        "dbm" => databases(),
        "icechunk" => icechunk(),
        "reference_json" => written(&REFERENCES),
        "reference_parquet" => partitions(),
        "stac" => written(&STAC),
        _ => Vec::new(),
    };
    seeds.retain(|seed| seed.len() <= MAX_BYTES);
    seeds.sort();
    seeds.dedup();
    seeds
}

const REFERENCES: [&str; 6] = [
    r#"{"version":1,"templates":{"u":"s3://b"},"refs":{".zgroup":{"zarr_format":2},"x/0":["{{u}}/a",1,2]}}"#,
    r#"{".zgroup":"{\"zarr_format\":2}","x/0":"base64:AAE=","x/1":["a\u0041"],"x/2":"text"}"#,
    r#"{"refs":{"a":["u",0,1],"a":["v",2,3],"a/b":"x","":"y","../z":"w"},"gen":[],"version":1}"#,
    "\u{feff} { \".zattrs\" : { \"a\" : [ 1 , { } ] } , \"b\" : [ \"c\" , 9223372036854775807 , 0 ] } ",
    r#"{"version":1,"templates":{"f":"{{c}}"},"gen":[{"key":"a{{i}}","url":"{{f(c=i)}}"}],"refs":{}}"#,
    r#"{".zmetadata":{"metadata":{}},"x/0":[null,0,1],"x/1":5,"x/2":["u",-1,1.5]}"#,
];

const STAC: [&str; 6] = [
    r#"{"type":"Feature","stac_version":"1.1.0","assets":{"a":{"href":"./a.zarr","type":"application/vnd+zarr","roles":["data"]}}}"#,
    r#"{"assets":{"..":{"href":"x.zarr"},"a/b":{"href":"../../x.zarr"},"":{"href":"/x.zarr"},"a":{},"a":{"href":"b.zarr.zip?s=1"}},"type":"Collection","stac_version":"1"}"#,
    r#"{"type":"Feature","stac_version":"1","assets":{"a":{"href":"s3://b/c","type":"application/vnd.zarr+icechunk","version":"main"},"b":{"href":"//h/x.zarr"},"c":{"href":"file:///etc/x.zarr"}}}"#,
    r#"{"type":"Feature","stac_version":1.5,"stac_version":"1","assets":[[]],"assets":{"a":7,"b":null,"c":[{"href":"x"}],"d":{"href":["x.zarr",["y"]],"type":{"a":1},"roles":"index"}}}"#,
    r#"{"type":"Catalog","stac_version":"1","assets":{}}"#,
    "\u{feff}{\"type\":\"Feature\",\"stac_version\":\"1\",\"assets\":{\"\\u0000\":{\"href\":\"http://169.254.169.254/x.zarr\"}}}",
];

/// Returns partitions that kerchunk and VirtualiZarr wrote, if they exist.
fn partitions() -> Vec<Vec<u8>> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/fixtures/references");
    assert!(root.exists(), "no {root:?}: run tests/references/setup.sh");
    let of = |name: &str, field: &str, number: u32| {
        fs::read(
            root.join(name)
                .join(field)
                .join(format!("refs.{number}.parq")),
        )
        .unwrap()
    };
    let full = (0..4).map(|number| of("combined.parq", "v", number));
    let fields = ["lat", "lon", "time"].map(|field| of("combined.parq", field, 0));
    let others = ["v", "lat", "time"].map(|field| of("virtual.parq", field, 0));
    full.chain(fields).chain(others).collect()
}

fn written(texts: &[&str]) -> Vec<Vec<u8>> {
    texts.iter().map(|text| text.as_bytes().to_vec()).collect()
}

fn archives() -> Vec<Vec<u8>> {
    let rows: [fn() -> Vec<Case>; 14] = [
        cases::a01,
        cases::a02,
        cases::a03,
        cases::a04,
        cases::a05,
        cases::a06,
        cases::a07,
        cases::a08,
        cases::a09,
        cases::a12,
        cases::a13,
        cases::a15,
        cases::a16,
        cases::a17,
    ];
    rows.iter()
        .flat_map(|row| row())
        .map(|case| case.archive)
        .collect()
}

/// Returns databases of a few keys, written by their libraries.
fn databases() -> Vec<Vec<u8>> {
    let scratch = tempfile::tempdir().unwrap();
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/databases/write_dbm.py");
    let kinds = ["gnu", "ndbm", "dumb", "btree", "hash-big", "btree-big"];
    for kind in kinds {
        let written = Command::new("/usr/bin/python3")
            .arg(&script)
            .args(["tiny", kind])
            .arg(scratch.path().join(kind))
            .status();
        assert!(written.unwrap().success(), "{kind}");
    }
    let files = fs::read_dir(scratch.path()).unwrap();
    files.map(|file| bytes(&file.unwrap().path())).collect()
}

/// Returns all files with this name in the fixtures.
fn named(name: &str) -> Vec<PathBuf> {
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/fixtures");
    assert!(
        fixtures.join("stamp").exists(),
        "no fixtures: run tests/fixtures/setup.sh first"
    );
    let mut found = Vec::new();
    let trees = ["dir", "matrix", "n5/store"];
    let mut pending: Vec<PathBuf> = trees.iter().map(|tree| fixtures.join(tree)).collect();
    while let Some(directory) = pending.pop() {
        for entry in fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                pending.push(path);
            } else if path.ends_with(name) {
                found.push(path);
            }
        }
    }
    found.sort();
    found
}

fn bytes(path: &Path) -> Vec<u8> {
    fs::read(path).unwrap_or_default()
}

/// Returns files of Icechunk repositories, uncompressed so that mutations reach their content.
fn icechunk() -> Vec<Vec<u8>> {
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/fixtures/icechunk");
    assert!(
        fixtures.join("stamp").exists(),
        "no repositories: run tests/icechunk/setup.sh first"
    );
    let directories = [
        "v1/snapshots",
        "v1/manifests",
        "v2/snapshots",
        "v2/manifests",
        "v2",
    ];
    let files = directories
        .iter()
        .flat_map(|name| fs::read_dir(fixtures.join(name)).unwrap());
    let files = files.map(|file| bytes(&file.unwrap().path()));
    let plain = |file: Vec<u8>| {
        let (header, body) = file.split_at_checked(39)?;
        let body = zstd::decode_all(body).ok()?;
        Some([&header[..38], &[0], &body].concat())
    };
    files.filter_map(plain).collect()
}

fn arrays_v2() -> Vec<Vec<u8>> {
    let arrays = named(".zarray");
    let array = |path: &PathBuf| [bytes(path), vec![0], bytes(&path.with_file_name(".zattrs"))];
    arrays.iter().map(|path| array(path).concat()).collect()
}

fn groups_v2() -> Vec<Vec<u8>> {
    let groups = named(".zgroup");
    let group = |path: &PathBuf| {
        let attributes = bytes(&path.with_file_name(".zattrs"));
        [vec![0], attributes, vec![0], bytes(path)].concat()
    };
    groups.iter().map(group).collect()
}

fn consolidated() -> Vec<Vec<u8>> {
    named(".zmetadata").iter().map(|path| bytes(path)).collect()
}

/// Returns the documents of arrays, each with a chunk of its array.
fn chunks() -> Vec<Vec<u8>> {
    let names = [".zarray", "zarr.json", "attributes.json"];
    let documents = names.map(named).concat();
    documents
        .iter()
        .filter_map(|path| {
            let chunk = first_chunk(path.parent()?)?;
            Some([bytes(path), vec![0], bytes(&chunk)].concat())
        })
        .collect()
}

/// Returns arrays with the codecs, data types and grids of zarr-extensions, each with a chunk.
fn chains() -> Vec<Vec<u8>> {
    let array = |(data_type, fill, grid, codecs, chunk): (&str, &str, &str, &str, &[u8])| {
        let document = format!(
            r#"{{"zarr_format":3,"node_type":"array","shape":[2,4],"data_type":{data_type},"fill_value":{fill},"chunk_grid":{grid},"chunk_key_encoding":"default","codecs":{codecs}}}"#
        );
        [document.as_bytes(), &[0], chunk].concat()
    };
    let grid = r#"{"name":"regular","configuration":{"chunk_shape":[2,4]}}"#;
    let edges = r#"{"name":"rectilinear","configuration":{"kind":"inline","chunk_shapes":[[1,1],[[2,2]]]}}"#;
    [
        (
            r#""float32""#,
            "1.5",
            grid,
            r#"[{"name":"scale_offset","configuration":{"offset":5,"scale":0.1}},{"name":"cast_value","configuration":{"data_type":"int8","rounding":"nearest-away","out_of_range":"clamp","scalar_map":{"decode":[[-1,"NaN"]]}}},"bytes"]"#,
            &[0, 1, 2, 3, 255, 128, 127, 9][..],
        ),
        (
            r#""int4""#,
            "-8",
            grid,
            r#"[{"name":"reshape","configuration":{"shape":[[0,1]]}},{"name":"packbits","configuration":{"padding_encoding":"last_byte"}}]"#,
            &[0x21, 0x43, 0x87, 0xa9, 0],
        ),
        (
            r#""uint8""#,
            "0",
            edges,
            r#"["bytes",{"name":"conditional","configuration":{"codecs":["crc32c",{"name":"numcodecs.shuffle"}],"header_bits":16}}]"#,
            &[2, 0, 1, 2],
        ),
        (
            r#""int16""#,
            "0",
            grid,
            r#"[{"name":"n5_default","configuration":{"codecs":[{"name":"transpose","configuration":{"order":[1,0]}},{"name":"bytes","configuration":{"endian":"big"}}]}}]"#,
            &[0, 0, 0, 2, 0, 0, 0, 2, 0, 0, 0, 1, 1, 2, 3, 4],
        ),
        (
            r#""uint8""#,
            "0",
            grid,
            r#"["HorizontalDeltaCodec",{"name":"ChunkyCodec","configuration":{"endian":"little"}},{"name":"imagecodecs_packbits"}]"#,
            &[3, 1, 2, 3, 4, 0xfd, 9],
        ),
        (
            r#""float32""#,
            "0",
            grid,
            r#"[{"name":"imagecodecs_floatpred","configuration":{"shape":[2,4],"dtype":"<f4"}},{"name":"bytes","configuration":{"endian":"big"}},{"name":"imagecodecs_lzw"}]"#,
            &[
                128, 0, 7, 224, 16, 3, 1, 128, 128, 40, 28, 0, 16, 184, 96, 0, 128, 0, 130, 31,
                198, 2, 0, 195, 98, 27, 12, 128, 128,
            ],
        ),
        (
            r#""uint8""#,
            "0",
            r#"{"name":"regular","configuration":{"chunk_shape":[16,24]}}"#,
            r#"[{"name":"jpeg","configuration":{"quality":95,"subsampling":[[1,1]]}}]"#,
            include_bytes!("../../src/codec/imagecodecs/gray.jpg"),
        ),
        (
            r#""uint8""#,
            "0",
            r#"{"name":"regular","configuration":{"chunk_shape":[16,24]}}"#,
            r#"[{"name":"jpegxl"}]"#,
            include_bytes!("../../src/codec/imagecodecs/gray.jxl"),
        ),
        (
            r#""uint8""#,
            "0",
            r#"{"name":"regular","configuration":{"chunk_shape":[16,72]}}"#,
            r#"["bytes",{"name":"imagecodecs_webp"}]"#,
            include_bytes!("../../src/codec/imagecodecs/pixels.webp"),
        ),
        (
            r#""float64""#,
            "0",
            r#"{"name":"regular","configuration":{"chunk_shape":[4,6]}}"#,
            r#"["gribberish"]"#,
            include_bytes!("../../src/codec/grib/simple.grib"),
        ),
        (
            r#""float64""#,
            "0",
            r#"{"name":"regular","configuration":{"chunk_shape":[4,6]}}"#,
            r#"["gribberish"]"#,
            include_bytes!("../../src/codec/grib/differences.grib"),
        ),
        (
            r#""float64""#,
            "0",
            r#"{"name":"regular","configuration":{"chunk_shape":[4,6]}}"#,
            r#"["gribberish"]"#,
            include_bytes!("../../src/codec/grib/jpeg2000.grib"),
        ),
        (
            r#""float64""#,
            "0",
            r#"{"name":"regular","configuration":{"chunk_shape":[23,37]}}"#,
            r#"["gribberish"]"#,
            include_bytes!("../../src/codec/grib/png.grib"),
        ),
        (
            r#""float64""#,
            "0",
            r#"{"name":"regular","configuration":{"chunk_shape":[4,6]}}"#,
            r#"["gribberish"]"#,
            include_bytes!("../../src/codec/grib/ccsds.grib"),
        ),
        (
            r#""float64""#,
            "0",
            r#"{"name":"regular","configuration":{"chunk_shape":[4,6]}}"#,
            r#"["gribberish"]"#,
            include_bytes!("../../src/codec/grib/edition1.grib"),
        ),
        (
            r#""complex_float8_e5m2""#,
            r#"["NaN",0.5]"#,
            grid,
            r#"["bytes"]"#,
            &[0x3c; 16],
        ),
    ]
    .map(array)
    .to_vec()
}

/// Returns the first file below an array whose name is that of a chunk.
fn first_chunk(directory: &Path) -> Option<PathBuf> {
    let entries = fs::read_dir(directory).unwrap();
    let mut paths: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
    paths.retain(|path| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        name == "c" || name.starts_with("c.") || name.starts_with(|c: char| c.is_ascii_digit())
    });
    paths.sort();
    paths.into_iter().find_map(|path| match path.is_dir() {
        true => first_chunk(&path),
        false => Some(path),
    })
}

/// Pages of listings of Hugging Face, and headers that name the next page.
const HUB_PAGES: [&str; 6] = [
    r#"[{"type":"file","oid":"9f","size":3,"path":"a/zarr.json"},{"type":"directory","oid":"1","size":0,"path":"a/c"}]"#,
    r#"[{"type":"file","oid":"9f","size":9,"path":"x","lfs":{"oid":"ab","size":9,"pointerSize":134},"xetHash":"cd"}]"#,
    r#"[{"type":"file","path":"a/b/c","size":18446744073709551616,"xetHash":""},{"type":"submodule","path":"a/s"}]"#,
    r#"[{"type":"file","path":"a/..","size":-1},{"type":"file","path":7},[],{"path":"ab"},{"type":"directory","path":"a/"}]"#,
    "<http://h/api/t?cursor=a%2Fb&limit=7>; rel=\"next\"",
    "<a>; title=\"x, <y>; rel=next\"; rel=\"prev next\", <?>; rel=next",
];

const KEY_ENCODINGS: [&str; 3] = [
    r#"{"zarr_format":3,"node_type":"array","shape":[5,7],"data_type":"int16","chunk_grid":{"name":"regular","configuration":{"chunk_shape":[2,3]}},"chunk_key_encoding":{"name":"suffix","configuration":{"suffix":".tiff","base_encoding":{"name":"default"}}},"fill_value":0,"codecs":["bytes"]}"#,
    r#"{"zarr_format":3,"node_type":"array","shape":[5,7],"data_type":"uint8","chunk_grid":{"name":"regular","configuration":{"chunk_shape":[2,3]}},"chunk_key_encoding":{"name":"template","configuration":{"template":"images/{-1:04}/z{*}.png","separator":"_"}},"fill_value":0,"codecs":["bytes"]}"#,
    r#"{"zarr_format":3,"node_type":"array","shape":[500,7],"data_type":"uint8","chunk_grid":{"name":"regular","configuration":{"chunk_shape":[2,3]}},"chunk_key_encoding":{"name":"fanout","configuration":{"max_children":100}},"fill_value":0,"codecs":["bytes"]}"#,
];

const CONSOLIDATED: [&str; 3] = [
    r#"{"zarr_consolidated_format":1,"metadata":{".zgroup":{"zarr_format":2},"a/.zarray":{"zarr_format":2,"shape":[2],"chunks":[2],"dtype":"<i2","fill_value":0},"a/.zattrs":{"units":"K"}}}"#,
    r#"{"zarr_consolidated_format":1,"metadata":{"/a//.zgroup":{},"../.zgroup":{"zarr_format":2},"a/b/c/.zattrs":[]}}"#,
    r#"{"zarr_consolidated_format":2,"metadata":{}}"#,
];

const PAGES: [&str; 8] = [
    "<html><head><title>Index of /data/</title></head><body><h1>Index of /data/</h1><hr><pre><a href=\"../\">../</a>\n<a href=\"a/\">a/</a> 01-Jan-2024 00:00 -\n<a href=\"b%20c\">b c</a> 01-Jan-2024 00:00 12\n</pre></body></html>",
    "<table><tr><th><a href=\"?C=N;O=D\">Name</a></th></tr><tr><td><a href=\"/\">Parent Directory</a></td></tr><tr><td><a href=\"zarr.json\">zarr.json</a></td><td>1.2K</td></tr></table>",
    "<!DOCTYPE HTML><ul>\n<li><a href=\"%C3%BC\">\u{fc}</a></li>\n<li><a href='x&amp;y'>x&amp;y</a></li>\n<li><a href=\"http://other.example/data/z\">z</a></li><li><a href=//store.example/data/q>q</a></li></ul>",
    "<a href=\"/data/abs\">y</a><A HREF=\"./dot/\">d</A><a href=\"..%2fup\">u</a><a href=\"%00\">0</a><!-- <a href=\"no\"> --><script>\"<a href='no'>\"</script>",
    r#"[{"name":"d","type":"directory","mtime":"x"},{"name":"f","type":"file","size":3}]"#,
    r#"[{"name":"d/","is_dir":true},{"name":"f","is_dir":false,"size":18446744073709551616}]"#,
    r#"{"zarr_format":3,"node_type":"group"}"#,
    r#"[{"name":""},{"name":"../x"},{"name":"/"},{"name":1},[],null]"#,
];

const LISTINGS: [&str; 8] = [
    "<?xml version=\"1.0\" encoding=\"UTF-8\"?><ListBucketResult xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\"><Name>b</Name><Prefix>a/</Prefix><KeyCount>2</KeyCount><MaxKeys>1000</MaxKeys><IsTruncated>true</IsTruncated><NextContinuationToken>t=</NextContinuationToken><Contents><Key>a/zarr.json</Key><LastModified>2024-01-01T00:00:00.000Z</LastModified><ETag>\"0\"</ETag><Size>3</Size></Contents><CommonPrefixes><Prefix>a/c/</Prefix></CommonPrefixes></ListBucketResult>",
    "<ListBucketResult><Contents><Key>a//b</Key><Size>1</Size></Contents><Contents><Key>x &amp; y</Key></Contents><Contents><Key>&#252;&#x0;</Key></Contents><CommonPrefixes><Prefix>p//</Prefix></CommonPrefixes></ListBucketResult>",
    "<ListBucketResult><Contents><Key><![CDATA[a/../b]]></Key></Contents><Contents/><Contents><Contents><Key>n</Key></Contents></Contents></ListBucketResult>",
    "<ListBucketResult><Contents><Key>a//b<Contents><Key>n</Key></Contents></Contents></Key></ListBucketResult>",
    "<?xml version=\"1.0\"?><EnumerationResults ServiceEndpoint=\"https://x/\" ContainerName=\"c\"><Prefix>a/</Prefix><Blobs><Blob><Name>a/0</Name><Properties><Content-Length>4</Content-Length></Properties></Blob><BlobPrefix><Name>a/c/</Name></BlobPrefix></Blobs><NextMarker>m</NextMarker></EnumerationResults>",
    "<!DOCTYPE a [<!ENTITY b \"c\">]><ListBucketResult><Contents><Key>&b;</Key></Contents></ListBucketResult>",
    "<Error><Code>AccessDenied</Code><Message>no &lt;</Message></Error>",
    "\u{feff}\u{feff}<Contents><Key>a//b</Key></Contents>\u{feff}<Contents><Key>a</Key></Contents>",
];
