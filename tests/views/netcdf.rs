//! Groups as NetCDF-4 and as classic NetCDF, opened by common programs.

use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use serde_json::json;

use crate::clients::{EACCES, EIO, ENOENT};
use crate::stores::{FILL, GOOD, Stores, le, logged, may_run, names, source_name};
use crate::support::*;

fn in_repository(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

/// Returns the path of a store that `tests/views/setup.sh` has written.
fn fixture(name: &str) -> PathBuf {
    let path = in_repository("target/fixtures/formats").join(name);
    assert!(path.exists(), "run tests/views/setup.sh: no {path:?}");
    path
}

/// Returns a Python with the netCDF libraries; `None` if this user may not run it.
pub fn python() -> Option<Command> {
    let program = in_repository("tests/views/.venv/bin/python");
    if !may_run(&program) {
        return None;
    }
    let mut command = Command::new(program);
    command.env("PYTHONDONTWRITEBYTECODE", "1");
    Some(command)
}

/// Runs a shell command that must succeed, and returns its output; `$F` is the file.
fn tool(file: &Path, script: &str) -> String {
    let script = format!("F={}\n{script}", file.display());
    sh(&script)
}

/// Returns the counter of decoded chunks.
pub fn decoded(mount: &Mount) -> u64 {
    let stats = run(zarrfs().arg("stats").arg(mount.path()).arg("--json"));
    let stats: serde_json::Value = serde_json::from_str(&stats).unwrap();
    fn find(value: &serde_json::Value) -> Option<u64> {
        match value {
            serde_json::Value::Object(members) => members
                .get("chunks_decoded")
                .and_then(serde_json::Value::as_u64)
                .or_else(|| members.values().find_map(find)),
            _ => None,
        }
    }
    find(&stats).expect("a counter of decoded chunks")
}

#[test]
fn every_value_is_the_one_that_zarr_python_reads() {
    for (store, groups) in [
        ("climate_v2.zarr", &[""][..]),
        ("climate_v3.zarr", &[""]),
        ("others.zarr", &["", "inner", "inner/deep"]),
        ("traps.zarr", &["", "shadow", "finer", "time"]),
    ] {
        let mount = Mount::new(fixture(store));
        for group in groups {
            let name = group.rsplit('/').next().filter(|name| !name.is_empty());
            let name = name.unwrap_or("root");
            for format in ["nc", "cdf.nc", "cdf5.nc"] {
                let Some(mut python) = python() else { return };
                let file = mount
                    .join(group)
                    .join(".zarrfs")
                    .join(format!("{name}.{format}"));
                let output = run(python
                    .arg(in_repository("tests/views/netcdf.py"))
                    .arg(mount.path())
                    .arg(&file)
                    .arg(group));
                assert!(output.contains("variables"), "{output}");
            }
        }
    }
}

/// Returns the libhdf5 1.8 that `tests/views/setup.sh` has installed. It exists for this
/// architecture only.
#[cfg(target_arch = "x86_64")]
fn old_hdf5() -> PathBuf {
    let directory = in_repository("tests/views/.hdf5-1.8/lib");
    let files = fs::read_dir(&directory);
    let files = files.unwrap_or_else(|e| panic!("run tests/views/setup.sh: {directory:?}: {e}"));
    let mut paths = files.map(|file| file.unwrap().path());
    let is_it = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        name.starts_with("libhdf5-")
    };
    paths.find(is_it).expect("a libhdf5")
}

#[test]
#[cfg(target_arch = "x86_64")]
fn hdf5_1_8_and_readers_without_the_library_read_every_value() {
    let node = in_repository("tests/servers/.venv/bin/node");
    for store in [
        "climate_v2.zarr",
        "climate_v3.zarr",
        "others.zarr",
        "traps.zarr",
    ] {
        let mount = Mount::new(fixture(store));
        let Some(mut python) = python().filter(|_| may_run(&node)) else {
            return;
        };
        let output = run(python
            .arg(in_repository("tests/views/hdf5.py"))
            .arg(old_hdf5())
            .arg(&node)
            .arg(mount.path())
            .arg(mount.join(".zarrfs/root.nc")));
        assert!(
            output.contains("HDF5 1.8.") && output.contains("jsfive"),
            "{output}"
        );
    }
}

