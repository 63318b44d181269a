//! The codecs of virtual-tiff: predictors of TIFF, and samples of one pixel side by side.

use super::{ArrayStep, Builder, Serializer, after_filters};
use crate::codec::config::Config;
use crate::codec::error::CodecError;
use crate::codec::number::Number;
use crate::codec::registry;
use crate::zarr::ByteOrder;

impl Builder<'_> {
    /// Adds `HorizontalDeltaCodec`, `imagecodecs_delta` or `imagecodecs_floatpred`.
    pub(super) fn predictor(
        &mut self,
        config: Config<'_>,
        is_of_bytes: bool,
    ) -> Result<(), CodecError> {
        let fixed = self.fixed(config)?;
        let Some(number) = Number::counted(fixed) else {
            return Err(config.invalid(format!("{fixed} is no number")));
        };
        if let Some(own) = config.number("dtype")? {
            if own.width != number.width {
                let what = format!("numbers of {} bytes in {}", own.width, self.data_type);
                return Err(config.invalid(what));
            }
            if own.order == ByteOrder::Big {
                let what = format!("{} of big-endian numbers", config.codec);
                return Err(CodecError::unsupported(what));
            }
        }
        if let Some(own) = config.integers("shape")?
            && own != self.shape
        {
            let what = format!("shape is {own:?}, the array has {:?}", self.shape);
            return Err(config.invalid(what));
        }
        let stage = registry::predictor(config, is_of_bytes, Some(&self.shape), Some(number))?;
        self.arrays.extend(stage.map(|stage| match is_of_bytes {
            true => ArrayStep::Bytes(stage),
            false => ArrayStep::Stage(stage),
        }));
        self.fill = Err(after_filters(config));
        Ok(())
    }

    /// Adds `ChunkyCodec`: the elements in column-major order.
    pub(super) fn chunky(&mut self, config: Config<'_>) -> Result<(), CodecError> {
        let swap = self.swap(config)?;
        self.permute(config, (0..self.shape.len()).rev().collect())?;
        self.serializer = Some(Serializer::Bytes(swap));
        Ok(())
    }
}
