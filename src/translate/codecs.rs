//! Translation of codec chains (v2, "Filters" and `compressor`; v3 core, "Codecs"; the v3 names of
//! numcodecs codecs). Only a chain that is known to decode the same bytes is translated; any other
//! is left out with its reason.

use serde_json::{Map, Value, json};

use super::types::byte_order;
use crate::codec;
use crate::zarr::data_type::v2;
use crate::zarr::{ByteOrder, CodecSpec, DataType, Fixed, Order, Scalar, Variable};

/// The members of a `.zarray` that describe the encoding of chunks.
#[derive(Debug, PartialEq)]
pub(super) struct V2Chain {
    /// The byte order of the stored words.
    pub(super) byte_order: ByteOrder,
    pub(super) order: Order,
    pub(super) filters: Vec<Value>,
    pub(super) compressor: Value,
}

/// The Blosc compressors that v3 names.
const BLOSC_NAMES: [&str; 6] = ["blosclz", "lz4", "lz4hc", "snappy", "zlib", "zstd"];

/// The `shuffle` member for the element size, and its default in v2, in bytes (numcodecs).
const ELEMENT_SIZE: &str = "elementsize";
const V2_ELEMENT_SIZE: usize = 4;

/// Configuration members whose value is a number type.
const TYPES: [&str; 4] = ["dtype", "astype", "encode_dtype", "decode_dtype"];

/// Returns whether numcodecs has an array-to-array codec of that name.
fn is_filter(id: &str) -> bool {
    codec::is_array_to_array(id) && id != "transpose"
}

/// Returns whether v3 has the numcodecs bytes-to-bytes codec `numcodecs.<id>`. zarr-python has no
/// `numcodecs.base64`.
fn is_wrapped_bytes_codec(id: &str) -> bool {
    codec::is_bytes_to_bytes(id) && id != "base64"
}

/// Returns the last part of a v3 codec name, and whether the name begins with `numcodecs.`.
fn id(spec: &CodecSpec) -> (&str, bool) {
    match spec.name.strip_prefix("numcodecs.") {
        Some(id) => (id, true),
        None => (&spec.name, false),
    }
}

/// Returns whether a codec writes Zstandard frames.
pub(super) fn is_zstd(spec: &CodecSpec) -> bool {
    id(spec).0 == "zstd"
}

/// Translates a v3 chain without shards to v2.
///
/// # Errors
/// The codec that v2 cannot express, or cannot express at its position.
pub(super) fn to_v2(
    specs: &[CodecSpec],
    data_type: &DataType,
    rank: usize,
) -> Result<V2Chain, String> {
    let mut chain = V2Chain {
        byte_order: ByteOrder::Little,
        order: Order::C,
        filters: Vec::new(),
        compressor: Value::Null,
    };
    let no_form = |spec: &CodecSpec| format!("codec {} has no form in v2", spec.name);
    let mut specs = specs.iter().peekable();
    if let Some(spec) = specs.next_if(|spec| spec.name == "transpose") {
        chain.order = order(spec, rank)?;
    }
    while let Some(spec) = specs.next_if(|spec| is_filter(id(spec).0)) {
        if !id(spec).1 {
            return Err(no_form(spec));
        }
        chain
            .filters
            .push(filter_to_v2(spec, data_type, chain.filters.is_empty())?);
    }
    let Some(serializer) = specs.next() else {
        return Err("no codec makes bytes of the array".into());
    };
    match (id(serializer), data_type) {
        (("bytes" | "endian", false), DataType::Fixed(_)) => {
            if serializer.configuration.get("endian") == Some(&"big".into()) {
                chain.byte_order = ByteOrder::Big;
            }
            if chain.byte_order == ByteOrder::Big && !chain.filters.is_empty() {
                return Err("filters of big-endian numbers".into());
            }
        }
        ((name @ "pcodec", _) | (name @ "zfpy", true), DataType::Fixed(_))
            if chain.order == Order::C =>
        {
            chain.filters.push(with_id(name, &serializer.configuration));
        }
        (("vlen-utf8", _), DataType::Variable(Variable::Text))
        | (("vlen-bytes", _), DataType::Variable(Variable::Bytes))
            if chain.filters.is_empty() =>
        {
            chain.filters.push(json!({"id": id(serializer).0}));
        }
        _ => return Err(no_form(serializer)),
    }
    for spec in specs {
        let mut codec = bytes_to_v2(spec).ok_or_else(|| no_form(spec))?;
        if id(spec).0 == "shuffle" {
            let size_bytes = data_type.size_bytes();
            let size_bytes = size_bytes.ok_or("codec shuffle of elements of any size")?;
            write_element_size(&mut codec, size_bytes);
        }
        let before = std::mem::replace(&mut chain.compressor, codec);
        if !before.is_null() {
            chain.filters.push(before);
        }
    }
    // numcodecs decodes these two as filters, but not as the compressor of an array with two axes.
    let last = chain.compressor.get("id").and_then(Value::as_str);
    if matches!(last, Some("fletcher32" | "jenkins_lookup3")) {
        chain.filters.push(chain.compressor.take());
    }
    Ok(chain)
}

