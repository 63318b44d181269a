//! A13, A15, A16: unusual but valid archives, special files such as links and devices, zips in zips.

use super::directory::referring;
use super::{Case, between_good_entries, first, last, noise, only_good_entries, text};
use crate::records::{extra_field, put16, put32};
use crate::zipmaker::{End64, Entry, Offset, Zip};

/// Returns the content of file `i` of many files.
fn tiny(i: usize) -> Vec<u8> {
    format!("{i}").into_bytes()
}

fn tiny_name(i: usize) -> String {
    format!("c/{}/{i}", i / 1000)
}

/// Returns an archive of very many tiny files; without zip64 the 16-bit count wraps.
pub fn many(files: usize, zip64: bool) -> Zip {
    let entries = (0..files).map(|i| Entry::stored(tiny_name(i), &tiny(i)));
    Zip::of(entries.collect()).with(|zip| {
        if zip64 {
            zip.end = referring();
            zip.end64 = Some(End64::default());
        }
    })
}

/// Expects the files of [`many`].
pub fn many_files(case: Case, files: usize) -> Case {
    (0..files).fold(case, |case, i| case.file(tiny_name(i), &tiny(i)))
}

/// Returns a case of the good archive with a change that must not affect the files.
fn good(name: &str, change: impl FnOnce(&mut Zip)) -> Case {
    Case::served(name, only_good_entries().with(change).build()).good()
}

fn zip64(zip: &mut Zip) {
    zip.end = referring();
    zip.end64 = Some(End64::default());
}

fn a(name: impl Into<String>, content: &[u8], entry: Entry) -> Case {
    Case::between_good_entries(name, vec![entry]).file("a", content)
}

