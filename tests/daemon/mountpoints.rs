//! G12, J5, J6, H6: valid mountpoints, and the mounts that an unmount may remove.

use std::fs::{self, File};
use std::os::unix::fs::{FileExt, symlink};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::process::Signal;

use crate::place::*;
use crate::support::*;

const INSIDE: &str = "inside|below|within|contains|under";

#[test]
fn g12_a_missing_mountpoint_is_refused() {
    let place = Place::new();
    let store = place.store();
    fs::remove_dir(&place.path).unwrap();
    place
        .attempt(&store, &[])
        .failed(32, &["mnt", "no such|not exist|missing"]);
    assert!(!place.path.exists(), "a mountpoint was made");
    place.assert_untouched();
}

#[test]
fn g12_a_mountpoint_that_is_a_file_is_refused() {
    let place = Place::new();
    let store = place.store();
    fs::remove_dir(&place.path).unwrap();
    fs::write(&place.path, "precious").unwrap();
    for args in [&[][..], &["--nonempty"]] {
        place
            .attempt(&store, args)
            .failed(32, &["mnt", "not a directory"]);
    }
    assert_eq!(fs::read(&place.path).unwrap(), b"precious");
    place.assert_untouched();
}

#[test]
fn g12_a_mountpoint_that_is_not_empty_needs_an_option() {
    let place = Place::new();
    let store = place.store();
    fs::write(place.path.join("precious"), "data").unwrap();
    place
        .attempt(&store, &[])
        .failed(32, &["mnt", "not empty", "nonempty"]);
    place.assert_untouched();

    place.mount(&store, &["--nonempty"]);
    assert_serves(&place.path);
    place.unmount(&[]).ok();
    assert_eq!(fs::read(place.path.join("precious")).unwrap(), b"data");
}

#[test]
fn g12_a_mountpoint_that_is_mounted_already_is_refused() {
    let place = Place::new();
    let store = place.store();
    let other = place.store_named("other");
    let pid = place.mount(&store, &[]);
    for args in [&[][..], &["--nonempty"], &["-f"]] {
        place.attempt(&other, args).failed(32, &["mnt", "already"]);
        assert_eq!(daemon_of(&place.path), pid);
        assert_serves(&place.path);
        assert_eq!(place.processes(), [pid]);
    }
    place.unmount(&[]).ok();
    place.assert_untouched();
}

#[test]
fn g12_a_mount_of_an_empty_store_is_still_a_mount() {
    let place = Place::new();
    let empty = place.make_dir("empty");
    place.mount(&empty, &["--force"]);
    place
        .attempt(&empty, &["--force"])
        .failed(32, &["mnt", "already"]);
    assert_eq!(place.mounted().len(), 1);
    place.unmount(&[]).ok();
}

#[test]
fn g12_a_mount_of_a_killed_daemon_is_unmounted() {
    let place = Place::new();
    let pid = place.mount(place.store(), &[]);
    kill_daemon(pid);
    place.unmount(&[]).ok();
    place.assert_untouched();
    assert_eq!(fs::read_dir(&place.path).unwrap().count(), 0);
}

#[test]
fn g12_a_dead_mount_of_another_file_system_is_not_unmounted() {
    if !is_root() {
        return skipped("needs root");
    }
    let place = Place::new();
    let store = place.store();
    let (dead, _mounted) = bindfs(&place, &store);
    kill_daemon(dead);
    assert_eq!(
        errno(fs::metadata(&place.path)),
        Errno::NOTCONN.raw_os_error()
    );
    for args in [&[][..], &["--nonempty"]] {
        place.attempt(&store, args).failed(32, &["mnt"]);
    }
    place.unmount(&[]).failed(1, &["mnt"]);
    place.unmount(&["--lazy"]).failed(1, &["mnt"]);
    let table = mounts();
    let left: Vec<_> = table.iter().filter(|m| m.point == place.path).collect();
    assert_eq!(left.len(), 1);
    assert_ne!(left[0].kind, "fuse.zarrfs");
}

/// Mounts bindfs on the mountpoint; returns its process ID, and a guard that unmounts it.
fn bindfs<'a>(place: &'a Place, source: &Path) -> (u32, Foreign<'a>) {
    let mounted = Foreign::on(&place.path, &["bindfs", source.to_str().unwrap()]);
    (place.processes()[0], mounted)
}

/// A mount of another program, unmounted on drop.
struct Foreign<'a>(&'a Path);