#[test]
fn the_index_of_a_hundred_million_chunks_is_only_computed_where_it_is_read() {
    let stores = Stores::new();
    stores.put(".zgroup", b"{\"zarr_format\": 2}");
    let shape = json!({"shape": [10_000, 10_000], "chunks": [1, 1]});
    let chunks = [("9999.9999", &le(&[67])[..]), ("5000.77", &le(&[68]))];
    stores.v2("a", shape, &chunks);
    let mount = Mount::new(stores.path());
    let file = mount.join(".zarrfs/root.nc");
    // 1,587,304 nodes, a gap, and the elements.
    let size = fs::metadata(&file).unwrap().len();
    let gap = size - 1_587_304 * 2616 - 400_000_000;
    assert!((4..6).contains(&(gap >> 20)), "{gap}");
    assert!(tool(&file, "ncdump -h $F").contains("int a(dim_10000, dim_10000_2)"));
    assert_eq!(decoded(&mount), 0);
    let Some(mut python) = python() else { return };
    let script = "import h5py, netCDF4, sys
f = sys.argv[1]
d = netCDF4.Dataset(f)
d.set_auto_mask(False)
print([(int(a[9999, 9999]), a[5000, 76:79].tolist()) for a in (h5py.File(f)['a'], d['a'])])";
    let output = run(python.args(["-c", script]).arg(&file));
    let values = format!("(67, [{FILL}, 68, {FILL}])");
    assert_eq!(output.trim(), format!("[{values}, {values}]"));
    assert!(
        mount.memory("VmHWM") < 200 << 20,
        "{}",
        mount.memory("VmHWM")
    );
}

#[test]
fn opening_decodes_nothing_and_a_corrupt_chunk_hides_no_other_variable() {
    let stores = Stores::new();
    stores.put(".zgroup", b"{\"zarr_format\": 2}");
    stores.v2(
        "bad",
        json!({}),
        &[("0", b"too short"), ("1", &le(&GOOD[4..]))],
    );
    stores.v2("one", json!({"chunks": [8]}), &[("0", b"too short")]);
    // Without this array, the file has no gap for libraries that read the first 4 MiB.
    let large = json!({"shape": [5_000_000], "chunks": [1_000_000]});
    stores.v2("large", large, &[]);
    let mount = Mount::new(stores.path());
    let files =
        ["nc", "cdf.nc", "cdf5.nc"].map(|format| mount.join(format!(".zarrfs/root.{format}")));
    let Some(mut opening) = python() else { return };
    let script = "import netCDF4, sys
for f in sys.argv[1:]:
    print(*sorted(netCDF4.Dataset(f).variables))";
    let output = run(opening.args(["-c", script]).args(&files));
    assert_eq!(output, "bad good large one\n".repeat(3));
    assert_eq!(decoded(&mount), 0);
    let Some(mut reading) = python() else { return };
    let script = "import netCDF4, sys, xarray
for f in sys.argv[1:]:
    with xarray.open_dataset(f, mask_and_scale=False) as d:
        print(d['good'].values.tolist())
    for name in 'bad', 'one':
        try:
            print(name, netCDF4.Dataset(f)[name][:])
        except (OSError, RuntimeError):
            pass";
    let output = run(reading.args(["-c", script]).args(&files));
    assert_eq!(output, format!("{GOOD:?}\n").repeat(3));
}

