//! E1 to E3, F1, F2, F6: memory, and many concurrent readers.

use std::fs::File;
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::json;

use crate::clients::{Foreground, Killed, gauge};
use crate::stores::*;
use crate::support::*;

const MIB: u64 = 1 << 20;

/// Returns the bytes of a chunk: a short pattern, unique to the chunk, repeated.
fn content(chunk: u64, bytes: u64) -> Vec<u8> {
    let mut state = chunk.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut piece = Vec::new();
    for _ in 0..511 {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        piece.extend(state.to_le_bytes());
    }
    let mut content = piece.repeat((bytes / piece.len() as u64 + 1) as usize);
    content.truncate(bytes as usize);
    content
}

/// Writes an array `x` of `count` chunks of `bytes`, compressed with zstd.
fn array(stores: &Stores, count: u64, bytes: u64) {
    let changes = json!({"shape": [count * bytes / 4], "chunks": [bytes / 4],
        "compressor": {"id": "zstd", "level": 1}});
    stores.v2("x", changes, &[]);
    for chunk in 0..count {
        stores.put(&format!("x/{chunk}"), &zstd(&content(chunk, bytes)));
    }
}

#[test]
fn e01_many_readers_of_large_chunks_wait_and_stay_within_the_limit() {
    let (limit, readers, bytes) = (64 * MIB, 32, 8 * MIB);
    let stores = Stores::new();
    array(&stores, readers, bytes);
    let mount = stores.mount(&["--memory-limit", "64M"]);
    for round in 0..2 {
        std::thread::scope(|scope| {
            for reader in 0..readers {
                let mount = &mount;
                scope.spawn(move || {
                    let chunk = (reader + round * 7) % readers;
                    let path = view(mount, "x", &format!("chunks/{chunk}"));
                    let found = read(&path).unwrap_or_else(|e| panic!("{path:?}: {e}"));
                    assert!(found == content(chunk, bytes), "chunk {chunk}");
                });
            }
        });
    }
    let most = mount.memory("VmHWM");
    assert!(
        most <= limit + 64 * MIB,
        "{most} bytes with a limit of {limit}"
    );
    assert!(gauge(mount.path(), "decoded_bytes") <= limit);
    assert_others_served(&mount, &stores);
}

/// Returns one text of `bytes`, encoded with `vlen-utf8`.
fn one_text(bytes: usize) -> Vec<u8> {
    let mut chunk = 1_u32.to_le_bytes().to_vec();
    chunk.extend((bytes as u32).to_le_bytes());
    chunk.resize(chunk.len() + bytes, b'a');
    chunk
}

#[test]
fn e01_a_short_text_takes_no_more_memory_than_a_chunk_of_numbers() {
    let stores = Stores::new();
    let text = json!({"dtype": "|O", "filters": [{"id": "vlen-utf8"}], "fill_value": "",
        "compressor": {"id": "zstd", "level": 1}, "shape": [1], "chunks": [1]});
    stores.v2("x", text, &[("0", &zstd(&one_text(10)))]);
    let mount = stores.mount(&[]);
    assert_others_served(&mount, &stores);
    let before = mount.memory("VmHWM");
    assert_eq!(
        read(view(&mount, "x", "x.json")).unwrap(),
        b"[\n\"aaaaaaaaaa\"]\n"
    );
    let grown = mount.memory("VmHWM").saturating_sub(before);
    assert!(grown < 16 * MIB, "{grown} bytes for a text of 10");
}

#[test]
fn e01_texts_of_many_arrays_stay_within_the_limit() {
    let (arrays, bytes) = (32, 6 << 20);
    let stores = Stores::new();
    let text = json!({"dtype": "|O", "filters": [{"id": "vlen-utf8"}], "fill_value": "", "shape": [1],
        "chunks": [1], "compressor": {"id": "zstd", "level": 1}});
    let chunk = zstd(&one_text(bytes));
    for number in 0..arrays {
        stores.v2(&format!("x{number}"), text.clone(), &[("0", &chunk)]);
    }
    let mount = stores.mount(&["--memory-limit", "64M"]);
    let open: Vec<File> = (0..arrays)
        .map(|n| File::open(view(&mount, &format!("x{n}"), &format!("x{n}.json"))).unwrap())
        .collect();
    for file in &open {
        assert_eq!(file.metadata().unwrap().len(), bytes as u64 + 6);
    }
    // The pages of the program itself, which is big when built for tests, and memory that the
    // allocator keeps for its threads: between 126 and 150 MiB were measured.
    let program = mount.memory("RssFile");
    let most = mount.memory("VmHWM");
    assert!(
        most <= (64 + 96) * MIB + program,
        "{most} bytes with a limit of {}",
        64 * MIB
    );
}

