//! `crc32c` (v3 and numcodecs), `crc32`, `adler32`, `fletcher32`, `jenkins_lookup3`: four bytes,
//! little-endian, before or after the payload.

use std::ops::Range;

use super::byte_codec::ByteCodec;
use super::config::Config;
use super::error::{CodecError, DecodeError, slice, truncated};
use super::stage::Verify;

/// Verifies and removes a checksum.
#[derive(Debug)]
pub(super) struct Checksum {
    kind: Algorithm,
    at_start: bool,
}

#[derive(Debug)]
enum Algorithm {
    Crc32,
    Crc32c,
    Adler32,
    Fletcher32,
    JenkinsLookup3 { initial: u32, prefix: Vec<u8> },
}

impl Checksum {
    pub(super) fn fletcher32() -> Self {
        Self {
            kind: Algorithm::Fletcher32,
            at_start: false,
        }
    }

    /// Parses `crc32`, `crc32c` (also of v3) or `adler32` with a `location`.
    ///
    /// # Errors
    /// The location is neither `start` nor `end`.
    pub(super) fn located(config: Config<'_>) -> Result<Self, CodecError> {
        let (kind, start_is_default) = match config.codec.rsplit('.').next() {
            Some("crc32") => (Algorithm::Crc32, true),
            Some("adler32") => (Algorithm::Adler32, true),
            _ => (Algorithm::Crc32c, false),
        };
        let at_start = match config.str("location")? {
            None => start_is_default,
            Some("start") => true,
            Some("end") => false,
            Some(other) => return Err(config.invalid(format!("location is {other}"))),
        };
        Ok(Self { kind, at_start })
    }

    /// Parses `jenkins_lookup3` with `initval` and `prefix`.
    ///
    /// # Errors
    /// The numbers do not fit in their types.
    pub(super) fn jenkins_lookup3(config: Config<'_>) -> Result<Self, CodecError> {
        let initial = config.u64("initval")?.unwrap_or(0);
        let initial = u32::try_from(initial)
            .map_err(|_| config.invalid(format!("initval is {initial}, expected 32 bits")))?;
        let prefix = config.integers("prefix")?.unwrap_or_default();
        let prefix: Result<Vec<u8>, _> = prefix.into_iter().map(u8::try_from).collect();
        let prefix = prefix.map_err(|_| config.invalid("prefix is not a list of bytes"))?;
        Ok(Self {
            kind: Algorithm::JenkinsLookup3 { initial, prefix },
            at_start: false,
        })
    }

    fn of(&self, payload: &[u8]) -> u32 {
        match &self.kind {
            Algorithm::Crc32 => libdeflater::crc32(payload),
            Algorithm::Crc32c => crc32c::crc32c(payload),
            Algorithm::Adler32 => libdeflater::adler32(payload),
            Algorithm::Fletcher32 => fletcher32(payload),
            Algorithm::JenkinsLookup3 { initial, prefix } if prefix.is_empty() => {
                jenkins_lookup3(payload.iter().copied(), payload.len(), *initial)
            }
            Algorithm::JenkinsLookup3 { initial, prefix } => {
                let bytes = prefix.iter().chain(payload).copied();
                jenkins_lookup3(bytes, prefix.len().wrapping_add(payload.len()), *initial)
            }
        }
    }
}

impl Verify for Checksum {
    fn byte_codec(&self) -> Option<ByteCodec> {
        let is_fletcher = matches!(self.kind, Algorithm::Fletcher32) && !self.at_start;
        is_fletcher.then_some(ByteCodec::Fletcher32)
    }

    fn overhead(&self) -> u64 {
        4
    }

    fn verify(&self, src: &[u8]) -> Result<Range<usize>, DecodeError> {
        let Some(length) = src.len().checked_sub(4) else {
            return Err(truncated(src.len(), 4));
        };
        let (stored, payload) = if self.at_start {
            (0..4, 4..src.len())
        } else {
            (length..src.len(), 0..length)
        };
        let stored = u32::from_le_bytes(super::error::head(slice(src, stored)?)?);
        let computed = self.of(slice(src, payload.clone())?);
        if stored != computed {
            return Err(DecodeError::corrupt(format!(
                "the checksum is {computed:08x}, {stored:08x} is stored"
            )));
        }
        Ok(payload)
    }
}

/// Returns the Fletcher-32 checksum of HDF5 and netCDF: big-endian 16-bit words, sums folded every 360 words.
fn fletcher32(data: &[u8]) -> u32 {
    let fold = |sum: u32| (sum & 0xffff) + (sum >> 16);
    let (mut sum1, mut sum2) = (0u32, 0u32);
    let (words, odd) = data.as_chunks::<2>();
    for block in words.chunks(360) {
        for word in block {
            sum1 = sum1.wrapping_add(u32::from(u16::from_be_bytes(*word)));
            sum2 = sum2.wrapping_add(sum1);
        }
        (sum1, sum2) = (fold(sum1), fold(sum2));
    }
    if let [byte] = odd {
        sum1 = sum1.wrapping_add(u32::from(*byte) << 8);
        sum2 = sum2.wrapping_add(sum1);
        (sum1, sum2) = (fold(sum1), fold(sum2));
    }
    fold(sum2) << 16 | fold(sum1)
}