/// netCDF-C 4.10 (netCDF4-python) reads the first 4 MiB to open a file, 4.9 (ncdump) only the header.
#[test]
fn c16_a_chunk_that_cannot_be_read_hides_no_other_variable_of_a_small_file() {
    let stores = Stores::new();
    stores.put(".zgroup", b"{\"zarr_format\": 2}");
    let text = || json!({"dtype": "|O", "filters": [{"id": "vlen-utf8"}], "fill_value": "", "shape": [1], "chunks": [1]});
    stores.v2("names", text(), &[("0", b"\x01\0\0\0\x02\0\0\0ab")]);
    stores.v2("whole", json!({"chunks": [8]}), &[("0", &le(&GOOD))]);
    let files = ["nc", "cdf.nc", "cdf5.nc", "packed.nc"];
    let size_of = |mount: &Mount, format: &str| {
        let file = fs::File::open(mount.join(format!(".zarrfs/root.{format}"))).unwrap();
        file.metadata().unwrap().len()
    };
    let mount = stores.mount(&[]);
    for format in files {
        assert!(size_of(&mount, format) < 96 << 10, "{format}");
    }
    mount.unmount();
    let damaged = [("0", &b"too short"[..]), ("1", &le(&GOOD[4..]))];
    stores.v2("bad", json!({}), &damaged);
    stores.v2("one", json!({"chunks": [8]}), &[("0", b"too short")]);
    stores.v2("text", text(), &[("0", b"\xff\xff\xff\xff")]);
    let mount = stores.mount(&["--ttl", "0"]);
    let paths =
        ["nc", "cdf.nc", "cdf5.nc"].map(|format| mount.join(format!(".zarrfs/root.{format}")));
    for path in &paths {
        let dump = tool(path, "ncdump -v good,whole,names $F");
        assert!(
            dump.contains("good = 10, -11, 12") && dump.contains("\"ab\""),
            "{dump}"
        );
    }
    for classic in &paths[1..] {
        let output = tool(classic, "cdo -s infon -selname,good $F");
        assert!(output.contains(": good"), "{output}");
    }
    let Some(mut client) = python() else { return };
    let script = "import h5py, netCDF4, sys, xarray
def fails(read):
    try:
        print('read', read())
    except (OSError, RuntimeError):
        return True
for path in sys.argv[1:]:
    with xarray.open_dataset(path, mask_and_scale=False) as d:
        print(d['good'].values.tolist())
    files = [netCDF4.Dataset(path)] + ([] if 'cdf' in path else [h5py.File(path)])
    for file in files:
        # A library must not return its buffer after an error.
        for name in ['bad', 'one', 'text'] * 3:
            assert fails(lambda: file[name][:]), name
        assert file['whole'][:].tolist() == file['good'][:].tolist()";
    let output = run(client.args(["-c", script]).args(&paths));
    assert_eq!(output, format!("{GOOD:?}\n").repeat(3));
    // The variables can be read in the same file as soon as the chunks can.
    stores.put("bad/0", &le(&GOOD[..4]));
    stores.put("one/0", &le(&GOOD));
    stores.put("text/0", b"\x01\0\0\0\x02\0\0\0cd");
    let dump = tool(&paths[0], "ncdump $F");
    assert!(
        dump.contains("one = 10, -11, 12") && dump.contains("bad = 10, -11, 12"),
        "{dump}"
    );
    let is_read = || tool(&paths[0], "ncdump -v text $F || true").contains("\"cd\"");
    assert!(
        wait_until(Duration::from_secs(20), is_read),
        "{}",
        mount.log()
    );
}

#[test]
fn small_files_are_a_few_pages_longer_than_their_elements() {
    let stores = Stores::new();
    stores.put(".zgroup", b"{\"zarr_format\": 2}");
    let mask = json!({"dtype": "|u1", "shape": [128, 128], "chunks": [64, 64], "fill_value": 1});
    stores.v2("mask", mask, &[]);
    stores.v2("bad", json!({"chunks": [8]}), &[("0", b"too short")]);
    stores.v2("good", json!({"chunks": [8]}), &[("0", &le(&GOOD))]);
    let mount = Mount::new(stores.path());
    let size = |file: &str| fs::metadata(mount.join(file)).unwrap().len();
    for (file, least, most) in [
        ("mask/.zarrfs/mask.npy", 16 << 10, 17 << 10),
        ("mask/.zarrfs/mask.tif", 16 << 10, 20 << 10),
        ("mask/.zarrfs/mask.nii", 16 << 10, 17 << 10),
        (".zarrfs/root.nc", 16 << 10, 48 << 10),
        // Classic NetCDF stores these bytes as 16-bit integers.
        (".zarrfs/root.cdf.nc", 32 << 10, 96 << 10),
    ] {
        let size = size(file);
        assert!((least..=most).contains(&size), "{file}: {size}");
    }
    // A page belongs to one array, so the other arrays can be read.
    let file = mount.join(".zarrfs/root.nc");
    assert!(tool(&file, "ncdump -v good $F").contains("good = 10, -11, 12"));
    assert!(tool(&file, "ncdump -h $F").contains("int bad(dim_8)"));
}

