//! A3 to A6: names that are invalid in a directory, names in any encoding, names that occur twice, and
//! files that are also directories.

use rustix::io::Errno;

use super::Case;
use crate::records::extra_field;
use crate::zipmaker::{Entry, FLAG_ENCRYPTED, FLAG_UTF8, Offset};

const INVALID: &str = "skipped 1 entries with invalid names";
const TWICE: &str = "names that occur twice";
const HIDDEN: &str = "hidden by directories";

pub fn a03() -> Vec<Case> {
    let long = |n: usize| vec![b'n'; n];
    let below = |n: usize| [b"d/", &long(n)[..], b"/x"].concat();
    let path = |n: usize| [&b"p/".repeat(n / 2)[..], b"x"].concat();
    let hidden: [(&str, Vec<u8>); 28] = [
        ("parent", b"../x".into()),
        ("parents", b"../../../../etc/passwd".into()),
        ("parent_inside", b"a/../x".into()),
        ("parent_at_the_end", b"a/..".into()),
        ("parent_alone", b"..".into()),
        ("parent_as_directory", b"../".into()),
        ("absolute", b"/abs".into()),
        ("absolute_with_two_slashes", b"//abs".into()),
        ("root", b"/".into()),
        ("two_slashes", b"a//b".into()),
        ("two_slashes_at_the_end", b"a//".into()),
        ("dot", b".".into()),
        ("dot_inside", b"a/./b".into()),
        ("dot_at_the_end", b"a/.".into()),
        ("nul", b"a\0b".into()),
        ("nul_alone", b"\0".into()),
        ("nul_at_the_end", b"good/first\0".into()),
        ("nul_in_a_directory", b"a\0/b".into()),
        ("empty", b"".into()),
        ("backslash", b"a\\b".into()),
        ("backslash_parent", b"..\\x".into()),
        ("backslash_drive", b"C:\\x".into()),
        ("backslash_at_the_end", b"a\\".into()),
        ("component_of_256_bytes", long(256)),
        ("directory_of_256_bytes", below(256)),
        (
            "directory_entry_of_256_bytes",
            [&long(256)[..], b"/"].concat(),
        ),
        ("path_of_5001_bytes", path(5000)),
        ("path_of_65535_bytes", path(65_534)),
    ];
    let mut cases: Vec<Case> = hidden
        .iter()
        .map(|(name, raw)| {
            let entries = vec![Entry::stored(raw, b"never to be seen")];
            Case::between_good_entries(format!("hidden_{name}"), entries).note(INVALID)
        })
        .collect();
    let all = hidden
        .iter()
        .map(|(_, raw)| Entry::deflated(raw, b"never to be seen"));
    cases.push(
        Case::between_good_entries("hidden_all_of_them", all.collect())
            .note("skipped 28 entries with invalid names"),
    );
    for (name, raw) in [
        ("component_of_255_bytes", long(255)),
        ("directory_of_255_bytes", below(255)),
        ("three_dots", b".../...".into()),
        ("hidden_file", b".zarray".into()),
        ("newline_and_control", b"a\n\x01\x7f\x1b[31m".into()),
        ("colon_and_star", b"C:x*?<>|\"".into()),
        ("spaces", b" / ".into()),
        ("dash", b"-rf".into()),
        ("percent", b"%2e%2e%2f%s%n".into()),
        ("path_of_3001_bytes", path(3000)),
    ] {
        let entries = vec![Entry::stored(&raw, b"seen")];
        cases.push(Case::between_good_entries(format!("shown_{name}"), entries).file(raw, b"seen"));
    }
    cases.extend(separators());
    cases.push(
        Case::between_good_entries(
            "directory_entries_with_data",
            vec![
                Entry::stored("d/", b"data of a directory"),
                Entry::deflated("e/f/", b"more"),
            ],
        )
        .empty("d")
        .empty("e/f"),
    );
    cases.push(
        Case::between_good_entries(
            "a_directory_entry_and_a_file_in_it",
            vec![
                Entry::directory("d/"),
                Entry::stored("d/x", b"x"),
                Entry::directory("e/"),
            ],
        )
        .file("d/x", b"x")
        .empty("e"),
    );
    cases
}

