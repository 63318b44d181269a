//! `imagecodecs_jpegxl`, and `jpegxl` of zarr-extensions (pull request 70): JPEG XL images (ISO/IEC 18181).
//!
//! Lossless images have the values that were encoded. Lossy ones of whole numbers differ from those of libjxl by at
//! most 1; lossy ones of floats by more, and are refused.

use half::f16;
use jxl_bitstream::{Bitstream, ContainerParser, ParseEvent};
use jxl_oxide::image::{BitDepth, ImageHeader};
use jxl_oxide::{AllocTracker, InitializeResult, JxlImage, JxlThreadPool, Render};
use jxl_oxide_common::Bundle;

use super::loose;
use crate::codec::config::Config;
use crate::codec::error::{CodecError, DecodeError, part, part_mut};
use crate::codec::number::{Number, NumberKind};
use crate::codec::scratch::Scratch;
use crate::codec::stage::{Decode, Size};
use crate::zarr::ByteOrder;

/// The memory of a sample in the decoder, in bytes: planes of 32 bits, and those that a transform reads.
const SAMPLE_BYTES: usize = 16;
/// The memory of the decoder besides samples, in bytes.
const DECODER_BYTES: usize = 16 << 20;
/// The first bytes of a codestream, which may be in a container.
const CODESTREAM: [u8; 2] = [0xff, 0x0a];
/// The number of bytes after which the frames are counted.
const PIECE_BYTES: usize = 4096;
/// The largest number of frames of each image that is shown: layers, and references for others.
const MAX_FRAMES_PER_IMAGE: usize = 64;
/// The number of samples that are converted at a time.
const BLOCK: usize = 1024;

/// Decodes `imagecodecs_jpegxl` and `jpegxl`.
#[derive(Debug)]
pub(in crate::codec) struct JpegXl {
    /// The one image of an animation that is decoded; `None` for all.
    index: Option<usize>,
    /// The elements and the shape without axes of length 1, if the metadata have them.
    array: Option<(Number, Vec<u64>)>,
}

/// How a sample is stored in a chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Sample {
    /// A whole number in this many bytes, up to a maximum.
    UInt(usize, u16),
    Half,
    Single,
}

impl JpegXl {
    /// Parses the configuration of `imagecodecs_jpegxl`.
    ///
    /// # Errors
    /// An option that changes the decoded image in a way that is not supported.
    pub(in crate::codec) fn new(config: Config<'_>) -> Result<Self, CodecError> {
        if config.bool("keeporientation")? == Some(true) {
            let what = format!("{} with keeporientation", config.codec);
            return Err(CodecError::unsupported(what));
        }
        let index = config.u64("index")?.map(usize::try_from).transpose();
        Ok(Self {
            index: index.map_err(|_| config.invalid("index is too large"))?,
            array: None,
        })
    }

    /// Parses the configuration of `jpegxl`, for an array of this shape: images, rows, columns and samples, of which
    /// the first and the last may be left out.
    ///
    /// # Errors
    /// JPEG XL has no such elements.
    pub(in crate::codec) fn of_array(
        config: Config<'_>,
        number: Option<Number>,
        shape: &[u64],
    ) -> Result<Self, CodecError> {
        let fits = |number: &Number| {
            matches!(
                (number.kind, number.width),
                (NumberKind::UInt, 1 | 2) | (NumberKind::Float, 2 | 4)
            )
        };
        let number = number.filter(fits).ok_or_else(|| {
            config.invalid("encodes uint8, uint16, float16 and float32, no other data types")
        })?;
        Ok(Self {
            array: Some((number, without_ones(shape.iter().copied()))),
            ..Self::new(config)?
        })
    }

