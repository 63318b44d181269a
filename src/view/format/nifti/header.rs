//! The headers of NIfTI-1 and NIfTI-2 (`nifti1.h`, `nifti2.h`).

use super::geometry::Geometry;
use super::single;
use crate::zarr::ByteOrder;

/// The nonzero fields of a header.
#[derive(Debug)]
pub(super) struct Header {
    pub(super) order: ByteOrder,
    pub(super) datatype: i16,
    pub(super) bits: i16,
    /// The lengths of axes 1 to 7, the fastest first.
    pub(super) lengths: Vec<u64>,
    /// The offset of the elements in bytes.
    pub(super) offset: u64,
    pub(super) scale: Option<f64>,
    pub(super) shift: Option<f64>,
    pub(super) geometry: Geometry,
    pub(super) description: String,
}

impl Header {
    /// Returns whether NIfTI-1 cannot express the header.
    pub(super) fn is_long(&self) -> bool {
        self.lengths
            .iter()
            .any(|length| i16::try_from(*length).is_err())
    }

    /// Returns the size in bytes, with the four bytes that declare no extensions.
    pub(super) fn size_bytes(&self) -> u64 {
        if self.is_long() { 544 } else { 352 }
    }

    /// Encodes the header and four zeros.
    ///
    /// # Errors
    /// An axis is too long.
    pub(super) fn encode(&self) -> Result<Vec<u8>, String> {
        let mut lengths = [1_i64; 8];
        let own = std::iter::once(self.lengths.len() as u64).chain(self.lengths.iter().copied());
        for (to, from) in lengths.iter_mut().zip(own) {
            *to = i64::try_from(from).map_err(|_| format!("an axis of {from} elements"))?;
        }
        let out = Out {
            bytes: Vec::new(),
            order: self.order,
        };
        Ok(match self.is_long() {
            true => self.second(lengths, out),
            false => self.first(lengths, out),
        })
    }

    fn first(&self, lengths: [i64; 8], mut out: Out) -> Vec<u8> {
        let geometry = &self.geometry;
        let (qform, sform) = geometry.codes();
        out.integer::<4>(348);
        out.zeros(34);
        out.text("r", 2);
        lengths.iter().for_each(|length| out.integer::<2>(*length));
        out.zeros(14);
        out.integer::<2>(self.datatype.into());
        out.integer::<2>(self.bits.into());
        out.zeros(2);
        geometry
            .pixels()
            .iter()
            .for_each(|value| out.single(*value));
        #[expect(
            clippy::cast_precision_loss,
            reason = "a multiple of a large power of two"
        )]
        out.single(self.offset as f64);
        out.single(self.slope());
        out.single(self.shift.unwrap_or(0.0));
        out.zeros(3);
        out.bytes.push(geometry.units);
        // cal_max, cal_min and slice_duration precede the offset in time.
        out.zeros(12);
        out.single(geometry.start);
        out.zeros(8);
        out.text(&self.description, 80);
        out.zeros(24);
        out.integer::<2>(qform.into());
        out.integer::<2>(sform.into());
        out.zeros(12);
        geometry.first().iter().for_each(|value| out.single(*value));
        for value in geometry.rows().as_flattened() {
            out.single(*value);
        }
        out.zeros(16);
        out.text("n+1", 4);
        out.zeros(4);
        out.bytes
    }

    fn second(&self, lengths: [i64; 8], mut out: Out) -> Vec<u8> {
        let geometry = &self.geometry;
        let (qform, sform) = geometry.codes();
        out.integer::<4>(540);
        out.bytes.extend(b"n+2\0\r\n\x1a\n");
        out.integer::<2>(self.datatype.into());
        out.integer::<2>(self.bits.into());
        lengths.iter().for_each(|length| out.integer::<8>(*length));
        out.zeros(24);
        geometry
            .pixels()
            .iter()
            .for_each(|value| out.double(*value));
        out.integer::<8>(i64::try_from(self.offset).unwrap_or(i64::MAX));
        out.double(self.slope());
        out.double(self.shift.unwrap_or(0.0));
        // cal_max, cal_min and slice_duration precede the offset in time.
        out.zeros(24);
        out.double(geometry.start);
        out.zeros(16);
        out.text(&self.description, 80);
        out.zeros(24);
        out.integer::<4>(qform.into());
        out.integer::<4>(sform.into());
        out.zeros(24);
        geometry.first().iter().for_each(|value| out.double(*value));
        for value in geometry.rows().as_flattened() {
            out.double(*value);
        }
        out.zeros(4);
        out.integer::<4>(geometry.units.into());
        out.zeros(40);
        out.bytes
    }

    /// Returns `scl_slope`; zero means that the numbers are the values.
    fn slope(&self) -> f64 {
        match (self.scale, self.shift) {
            (None, None) => 0.0,
            (scale, _) => scale.unwrap_or(1.0),
        }
    }
}