#[test]
fn e02_a_chunk_larger_than_the_limit_is_enomem_at_once_and_others_are_read() {
    let stores = Stores::new();
    array(&stores, 1, 32 * MIB);
    stores.v2(
        "small",
        json!({"compressor": {"id": "zstd", "level": 1}}),
        &[("0", &zstd(&le(&GOOD[..4])))],
    );
    let mount = stores.mount(&["--memory-limit", "24M"]);
    let enomem = rustix::io::Errno::NOMEM.raw_os_error();
    let started = std::time::Instant::now();
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| assert_eq!(errno(read(view(&mount, "x", "chunks/0"))), enomem));
        }
    });
    // Fails without waiting for memory that can never become free.
    assert!(started.elapsed() < Duration::from_secs(15));
    logged(&mount, &["x/0", "bytes of memory, the limit is", "ENOMEM"]);
    assert_eq!(
        read(view(&mount, "small", "chunks/0")).unwrap(),
        le(&GOOD[..4])
    );
    assert!(gauge(mount.path(), "decoded_bytes") <= 24 * MIB);
    assert_others_served(&mount, &stores);
}

#[test]
fn e03_a_failed_allocation_is_enomem_and_the_daemon_continues() {
    let stores = Stores::new();
    let bytes: u64 = 3 << 30;
    let changes = json!({"shape": [bytes / 4], "chunks": [bytes / 4],
        "compressor": {"id": "zstd", "level": 1}});
    let mut encoder = zstd::stream::Encoder::new(Vec::new(), 1).unwrap();
    encoder.set_pledged_src_size(Some(bytes)).unwrap();
    let zeros = vec![0; 16 << 20];
    for _ in 0..bytes / zeros.len() as u64 {
        encoder.write_all(&zeros).unwrap();
    }
    stores.v2("x", changes, &[("0", &encoder.finish().unwrap())]);
    let args = ["--memory-limit", "8G", "--threads", "1"];
    let mount = Foreground::new(&["prlimit", "--as=2000000000"], &[], stores.path(), &args);
    let enomem = rustix::io::Errno::NOMEM.raw_os_error();
    for _ in 0..3 {
        assert_eq!(errno(read(mount.join("x/.zarrfs/chunks/0"))), enomem);
    }
    // Only the record of the versions that the file has served.
    assert!(gauge(&mount.path, "decoded_bytes") <= 256);
    assert_eq!(
        read(mount.join("good/.zarrfs/good.bin")).unwrap(),
        le(&GOOD)
    );
    assert_eq!(gauge(&mount.path, "panics"), 0);
    assert!(mount.log().contains("ENOMEM"), "{}", mount.log());
}

/// Writes one chunk of 16 MiB that takes bzip2 some time.
fn slow(stores: &Stores) -> Vec<u8> {
    let bytes = 16 * MIB;
    let content = content(5, bytes);
    let mut encoder = bzip2::write::BzEncoder::new(Vec::new(), bzip2::Compression::fast());
    encoder.write_all(&content).unwrap();
    let changes = json!({"shape": [bytes / 4], "chunks": [bytes / 4], "compressor": {"id": "bz2", "level": 1}});
    stores.v2("slow", changes, &[("0", &encoder.finish().unwrap())]);
    content
}

