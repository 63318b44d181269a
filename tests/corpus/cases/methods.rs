//! A12: encrypted entries, unsupported methods, and split archives.

use rustix::io::Errno;

use super::directory::referring;
use super::{Case, between_good_entries, first, last, noise};
use crate::records::extra_field;
use crate::zipmaker::{
    End, End64, Entry, FLAG_ENCRYPTED, FLAG_MASKED, FLAG_STRONG_ENCRYPTION, Fields,
};

const NOTE: &str = "cannot be read";

fn entry() -> Entry {
    Entry::stored("a", &noise(6, 400))
}

fn unsupported(name: impl Into<String>, gist: &'static str, entry: Entry) -> Case {
    Case::between_good_entries(name, vec![entry])
        .fails_to_open("a", Errno::OPNOTSUPP, gist)
        .note(NOTE)
}

fn flags(flags: u16) -> impl Fn(&mut Fields) {
    move |fields| fields.flags |= flags
}

/// Returns a case of one part of a split archive, none of whose entries can be read.
fn split(name: &str, end: End, end64: Option<End64>) -> Case {
    let zip = between_good_entries(Vec::new()).with(|zip| {
        zip.end = end;
        zip.end64 = end64;
    });
    Case::served(name, zip.build())
        .fails_to_open("good/first", Errno::OPNOTSUPP, "several files")
        .fails_to_open("good/last", Errno::OPNOTSUPP, "several files")
        .note(NOTE)
}

pub fn a12() -> Vec<Case> {
    // WinZip AES: version 2, "AE", 256 bits, with "stored" as the real method.
    let aes = extra_field(0x9901, b"\x02\0AE\x03\0\0");
    let aes_entry = |flags: u16| {
        entry().both(|f| {
            f.flags = flags;
            f.method = 99;
            f.extra = aes.clone();
        })
    };
    let mut cases = vec![
        unsupported(
            "encrypted",
            "encrypted",
            entry().both(flags(FLAG_ENCRYPTED)),
        ),
        unsupported(
            "encrypted_and_deflated",
            "encrypted",
            Entry::deflated("a", &noise(6, 400)).both(flags(FLAG_ENCRYPTED)),
        ),
        unsupported(
            "encrypted_and_streamed",
            "encrypted",
            entry().streamed(true, false).both(flags(FLAG_ENCRYPTED)),
        ),
        unsupported(
            "strongly_encrypted",
            "encrypted",
            entry().both(flags(FLAG_ENCRYPTED | FLAG_STRONG_ENCRYPTION)),
        ),
        unsupported(
            "strong_encryption_alone",
            "encrypted",
            entry().both(flags(FLAG_STRONG_ENCRYPTION)),
        ),
        unsupported(
            "an_encrypted_directory_of_the_archive",
            "encrypted",
            entry().both(flags(FLAG_ENCRYPTED | FLAG_STRONG_ENCRYPTION | FLAG_MASKED)),
        ),
        unsupported("aes", "encrypted", aes_entry(FLAG_ENCRYPTED)),
        unsupported("aes_without_its_flag", "method 99", aes_entry(0)),
        Case::between_good_entries(
            "encrypted_and_plain_side_by_side",
            vec![
                entry().both(flags(FLAG_ENCRYPTED)),
                Entry::zstd("b", &noise(7, 400)),
                Entry::deflated("c", &noise(8, 400)).both(|f| f.method = 9),
            ],
        )
        .fails_to_open("a", Errno::OPNOTSUPP, "encrypted")
        .fails_to_open("c", Errno::OPNOTSUPP, "method 9")
        .file("b", &noise(7, 400))
        .note("2 entries cannot be read"),
        split(
            "the_last_of_two_files",
            End {
                disk: Some(1),
                directory_disk: Some(0),
                ..End::default()
            },
            None,
        ),
        split(
            "the_second_file_with_its_own_directory",
            End {
                disk: Some(1),
                ..End::default()
            },
            None,
        ),
        split(
            "the_third_file_with_zip64",
            End {
                disk: Some(u16::MAX),
                ..referring()
            },
            Some(End64 {
                disk: Some(2),
                locator_disk: Some(2),
                disks: Some(3),
                ..End64::default()
            }),
        ),
        Case::between_good_entries(
            "an_entry_on_another_file",
            vec![entry().with(|entry| entry.disk = 1)],
        )
        .file_or_fails("a", &noise(6, 400)),
        // The output of `zip -s` if one file is enough.
        Case::served(
            "a_split_archive_of_one_file",
            between_good_entries(Vec::new())
                .with(|zip| zip.prefix = b"PK\x07\x08".to_vec())
                .build(),
        )
        .file("good/first", &first())
        .file("good/last", &last()),
    ];
    for (method, gist) in [
        (1, "method 1"),
        (2, "method 2"),
        (3, "method 3"),
        (4, "method 4"),
        (5, "method 5"),
        (6, "method 6"),
        (7, "method 7"),
        (9, "method 9"),
        (10, "method 10"),
        (16, "method 16"),
        (18, "method 18"),
        (19, "method 19"),
        (20, "method 20"),
        (94, "method 94"),
        (96, "method 96"),
        (97, "method 97"),
        (98, "method 98"),
        (u16::MAX, "method 65535"),
    ] {
        let entry = entry().both(|f| f.method = method);
        cases.push(unsupported(format!("method_{method}"), gist, entry));
    }
    for (method, gist) in [
        (12, "bad bzip2 data"),
        (14, "bad lzma header"),
        (95, "bad xz data"),
    ] {
        let entry = entry().both(|f| f.method = method);
        cases.push(
            Case::between_good_entries(format!("method_{method}_of_other_data"), vec![entry])
                .corrupt("a", gist),
        );
    }
    cases
}
