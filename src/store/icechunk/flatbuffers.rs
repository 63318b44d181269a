//! Reads FlatBuffers (flatbuffers.dev/internals). Every offset of the input is checked.
//!
//! Nothing is verified in advance and nothing is copied. The schemas have no recursion, so an input
//! cannot cause an endless loop. An input whose tables share bytes costs only the work of the callers
//! for each table.

use super::format::FormatError;

/// The longest buffer in bytes: some offsets are signed.
pub(super) const MAX_BYTES: u64 = i32::MAX as u64;

/// A table, given by its position in the buffer.
#[derive(Debug, Clone, Copy)]
pub(super) struct Table<'a> {
    bytes: &'a [u8],
    position: usize,
    vtable: &'a [u8],
}

/// The items of a vector: structs, numbers, or offsets to tables and strings.
#[derive(Debug, Clone, Copy)]
pub(super) struct Vector<'a, const ITEM_BYTES: usize> {
    bytes: &'a [u8],
    position: usize,
    items: &'a [u8],
}

/// A vector of offsets.
pub(super) type Offsets<'a> = Vector<'a, 4>;

fn outside() -> FormatError {
    FormatError::malformed("an offset leads out of the file")
}

fn array<const N: usize>(bytes: &[u8], position: usize) -> Result<[u8; N], FormatError> {
    let rest = bytes.get(position..).ok_or_else(outside)?;
    rest.first_chunk().copied().ok_or_else(outside)
}

fn u32_at(bytes: &[u8], position: usize) -> Result<usize, FormatError> {
    let value = u32::from_le_bytes(array(bytes, position)?);
    usize::try_from(value).map_err(|_| outside())
}

/// Returns the position that the offset at `position` refers to.
fn target(bytes: &[u8], position: usize) -> Result<usize, FormatError> {
    let offset = u32_at(bytes, position)?;
    position.checked_add(offset).ok_or_else(outside)
}

/// Returns the bytes of the items of a vector, which follow their number.
fn items(bytes: &[u8], position: usize, item_bytes: usize) -> Result<&[u8], FormatError> {
    let length = u32_at(bytes, position)?.checked_mul(item_bytes);
    let start = position.checked_add(4).ok_or_else(outside)?;
    let end = length.and_then(|length| start.checked_add(length));
    bytes
        .get(start..end.ok_or_else(outside)?)
        .ok_or_else(outside)
}

fn text(bytes: &[u8]) -> Result<&str, FormatError> {
    std::str::from_utf8(bytes).map_err(|_| FormatError::malformed("a string is not UTF-8"))
}

impl<'a> Table<'a> {
    /// The root table of a buffer.
    pub(super) fn root(bytes: &'a [u8]) -> Result<Self, FormatError> {
        Self::at(bytes, target(bytes, 0)?)
    }

    fn at(bytes: &'a [u8], position: usize) -> Result<Self, FormatError> {
        let back = i64::from(i32::from_le_bytes(array(bytes, position)?));
        let start = i64::try_from(position)
            .ok()
            .and_then(|at| at.checked_sub(back));
        let start = start.and_then(|start| usize::try_from(start).ok());
        let rest = bytes
            .get(start.ok_or_else(outside)?..)
            .ok_or_else(outside)?;
        let length = u16::from_le_bytes(array(rest, 0)?);
        let vtable = rest.get(4..usize::from(length)).ok_or_else(outside)?;
        Ok(Self {
            bytes,
            position,
            vtable,
        })
    }

    /// Returns the position of a field; `None` if the table does not have it.
    fn field(&self, slot: usize) -> Result<Option<usize>, FormatError> {
        let Ok(offset) = array(self.vtable, slot.saturating_mul(2)) else {
            return Ok(None);
        };
        match usize::from(u16::from_le_bytes(offset)) {
            0 => Ok(None),
            offset => Ok(Some(self.position.checked_add(offset).ok_or_else(outside)?)),
        }
    }

