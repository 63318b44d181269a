//! A1, A2, A14, A17: files that are no archives, invalid central directories, an index over the memory
//! limit, and archives that could make a parser loop.

use super::{Case, between_good_entries, first, last, noise, only_good_entries, text};
use crate::records::local_header;
use crate::zipmaker::{End, End64, Entry, Offset, Zip};

const NO_END: &str = "no end of central directory";
const DIRECTORY: &str = "central directory";

pub fn a01() -> Vec<Case> {
    let (good, layout) = only_good_entries().build_with_layout();
    let mut only_header = Vec::new();
    local_header(&mut only_header, &Entry::stored("a", b"a").local);
    let mut gzip = b"\x1f\x8b\x08\0\0\0\0\0\0\x03".to_vec();
    gzip.extend(text(500));
    let mut wrong_signature = good.clone();
    wrong_signature[layout.end + 3] = 7;
    let mut cases = vec![
        Case::refused("an_empty_file", Vec::new(), "zip archive"),
        Case::refused("one_byte", b"P".to_vec(), NO_END),
        Case::refused("a_text", text(5000), NO_END),
        Case::refused("zeros", vec![0; 4096], NO_END),
        Case::refused("two_mib_of_noise", noise(5, 2 << 20), NO_END),
        Case::refused("a_gzip_file", gzip, "a zip archive of one, or a"),
        Case::refused("a_local_header_alone", only_header, NO_END),
        Case::refused("no_directory", good[..layout.directory].to_vec(), NO_END),
        Case::refused(
            "half_a_directory",
            good[..layout.directory + 60].to_vec(),
            NO_END,
        ),
        Case::refused("no_end_record", good[..layout.end].to_vec(), NO_END),
        Case::refused("a_wrong_end_signature", wrong_signature, NO_END),
        Case::refused("the_second_half", good[good.len() - 10..].to_vec(), NO_END),
        Case::refused(
            "a_comment_that_is_cut_off",
            only_good_entries()
                .with(|zip| zip.end.comment_length = Some(100))
                .build(),
            DIRECTORY,
        ),
        Case::served("an_archive_of_nothing", Zip::default().build()),
    ];
    for length in 1..22 {
        cases.push(Case::refused(
            format!("an_end_record_of_{length}_bytes"),
            good[..layout.end + length].to_vec(),
            DIRECTORY,
        ));
    }
    cases
}

/// Returns a case of the good archive with another end record.
fn ends(name: &str, end: End) -> Case {
    Case::refused(
        name,
        only_good_entries().with(|zip| zip.end = end).build(),
        DIRECTORY,
    )
}

/// Returns a case of the good archive with other zip64 records, to which the plain end record refers.
fn ends64(name: &str, end64: End64) -> Case {
    let zip = only_good_entries().with(|zip| {
        zip.end = referring();
        zip.end64 = Some(end64);
    });
    Case::refused(name, zip.build(), DIRECTORY)
}

/// Returns an end record that refers to the zip64 record for all values.
pub fn referring() -> End {
    End {
        entries: Some(u16::MAX),
        directory_bytes: Some(u32::MAX),
        directory_offset: Some(u32::MAX),
        ..End::default()
    }
}

pub fn a02() -> Vec<Case> {
    let (good, layout) = between_good_entries(vec![Entry::stored("a", b"a")]).build_with_layout();
    let broken = |name: &str, at: usize, value: u8| {
        let mut bytes = good.clone();
        bytes[layout.directory + at] = value;
        Case::refused(name, bytes, DIRECTORY)
    };
    // The offset of the second record: after the 46 bytes and the name of the first record.
    let second = 46 + "good/first".len();
    let mut cases = vec![
        ends(
            "an_offset_behind_the_end",
            End {
                directory_offset: Some(1 << 30),
                ..End::default()
            },
        ),
        ends(
            "an_offset_of_all_ones",
            End {
                directory_offset: Some(u32::MAX),
                ..End::default()
            },
        ),
        ends(
            "offset_and_size_behind_the_end",
            End {
                directory_offset: Some(1 << 30),
                directory_bytes: Some(1 << 30),
                ..End::default()
            },
        ),
        ends(
            "offset_and_size_of_all_ones",
            End {
                directory_offset: Some(u32::MAX),
                directory_bytes: Some(u32::MAX),
                ..End::default()
            },
        ),
        ends(
            "an_offset_in_the_middle_of_a_record",
            End {
                directory_offset: Some(layout.directory as u32 + 5),
                directory_bytes: Some(20),
                ..End::default()
            },
        ),
        ends(
            "a_directory_of_local_headers",
            End {
                directory_offset: Some(0),
                directory_bytes: Some(50),
                ..End::default()
            },
        ),
        ends(
            "one_entry_claimed_two_there",
            End {
                entries: Some(1),
                ..End::default()
            },
        ),
        ends(
            "no_entry_claimed_two_there",
            End {
                entries: Some(0),
                ..End::default()
            },
        ),
        ends(
            "three_entries_claimed_two_there",
            End {
                entries: Some(3),
                ..End::default()
            },
        ),
        ends(
            "sixty_thousand_entries_claimed",
            End {
                entries: Some(60_000),
                ..End::default()
            },
        ),
        ends(
            "entries_of_all_ones_without_zip64",
            End {
                entries: Some(u16::MAX),
                ..End::default()
            },
        ),
        ends("a_reference_to_no_zip64_record", referring()),
        broken("a_second_record_without_signature", second + 2, 9),
        broken("a_first_record_without_signature", 2, 9),
        broken("a_name_longer_than_the_directory", 29, 0xff),
        broken(
            "an_extra_field_longer_than_the_directory",
            second + 31,
            0xff,
        ),
        broken("a_comment_longer_than_the_directory", second + 33, 0xff),
    ];
    for entries in [3, 65_536, 1 << 32, 1 << 40, 1 << 63, u64::MAX] {
        cases.push(ends64(
            &format!("zip64_claims_{entries}_entries"),
            End64 {
                entries: Some(entries),
                ..End64::default()
            },
        ));
    }
    for offset in [
        good.len() as u64,
        1 << 40,
        i64::MAX as u64,
        u64::MAX - 10,
        u64::MAX,
    ] {
        cases.push(ends64(
            &format!("zip64_directory_at_{offset}"),
            End64 {
                directory_offset: Some(offset),
                directory_bytes: Some(u64::MAX - 5),
                ..End64::default()
            },
        ));
        cases.push(ends64(
            &format!("zip64_record_at_{offset}"),
            End64 {
                locator_offset: Some(offset),
                ..End64::default()
            },
        ));
    }
    for bytes in [0, 1 << 40, u64::MAX] {
        cases.push(ends64(
            &format!("zip64_record_of_{bytes}_bytes"),
            End64 {
                record_bytes: Some(bytes),
                ..End64::default()
            },
        ));
    }
    cases
}