impl<'a> Foreign<'a> {
    fn on(path: &'a Path, command: &[&str]) -> Self {
        run(Command::new(command[0]).args(&command[1..]).arg(path));
        Self(path)
    }

    fn tmpfs(path: &'a Path) -> Self {
        let mounted = Self::on(path, &["mount", "-t", "tmpfs", "none"]);
        fs::write(path.join("precious"), "data").unwrap();
        mounted
    }

    fn assert_intact(&self) {
        assert_eq!(fs::read(self.0.join("precious")).unwrap(), b"data");
    }
}

impl Drop for Foreign<'_> {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.0).status();
    }
}

#[test]
fn g12_umount_refuses_a_path_without_a_mount() {
    let place = Place::new();
    place.unmount(&[]).failed(1, &["mnt", "not"]);
    place.unmount(&["--lazy"]).failed(1, &["mnt", "not"]);
    let missing = place.join("missing");
    output_of(zarrfs().arg("umount").arg(&missing)).failed(1, &["missing"]);

    place.mount(place.store(), &[]);
    for inside in ["a", "zarr.json"] {
        let inside = place.path.join(inside);
        let words = ["part of the mount", "zarrfs umount"];
        output_of(zarrfs().arg("umount").arg(&inside)).failed(1, &words);
        output_of(zarrfs().args(["umount", "--lazy"]).arg(&inside)).failed(1, &words);
    }
    assert_serves(&place.path);
    place.unmount(&[]).ok();
}

#[test]
fn g12_umount_refuses_mounts_of_other_file_systems() {
    if !is_root() {
        return skipped("needs root");
    }
    let place = Place::new();
    let store = place.store();
    let tmpfs = Foreign::tmpfs(&place.path);
    place.unmount(&[]).failed(1, &["mnt", "not"]);
    place.unmount(&["--lazy"]).failed(1, &["mnt", "not"]);
    tmpfs.assert_intact();
    drop(tmpfs);

    let (pid, mounted) = bindfs(&place, &store);
    place.unmount(&[]).failed(1, &["mnt", "not"]);
    assert!(runs(pid));
    assert_serves(&place.path);
    drop(mounted);
    // A tmpfs over a zarrfs mount.
    let pid = place.mount(&store, &[]);
    let tmpfs = Foreign::tmpfs(&place.path);
    place.unmount(&[]).failed(1, &["mnt", "not"]);
    tmpfs.assert_intact();
    assert!(runs(pid));
    drop(tmpfs);
    place.unmount(&[]).ok();
}

#[test]
fn g12_a_busy_mount_is_not_unmounted_and_the_reason_is_printed() {
    let place = Place::new();
    let pid = place.mount(place.store(), &[]);
    let file = File::open(place.path.join("a/c/0")).unwrap();
    place.unmount(&[]).failed(1, &["mnt", "busy|in use"]);
    assert!(place.is_mounted() && runs(pid));
    assert_serves(&place.path);
    drop(file);
    place.unmount(&[]).ok();
    assert!(!runs(pid));
}

#[test]
fn g12_a_lazy_unmount_leaves_open_files_readable() {
    let place = Place::new();
    let store = place.store();
    for source in [&store, &place.zip_of(&store)] {
        let pid = place.mount(source, &["--passthrough", "off"]);
        let file = File::open(place.path.join("a/c/0")).unwrap();
        place.unmount(&["--lazy"]).ok();
        assert!(!place.is_mounted());
        assert!(runs(pid));
        let mut bytes = vec![0; 1000];
        file.read_exact_at(&mut bytes, 250_000).unwrap();
        assert!(bytes == chunk()[250_000..251_000]);
        drop(file);
        assert!(wait_until(Duration::from_secs(2), || !runs(pid)));
        place.assert_untouched();
    }
}

#[test]
fn g12_no_command_hangs_on_a_stopped_daemon() {
    let place = Place::new();
    let store = place.store();
    let pid = place.mount(&store, &[]);
    kill(pid, Signal::STOP);
    let stats = output_of(zarrfs().arg("stats").arg(&place.path));
    let again = place.attempt(&store, &[]);
    let unmounted = place.unmount(&[]);
    let start = Instant::now();
    let detached = place.unmount(&["--lazy"]);
    let took = start.elapsed();
    // A stopped daemon may delay the cleanup after a failure.
    kill(pid, Signal::CONT);
    stats.failed(1, &["mnt", "has not answered"]);
    again.failed(32, &["mnt", "already mounted"]);
    unmounted.failed(1, &["mnt", "has not answered", "--lazy"]);
    detached.ok();
    assert!(took < Duration::from_secs(2), "{took:?}");
    assert!(!place.is_mounted());
    assert!(wait_until(Duration::from_secs(5), || !runs(pid)));
    place.assert_untouched();
}