    /// Decodes a codestream.
    fn images(&self, src: &[u8], dst: &mut [u8]) -> Result<usize, DecodeError> {
        // Compared with the chunk before the decoder allocates anything.
        let header = header(src)?;
        let form = Form::of(&header)?;
        let frame_bytes = form.frame_bytes();
        let most = match frame_bytes.and_then(|bytes| dst.len().checked_div(bytes)) {
            Some(most) if most > 0 => most,
            _ => {
                let bytes = frame_bytes.map_or(u64::MAX, |bytes| bytes as u64);
                return Err(DecodeError::declared_size(bytes, dst.len()));
            }
        };
        let image = load(src, dst.len(), most)?;
        let frames = image.num_loaded_keyframes();
        let frames = match self.index {
            None => 0..frames,
            Some(index) if index < frames => index..index + 1,
            Some(index) => {
                let what = format!("JPEG XL: no image {index}, there are {frames}");
                return Err(DecodeError::corrupt(what));
            }
        };
        let order = self.order(&form, frames.len())?;
        let frame_bytes = frame_bytes.unwrap_or(0);
        if frames.len() > most {
            let size = (frames.len() as u64).saturating_mul(frame_bytes as u64);
            return Err(DecodeError::declared_size(size, dst.len()));
        }
        let mut at = 0;
        for frame in frames {
            let rendered = image.render_frame(frame).map_err(|error| corrupt(&error))?;
            let dst = part_mut(dst, at..at + frame_bytes)?;
            form.sample.write(&rendered, order, dst)?;
            at += frame_bytes;
        }
        Ok(at)
    }

    /// Returns the byte order of the elements.
    ///
    /// # Errors
    /// The images are not those of the array.
    fn order(&self, form: &Form, frames: usize) -> Result<ByteOrder, DecodeError> {
        let Some((number, shape)) = &self.array else {
            return Ok(ByteOrder::Little);
        };
        let found = [frames as u64, form.height, form.width, form.channels];
        let is_float = !matches!(form.sample, Sample::UInt(..));
        let fits = form.sample.width() == number.width
            && is_float == (number.kind == NumberKind::Float)
            && *shape == without_ones(found.into_iter());
        match fits {
            true => Ok(number.order),
            false => {
                let sample = form.sample;
                let what = format!("JPEG XL: images of {found:?} as {sample:?}, expected {self:?}");
                Err(DecodeError::corrupt(what))
            }
        }
    }
}

/// The form of each image of a codestream.
#[derive(Debug)]
struct Form {
    height: u64,
    width: u64,
    channels: u64,
    sample: Sample,
}

impl Form {
    fn of(header: &ImageHeader) -> Result<Self, DecodeError> {
        let sample = sample(header)?;
        let colors = if header.metadata.grayscale() { 1 } else { 3 };
        Ok(Self {
            height: header.height_with_orientation().into(),
            width: header.width_with_orientation().into(),
            channels: colors + header.metadata.ec_info.len() as u64,
            sample,
        })
    }

    /// Returns the number of samples of an image.
    fn samples(&self) -> Option<usize> {
        let pixels = self.height.checked_mul(self.width)?;
        usize::try_from(pixels.checked_mul(self.channels)?).ok()
    }

    /// Returns the size of an image in the chunk.
    fn frame_bytes(&self) -> Option<usize> {
        self.samples()?.checked_mul(self.sample.width())
    }
}

/// Calls `read` with the codestream of an image. The other boxes of a container are not read: a few bytes of them can be
/// as long as any memory, once they are decompressed.
fn with_codestream<T>(
    src: &[u8],
    read: impl FnOnce(&[u8]) -> Result<T, DecodeError>,
) -> Result<T, DecodeError> {
    if src.starts_with(&CODESTREAM) {
        return read(src);
    }
    let mut whole = Scratch::new(src.len())?;
    let (mut filled, mut rest) = (0, src);
    let mut parser = ContainerParser::new();
    while !rest.is_empty() {
        for event in parser.feed_bytes(rest) {
            if let ParseEvent::Codestream(bytes) = event.map_err(|error| corrupt(&error))? {
                let target = filled..filled + bytes.len();
                part_mut(whole.bytes_mut()?, target)?.copy_from_slice(bytes);
                filled += bytes.len();
            }
        }
        let consumed = parser.previous_consumed_bytes();
        rest = rest.get(consumed..).filter(|_| consumed > 0).unwrap_or(&[]);
    }
    let codestream = part(whole.bytes()?, 0..filled)?;
    match codestream.starts_with(&CODESTREAM) {
        true => read(codestream),
        false => Err(DecodeError::corrupt("not a JPEG XL image")),
    }
}