    /// Reads a number or a struct; `None` if the table does not have it.
    pub(super) fn fixed<const N: usize>(
        &self,
        slot: usize,
    ) -> Result<Option<[u8; N]>, FormatError> {
        let position = self.field(slot)?;
        position
            .map(|position| array(self.bytes, position))
            .transpose()
    }

    /// Reads a number; `None` if the table does not have it.
    pub(super) fn u8(&self, slot: usize) -> Result<Option<u8>, FormatError> {
        Ok(self.fixed(slot)?.map(u8::from_le_bytes))
    }

    /// Reads a number; 0 if the table does not have it.
    pub(super) fn u32(&self, slot: usize) -> Result<u32, FormatError> {
        Ok(self.fixed(slot)?.map_or(0, u32::from_le_bytes))
    }

    /// Reads a number; 0 if the table does not have it.
    pub(super) fn u64(&self, slot: usize) -> Result<u64, FormatError> {
        Ok(self.fixed(slot)?.map_or(0, u64::from_le_bytes))
    }

    /// Returns the position that a field refers to.
    fn indirect(&self, slot: usize) -> Result<Option<usize>, FormatError> {
        let position = self.field(slot)?;
        position
            .map(|position| target(self.bytes, position))
            .transpose()
    }

    pub(super) fn table(&self, slot: usize) -> Result<Option<Self>, FormatError> {
        let position = self.indirect(slot)?;
        position
            .map(|position| Self::at(self.bytes, position))
            .transpose()
    }

    pub(super) fn vector<const N: usize>(
        &self,
        slot: usize,
    ) -> Result<Option<Vector<'a, N>>, FormatError> {
        let Some(position) = self.indirect(slot)? else {
            return Ok(None);
        };
        Ok(Some(Vector {
            bytes: self.bytes,
            position: position.saturating_add(4),
            items: items(self.bytes, position, N)?,
        }))
    }

    /// Reads a vector of bytes.
    pub(super) fn bytes(&self, slot: usize) -> Result<Option<&'a [u8]>, FormatError> {
        Ok(self.vector::<1>(slot)?.map(|vector| vector.items))
    }

    pub(super) fn string(&self, slot: usize) -> Result<Option<&'a str>, FormatError> {
        self.bytes(slot)?.map(text).transpose()
    }
}

impl<'a, const N: usize> Vector<'a, N> {
    /// The position of the items in the buffer.
    pub(super) fn position(&self) -> usize {
        self.position
    }

    pub(super) fn len(&self) -> usize {
        self.items.len() / N.max(1)
    }

    /// The bytes of all items.
    pub(super) fn items(&self) -> &'a [u8] {
        self.items
    }

    /// Reads a number or a struct.
    pub(super) fn fixed(&self, index: usize) -> Result<[u8; N], FormatError> {
        array(self.items, index.checked_mul(N).ok_or_else(outside)?)
    }
}

impl<'a> Offsets<'a> {
    /// The vector whose items begin at a position that [`Vector::position`] returned.
    pub(super) fn at(bytes: &'a [u8], position: usize) -> Result<Self, FormatError> {
        let start = position.checked_sub(4).ok_or_else(outside)?;
        Ok(Self {
            bytes,
            position,
            items: items(bytes, start, 4)?,
        })
    }

    fn target(&self, index: usize) -> Result<usize, FormatError> {
        // This checks `index`: other bytes follow the last item.
        self.fixed(index)?;
        let offset = index.checked_mul(4).ok_or_else(outside)?;
        target(
            self.bytes,
            self.position.checked_add(offset).ok_or_else(outside)?,
        )
    }

    pub(super) fn table(&self, index: usize) -> Result<Table<'a>, FormatError> {
        Table::at(self.bytes, self.target(index)?)
    }

    pub(super) fn tables(self) -> impl Iterator<Item = Result<Table<'a>, FormatError>> {
        (0..self.len()).map(move |index| self.table(index))
    }
}
