//! The parsed metadata of a node as JSON, for `info.json` and the extended attributes.

use std::fmt::Write as _;

use serde_json::{Map, Value, json};

use super::ZarrFormat;
use super::array::Array;
use super::chunk_key::ChunkKeys;
use super::codec_chain::{CodecChain, CodecSpec, Order};
use super::data_type::{ByteOrder, DataType, Fixed, Scalar};
use super::fill_value::FillValue;
use super::grid::{Axis, ChunkGrid};
use super::node::{Group, Node};

impl Node {
    /// Returns the metadata as JSON. Unknown members are left out; `problems` lists the errors.
    pub fn info(&self) -> Value {
        match self {
            Self::Group(group) => group.info(),
            Self::Array(array) => array.info(),
        }
    }
}

impl Group {
    /// Returns `zarr_format` or `format`, `node_type`, the number of attributes, and `problems`.
    pub fn info(&self) -> Value {
        let mut info = Map::new();
        let (name, format) = version(self.format);
        info.insert(name.into(), format);
        info.insert("node_type".into(), "group".into());
        let mut problems: Vec<Value> = Vec::new();
        match &self.attributes {
            Ok(attributes) => _ = info.insert("attribute_count".into(), attributes.len().into()),
            Err(error) => problems.push(error.to_string().into()),
        }
        problems.extend(self.extensions.iter().map(|what| what.to_string().into()));
        if !problems.is_empty() {
            info.insert("problems".into(), problems.into());
        }
        info.into()
    }
}

impl Array {
    /// Returns shape, data type, chunks, keys, codecs, fill value, dimension names, sizes in bytes, the
    /// number of attributes, and `problems`.
    pub fn info(&self) -> Value {
        let mut info = Map::new();
        let mut set = |name: &str, value: Value| _ = info.insert(name.into(), value);
        let (name, format) = version(self.format);
        set(name, format);
        set("node_type", "array".into());
        set("shape", json!(self.shape));
        if !self.dimension_names.is_empty() {
            set("dimension_names", json!(self.dimension_names));
        }
        if let Ok(data_type) = &self.data_type {
            set("data_type", data_type.to_string().into());
            if let Some(fixed) = data_type.fixed() {
                set("item_bytes", fixed.size_bytes.into());
            }
        }
        if let Some(size) = self.size_bytes() {
            set("size_bytes", size.into());
        }
        if let Ok(grid) = &self.grid {
            set("chunk_shape", chunk_shape(grid));
            set("chunk_grid", json!(grid.shape()));
            set("chunk_count", grid.chunk_count().into());
        }
        if let Some(size) = self.largest_chunk_bytes() {
            set("chunk_bytes", size.into());
        }
        if let Ok(keys) = &self.chunk_keys {
            set("first_chunk_key", first_key(keys, self.rank()));
        }
        if let Ok(chain) = &self.codecs {
            set("codecs", codecs(chain));
            if let CodecChain::V2 { order, .. } = chain {
                let order = if *order == Order::F { "F" } else { "C" };
                set("order", order.into());
            }
        }
        if let (Ok(data_type), Ok(fill_value)) = (&self.data_type, &self.fill_value) {
            set("fill_value", fill(data_type, fill_value));
        }
        let mut problems: Vec<Value> = Vec::new();
        match &self.attributes {
            Ok(attributes) => set("attribute_count", attributes.len().into()),
            Err(error) => problems.push(error.to_string().into()),
        }
        problems.extend(self.problems().map(|error| error.to_string().into()));
        if !problems.is_empty() {
            set("problems", problems.into());
        }
        info.into()
    }
}

/// Returns the name and the value of the member with the format of a node.
fn version(format: ZarrFormat) -> (&'static str, Value) {
    match format {
        ZarrFormat::V2 => ("zarr_format", 2.into()),
        ZarrFormat::V3 => ("zarr_format", 3.into()),
        ZarrFormat::N5 => ("format", "N5".into()),
    }
}

