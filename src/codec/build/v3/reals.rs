//! Codecs from real numbers to real numbers, which encode the fill value too.

use std::borrow::Cow;

use super::{ArrayStep, Builder};
use crate::codec::config::Config;
use crate::codec::error::CodecError;
use crate::codec::reals::{RealCodec, RealFilter, word};
use crate::codec::stage::{Action, Stage};
use crate::zarr::{ByteOrder, DataType, FillValue, Fixed};

impl Builder<'_> {
    pub(super) fn reals(
        &mut self,
        config: Config<'_>,
        new: fn(Config<'_>, &Fixed) -> Result<RealFilter, CodecError>,
    ) -> Result<(), CodecError> {
        let decoded = self.fixed(config)?.clone();
        if decoded != decoded.with_order(ByteOrder::Little) {
            let what = format!("{} of big-endian numbers", config.codec);
            return Err(CodecError::unsupported(what));
        }
        let filter = new(config, &decoded)?;
        if let Some(codec) = filter.codec {
            if let Ok(fill) = &self.fill {
                let encoded = encoded_fill(fill, &*codec, &decoded, &filter.encoded);
                self.fill = encoded
                    .map(Cow::Owned)
                    .map_err(|error| config.invalid(format!("the fill value: {error}")));
            }
            self.arrays.push(ArrayStep::Stage(Stage {
                name: config.codec.to_owned(),
                action: Action::Decode(codec),
            }));
        }
        self.data_type = DataType::Fixed(filter.encoded);
        Ok(())
    }
}

/// Returns the fill value of the encoded array; an undefined fill value counts as zero.
fn encoded_fill(
    fill: &FillValue,
    codec: &dyn RealCodec,
    decoded: &Fixed,
    encoded: &Fixed,
) -> Result<FillValue, CodecError> {
    let fill = match fill {
        FillValue::Fixed(bytes) if bytes.len() == decoded.size_bytes => word(bytes),
        _ => 0,
    };
    let word = codec.encode_word(fill);
    let bytes = word
        .map_err(|error| error.in_codec("fill_value"))?
        .to_le_bytes();
    let bytes = bytes.get(..encoded.size_bytes).unwrap_or(&bytes);
    Ok(FillValue::Fixed(bytes.to_vec()))
}
