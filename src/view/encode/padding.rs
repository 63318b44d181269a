//! Texts of one length, padded with NUL: short texts beside a long one can take very much.

/// The maximum size of all padded texts of a file, in bytes.
const MAX_FILE_BYTES: usize = 64 << 20;

/// The bytes that padded texts of a file may still take.
#[derive(Debug)]
pub(in crate::view) struct Padding {
    left: usize,
}

impl Default for Padding {
    fn default() -> Self {
        Self {
            left: MAX_FILE_BYTES,
        }
    }
}

impl Padding {
    /// Pads texts to the length of the longest one, at least one byte. Returns the length and the bytes; `None`
    /// if they take more than `most_bytes`, or more than is left for the file.
    pub(in crate::view) fn pad(
        &mut self,
        texts: &[String],
        most_bytes: usize,
    ) -> Option<(usize, Vec<u8>)> {
        let length = texts.iter().map(String::len).max().unwrap_or(0).max(1);
        // Checked before the bytes are allocated.
        let total = length.checked_mul(texts.len())?;
        self.left = (self.left.checked_sub(total)).filter(|_| total <= most_bytes)?;
        let mut bytes = Vec::with_capacity(total);
        for text in texts {
            let end = bytes.len() + length;
            bytes.extend(text.as_bytes());
            bytes.resize(end, 0);
        }
        Some((length, bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_texts_of_a_file_have_one_limit() {
        let texts = ["ab".to_owned(), String::new(), "c".to_owned()];
        let mut padding = Padding { left: 10 };
        assert_eq!(padding.pad(&texts, 5), None);
        assert_eq!(padding.pad(&texts, 6), Some((2, b"ab\0\0c\0".to_vec())));
        assert_eq!(padding.pad(&texts, 6), None);
        assert_eq!(padding.pad(&[String::new()], 6), Some((1, vec![0])));
        assert_eq!(padding.left, 3);
        assert_eq!(padding.pad(&[], 0), Some((1, Vec::new())));
    }
}