#[test]
fn readers_of_classic_files_get_an_error_for_a_damaged_chunk_and_no_zeros() {
    let stores = Stores::new();
    stores.put(".zgroup", b"{\"zarr_format\": 2}");
    let count: i32 = 20_000;
    let metadata = json!({"shape": [count], "chunks": [100]});
    let chunk = |n: i32| le(&(100 * n + 1..=100 * n + 100).collect::<Vec<_>>());
    let names: Vec<String> = (0..count / 100).map(|n| n.to_string()).collect();
    let chunks: Vec<Vec<u8>> = (0..count / 100).map(chunk).collect();
    let all: Vec<_> = names
        .iter()
        .map(String::as_str)
        .zip(chunks.iter().map(Vec::as_slice))
        .collect();
    stores.v2("a", metadata, &all);
    // In the third page of the third block of 16 KiB: read(2) would return the two pages before it.
    stores.put("a/109", b"too short");
    let mount = Mount::new(stores.path());
    let file = mount.join(".zarrfs/root.cdf.nc");
    let opened = fs::File::open(&file).unwrap();
    // Behind the gap, since an element at the beginning cannot be read.
    let start = 5 << 20;
    for page in 0..20 {
        let result = opened.read_exact_at(&mut [0; 4096], start + 4096 * page);
        assert_eq!(result.is_err(), (8..12).contains(&page), "page {page}");
    }
    for reader in [
        "ncdump -v a $F",
        "ncks -O -v a $F $F.copy",
        "cdo -s infon -selname,a $F",
    ] {
        let copy = stores.path().with_extension("copy.nc");
        let command = reader.replace("$F.copy", &copy.display().to_string());
        let command = command.replace("$F", &file.display().to_string());
        let output = Command::new("sh").args(["-c", &command]).output().unwrap();
        assert!(!output.status.success(), "{command}: {output:?}");
    }
}

#[test]
fn an_empty_text_is_a_text_and_no_null_pointer() {
    let stores = Stores::new();
    stores.put(".zgroup", b"{\"zarr_format\": 2}");
    stores.put(".zattrs", b"{\"stagger\": \"\"}");
    let text = json!({"dtype": "<U1", "fill_value": "", "shape": [4], "chunks": [4]});
    let letters: Vec<u8> = "a\0b\0"
        .chars()
        .flat_map(|c| u32::from(c).to_le_bytes())
        .collect();
    stores.v2("text", text, &[("0", &letters)]);
    let mount = Mount::new(stores.path());
    let file = mount.join(".zarrfs/root.nc");
    let dump = tool(&file, "ncdump -v text $F; h5dump -a stagger -d text $F");
    for gist in [
        // The netCDF value of unwritten elements is an empty text.
        "text = \"a\", _, \"b\", _ ;",
        ":stagger = \"\" ;",
        "(0): \"\\000\"",
        "(0): \"a\", \"\", \"b\", \"\"",
        "CTYPE H5T_C_S1;",
    ] {
        assert!(dump.contains(gist), "{gist}: {dump}");
    }
    assert!(
        !dump.contains("unknown") && !dump.contains("H5S_NULL"),
        "{dump}"
    );
}

#[test]
fn climate_programs_open_netcdf_files() {
    let mount = Mount::new(fixture("climate_v2.zarr"));
    for (format, kind) in [
        ("nc", "netCDF-4"),
        ("cdf.nc", "classic"),
        ("cdf5.nc", "cdf5"),
    ] {
        let file = mount.join(".zarrfs").join(format!("root.{format}"));
        assert_eq!(tool(&file, "ncdump -k $F").trim(), kind);
        let header = tool(&file, "ncdump -h $F");
        for line in [
            "float t2m(time, lat, lon) ;",
            "t2m:_FillValue = NaNf ;",
            "short packed(time, lat, lon) ;",
            "packed:_FillValue = -32768s ;",
            "packed:scale_factor = 0.01 ;",
            "byte mask(lat, lon) ;",
            "mask:dtype = \"bool\" ;",
            "time:units = \"hours since 1900-01-01\" ;",
            ":title = \"Klima für alle\" ;",
        ] {
            assert!(header.contains(line), "{format}: {line}: {header}");
        }
        // The mean of all unpacked elements, computed by two programs that share no code with zarrfs.
        let mean = |printed: String| -> f64 {
            let last = printed
                .split_whitespace()
                .last()
                .unwrap_or_default()
                .to_owned();
            last.parse()
                .unwrap_or_else(|e| panic!("{format}: {printed}: {e}"))
        };
        let nco = tool(
            &file,
            "T=$(mktemp -d); trap 'rm -rf $T' EXIT; ncwa -O -a time,lat,lon -v packed $F $T/o.nc
             ncks -H -C -v packed -s '%.6f\\n' $T/o.nc",
        );
        let octave = tool(
            &file,
            "HOME=/tmp octave -qf --eval \"pkg load netcdf; x = ncread('$F', 'packed');
             printf('%.6f\\n', mean(x(:)));\" 2>/dev/null || true",
        );
        assert!(
            (mean(nco.clone()) - mean(octave.clone())).abs() < 1e-4,
            "{nco} {octave}"
        );
        let cdo = tool(
            &file,
            "cdo -s showname $F 2>/dev/null; cdo -s ntime $F 2>/dev/null",
        );
        assert!(cdo.contains("t2m") && cdo.contains("packed"), "{cdo}");
        assert!(cdo.trim().ends_with("30"), "{cdo}");
        if format != "cdf5.nc" {
            let gdal = tool(&file, "gdalinfo NETCDF:$F:t2m 2>/dev/null");
            assert!(gdal.contains("Size is 36, 19"), "{gdal}");
            assert!(gdal.contains("Origin = (-5.000000000000000,95.0"), "{gdal}");
        }
    }
    let file = mount.join(".zarrfs/root.nc");
    let dump = tool(
        &file,
        "h5dump -d /packed -s 0,0,0 -c 1,1,2 $F; h5dump -pH $F",
    );
    assert!(
        dump.contains("H5T_STD_I16LE") && dump.contains("CHUNKED ( 10, 19, 12 )"),
        "{dump}"
    );
}

