//! Encodes the header ("The NetCDF Classic Format Specification"; all numbers are big-endian).

use super::Version;
use crate::node::{Number, NumberKind};
use crate::view::dataset::Dimension;
use crate::zarr::ByteOrder;

/// A type of classic NetCDF.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct NcType {
    /// `nc_type`.
    code: u32,
    pub(super) size_bytes: usize,
    /// The type of the numbers; `None` for characters.
    pub(super) number: Option<Number>,
}

#[derive(Debug, Clone)]
pub(super) struct Attribute {
    pub(super) name: String,
    pub(super) kind: NcType,
    pub(super) count: u64,
    pub(super) bytes: Vec<u8>,
}

#[derive(Debug, Clone)]
pub(super) struct Variable {
    pub(super) name: String,
    /// Indices in the header's list of dimensions.
    pub(super) dimensions: Vec<usize>,
    pub(super) attributes: Vec<Attribute>,
    pub(super) kind: NcType,
    /// Size of the variable, or of its part of a record, with padding, in bytes.
    pub(super) vsize: u64,
}

#[derive(Debug)]
pub(super) struct Header {
    pub(super) version: Version,
    /// The dimensions, each with its index in the data model.
    pub(super) dimensions: Vec<(usize, Dimension)>,
    pub(super) attributes: Vec<Attribute>,
    /// The index of the unlimited dimension, and the number of records.
    pub(super) record: Option<(usize, u64)>,
}

const NC_DIMENSION: u32 = 10;
const NC_VARIABLE: u32 = 11;
const NC_ATTRIBUTE: u32 = 12;

impl NcType {
    /// `NC_CHAR`.
    pub(super) const CHAR: Self = Self {
        code: 2,
        size_bytes: 1,
        number: None,
    };

    /// Returns the smallest type that holds all values of a type. Before CDF-5, 64-bit integers become
    /// doubles, which cannot hold all of them.
    pub(super) fn of(number: Number, version: Version) -> Option<Self> {
        let is_5 = version == Version::Cdf5;
        let (code, kind, size_bytes) = match (number.kind, number.size_bytes) {
            (NumberKind::Int, 1) => (1, NumberKind::Int, 1),
            (NumberKind::UInt, 1) if is_5 => (7, NumberKind::UInt, 1),
            (NumberKind::UInt, 1) | (NumberKind::Int, 2) => (3, NumberKind::Int, 2),
            (NumberKind::UInt, 2) if is_5 => (8, NumberKind::UInt, 2),
            (NumberKind::UInt, 2) | (NumberKind::Int, 4) => (4, NumberKind::Int, 4),
            (NumberKind::UInt, 4) if is_5 => (9, NumberKind::UInt, 4),
            (NumberKind::Int, 8) if is_5 => (10, NumberKind::Int, 8),
            (NumberKind::UInt, 8) if is_5 => (11, NumberKind::UInt, 8),
            (NumberKind::Float, 2 | 4) => (5, NumberKind::Float, 4),
            (NumberKind::UInt, 4) | (NumberKind::Int | NumberKind::UInt | NumberKind::Float, 8) => {
                (6, NumberKind::Float, 8)
            }
            _ => return None,
        };
        Some(Self {
            code,
            size_bytes,
            number: Some(Number::new(kind, size_bytes, ByteOrder::Big)),
        })
    }
}

impl Header {
    /// Encodes the header, with variables at these offsets.
    pub(super) fn encode(&self, variables: &[&Variable], offsets: &[u64]) -> Vec<u8> {
        let mut bytes = b"CDF".to_vec();
        bytes.push(self.version as u8);
        self.count(&mut bytes, self.record.map_or(0, |(_, records)| records));
        self.list(&mut bytes, NC_DIMENSION, self.dimensions.len());
        for (number, dimension) in &self.dimensions {
            self.name(&mut bytes, &dimension.name);
            let is_record = self.record.is_some_and(|(record, _)| record == *number);
            self.count(&mut bytes, if is_record { 0 } else { dimension.length });
        }
        self.attributes(&mut bytes, &self.attributes);
        self.list(&mut bytes, NC_VARIABLE, variables.len());
        for (variable, offset) in variables.iter().zip(offsets) {
            self.name(&mut bytes, &variable.name);
            self.count(&mut bytes, variable.dimensions.len() as u64);
            for dimension in &variable.dimensions {
                self.count(&mut bytes, *dimension as u64);
            }
            self.attributes(&mut bytes, &variable.attributes);
            bytes.extend(variable.kind.code.to_be_bytes());
            self.count(&mut bytes, variable.vsize);
            match self.version {
                Version::Cdf1 => bytes.extend(narrow(*offset).to_be_bytes()),
                Version::Cdf2 | Version::Cdf5 => bytes.extend(offset.to_be_bytes()),
            }
        }
        bytes
    }

    /// Appends a count or a length: four bytes before CDF-5, else eight.
    fn count(&self, bytes: &mut Vec<u8>, count: u64) {
        match self.version {
            Version::Cdf5 => bytes.extend(count.to_be_bytes()),
            Version::Cdf1 | Version::Cdf2 => bytes.extend(narrow(count).to_be_bytes()),
        }
    }

    /// Appends the start of a list: its tag and length, or `ABSENT` if the list is empty.
    fn list(&self, bytes: &mut Vec<u8>, tag: u32, length: usize) {
        let tag = if length == 0 { 0 } else { tag };
        bytes.extend(tag.to_be_bytes());
        self.count(bytes, length as u64);
    }

    fn name(&self, bytes: &mut Vec<u8>, name: &str) {
        self.count(bytes, name.len() as u64);
        bytes.extend(name.as_bytes());
        pad(bytes);
    }

    fn attributes(&self, bytes: &mut Vec<u8>, attributes: &[Attribute]) {
        self.list(bytes, NC_ATTRIBUTE, attributes.len());
        for attribute in attributes {
            self.name(bytes, &attribute.name);
            bytes.extend(attribute.kind.code.to_be_bytes());
            self.count(bytes, attribute.count);
            bytes.extend(&attribute.bytes);
            pad(bytes);
        }
    }
}

/// Pads to a multiple of four bytes.
fn pad(bytes: &mut Vec<u8>) {
    bytes.resize(bytes.len().next_multiple_of(4), 0);
}

/// Narrows a value that fits in 32 bits; larger sizes are rejected before.
fn narrow(number: u64) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_matches_the_specification() {
        let dimension = Dimension {
            name: "dim".into(),
            length: 5,
            is_unlimited: false,
        };
        let number = Number::new(NumberKind::Int, 2, ByteOrder::Little);
        let header = Header {
            version: Version::Cdf1,
            dimensions: vec![(3, dimension)],
            attributes: Vec::new(),
            record: None,
        };
        let variable = Variable {
            name: "vx".into(),
            dimensions: vec![0],
            attributes: Vec::new(),
            kind: NcType::of(number, Version::Cdf1).unwrap(),
            vsize: 12,
        };
        // The example of the specification (`netcdf tiny`), with its data at a different offset.
        let expected = [
            0x43444601, 0, 0x0a, 1, 3, 0x64696d00, 5, 0, 0, 0x0b, 1, 2, 0x76780000, 1, 0, 0, 0, 3,
            12, 0x50_u32,
        ];
        let expected: Vec<u8> = expected
            .iter()
            .flat_map(|word| word.to_be_bytes())
            .collect();
        assert_eq!(header.encode(&[&variable], &[0x50]), expected);
    }
}
