//! A7: entries that share bytes.

use rustix::io::Errno;

use super::{Case, first, last, noise, spare, text};
use crate::coders::deflate;
use crate::records::{extra_field, local_header};
use crate::zipmaker::{Entry, Offset, Zip};

pub const OVERLAP: &str = "entries overlap at 0x";
pub const NOTE: &str = "overlap others and cannot be read";

/// Returns `entry` once more under another name, without its own local header and data.
pub fn again(entry: &Entry, name: &str, offset: Offset) -> Entry {
    entry.clone().with(|entry| {
        entry.central.name = name.into();
        entry.only_central = true;
        entry.offset = offset;
    })
}

fn overlapping(case: Case, names: &[&str]) -> Case {
    names
        .iter()
        .fold(case, |case, name| {
            case.fails_to_open(*name, Errno::IO, OVERLAP)
        })
        .note(NOTE)
}

/// Returns the bytes of an entry's local header and data.
fn whole(entry: &Entry) -> Vec<u8> {
    let mut bytes = Vec::new();
    local_header(&mut bytes, &entry.local);
    bytes.extend_from_slice(&entry.data);
    bytes
}

/// Returns D. Fifield's zip bomb, whose files share one kernel. The deflate data of each file quotes the
/// local header of the next file in a stored block, and continues with the data of the next file.
fn quoted_bomb(files: usize) -> Zip {
    let kernel = vec![b'a'; 100_000];
    let mut data = deflate(&kernel);
    let mut content = kernel;
    let mut entries = vec![Entry::coded(
        format!("f{:03}", files - 1),
        8,
        &content,
        data.clone(),
    )];
    for i in (0..files - 1).rev() {
        let mut quoted = Vec::new();
        local_header(&mut quoted, &entries[entries.len() - 1].local);
        let length = quoted.len() as u16;
        let mut longer = vec![0];
        longer.extend(length.to_le_bytes());
        longer.extend((!length).to_le_bytes());
        longer.extend(&quoted);
        longer.extend(&data);
        data = longer;
        content = [quoted, content].concat();
        entries.push(Entry::coded(format!("f{i:03}"), 8, &content, data.clone()));
    }
    entries.reverse();
    // Only the first entry is written, because its data contains all others.
    let mut at = 0;
    for entry in &mut entries {
        entry.offset = Offset::At(at);
        at += 30 + 4 + 5;
        entry.only_central = true;
    }
    let head = &mut entries[0];
    head.only_central = false;
    Zip::of(entries)
}