#[test]
fn headers_of_large_files_decode_nothing() {
    let mount = Mount::new(fixture("sparse.zarr"));
    for format in ["nc", "cdf.nc", "cdf5.nc"] {
        let file = mount.join(".zarrfs").join(format!("root.{format}"));
        assert!(fs::metadata(&file).unwrap().len() > 17_000_000_000);
        let header = tool(&file, "ncdump -h $F");
        assert!(header.contains("float b(time, y, x)"), "{header}");
    }
    assert_eq!(decoded(&mount), 0);
    let Some(mut python) = python() else { return };
    let output = run(python
        .args([
            "-c",
            "import netCDF4, numpy as np, sys
for f in sys.argv[1:]:
    d = netCDF4.Dataset(f); d.set_auto_mask(False)
    for v in 'ab':
        assert np.array_equal(d[v][300, :512, :512].ravel(), np.arange(512 * 512))
        assert d[v][511, -1, -1] == 7 and d[v][0, 5, 5] == -1
    assert np.array_equal(d['scale'][:], np.arange(512))
print('equal')",
        ])
        .args(
            ["nc", "cdf.nc", "cdf5.nc"].map(|format| mount.join(format!(".zarrfs/root.{format}"))),
        ));
    assert_eq!(output.trim(), "equal");
    let classic = tool(&mount.join(".zarrfs/root.cdf.nc"), "ncdump -h $F");
    assert!(
        classic.contains("time = UNLIMITED ; // (512 currently)"),
        "{classic}"
    );
}

#[test]
fn a_thousand_variables_are_one_file() {
    let mount = Mount::new(fixture("many.zarr"));
    let header = tool(&mount.join(".zarrfs/root.nc"), "ncdump -h $F");
    assert_eq!(header.matches("(time, lat, lon)").count(), 1000);
    assert!(header.contains("variable_0999:long_name = \"number 999\" ;"));
    assert_eq!(decoded(&mount), 0);
}

#[test]
fn content_that_netcdf_cannot_represent_is_omitted_and_reported() {
    let mount = Mount::new(fixture("others.zarr"));
    let readme = fs::read_to_string(mount.join(".zarrfs/README.txt")).unwrap();
    for note in [
        "\"bad/name\" is not in it",
        "_FillValue \"?\" is no value of the data type",
        "axis 1 is called k, as something else is",
        "others.cdf.nc: a classic file has no groups: inner",
    ] {
        assert!(readme.contains(note), "{note}: {readme}");
    }
    let header = tool(&mount.join(".zarrfs/root.nc"), "ncdump -h $F");
    assert!(header.contains("int64 twice(k, k_2)") && header.contains("double lat(lat, lon)"));
    assert!(header.contains("records_t records(t) ;") && header.contains(":long = \"xxx"));
    assert!(!header.contains("bad/name"), "{header}");
}