/// Names of writers that begin each name with `./`, or separate its components with backslashes.
fn separators() -> Vec<Case> {
    let by = |made_by: u16, raw: &str| {
        Entry::stored(raw, b"seen").with(|entry| entry.made_by = made_by << 8 | 20)
    };
    let mut cases = vec![
        Case::between_good_entries(
            "dots_at_the_beginning",
            vec![
                Entry::directory("./"),
                Entry::directory("./d/"),
                Entry::stored("./d/x", b"seen"),
                Entry::stored("././y", b"seen"),
            ],
        )
        .file("d/x", b"seen")
        .file("y", b"seen"),
        Case::between_good_entries("backslash_and_slash", vec![by(0, "a\\b/c")]).note(INVALID),
        Case::between_good_entries("backslash_parent_of_dos", vec![by(0, "..\\x")]).note(INVALID),
    ];
    for made_by in [0, 10, 11, 14] {
        let entries = vec![
            by(made_by, "a\\b\\0"),
            by(made_by, "a\\c\\"),
            by(made_by, ".\\a\\d"),
        ];
        cases.push(
            Case::between_good_entries(format!("backslashes_of_system_{made_by}"), entries)
                .file("a/b/0", b"seen")
                .file("a/d", b"seen")
                .empty("a/c"),
        );
    }
    cases
}

pub fn a04() -> Vec<Case> {
    let mut cases = Vec::new();
    for (name, raw) in [
        ("latin1", &b"caf\xe9"[..]),
        ("cp437", b"\x81\x9b\xe1"),
        ("no_utf8_at_all", b"\xff\xfe"),
        ("overlong_slash", b"..\xc0\xaf..\xc0\xafx"),
        ("surrogate", b"\xed\xa0\x80"),
        ("cut_sequence", b"x\xe2\x82"),
        ("not_utf8_directory", b"\xf0\xff/\xfe/x"),
        ("utf8", "\u{fc}\u{6f22}\u{1f600}".as_bytes()),
        ("line_separator", "a\u{2028}\u{202e}b".as_bytes()),
    ] {
        for (kind, flags) in [("unflagged", 0), ("flagged_utf8", FLAG_UTF8)] {
            let entry = Entry::stored(raw, b"any name").both(|f| f.flags = flags);
            cases.push(
                Case::between_good_entries(format!("{name}_{kind}"), vec![entry])
                    .file(raw, b"any name"),
            );
        }
    }
    cases.push(
        Case::between_good_entries(
            "normal_forms_and_cases_are_different_names",
            vec![
                Entry::stored("\u{e9}", b"composed"),
                Entry::stored("e\u{301}", b"decomposed"),
                Entry::stored("X", b"upper"),
                Entry::stored("x", b"lower"),
            ],
        )
        .file("\u{e9}", b"composed")
        .file("e\u{301}", b"decomposed")
        .file("X", b"upper")
        .file("x", b"lower"),
    );
    // The Unicode path extra field of Info-ZIP has another name for the same entry.
    let mut unicode = vec![1];
    unicode.extend(crc32fast::hash(b"raw").to_le_bytes());
    unicode.extend(b"../elsewhere");
    cases.push(
        Case::between_good_entries(
            "unicode_path_extra_field",
            vec![Entry::stored("raw", b"raw").both(|f| f.extra = extra_field(0x7075, &unicode))],
        )
        .file("raw", b"raw"),
    );
    cases
}