/// Returns the order of a `transpose` codec: C, or F with all axes reversed. v2 has no other order.
fn order(spec: &CodecSpec, rank: usize) -> Result<Order, String> {
    let value = spec.configuration.get("order").unwrap_or(&Value::Null);
    let axes: Option<Vec<u64>> = match value {
        Value::Array(axes) => axes.iter().map(Value::as_u64).collect(),
        _ => None,
    };
    let is = |mut order: Box<dyn Iterator<Item = u64>>| {
        axes.as_ref()
            .is_some_and(|axes| axes.iter().all(|axis| order.next() == Some(*axis)))
            && order.next().is_none()
    };
    let rank = rank as u64;
    match value.as_str() {
        Some("C") => Ok(Order::C),
        Some("F") => Ok(Order::F),
        _ if is(Box::new(0..rank)) => Ok(Order::C),
        _ if is(Box::new((0..rank).rev())) => Ok(Order::F),
        _ => Err(format!("transpose to {value} has no form in v2")),
    }
}

fn with_id(id: &str, configuration: &Map<String, Value>) -> Value {
    let mut codec = Map::new();
    codec.insert("id".into(), id.into());
    let members = configuration.iter().filter(|(name, _)| *name != "id");
    codec.extend(members.map(|(name, value)| (name.clone(), value.clone())));
    codec.into()
}

/// Writes the default element size of `shuffle`. In v3, it is that of the array (zarr-python).
fn write_element_size(configuration: &mut Value, default: usize) {
    if configuration.get(ELEMENT_SIZE).is_none_or(Value::is_null)
        && let Some(members) = configuration.as_object_mut()
    {
        members.insert(ELEMENT_SIZE.into(), default.into());
    }
}

fn filter_to_v2(spec: &CodecSpec, data_type: &DataType, is_first: bool) -> Result<Value, String> {
    let (id, _) = id(spec);
    check_little(spec)?;
    let mut codec = with_id(id, &spec.configuration);
    let needed = match id {
        "delta" | "fixedscaleoffset" | "quantize" => "dtype",
        "astype" => "decode_dtype",
        _ => return Ok(codec),
    };
    if codec.get(needed).is_none_or(Value::is_null) {
        let (Some(fixed), true) = (data_type.fixed(), is_first) else {
            return Err(format!("codec {} without {needed}", spec.name));
        };
        if let Some(members) = codec.as_object_mut() {
            members.insert(needed.into(), fixed.numpy_descr().into());
        }
    }
    Ok(codec)
}

/// Fails for filters of big-endian numbers, because v3 stores their byte order elsewhere.
fn check_little(spec: &CodecSpec) -> Result<(), String> {
    let named = TYPES
        .iter()
        .filter_map(|name| spec.configuration.get(*name));
    match named
        .filter_map(Value::as_str)
        .any(|name| name.starts_with('>'))
    {
        true => Err(format!("codec {} of big-endian numbers", spec.name)),
        false => Ok(()),
    }
}

