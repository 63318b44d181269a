//! References and Icechunk repositories of TIFF files, which tifffile, virtual-tiff and VirtualiZarr wrote.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::support::{Mount, run};
use serde_json::Value;

use crate::{copied, fixtures, is_equal, make, python};

/// Asserts that the values of images of JPEG differ by at most `by` from those of libjpeg-turbo.
fn is_near(mount: &Mount, expected: &str, by: u8) {
    let compared = run(make()
        .arg("compare")
        .arg(mount.path())
        .arg(fixtures().join("expected").join(expected))
        .arg(by.to_string()));
    assert!(compared.trim().parse::<u32>().unwrap() > 0, "{compared}");
}

#[test]
fn references_of_tifffile_have_the_pixels_that_tifffile_reads() {
    for references in ["tiff.json", "tiff.parq"] {
        let mount = Mount::new(fixtures().join(references));
        is_equal(&mount, "tiff");
        is_near(&mount, "tiff-jpeg", 5);
        mount.unmount();
    }
}

#[test]
fn tiles_of_jpeg_are_those_of_a_packed_tiff_without_decoding() {
    let mount = Mount::new(fixtures().join("tiff.json"));
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/references/tiff.py");
    run(python()
        .arg(script)
        .arg("check-packed")
        .arg(mount.path())
        .arg(fixtures().join("expected/tiff-jpeg")));
    // libjpeg-turbo of GDAL decodes both files.
    for name in ["jpeg_gray", "jpeg_pixels", "jpeg_subsampled"] {
        let packed = mount.join(format!("{name}/.zarrfs/{name}.packed.tif"));
        let sums = [packed, fixtures().join(format!("{name}.tif"))].map(|path| {
            let text = run(Command::new("gdalinfo").arg("-checksum").arg(path));
            let sums = text.lines().filter(|line| line.contains("Checksum="));
            sums.map(str::to_owned).collect::<Vec<_>>()
        });
        assert!(
            !sums[0].is_empty() && sums[0] == sums[1],
            "{name}: {sums:?}"
        );
    }
    mount.unmount();
}

#[test]
fn a_packed_tiff_of_colours_in_jpeg_has_all_chunks() {
    let directory = copied();
    let text = fs::read_to_string(fixtures().join("tiff.json")).unwrap();
    let mut references: Value = serde_json::from_str(&text).unwrap();
    for missing in ["jpeg_gray/0.0", "jpeg_pixels/0.0.0"] {
        let keys = references.as_object_mut().unwrap();
        assert!(keys.remove(missing).is_some(), "{missing}");
    }
    let path = directory.path().join("sparse.json");
    fs::write(&path, references.to_string()).unwrap();
    let mount = Mount::new(path);
    let packed = |name: &str| mount.join(format!("{name}/.zarrfs/{name}.packed.tif"));
    let text = run(Command::new("gdalinfo")
        .arg("-checksum")
        .arg(packed("jpeg_gray")));
    assert!(text.contains("Checksum="), "{text}");
    let error = fs::read(packed("jpeg_pixels")).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::NotFound);
    mount.unmount();
}

#[test]
fn references_of_virtualizarr_have_the_pixels_that_tifffile_reads() {
    for name in ["virtual-deflate_floats", "virtual-packbits"] {
        for suffix in ["json", "parq"] {
            let references = fixtures().join(format!("{name}.{suffix}"));
            let mount = Mount::new(references);
            is_equal(&mount, name);
            mount.unmount();
        }
    }
}

#[test]
fn an_icechunk_repository_of_virtual_tiff_has_the_pixels_that_tifffile_reads() {
    let targets = fixtures().display().to_string();
    let repository = fixtures().join("tiff-icechunk");
    let mount = Mount::with(repository, &["--allow-target", &targets]);
    is_equal(&mount, "tiff-icechunk");
    is_near(&mount, "tiff-icechunk-jpeg", 1);
    mount.unmount();
}
