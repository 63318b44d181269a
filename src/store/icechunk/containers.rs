//! Containers of virtual chunks, from the configuration in the file `repo`: a FlexBuffer
//! (flatbuffers.dev/flexbuffers), of which only strings, keys and maps are read.

use super::format::FormatError;

/// FlexBuffer types that are read.
const NULL: u8 = 0;
const KEY: u8 = 4;
const STRING: u8 = 5;
const MAP: u8 = 9;

/// Largest number of containers.
const MAX_CONTAINERS: usize = 1024;
/// Length of the longest key or string in bytes.
const MAX_TEXT_BYTES: usize = 8192;

fn outside() -> FormatError {
    FormatError::malformed("an offset leads out of the configuration")
}

/// A value, given by the position of its number or offset.
#[derive(Debug, Clone, Copy)]
struct FlexValue<'a> {
    bytes: &'a [u8],
    position: usize,
    /// Width of the number or offset in bytes.
    width: usize,
    packed_type: u8,
}

/// Reads a number of 1, 2, 4 or 8 bytes.
fn uint(bytes: &[u8], position: usize, width: usize) -> Result<usize, FormatError> {
    let end = position.checked_add(width).ok_or_else(outside)?;
    let digits = bytes.get(position..end).ok_or_else(outside)?;
    let number = digits
        .iter()
        .rev()
        .fold(0_u64, |number, digit| (number << 8) | u64::from(*digit));
    usize::try_from(number).map_err(|_| outside())
}

impl<'a> FlexValue<'a> {
    fn root(bytes: &'a [u8]) -> Result<Self, FormatError> {
        let [.., packed_type, width] = *bytes else {
            return Err(outside());
        };
        let width = usize::from(width);
        let position = (bytes.len() - 2).checked_sub(width).ok_or_else(outside)?;
        matches!(width, 1 | 2 | 4 | 8)
            .then_some(())
            .ok_or_else(outside)?;
        Ok(Self {
            bytes,
            position,
            width,
            packed_type,
        })
    }

    fn kind(self) -> u8 {
        self.packed_type >> 2
    }

    /// Returns the position of the value, and the width of its own numbers in bytes.
    fn target(self) -> Result<(usize, usize), FormatError> {
        let offset = uint(self.bytes, self.position, self.width)?;
        let target = self.position.checked_sub(offset).ok_or_else(outside)?;
        Ok((target, 1 << (self.packed_type & 3)))
    }

    /// Reads a string; `None` for null.
    fn string(self) -> Result<Option<&'a str>, FormatError> {
        if self.kind() == NULL {
            return Ok(None);
        }
        let (position, width) = self.target()?;
        let text = match self.kind() {
            STRING => {
                let length = position.checked_sub(width).ok_or_else(outside)?;
                let length = uint(self.bytes, length, width)?;
                let end = position.checked_add(length).ok_or_else(outside)?;
                self.bytes.get(position..end).ok_or_else(outside)?
            }
            KEY => key(self.bytes, position)?,
            _ => return Err(FormatError::malformed("no string in the configuration")),
        };
        let text = Some(text).filter(|text| text.len() <= MAX_TEXT_BYTES);
        let text = text
            .and_then(|text| std::str::from_utf8(text).ok())
            .map(Some);
        text.ok_or_else(|| FormatError::malformed("a string in the configuration"))
    }

    /// Reads the keys and values of a map.
    fn entries(
        self,
    ) -> Result<impl Iterator<Item = Result<(&'a [u8], Self), FormatError>>, FormatError> {
        let (values, width) = self.target()?;
        let field = |place: usize| {
            let position = values
                .checked_sub(width.saturating_mul(place))
                .ok_or_else(outside)?;
            Ok((position, uint(self.bytes, position, width)?))
        };
        let (_, length) = field(1)?;
        let (_, key_width) = field(2)?;
        let (position, keys) = field(3)?;
        let keys = position.checked_sub(keys).ok_or_else(outside)?;
        let is_map = self.kind() == MAP && matches!(key_width, 1 | 2 | 4 | 8);
        if !is_map || length > self.bytes.len() {
            return Err(FormatError::malformed("no map in the configuration"));
        }
        let types = values.saturating_add(length.saturating_mul(width));
        Ok((0..length).map(move |index| {
            let place = keys.saturating_add(index.saturating_mul(key_width));
            let offset = uint(self.bytes, place, key_width)?;
            let name = key(self.bytes, place.checked_sub(offset).ok_or_else(outside)?)?;
            let packed_type = self
                .bytes
                .get(types.saturating_add(index))
                .ok_or_else(outside)?;
            let value = Self {
                bytes: self.bytes,
                position: values.saturating_add(index.saturating_mul(width)),
                width,
                packed_type: *packed_type,
            };
            Ok((name, value))
        }))
    }

    fn get(self, wanted: &[u8]) -> Result<Option<Self>, FormatError> {
        for entry in self.entries()? {
            let (name, value) = entry?;
            if name == wanted {
                return Ok(Some(value));
            }
        }
        Ok(None)
    }
}

/// Reads a key, which ends with a byte 0.
fn key(bytes: &[u8], position: usize) -> Result<&[u8], FormatError> {
    let rest = bytes.get(position..).ok_or_else(outside)?;
    let mut most = rest.iter().take(MAX_TEXT_BYTES);
    let end = most.position(|byte| *byte == 0).ok_or_else(outside)?;
    rest.get(..end).ok_or_else(outside)
}

/// Reads the names of containers, with their URL prefixes.
pub(super) fn read(config: &[u8]) -> Result<Vec<(String, String)>, FormatError> {
    let root = FlexValue::root(config)?;
    let containers = root.get(b"virtual_chunk_containers")?;
    let Some(containers) = containers.filter(|containers| containers.kind() != NULL) else {
        return Ok(Vec::new());
    };
    let mut found = Vec::new();
    for entry in containers.entries()?.take(MAX_CONTAINERS) {
        let (_, container) = entry?;
        let text = |name: &[u8]| match container.get(name)? {
            Some(value) => value.string(),
            None => Ok(None),
        };
        if let (Some(name), Some(prefix)) = (text(b"name")?, text(b"url_prefix")?) {
            found.push((name.to_owned(), prefix.to_owned()));
        }
    }
    Ok(found)
}
