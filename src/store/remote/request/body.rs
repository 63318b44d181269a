//! The body of a response, appended to as it arrives.

use std::collections::TryReserveError;

/// Bytes in pieces of equal length, except that the last piece may be shorter. Pieces that were fetched
/// together can so be cached separately without a copy.
#[derive(Debug, Default)]
pub(in crate::store::remote) struct Body {
    pieces: Vec<Vec<u8>>,
    piece_bytes: usize,
    length: usize,
}

impl Body {
    /// An empty body; its bytes will be in pieces of `piece_bytes`, or in one piece if that is 0.
    pub(in crate::store::remote) fn new(piece_bytes: usize) -> Self {
        Self {
            piece_bytes,
            ..Self::default()
        }
    }

    /// Returns the first piece of the bytes.
    pub(in crate::store::remote) fn first_piece(&self) -> &[u8] {
        self.pieces.first().map_or(&[], Vec::as_slice)
    }

    /// Allocates memory for the first bytes, for one piece at most.
    ///
    /// # Errors
    /// If memory cannot be allocated.
    pub(in crate::store::remote) fn try_reserve(
        &mut self,
        bytes: usize,
    ) -> Result<(), TryReserveError> {
        let mut first = Vec::new();
        first.try_reserve_exact(match self.piece_bytes {
            0 => bytes,
            piece => bytes.min(piece),
        })?;
        self.pieces = vec![first];
        Ok(())
    }

    /// Appends bytes.
    ///
    /// # Errors
    /// If memory cannot be allocated; the bytes appended so far remain.
    pub(in crate::store::remote) fn try_extend(
        &mut self,
        mut bytes: &[u8],
    ) -> Result<(), TryReserveError> {
        while !bytes.is_empty() {
            let most = match self.piece_bytes {
                0 => usize::MAX,
                most => most,
            };
            if self.pieces.last().is_none_or(|piece| piece.len() >= most) {
                let mut next = Vec::new();
                next.try_reserve_exact(self.piece_bytes)?;
                self.pieces.push(next);
            }
            let Some(piece) = self.pieces.last_mut() else {
                break;
            };
            let room = most.saturating_sub(piece.len());
            let (own, rest) = bytes.split_at(room.min(bytes.len()));
            piece.try_reserve(own.len())?;
            piece.extend_from_slice(own);
            self.length += own.len();
            bytes = rest;
        }
        Ok(())
    }

    pub(in crate::store::remote) fn len(&self) -> usize {
        self.length
    }

    pub(in crate::store::remote) fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// Returns all bytes in pieces of `piece_bytes`; copies only if the current pieces have another size.
    pub(in crate::store::remote) fn into_pieces(self, piece_bytes: usize) -> Vec<Vec<u8>> {
        if self.piece_bytes == piece_bytes {
            return self.pieces;
        }
        let bytes = self.into_bytes();
        match piece_bytes {
            0 => vec![bytes],
            piece => bytes.chunks(piece).map(<[u8]>::to_vec).collect(),
        }
    }

    /// Returns all bytes in one piece; copies only if there are several pieces.
    pub(in crate::store::remote) fn into_bytes(self) -> Vec<u8> {
        match <[Vec<u8>; 1]>::try_from(self.pieces) {
            Ok([bytes]) => bytes,
            Err(pieces) => pieces.concat(),
        }
    }
}

impl From<Vec<u8>> for Body {
    fn from(bytes: Vec<u8>) -> Self {
        Self {
            length: bytes.len(),
            pieces: vec![bytes],
            piece_bytes: 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_has_pieces_of_one_length_regardless_of_the_received_parts() {
        let bytes: Vec<u8> = (0..250).collect();
        for step in [1, 7, 64, 100, 250] {
            for reserved in [0, 10, 1000] {
                let (mut one, mut many) = (Body::new(0), Body::new(64));
                one.try_reserve(reserved).unwrap();
                many.try_reserve(reserved).unwrap();
                for part in bytes.chunks(step) {
                    one.try_extend(part).unwrap();
                    many.try_extend(part).unwrap();
                }
                assert_eq!((one.len(), many.len()), (250, 250));
                let lengths = |pieces: &[Vec<u8>]| pieces.iter().map(Vec::len).collect::<Vec<_>>();
                let pieces = many.into_pieces(64);
                assert_eq!(lengths(&pieces), [64, 64, 64, 58]);
                assert_eq!(pieces.concat(), bytes);
                let pieces = one.into_pieces(100);
                assert_eq!(lengths(&pieces), [100, 100, 50]);
                assert_eq!(pieces.concat(), bytes);
            }
        }
        let mut body = Body::from(bytes.clone());
        body.try_extend(&[1]).unwrap();
        assert_eq!(body.into_bytes(), [&bytes[..], &[1]].concat());
        assert!(Body::new(64).is_empty());
        assert!(Body::new(64).into_bytes().is_empty());
    }
}
