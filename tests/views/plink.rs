//! Groups of VCF Zarr as filesets of PLINK 1.9: the bytes equal those of vcztools and of plink2, and both PLINKs read
//! them from the mount. `plink.py` writes the stores and the filesets, from `setup.sh`.

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::json;

use crate::clients::EIO;
use crate::support::*;

/// Returns the directory of stores and filesets that `tests/views/setup.sh` has written.
fn stores() -> PathBuf {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/fixtures/vcf");
    assert!(path.exists(), "run tests/views/setup.sh: no {path:?}");
    path
}

const SUFFIXES: [&str; 3] = ["bed", "bim", "fam"];

#[test]
fn filesets_equal_those_of_vcztools_and_plink2() {
    let stores = stores();
    let mount = Mount::new(&stores);
    for name in ["calls", "pairs"] {
        let views = mount.join(format!("{name}.vcz/.zarrfs"));
        for suffix in SUFFIXES {
            let file = format!("{name}.{suffix}");
            let found = fs::read(views.join(format!("{name}.vcz.{suffix}"))).unwrap();
            let expected = fs::read(stores.join("vcztools").join(&file)).unwrap();
            assert!(found == expected, "{file}: vcztools");
            if suffix != "fam" {
                let expected = fs::read(stores.join("plink2").join(&file)).unwrap();
                assert!(found == expected, "{file}: plink2");
            }
        }
        // Ranges that begin and end within variants, chunks and the groups of variants that are left out.
        let expected = fs::read(stores.join(format!("vcztools/{name}.bed"))).unwrap();
        let file = fs::File::open(views.join(format!("{name}.vcz.bed"))).unwrap();
        for step in 0..400_usize {
            let start = step * 7919 % expected.len();
            let end = (start + 1 + step * 331 % 5000).min(expected.len());
            let mut found = vec![0; end - start];
            file.read_exact_at(&mut found, start as u64).unwrap();
            assert!(found == expected[start..end], "{name}: {start}..{end}");
        }
        let readme = fs::read_to_string(views.join("README.txt")).unwrap();
        let note = "variants are not in it, because they have more than two alleles";
        assert_eq!(readme.contains(note), name == "calls", "{readme}");
    }
}

#[test]
fn plink_reads_the_frequencies_of_the_vcf_from_a_mount() {
    let stores = stores();
    let place = scratch();
    let result = |name: &str| fs::read_to_string(place.path().join(name)).unwrap();
    let mount = Mount::new(stores.join("calls.vcz"));
    let fileset = mount.join(".zarrfs/calls");
    let fileset = fileset.to_str().unwrap();
    let run_in = |program: &str, arguments: &[&str]| {
        let mut command = Command::new(program);
        run(command.current_dir(place.path()).args(arguments))
    };
    let vcf = stores.join("calls.vcf");
    let options = [
        "--vcf-half-call",
        "missing",
        "--allow-extra-chr",
        "--max-alleles",
        "2",
    ];
    let from_vcf = ["--vcf", vcf.to_str().unwrap(), "--freq", "--out", "vcf"];
    run_in("plink2", &[&from_vcf[..], &options].concat());
    let from_mount = ["--bfile", fileset, "--freq", "--out", "mount"];
    run_in(
        "plink2",
        &[&from_mount[..], &["--allow-extra-chr"]].concat(),
    );
    let without_chromosome = |text: String| -> Vec<String> {
        let rows = text.lines().skip(1);
        rows.map(|row| row.split_once('\t').unwrap().1.to_owned())
            .collect()
    };
    let found = without_chromosome(result("mount.afreq"));
    assert_eq!(found, without_chromosome(result("vcf.afreq")));
    assert!(found.len() > 2000, "{}", found.len());
    let missing = ["--bfile", fileset, "--missing", "--allow-extra-chr"];
    run_in("plink1.9", &missing);
    assert_eq!(result("plink.imiss").lines().count(), 1 + 307);
}

