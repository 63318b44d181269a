//! The codecs for elements of variable length ("object codecs" in Zarr v2).

use std::sync::Arc;

use super::categorize::Categorize;
use super::element::{Budget, Element};
use super::error::DecodeError;
use super::shard::Sharding;
use super::vlen::Item;
use super::{json, msgpack};

/// A codec for elements of variable length.
#[derive(Debug)]
pub(super) enum ObjectCodec {
    Vlen(Item),
    Json,
    MsgPack,
    Categorize(Categorize),
    Shard(Arc<Sharding>),
}

impl ObjectCodec {
    /// Decodes exactly `expected` elements, in the order of the stored bytes.
    pub(super) fn decode(
        &self,
        src: &[u8],
        expected: u64,
        budget: &mut Budget,
    ) -> Result<Vec<Element>, DecodeError> {
        match self {
            Self::Vlen(item) => item.decode(src, expected, budget),
            Self::Json => json::decode(src, expected, budget),
            Self::MsgPack => msgpack::decode(src, expected, budget),
            Self::Categorize(labels) => labels.elements(src, expected, budget),
            Self::Shard(sharding) => sharding.elements(src, expected, budget),
        }
    }
}
