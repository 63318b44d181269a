//! Groups of VCF Zarr as BGEN: the content equals that of vcztools, and plink2, bgen-reader and the package bgen read the
//! calls of the VCF from the mount. `bgen_files.py` writes the stores, from `setup.sh`, and compares.

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};

use crate::clients::{EIO, ENOENT, gauge};
use crate::stores::*;
use crate::support::*;

/// Returns the directory of stores and files that `tests/views/setup.sh` has written.
fn stores() -> PathBuf {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/fixtures/bgen");
    assert!(path.exists(), "run tests/views/setup.sh: no {path:?}");
    path
}

/// Compares the files of a store with those of vcztools and with its VCF. Returns the number of variants; `None` if
/// this user may not run the programs.
fn check(name: &str, mount: &Mount) -> Option<String> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/views");
    let python = directory.join(".venv-bgen/bin/python");
    if !may_run(&python) {
        return None;
    }
    let place = scratch();
    let mut command = Command::new(python);
    command
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .arg(directory.join("bgen_files.py"))
        .arg("check")
        .arg(stores())
        .arg(mount.join(format!("{name}.vcz/.zarrfs")))
        .arg(place.path())
        .arg(name);
    Some(run(&mut command))
}

#[test]
fn bgen_files_equal_those_of_vcztools_and_programs_read_the_calls_of_the_vcf() {
    let mount = Mount::new(stores());
    for (name, variants) in [
        ("calls", 1343),
        ("whole", 548),
        ("haploid", 270),
        ("wide", 5),
    ] {
        let Some(found) = check(name, &mount) else {
            return;
        };
        assert_eq!(found.trim(), variants.to_string(), "{name}");
        let readme = mount.join(format!("{name}.vcz/.zarrfs/README.txt"));
        let readme = fs::read_to_string(readme).unwrap();
        assert!(readme.contains(&format!("{name}.vcz.bgen  (")), "{readme}");
    }
    assert_eq!(gauge(mount.path(), "panics"), 0);
}

#[test]
fn each_range_of_a_bgen_file_is_that_of_the_whole_file() {
    let stores = stores();
    let mount = Mount::new(&stores);
    for name in ["calls", "haploid", "wide"] {
        let view = mount.join(format!("{name}.vcz/.zarrfs/{name}.vcz.bgen"));
        let whole = fs::read(&view).unwrap();
        assert_eq!(whole.len() as u64, fs::metadata(&view).unwrap().len());
        // A mount of its own, in whose page cache the file is not.
        let mount = Mount::new(stores.join(format!("{name}.vcz")));
        let file = fs::File::open(mount.join(format!(".zarrfs/{name}.bgen"))).unwrap();
        for step in 0..400_usize {
            let start = step * 7919 % whole.len();
            let end = (start + 1 + step * 331 % 5000).min(whole.len());
            let mut found = vec![0; end - start];
            file.read_exact_at(&mut found, start as u64).unwrap();
            assert!(found == whole[start..end], "{name}: {start}..{end}");
        }
    }
}

/// Returns the metadata of an array whose only chunk is not stored.
fn array(shape: &[u64], data_type: &str, fill: impl Into<Value>) -> Value {
    let codecs = match data_type {
        "string" => json!([{"name": "vlen-utf8"}]),
        _ => json!([little()]),
    };
    json!({
        "shape": shape, "data_type": data_type, "fill_value": fill.into(),
        "chunk_grid": grid(shape), "codecs": codecs,
    })
}