#[test]
fn f01_a_chunk_with_64_readers_is_decoded_once() {
    let stores = Stores::new();
    let content = slow(&stores);
    let mount = stores.mount(&[]);
    assert_others_served(&mount, &stores);
    let before = (
        mount.memory("VmHWM"),
        gauge(mount.path(), "decoded_bytes"),
        gauge(mount.path(), "chunks_decoded"),
    );
    std::thread::scope(|scope| {
        for reader in 0..64_u64 {
            let (mount, content) = (&mount, &content);
            scope.spawn(move || {
                let name = if reader % 2 == 0 {
                    "chunks/0"
                } else {
                    "slow.bin"
                };
                let file = File::open(view(mount, "slow", name)).unwrap();
                let offset = reader * 7919 * 4096 % (16 * MIB - 65536);
                let mut part = vec![0; 65536];
                file.read_exact_at(&mut part, offset).unwrap();
                assert!(
                    part == content[offset as usize..][..65536],
                    "reader {reader}"
                );
            });
        }
    });
    let decoded = gauge(mount.path(), "decoded_bytes") - before.1;
    // Includes the headers of the files that the kernel has cached.
    let expected = 16 * MIB..16 * MIB + 4096;
    assert!(expected.contains(&decoded), "in memory once: {decoded}");
    assert_eq!(gauge(mount.path(), "chunks_decoded") - before.2, 1);
    let grown = mount.memory("VmHWM").saturating_sub(before.0);
    assert!(
        grown < 64 * MIB,
        "{grown} bytes: decoded more than once at a time"
    );
}

#[test]
fn a_scan_in_c_order_decodes_every_chunk_once() {
    let stores = Stores::new();
    // 4 x 8 x 8 chunks; a row of the array crosses 8 chunks, a slab 64.
    let [chunks, edge] = [[4_u64, 8, 8], [4, 32, 64]];
    let mut names = Vec::new();
    for i in 0..chunks.iter().product::<u64>() {
        let [z, y, x] = [i / 64, i / 8 % 8, i % 8];
        let value = i32::try_from(i).unwrap();
        let elements = vec![value; 4 * 32 * 64];
        names.push((format!("{z}.{y}.{x}"), zlib(&le(&elements))));
    }
    let shape: Vec<u64> = chunks.iter().zip(edge).map(|(n, edge)| n * edge).collect();
    let chunks: Vec<(&str, &[u8])> = names.iter().map(|(n, b)| (n.as_str(), &b[..])).collect();
    let metadata = json!({"shape": shape, "chunks": edge, "compressor": {"id": "zlib"}});
    stores.v2("cube", metadata, &chunks);
    let mount = stores.mount(&["--ttl", "inf"]);
    let found = read(view(&mount, "cube", "cube.bin")).unwrap();
    let row = 8 * 64 * 4;
    for (i, bytes) in found.chunks(64 * 4).enumerate() {
        let (at, x) = (i * 64 * 4 / row, i % 8);
        let (z, y) = (at / 256 / 4, at % 256 / 32);
        let expected = le(&[i32::try_from(z * 64 + y * 8 + x).unwrap(); 64]);
        assert!(bytes == expected, "row {at} of chunk {z}.{y}.{x}");
    }
    assert_eq!(gauge(mount.path(), "chunks_decoded"), 256);
}

#[test]
fn f01_a_failure_is_returned_to_its_waiters_and_is_not_cached() {
    let stores = Stores::new();
    stores.v2(
        "x",
        json!({"compressor": {"id": "zlib"}}),
        &[("0", b"broken")],
    );
    let mount = stores.mount(&["--ttl", "50ms"]);
    let path = view(&mount, "x", "chunks/0");
    std::thread::scope(|scope| {
        for _ in 0..16 {
            scope.spawn(|| assert_eq!(errno(read(&path)), crate::clients::EIO));
        }
    });
    stores.put("x/0", &zlib(&le(&GOOD[..4])));
    let is_right = || read(&path).is_ok_and(|found| found == le(&GOOD[..4]));
    assert!(wait_until(Duration::from_secs(10), is_right));
}

#[test]
fn f02_killed_readers_do_not_cancel_the_load_of_other_readers() {
    let stores = Stores::new();
    let content = slow(&stores);
    let mount = stores.mount(&[]);
    let path = view(&mount, "slow", "chunks/0");
    let killed: Vec<Killed> = (0..4)
        .map(|_| {
            let mut dd = Command::new("dd");
            dd.arg(format!("if={}", path.display()))
                .args(["of=/dev/null", "bs=4k"]);
            Killed(dd.stderr(Stdio::null()).spawn().unwrap())
        })
        .collect();
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| read(&path).unwrap());
        std::thread::sleep(Duration::from_millis(50));
        drop(killed);
        assert!(reader.join().unwrap() == content);
    });
    assert_eq!(gauge(mount.path(), "panics"), 0);
    let closed = || gauge(mount.path(), "handles") == 0;
    assert!(wait_until(Duration::from_secs(10), closed));
}

