//! The configuration of `optional`.

use super::sharding::specs;
use super::{Builder, MAX_NESTING_DEPTH};
use crate::codec::config::Config;
use crate::codec::error::CodecError;
use crate::codec::optional::{Optional, Values};
use crate::codec::pipeline::Pipeline;
use crate::codec::stage::Stage;
use crate::zarr::{CodecChain, DataType, FillValue, Fixed, Scalar};

impl Builder<'_> {
    pub(super) fn optional(&self, config: Config<'_>) -> Result<Stage, CodecError> {
        config.only(&["mask_codecs", "data_codecs"])?;
        if self.context.depth >= MAX_NESTING_DEPTH {
            let what = format!("codecs nest deeper than {MAX_NESTING_DEPTH}");
            return Err(config.invalid(what));
        }
        let value = self.fixed(config)?.optional_value();
        let value = value.ok_or_else(|| {
            config.invalid(format!("encodes optional elements, not {}", self.data_type))
        })?;
        let chain = |name: &str| {
            let specs = config.required(name, specs(config, name)?)?;
            Ok::<_, CodecError>(CodecChain::V3(specs))
        };
        let context = self.context.nested();
        let mark = DataType::Fixed(Fixed {
            scalar: Scalar::Bool,
            size_bytes: 1,
        });
        let (marks, fill) = (chain("mask_codecs")?, FillValue::Undefined);
        let marks = Pipeline::build(&marks, &mark, &self.shape, &fill, context)?;
        let values = Values {
            chain: chain("data_codecs")?,
            data_type: DataType::Fixed(value.clone()),
            item_bytes: value.size_bytes,
            context,
        };
        // The number of values does not affect whether these codecs are supported.
        values.pipeline(1)?;
        Ok(Stage::decode(config.codec, Optional::new(marks, values)))
    }
}
