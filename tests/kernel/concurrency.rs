//! F3, F4, F5: lookups, forgets, releases and listings that race with other requests.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::time::{Duration, Instant};

use crate::clients::*;
use crate::sources::*;
use crate::support::*;

const LONG: Duration = Duration::from_secs(3);

#[test]
fn f03_lookups_race_forgets_and_removals() {
    const STABLE: u64 = 32;
    const REMOVED: u64 = 8;
    let (source, spare) = (scratch(), scratch());
    let name = |i: u64| {
        if i < STABLE {
            format!("d/stable.{i}")
        } else {
            format!("d/removed.{i}")
        }
    };
    let content = |i: u64| pattern(i, 1000 + 500 * i as usize);
    let files: Vec<_> = (0..STABLE + REMOVED)
        .map(|i| (name(i), content(i)))
        .collect();
    write_directory(source.path(), &files);
    for passthrough in PASSTHROUGH {
        let mount = Mount::of_keys(
            source.path(),
            &["--passthrough", passthrough, "--ttl", "20ms"],
        );
        let numbers: Vec<u64> = (0..STABLE)
            .map(|i| fs::metadata(mount.join(name(i))).unwrap().ino())
            .collect();
        assert_eq!(
            numbers.iter().collect::<BTreeSet<_>>().len(),
            numbers.len(),
            "two files have one inode number"
        );
        let end = Instant::now() + LONG / 2;
        let client = |seed: u64| {
            let mut state = seed;
            while Instant::now() < end {
                let i = random(&mut state) % (STABLE + REMOVED);
                let path = mount.join(name(i));
                if i < STABLE {
                    let number = fs::metadata(&path)
                        .unwrap_or_else(|e| panic!("stat {path:?}: {e}"))
                        .ino();
                    assert_eq!(
                        number, numbers[i as usize],
                        "the inode number of {path:?} changed"
                    );
                }
                match read(&path) {
                    Ok(bytes) => assert!(bytes == content(i), "{path:?} has wrong bytes"),
                    Err(e) => {
                        let removed =
                            i >= STABLE && [Some(ENOENT), Some(ESTALE)].contains(&e.raw_os_error());
                        assert!(removed, "read {path:?}: {e}");
                    }
                }
            }
        };
        std::thread::scope(|scope| {
            for seed in 1..=4 {
                scope.spawn(move || client(seed));
            }
            scope.spawn(|| {
                while Instant::now() < end {
                    for i in STABLE..STABLE + REMOVED {
                        fs::remove_file(source.path().join(name(i))).unwrap();
                        std::thread::sleep(Duration::from_millis(1));
                        replace(
                            &source.path().join(name(i)),
                            &content(i),
                            &spare.path().join("new"),
                        );
                    }
                }
            });
            if is_root() {
                scope.spawn(|| {
                    while Instant::now() < end {
                        drop_caches();
                        std::thread::sleep(Duration::from_millis(50));
                    }
                });
            }
        });
        assert_eq!(gauge(mount.path(), "panics"), 0);
    }
}

#[test]
fn f04_release_races_read() {
    let source = scratch();
    let content = pattern(4, 1_000_000);
    let files: Vec<_> = (0..8)
        .map(|i| (format!("same/{i}"), content.clone()))
        .collect();
    let sources = both_kinds(source.path(), &files);
    for (source, args) in [
        (&sources[0], &["--passthrough", "off"][..]),
        (&sources[0], &[]),
        (&sources[1], &[]),
    ] {
        let mount = Mount::of_keys(source, args);
        client("release.py", &[&mount.join("same"), Path::new("1")]);
        assert_eq!(gauge(mount.path(), "panics"), 0);
        let released = || gauge(mount.path(), "handles") == 0;
        assert!(
            wait_until(Duration::from_secs(5), released),
            "handles are left of {source:?}"
        );
    }
}

#[test]
fn f05_listings_while_files_come_and_go() {
    const STABLE: usize = 3000;
    let source = scratch();
    for i in 0..STABLE {
        File::create(source.path().join(format!("stable.{i}"))).unwrap();
    }
    let mount = Mount::of_keys(source.path(), &["--ttl", "10ms"]);
    let end = Instant::now() + LONG;
    let list = || {
        let mut listings = 0;
        while Instant::now() < end {
            let mut names = BTreeSet::new();
            for entry in fs::read_dir(mount.path()).unwrap() {
                let name = entry.unwrap().file_name();
                assert!(names.insert(name.clone()), "{name:?} twice in one listing");
            }
            let stable = names
                .iter()
                .filter(|name| name.to_str().unwrap().starts_with("stable."))
                .count();
            assert_eq!(stable, STABLE, "unchanged files were missed");
            listings += 1;
        }
        listings
    };
    let listings: usize = std::thread::scope(|scope| {
        scope.spawn(|| {
            for i in 0.. {
                if Instant::now() > end {
                    break;
                }
                File::create(source.path().join(format!("new.{i}"))).unwrap();
                if i >= 50 {
                    fs::remove_file(source.path().join(format!("new.{}", i - 50))).unwrap();
                }
            }
        });
        let listers: Vec<_> = (0..3).map(|_| scope.spawn(list)).collect();
        listers
            .into_iter()
            .map(|lister| lister.join().unwrap())
            .sum()
    });
    assert!(listings > 10, "only {listings} listings in {LONG:?}");
}

#[test]
fn f06_readers_of_one_file_all_see_its_bytes() {
    let source = scratch();
    let content = pattern(6, 8 << 20);
    let sources = both_kinds(source.path(), &[("big".to_owned(), content.clone())]);
    for source in &sources {
        let mount = Mount::of_keys(source, &["--passthrough", "off", "--cache-size", "1MiB"]);
        let end = Instant::now() + LONG / 3;
        let read_around = |seed: u64| {
            let mut state = seed;
            let file = File::open(mount.join("big")).unwrap();
            let mut buffer = vec![0; 100_000];
            while Instant::now() < end {
                let offset = random(&mut state) as usize % content.len();
                let _ = rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed);
                let n = file.read_at(&mut buffer, offset as u64).unwrap();
                assert!(
                    n > 0 && buffer[..n] == content[offset..offset + n],
                    "{n} bytes at {offset}"
                );
            }
        };
        std::thread::scope(|scope| {
            for seed in 1..=6 {
                scope.spawn(move || read_around(seed));
            }
        });
    }
}