/// Encoded fields in a byte order.
struct Out {
    bytes: Vec<u8>,
    order: ByteOrder,
}

impl Out {
    fn zeros(&mut self, count: usize) {
        self.bytes.resize(self.bytes.len() + count, 0);
    }

    /// Appends the lowest `N` bytes of an integer.
    fn integer<const N: usize>(&mut self, value: i64) {
        let lowest = value.to_le_bytes().into_iter().take(N);
        match self.order {
            ByteOrder::Little => self.bytes.extend(lowest),
            ByteOrder::Big => self.bytes.extend(lowest.rev()),
        }
    }

    fn single(&mut self, value: f64) {
        self.integer::<4>(single(value).to_bits().into());
    }

    fn double(&mut self, value: f64) {
        self.integer::<8>(value.to_bits().cast_signed());
    }

    /// Appends ASCII, padded with zeros; the last byte is always zero.
    fn text(&mut self, text: &str, size: usize) {
        let end = self.bytes.len() + size;
        let ascii = text
            .chars()
            .filter(|c| c.is_ascii() && !c.is_ascii_control());
        self.bytes.extend(ascii.take(size - 1).map(|c| c as u8));
        self.bytes.resize(end, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(order: ByteOrder, lengths: &[u64]) -> Header {
        Header {
            order,
            datatype: 16,
            bits: 32,
            lengths: lengths.to_vec(),
            offset: 352,
            scale: None,
            shift: Some(2.0),
            geometry: Geometry::at_time(5.0),
            description: "K".into(),
        }
    }

    #[test]
    fn fields_have_the_offsets_of_the_specification() {
        let bytes = header(ByteOrder::Little, &[5, 4]).encode().unwrap();
        assert_eq!(bytes.len(), 352);
        assert_eq!(bytes[..4], 348_i32.to_le_bytes());
        assert_eq!(bytes[38], b'r');
        assert_eq!(bytes[40..46], [2, 0, 5, 0, 4, 0]);
        assert_eq!(bytes[70..74], [16, 0, 32, 0]);
        assert_eq!(bytes[76..80], 1_f32.to_le_bytes());
        assert_eq!(bytes[108..112], 352_f32.to_le_bytes());
        assert_eq!(
            bytes[112..120],
            [1_f32.to_le_bytes(), 2_f32.to_le_bytes()].concat()
        );
        assert_eq!((bytes[123], bytes[148]), (2, b'K'));
        assert_eq!(bytes[136..140], 5_f32.to_le_bytes());
        assert_eq!(bytes[344..352], *b"n+1\0\0\0\0\0");
        let bytes = header(ByteOrder::Big, &[40_000, 3]).encode().unwrap();
        assert_eq!(bytes.len(), 544);
        assert_eq!(bytes[..12], *b"\0\0\x02\x1cn+2\0\r\n\x1a\n");
        assert_eq!(
            bytes[16..32],
            [2_i64.to_be_bytes(), 40_000_i64.to_be_bytes()].concat()
        );
        assert_eq!(bytes[104..112], 1_f64.to_be_bytes());
        assert_eq!(bytes[168..176], 352_i64.to_be_bytes());
        assert_eq!((bytes[240], bytes[503]), (b'K', 2));
        assert_eq!(bytes[216..224], 5_f64.to_be_bytes());
    }
}