/// Returns the edge along each axis, or runs of `[edge, count]` if edges differ.
fn chunk_shape(grid: &ChunkGrid) -> Value {
    let axis = |axis: &Axis| match axis {
        Axis::Regular(edge) => json!(edge),
        Axis::Runs(runs) => {
            let runs = runs.iter().map(|run| json!([run.edge(), run.count()]));
            runs.collect()
        }
    };
    grid.axes().iter().map(axis).collect()
}

fn first_key(keys: &ChunkKeys, rank: usize) -> Value {
    // Every grid has this limit.
    keys.encode(&vec![0; rank.min(super::grid::MAX_RANK)])
        .into()
}

fn codecs(chain: &CodecChain) -> Value {
    let codec = |spec: &CodecSpec| {
        let mut codec = Map::new();
        codec.insert("name".into(), spec.name.clone().into());
        if !spec.configuration.is_empty() {
            codec.insert("configuration".into(), spec.configuration.clone().into());
        }
        Value::from(codec)
    };
    chain.specs().map(codec).collect()
}

/// Returns the fill value as a number if it is numeric, else `0x` and the bytes of the element.
fn fill(data_type: &DataType, fill_value: &FillValue) -> Value {
    match (fill_value, data_type) {
        (FillValue::Undefined, _) => Value::Null,
        (FillValue::Variable(value), _) => value.clone(),
        (FillValue::Fixed(bytes), DataType::Fixed(fixed)) => {
            number(fixed, bytes).unwrap_or_else(|| hex(bytes))
        }
        (FillValue::Fixed(bytes), DataType::Variable(_)) => hex(bytes),
    }
}

fn number(fixed: &Fixed, bytes: &[u8]) -> Option<Value> {
    let (scalar, order) = match &fixed.scalar {
        Scalar::Bool => return Some((bytes != [0]).into()),
        scalar @ (Scalar::Int(order) | Scalar::UInt(order) | Scalar::Float(order)) => {
            (scalar, *order)
        }
        scalar @ (Scalar::DateTime { order, .. } | Scalar::TimeDelta { order, .. }) => {
            (scalar, *order)
        }
        _ => return None,
    };
    let mut word = bytes.to_vec();
    if order == ByteOrder::Big {
        word.reverse();
    }
    if let Scalar::Float(_) = scalar {
        return match *word.as_slice() {
            [a, b, c, d] => Some(float(f32::from_le_bytes([a, b, c, d]).into(), |_| {
                f32::from_le_bytes([a, b, c, d]).into()
            })),
            [a, b, c, d, e, f, g, h] => {
                let number = f64::from_le_bytes([a, b, c, d, e, f, g, h]);
                Some(float(number, Value::from))
            }
            _ => None,
        };
    }
    let negative = !matches!(scalar, Scalar::UInt(_)) && word.last().is_some_and(|b| *b > 0x7f);
    word.resize(8, if negative { 0xff } else { 0 });
    let word = <[u8; 8]>::try_from(word).ok()?;
    Some(match scalar {
        Scalar::UInt(_) => u64::from_le_bytes(word).into(),
        _ => i64::from_le_bytes(word).into(),
    })
}

fn float(number: f64, finite: impl Fn(f64) -> Value) -> Value {
    match number {
        number if number.is_nan() => "NaN".into(),
        f64::INFINITY => "Infinity".into(),
        f64::NEG_INFINITY => "-Infinity".into(),
        number => finite(number),
    }
}

