//! A8: local headers that differ from the central directory.

use rustix::io::Errno;

use super::places::{NOTE, OVERLAP, again};
use super::{Case, noise, spare, text};
use crate::zipmaker::{Entry, FLAG_DESCRIPTOR, FLAG_ENCRYPTED, Fields, Offset};

/// Returns a case of the entry `a`, with a changed local header, among good entries.
fn local(name: &str, gist: &'static str, change: impl FnOnce(&mut Fields)) -> Case {
    let entry = Entry::deflated("a", &text(1000)).local(change);
    Case::between_good_entries(name, vec![entry, spare()]).corrupt("a", gist)
}

/// Returns a case of the stored entry `a`, with another offset of its local header.
fn elsewhere(name: &str, gist: &'static str, offset: Offset) -> Case {
    let entry = Entry::stored("a", &noise(2, 100)).with(|entry| entry.offset = offset);
    Case::between_good_entries(name, vec![entry, spare()]).corrupt("a", gist)
}

pub fn a08() -> Vec<Case> {
    let a = Entry::stored("a", &noise(2, 100));
    let header_at = 30 + 10 + 700_u64;
    let (archive, layout) = super::between_good_entries(vec![a.clone()]).build_with_layout();
    let directory = layout.directory as u64 + 30 + 5 + 300;
    let mut no_signature = archive.clone();
    no_signature[layout.headers[1]] = b'Q';
    let mut cut = archive;
    let extra_length = layout.headers[1] + 28;
    cut[extra_length..extra_length + 2].copy_from_slice(&[0xff, 0xff]);
    let hidden = Entry::stored("hidden", b"not in the directory").with(|e| e.only_local = true);
    vec![
        local("another_name", "named \"b\"", |f| f.name = b"b".into()),
        local("a_longer_name", "named \"aa\"", |f| f.name = b"aa".into()),
        local("an_empty_name", "named \"\"", |f| f.name = b"".into()),
        local("a_name_in_a_directory", "named \"x/a\"", |f| {
            f.name = b"x/a".into()
        }),
        local("a_name_with_a_slash", "named \"/a\"", |f| {
            f.name = b"/a".into()
        }),
        local("a_name_in_capitals", "named \"A\"", |f| {
            f.name = b"A".into()
        }),
        local(
            "stored_here_deflated_there",
            "method is 8 in the directory and 0",
            |f| f.method = 0,
        ),
        local(
            "another_method",
            "method is 8 in the directory and 99",
            |f| f.method = 99,
        ),
        local(
            "another_size",
            "size is 1000 in the directory and 1001",
            |f| f.size += 1,
        ),
        local("another_compressed_size", "compressed size is", |f| {
            f.compressed += 1
        }),
        local("sizes_of_zero", "in the local header", |f| {
            f.compressed = 0;
            f.size = 0;
        }),
        local("another_crc", "crc32 is", |f| f.crc ^= 1),
        local("encrypted_only_here", "encryption", |f| {
            f.flags |= FLAG_ENCRYPTED
        }),
        local(
            "another_zip64_size",
            "size is 1000 in the directory and 1099511628776",
            |f| {
                f.zip64 = true;
                f.size += 1 << 40;
            },
        ),
        local("a_streamed_header_of_another_size", "size is 1000", |f| {
            f.flags |= FLAG_DESCRIPTOR;
            f.size = 999;
        }),
        Case::between_good_entries(
            "stored_there_deflated_here",
            vec![Entry::stored("a", &noise(2, 100)).local(|f| f.method = 8)],
        )
        .corrupt("a", "method is 0 in the directory and 8"),
        Case::between_good_entries(
            "encrypted_only_there",
            vec![Entry::stored("a", b"open").central(|f| f.flags |= FLAG_ENCRYPTED)],
        )
        .fails_to_open("a", Errno::OPNOTSUPP, "encrypted")
        .note("cannot be read"),
        Case::between_good_entries(
            "an_unknown_method_only_there",
            vec![Entry::stored("a", b"plain").central(|f| f.method = 9)],
        )
        .fails_to_open("a", Errno::OPNOTSUPP, "method 9")
        .note("cannot be read"),
        Case::between_good_entries(
            "a_directory_there_a_file_here",
            vec![Entry::stored("a", b"a file").central(|f| f.name = b"a/".into())],
        )
        .empty("a"),
        Case::between_good_entries(
            "an_empty_file_there_a_full_one_here",
            vec![Entry::stored("a", &noise(2, 100)).central(|f| {
                f.crc = 0;
                f.size = 0;
                f.compressed = 0;
            })],
        )
        .corrupt("a", "corrupt"),
        Case::between_good_entries(
            "an_empty_file_of_another_name_here",
            vec![Entry::stored("a", b"").local(|f| f.name = b"b".into())],
        )
        .corrupt("a", "named \"b\""),
        elsewhere("an_offset_of_another_entry", "overlap", Offset::Of(0)).replaced_first(),
        elsewhere(
            "an_offset_in_its_own_data",
            "no local header",
            Offset::At(header_at + 40),
        ),
        elsewhere(
            "an_offset_in_the_middle_of_its_header",
            "no local header",
            Offset::At(header_at + 1),
        ),
        elsewhere(
            "an_offset_in_the_directory",
            "into the central directory",
            Offset::At(directory),
        )
        .note("cannot be read"),
        elsewhere(
            "an_offset_just_before_the_directory",
            "into the central directory",
            Offset::At(directory - 10),
        )
        .note("cannot be read"),
        elsewhere(
            "an_offset_behind_the_end",
            "into the central directory",
            Offset::At(1 << 30),
        )
        .note("cannot be read"),
        elsewhere(
            "an_offset_far_behind_the_end",
            "into the central directory",
            Offset::At(1 << 62),
        )
        .note("cannot be read"),
        elsewhere(
            "an_offset_of_all_ones",
            "into the central directory",
            Offset::At(u64::MAX),
        )
        .note("cannot be read"),
        Case::between_good_entries(
            "a_header_that_the_directory_does_not_name",
            vec![
                hidden.clone(),
                again(
                    &Entry::stored("a", b"not in the directory"),
                    "a",
                    Offset::Of(1),
                ),
            ],
        )
        .corrupt("a", "named \"hidden\""),
        Case::between_good_entries(
            "a_header_of_a_file_with_an_invalid_name",
            vec![
                Entry::stored("../evil", b"evil"),
                again(&Entry::stored("a", b"evil"), "a", Offset::Of(1)),
            ],
        )
        .fails("a", &[Errno::IO], "")
        .note("skipped 1 entries with invalid names"),
        Case::served("no_signature", no_signature)
            .good()
            .corrupt("a", "no local header"),
        Case::served("an_extra_field_that_reaches_into_the_directory", cut)
            .good()
            .corrupt("a", "into the central directory"),
    ]
}

impl Case {
    /// Expects that `good/first`, whose offset the entry `a` has, fails too, and that `good/last` is served.
    fn replaced_first(self) -> Self {
        self.fails_to_open("good/first", Errno::IO, OVERLAP)
            .note(NOTE)
    }
}
