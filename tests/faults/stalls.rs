//! D7, F1, F7, G2: servers that hang, and the calls that must and must not wait for them.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::clients::{Killed, Stopped};
use crate::faulty::*;
use crate::remote::*;
use crate::support::*;

#[test]
fn d07_a_server_that_stalls_is_etimedout_at_the_deadline() {
    let is_late = |backend, fault| {
        let remote = Remote::new(backend);
        let mount = remote.mount(&[]);
        remote.server.add(on(&remote.at("a", 1)).get(), fault);
        remote.chunk_fails(&mount, "a", 1, &[ETIMEDOUT]);
        remote.heals(&mount, "a");
        // Requests without a waiting caller are cancelled.
        let given_up = || remote.server.under_way() == 0;
        assert!(wait_until(LIMIT, given_up));
        logged(&mount, &["a/c/1", "ETIMEDOUT"]);
    };
    let faults = [
        Fault::Stall,
        Fault::StallAfter(0),
        Fault::StallAfter(1000),
        Fault::Drip(Duration::from_secs(1)),
        Fault::Late(Duration::from_secs(3600)),
    ];
    // Each waits for its own deadline, all at the same time.
    std::thread::scope(|scope| {
        for backend in BOTH {
            for fault in faults.clone() {
                scope.spawn(move || is_late(backend, fault));
            }
        }
    });
}

#[test]
fn d07_the_first_bytes_of_a_value_are_read_while_the_rest_stalls() {
    const LENGTH: usize = 5 << 20;
    const ARRIVED: usize = 3 << 20;
    for backend in BOTH {
        let remote = Remote::new(backend);
        let key = remote.key("a", 0);
        let value: Vec<u8> = big()[..LENGTH].to_vec();
        remote.put(&key, value.clone());
        let mount = remote.mount(&["--memory-limit", "256MiB"]);
        let rule = on(&remote.at("a", 0)).get();
        let rule = remote.server.add(rule, Fault::StallAfter(ARRIVED));
        let file = File::open(mount.join(&key)).unwrap();
        let read = |at: usize, limit| {
            let mut part = vec![0; 1000];
            in_time(limit, "a part", || file.read_exact_at(&mut part, at as u64))?;
            assert!(part == value[at..at + 1000], "{backend:?} {at}");
            Ok::<(), std::io::Error>(())
        };
        read(0, AT_ONCE).unwrap();
        let requests = rule.hits();
        // Together, they would need more memory than the limit if each kept its own until the end.
        for at in (0..ARRIVED - (512 << 10)).step_by(64 << 10) {
            read(at, AT_ONCE).unwrap();
        }
        assert_eq!(rule.hits(), requests, "{backend:?}: one request for all");
        let rest = read(LENGTH - 1000, LIMIT).expect_err("the rest has not arrived");
        assert_eq!(rest.raw_os_error(), Some(ETIMEDOUT));
        remote.server.heal();
        assert!(wait_until(SOON, || read(LENGTH - 1000, LIMIT).is_ok()));
        assert!(fs::read(mount.join(&key)).unwrap() == value, "{backend:?}");
        // A second reader needs no request.
        let requests = remote.server.requests().len();
        read(ARRIVED, AT_ONCE).unwrap();
        assert_eq!(remote.server.requests().len(), requests);
    }
}

#[test]
fn d07_a_stat_that_stalls_is_etimedout_at_the_deadline() {
    for backend in BOTH {
        let remote = Remote::new(backend);
        let mount = remote.mount(&[]);
        let gate = remote.server.hold(&format!("{}*", remote.at("a", 1)));
        let found = in_time(LIMIT, "stat", || {
            fs::metadata(mount.join(remote.key("a", 1)))
        });
        if let Err(e) = found {
            assert_eq!(e.raw_os_error(), Some(ETIMEDOUT));
        }
        gate.open();
        remote.heals(&mount, "a");
    }
}

#[test]
fn d07_a_store_that_hangs_is_not_mounted() {
    for backend in BOTH {
        let remote = Remote::new(backend);
        let _gate = remote.server.hold("*");
        remote.is_refused(&["time|deadline"]);
    }
}

