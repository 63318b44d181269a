//! A11: deflated and zstd entries of all sizes, including sizes that are decoded in segments.

use super::{Case, noise, text};
use crate::coders::{
    deflate, deflate_fast, deflate_without_compression, zstd_frame, zstd_frame_without_size,
};
use crate::zipmaker::{Entry, ZSTD};

/// A size in bytes above the limit for decoding an entry whole.
pub const BIG: usize = 70 << 20;

/// Returns a text that is too long to be decoded whole, with different noise after each repeated block.
pub fn long_text() -> Vec<u8> {
    let block = text(250_000);
    let mut bytes = Vec::with_capacity(BIG);
    let mut number = 0_u64;
    while bytes.len() < 66 << 20 {
        bytes.extend_from_slice(&block);
        bytes.extend_from_slice(&noise(number, 1000));
        number += 1;
    }
    bytes
}

pub fn a11() -> Vec<Case> {
    let zeros = vec![0; BIG];
    let long = long_text();
    let among = |name: &str, content: &[u8], entry: Entry| {
        Case::between_good_entries(name, vec![entry]).file("a", content)
    };
    let medium = text(1 << 20);
    let noisy = noise(11, 300_000);
    let raw = deflate_without_compression(&noisy);
    let frames = [
        zstd_frame(&medium[..400_000]),
        zstd_frame_without_size(&medium[400_000..700_000]),
        // A skippable frame (RFC 8878, section 3.1.2).
        b"\x50\x2a\x4d\x18\x03\0\0\0xyz".to_vec(),
        zstd_frame(&medium[700_000..]),
    ]
    .concat();
    let mut two = deflate(&medium);
    two.extend(b"behind the last block");
    vec![
        among("deflated_1_mib", &medium, Entry::deflated("a", &medium)),
        among(
            "deflated_noise_300_kb",
            &noisy,
            Entry::deflated("a", &noisy),
        ),
        among(
            "deflated_blocks_without_compression",
            &noisy,
            Entry::coded("a", 8, &noisy, raw),
        ),
        among("deflated_nothing", b"", Entry::deflated("a", b"")),
        among("zstd_nothing", b"", Entry::zstd("a", b"")),
        among(
            "deflated_one_byte_exactly",
            b"x",
            Entry::deflated("a", b"x"),
        ),
        among("zstd_1_mib", &medium, Entry::zstd("a", &medium)),
        among(
            "zstd_without_size",
            &medium,
            Entry::coded("a", ZSTD, &medium, zstd_frame_without_size(&medium)),
        ),
        among(
            "zstd_of_several_frames",
            &medium,
            Entry::coded("a", ZSTD, &medium, frames),
        ),
        Case::between_good_entries(
            "deflated_with_more_behind_it",
            vec![Entry::coded("a", 8, &medium, two)],
        )
        .file_or_fails("a", &medium),
        among(
            "deflated_70_mib_of_zeros",
            &zeros,
            Entry::deflated("a", &zeros),
        ),
        among(
            "deflated_66_mib_of_text",
            &long,
            Entry::coded("a", 8, &long, deflate_fast(&long)),
        ),
    ]
}