fn hex(bytes: &[u8]) -> Value {
    const LIMIT: usize = 64;
    let mut text = String::from("0x");
    for byte in bytes.iter().take(LIMIT) {
        // Writing to a String is infallible.
        let _ = write!(text, "{byte:02x}");
    }
    if bytes.len() > LIMIT {
        text.push_str("...");
    }
    text.into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::zarr::{v2, v3};

    fn sorted(text: &str) -> Value {
        crate::zarr::document::parse(text.as_bytes()).unwrap()
    }

    #[test]
    fn the_info_of_an_array_has_all_parsed_metadata() {
        let zarray =
            br#"{"zarr_format":2,"shape":[20,30],"chunks":[9,13],"dtype":">f4","order":"F",
            "fill_value":1.1,"filters":null,"compressor":{"id":"zlib","level":1}}"#;
        let info = v2::array(zarray, Some(br#"{"_ARRAY_DIMENSIONS":["y","x"]}"#))
            .unwrap()
            .info();
        let expected = r#"{"zarr_format":2,"node_type":"array","shape":[20,30],
            "dimension_names":["y","x"],"data_type":">f4","item_bytes":4,"size_bytes":2400,
            "chunk_shape":[9,13],"chunk_grid":[3,3],"chunk_count":9,"chunk_bytes":468,
            "first_chunk_key":"0.0","codecs":[{"name":"zlib","configuration":{"level":1}}],
            "order":"F","fill_value":1.1,"attribute_count":1}"#;
        assert_eq!(info, sorted(expected));
    }

    #[test]
    fn the_info_lists_problems() {
        let text = br#"{"zarr_format":3,"node_type":"array","shape":[5],"data_type":"foo",
            "chunk_grid":{"name":"rectilinear","configuration":{"kind":"inline","chunk_shapes":[[[2,2],1]]}},
            "chunk_key_encoding":"default","fill_value":0,"codecs":["bytes"],"vendor":1,"attributes":[]}"#;
        let info = v3::node(text).unwrap().info();
        let expected = r#"{"zarr_format":3,"node_type":"array","shape":[5],
            "chunk_shape":[[[2,2],[1,1]]],"chunk_grid":[3],"chunk_count":3,"first_chunk_key":"c/0",
            "codecs":[{"name":"bytes"}],"problems":["attributes: expected an object, not a list",
            "must_understand extension vendor is not supported","data type foo is not supported"]}"#;
        assert_eq!(info, sorted(expected));
    }

    #[test]
    fn the_info_of_a_group_has_version_and_attributes() {
        let group = v2::group(br#"{"zarr_format":2}"#, Some(b"{\"a\":1}")).unwrap();
        let expected = r#"{"zarr_format":2,"node_type":"group","attribute_count":1}"#;
        assert_eq!(Node::Group(group).info(), sorted(expected));
        let broken = v2::group(br#"{"zarr_format":2}"#, Some(b"{"))
            .unwrap()
            .info();
        assert!(broken.get("problems").is_some());
    }

    #[test]
    fn fill_values_are_numbers_where_elements_are() {
        let cases = [
            ("\"<i4\"", "-5", "-5"),
            ("\">i2\"", "258", "258"),
            ("\"|i1\"", "-1", "-1"),
            ("\"<u8\"", "18446744073709551615", "18446744073709551615"),
            ("\"<i8\"", "-9223372036854775808", "-9223372036854775808"),
            ("\"|b1\"", "true", "true"),
            ("\"<f4\"", "0.1", "0.1"),
            ("\">f8\"", "0.1", "0.1"),
            ("\"<f8\"", "\"NaN\"", "\"NaN\""),
            ("\"<f4\"", "\"-Infinity\"", "\"-Infinity\""),
            ("\"<f2\"", "1", "\"0x003c\""),
            ("\"<M8[s]\"", "86400", "86400"),
            ("\"|S3\"", "\"YWI=\"", "\"0x616200\""),
            ("\"<i4\"", "null", "null"),
        ];
        for (dtype, value, expected) in cases {
            let text = format!(
                r#"{{"zarr_format":2,"shape":[],"chunks":[],"dtype":{dtype},"fill_value":{value}}}"#
            );
            let info = v2::array(text.as_bytes(), None).unwrap().info();
            assert_eq!(
                info.get("fill_value").map(Value::to_string).as_deref(),
                Some(expected),
                "{dtype}"
            );
        }
    }
}