#[test]
fn f01_sixty_four_readers_of_a_chunk_fetch_it_once() {
    for backend in BOTH {
        for is_view in [true, false] {
            let remote = Remote::new(backend);
            let mount = remote.mount(&[]);
            let path = match is_view {
                true => remote.view(&mount, "z", 1),
                false => mount.join(remote.key("z", 1)),
            };
            let expected = match is_view {
                true => chunk(1),
                false => remote.server.get(&remote.at("z", 1)).unwrap(),
            };
            let file = File::open(&path).unwrap();
            remote.server.forget_requests();
            let gate = remote.server.hold(&remote.at("z", 1));
            let read_all = || {
                let mut buffer = vec![0; expected.len()];
                file.read_exact_at(&mut buffer, 0).map(|()| buffer)
            };
            std::thread::scope(|scope| {
                let readers = [(); 64].map(|()| scope.spawn(read_all));
                // If the value was cached at the open, no request is made.
                let has_request = gate.came(1, AT_ONCE);
                let second = gate.came(2, Duration::from_millis(200));
                assert!(
                    !(has_request && second),
                    "the chunk was requested twice at a time"
                );
                gate.open();
                for reader in readers {
                    assert!(reader.join().unwrap().unwrap() == expected);
                }
            });
            let requests = remote.server.requests_for(&remote.at("z", 1));
            let fetched = requests.iter().filter(|r| r.method == "GET").count();
            assert!(fetched <= 1 && requests.len() <= 2, "{requests:?}");
        }
    }
}

#[test]
fn f01_a_failure_is_returned_to_its_waiters_only() {
    for backend in BOTH {
        let remote = Remote::new(backend);
        let mount = remote.mount(&["--retries", "0"]);
        let gate = remote.server.hold(&remote.at("z", 1));
        let rule = on(&remote.at("z", 1)).get();
        remote.server.add(rule, Fault::status(500));
        let path = remote.view(&mount, "z", 1);
        std::thread::scope(|scope| {
            let readers = [(); 16].map(|()| scope.spawn(|| read(&path)));
            gate.wait_for(1);
            gate.open();
            for reader in readers {
                is_one_of(reader.join().unwrap(), &[EIO], "a reader");
            }
        });
        remote.heals(&mount, "z");
    }
}

#[test]
fn f07_a_hanging_prefix_does_not_delay_other_requests() {
    for backend in BOTH {
        let remote = Remote::new(backend);
        for i in 0..64 {
            remote.put(&format!("dead/c/{i}"), chunk(0));
        }
        let mount = remote.mount(&["--timeout", "5s"]);
        remote.reads(&mount, "good");
        let listed = names(mount.path().to_owned()).unwrap();
        fs::metadata(remote.view(&mount, "a", 0)).unwrap();
        let gate = remote.server.hold("store/*/c/*");
        std::thread::scope(|scope| {
            let end = Instant::now() + Duration::from_secs(7);
            for i in 0..64 {
                let path = mount.join(format!("dead/c/{i}"));
                let view = remote.view(&mount, "z", i % 4);
                scope.spawn(move || {
                    let right = [read(path), read(view)].map(|read| read.ok());
                    assert!(Instant::now() < end + Duration::from_secs(6));
                    let [key, view] = right;
                    assert!(key.is_none_or(|key| key == chunk(0)));
                    assert!(view.is_none_or(|view| view == chunk(i % 4)));
                });
            }
            gate.wait_for(2);
            let is_at_once = |what: &str, act: &dyn Fn()| in_time(AT_ONCE, what, act);
            is_at_once("ls", &|| {
                assert_eq!(names(mount.path().to_owned()).unwrap(), listed);
            });
            is_at_once("stat", &|| {
                assert!(fs::metadata(mount.join("good")).unwrap().is_dir());
                fs::metadata(whole_of(&mount, "good")).unwrap();
            });
            is_at_once("the gauges", &|| {
                crate::clients::gauge(mount.path(), "panics");
            });
            is_at_once("metadata", &|| {
                let json: serde_json::Value =
                    serde_json::from_slice(&read(mount.join("zarr.json")).unwrap()).unwrap();
                assert_eq!(json["zarr_format"], 3);
            });
            is_at_once("a cached read", &|| {
                assert!(read(whole_of(&mount, "good")).unwrap() == whole());
            });
            is_at_once("a cached read that is the daemon's", &|| {
                let view = crate::clients::read_uncached(&whole_of(&mount, "good"));
                assert!(view.unwrap() == whole());
            });
            is_at_once("names of views", &|| {
                assert!(!names(mount.join("a/.zarrfs")).unwrap().is_empty());
            });
            gate.open();
        });
        remote.heals(&mount, "a");
    }
}