pub fn a07() -> Vec<Case> {
    let a = Entry::stored("a", &noise(3, 500));
    let good_pair = || {
        (
            Entry::stored("good/first", &first()),
            Entry::deflated("good/last", &last()),
        )
    };
    let inner = Entry::stored("inner", b"inner content");
    let outer = Entry::stored(
        "outer",
        &[&noise(4, 100)[..], &whole(&inner), b"end"].concat(),
    );
    // The entry `good/first` comes first: 30 bytes of header, 10 of name, 700 of data.
    let outer_at = 30 + 10 + 700;
    let inner_at = outer_at + 30 + 5 + 100;
    let inside = again(&inner, "inner", Offset::At(inner_at));
    let second = Entry::stored("inner2", b"2");
    let twice = [whole(&inner), whole(&second)].concat();
    let outer2 = Entry::stored("outer", &twice);
    let mut bomb = Case::served("a_bomb_of_fifty_quoted_files", {
        let mut zip = quoted_bomb(50);
        zip.entries.extend([good_pair().0, good_pair().1]);
        zip.build()
    })
    .good()
    .note(NOTE);
    for i in 0..50 {
        bomb = bomb.fails_to_open(format!("f{i:03}"), Errno::IO, OVERLAP);
    }
    let mut full = vec![a.clone()];
    full.extend((0..30).map(|i| again(&a, &format!("copy{i}"), Offset::Of(1))));
    full.push(spare());
    let mut full = Case::between_good_entries("thirty_names_for_one_header", full)
        .fails_to_open("a", Errno::IO, OVERLAP)
        .note(NOTE);
    for i in 0..30 {
        full = full.fails_to_open(format!("copy{i}"), Errno::IO, OVERLAP);
    }
    let chain = Entry::stored("one", &whole(&Entry::stored("two", &whole(&inner))));
    let descending: Vec<Entry> = (0..40_u64)
        .map(|i| Entry::stored(format!("{i}"), &noise(i, 10 * i as usize)))
        .collect();
    let mut reordered = descending.clone();
    reordered
        .iter_mut()
        .for_each(|entry| entry.only_local = true);
    reordered.extend(
        descending
            .iter()
            .enumerate()
            .rev()
            .map(|(i, entry)| again(entry, &format!("{i}"), Offset::Of(i + 1))),
    );
    let mut reordered = Case::between_good_entries("another_order_is_no_overlap", reordered);
    for i in 0..40_u64 {
        reordered = reordered.file(format!("{i}"), &noise(i, 10 * i as usize));
    }
    // The local extra field of the first entry is a whole second entry.
    let quoted = Entry::stored("quoted", b"");
    let quoting =
        Entry::stored("quoting", b"").local(|f| f.extra = extra_field(0x4242, &whole(&quoted)));
    let quoted_at = outer_at + 30 + 7 + 4;
    vec![
        overlapping(
            Case::between_good_entries(
                "two_names_for_one_header",
                vec![a.clone(), again(&a, "b", Offset::Of(1))],
            ),
            &["a", "b"],
        ),
        overlapping(
            Case::between_good_entries(
                "an_entry_in_the_data_of_another",
                vec![outer.clone(), inside.clone()],
            ),
            &["outer", "inner"],
        ),
        overlapping(
            Case::between_good_entries(
                "the_inner_entry_listed_first",
                vec![
                    outer.clone().with(|e| e.only_local = true),
                    inside,
                    again(&outer, "outer", Offset::Of(1)),
                ],
            ),
            &["outer", "inner"],
        ),
        overlapping(
            Case::between_good_entries(
                "two_entries_in_the_data_of_another",
                vec![
                    outer2,
                    again(&inner, "inner", Offset::At(outer_at + 35)),
                    again(&second, "inner2", Offset::At(outer_at + 35 + 30 + 5 + 13)),
                ],
            ),
            &["outer", "inner", "inner2"],
        ),
        overlapping(
            Case::between_good_entries(
                "a_chain_of_three",
                vec![
                    chain,
                    again(
                        &Entry::stored("two", &whole(&inner)),
                        "two",
                        Offset::At(outer_at + 33),
                    ),
                    again(&inner, "inner", Offset::At(outer_at + 33 + 33)),
                ],
            ),
            &["one", "two", "inner"],
        ),
        overlapping(
            Case::between_good_entries(
                "data_that_reaches_into_the_next",
                vec![
                    a.clone().both(|f| {
                        f.compressed += 20;
                        f.size += 20;
                    }),
                    Entry::stored("b", b"b"),
                ],
            ),
            &["a", "b"],
        ),
        overlapping(
            Case::between_good_entries(
                "empty_files_of_one_header",
                vec![
                    Entry::stored("a", b""),
                    again(&Entry::stored("a", b""), "b", Offset::Of(1)),
                ],
            ),
            &["a", "b"],
        ),
        overlapping(
            Case::between_good_entries(
                "zstd_and_deflate_of_one_header",
                vec![
                    Entry::zstd("a", &text(5000)),
                    again(&Entry::deflated("b", &text(5000)), "b", Offset::Of(1)),
                    spare(),
                ],
            ),
            &["a", "b"],
        ),
        Case::between_good_entries(
            "an_entry_in_the_extra_field_of_another",
            vec![quoting, again(&quoted, "quoted", Offset::At(quoted_at))],
        )
        .file_or_fails("quoting", b"")
        .file_or_fails("quoted", b""),
        full,
        bomb,
        reordered,
    ]
}