#[test]
fn names_in_the_file_refer_to_the_same_nodes_as_in_the_hierarchy() {
    let mount = Mount::new(fixture("traps.zarr"));
    let header = tool(&mount.join(".zarrfs/root.nc"), "ncdump -h $F");
    for line in [
        "int64 a(x) ;",
        "int64 b(x_3) ;",
        "int64 data(x) ;",
        "double v(time_2, k) ;",
        "group: time {",
        "string flag(p, q) ;",
        "unsigned:_FillValue = -1b ;",
    ] {
        assert!(header.contains(line), "{line}: {header}");
    }
    assert!(
        !header.contains("z:_FillValue") && !header.contains("weeks:units"),
        "{header}"
    );
    let readme = fs::read_to_string(mount.join(".zarrfs/README.txt")).unwrap();
    assert!(readme.contains("_nc4_non_coord_x is not in it"), "{readme}");
}

#[test]
fn an_integer_that_exceeds_a_double_is_an_error_of_its_element_only() {
    let stores = Stores::new();
    stores.put(".zgroup", b"{\"zarr_format\": 2}");
    let wide = json!({"dtype": "<i8"});
    let bytes = |values: [i64; 4]| values.map(i64::to_le_bytes).concat();
    let (exact, other) = (bytes([1, 2, 3, 1 << 60]), bytes([1, 2, 3, i64::MAX]));
    stores.v2("exact", wide.clone(), &[("0", &exact), ("1", &exact)]);
    stores.v2("other", wide, &[("0", &other), ("1", &exact)]);
    let mount = stores.mount(&[]);
    let file = mount.join(".zarrfs/root.cdf.nc");
    let Some(mut python) = python() else { return };
    let output = run(python
        .args([
            "-c",
            "import netCDF4, sys
d = netCDF4.Dataset(sys.argv[1]); d.set_auto_mask(False)
assert d['good'][:].tolist() == [10, -11, 12, -13, 14, -15, 16, -17]
try:
    print(d['other'][:])
except (OSError, RuntimeError) as error:
    print('refused')",
        ])
        .arg(&file));
    assert_eq!(output.trim(), "refused");
    let refused = fs::read(&file).unwrap_err();
    let unsupported = rustix::io::Errno::OPNOTSUPP.raw_os_error();
    assert_eq!(refused.raw_os_error(), Some(unsupported), "{refused}");
    let what = "not supported: 9223372036854775807 is no value of the numbers of 8 bytes";
    logged(&mount, &["other", what, "read it from the .nc"]);
}

#[test]
fn a_chunk_that_cannot_be_read_is_an_error_and_no_missing_variable() {
    let stores = Stores::new();
    let text = json!({"dtype": "|O", "filters": [{"id": "vlen-utf8"}], "fill_value": ""});
    stores.put(".zgroup", b"{\"zarr_format\": 2}");
    stores.v2("text", text, &[("0", b"\xff\xff\xff\xff"), ("1", b"")]);
    stores.put("group/.zgroup", b"{\"zarr_format\": 2}");
    stores.put("empty/.zgroup", b"{\"zarr_format\": 2}");
    let mount = stores.mount(&[]);
    // The layout of the file depends on the text, which is broken.
    assert_eq!(errno(read(mount.join(".zarrfs/root.nc"))), EIO);
    let readme = fs::read_to_string(mount.join(".zarrfs/README.txt")).unwrap();
    assert!(
        readme.contains(&source_name(stores.path())) && readme.contains("text"),
        "{readme}"
    );
    // Other views can be read.
    assert_eq!(read(mount.join(".zarrfs/good.bin")).unwrap().len(), 32);
    for group in ["group", "empty"] {
        let file = mount.join(group).join(format!(".zarrfs/{group}.nc"));
        assert_eq!(errno(read(file)), ENOENT);
    }
}

#[test]
fn a_changed_group_has_a_new_file() {
    let stores = Stores::new();
    stores.put(".zgroup", b"{\"zarr_format\": 2}");
    let mount = stores.mount(&["--ttl", "200ms"]);
    let file = mount.join(".zarrfs/root.nc");
    let before = tool(&file, "ncdump -h $F");
    assert!(
        before.contains("int good(dim_8)") && !before.contains("more"),
        "{before}"
    );
    stores.v2("more", json!({}), &[("0", &[0; 16]), ("1", &[0; 16])]);
    let is_seen = wait_until(Duration::from_secs(20), || {
        let output = Command::new("ncdump")
            .arg("-h")
            .arg(&file)
            .output()
            .unwrap();
        String::from_utf8_lossy(&output.stdout).contains("int more(dim_8)")
    });
    assert!(is_seen, "{}", tool(&file, "ncdump -h $F"));
}