pub fn a13() -> Vec<Case> {
    let mut cases = Vec::new();
    let content = text(5000);
    for (coding, entry) in [
        ("stored", Entry::stored("a", &content)),
        ("deflated", Entry::deflated("a", &content)),
        ("zstd", Entry::zstd("a", &content)),
    ] {
        for signature in [true, false] {
            for wide in [true, false] {
                let name = format!(
                    "{coding}_with_{}_descriptor{}",
                    if wide { "a_zip64" } else { "a" },
                    if signature { "" } else { "_without_signature" }
                );
                cases.push(a(name, &content, entry.clone().streamed(signature, wide)));
            }
        }
        let wide = entry.both(|f| f.zip64 = true);
        cases.push(a(format!("{coding}_with_zip64_sizes"), &content, wide));
    }
    let timestamps = extra_field(0x5455, b"\x03\x10\x20\x30\x40\x11\x21\x31\x41");
    let sentinel = b"PK\x05\x06";
    let in_the_middle = [
        b"before ",
        &sentinel[..],
        b" after, long enough for a record",
    ]
    .concat();
    let at_the_end = [b"before ", &sentinel[..]].concat();
    let false_end = |entries: u16, bytes: u32, offset: u32| {
        let mut record = b"about PK\x05\x06\0\0\0\0".to_vec();
        put16(&mut record, entries);
        put16(&mut record, entries);
        put32(&mut record, bytes);
        put32(&mut record, offset);
        put16(&mut record, 0);
        record
    };
    let mut signature = b"PK\x05\x05".to_vec();
    put16(&mut signature, 20);
    signature.extend([7; 20]);
    let mut more = b"PK\x06\x08".to_vec();
    put32(&mut more, 10);
    more.extend([7; 10]);
    cases.extend([
        good("zip64_records_with_nothing_to_say", |zip| {
            zip.end64 = Some(End64::default())
        }),
        good("zip64_records_that_are_needed", zip64),
        good("a_zip64_record_with_more_data", |zip| {
            zip64(zip);
            zip.end64 = Some(End64 {
                extensible: vec![5; 300],
                ..End64::default()
            });
        }),
        good("a_counted_prefix", |zip| zip.prefix = noise(1, 1000)),
        good("an_uncounted_prefix", |zip| {
            zip.prefix = noise(1, 1000);
            zip.prefix_uncounted = true;
        }),
        good("a_program_before_the_archive", |zip| {
            zip.prefix = [b"\x7fELF", &noise(1, 1 << 20)[..], b"PK\x03\x04 PK\x01\x02"].concat();
            zip.prefix_uncounted = true;
        }),
        good("a_counted_prefix_and_zip64", |zip| {
            zip64(zip);
            zip.prefix = noise(1, 1000);
        }),
        // The zip64 record is found by its offset only.
        Case::refused(
            "an_uncounted_prefix_and_zip64",
            only_good_entries()
                .with(|zip| {
                    zip64(zip);
                    zip.prefix = noise(1, 1000);
                    zip.prefix_uncounted = true;
                })
                .build(),
            "bad central directory",
        ),
        good("a_zip_before_the_zip", |zip| {
            zip.prefix = Zip::of(vec![Entry::stored("other", b"other")]).build();
            zip.prefix_uncounted = true;
        }),
        good("a_comment", |zip| zip.comment = b"made by hand".to_vec()),
        good("a_comment_of_65535_bytes", |zip| zip.comment = text(65_535)),
        good("a_comment_with_the_end_signature", |zip| {
            zip.comment = in_the_middle
        }),
        good("a_comment_that_ends_with_the_end_signature", |zip| {
            zip.comment = at_the_end
        }),
        good("a_comment_with_twenty_end_signatures", |zip| {
            zip.comment = sentinel.repeat(20)
        }),
        good("a_comment_with_a_false_end_record", |zip| {
            zip.comment = false_end(3, 150, 10)
        }),
        good("a_comment_with_an_end_record_that_points_far", |zip| {
            zip.comment = false_end(3, 150, 1 << 30);
        }),
        good("a_comment_with_a_record_of_too_many_entries", |zip| {
            zip.comment = [&false_end(9999, 150, 10)[..], b"and more"].concat();
        }),
        // An end record of an empty archive fits any file. Only an empty tree is a wrong result.
        Case::refused_or_served(
            "a_comment_with_an_end_record_of_nothing",
            only_good_entries()
                .with(|zip| zip.comment = false_end(0, 0, 0))
                .build(),
        )
        .good(),
        good(
            "a_comment_with_an_end_record_of_nothing_and_more_text",
            |zip| {
                zip.comment = [&false_end(0, 0, 0)[..], b"and more text"].concat();
            },
        ),
        good("something_between_data_and_directory", |zip| {
            zip.before_directory = noise(4, 999)
        }),
        good("an_archive_extra_data_record", |zip| {
            zip.before_directory = more
        }),
        good("a_signed_directory", |zip| zip.after_directory = signature),
        good("bytes_behind_the_end", |zip| zip.suffix = vec![0; 500]),
        good("entry_comments", |zip| {
            zip.entries
                .iter_mut()
                .for_each(|e| e.comment = b"PK\x01\x02 PK\x05\x06".to_vec());
        }),
        good("another_time_than_any", |zip| {
            zip.entries[0] = zip.entries[0].clone().both(|f| f.time = 0);
            zip.entries[1] = zip.entries[1].clone().both(|f| f.time = u32::MAX);
        }),
        good("a_version_of_the_far_future", |zip| {
            let entry = &mut zip.entries[0];
            *entry = entry.clone().both(|f| f.version = 999);
            entry.made_by = 0xffff;
        }),
        good("padding_in_the_local_extra_field", |zip| {
            zip.entries[0].local.extra = vec![0; 3];
            zip.entries[1].local.extra = extra_field(0xd935, &[0; 60_000]);
        }),
        good("timestamps", |zip| {
            zip.entries.iter_mut().for_each(|e| {
                e.local.extra = timestamps.clone();
                e.central.extra = timestamps[..9].to_vec();
            });
        }),
        a(
            "an_extra_field_beyond_its_area",
            b"a",
            Entry::stored("a", b"a").both(|f| f.extra = b"\x99\x99\xff\xffx".to_vec()),
        ),
        {
            let mut entries: Vec<Entry> = (0..20)
                .map(|i| Entry::stored(tiny_name(i), &tiny(i)).with(|e| e.only_local = true))
                .collect();
            entries.extend((0..20).rev().map(|i| {
                Entry::stored(tiny_name(i), &tiny(i)).with(|e| {
                    e.only_central = true;
                    e.offset = Offset::Of(i);
                })
            }));
            many_files(
                Case::served("a_directory_in_another_order", Zip::of(entries).build()),
                20,
            )
        },
        many_files(
            Case::served("entries_65535_without_zip64", many(65_535, false).build()),
            65_535,
        ),
        many_files(
            Case::served("entries_65536_without_zip64", many(65_536, false).build()),
            65_536,
        ),
        many_files(
            Case::served("entries_70000_with_zip64", many(70_000, true).build()),
            70_000,
        ),
    ]);
    cases
}

