//! The headers of NIfTI-1 and NIfTI-2 (`nifti1.h`, `nifti2.h`).

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
    /// `xyzt_units`.
    pub(super) units: u8,
    pub(super) geometry: Geometry,
    pub(super) description: String,
}

/// The spacing along the axes, and the coordinates of the first element.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Geometry {
    /// Whether any spacing or coordinate is known; otherwise the file has no transform.
    pub(super) is_known: bool,
    /// The spacing along the first three axes of the file; negative if coordinates decrease.
    distances: [f64; 3],
    first: [f64; 3],
    /// For each of the first three axes of the file, its direction: 0 for x, 1 for y, 2 for z.
    pub(super) directions: [usize; 3],
    /// The spacing along the fourth axis.
    pub(super) step: f64,
}

/// The directions of axes in the order x, y, z.
pub(super) const X_Y_Z: [usize; 3] = [0, 1, 2];

impl Default for Geometry {
    fn default() -> Self {
        Self {
            is_known: false,
            distances: [1.0; 3],
            first: [0.0; 3],
            directions: X_Y_Z,
            step: 1.0,
        }
    }
}

impl Geometry {
    /// Sets the spacing and the first coordinate along one of the three spatial axes.
    pub(super) fn set(&mut self, axis: usize, distance: f64, first: f64) {
        let spatial_axes = self.distances.iter_mut().zip(&mut self.first);
        if let Some((own, start)) = spatial_axes.into_iter().nth(axis) {
            (*own, *start) = (distance, first);
        }
    }

    /// Returns `pixdim`: a factor of the quaternion, and positive spacings.
    fn pixels(&self) -> [f64; 8] {
        let [x, y, z] = self.distances.map(f64::abs);
        [1.0, x, y, z, self.step, 1.0, 1.0, 1.0]
    }

    /// Returns `qform_code` and `sform_code`: a quaternion cannot express reflections.
    fn codes(&self) -> (i16, i16) {
        let rotates =
            self.distances.iter().all(|distance| *distance > 0.0) && self.directions == X_Y_Z;
        let known = i16::from(self.is_known);
        (if rotates { known } else { 0 }, known)
    }

    /// Returns `srow_x`, `srow_y` and `srow_z`.
    fn rows(&self) -> [[f64; 4]; 3] {
        let mut rows = [[0.0; 4]; 3];
        if !self.is_known {
            return rows;
        }
        let sides = self
            .directions
            .iter()
            .zip(self.distances.iter().zip(self.first));
        for (side, (direction, (distance, first))) in sides.enumerate() {
            if let Some(row) = rows.get_mut(*direction) {
                if let Some(cell) = row.get_mut(side) {
                    *cell = *distance;
                }
                row[3] = first;
            }
        }
        rows
    }

    fn start(&self) -> [f64; 3] {
        self.rows().map(|[.., first]| first)
    }
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
        out.bytes.push(self.units);
        out.zeros(24);
        out.text(&self.description, 80);
        out.zeros(24);
        out.integer::<2>(qform.into());
        out.integer::<2>(sform.into());
        out.zeros(12);
        geometry.start().iter().for_each(|value| out.single(*value));
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
        out.zeros(48);
        out.text(&self.description, 80);
        out.zeros(24);
        out.integer::<4>(qform.into());
        out.integer::<4>(sform.into());
        out.zeros(24);
        geometry.start().iter().for_each(|value| out.double(*value));
        for value in geometry.rows().as_flattened() {
            out.double(*value);
        }
        out.zeros(4);
        out.integer::<4>(self.units.into());
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
            units: 2,
            geometry: Geometry::default(),
            description: "K".into(),
        }
    }

    #[test]
    fn axes_in_another_order_have_a_matrix_that_turns_them() {
        let mut geometry = Geometry {
            is_known: true,
            directions: [2, 1, 0],
            ..Geometry::default()
        };
        for (side, distance) in [(0, 2.0), (1, -3.0), (2, 4.0)] {
            geometry.set(side, distance, distance * 10.0);
        }
        let rows = [
            [0.0, 0.0, 4.0, 40.0],
            [0.0, -3.0, 0.0, -30.0],
            [2.0, 0.0, 0.0, 20.0],
        ];
        assert_eq!((geometry.rows(), geometry.codes()), (rows, (0, 1)));
        assert_eq!(geometry.pixels()[..4], [1.0, 2.0, 3.0, 4.0]);
        geometry.is_known = false;
        assert_eq!(geometry.rows(), [[0.0; 4]; 3]);
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
    }
}