/// Writes a group of three variants and four samples, of which one array is other than usual.
fn write_group(stores: &Stores, name: &str, other: Option<(&str, Value)>) {
    let group = json!({
        "zarr_format": 3, "node_type": "group", "attributes": {"vcf_zarr_version": "0.4"},
    });
    let group = group.to_string();
    stores.put(&format!("{name}/zarr.json"), group.as_bytes());
    let mut arrays = vec![
        ("call_genotype", array(&[3, 4, 2], "int8", 0)),
        ("call_genotype_phased", array(&[3, 4], "bool", true)),
        ("variant_allele", array(&[3, 2], "string", "A")),
        ("variant_contig", array(&[3], "int8", 0)),
        ("variant_position", array(&[3], "int32", 5)),
        ("contig_id", array(&[1], "string", "chr2")),
        ("sample_id", array(&[4], "string", "s")),
    ];
    arrays.extend(other);
    for (array, changes) in arrays {
        stores.v3(&format!("{name}/{array}"), changes, &[]);
    }
}

#[test]
fn groups_that_bgen_cannot_express_have_no_file_and_say_why() {
    let stores = Stores::new();
    let long = "x".repeat(70_000);
    let bgen = [".bgen", ".bgen.bgi"].as_slice();
    let cases = [
        (
            "call_genotype_phased",
            array(&[3, 5], "bool", true),
            "`call_genotype_phased` has the shape [3, 5]",
            bgen,
        ),
        (
            "call_genotype_phased",
            array(&[3, 4], "int16", 1),
            "elements of 2 bytes",
            bgen,
        ),
        (
            "variant_position",
            array(&[3], "int32", -1),
            "variant 0 has the position -1",
            bgen,
        ),
        (
            "variant_contig",
            array(&[3], "int8", 1),
            "variant 0 has no contig with a name",
            bgen,
        ),
        (
            "contig_id",
            array(&[1], "string", long.clone()),
            "an ID or contig of 70000 bytes",
            bgen,
        ),
        (
            "sample_id",
            array(&[4], "string", long),
            "`sample_id` has a name of 70000 bytes",
            bgen,
        ),
        (
            "sample_id",
            array(&[4], "string", "s 1"),
            "has a blank in the text 0",
            &[".sample"],
        ),
        (
            "call_genotype",
            array(&[3, 4, 3], "int8", 0),
            "one or two alleles",
            bgen,
        ),
    ];
    for (number, (other, changes, _, _)) in cases.iter().enumerate() {
        write_group(
            &stores,
            &format!("g{number}"),
            Some((other, changes.clone())),
        );
    }
    write_group(&stores, "whole", None);
    let mount = stores.mount(&[]);
    for (number, (other, _, expected, suffixes)) in cases.iter().enumerate() {
        let name = format!("g{number}");
        let readme = readme(&mount, &name);
        assert!(readme.contains(expected), "{other}: {readme}");
        for suffix in *suffixes {
            let found = fs::metadata(view(&mount, &name, &format!("{name}{suffix}")));
            assert_eq!(errno(found), ENOENT, "{other}{suffix}");
        }
    }
    let read = |suffix| fs::read(view(&mount, "whole", &format!("whole{suffix}"))).unwrap();
    // The offset of the first record, the header and the names; then three records.
    assert_eq!(
        read(".bgen").len(),
        24 + 8 + 4 * 3 + 3 * (28 + 8 + 2 + 5 + 10 + 12 + 4)
    );
    assert!(read(".bgen.bgi").starts_with(b"SQLite format 3\0"));
    assert_eq!(
        read(".sample"),
        [b"ID_1 ID_2 missing\n0 0 0\n".to_vec(), b"s s 0\n".repeat(4)].concat()
    );
}

#[test]
fn chunks_that_cannot_be_decoded_are_errors_of_bgen_files() {
    let stores = Stores::new();
    write_group(&stores, "cohort", None);
    stores.put("cohort/call_genotype_phased/c/0/0", b"short");
    let mount = stores.mount(&[]);
    for suffix in [".bgen", ".bgen.bgi"] {
        let found = fs::read(view(&mount, "cohort", &format!("cohort{suffix}")));
        assert_eq!(errno(found), EIO, "{suffix}");
    }
    assert!(fs::read(view(&mount, "cohort", "cohort.sample")).is_ok());
    is_corrupt(
        &mount,
        "cohort",
        "cohort.bgen",
        "call_genotype_phased/c/0/0",
        "",
    );
}