fn bytes_to_v2(spec: &CodecSpec) -> Option<Value> {
    let (id, wrapped) = id(spec);
    let level = || spec.configuration.get("level").cloned();
    Some(match (id, wrapped) {
        ("crc32c", false) => json!({"id": id, "location": "end"}),
        ("crc32c", true) => with_id(id, &spec.configuration),
        // The header of each frame tells whether the frame has a checksum.
        ("zstd", false) => json!({"id": id, "level": level().unwrap_or(0.into())}),
        ("gzip", false) => json!({"id": id, "level": level().unwrap_or(5.into())}),
        ("blosc", false) => {
            let member = |name: &str| spec.configuration.get(name);
            let shuffle = match member("shuffle").and_then(Value::as_str) {
                Some("noshuffle") => 0,
                Some("bitshuffle") => 2,
                _ => 1,
            };
            let or = |name: &str, other: Value| member(name).cloned().unwrap_or(other);
            json!({
                "id": id,
                "cname": or("cname", "lz4".into()),
                "clevel": or("clevel", 5.into()),
                "shuffle": shuffle,
                "blocksize": or("blocksize", 0.into()),
            })
        }
        (id, true) if is_wrapped_bytes_codec(id) => with_id(id, &spec.configuration),
        _ => return None,
    })
}

/// Translates a v2 chain to v3.
///
/// # Errors
/// The codec that v3 cannot express, or cannot express at its position.
pub(super) fn to_v3(
    order: Order,
    filters: &[CodecSpec],
    compressor: Option<&CodecSpec>,
    data_type: &DataType,
    rank: usize,
) -> Result<Vec<Value>, String> {
    let no_form = |spec: &CodecSpec| format!("codec {} has no form in v3", spec.name);
    let mut codecs = Vec::new();
    if order == Order::F && rank > 1 {
        let axes: Vec<usize> = (0..rank).rev().collect();
        codecs.push(json!({"name": "transpose", "configuration": {"order": axes}}));
    }
    let mut specs = filters.iter().chain(compressor).peekable();
    match data_type {
        DataType::Variable(variable) => {
            let object = specs.next().ok_or("no codec makes bytes of objects")?;
            let is_same = match variable {
                Variable::Text => object.name == "vlen-utf8",
                Variable::Bytes => object.name == "vlen-bytes",
                Variable::Array(_) | Variable::Object => false,
            };
            if !is_same {
                return Err(no_form(object));
            }
            codecs.push(json!({"name": object.name}));
        }
        DataType::Fixed(fixed) => {
            let mut stored = fixed.clone();
            while let Some(spec) = specs.next_if(|spec| is_filter(&spec.name)) {
                stored = filter_to_v3(spec, stored)?;
                codecs.push(wrapped(spec));
            }
            if fixed.size_bytes == 1 && stored.size_bytes > 1 {
                // zarr-python gives such an array no byte order.
                return Err(
                    "filters that make more bytes of single ones have no form in v3".into(),
                );
            }
            match specs.next_if(|spec| matches!(&*spec.name, "pcodec" | "zfpy")) {
                Some(spec) if byte_order(&stored)? != Some(ByteOrder::Little) => {
                    return Err(format!("codec {} of big-endian numbers", spec.name));
                }
                Some(spec) if order == Order::F && rank > 1 => {
                    return Err(format!("codec {} with order F", spec.name));
                }
                Some(spec) => codecs.push(wrapped(spec)),
                None => codecs.push(match byte_order(&stored)? {
                    Some(ByteOrder::Big) => {
                        json!({"name": "bytes", "configuration": {"endian": "big"}})
                    }
                    Some(ByteOrder::Little) if !matches!(stored.scalar, Scalar::Struct(_)) => {
                        json!({"name": "bytes", "configuration": {"endian": "little"}})
                    }
                    _ => json!({"name": "bytes"}),
                }),
            }
        }
    }
    for spec in specs {
        codecs.push(bytes_to_v3(spec, data_type).ok_or_else(|| no_form(spec))?);
    }
    Ok(codecs)
}

