//! Codecs of zarr-extensions whose configuration contains other codecs: `conditional` and `n5_default`.

use super::sharding::specs;
use super::{Builder, MAX_NESTING_DEPTH, Serializer};
use crate::codec::MAX_CODECS;
use crate::codec::conditional::Conditional;
use crate::codec::config::Config;
use crate::codec::error::CodecError;
use crate::codec::n5_block::N5Block;
use crate::codec::registry::{self, Codec};
use crate::codec::stage::{Action, Stage};
use crate::zarr::CodecSpec;

impl Builder<'_> {
    pub(super) fn conditional(&self, config: Config<'_>) -> Result<Stage, CodecError> {
        let mut codecs_left = MAX_CODECS;
        self.conditional_within(config, self.context.depth, &mut codecs_left)
    }

    /// Builds a `conditional` codec. `depth` is the number of codecs that contain it, `codecs_left` the number of
    /// codecs that it may have, those of nested `conditional` codecs included.
    fn conditional_within(
        &self,
        config: Config<'_>,
        depth: usize,
        codecs_left: &mut usize,
    ) -> Result<Stage, CodecError> {
        config.only(&["codecs", "header_bits"])?;
        if depth >= MAX_NESTING_DEPTH {
            let what = format!("codecs nest deeper than {MAX_NESTING_DEPTH}");
            return Err(config.invalid(what));
        }
        let codecs = config.required("codecs", specs(config, "codecs")?)?;
        *codecs_left = codecs_left
            .checked_sub(codecs.len())
            .ok_or_else(|| config.invalid(format!("more than {MAX_CODECS} codecs")))?;
        let header_bytes = match config.u64("header_bits")? {
            None => codecs.len().div_ceil(8),
            Some(bits) => usize::try_from(bits)
                .ok()
                .filter(|bits| bits.is_multiple_of(8) && *bits >= codecs.len() && *bits <= 1024)
                .map(|bits| bits / 8)
                .ok_or_else(|| config.invalid(format!("header_bits is {bits}")))?,
        };
        let mut stages = Vec::with_capacity(codecs.len());
        for spec in &codecs {
            stages.push(self.bytes_stage(config, spec, depth, codecs_left)?);
        }
        Ok(Stage::decode(
            config.codec,
            Conditional::new(header_bytes, stages),
        ))
    }

    /// Returns the stage of a bytes-to-bytes codec in a configuration; `None` if it changes no byte.
    fn bytes_stage(
        &self,
        outer: Config<'_>,
        spec: &CodecSpec,
        depth: usize,
        codecs_left: &mut usize,
    ) -> Result<Option<Stage>, CodecError> {
        let id = spec.name.strip_prefix("numcodecs.");
        let config = super::config(spec);
        match registry::find(id.unwrap_or(&spec.name)) {
            Some(Codec::BytesToBytes(new)) => new(config, self.shuffled_bytes),
            Some(Codec::Conditional) if id.is_none() => self
                .conditional_within(config, depth + 1, codecs_left)
                .map(Some),
            _ => Err(CodecError::unsupported(format!(
                "{} in {}",
                spec.name, outer.codec
            ))),
        }
    }

    /// Builds the stages of N5 blocks: elements in reversed order of the axes, big-endian, with a header.
    pub(super) fn n5_default(&mut self, config: Config<'_>) -> Result<Serializer, CodecError> {
        config.only(&["codecs"])?;
        let codecs = config.required("codecs", specs(config, "codecs")?)?;
        let (transpose, bytes, compressor) = match &codecs[..] {
            [transpose, bytes] => (transpose, bytes, None),
            [transpose, bytes, compressor] => (transpose, bytes, Some(compressor)),
            _ => return Err(config.invalid(format!("{} codecs instead of 2 or 3", codecs.len()))),
        };
        let rank = self.shape.len() as u64;
        let order = super::config(transpose).integers("order")?;
        let is_full = transpose.name == "transpose"
            && order.is_some_and(|order| order.into_iter().eq((0..rank).rev()));
        if !is_full {
            return Err(config.invalid("the first codec does not reverse all axes"));
        }
        let inner = super::config(bytes);
        let is_big = inner.str("endian")? == Some("big");
        let has_words = !self.fixed(config)?.words().is_empty();
        if bytes.name != "bytes" || has_words && !is_big {
            return Err(config.invalid("the second codec is not bytes, big-endian"));
        }
        let mut codecs_left = MAX_CODECS;
        let stage = match compressor {
            Some(spec) => self.bytes_stage(config, spec, self.context.depth, &mut codecs_left)?,
            None => None,
        };
        if let Some(stage) = &stage
            && !matches!(stage.action, Action::Decode(_))
        {
            return Err(CodecError::unsupported(format!(
                "{} in {}",
                stage.name, config.codec
            )));
        }
        self.transpose(super::config(transpose))?;
        let swap = self.swap(inner)?;
        if let Some(name) = self.names.last_mut() {
            *name = match compressor {
                Some(spec) => format!("{}({})", config.codec, spec.name),
                None => config.codec.to_owned(),
            };
        }
        let block = N5Block::new(&self.shape, self.element_bytes(), stage);
        Ok(Serializer::N5(Stage::decode(config.codec, block), swap))
    }
}
