//! One test for each row of the fault table: all its cases, in process and mounted.

use crate::cases::{self, Case};
use crate::in_process;
use crate::mounted;

/// Runs all cases of a row at both levels, and fails with all problems.
fn run(cases: Vec<Case>) {
    let mut problems = Vec::new();
    for case in &cases {
        let at = |level: &str| format!("{} ({level})", case.name);
        let mut note = |level: &str, found: Vec<String>| {
            problems.extend(
                found
                    .into_iter()
                    .map(|what| format!("{}: {what}", at(level))),
            );
        };
        note("in process", in_process::check(case));
        note("mounted", mounted::check(case));
    }
    assert!(
        problems.is_empty(),
        "{} problems in {} cases:\n{}",
        problems.len(),
        cases.len(),
        problems.join("\n")
    );
}

macro_rules! rows {
    ($($name:ident: $cases:path;)*) => {$(
        #[test]
        fn $name() {
            run($cases());
        }
    )*};
}

rows! {
    a01_files_that_are_no_zip_or_lack_the_end_record_are_refused: cases::a01;
    a02_an_inconsistent_central_directory_is_refused: cases::a02;
    a03_names_that_are_no_file_names_are_hidden_and_all_others_are_served: cases::a03;
    a04_names_in_any_encoding_are_served_byte_for_byte: cases::a04;
    a05_the_last_of_two_entries_of_one_name_is_served: cases::a05;
    a06_a_directory_hides_a_file_of_the_same_name: cases::a06;
    a07_overlapping_entries_read_eio_and_other_entries_are_served: cases::a07;
    a08_headers_that_contradict_the_directory_read_eio: cases::a08;
    a09_wrong_checksums_read_eio: cases::a09;
    a10_false_sizes_read_eio: cases::a10;
    a11_deflated_entries_are_right_at_every_offset: cases::a11;
    a12_entries_that_cannot_be_decoded_are_listed_and_fail_to_open: cases::a12;
    a13_unusual_but_valid_archives_are_served: cases::a13;
    a14_an_index_beyond_the_memory_limit_is_refused: cases::a14;
    a15_special_files_are_plain_files: cases::a15;
    a16_a_zip_in_a_zip_is_a_plain_file: cases::a16;
    a17_the_parser_ends_on_all_archives: cases::a17;
}

#[test]
fn the_table_has_every_row_and_every_name_once() {
    let rows: [fn() -> Vec<Case>; 17] = [
        cases::a01,
        cases::a02,
        cases::a03,
        cases::a04,
        cases::a05,
        cases::a06,
        cases::a07,
        cases::a08,
        cases::a09,
        cases::a10,
        cases::a11,
        cases::a12,
        cases::a13,
        cases::a14,
        cases::a15,
        cases::a16,
        cases::a17,
    ];
    let mut names = std::collections::BTreeSet::new();
    for (number, row) in rows.into_iter().enumerate() {
        let cases = row();
        assert!(cases.len() >= 3, "{} cases in a row", cases.len());
        for case in cases {
            let name = case.name.clone();
            assert!(names.insert((number, name)), "twice: {}", case.name);
        }
    }
    assert!(names.len() >= 150, "{} cases", names.len());
}