/// Returns the v3 form of a numcodecs codec.
fn wrapped(spec: &CodecSpec) -> Value {
    let mut configuration = Value::from(spec.configuration.clone());
    if spec.name == "shuffle" {
        write_element_size(&mut configuration, V2_ELEMENT_SIZE);
    }
    json!({"name": format!("numcodecs.{}", spec.name), "configuration": configuration})
}

/// Returns the type as which a filter stores numbers of type `decoded`.
fn filter_to_v3(spec: &CodecSpec, decoded: Fixed) -> Result<Fixed, String> {
    let odd = |what: &str| Err(format!("codec {} {what}", spec.name));
    check_little(spec)?;
    if byte_order(&decoded)? == Some(ByteOrder::Big) {
        return odd("of big-endian numbers");
    }
    let named = |name: &str| match spec.configuration.get(name) {
        None | Some(Value::Null) => Ok(None),
        Some(value) => v2::fixed(value)
            .map(Some)
            .map_err(|error| error.to_string()),
    };
    let (from, to) = match spec.name.as_str() {
        "bitround" => return Ok(decoded),
        "packbits" if decoded.scalar == Scalar::Bool => {
            return v2::fixed(&"|u1".into()).map_err(|error| error.to_string());
        }
        "packbits" => return odd("of other than booleans"),
        "astype" => (named("decode_dtype")?, named("encode_dtype")?),
        _ => (named("dtype")?, named("astype")?),
    };
    let Some(from) = from else {
        return odd("without the type of its numbers");
    };
    let to = to.unwrap_or_else(|| from.clone());
    if from != decoded {
        return odd("of another type than the array");
    }
    if spec.name == "quantize" && from != to {
        return odd("to another type has no form in v3");
    }
    Ok(to)
}

fn bytes_to_v3(spec: &CodecSpec, data_type: &DataType) -> Option<Value> {
    let member = |name: &str| spec.configuration.get(name);
    let level = |default: i64| member("level").and_then(Value::as_i64).unwrap_or(default);
    // Levels matter only to writers, but zarr-python does not open an array with a level out of range.
    let configuration = match spec.name.as_str() {
        "crc32c" => {
            let location = member("location").and_then(Value::as_str);
            return match location.unwrap_or("end") {
                "end" => Some(json!({"name": "crc32c"})),
                _ => Some(wrapped(spec)),
            };
        }
        "zstd" => {
            let has_checksum = member("checksum") == Some(&Value::Bool(true));
            json!({"level": level(0).clamp(-131_072, 22), "checksum": has_checksum})
        }
        "gzip" => json!({"level": level(1).clamp(0, 9)}),
        "blosc" => blosc(spec, data_type)?,
        id if is_wrapped_bytes_codec(id) => return Some(wrapped(spec)),
        _ => return None,
    };
    Some(json!({"name": spec.name, "configuration": configuration}))
}

/// Returns the v3 configuration of Blosc, whose `typesize` is the size of the elements.
fn blosc(spec: &CodecSpec, data_type: &DataType) -> Option<Value> {
    let member = |name: &str| spec.configuration.get(name);
    // Blosc treats elements of 256 or more bytes as single bytes.
    let item_bytes = data_type
        .size_bytes()
        .filter(|size| *size < 256)
        .unwrap_or(1);
    let shuffle = match member("shuffle").and_then(Value::as_i64).unwrap_or(1) {
        0 => "noshuffle",
        1 => "shuffle",
        2 => "bitshuffle",
        // The filter depends on the element size.
        -1 if item_bytes == 1 => "bitshuffle",
        -1 => "shuffle",
        _ => return None,
    };
    // Each chunk contains the other settings, which matter only to writers.
    let cname = member("cname").and_then(Value::as_str);
    let cname = cname.filter(|name| BLOSC_NAMES.contains(name));
    let level = member("clevel").and_then(Value::as_i64);
    let block_bytes = member("blocksize").and_then(Value::as_u64);
    Some(json!({
        "typesize": item_bytes,
        "cname": cname.unwrap_or("lz4"),
        "clevel": level.unwrap_or(5).clamp(0, 9),
        "shuffle": shuffle,
        "blocksize": block_bytes.unwrap_or(0),
    }))
}

#[cfg(test)]
mod tests;