#[test]
fn g12_an_external_unmount_ends_the_daemon_and_the_next_mount_is_intact() {
    if !is_root() {
        return skipped("needs root");
    }
    let place = Place::new();
    let store = place.store();
    for source in [&store, &place.zip_of(&store)] {
        let mut daemon = place.foreground(source, &[]);
        assert_serves(&place.path);
        let script = r#"umount "$1" && mount -t tmpfs none "$1" && echo data > "$1/left""#;
        run(Command::new("bash")
            .args(["-ec", script, "bash"])
            .arg(&place.path));
        let tmpfs = Foreign(&place.path);
        daemon.ends_well(Duration::from_secs(2));
        assert_eq!(fs::read(place.path.join("left")).unwrap(), b"data\n");
        drop(tmpfs);
        place.assert_untouched();
    }
}

#[test]
fn g12_a_daemon_with_a_fatal_signal_unmounts_only_its_own_mount() {
    if !is_root() {
        return skipped("needs root");
    }
    let place = Place::new();
    let store = place.store();
    // The mount was detached while busy, and another mount replaced it.
    let mut daemon = place.foreground(&store, &[]);
    let file = File::open(place.path.join("a/c/0")).unwrap();
    run(Command::new("umount").arg("-l").arg(&place.path));
    let tmpfs = Foreign::tmpfs(&place.path);
    daemon.signal(Signal::TERM);
    std::thread::sleep(Duration::from_millis(200));
    daemon.signal(Signal::TERM);
    assert!(daemon.ended(Duration::from_secs(2)).is_some());
    tmpfs.assert_intact();
    drop((file, tmpfs));
    place.assert_untouched();

    // Another file system was mounted over the mount.
    let mut daemon = place.foreground(&store, &[]);
    let tmpfs = Foreign::tmpfs(&place.path);
    daemon.signal(Signal::TERM);
    std::thread::sleep(Duration::from_millis(200));
    daemon.signal(Signal::TERM);
    assert!(daemon.ended(Duration::from_secs(2)).is_some());
    tmpfs.assert_intact();
}

#[test]
fn j05_a_mountpoint_inside_the_source_is_refused() {
    let place = Place::new();
    let store = place.store();
    let inside = place.make_dir("store/mnt");
    symlink(&store, place.join("link")).unwrap();
    symlink(&inside, place.join("link-inside")).unwrap();
    let through_link = place.join("link/mnt");
    let to_inside = place.join("link-inside");
    for (source, mountpoint) in [
        (&store, &inside),
        (&store, &through_link),
        (&store, &to_inside),
        (&place.join("link"), &inside),
        (&place.join("mnt/../store"), &inside),
        (&store, &store),
        (&store, &place.join("link")),
    ] {
        refused(&place, source, mountpoint, &["--nonempty"], INSIDE);
    }
    // A common prefix of the names does not make one directory contain the other.
    let beside = place.make_dir("store.mnt");
    output_of(zarrfs().arg(&store).arg(&beside)).ok();
    output_of(zarrfs().arg("umount").arg(&beside)).ok();
}

/// Asserts that a mount is refused and leaves nothing behind.
#[track_caller]
fn refused(place: &Place, source: &Path, mountpoint: &Path, args: &[&str], word: &str) {
    let mut command = zarrfs();
    command.arg(source).arg(mountpoint).args(args);
    output_of(&mut command).failed(32, &[word]);
    place.assert_untouched();
}

#[test]
fn j05_a_source_inside_the_mountpoint_is_refused() {
    let place = Place::new();
    let store = place.store_named("mnt/store");
    let zip = place.zip_of(&store);
    let elsewhere = place.join("link");
    symlink(&place.path, &elsewhere).unwrap();
    for source in [
        store,
        zip,
        place.join("link/store"),
        place.join("link/store.zip"),
        place.join("mnt/store/a"),
    ] {
        refused(&place, &source, &place.path, &["--nonempty"], INSIDE);
        refused(&place, &source, &elsewhere, &["--nonempty"], INSIDE);
    }
}

