//! References and Icechunk repositories of TIFF files, which tifffile, virtual-tiff and VirtualiZarr wrote.

use crate::support::Mount;
use crate::{fixtures, is_equal};

#[test]
fn references_of_tifffile_have_the_pixels_that_tifffile_reads() {
    for references in ["tiff.json", "tiff.parq"] {
        let mount = Mount::new(fixtures().join(references));
        is_equal(&mount, "tiff");
        mount.unmount();
    }
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
    mount.unmount();
}