#[test]
fn f07_a_mount_of_a_dead_server_ends_at_once() {
    for backend in BOTH {
        let remote = Remote::new(backend);
        let mount = remote.mount(&["--timeout", "30s"]);
        let gate = remote.server.hold("*");
        let path = mount.join(remote.key("a", 1));
        let mut cat = Cat::new(&["cat"], &path);
        gate.wait_for(1);
        cat.dies(Signal::KILL);
        let pid = mount.pid();
        in_time(Duration::from_secs(6), "the end", || {
            drop(mount);
            let gone = || !Path::new(&format!("/proc/{pid}")).exists();
            assert!(wait_until(Duration::from_secs(6), gone));
        });
    }
}

/// A client whose call never completes by itself.
struct Cat(Killed);

impl Cat {
    fn new(program: &[&str], path: &Path) -> Self {
        let mut words: Vec<&std::ffi::OsStr> = program.iter().map(AsRef::as_ref).collect();
        words.push(path.as_os_str());
        Self(client(&words))
    }

    /// Asserts that the client runs until it is killed, and then ends.
    #[track_caller]
    fn dies(&mut self, signal: Signal) {
        assert!(self.0.0.try_wait().unwrap().is_none(), "it did not wait");
        let pid = i32::try_from(self.0.0.id()).unwrap();
        kill_process(Pid::from_raw(pid).unwrap(), signal).unwrap();
        assert!(!ended(&mut self.0.0, AT_ONCE), "it was killed");
    }
}

const KILLING: [Signal; 2] = [Signal::INT, Signal::KILL];

#[test]
fn g02_a_killed_reader_ends_while_the_server_hangs() {
    for backend in BOTH {
        let remote = Remote::new(backend);
        let mount = remote.mount(&["--timeout", "30s"]);
        for (i, signal) in KILLING.into_iter().enumerate() {
            for path in [
                mount.join(remote.key("big", 0)),
                remote.view(&mount, "a", 2 * i + 1),
            ] {
                // The attributes are cached, so the read hangs.
                fs::metadata(&path).unwrap();
                let gate = remote.server.hold("store/*/c/*");
                let mut cat = Cat::new(&["cat"], &path);
                gate.wait_for(1);
                cat.dies(signal);
                // Otherwise the answer could arrive before the request is cancelled, and be cached for the
                // next signal.
                assert!(wait_until(SOON, || remote.server.under_way() == 0));
                gate.open();
            }
        }
        remote.siblings_work(&mount);
        remote.heals(&mount, "a");
    }
}

#[test]
fn g02_a_killed_stat_ends_while_the_server_hangs() {
    for backend in BOTH {
        let remote = Remote::new(backend);
        let mount = remote.mount(&["--timeout", "30s", "--ttl", "0s"]);
        for signal in KILLING {
            let gate = remote.server.hold("*");
            let mut stat = Cat::new(&["stat"], &mount.join(format!("other{signal:?}")));
            gate.wait_for(1);
            stat.dies(signal);
            gate.open();
        }
        remote.siblings_work(&mount);
        remote.heals(&mount, "a");
    }
}

#[test]
fn g02_a_killed_open_ends_while_the_server_hangs() {
    for backend in BOTH {
        let remote = Remote::new(backend);
        let mount = remote.mount(&["--timeout", "30s"]);
        for signal in KILLING {
            // Nothing about this key is cached, so its first request hangs.
            let i = usize::from(signal == Signal::KILL);
            let gate = remote.server.hold("*");
            let mut cat = Cat::new(&["cat"], &mount.join(remote.key("a", i)));
            gate.wait_for(1);
            cat.dies(signal);
            gate.open();
        }
        remote.siblings_work(&mount);
        remote.heals(&mount, "a");
    }
}

#[test]
fn g02_a_killed_listing_ends_while_the_server_hangs() {
    let remote = Remote::new(Backend::S3);
    let mount = remote.mount(&["--timeout", "30s", "--ttl", "0s"]);
    for signal in KILLING {
        let gate = remote.server.hold("store/a/*");
        let mut ls = Cat::new(&["ls", "-f"], &mount.join("a"));
        gate.wait_for(1);
        ls.dies(signal);
        gate.open();
    }
    remote.heals(&mount, "a");
}

