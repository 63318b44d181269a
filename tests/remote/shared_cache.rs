//! Mounts that share a disk cache: each byte is fetched by one of them.

use std::fs;
use std::path::Path;

use crate::requests::array_of_many_chunks;
use crate::servers::{Nginx, Request};
use crate::support::*;

/// Ways to read a key whose first read, and so its end, is another one each. Each writes the content to standard output.
const READERS: [&str; 4] = [
    "cat KEY",
    "dd if=KEY bs=1M status=none",
    "dd if=KEY bs=12k status=none",
    // The end first, and then a part of the beginning.
    "python3 -c 'import sys; f = open(sys.argv[1], \"rb\", 0); f.seek(-99999, 2); end = f.read(); f.seek(0); \
     sys.stdout.buffer.write(f.read(51201) + f.read())' KEY",
];

/// Writes an archive with short and long entries, stored and deflated; returns the directory of its keys.
fn archive(served: &Path) -> std::path::PathBuf {
    let store = served.join("store");
    fs::create_dir_all(store.join("x")).unwrap();
    let content = |bytes: u32, factor: u32| -> Vec<u8> {
        let mixed = |at: u32| at.wrapping_mul(factor).wrapping_add(at >> 9).to_be_bytes()[0];
        (0..bytes).map(mixed).collect()
    };
    for number in 0..6 {
        let name = store.join(format!("x/{number}"));
        fs::write(name, content(400_000, 2_654_435_761 + number)).unwrap();
    }
    fs::write(store.join("x/long"), content(11_000_123, 2_246_822_519)).unwrap();
    fs::write(store.join("x/other"), content(10_500_001, 3_266_489_917)).unwrap();
    fs::write(store.join(".zgroup"), r#"{"zarr_format": 2}"#).unwrap();
    sh(&format!(
        "cd {} && zip -q -0 -r ../store.zip . -x x/4 x/5 && zip -q -1 ../store.zip x/4 x/5",
        store.display()
    ));
    store
}

/// Returns how many bytes of bodies were sent.
fn bytes(requests: &[Request]) -> u64 {
    let is_value = |request: &&Request| request.method == "GET" && request.status < 300;
    requests.iter().filter(is_value).map(|r| r.bytes).sum()
}

#[test]
fn mounts_that_share_a_disk_cache_fetch_each_object_once() {
    let served = array_of_many_chunks();
    let cache = scratch();
    let cache = cache.path().join("cache");
    let nginx = Nginx::start(served.path());
    let mounts = [0, 1, 2, 3].map(|_| {
        let remote = nginx.remote("").arg("--disk-cache");
        remote.arg(cache.to_str().unwrap()).mount("many")
    });
    let before = nginx.requests().len();
    let keys = std::thread::scope(|scope| {
        let read = mounts.each_ref().map(|mounted| {
            scope.spawn(|| {
                let path = mounted.path().display();
                sh(&format!("cat {path}/x/c/*/*/0 | md5sum"))
            })
        });
        read.map(|thread| thread.join().unwrap())
    });
    let source = served.path().join("many").display().to_string();
    let expected = sh(&format!("cat {source}/x/c/*/*/0 | md5sum"));
    assert!(keys.iter().all(|found| *found == expected), "{keys:?}");
    let requests = nginx.requests().split_off(before);
    let is_body = |request: &&Request| request.method == "GET" && request.status == 200;
    let mut bodies: Vec<&str> = requests
        .iter()
        .filter(is_body)
        .map(|request| request.path.as_str())
        .filter(|path| path.contains("/c/") && !path.ends_with('/'))
        .collect();
    let all = bodies.len();
    bodies.sort_unstable();
    bodies.dedup();
    assert_eq!(bodies.len(), all, "objects that were fetched twice");
    mounts.into_iter().for_each(Mount::unmount);
}

#[test]
fn mounts_that_share_a_disk_cache_fetch_each_entry_of_a_zip_once() {
    let served = scratch();
    let store = archive(served.path());
    let cache = scratch();
    let cache = cache.path().join("cache");
    let nginx = Nginx::start(served.path());
    let mount = || {
        let remote = nginx.remote("slow").arg("--disk-cache");
        remote.arg(cache.to_str().unwrap()).mount("store.zip")
    };
    let mounts: Vec<Mount> = READERS.iter().map(|_| mount()).collect();
    let before = nginx.requests().len();
    let sums = |mounted: &Path, reader: &str| {
        let each = reader.replace("KEY", "$n");
        let names = "0 1 long 2 4 other 3 5";
        sh(&format!(
            "cd {}/x && for n in {names}; do {{ {each}; }} | md5sum; done",
            mounted.display()
        ))
    };
    let expected = sums(&store, READERS[0]);
    let found = std::thread::scope(|scope| {
        let readers = mounts.iter().zip(READERS);
        let read = |(mounted, reader): (&Mount, &'static str)| {
            let path = mounted.path().to_owned();
            scope.spawn(move || sums(&path, reader))
        };
        let threads: Vec<_> = readers.map(read).collect();
        let join = |thread: std::thread::ScopedJoinHandle<'_, String>| thread.join().unwrap();
        threads.into_iter().map(join).collect::<Vec<_>>()
    });
    for (found, reader) in found.iter().zip(READERS) {
        assert_eq!(*found, expected, "{reader}");
    }
    let requests = nginx.requests().split_off(before);
    let archive_bytes = fs::metadata(served.path().join("store.zip")).unwrap().len();
    let sent = bytes(&requests);
    assert!(
        sent <= archive_bytes + 1000 * requests.len() as u64,
        "{sent} bytes of {archive_bytes}: {requests:#?}"
    );
    mounts.into_iter().for_each(Mount::unmount);
    // A later mount needs no data, whatever it reads first.
    for reader in READERS {
        let mounted = mount();
        let before = nginx.requests().len();
        assert_eq!(sums(mounted.path(), reader), expected, "{reader}");
        let requests = nginx.requests().split_off(before);
        assert_eq!(bytes(&requests), 0, "{reader}: {requests:#?}");
        mounted.unmount();
    }
}
