//! A9 and A10: checksums and sizes.

use rustix::io::Errno;

use super::segments::BIG;
use super::{Case, between_good_entries, noise, text};
use crate::coders::{zstd_frame_claiming, zstd_frame_of_window, zstd_frame_without_size};
use crate::records::extra_field;
use crate::zipmaker::{DEFLATED, Entry, ZSTD};

const CRC: &str = "crc32 mismatch";

fn one(name: impl Into<String>, entry: Entry, gist: &'static str) -> Case {
    Case::between_good_entries(name, vec![entry]).corrupt("a", gist)
}

type Coder = fn(&'static str, &[u8]) -> Entry;

pub fn a09() -> Vec<Case> {
    let coders: [(&str, Coder); 3] = [
        ("stored", Entry::stored),
        ("deflated", Entry::deflated),
        ("zstd", Entry::zstd),
    ];
    let mut cases = Vec::new();
    for (kind, coded) in coders {
        for size in [1, 1000, 40_000, 200_000, 3 << 20] {
            let entry = coded("a", &noise(9, size)).both(|f| f.crc ^= 0x10);
            cases.push(one(
                format!("{kind}_{size}_bytes_with_another_crc"),
                entry,
                CRC,
            ));
            if size > 1 {
                let flip =
                    |at: usize| coded("a", &noise(9, size)).with(|entry| entry.data[at] ^= 0x40);
                let length = flip(0).data.len();
                for (place, at) in [("middle", length / 2), ("end", length - 1)] {
                    let name = format!("{kind}_{size}_bytes_with_a_flip_at_the_{place}");
                    cases.push(one(name, flip(at), "corrupt"));
                }
            }
        }
        let nothing = coded("a", b"").both(|f| f.crc = 0x1234_5678);
        cases.push(one(
            format!("{kind}_nothing_with_a_crc"),
            nothing,
            "corrupt",
        ));
    }
    cases.push(one(
        "deflated_70_mib_with_another_crc",
        Entry::deflated("a", &vec![0; BIG]).both(|f| f.crc ^= 0x10),
        CRC,
    ));
    cases.push(one(
        "streamed_with_another_crc",
        Entry::deflated("a", &text(3000))
            .both(|f| f.crc ^= 1)
            .streamed(true, false),
        CRC,
    ));
    let only_descriptor = Entry::deflated("a", &text(3000)).streamed(true, false);
    cases.push(
        Case::between_good_entries(
            "a_good_entry_with_a_bad_sibling",
            vec![
                only_descriptor,
                Entry::stored("b", &noise(9, 200_000)).both(|f| f.crc ^= 1),
            ],
        )
        .file("a", &text(3000))
        .corrupt("b", CRC),
    );
    cases
}

/// Sets the declared size in both headers.
fn sized(entry: Entry, size: u64) -> Entry {
    entry.both(|f| {
        f.size = size;
        f.zip64 = size > u64::from(u32::MAX);
    })
}

/// Returns a stored entry that declares `size` and the same compressed size.
fn stored_of(size: u64) -> Entry {
    sized(Entry::stored("a", &noise(3, 1000)), size).both(|f| f.compressed = size)
}

fn impossible(name: impl Into<String>, entry: Entry, gist: &'static str) -> Case {
    one(name, entry, gist).note("cannot be read")
}

pub fn a10() -> Vec<Case> {
    let small = || Entry::deflated("a", &text(1000));
    let medium = || Entry::deflated("a", &text(200_000));
    let zeros = |claimed: u64| sized(Entry::deflated("a", &vec![0; 10 << 20]), claimed);
    let big = |claimed: usize| sized(Entry::deflated("a", &vec![0; BIG]), claimed as u64);
    let noisy = Entry::deflated("a", &noise(5, 10_000));
    let ratio = noisy.data.len() as u64 * 1032;
    let frame = |claimed: u64, size: u64| {
        let content = text(1000);
        let data = zstd_frame_claiming(claimed, &content);
        sized(Entry::coded("a", ZSTD, &content, data), size)
    };
    let wide = noise(6, 100_000);
    let either: &[Errno] = &[Errno::IO, Errno::NOMEM];
    let mut cases = vec![
        impossible(
            "stored_one_more",
            sized(Entry::stored("a", &noise(3, 1000)), 1001),
            "cannot hold",
        ),
        impossible(
            "stored_one_less",
            sized(Entry::stored("a", &noise(3, 1000)), 999),
            "cannot hold",
        ),
        impossible(
            "stored_none",
            sized(Entry::stored("a", &noise(3, 1000)), 0),
            "cannot hold",
        ),
        impossible(
            "stored_4_gib",
            stored_of(u64::from(u32::MAX) - 1),
            "central directory",
        ),
        impossible("stored_16_tib", stored_of(1 << 44), "central directory"),
        impossible("stored_all_ones", stored_of(u64::MAX), "central directory"),
        impossible(
            "stored_more_than_a_file_can_have",
            stored_of(i64::MAX as u64 + 1),
            "central directory",
        ),
        one(
            "deflated_one_more",
            sized(small(), 1001),
            "inflates to 1000 bytes, 1001 declared",
        ),
        one(
            "deflated_one_less",
            sized(small(), 999),
            "more than the 999 bytes declared",
        ),
        one(
            "deflated_one_byte",
            sized(small(), 1),
            "more than the 1 bytes declared",
        ),
        one("deflated_none", sized(small(), 0), "corrupt"),
        one(
            "deflated_200_kb_one_more",
            sized(medium(), 200_001),
            "inflates to 200000 bytes",
        ),
        one(
            "deflated_200_kb_one_less",
            sized(medium(), 199_999),
            "inflates to more",
        ),
        one(
            "deflated_half",
            sized(medium(), 100_000),
            "inflates to more",
        ),
        one("a_bomb_that_claims_10_bytes", zeros(10), "corrupt"),
        one(
            "a_bomb_that_claims_100_kb",
            zeros(100_000),
            "inflates to more",
        ),
        one(
            "at_the_greatest_ratio",
            sized(noisy.clone(), ratio),
            "inflates to 10000 bytes",
        ),
        impossible(
            "above_the_greatest_ratio",
            sized(noisy.clone(), ratio + 1),
            "cannot hold",
        ),
        impossible(
            "deflated_1_tib",
            sized(noisy.clone(), 1 << 40),
            "cannot hold",
        ),
        impossible(
            "deflated_more_than_a_file_can_have",
            sized(noisy, u64::MAX),
            "cannot hold",
        ),
        impossible(
            "deflated_from_nothing",
            sized(Entry::coded("a", DEFLATED, b"", Vec::new()), 1),
            "cannot hold",
        ),
        one("deflated_70_mib_one_more", big(BIG + 1), "corrupt"),
        one("deflated_70_mib_one_less", big(BIG - 1), "corrupt"),
        one("deflated_70_mib_that_claims_65", big(65 << 20), "corrupt"),
        one(
            "deflated_10_mib_that_claims_the_most",
            zeros(10 << 20).with(|entry| {
                let most = entry.data.len() as u64 * 1032;
                *entry = sized(entry.clone(), most);
            }),
            "corrupt",
        ),
        one("zstd_frame_claims_1_tib", frame(1 << 40, 1000), "corrupt"),
        one("zstd_frame_claims_one_more", frame(1001, 1000), "corrupt"),
        one("zstd_frame_claims_none", frame(0, 1000), "corrupt"),
        // A size of all ones means that the size is unknown.
        Case::between_good_entries("zstd_frame_claims_all_ones", vec![frame(u64::MAX, 1000)])
            .file_or_fails("a", &text(1000)),
        Case::between_good_entries(
            "zstd_window_of_128_mib",
            vec![Entry::coded(
                "a",
                ZSTD,
                &wide,
                zstd_frame_of_window(17 << 3, &wide),
            )],
        )
        .file_or_fails("a", &wide),
        Case::between_good_entries(
            "zstd_window_of_3_tib",
            vec![Entry::coded(
                "a",
                ZSTD,
                &wide,
                zstd_frame_of_window(u8::MAX, &wide),
            )],
        )
        .corrupt("a", "corrupt"),
        Case::between_good_entries(
            "zstd_900_mib_and_a_limit_of_16",
            vec![frame(900 << 20, 900 << 20)],
        )
        .fails("a", either, "")
        .memory_limit(16 << 20),
        Case::refused_or_served(
            "zip64_sizes_that_are_not_there",
            between_good_entries(vec![
                stored_of(u64::from(u32::MAX)).both(|f| f.zip64 = false),
            ])
            .build(),
        )
        .good()
        .corrupt("a", ""),
        Case::refused_or_served(
            "a_zip64_field_that_is_too_short",
            between_good_entries(vec![stored_of(u64::from(u32::MAX)).both(|f| {
                f.zip64 = false;
                f.extra = extra_field(1, &[0; 4]);
            })])
            .build(),
        )
        .good()
        .corrupt("a", ""),
        one(
            "zstd_one_more",
            sized(Entry::zstd("a", &text(1000)), 1001),
            "decodes to 1000 bytes",
        ),
        one(
            "zstd_one_less",
            sized(Entry::zstd("a", &text(1000)), 999),
            "corrupt",
        ),
        one(
            "zstd_none",
            sized(Entry::zstd("a", &text(1000)), 0),
            "corrupt",
        ),
        one(
            "zstd_200_kb_one_less",
            sized(Entry::zstd("a", &text(200_000)), 199_999),
            "corrupt",
        ),
        one(
            "zstd_200_kb_one_more",
            sized(Entry::zstd("a", &text(200_000)), 200_001),
            "corrupt",
        ),
        one(
            "zstd_bomb_that_claims_100_kb",
            sized(Entry::zstd("a", &vec![0; 10 << 20]), 100_000),
            "corrupt",
        ),
        one(
            "zstd_bomb_without_size_that_claims_100_kb",
            sized(
                Entry::coded("a", ZSTD, b"", zstd_frame_without_size(&vec![0; 10 << 20])),
                100_000,
            ),
            "decodes to more than the 100000 bytes declared",
        ),
    ];
    for (name, entry) in [
        ("zstd_1_tib", sized(Entry::zstd("a", &text(1000)), 1 << 40)),
        ("zstd_1_tib_twice", frame(1 << 40, 1 << 40)),
        ("zstd_all_ones", frame(u64::MAX - 2, u64::MAX)),
    ] {
        cases.push(Case::between_good_entries(name, vec![entry]).fails("a", either, ""));
    }
    for (name, entry) in [
        ("deflated_cut", medium()),
        ("deflated_70_mib_cut", big(BIG)),
        ("zstd_cut", Entry::zstd("a", &text(200_000))),
        ("small_zstd_cut", Entry::zstd("a", &text(1000))),
    ] {
        let entry = entry.with(|entry| {
            let length = entry.data.len() - 5;
            entry.data.truncate(length);
        });
        let length = entry.data.len() as u64;
        cases.push(one(name, entry.both(|f| f.compressed = length), "corrupt"));
    }
    for (name, method) in [("deflated_noise", DEFLATED), ("zstd_noise", ZSTD)] {
        let entry = Entry::coded("a", method, &text(5000), noise(77, 900));
        cases.push(one(name, entry, "corrupt"));
    }
    cases
}
