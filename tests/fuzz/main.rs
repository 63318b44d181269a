//! The fuzz targets over a fixed corpus: every seed and some mutants of it, the same in each run.
//! `scripts/fuzz` runs the same targets endlessly, and starts with the same seeds.
//!
//! `tests/fixtures/setup.sh` writes the documents and chunks among the seeds.

#![allow(missing_docs, missing_debug_implementations, unreachable_pub)]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::cast_possible_truncation
)]

mod seeds;
mod targets;

#[allow(dead_code, unused_imports)]
#[path = "../corpus/cases/mod.rs"]
mod cases;
#[allow(dead_code)]
#[path = "../corpus/coders.rs"]
mod coders;
#[allow(dead_code)]
#[path = "../corpus/records.rs"]
mod records;
#[allow(dead_code)]
#[path = "../corpus/zipmaker.rs"]
mod zipmaker;

use std::fs;
use std::panic::catch_unwind;
use std::path::Path;

use cases::random;
use targets::TARGETS;

/// The number of mutants of each seed.
const MUTANTS: u64 = 20;
/// Values that replace others, as a hostile writer would choose them.
const TOKENS: [&[u8]; 12] = [
    b"18446744073709551615",
    b"4611686018427387904",
    b"-1",
    b"1e400",
    b"null",
    b"[[[[",
    b"\"\\u0000\"",
    b"\xff\xff\xff\xff",
    b"\0\0\0\0\0\0\0\x80",
    b"PK\x01\x02",
    b"&#0;",
    b"<",
];

/// Changes one to four positions.
fn mutate(state: &mut u64, original: &[u8], donor: &[u8]) -> Vec<u8> {
    let mut bytes = original.to_vec();
    let mut below = |n: usize| (random(state) % (n.max(1) as u64)) as usize;
    for _ in 0..=below(4) {
        let at = below(bytes.len());
        let end = bytes.len().min(at + below(40));
        match below(7) {
            0 => bytes.truncate(at),
            1 => drop(bytes.drain(at..end)),
            2 => {
                let copy = bytes[at..end].to_vec();
                bytes.splice(at..at, copy);
            }
            3 => {
                let from = below(donor.len());
                let part = &donor[from..donor.len().min(from + 40)];
                bytes.splice(at..end, part.iter().copied());
            }
            4 => {
                let token = TOKENS[below(TOKENS.len())];
                let end = bytes.len().min(at + token.len());
                bytes.splice(at..end, token.iter().copied());
            }
            _ => {
                let bit = below(8);
                if let Some(byte) = bytes.get_mut(at) {
                    *byte ^= 1 << bit;
                }
            }
        }
    }
    bytes
}

/// Runs a target over its corpus, and writes an input that makes it panic to a file.
fn run(name: &str) {
    let (_, target) = TARGETS.into_iter().find(|(is, _)| *is == name).unwrap();
    let seeds = seeds::of(name);
    assert!(seeds.len() >= 5, "{} seeds", seeds.len());
    let mut state = 0x9e37_79b9_7f4a_7c15;
    for (number, seed) in seeds.iter().enumerate() {
        let donor = &seeds[(number + 1) % seeds.len()];
        let mutants = (0..MUTANTS).map(|_| mutate(&mut state, seed, donor));
        for input in std::iter::once(seed.clone()).chain(mutants) {
            if catch_unwind(|| target(&input)).is_err() {
                let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}.input"));
                fs::write(&path, &input).unwrap();
                panic!(
                    "seed {number}: see the panic above; the input is {}",
                    path.display()
                );
            }
        }
    }
}

#[test]
fn archives_are_refused_or_served_as_they_are_listed() {
    run("zip_index");
}

#[test]
fn v2_documents_are_refused_or_consistent() {
    run("node_v2");
}

#[test]
fn v3_documents_are_refused_or_consistent() {
    run("node_v3");
}

#[test]
fn consolidated_metadata_are_refused_or_consistent() {
    run("consolidated");
}

#[test]
fn chunks_decode_to_their_size_or_fail() {
    run("codec_chain");
}

#[test]
fn html_pages_are_lists_of_names_or_refused() {
    run("html_page");
}

#[test]
fn pages_of_the_hub_have_no_more_names_than_bytes() {
    run("hub_page");
}

#[test]
fn xml_listings_lose_all_odd_keys_at_once() {
    run("xml_listing");
}

#[test]
fn databases_are_refused_or_have_values_in_the_file() {
    run("dbm");
}

#[test]
fn files_of_icechunk_are_refused_or_consistent() {
    run("icechunk");
}

#[test]
fn references_in_json_are_read_alike_in_pieces_of_any_length() {
    run("reference_json");
}

#[test]
fn assets_of_stac_documents_have_names_of_files_and_are_where_they_may_be() {
    run("stac");
}

#[test]
fn partitions_of_references_are_read_or_refused() {
    run("reference_parquet");
}

#[test]
fn each_target_is_a_program_of_cargo_fuzz() {
    let here = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fuzz");
    let manifest = fs::read_to_string(here.join("Cargo.toml")).unwrap();
    for (name, _) in TARGETS {
        assert!(manifest.contains(&format!("name = \"{name}\"\n")), "{name}");
        let program = fs::read_to_string(here.join(format!("fuzz_targets/{name}.rs"))).unwrap();
        assert!(
            program.contains(&format!("targets::{name}(bytes)")),
            "{name}"
        );
    }
}

/// `scripts/fuzz` sets the directory.
#[test]
#[ignore = "writes files for cargo-fuzz"]
fn write_seeds() {
    let directory = std::env::var_os("ZARRFS_FUZZ_CORPUS").expect("ZARRFS_FUZZ_CORPUS is not set");
    for (name, _) in TARGETS {
        let directory = Path::new(&directory).join(name);
        fs::create_dir_all(&directory).unwrap();
        for (number, seed) in seeds::of(name).iter().enumerate() {
            fs::write(directory.join(format!("seed-{number:04}")), seed).unwrap();
        }
    }
}