pub fn a15() -> Vec<Case> {
    let moded = |name: &str, mode: u32| {
        a(
            name,
            b"../../../etc/passwd",
            Entry::stored("a", b"../../../etc/passwd").with(|entry| entry.external = mode << 16),
        )
    };
    let dos = |name: &str, attributes: u32| {
        a(
            name,
            b"x",
            Entry::stored("a", b"x").with(|entry| {
                entry.made_by = 20;
                entry.external = attributes;
            }),
        )
    };
    vec![
        moded("a_symbolic_link", 0o120_777),
        moded("a_character_device", 0o20_666),
        moded("a_block_device", 0o60_666),
        moded("a_fifo", 0o10_644),
        moded("a_socket", 0o140_755),
        moded("a_setuid_program", 0o104_755),
        moded("a_setgid_and_sticky_program", 0o103_777),
        moded("a_file_without_permissions", 0o100_000),
        moded("a_file_without_mode", 0),
        moded("an_impossible_mode", 0o177_777),
        dos("a_volume_label", 0x08),
        dos("a_hidden_system_file", 0x06),
        Case::between_good_entries(
            "a_device_that_is_a_directory",
            vec![Entry::directory("d/").with(|entry| entry.external = 0o20_666 << 16)],
        )
        .empty("d"),
        Case::between_good_entries(
            "a_link_and_a_file_below_it",
            vec![
                Entry::stored("l", b"/etc").with(|entry| entry.external = 0o120_777 << 16),
                Entry::stored("l/passwd", b"mine"),
            ],
        )
        .file("l/passwd", b"mine")
        .note("hidden by directories"),
    ]
}

pub fn a16() -> Vec<Case> {
    let inner = between_good_entries(vec![Entry::stored("x", b"x")]).build();
    let twice = Zip::of(vec![Entry::stored("inner.zip", &inner)]).build();
    vec![
        a("a_stored_zip", &inner, Entry::stored("a", &inner)),
        a("a_deflated_zip", &inner, Entry::deflated("a", &inner)),
        a("a_zstd_zip", &inner, Entry::zstd("a", &inner)),
        a(
            "a_zip_in_a_zip_in_a_zip",
            &twice,
            Entry::stored("a", &twice),
        ),
        Case::served(
            "a_zip_as_the_last_entry",
            Zip::of(vec![
                Entry::stored("good/first", &first()),
                Entry::deflated("good/last", &last()),
                Entry::stored("a.zip", &inner),
            ])
            .build(),
        )
        .good()
        .file("a.zip", &inner),
        Case::between_good_entries(
            "a_hundred_copies_of_a_zip",
            (0..100)
                .map(|i| Entry::stored(format!("{i}.zip"), &inner))
                .collect(),
        )
        .hundred(&inner),
    ]
}

impl Case {
    fn hundred(self, content: &[u8]) -> Self {
        (0..100).fold(self, |case, i| case.file(format!("{i}.zip"), content))
    }
}