#[test]
fn g02_a_killed_direct_reader_ends_by_the_deadline() {
    for backend in BOTH {
        let remote = Remote::new(backend);
        let mount = remote.mount(&[]);
        let path = mount.join(remote.key("big", 0));
        fs::metadata(&path).unwrap();
        let gate = remote.server.hold(&remote.at("big", 0));
        let input = format!("if={}", path.display());
        let words = ["dd", "iflag=direct", "bs=64k", "of=/dev/null", &input];
        let words: Vec<&std::ffi::OsStr> = words.iter().map(AsRef::as_ref).collect();
        let mut dd = client(&words);
        gate.wait_for(1);
        dd.0.kill().unwrap();
        assert!(!ended(&mut dd.0, LIMIT));
        gate.open();
        assert!(read(path).unwrap() == big());
    }
}

#[test]
fn g02_the_request_of_killed_readers_is_cancelled_with_the_last_of_them() {
    for backend in BOTH {
        let remote = Remote::new(backend);
        // Much longer than the test, so that only a cancellation can end a request.
        let mount = remote.mount(&["--timeout", "600s"]);
        for (key, is_view) in [(1, true), (0, false)] {
            let path = match is_view {
                true => remote.view(&mount, "z", key),
                false => mount.join(remote.key("big", key)),
            };
            fs::metadata(&path).unwrap();
            let gate = remote.server.hold("store/*/c/*");
            // Direct reads: the daemon gets a request from each process.
            let input = format!("if={}", path.display());
            let reader = || {
                let words = ["dd", "iflag=direct", "bs=1M", "of=/dev/null", &input];
                client(&words.map(std::ffi::OsStr::new))
            };
            let (mut first, mut second) = (reader(), reader());
            gate.wait_for(1);
            // For a long key, further ranges are requested at the same time.
            assert!(wait_until(AT_ONCE, || remote.server.under_way() >= 1));
            first.0.kill().unwrap();
            assert!(!ended(&mut first.0, AT_ONCE), "it was killed");
            // The second reader still waits for the request. (The tracker checks every 200 ms.)
            let is_cancelled = || remote.server.under_way() == 0;
            assert!(!wait_until(Duration::from_secs(1), is_cancelled));
            second.0.kill().unwrap();
            assert!(!ended(&mut second.0, AT_ONCE), "it was killed");
            assert!(wait_until(LIMIT, is_cancelled), "is a view: {is_view}");
            gate.open();
        }
        remote.heals(&mount, "z");
    }
}

#[test]
fn a_failed_prefetch_is_no_error_until_the_key_is_read() {
    for backend in BOTH {
        let remote = Remote::new(backend);
        let mount = remote.mount(&["--retries", "0"]);
        let fails = on(&remote.at("a", 3)).get();
        let rule = remote.server.add(fails, Fault::status(500));
        for i in 0..3 {
            assert!(
                read(mount.join(remote.key("a", i))).unwrap() == chunk(i),
                "{backend:?}"
            );
        }
        is_one_of(
            read(mount.join(remote.key("a", 3))),
            &[EIO],
            "the key that fails",
        );
        assert!(rule.hits() > 0);
        remote.heals(&mount, "a");
    }
}

#[test]
fn the_first_key_of_a_newly_listed_directory_is_fetched_with_those_behind_it() {
    let remote = Remote::new(Backend::S3);
    let mount = remote.mount(&[]);
    let gate = remote.server.hold("store/a/c/*");
    assert_eq!(names(mount.join("a/c")).unwrap().len(), 4);
    let first = mount.join(remote.key("a", 0));
    let reader = std::thread::spawn(move || read(first));
    gate.wait_for(4);
    gate.open();
    assert!(reader.join().unwrap().unwrap() == chunk(0));
    for i in 1..4 {
        assert!(read(mount.join(remote.key("a", i))).unwrap() == chunk(i));
    }
    let gets = remote.server.requests();
    let gets = gets
        .iter()
        .filter(|request| request.key.starts_with("store/a/c/"));
    assert_eq!(gets.count(), 4);
}