/// Parses the header of a codestream.
fn header(src: &[u8]) -> Result<ImageHeader, DecodeError> {
    ImageHeader::parse(&mut Bitstream::new(src), ()).map_err(|error| corrupt(&error))
}

/// Reads all images of a codestream, of which at most this many are shown.
fn load(src: &[u8], decoded_bytes: usize, most: usize) -> Result<JxlImage, DecodeError> {
    let memory = decoded_bytes.saturating_mul(SAMPLE_BYTES);
    let tracker = AllocTracker::with_limit(memory.saturating_add(DECODER_BYTES));
    let builder = JxlImage::builder()
        .pool(JxlThreadPool::none())
        .alloc_tracker(tracker);
    let mut unread = Some(builder.build_uninit());
    let mut image: Option<JxlImage> = None;
    for part in src.chunks(PIECE_BYTES) {
        if let Some(image) = &mut image {
            image.feed_bytes(part).map_err(|error| corrupt(&error))?;
        } else if let Some(mut before) = unread.take() {
            before.feed_bytes(part).map_err(|error| corrupt(&error))?;
            match before.try_init().map_err(|error| corrupt(&error))? {
                InitializeResult::NeedMoreData(before) => unread = Some(before),
                InitializeResult::Initialized(found) => image = Some(found),
            }
        }
        // An image that is not shown takes memory and few bytes.
        let frames = image.as_ref().map_or(0, JxlImage::num_loaded_frames);
        if frames > most.saturating_add(1).saturating_mul(MAX_FRAMES_PER_IMAGE) {
            let what = format!("JPEG XL: more than {frames} frames of {most} images");
            return Err(DecodeError::corrupt(what));
        }
        if image.as_ref().is_some_and(JxlImage::is_loading_done) {
            break;
        }
    }
    match image {
        Some(image) if image.is_loading_done() => Ok(image),
        _ => Err(DecodeError::corrupt("JPEG XL: the end is missing")),
    }
}

/// Returns a shape without axes of length 1.
fn without_ones(shape: impl Iterator<Item = u64>) -> Vec<u64> {
    shape.filter(|length| *length != 1).collect()
}

/// Returns how samples are stored, as imagecodecs does.
fn sample(header: &ImageHeader) -> Result<Sample, DecodeError> {
    let metadata = &header.metadata;
    let refused = |what: &str| Err(DecodeError::corrupt(format!("JPEG XL: {what}")));
    let is_alpha = |extra: &jxl_oxide::image::ExtraChannelInfo| extra.is_alpha();
    if metadata.ec_info.len() > 1 || !metadata.ec_info.iter().all(is_alpha) {
        return refused("channels besides colours and one alpha are not supported");
    }
    // The decoder allocates as much for it as the image says, up to 256 MiB.
    if metadata.colour_encoding.want_icc() {
        return refused("images with a profile of colours (ICC) are not supported");
    }
    let depth = metadata.bit_depth;
    if metadata
        .ec_info
        .iter()
        .any(|extra| extra.bit_depth != depth)
    {
        return refused("an alpha of another depth is not supported");
    }
    match depth {
        BitDepth::IntegerSample {
            bits_per_sample: bits @ 1..=16,
        } => {
            let bytes = if bits <= 8 { 1 } else { 2 };
            Ok(Sample::UInt(bytes, u16::MAX >> (16 - bits)))
        }
        BitDepth::FloatSample { .. } if metadata.xyb_encoded => {
            refused("lossy images of floats are not supported")
        }
        BitDepth::FloatSample {
            bits_per_sample: 16,
            exp_bits: 5,
        } => Ok(Sample::Half),
        BitDepth::FloatSample {
            bits_per_sample: 32,
            exp_bits: 8,
        } => Ok(Sample::Single),
        other => refused(&format!("samples of {other:?} are not supported")),
    }
}