#[test]
fn j05_a_bind_mount_does_not_hide_a_mountpoint_inside_the_source() {
    if !is_root() {
        return skipped("needs root");
    }
    let place = Place::new();
    let store = place.store();
    let inside = place.make_dir("store/mnt");
    let bound = place.make_dir("bound");
    run(Command::new("mount").arg("--bind").args([&store, &bound]));
    refused(&place, &bound, &inside, &[], INSIDE);
    refused(&place, &store, &bound.join("mnt"), &[], INSIDE);
    refused(&place, &store, &bound, &["--nonempty"], INSIDE);
}

#[test]
fn j05_a_log_file_inside_the_mountpoint_is_refused() {
    let place = Place::new();
    let store = place.store();
    symlink(&place.path, place.join("link")).unwrap();
    fs::create_dir(place.path.join("sub")).unwrap();
    for log in ["mnt/log", "link/log", "mnt/sub/log", "store/../mnt/log"] {
        let log = place.join(log);
        let args = ["--nonempty", "--log-file", log.to_str().unwrap()];
        refused(&place, &store, &place.path, &args, INSIDE);
        assert!(!log.exists(), "{log:?} was made");
    }
}

#[test]
fn j05_a_disk_cache_inside_the_mountpoint_or_the_source_is_refused_and_not_created() {
    let place = Place::new();
    let store = place.store();
    symlink(&place.path, place.join("link")).unwrap();
    for (cache, made) in [
        ("mnt", "mnt/blocks"),
        ("mnt/a/b", "mnt/a"),
        ("link/a", "mnt/a"),
        ("store/new/cache", "store/new"),
        ("store/a/cache", "store/a/cache"),
    ] {
        let cache = place.join(cache);
        let args = ["--nonempty", "--disk-cache", cache.to_str().unwrap()];
        place.attempt(&store, &args).failed(32, &["disk", "inside"]);
        assert!(!place.join(made).exists(), "{made} was made");
        place.assert_untouched();
    }
}

#[test]
fn j06_a_zip_inside_a_mount_can_be_mounted() {
    let outer = Place::new();
    let dir = outer.make_dir("archives");
    let zip = outer.zip_of(&outer.store());
    fs::rename(zip, dir.join("store.zip")).unwrap();
    outer.mount(&dir, &["--force"]);
    let inner = Place::new();
    inner.mount(outer.path.join("store.zip"), &[]);
    let innermost = Place::new();
    innermost.mount(&inner.path, &[]);
    assert_serves(&inner.path);
    assert_serves(&innermost.path);
    innermost.unmount(&[]).ok();
    inner.unmount(&[]).ok();
    outer.unmount(&[]).ok();
}

#[test]
fn j06_a_mount_is_not_its_own_source() {
    let place = Place::new();
    let store = place.store();
    let zip = place.zip_of(&place.store_named("inner"));
    fs::rename(zip, store.join("a/inner.zip")).unwrap();
    let pid = place.mount(&store, &[]);
    for source in ["", "a", "a/inner.zip"] {
        let source = place.path.join(source);
        for args in [&[][..], &["--nonempty"]] {
            let reason = format!("already|{INSIDE}");
            place.attempt(&source, args).failed(32, &["mnt", &reason]);
        }
    }
    assert_serves(&place.path);
    assert_eq!(place.processes(), [pid]);
    assert_eq!(place.mounted().len(), 1);
    place.unmount(&[]).ok();
}

#[test]
fn h06_a_symlink_to_the_mountpoint_is_accepted() {
    let place = Place::new();
    let store = place.store();
    let link = place.join("link");
    symlink("mnt", &link).unwrap();
    output_of(zarrfs().arg(&store).arg(&link)).ok();
    assert!(place.is_mounted());
    assert_serves(&place.path);
    output_of(zarrfs().arg("umount").arg(&link)).ok();
    place.assert_untouched();
    assert!(link.is_symlink());
}

#[test]
fn h06_a_retargeted_symlink_does_not_affect_the_mount() {
    let place = Place::new();
    let store = place.store();
    let (link, other) = (place.join("link"), place.make_dir("other"));
    symlink("mnt", &link).unwrap();
    output_of(zarrfs().arg(&store).arg(&link)).ok();
    let pid = daemon_of(&place.path);
    fs::remove_file(&link).unwrap();
    symlink("other", &link).unwrap();
    output_of(zarrfs().arg(&store).arg(&other)).ok();
    kill(pid, Signal::TERM);
    assert!(wait_until(Duration::from_secs(3), || !runs(pid)));
    assert!(!place.is_mounted());
    assert_serves(&other);
    output_of(zarrfs().arg("umount").arg(&other)).ok();
}
