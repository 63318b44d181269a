//! The codecs that turn bytes into elements of variable length.

use std::sync::Arc;

use super::categorize::Categorize;
use super::element::{Budget, Element};
use super::error::Fault;
use super::shard::Sharding;
use super::vlen::Item;
use super::{json, msgpack};

/// One of them.
#[derive(Debug)]
pub(super) enum Object {
    Vlen(Item),
    Json,
    MsgPack,
    Categorize(Categorize),
    Shard(Arc<Sharding>),
}

impl Object {
    /// Exactly `expected` elements, in the order of the stored bytes.
    pub(super) fn decode(
        &self,
        src: &[u8],
        expected: u64,
        budget: &mut Budget,
    ) -> Result<Vec<Element>, Fault> {
        match self {
            Self::Vlen(item) => item.decode(src, expected, budget),
            Self::Json => json::decode(src, expected, budget),
            Self::MsgPack => msgpack::decode(src, expected, budget),
            Self::Categorize(labels) => labels.elements(src, expected, budget),
            Self::Shard(sharding) => sharding.elements(src, expected, budget),
        }
    }
}
