//! Readahead of native keys whose references point to remote files.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::io::Errno;
use serde_json::{Value, json};

use crate::clients::Killed;
use crate::faulty::{Fault, Server, on};
use crate::servers::{Nginx, Request};
use crate::support::*;

const KEYS: usize = 40;
const LENGTH: usize = 10_000;
/// A distance in bytes that is longer than the gaps that joined requests include.
const APART: usize = 70_000;
const SOON: Duration = Duration::from_secs(10);

/// Returns the value of a key.
fn value(number: usize) -> Vec<u8> {
    let byte = |at: usize| (number * 31 + at * 7 + at / 251) as u8;
    (0..LENGTH).map(byte).collect()
}

/// Writes references for the keys `a/0.0` to `a/39.0`. `place` returns the target: a file and an offset in
/// it.
fn references(directory: &Path, place: impl Fn(usize) -> (String, usize)) {
    let array = json!({
        "zarr_format": 2, "shape": [KEYS, LENGTH], "chunks": [1, LENGTH], "dtype": "|u1",
        "compressor": null, "filters": null, "fill_value": 0, "order": "C",
    });
    let mut refs = json!({".zgroup": "{\"zarr_format\": 2}", "a/.zarray": array.to_string()});
    for number in 0..KEYS {
        let (name, offset) = place(number);
        let file = File::options()
            .create(true)
            .truncate(false)
            .write(true)
            .open(directory.join(&name));
        file.unwrap()
            .write_all_at(&value(number), offset as u64)
            .unwrap();
        refs[format!("a/{number}.0")] = json!([name, offset, LENGTH]);
    }
    let text = json!({"version": 1, "refs": refs}).to_string();
    fs::write(directory.join("refs.json"), text).unwrap();
}

/// Returns the numbers of all keys in the order of `cat *`.
fn by_name() -> Vec<usize> {
    let mut numbers: Vec<usize> = (0..KEYS).collect();
    numbers.sort_by_key(|number| format!("{number}.0"));
    numbers
}

fn path(mount: &Mount, number: usize) -> std::path::PathBuf {
    mount.join(format!("a/{number}.0"))
}

fn reads(mount: &Mount, numbers: &[usize]) {
    for number in numbers {
        assert!(
            read(path(mount, *number)).unwrap() == value(*number),
            "{number}"
        );
    }
}

/// Returns the number of prefetched bytes, and of those that were read.
fn prefetched(mount: &Mount) -> (u64, u64) {
    let stats = run(zarrfs().arg("stats").arg(mount.path()).arg("--json"));
    let stats: Value = serde_json::from_str(&stats).unwrap();
    let count = |name: &str| stats["store"][name].as_u64().unwrap();
    (count("prefetched_bytes"), count("prefetch_read_bytes"))
}

fn of_data(nginx: &Nginx) -> Vec<Request> {
    let mut requests = nginx.requests();
    requests.retain(|request| request.path.ends_with(".bin"));
    requests
}

#[test]
fn keys_of_one_remote_file_take_one_request_each_at_most_and_neighbours_are_joined() {
    for (gap, most) in [(0, KEYS / 2), (1000, KEYS / 2), (APART, KEYS + 4)] {
        // The order of a shell, and that of a program that knows the grid.
        for numbers in [by_name(), (0..KEYS).collect()] {
            let directory = scratch();
            references(directory.path(), |number| {
                ("all.bin".into(), number * (LENGTH + gap))
            });
            let nginx = Nginx::start(directory.path());
            let mount = nginx.remote("").mount("refs.json");
            reads(&mount, &numbers);
            let requests = of_data(&nginx);
            assert!(
                requests.len() <= most,
                "{gap}: {}: {requests:?}",
                requests.len()
            );
            let sent: u64 = requests.iter().map(|request| request.bytes).sum();
            // A part that a read requests before its prefetch is sent may lie in the gap of a joined request, which costs
            // less than two requests. Parts that are too far apart are never sent twice, except a few at the start.
            let all = (KEYS * (LENGTH + gap.min(1000))) as u64;
            let twice = if gap == APART { 10 } else { 4 };
            assert!(sent <= all + all / twice, "{sent}");
            let (bytes, used) = prefetched(&mount);
            // A part that a read requests before its prefetch is sent counts as read.
            assert!(bytes > 0, "{gap}");
            assert_eq!(bytes, used, "all that was prefetched was read");
            mount.unmount();
        }
    }
}

/// Mounts references to files on a server that can hold requests and fail.
fn faulty(directory: &Path) -> (Server, Mount) {
    let server = Server::over(directory);
    let source = format!("{}/refs.json", server.url());
    let args = ["--timeout", "600s", "--retries", "0"];
    let mount = Mount::with(source, &[&args[..], &["--allow-newer-targets"]].concat());
    (server, mount)
}

fn cat(path: &Path) -> Killed {
    let child: Child = Command::new("cat")
        .arg(path)
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    Killed(child)
}

#[test]
fn g02_prefetches_of_ranges_for_a_killed_reader_are_cancelled() {
    let directory = scratch();
    references(directory.path(), |number| {
        ("all.bin".into(), number * (LENGTH + APART))
    });
    let (server, mount) = faulty(directory.path());
    reads(&mount, &[0]);
    let gate = server.hold("all.bin");
    let mut reader = cat(&path(&mount, 1));
    // The request for which the reader waits, and the first window.
    gate.wait_for(9);
    reader.0.kill().unwrap();
    reader.0.wait().unwrap();
    assert!(wait_until(SOON, || server.under_way() == 0));
    gate.open();
    reads(&mount, &(0..KEYS).collect::<Vec<_>>());
    mount.unmount();
}

#[test]
fn keys_of_many_remote_files_are_prefetched_and_fail_when_they_are_read() {
    let directory = scratch();
    references(directory.path(), |number| {
        (format!("part{number:02}.bin"), 0)
    });
    let (server, mount) = faulty(directory.path());
    let rule = server.add(on("part05.bin").get(), Fault::status(500));
    reads(&mount, &[0]);
    let gate = server.hold("part*");
    let mut reader = cat(&path(&mount, 1));
    gate.wait_for(5);
    gate.open();
    assert!(reader.0.wait().unwrap().success());
    reads(&mount, &[2, 3, 4]);
    assert!(wait_until(SOON, || rule.hits() > 0));
    let failed = errno(read(path(&mount, 5)));
    assert_eq!(failed, Errno::IO.raw_os_error());
    reads(&mount, &[6, 7, 8, 9]);
    server.heal();
    reads(&mount, &(0..KEYS).collect::<Vec<_>>());
    let requests = server.requests_for("part*");
    assert!(requests.len() <= KEYS + 8, "{requests:?}");
    mount.unmount();
}