#[test]
fn groups_whose_arrays_contradict_each_other_have_no_fileset() {
    let place = scratch();
    let number = |shape: &[u64], data_type: &str| {
        json!({
            "zarr_format": 3, "node_type": "array", "shape": shape, "data_type": data_type,
            "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": shape}},
            "chunk_key_encoding": {"name": "default", "configuration": {"separator": "/"}},
            "fill_value": 0, "codecs": [{"name": "bytes", "configuration": {"endian": "little"}}],
            "attributes": {},
        })
    };
    let text = |shape: &[u64], fill: &str| {
        let mut array = number(shape, "string");
        array["codecs"] = json!([{"name": "vlen-utf8"}]);
        array["fill_value"] = json!(fill);
        array
    };
    let arrays = |genotype| {
        vec![
            ("call_genotype", genotype),
            ("variant_allele", text(&[3, 2], "A")),
            ("variant_contig", number(&[3], "int8")),
            ("variant_position", number(&[3], "int32")),
            ("contig_id", text(&[1], "chr2")),
            ("sample_id", text(&[4], "s")),
        ]
    };
    let whole = arrays(number(&[3, 4, 2], "int8"));
    let group = json!({
        "zarr_format": 3, "node_type": "group", "attributes": {"vcf_zarr_version": "0.4"},
    });
    let write = |name: &str, arrays: &[(&str, serde_json::Value)]| {
        let store = place.path().join(name);
        for (array, document) in arrays {
            fs::create_dir_all(store.join(array)).unwrap();
            fs::write(store.join(array).join("zarr.json"), document.to_string()).unwrap();
        }
        fs::write(store.join("zarr.json"), group.to_string()).unwrap();
    };
    let with = |name: &'static str, document| {
        let mut arrays = whole.clone();
        arrays.retain(|(other, _)| *other != name);
        arrays.push((name, document));
        arrays
    };
    write("whole", &whole);
    let mut contigs = number(&[3], "int8");
    contigs["fill_value"] = json!(1);
    for (name, arrays, expected) in [
        (
            "floats",
            arrays(number(&[3, 4, 2], "float32")),
            "signed integers",
        ),
        (
            "triploid",
            arrays(number(&[3, 4, 3], "int8")),
            "one or two alleles",
        ),
        ("flat", arrays(number(&[12], "int8")), "one or two alleles"),
        (
            "samples",
            with("sample_id", text(&[5], "s")),
            "`sample_id` has the length 5",
        ),
        (
            "blank",
            with("sample_id", text(&[4], "s 1")),
            "has a blank in the text 0",
        ),
        (
            "alleles",
            with("variant_allele", text(&[2, 3], "A")),
            "`variant_allele` has the length 2",
        ),
        (
            "contigs",
            with("variant_contig", contigs),
            "variant 0 has no contig with a name",
        ),
        (
            "positions",
            with("variant_position", number(&[3, 1], "int32")),
            "no list of numbers",
        ),
        (
            "without",
            whole[..5].to_vec(),
            "no readable array `sample_id`",
        ),
        (
            "many",
            with("sample_id", text(&[4_000_000_000], "s")),
            "too much memory",
        ),
    ] {
        write(name, &arrays);
        let mount = Mount::new(place.path().join(name));
        let readme = fs::read_to_string(mount.join(".zarrfs/README.txt")).unwrap();
        assert!(readme.contains(expected), "{name}: {readme}");
        let files = SUFFIXES.map(|suffix| fs::read(mount.join(format!(".zarrfs/{name}.{suffix}"))));
        assert!(files.iter().any(Result::is_err), "{name}");
    }
    let mount = Mount::new(place.path().join("whole"));
    let read = |suffix| fs::read(mount.join(format!(".zarrfs/whole.{suffix}"))).unwrap();
    assert_eq!(read("bim"), b"2\t.\t0\t0\tA\tA\n".repeat(3));
    assert_eq!(read("bed"), [&[0x6c, 0x1b, 0x01], &[0xff; 3][..]].concat());
    // A chunk that cannot be decoded is an error, and no genotype.
    let chunk = place.path().join("whole/call_genotype/c/0/0/0");
    fs::create_dir_all(chunk.parent().unwrap()).unwrap();
    fs::write(chunk, "short").unwrap();
    let mount = Mount::new(place.path().join("whole"));
    let found = fs::read(mount.join(".zarrfs/whole.bed"));
    assert_eq!(errno(found), EIO);
}
