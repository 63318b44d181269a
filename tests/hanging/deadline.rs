//! No call waits longer than the deadline, whatever the store does.

use std::fs;
use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use crate::gate::*;

type Call = fn(&Path) -> io::Result<()>;

fn stat(path: &Path) -> io::Result<()> {
    fs::metadata(path).map(drop)
}

fn open_file(path: &Path) -> io::Result<()> {
    fs::File::open(path).map(drop)
}

fn read_file(path: &Path) -> io::Result<()> {
    fs::read(path).map(drop)
}

fn read_past_the_cache(path: &Path) -> io::Result<()> {
    read_direct(path, 4096).map(drop)
}

fn list(path: &Path) -> io::Result<()> {
    for entry in fs::read_dir(path)? {
        entry?;
    }
    Ok(())
}

fn attribute(path: &Path) -> io::Result<()> {
    let mut value = [0; 1024];
    Ok(rustix::fs::getxattr(path, "user.zarr.shape", &mut value).map(drop)?)
}

fn attributes(path: &Path) -> io::Result<()> {
    let mut names = [0; 1024];
    Ok(rustix::fs::listxattr(path, &mut names).map(drop)?)
}

/// Runs all calls concurrently, and asserts that each fails with ETIMEDOUT in time.
fn time_out(hanging: &Hanging, calls: &[(&str, Call)]) {
    std::thread::scope(|scope| {
        for (name, call) in calls {
            scope.spawn(move || {
                let path = hanging.join(name);
                let begun = Instant::now();
                let result = call(&path);
                let waited = begun.elapsed();
                let error = result.expect_err(name);
                let expected = Errno::TIMEDOUT.raw_os_error();
                assert_eq!(error.raw_os_error(), Some(expected), "{name}: {error}");
                assert!(waited > Duration::from_secs(2), "{name}: {waited:?}");
                assert!(waited < AT_LAST, "{name}: {waited:?}");
            });
        }
    });
}

const FILES: [&str; 12] = [
    "known/looked-up",
    "known/opened",
    "known/direct",
    "known/second",
    "listed/0",
    "open/0",
    "group/0",
    "names/0",
    "stat/0",
    "stat/1",
    "deep/er/0",
    "other/0",
];

#[test]
fn every_call_ends_at_the_deadline() {
    let hanging = Hanging::new(&FILES, &["--timeout", "3s", "--ttl", "1h"]);
    for name in FILES {
        stat(&hanging.join(name)).unwrap();
    }
    for name in ["known/opened", "known/direct"] {
        drop(open(&hanging.join(name)));
    }
    let directory = OFlags::RDONLY | OFlags::DIRECTORY;
    let opened = rustix::fs::open(hanging.join("open"), directory, Mode::empty()).unwrap();

    hanging.close();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let begun = Instant::now();
            let mut buffer = Vec::with_capacity(4096);
            let mut names = rustix::fs::RawDir::new(&opened, buffer.spare_capacity_mut());
            let error = names.next().unwrap().err();
            assert_eq!(error, Some(Errno::TIMEDOUT));
            assert!(begun.elapsed() < AT_LAST);
        });
        scope.spawn(|| {
            time_out(
                &hanging,
                &[
                    ("known/none", stat),
                    ("known/looked-up", open_file),
                    ("known/opened", read_file),
                    ("known/direct", read_past_the_cache),
                    // These calls wait for the pages and the lookup of an earlier call.
                    ("known/opened", read_file),
                    ("known/none", stat),
                    ("listed", list),
                    ("group", attribute),
                    ("names", attributes),
                ],
            );
        });
    });
    drop(opened);
    hanging.open();
    std::thread::sleep(Duration::from_millis(600));
    hanging.recovers(&FILES);
}

#[test]
fn a_revalidation_takes_one_deadline() {
    let hanging = Hanging::new(&FILES, &["--timeout", "3s", "--ttl", "200ms"]);
    for name in FILES {
        stat(&hanging.join(name)).unwrap();
    }
    let open_handle = open(&hanging.join("other/0"));
    // Open files stay in the kernel, which revalidates their names.
    let open_files = ["stat/0", "deep/er/0", "known/second"].map(|name| open(&hanging.join(name)));
    std::thread::sleep(Duration::from_millis(400));

    hanging.close_for_all();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let begun = Instant::now();
            let error = open_handle.metadata().unwrap_err();
            assert_eq!(error.raw_os_error(), Some(Errno::TIMEDOUT.raw_os_error()));
            assert!(begun.elapsed() < AT_LAST);
        });
        time_out(
            &hanging,
            &[
                ("stat/0", stat),
                ("deep/er/0", stat),
                ("known/second", open_file),
                ("listed", list),
            ],
        );
    });
    drop((open_handle, open_files));
    hanging.open();
    std::thread::sleep(Duration::from_millis(600));
    hanging.recovers(&FILES);
}