impl Sample {
    /// Returns the size in bytes.
    fn width(self) -> usize {
        match self {
            Self::UInt(bytes, _) => bytes,
            Self::Half => 2,
            Self::Single => 4,
        }
    }

    /// Fills `dst` with the pixels of an image.
    fn write(self, image: &Render, order: ByteOrder, dst: &mut [u8]) -> Result<(), DecodeError> {
        let mut stream = image.stream();
        let mut block = [0_f32; BLOCK];
        for target in dst.chunks_mut(BLOCK * self.width()) {
            let samples = block.get_mut(..target.len() / self.width());
            let samples = samples.ok_or_else(|| DecodeError::internal("a block is too short"))?;
            if stream.write_to_buffer(samples) != samples.len() {
                return Err(DecodeError::corrupt("JPEG XL: too few samples"));
            }
            self.store(samples, target);
            if order == ByteOrder::Big {
                let elements = target.chunks_exact_mut(self.width());
                elements.for_each(<[u8]>::reverse);
            }
        }
        match stream.write_to_buffer(&mut [0_f32]) {
            0 => Ok(()),
            _ => Err(DecodeError::corrupt("JPEG XL: too many samples")),
        }
    }

    /// Stores little-endian numbers.
    fn store(self, samples: &[f32], target: &mut [u8]) {
        match self {
            Self::UInt(1, most) => {
                for (byte, sample) in target.iter_mut().zip(samples) {
                    *byte = u8::try_from(whole(*sample, most)).unwrap_or(u8::MAX);
                }
            }
            Self::UInt(_, most) => {
                for (bytes, sample) in target.as_chunks_mut().0.iter_mut().zip(samples) {
                    *bytes = whole(*sample, most).to_le_bytes();
                }
            }
            Self::Half => {
                for (bytes, sample) in target.as_chunks_mut().0.iter_mut().zip(samples) {
                    *bytes = f16::from_f32(*sample).to_le_bytes();
                }
            }
            Self::Single => {
                for (bytes, sample) in target.as_chunks_mut().0.iter_mut().zip(samples) {
                    *bytes = sample.to_le_bytes();
                }
            }
        }
    }
}

/// Returns the whole number of a sample between 0 and 1, which is exact for numbers of at most 16 bits.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "the number is between 0 and the maximum"
)]
fn whole(sample: f32, most: u16) -> u16 {
    let most = f32::from(most);
    (sample * most + 0.5).clamp(0.0, most) as u16
}

fn corrupt(error: &impl std::fmt::Display) -> DecodeError {
    DecodeError::corrupt(format!("JPEG XL: {error}"))
}

impl Decode for JpegXl {
    fn encoded_size(&self, decoded: Size) -> Option<Size> {
        Some(loose(decoded))
    }

    fn decode(&self, src: &[u8], dst: &mut [u8]) -> Result<usize, DecodeError> {
        with_codestream(src, |src| self.images(src, dst))
    }