/// Returns `hashlittle` of Bob Jenkins' lookup3.c with the initial value 0, the checksum of HDF5 metadata.
pub fn lookup3(bytes: &[u8]) -> u32 {
    jenkins_lookup3(bytes.iter().copied(), bytes.len(), 0)
}

/// Returns `hashlittle` of Bob Jenkins' lookup3.c (public domain), as in HDF5.
#[allow(
    clippy::cast_possible_truncation,
    reason = "the length is mixed in as 32 bits"
)]
fn jenkins_lookup3(mut bytes: impl Iterator<Item = u8>, length: usize, initial: u32) -> u32 {
    let start = 0xdead_beef_u32
        .wrapping_add(length as u32)
        .wrapping_add(initial);
    let (mut a, mut b, mut c) = (start, start, start);
    if length == 0 {
        return c;
    }
    let mut left = length;
    loop {
        // The last block is padded with zeros.
        let mut word = || {
            (0..4).fold(0, |w, i| {
                w | u32::from(bytes.next().unwrap_or(0)) << (8 * i)
            })
        };
        a = a.wrapping_add(word());
        b = b.wrapping_add(word());
        c = c.wrapping_add(word());
        if left <= 12 {
            break;
        }
        left -= 12;
        a = a.wrapping_sub(c) ^ c.rotate_left(4);
        c = c.wrapping_add(b);
        b = b.wrapping_sub(a) ^ a.rotate_left(6);
        a = a.wrapping_add(c);
        c = c.wrapping_sub(b) ^ b.rotate_left(8);
        b = b.wrapping_add(a);
        a = a.wrapping_sub(c) ^ c.rotate_left(16);
        c = c.wrapping_add(b);
        b = b.wrapping_sub(a) ^ a.rotate_left(19);
        a = a.wrapping_add(c);
        c = c.wrapping_sub(b) ^ b.rotate_left(4);
        b = b.wrapping_add(a);
    }
    c = (c ^ b).wrapping_sub(b.rotate_left(14));
    a = (a ^ c).wrapping_sub(c.rotate_left(11));
    b = (b ^ a).wrapping_sub(a.rotate_left(25));
    c = (c ^ b).wrapping_sub(b.rotate_left(16));
    a = (a ^ c).wrapping_sub(c.rotate_left(4));
    b = (b ^ a).wrapping_sub(a.rotate_left(14));
    (c ^ b).wrapping_sub(b.rotate_left(24))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Map, json};

    fn located(codec: &str, location: Option<&str>) -> Result<Checksum, CodecError> {
        let mut map = Map::new();
        if let Some(location) = location {
            map.insert("location".into(), json!(location));
        }
        Checksum::located(Config { codec, map: &map })
    }

    #[test]
    fn known_checksums_are_computed() {
        assert_eq!(
            located("crc32c", None).unwrap().of(b"123456789"),
            0xe306_9283
        );
        assert_eq!(
            located("crc32", None).unwrap().of(b"123456789"),
            0xcbf4_3926
        );
        assert_eq!(
            located("numcodecs.adler32", None).unwrap().of(b"123456789"),
            0x091e_01de
        );
        // The examples of lookup3.c.
        assert_eq!(jenkins_lookup3([].into_iter(), 0, 0), 0xdead_beef);
        let text = b"Four score and seven years ago";
        assert_eq!(
            jenkins_lookup3(text.iter().copied(), text.len(), 0),
            0x1777_0551
        );
        assert_eq!(
            jenkins_lookup3(text.iter().copied(), text.len(), 1),
            0xcd62_8161
        );
        // The variant of netCDF: big-endian words.
        assert_eq!(fletcher32(&[0, 1, 0, 2]), 0x0004_0003);
        assert_eq!(fletcher32(&[0, 1, 2]), 0x0202_0201);
    }

    #[test]
    fn the_payload_is_the_bytes_without_the_checksum() {
        let payload = b"payload";
        for codec in ["crc32", "crc32c", "adler32"] {
            for (location, at_start) in [("start", true), ("end", false)] {
                let checksum = located(codec, Some(location)).unwrap();
                let sum = checksum.of(payload).to_le_bytes();
                let chunk = if at_start {
                    [&sum[..], payload].concat()
                } else {
                    [&payload[..], &sum].concat()
                };
                let range = checksum.verify(&chunk).unwrap();
                assert_eq!(&chunk[range], payload);
                for bit in 0..chunk.len() * 8 {
                    let mut bad = chunk.clone();
                    bad[bit / 8] ^= 1 << (bit % 8);
                    assert!(checksum.verify(&bad).is_err());
                }
                for n in 0..chunk.len() {
                    assert!(checksum.verify(&chunk[..n]).is_err());
                }
            }
        }
        assert!(located("crc32", Some("middle")).is_err());
    }
}
