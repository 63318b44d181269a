//! The unlimited dimension of NetCDF-4 files, as shown by ncdump, NCO and netCDF4-python.

use serde_json::json;

use crate::netcdf::python;
use crate::stores::*;
use crate::support::*;

/// Creates a group with variables along `time`, in chunks of several kinds.
fn stores(first: i32) -> Stores {
    let stores = Stores::new();
    stores.put(".zgroup", br#"{"zarr_format": 2}"#);
    let array = |name: &str, shape: &[u64], chunks: &[u64], dimensions: &[&str]| {
        let document =
            json!({"shape": shape, "chunks": chunks, "compressor": {"id": "zlib", "level": 1}});
        let counts = shape
            .iter()
            .zip(chunks)
            .map(|(length, chunk)| length.div_ceil(*chunk));
        let keys: Vec<String> = match counts.collect::<Vec<u64>>()[..] {
            [rows] => (0..rows).map(|row| row.to_string()).collect(),
            [rows, columns] => (0..rows)
                .flat_map(|row| (0..columns).map(move |column| format!("{row}.{column}")))
                .collect(),
            _ => panic!("{shape:?}"),
        };
        let length: u64 = chunks.iter().product();
        let bytes = zlib(&le(&vec![first; length as usize]));
        let chunks: Vec<(&str, &[u8])> = keys.iter().map(|key| (&key[..], &bytes[..])).collect();
        stores.v2(name, document, &chunks);
        let attributes = json!({"_ARRAY_DIMENSIONS": dimensions});
        stores.put(
            &format!("{name}/.zattrs"),
            attributes.to_string().as_bytes(),
        );
    };
    array("time", &[10], &[4], &["time"]);
    array("one", &[10, 3], &[16, 3], &["time", "x"]);
    array("many", &[10, 3], &[4, 2], &["time", "x"]);
    stores
}

#[test]
fn files_with_an_unlimited_time_are_concatenated_along_it() {
    let (one, two) = (stores(1), stores(2));
    let mounts = [one.mount(&[]), two.mount(&[])];
    for format in ["nc", "packed.nc"] {
        let paths = mounts
            .each_ref()
            .map(|mount| mount.join(format!(".zarrfs/root.{format}")));
        let header = sh(&format!("ncdump -h {}", paths[0].display()));
        assert!(
            header.contains("time = UNLIMITED ; // (10 currently)"),
            "{header}"
        );
        assert!(header.contains("int many(time, x)"), "{header}");
        let output = scratch();
        let all = output.path().join("all.nc");
        sh(&format!(
            "ncrcat -O -v time,one,many {} {} {}",
            paths[0].display(),
            paths[1].display(),
            all.display()
        ));
        let Some(mut python) = python() else { return };
        let script = "import netCDF4, numpy, sys
with netCDF4.Dataset(sys.argv[1]) as all:
    assert all.dimensions['time'].isunlimited() and not all.dimensions['x'].isunlimited()
    expected = numpy.repeat([1, 2], 10)
    for name in 'time', 'one', 'many':
        found = all[name][...]
        found = found if found.ndim == 1 else found[:, 2]
        assert (found == expected).all(), (name, found)
print('same')";
        assert_eq!(run(python.args(["-c", script]).arg(&all)).trim(), "same");
    }
}

#[test]
fn time_that_is_not_the_first_dimension_is_not_unlimited() {
    let stores = stores(1);
    let turned = json!({"shape": [3, 10], "chunks": [3, 10]});
    stores.v2("turned", turned, &[]);
    stores.put("turned/.zattrs", br#"{"_ARRAY_DIMENSIONS": ["x", "time"]}"#);
    let mount = stores.mount(&[]);
    let path = mount.join(".zarrfs/root.nc");
    let header = sh(&format!("ncdump -h {}", path.display()));
    assert!(header.contains("\ttime = 10 ;"), "{header}");
}