    fn working_bytes(&self, src: &[u8]) -> usize {
        let samples = with_codestream(src, |src| Ok(Form::of(&header(src)?)?.samples()));
        // What has no header that is read is refused before it takes memory.
        samples.ok().flatten().map_or(0, |samples| {
            samples
                .saturating_mul(SAMPLE_BYTES)
                .saturating_add(src.len().saturating_mul(2))
                .saturating_add(DECODER_BYTES)
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    /// 16 rows of 24 pixels: nine times the column, plus the row. All of imagecodecs 2026.3.6.
    const GRAY: &[u8] = include_bytes!("gray.jxl");
    /// The same times 1000 and 60, modulo 4096, in 12 bits.
    const TWELVE_BITS: &[u8] = include_bytes!("twelve_bits.jxl");
    /// The pixels of [`GRAY`] divided by 7, and an image of minus the column less 100 times the row.
    const FLOATS: &[u8] = include_bytes!("floats.jxl");
    /// The same, lossy.
    const LOSSY_FLOATS: &[u8] = include_bytes!("lossy_floats.jxl");

    const PIXELS: usize = 16 * 24;

    fn config(map: &Value) -> Config<'_> {
        Config {
            codec: "jpegxl",
            map: map.as_object().unwrap(),
        }
    }

    fn codec(map: &Value) -> JpegXl {
        JpegXl::new(config(map)).unwrap()
    }

    fn of_array(data_type: &str, shape: &[u64]) -> Result<JpegXl, CodecError> {
        JpegXl::of_array(config(&json!({})), Number::parse(data_type), shape)
    }

    fn pixels() -> impl Iterator<Item = (u16, u16)> {
        (0..16).flat_map(|row| (0..24).map(move |column| (row, column)))
    }

    #[test]
    fn lossless_images_are_exact_and_damage_is_an_error() {
        let codec = codec(&json!({"index": null, "lossless": true}));
        let mut dst = [0; PIXELS];
        assert_eq!(codec.decode(GRAY, &mut dst).unwrap(), dst.len());
        let expected = pixels().map(|(row, column)| column * 9 + row);
        assert!(expected.eq(dst.into_iter().map(u16::from)));
        assert!(codec.working_bytes(GRAY) > PIXELS);
        assert!(codec.decode(GRAY, &mut dst[1..]).is_err());
        for length in 0..GRAY.len() {
            assert!(codec.decode(&GRAY[..length], &mut dst).is_err(), "{length}");
            codec.working_bytes(&GRAY[..length]);
        }
        let mut dst = [0; 2 * PIXELS];
        assert_eq!(codec.decode(TWELVE_BITS, &mut dst).unwrap(), dst.len());
        let found = dst
            .as_chunks()
            .0
            .iter()
            .map(|bytes| u16::from_le_bytes(*bytes));
        assert!(found.eq(pixels().map(|(row, column)| (column * 1000 + row * 60) % 4096)));
    }

    #[test]
    fn an_array_has_the_elements_and_the_shape_of_its_images() {
        let mut dst = [0; 2 * 4 * PIXELS];
        let first = pixels().map(|(row, column)| f32::from(column * 9 + row) / 7.0);
        let second = pixels().map(|(row, column)| -(f32::from(column) + f32::from(row) * 100.0));
        let expected: Vec<f32> = first.chain(second).collect();
        let numbers = |dst: &[u8], parse: fn([u8; 4]) -> f32| {
            let elements = dst.as_chunks().0.iter();
            elements.map(|bytes| parse(*bytes)).collect::<Vec<f32>>()
        };
        for shape in [&[2, 16, 24][..], &[2, 16, 24, 1]] {
            let little = of_array("<f4", shape).unwrap();
            assert_eq!(little.decode(FLOATS, &mut dst).unwrap(), dst.len());
            assert_eq!(numbers(&dst, f32::from_le_bytes), expected);
            let big = of_array(">f4", shape).unwrap();
            assert_eq!(big.decode(FLOATS, &mut dst).unwrap(), dst.len());
            assert_eq!(numbers(&dst, f32::from_be_bytes), expected);
        }
        let second = codec(&json!({"index": 1}));
        assert_eq!(second.decode(FLOATS, &mut dst).unwrap(), 4 * PIXELS);
        assert_eq!(
            numbers(&dst[..4 * PIXELS], f32::from_le_bytes),
            expected[PIXELS..]
        );
        let gray = of_array("u1", &[1, 16, 24, 1]).unwrap();
        assert_eq!(gray.decode(GRAY, &mut dst).unwrap(), PIXELS);
        for (data_type, shape) in [
            ("u1", &[24, 16][..]),
            ("u1", &[16, 8, 3]),
            ("u2", &[16, 24]),
            ("f2", &[16, 24]),
        ] {
            let found = of_array(data_type, shape).unwrap().decode(GRAY, &mut dst);
            assert!(format!("{found:?}").contains("expected"), "{shape:?}");
        }
    }

    #[test]
    fn boxes_besides_the_codestream_are_not_read() {
        let boxed = |kind: &[u8], content: &[u8]| {
            let length = u32::try_from(8 + content.len()).unwrap().to_be_bytes();
            [&length, kind, content].concat()
        };
        let start = boxed(b"JXL ", &[0x0d, 0x0a, 0x87, 0x0a]);
        let kind = boxed(b"ftyp", b"jxl \0\0\0\0jxl ");
        // No data of Brotli, which would be decompressed without a limit.
        let compressed = boxed(b"brob", b"xml \xff\xff\xff");
        let halves = GRAY.split_at(20);
        let parts = [
            boxed(b"jxlp", &[&[0, 0, 0, 0], halves.0].concat()),
            boxed(b"jxlp", &[&[0x80, 0, 0, 1], halves.1].concat()),
        ];
        let whole = boxed(b"jxlc", GRAY);
        let codec = codec(&json!({}));
        let (mut dst, mut expected) = ([0; PIXELS], [0; PIXELS]);
        codec.decode(GRAY, &mut expected).unwrap();
        for boxes in [
            [&start[..], &kind, &compressed, &whole].concat(),
            [&start[..], &kind, &parts[0], &compressed, &parts[1]].concat(),
        ] {
            dst.fill(0);
            assert_eq!(codec.decode(&boxes, &mut dst).unwrap(), PIXELS);
            assert_eq!(dst, expected);
            assert!(codec.working_bytes(&boxes) > PIXELS);
            assert!(codec.decode(&boxes[..boxes.len() - 3], &mut dst).is_err());
        }
    }

    #[test]
    fn a_profile_of_colours_is_refused_before_it_is_read() {
        // 8 times 8 pixels of 8 bits, `want_icc`, and a profile of 256 MiB.
        let bits = "100000100".to_owned() // `div8`, a height of 8, the ratio 1.
            + "00" // `all_default`, `extra_fields`.
            + "000" // Samples of 8 bits.
            + "1" // `modular_16bit_buffers`.
            + "00" // No extra channels.
            + "0" // `xyb_encoded`.
            + "0" // The encoding is not the default one.
            + "1" // `want_icc`.
            + "00" // RGB.
            + "00" // No extensions.
            + "1"; // `default_m`.
        let mut image = CODESTREAM.to_vec();
        for byte in bits.as_bytes().chunks(8) {
            let bits = byte.iter().enumerate();
            image.push(bits.fold(0, |byte, (at, bit)| byte | (bit - b'0') << at));
        }
        image.extend([0xff; 16]);
        let mut dst = [0; 3 * 64];
        let refused = codec(&json!({})).decode(&image, &mut dst);
        assert!(format!("{refused:?}").contains("(ICC)"), "{refused:?}");
    }

    #[test]
    fn what_would_have_other_values_is_refused() {
        let mut dst = [0; 2 * 4 * PIXELS];
        let lossy = codec(&json!({})).decode(LOSSY_FLOATS, &mut dst);
        assert!(format!("{lossy:?}").contains("lossy images of floats"));
        let absent = codec(&json!({"index": 2})).decode(FLOATS, &mut dst);
        assert!(format!("{absent:?}").contains("no image 2, there are 2"));
        assert!(JpegXl::new(config(&json!({"keeporientation": true}))).is_err());
        for data_type in ["i1", "<u4", "<f8", "<c8"] {
            assert!(of_array(data_type, &[16, 24]).is_err(), "{data_type}");
        }
    }
}
