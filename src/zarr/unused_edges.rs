//! Edges of inner chunks along axes of length 0.
//!
//! No chunk exists along an axis of length 0, so that any edge of its inner chunks is valid, as any edge of its
//! chunks is ([`ChunkGrid`]): zarr-python writes `"chunk_shape": [0, 4]` for arrays of the shape `[0, 4]`. Codecs
//! know the shape of a chunk, not that of the array, so that these edges are replaced in their configuration.

use serde_json::{Map, Value};

use super::codec_chain::{CodecChain, named_configuration};
use super::grid::ChunkGrid;

/// An axis of chunks: its edge, and whether the array has length 0 along it.
type Axis = (u64, bool);

/// The number of shards within shards of which edges are replaced; codecs refuse deeper ones.
const MAX_DEPTH: usize = 16;

/// Replaces edges of inner chunks that do not divide those of their shards, along axes of length 0.
pub(super) fn replace(codecs: &mut CodecChain, grid: &ChunkGrid) {
    let CodecChain::V3(specs) = codecs else {
        return;
    };
    if !grid.array_shape().contains(&0) {
        return;
    }
    let edges = grid.largest_chunk_shape();
    let lengths = grid.array_shape().iter();
    let mut axes = edges.into_iter().zip(lengths.map(|n| *n == 0)).collect();
    for spec in specs {
        let configuration = &mut spec.configuration;
        if !replace_in(&spec.name, configuration, &mut axes, MAX_DEPTH) {
            return;
        }
    }
}

/// Replaces the edges in one codec, and permutes the axes as it does. Returns whether the next codec also has
/// these axes.
fn replace_in(
    name: &str,
    configuration: &mut Map<String, Value>,
    axes: &mut Vec<Axis>,
    depth: usize,
) -> bool {
    match name {
        "transpose" => match transposed(axes, configuration.get("order")) {
            Some(permuted) => {
                *axes = permuted;
                true
            }
            None => false,
        },
        "sharding_indexed" => {
            replace_inner(configuration, axes, depth);
            false
        }
        "reshape" => false,
        _ => true,
    }
}

fn transposed(axes: &[Axis], order: Option<&Value>) -> Option<Vec<Axis>> {
    let order = order?
        .as_array()
        .filter(|order| order.len() == axes.len())?;
    let axis = |index: &Value| axes.get(usize::try_from(index.as_u64()?).ok()?).copied();
    order.iter().map(axis).collect()
}

/// Replaces the edges of the inner chunks of a shard, and of the shards among its inner chunks.
fn replace_inner(configuration: &mut Map<String, Value>, axes: &[Axis], depth: usize) {
    let Some(inner) = configuration
        .get_mut("chunk_shape")
        .and_then(Value::as_array_mut)
    else {
        return;
    };
    if inner.len() != axes.len() || depth == 0 {
        return;
    }
    let mut inner_axes = Vec::new();
    for (edge, (outer, is_unused)) in inner.iter_mut().zip(axes) {
        let Some(mut size) = edge.as_u64() else {
            return;
        };
        let divides = size > 0 && outer.is_multiple_of(size);
        if *is_unused && !divides {
            size = *outer;
            *edge = size.into();
        }
        inner_axes.push((size, *is_unused));
    }
    let Some(codecs) = configuration
        .get_mut("codecs")
        .and_then(Value::as_array_mut)
    else {
        return;
    };
    for codec in codecs {
        let Ok((name, Some(_))) = named_configuration("codecs", codec) else {
            continue;
        };
        let name = name.to_owned();
        let configuration = codec.get_mut("configuration");
        let Some(configuration) = configuration.and_then(Value::as_object_mut) else {
            return;
        };
        if !replace_in(&name, configuration, &mut inner_axes, depth - 1) {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn replaced(shape: &[u64], shard: &[u64], codecs: Value) -> Value {
        let mut chain = CodecChain::from_v3(&codecs).unwrap();
        replace(&mut chain, &ChunkGrid::regular(shape, shard).unwrap());
        let specs = chain
            .specs()
            .map(|spec| json!({"name": spec.name, "configuration": spec.configuration}));
        specs.collect()
    }

    fn shards(edges: Value, inner: Value) -> Value {
        json!({"name": "sharding_indexed", "configuration": {"chunk_shape": edges, "codecs": inner}})
    }

    #[test]
    fn edges_of_inner_chunks_are_replaced_along_axes_of_length_0_only() {
        let bytes = json!(["bytes"]);
        for (shape, shard, inner, expected) in [
            ([0, 4], [0, 4], json!([0, 2]), json!([1, 2])),
            ([0, 4], [8, 4], json!([0, 2]), json!([8, 2])),
            ([0, 4], [8, 4], json!([3, 2]), json!([8, 2])),
            ([0, 4], [8, 4], json!([4, 0]), json!([4, 0])),
            ([5, 4], [8, 4], json!([0, 3]), json!([0, 3])),
            ([0, 4], [8, 4], json!([0]), json!([0])),
            ([0, 4], [8, 4], json!(["x", 2]), json!(["x", 2])),
        ] {
            let found = replaced(&shape, &shard, json!([shards(inner, bytes.clone())]));
            assert_eq!(found, json!([shards(expected, bytes.clone())]));
        }
    }

    #[test]
    fn edges_of_nested_and_transposed_shards_are_replaced() {
        let transpose = json!({"name": "transpose", "configuration": {"order": [1, 0]}});
        let nested =
            |outer, inner| shards(outer, json!([transpose, shards(inner, json!(["bytes"]))]));
        let found = replaced(
            &[0, 4],
            &[0, 4],
            json!([transpose, nested(json!([2, 0]), json!([0, 1]))]),
        );
        let expected = json!([transpose, nested(json!([2, 1]), json!([1, 1]))]);
        assert_eq!(found, expected);
        let reshape = json!({"name": "reshape", "configuration": {"shape": [4, 0]}});
        let codecs = json!([reshape, shards(json!([0, 2]), json!(["bytes"]))]);
        let unchanged = json!([reshape, shards(json!([0, 2]), json!(["bytes"]))]);
        assert_eq!(replaced(&[0, 4], &[0, 4], codecs), unchanged);
    }
}