/// Writes a version 2 group at a path of a store.
fn group(stores: &Stores, name: &str) {
    let key = Path::new(name).join(".zgroup");
    stores.put(key.to_str().unwrap(), b"{\"zarr_format\": 2}");
}

#[test]
fn a_node_with_an_invalid_document_is_omitted_and_named() {
    let stores = Stores::new();
    for name in ["", "below", "empty"] {
        group(&stores, name);
    }
    stores.v2("below/fine", json!({}), &[]);
    for (name, key) in [
        ("half", ".zarray"),
        ("three", "zarr.json"),
        ("below/deep", ".zarray"),
        ("empty/only", "zarr.json"),
    ] {
        stores.put(&format!("{name}/{key}"), b"{ half");
        // As in chunk directories, whose content is not a node.
        stores.v2(&format!("{name}/c/inside"), json!({}), &[]);
    }
    let large = format!(
        "{{\"zarr_format\": 2, \"x\": \"{}\"}}",
        "a".repeat(16 << 20)
    );
    stores.put("large/.zarray", large.as_bytes());
    let unnamed = std::ffi::OsStr::from_bytes(b"un\xffnamed");
    fs::rename(stores.path().join("good"), stores.path().join(unnamed)).unwrap();
    stores.v2(
        "good",
        json!({}),
        &[("0", &le(&GOOD[..4])), ("1", &le(&GOOD[4..]))],
    );
    let mount = stores.mount(&[]);
    let readme = fs::read(mount.join(".zarrfs/README.txt")).unwrap();
    let readme = String::from_utf8_lossy(&readme);
    assert!(
        readme.contains("is not in it: its name is no UTF-8"),
        "{readme}"
    );
    let own = source_name(stores.path());
    for (format, names) in [
        (
            "nc",
            &["half", "three", "large", "below/deep", "empty/only"][..],
        ),
        ("cdf.nc", &["half", "three", "large"]),
        ("cdf5.nc", &["half", "three", "large"]),
    ] {
        let file = mount.join(format!(".zarrfs/root.{format}"));
        let header = tool(&file, "ncdump -h $F");
        assert!(header.contains("int good(dim_8)"), "{header}");
        assert!(!header.contains("inside"), "{header}");
        for name in names {
            let line = format!("{own}.{format}: {name} is not in it: ");
            assert!(readme.contains(&line), "{line}: {readme}");
        }
    }
    assert!(readme.contains("16777216"), "{readme}");
    // A broken node is not a group either, and a group of only such nodes has no file.
    for (name, gist) in [("half", ".zarray: line 1"), ("empty", "only is not in it")] {
        let file = mount.join(name).join(format!(".zarrfs/{name}.nc"));
        assert_eq!(errno(read(file)), ENOENT, "{name}");
        let readme = fs::read_to_string(mount.join(name).join(".zarrfs/README.txt")).unwrap();
        assert!(
            readme.contains(&format!("{name}.nc: ")) && readme.contains(gist),
            "{readme}"
        );
    }
    assert_eq!(read(mount.join(".zarrfs/good.bin")).unwrap(), le(&GOOD));
}

#[test]
fn a_node_whose_document_fails_temporarily_is_an_error() {
    let stores = Stores::new();
    group(&stores, "");
    // A link out of the store exists, but cannot be read.
    fs::create_dir(stores.path().join("lost")).unwrap();
    std::os::unix::fs::symlink("/etc/hostname", stores.path().join("lost/.zarray")).unwrap();
    let mount = stores.mount(&[]);
    for format in ["nc", "cdf.nc", "cdf5.nc"] {
        let file = mount.join(format!(".zarrfs/root.{format}"));
        assert_eq!(errno(read(file)), EACCES, "{format}");
    }
}