pub fn a14() -> Vec<Case> {
    let many = super::features::many(70_000, true).build();
    let deep: Vec<Entry> = (0..50)
        .map(|i| Entry::stored(format!("{i}/{}x", "d/".repeat(1000)), b""))
        .collect();
    vec![
        Case::refused("an_index_over_the_limit", many, "the limit is 1048576")
            .memory_limit(1 << 20),
        Case::refused(
            "implied_directories_over_the_limit",
            Zip::of(deep).build(),
            "--memory-limit",
        )
        .memory_limit(1 << 20),
        {
            let files = super::features::many(7_000, true);
            let case = Case::served("an_index_within_the_limit", files.build());
            super::features::many_files(case, 7_000).memory_limit(1 << 20)
        },
        Case::between_good_entries(
            "a_file_over_the_limit",
            vec![Entry::zstd("big", &vec![7; 3 << 20])],
        )
        .fails("big", &[rustix::io::Errno::NOMEM], "the limit is 1048576")
        .memory_limit(1 << 20),
    ]
}

pub fn a17() -> Vec<Case> {
    let good = only_good_entries();
    let (_, layout) = good.build_with_layout();
    let fakes = |n: usize| b"PK\x05\x06".repeat(n);
    let mut full_fakes = Vec::new();
    for _ in 0..2900 {
        full_fakes.extend(Zip::default().with(|zip| zip.end.entries = Some(7)).build());
    }
    let locator_at = |offset: u64| {
        only_good_entries()
            .with(|zip| {
                zip.end = referring();
                zip.end64 = Some(End64 {
                    locator_offset: Some(offset),
                    ..End64::default()
                });
            })
            .build()
    };
    let deep: Vec<Entry> = (0..100)
        .map(|i| Entry::stored(format!("{}{i}", "a/".repeat(1500)), b"deep"))
        .collect();
    let mut deep_case = Case::served(
        "a_hundred_files_1500_directories_deep",
        Zip::of(deep).build(),
    );
    for i in 0..100 {
        deep_case = deep_case.file(format!("{}{i}", "a/".repeat(1500)), b"deep");
    }
    let same_headers: Vec<Entry> = (0..2000)
        .map(|i| {
            Entry::stored(format!("{i}"), b"").with(|entry| {
                entry.only_central = true;
                entry.offset = Offset::At(0);
            })
        })
        .collect();
    let mut same = Case::served(
        "two_thousand_entries_of_one_header",
        Zip::of([vec![Entry::stored("real", b"real")], same_headers].concat()).build(),
    )
    .note("overlap");
    same = same.fails("real", &[rustix::io::Errno::IO], "overlap");
    for i in 0..2000 {
        same = same.fails(format!("{i}"), &[rustix::io::Errno::IO], "");
    }
    vec![
        Case::refused_or_served(
            "a_comment_of_sixteen_thousand_end_signatures",
            only_good_entries()
                .with(|zip| zip.comment = fakes(16_000))
                .build(),
        )
        .good(),
        Case::refused_or_served(
            "a_comment_of_three_thousand_false_end_records",
            only_good_entries()
                .with(|zip| zip.comment = full_fakes)
                .build(),
        )
        .good(),
        Case::refused("a_mebibyte_of_end_signatures", fakes(1 << 18), DIRECTORY),
        Case::refused_or_served(
            "a_zip64_locator_that_points_at_itself",
            locator_at(layout.end as u64 + 56),
        )
        .good(),
        Case::refused_or_served(
            "a_zip64_locator_that_points_at_the_end_record",
            locator_at(layout.end as u64 + 76),
        )
        .good(),
        Case::refused(
            "an_end_record_that_is_its_own_directory",
            Zip::default()
                .with(|zip| {
                    zip.end.entries = Some(1);
                    zip.end.directory_bytes = Some(22);
                })
                .build(),
            DIRECTORY,
        ),
        Case::served(
            "a_directory_whose_extra_fields_have_no_length",
            Zip::of(vec![
                Entry::stored("good/first", &first()).both(|f| f.extra = vec![0; 400]),
                Entry::deflated("good/last", &last()).both(|f| f.extra = vec![0xff; 401]),
            ])
            .build(),
        )
        .good(),
        deep_case,
        same,
    ]
}
