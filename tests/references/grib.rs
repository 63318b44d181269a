//! References to GRIB files and messages in Zarr v3, which ecCodes and kerchunk wrote, against the values of ecCodes.

use std::fs;

use crate::support::Mount;
use crate::{fixtures, is_equal};

#[test]
fn messages_have_the_values_that_eccodes_reads() {
    let mount = Mount::new(fixtures().join("grib.json"));
    is_equal(&mount, "grib");
    mount.unmount();
    let mount = Mount::new(fixtures().join("grib-v3"));
    is_equal(&mount, "grib-v3");
    mount.unmount();
}

#[test]
fn a_forecast_that_kerchunk_scanned_is_one_array() {
    let mount = Mount::new(fixtures().join("scanned.json"));
    is_equal(&mount, "scanned");
    mount.unmount();
}

#[test]
fn d05_a_damaged_message_is_an_error_that_names_the_chunk() {
    let copy = tempfile::tempdir().unwrap();
    let path = copy.path().join("ccsds.grib");
    let mut message = fs::read(fixtures().join("ccsds.grib")).unwrap();
    message.truncate(message.len() / 2);
    fs::write(&path, message).unwrap();
    let whole = fixtures().join("simple.grib");
    fs::copy(whole, copy.path().join("simple.grib")).unwrap();
    fs::copy(fixtures().join("grib.json"), copy.path().join("grib.json")).unwrap();
    let mount = Mount::new(copy.path().join("grib.json"));
    assert!(fs::read(mount.join("ccsds/.zarrfs/ccsds.npy")).is_err());
    assert!(fs::read(mount.join("simple/.zarrfs/simple.npy")).is_ok());
    let errors = fs::read_to_string(mount.join(".zarrfs/errors.txt")).unwrap();
    assert!(
        errors.contains("ccsds/0.0") && errors.contains("grib"),
        "{errors}"
    );
    mount.unmount();
}