#[test]
fn names_that_are_equal_in_nfc_are_in_the_file_once() {
    let (composed, decomposed) = ("caf\u{e9}", "cafe\u{301}");
    let stores = Stores::new();
    for name in ["", "groups", "mixed"] {
        group(&stores, name);
    }
    for name in [composed, decomposed] {
        group(&stores, &format!("groups/{name}"));
        stores.v2(&format!("groups/{name}/x"), json!({}), &[]);
    }
    stores.v2(&format!("mixed/{composed}"), json!({}), &[]);
    group(&stores, &format!("mixed/{decomposed}"));
    stores.v2(&format!("mixed/{decomposed}/x"), json!({}), &[]);
    let mount = stores.mount(&[]);
    let header = tool(&mount.join(".zarrfs/root.nc"), "ncdump -h $F");
    assert_eq!(
        header.matches(&format!("group: {composed} {{")).count(),
        1,
        "{header}"
    );
    assert!(
        header.contains(&format!("int {composed}(dim_8)")),
        "{header}"
    );
    let listed = tool(&mount.join(".zarrfs/root.nc"), "h5ls -r $F");
    assert_eq!(listed.matches("/groups/").count(), 2, "{listed}");
    let readme = fs::read_to_string(mount.join(".zarrfs/README.txt")).unwrap();
    for name in ["groups/caf\u{e9}", "mixed/cafe\u{301}"] {
        let line = format!("{name} is not in it: another node has the same name in NFC");
        assert!(readme.contains(&line), "{readme}");
    }
}

#[test]
fn times_have_the_unit_of_their_data_type() {
    let stores = Stores::new();
    group(&stores, "");
    for (name, dtype) in [("date", "<M8[s]"), ("span", "<m8[h]"), ("weeks", "<M8[W]")] {
        stores.v2(name, json!({"dtype": dtype, "fill_value": null}), &[]);
        let attributes = json!({"units": "days since 1900-01-01", "calendar": "noleap", "a": 1});
        stores.put(
            &format!("{name}/.zattrs"),
            attributes.to_string().as_bytes(),
        );
    }
    stores.v2("same", json!({"dtype": "<M8[D]", "fill_value": null}), &[]);
    let same = json!({"units": "days since 1970-01-01 00:00:00"});
    stores.put("same/.zattrs", same.to_string().as_bytes());
    let mount = stores.mount(&[]);
    for format in ["nc", "cdf.nc"] {
        let header = tool(
            &mount.join(format!(".zarrfs/root.{format}")),
            "ncdump -h $F",
        );
        for line in [
            "date:units = \"seconds since 1970-01-01 00:00:00\" ;",
            "date:calendar = \"proleptic_gregorian\" ;",
            "span:units = \"hours\" ;",
            "same:units = \"days since 1970-01-01 00:00:00\" ;",
            "weeks:a = 1 ;",
        ] {
            assert!(header.contains(line), "{line}: {header}");
        }
        assert!(
            !header.contains("1900") && !header.contains("noleap"),
            "{header}"
        );
        assert!(!header.contains("weeks:units"), "{header}");
    }
    let readme = fs::read_to_string(mount.join(".zarrfs/README.txt")).unwrap();
    let file = format!("{}.nc", source_name(stores.path()));
    for name in ["date", "span", "weeks"] {
        let line = format!("{file}: {name}: attribute \"units\" is not in it");
        assert!(readme.contains(&line), "{line}: {readme}");
    }
    assert!(
        !readme.contains(&format!("{file}: same: attribute")),
        "{readme}"
    );
}

#[test]
fn the_file_of_an_array_has_its_coordinates_as_xarray_has_them() {
    let Some(python) = python() else { return };
    let script = in_repository("tests/views/array_nc.py");
    let directory = scratch();
    let store = directory.path().join("store");
    let program = python.get_program().to_owned();
    let run_script = |arguments: &[&Path]| {
        let mut command = Command::new(&program);
        command.env("PYTHONDONTWRITEBYTECODE", "1").arg(&script);
        run(command.args(arguments))
    };
    run_script(&[Path::new("write"), &store]);
    let mount = Mount::with(&store, &["--force"]);
    let output = run_script(&[Path::new("check"), &store, mount.path()]);
    let counts = output.lines().last().unwrap();
    assert_eq!(counts, "{'files': 11, 'differences': 0}", "{output}");
    // Listed for the array, and opened by name beside the file of the group, which has the array too.
    let views = mount.path().join("v2/.zarrfs");
    assert!(!names(&views).contains(&"air.nc".to_owned()));
    let file = fs::read(views.join("air.nc")).unwrap();
    assert!(file == fs::read(mount.path().join("v2/air/.zarrfs/air.nc")).unwrap());
}
