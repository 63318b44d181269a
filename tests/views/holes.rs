//! Programs that search for holes in files copy every byte of native keys, views, translations and
//! texts: no object has holes, or fewer blocks than its size.

use std::fs::{self, File};
use std::os::unix::fs::{FileExt, symlink};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::Command;

use serde_json::json;

use crate::clients::{EIO, ENOENT};
use crate::stores::*;
use crate::support::*;

/// The number of elements, which are not zero, in four chunks.
const ELEMENTS: i32 = 16_384;

/// Creates a group with an array, and a sparse file as one of its keys.
fn store() -> Stores {
    let stores = Stores::new();
    stores.put(".zgroup", br#"{"zarr_format":2}"#);
    let attributes = json!({"history": "long ".repeat(1_000)});
    stores.put(".zattrs", attributes.to_string().as_bytes());
    let elements: Vec<i32> = (1..=ELEMENTS).collect();
    let chunks: Vec<Vec<u8>> = elements.chunks(4_096).map(le).collect();
    let keys = ["0", "1", "2", "3"];
    let chunks: Vec<_> = keys
        .into_iter()
        .zip(chunks.iter().map(Vec::as_slice))
        .collect();
    stores.v2(
        "numbers",
        json!({"shape": [ELEMENTS], "chunks": [4_096]}),
        &chunks,
    );
    let sparse = File::create(stores.path().join("sparse")).unwrap();
    sparse.write_all_at(b"data", 1 << 20).unwrap();
    stores
}

/// Asserts that every object below a directory has `size / 512` blocks, rounded up.
fn assert_blocks(path: &Path) {
    let script = r#"find "$1" -type f -printf '%b %s %p\n' | awk '$1 != int(($2 + 511) / 512)'"#;
    let wrong = run(Command::new("bash")
        .args(["-euc", script, "bash"])
        .arg(path));
    assert_eq!(wrong, "");
}

/// git-annex has links without a target for files that are not on this machine.
#[test]
fn a_non_regular_file_in_place_of_a_chunk_is_an_error_and_not_a_fill_value() {
    let stores = store();
    let chunk = |name: &str| stores.path().join("numbers").join(name);
    fs::remove_file(chunk("1")).unwrap();
    let mount = stores.mount(&[]);
    let array = view(&mount, "numbers", "numbers.npy");
    let filled = read(&array).unwrap();
    assert!(filled.windows(4).any(|item| item == FILL.to_le_bytes()));
    drop(mount);
    type Put = fn(&Path);
    let puts: [(&str, Put); 3] = [
        ("a link without a target", |path| {
            symlink(".git/annex/objects/x", path).unwrap();
        }),
        ("a FIFO", |path| {
            run(Command::new("mkfifo").arg(path));
        }),
        ("a socket", |path| {
            UnixListener::bind(path).unwrap();
        }),
    ];
    for (what, put) in puts {
        put(&chunk("1"));
        let mount = stores.mount(&[]);
        assert_eq!(errno(read(mount.join("numbers/1"))), ENOENT, "{what}");
        let translated = mount.join(".zarrfs/as-v3/numbers/c/1");
        assert!(translated.exists(), "{what}");
        assert_eq!(errno(read(translated)), EIO, "{what}");
        for name in ["numbers.npy", "numbers.packed.nc", "chunks/1"] {
            let found = read(view(&mount, "numbers", name));
            assert_eq!(errno(found), EIO, "{what}: {name}");
        }
        let part = File::open(view(&mount, "numbers", "numbers.bin")).unwrap();
        let mut others = [0; 4 * 4096];
        part.read_exact_at(&mut others, 0).unwrap();
        let expected = format!("numbers/1: corrupt: {what} is where the chunk should be");
        assert!(mount.log().contains(&expected), "{}", mount.log());
        fs::remove_file(chunk("1")).unwrap();
    }
    symlink("nowhere", stores.path().join("numbers/.zattrs")).unwrap();
    let mount = stores.mount(&[]);
    assert_eq!(errno(read(view(&mount, "numbers", "attributes.json"))), EIO);
}

#[test]
fn programs_that_look_for_holes_copy_every_byte() {
    let stores = store();
    let mount = Mount::with(stores.path(), &["--views", "list"]);
    let listed = run(Command::new("find").arg(mount.path()));
    for name in [
        "/sparse",
        "/numbers/0",
        "/.zarrfs/numbers.npy",
        "/.zarrfs/as-v3/numbers/zarr.json",
    ] {
        assert!(listed.contains(name), "no {name} in {listed}");
    }
    assert_blocks(mount.path());
    for name in ["sparse", ".zarrfs/numbers.npy", ".zarrfs/as-v3/zarr.json"] {
        let file = File::open(mount.join(name)).unwrap();
        let size = file.metadata().unwrap().len();
        let seek = |to| rustix::fs::seek(&file, to).unwrap();
        assert_eq!(seek(rustix::fs::SeekFrom::Hole(0)), size, "{name}");
        assert_eq!(seek(rustix::fs::SeekFrom::Data(0)), 0, "{name}");
    }
    let copies = scratch();
    let script = r#"
        cd "$1"
        for how in "tar -S" "tar -S --hole-detection=seek" "tar -S --hole-detection=raw"; do
            mkdir "$2/copy"
            $how -cf - . | tar -C "$2/copy" -xf -
            diff -r . "$2/copy"
            rm -r "$2/copy"
        done
        for how in "cp -r --sparse=always" "cp -r --sparse=auto" "rsync -aS"; do
            $how ./ "$2/copy"
            diff -r . "$2/copy"
            rm -r "$2/copy"
        done
    "#;
    let mut copy = Command::new("bash");
    copy.args(["-euo", "pipefail", "-c", script, "bash"]);
    run(copy.args([mount.path(), copies.path()]));
    let du = |option: &str| -> u64 {
        let mut du = Command::new("du");
        du.args(["-s", "-B1", option]).arg(mount.join("numbers"));
        let output = run(&mut du);
        output.split_whitespace().next().unwrap().parse().unwrap()
    };
    let (blocks, bytes) = (du("--no-dereference"), du("--apparent-size"));
    assert!(
        blocks >= bytes && blocks < bytes + (64 << 10),
        "{blocks} {bytes}"
    );
}

#[test]
fn keys_of_a_zip_have_the_blocks_of_their_size() {
    let stores = store();
    let dir = scratch();
    let zip = dir.path().join("store.zip");
    let mut command = Command::new("zip");
    command.args(["-q", "-r"]).arg(&zip).arg(".");
    run(command.current_dir(stores.path()));
    assert!(fs::metadata(&zip).unwrap().len() < 200 << 10, "deflated");
    assert_blocks(Mount::with(&zip, &["--views", "list"]).path());
}