pub fn a05() -> Vec<Case> {
    let bad = |name: &str| Entry::deflated(name, b"bad").both(|f| f.crc ^= 1);
    let many: Vec<Entry> = (0..14)
        .map(|i| Entry::stored(format!("d{}", i % 7), format!("{i}").as_bytes()))
        .collect();
    let mut seven = Case::between_good_entries("seven_names_twice", many).note("d4 and 2 more");
    for i in 0..7 {
        seven = seven.file(format!("d{i}"), format!("{}", i + 7).as_bytes());
    }
    let locals_swapped = vec![
        Entry::stored("d", b"one").with(|entry| entry.only_local = true),
        Entry::stored("d", b"two"),
        Entry::stored("d", b"one").with(|entry| {
            entry.only_central = true;
            entry.offset = Offset::Of(1);
        }),
    ];
    vec![
        Case::between_good_entries(
            "the_last_of_two",
            vec![Entry::stored("d", b"older"), Entry::stored("d", b"new")],
        )
        .file("d", b"new")
        .note(TWICE),
        Case::between_good_entries(
            "the_last_of_three_codings",
            vec![
                Entry::stored("d", b"1"),
                Entry::zstd("d", b"22"),
                Entry::deflated("d", b"333"),
            ],
        )
        .file("d", b"333")
        .note("names that occur twice, the last one counts: d"),
        Case::between_good_entries("the_last_in_the_directory_not_in_the_file", locals_swapped)
            .file("d", b"one")
            .note(TWICE),
        Case::between_good_entries(
            "a_bad_last_one",
            vec![Entry::stored("d", b"good"), bad("d")],
        )
        .corrupt("d", "crc32 mismatch")
        .note(TWICE),
        Case::between_good_entries(
            "a_bad_first_one",
            vec![bad("d"), Entry::stored("d", b"good")],
        )
        .file("d", b"good")
        .note(TWICE),
        Case::between_good_entries(
            "an_encrypted_first_one",
            vec![
                Entry::stored("d", b"secret").both(|f| f.flags = FLAG_ENCRYPTED),
                Entry::stored("d", b"open"),
            ],
        )
        .file("d", b"open")
        .note(TWICE),
        Case::between_good_entries(
            "an_encrypted_last_one",
            vec![
                Entry::stored("d", b"open"),
                Entry::stored("d", b"secret").both(|f| f.flags = FLAG_ENCRYPTED),
            ],
        )
        .fails_to_open("d", Errno::OPNOTSUPP, "encrypted")
        .note(TWICE),
        Case::between_good_entries(
            "two_records_of_one_header",
            vec![
                Entry::stored("d", b"same"),
                Entry::stored("d", b"same").with(|entry| {
                    entry.only_central = true;
                    entry.offset = Offset::Of(1);
                }),
            ],
        )
        .file("d", b"same")
        .note(TWICE),
        Case::between_good_entries(
            "not_utf8",
            vec![Entry::stored(b"\xff", b"1"), Entry::stored(b"\xff", b"2")],
        )
        .file(b"\xff", b"2")
        .note(TWICE),
        Case::between_good_entries(
            "directories",
            vec![
                Entry::directory("d/"),
                Entry::directory("d/"),
                Entry::directory("d/e/"),
            ],
        )
        .empty("d/e"),
        seven,
    ]
}

pub fn a06() -> Vec<Case> {
    let file = || Entry::stored("a", b"a file");
    let inside = || Entry::stored("a/b", b"inside");
    let deep = || Entry::deflated("x/y/z/w", b"deep");
    vec![
        Case::between_good_entries("file_first", vec![file(), inside()])
            .file("a/b", b"inside")
            .note(HIDDEN),
        Case::between_good_entries("file_last", vec![inside(), file()])
            .file("a/b", b"inside")
            .note(HIDDEN),
        Case::between_good_entries(
            "file_between",
            vec![inside(), file(), Entry::stored("a/c", b"c")],
        )
        .file("a/b", b"inside")
        .file("a/c", b"c")
        .note(HIDDEN),
        Case::between_good_entries(
            "directory_entry_first",
            vec![Entry::directory("a/"), file()],
        )
        .empty("a")
        .note(HIDDEN),
        Case::between_good_entries("directory_entry_last", vec![file(), Entry::directory("a/")])
            .empty("a")
            .note(HIDDEN),
        Case::between_good_entries(
            "files_on_every_level",
            vec![
                Entry::stored("x", b"1"),
                Entry::stored("x/y", b"2"),
                deep(),
                Entry::stored("x/y/z", b"3"),
            ],
        )
        .file("x/y/z/w", b"deep")
        .note("3 files are hidden by directories"),
        Case::between_good_entries(
            "an_encrypted_file",
            vec![file().both(|f| f.flags = FLAG_ENCRYPTED), inside()],
        )
        .file("a/b", b"inside")
        .note(HIDDEN),
        Case::between_good_entries(
            "a_file_twice_and_a_directory",
            vec![file(), file(), inside()],
        )
        .file("a/b", b"inside")
        .note("names that occur twice, the last one counts: a"),
    ]
}
