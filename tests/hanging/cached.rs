//! F7: cached values are returned while the store hangs.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::io::Errno;

use crate::gate::*;
use crate::support::*;

/// Asserts that `ls`, `stat` and `cat` of cached values complete soon.
fn is_cached(hanging: &Hanging, directory: &str, file: &str) {
    let path = hanging.join(file);
    let run_program = |program: &str, path: &Path| {
        let begun = Instant::now();
        let output = run_for(Command::new(program).arg(path), 3 * SOON);
        let waited = begun.elapsed();
        let log = || hanging.mount.log();
        assert!(
            output.status.success(),
            "{program} {path:?}: {output:?}\n{}",
            log()
        );
        assert!(waited < SOON, "{program} {path:?}: {waited:?}\n{}", log());
        output.stdout
    };
    let listed = run_program("ls", &hanging.join(directory));
    let name = path.file_name().unwrap().to_str().unwrap();
    assert!(String::from_utf8(listed).unwrap().contains(name));
    run_program("stat", &path);
    assert!(run_program("cat", &path) == content(file), "{file}");
}

#[test]
fn f07_cached_content_is_served_while_the_store_hangs() {
    let files = ["a/0", "a/1", "b/0", "b/1"];
    for threads in ["1", "4"] {
        let args = ["--timeout", "20s", "--ttl", "1h", "--threads", threads];
        let hanging = Hanging::new(&files, &args);
        is_cached(&hanging, "a", "a/0");
        let direct = read_direct(&hanging.join("a/1"), 100_000).unwrap();
        drop(open(&hanging.join("b/0")));

        hanging.close();
        let mut clients = [
            start("cat", &[&hanging.join("b/0")]),
            start("cat", &[&hanging.join("b/1")]),
            start("stat", &[&hanging.join("a/none")]),
            start("ls", &[&hanging.join("b")]),
        ];
        for child in &mut clients {
            hangs(child, "a program");
        }
        is_cached(&hanging, "a", "a/0");
        // The value is cached by the daemon, but not by the kernel.
        let begun = Instant::now();
        assert!(read_direct(&hanging.join("a/1"), 100_000).unwrap() == direct);
        assert!(begun.elapsed() < SOON);
        assert_eq!(direct, content("a/1")[..direct.len()]);

        hanging.open();
        for (child, ends_well) in clients.iter_mut().zip([true, true, false, true]) {
            // The pipe may be smaller than the output.
            let text = child.0.stdout.take().map(|mut stdout| {
                let mut bytes = Vec::new();
                std::io::Read::read_to_end(&mut stdout, &mut bytes).unwrap();
                bytes
            });
            let status = wait_for(&mut child.0, Duration::from_secs(5)).unwrap();
            assert_eq!(status.success(), ends_well, "{text:?}");
        }
        drop(clients);
        hanging.recovers(&files);
    }
}

#[test]
fn f07_a_hundred_hanging_readers_do_not_delay_other_readers() {
    let names: Vec<String> = (0..100).map(|i| format!("many/{i}")).collect();
    let mut files = vec!["a/0"];
    files.extend(names.iter().map(String::as_str));
    let hanging = Hanging::new(&files, &["--timeout", "3s", "--ttl", "1h"]);
    is_cached(&hanging, "a", "a/0");
    let direct = read_direct(&hanging.join("a/0"), 100_000).unwrap();
    for name in &names {
        drop(open(&hanging.join(name)));
    }

    hanging.close();
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let readers: Vec<_> = names
            .iter()
            .enumerate()
            .map(|(i, name)| {
                let path = hanging.join(name);
                scope.spawn(move || {
                    let begun = Instant::now();
                    // Besides a hundred requests at the daemon, readahead waits in the kernel's own queue.
                    let error = match i % 2 {
                        0 => fs::read(path).unwrap_err(),
                        _ => read_direct(&path, 100_000).unwrap_err(),
                    };
                    (begun.elapsed(), error)
                })
            })
            .collect();
        scope.spawn(|| {
            std::thread::sleep(Duration::from_millis(300));
            while !is_over.load(Ordering::Relaxed) {
                is_cached(&hanging, "a", "a/0");
                let begun = Instant::now();
                let read = read_direct(&hanging.join("a/0"), 100_000);
                let read = read.unwrap_or_else(|e| panic!("{e}\n{}", hanging.mount.log()));
                assert!(read == direct);
                assert!(begun.elapsed() < SOON);
                std::thread::sleep(Duration::from_millis(100));
            }
        });
        for reader in readers {
            let (waited, error) = reader.join().unwrap();
            assert_eq!(
                error.raw_os_error(),
                Some(Errno::TIMEDOUT.raw_os_error()),
                "{error}"
            );
            assert!(waited > Duration::from_secs(2), "{waited:?}");
            assert!(waited < AT_LAST, "{waited:?}");
        }
        is_over.store(true, Ordering::Relaxed);
    });

    hanging.open();
    std::thread::sleep(Duration::from_millis(600));
    hanging.recovers(&files);
}