#[test]
fn f06_chunks_that_are_evicted_while_they_are_read_are_right() {
    let (count, bytes) = (24, MIB);
    let stores = Stores::new();
    array(&stores, count, bytes);
    let mount = stores.mount(&["--cache-size", "3M", "--memory-limit", "16M"]);
    let contents: Vec<Vec<u8>> = (0..count).map(|chunk| content(chunk, bytes)).collect();
    std::thread::scope(|scope| {
        for reader in 0..8_u64 {
            let (mount, contents) = (&mount, &contents);
            scope.spawn(move || {
                let file = File::open(view(mount, "x", "x.bin")).unwrap();
                let mut state = reader + 1;
                let mut part = vec![0; 200_000];
                for _ in 0..60 {
                    state = state
                        .wrapping_mul(6_364_136_223_846_793_005)
                        .wrapping_add(99);
                    let offset = (state >> 20) % (count * bytes - 200_000);
                    let length = 1 + (state >> 50) as usize % 200_000;
                    let _ = rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed);
                    file.read_exact_at(&mut part[..length], offset).unwrap();
                    let mut at = offset;
                    let mut left = &part[..length];
                    while !left.is_empty() {
                        let (chunk, inside) = ((at / bytes) as usize, (at % bytes) as usize);
                        let n = left.len().min(bytes as usize - inside);
                        assert!(left[..n] == contents[chunk][inside..inside + n], "at {at}");
                        left = &left[n..];
                        at += n as u64;
                    }
                }
            });
        }
    });
    assert!(gauge(mount.path(), "decoded_bytes") <= 16 * MIB);
    let most = mount.memory("VmHWM");
    assert!(most < (16 + 64) * MIB, "{most} bytes");
    assert_eq!(gauge(mount.path(), "failed_requests"), 0);
}

#[test]
fn chunks_in_deflated_entries_of_a_zip_are_decoded_ahead_and_once() {
    let stores = Stores::new();
    let (chunks, bytes) = (8, 2 * MIB);
    let changes = json!({"shape": [chunks * bytes / 4], "chunks": [bytes / 4], "compressor": null});
    stores.v2("x", changes, &[]);
    let whole: Vec<u8> = (0..chunks)
        .flat_map(|chunk| {
            let content = content(chunk, bytes);
            stores.put(&format!("x/{chunk}"), &content);
            content
        })
        .collect();
    // Of one entry of 64 MiB, segments are decoded, because the whole takes too much memory.
    let long = vec![7; 64 << 20];
    let changes = json!({"shape": [long.len()], "chunks": [long.len()], "dtype": "|u1",
        "fill_value": 0, "compressor": null});
    stores.v2("long", changes, &[("0", &long)]);
    let archives = scratch();
    for (option, decoded) in [("-1", chunks), ("-0", 0)] {
        let archive = archives.path().join(format!("x{option}.zip"));
        let mut zip = Command::new("zip");
        zip.args(["-qr", option, "-", "."]);
        zip.current_dir(stores.path());
        let status = zip.stdout(File::create(&archive).unwrap()).status();
        assert!(status.unwrap().success());
        let mount = Mount::of_keys(&archive, &[]);
        let path = view(&mount, "x", "x.bin");
        assert!(read(&path).unwrap() == whole, "{option}");
        let file = File::open(view(&mount, "x", "chunks/5")).unwrap();
        let mut part = vec![0; 100];
        file.read_exact_at(&mut part, 1000).unwrap();
        assert!(part == whole[(5 * bytes) as usize..][1000..1100]);
        assert_eq!(
            gauge(mount.path(), "chunks_decoded"),
            decoded,
            "zip {option}"
        );
        assert!(read(view(&mount, "long", "long.bin")).unwrap() == long);
        assert_eq!(
            gauge(mount.path(), "chunks_decoded"),
            decoded,
            "zip {option}"
        );
    }
}