#[test]
fn g02_prefetches_of_keys_for_a_killed_reader_are_cancelled() {
    for backend in BOTH {
        let remote = Remote::new(backend);
        // Much longer than the test, so that only a cancellation can end a request.
        let mount = remote.mount(&["--timeout", "600s"]);
        names(mount.join("a/c")).unwrap();
        let gate = remote.server.hold(&remote.at("a", 2));
        let third = remote.server.hold(&remote.at("a", 3));
        for i in 0..2 {
            assert!(read(mount.join(remote.key("a", i))).unwrap() == chunk(i));
        }
        let mut cat = Cat::new(&["cat"], &mount.join(remote.key("a", 2)));
        gate.wait_for(1);
        third.wait_for(1);
        cat.dies(Signal::KILL);
        assert!(
            wait_until(LIMIT, || remote.server.under_way() == 0),
            "{backend:?}"
        );
        gate.open();
        third.open();
        remote.heals(&mount, "a");
    }
}

#[test]
fn g02_prefetches_of_chunks_for_a_killed_reader_are_cancelled() {
    const CHUNKS: usize = 24;
    let value = vec![1; 512 << 10];
    for backend in BOTH {
        let remote = Remote::of(backend, Format::V3);
        let group = serde_json::json!({"zarr_format": 3, "node_type": "group", "attributes": {}});
        remote.put("zarr.json", group.to_string());
        let document = v3(CHUNKS * value.len() / 4, value.len() / 4, false);
        remote.put("long/zarr.json", document.to_string());
        for i in 0..CHUNKS {
            remote.put(&remote.key("long", i), value.clone());
        }
        // Far longer than the test: only a cancellation can end a request.
        let mount = remote.mount(&["--timeout", "600s"]);
        let path = whole_of(&mount, "long");
        let gate = remote.server.hold("store/long/c/*");
        let mut first = Cat::new(&["cat"], &path);
        // The chunk of the reader and the prefetched chunks.
        gate.wait_for(8);
        let mut second = Cat::new(&["cat"], &path);
        assert!(!wait_until(Duration::from_secs(1), || remote
            .server
            .under_way()
            < 8));
        first.dies(Signal::KILL);
        // The second reader has the file open.
        assert!(!wait_until(Duration::from_secs(1), || remote
            .server
            .under_way()
            < 8));
        second.dies(Signal::KILL);
        assert!(
            wait_until(LIMIT, || remote.server.under_way() == 0),
            "{backend:?}"
        );
        gate.open();
        assert!(read(path).unwrap() == value.repeat(CHUNKS));
    }
}

#[test]
fn f07_a_lookup_does_not_wait_for_another_mount_of_the_disk_cache_that_hangs() {
    let cache = scratch();
    let cache = cache.path().join("cache");
    let remote = Remote::new(BOTH[0]);
    let args = ["--timeout", "600s", "--disk-cache", cache.to_str().unwrap()];
    let mounts = [remote.mount(&args), remote.mount(&args)];
    remote.server.set_latency(Duration::from_millis(500));
    let reader = Cat::new(&["cat"], &mounts[0].join(remote.key("good", 0)));
    // The client has requested the value, and the response is delayed.
    std::thread::sleep(Duration::from_millis(250));
    let stopped = Stopped::new(mounts[0].pid());
    remote.server.set_latency(Duration::ZERO);
    let path = mounts[1].join(remote.key("good", 0));
    let found = in_time(AT_ONCE, "a lookup", || fs::metadata(path));
    assert_eq!(found.unwrap().len(), 4 * CHUNK as u64);
    drop(stopped);
    drop(reader);
    remote.heals(&mounts[1], "a");
}

#[test]
fn f07_a_lookup_does_not_wait_behind_reads_that_hang() {
    for backend in BOTH {
        let remote = Remote::new(backend);
        let mount = remote.mount(&["--parallel", "4", "--timeout", "600s"]);
        let gate = remote.server.hold("store/z/c/*");
        let cat = |i| Cat::new(&["cat"], &remote.view(&mount, "z", i));
        let readers: Vec<_> = (0..4).map(cat).collect();
        gate.wait_for(4);
        for i in 0..4 {
            let path = mount.join(remote.key("good", i));
            let found = in_time(AT_ONCE, "a lookup", || fs::metadata(path));
            assert_eq!(found.unwrap().len(), 4 * CHUNK as u64, "{backend:?}");
        }
        gate.open();
        drop(readers);
        remote.heals(&mount, "a");
    }
}
