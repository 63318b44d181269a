//! A mount namespace in which mount(8) finds the helper, and the behaviour of both.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::place::*;
use crate::support::*;

/// Returns the command of a script in its own mount namespace, in which /sbin contains the helper.
/// `$1` is the mountpoint, `$2` the scratch directory, `$3` the binary.
pub fn with_helper(place: &Place, binary: &Path, script: &str) -> Command {
    let prelude = r#"
        sbin=$(realpath /sbin)
        mkdir "$2/sbin"
        cp -a "$sbin/." "$2/sbin"
        ln -sf "$3" "$2/sbin/mount.zarrfs"
        ln -sf "$3" "$2/sbin/mount.fuse.zarrfs"
        mount --bind "$2/sbin" "$sbin"
        as_nobody() { setpriv --reuid=nobody --regid=nogroup --clear-groups -- "$@"; }
    "#;
    let mut command = Command::new("unshare");
    command.args([
        "-m",
        "bash",
        "-euc",
        &format!("{prelude}\n{script}"),
        "bash",
    ]);
    command.arg(&place.path).arg(place.dir()).arg(binary);
    command.env("LC_ALL", "C");
    command
}

fn binary() -> PathBuf {
    zarrfs().get_program().into()
}

#[test]
fn mount_8_finds_the_helper_for_both_types() {
    if !is_root() {
        return skipped("needs root");
    }
    let place = Place::named("a place, to mount");
    let store = place.store_named("a store, with odd 'name'");
    let script = r#"
        for type in zarrfs fuse.zarrfs; do
            mount -t "$type" -o rw,noauto,ttl=5s,umask=077,x-mine=1 "$2/a store, with odd 'name'" "$1"
            findmnt -no FSTYPE,SOURCE "$1"
            stat -c %a "$1/zarr.json"
            umount "$1"
        done
        mount -v -t zarrfs "$2/a store, with odd 'name'" "$1" 2>&1
        umount "$1"
        mount -f -t zarrfs "$2/a store, with odd 'name'" "$1"
        ! findmnt "$1"
    "#;
    let all = output_of(&mut with_helper(&place, &binary(), script));
    let shown = store.to_str().unwrap();
    let once = format!("fuse.zarrfs {shown}\n600\n");
    assert!(all.ok().out.starts_with(&once.repeat(2)), "{all:?}");
    assert!(
        all.out.contains("is mounted on") && all.out.contains("Zarr v3 group"),
        "{all:?}"
    );
    place.assert_untouched();
}

#[test]
fn a_failed_mount_8_prints_the_reason_and_mounts_nothing() {
    if !is_root() {
        return skipped("needs root");
    }
    let place = Place::new();
    place.store();
    for (arguments, code, words) in [
        (r#""$2/missing" "$1""#, 32, &["missing", "no such file"][..]),
        (r#"-o frobnicate=1 "$2/store" "$1""#, 1, &["frobnicate"]),
        (
            r#"-o ttl=yesterday "$2/store" "$1""#,
            1,
            &["ttl", "yesterday"],
        ),
        (r#"-o cache_size=-1 "$2/store" "$1""#, 1, &["cache-size"]),
        (
            r#"-o env_file=/missing/x "$2/store" "$1""#,
            32,
            &["/missing/x"],
        ),
        (r#""$2/store" "$2/nowhere""#, 32, &["nowhere"]),
    ] {
        let script = format!("mount -t zarrfs {arguments}");
        let refused = output_of(&mut with_helper(&place, &binary(), &script));
        refused.failed(code, words);
        place.assert_untouched();
        std::fs::remove_dir_all(place.join("sbin")).unwrap();
    }
    // With the sloppy option of mount(8), unknown options are ignored.
    let script = r#"mount -s -t zarrfs -o frobnicate=1 "$2/store" "$1"; umount "$1""#;
    output_of(&mut with_helper(&place, &binary(), script)).ok();
}

#[test]
fn a_mount_is_created_in_the_given_namespace() {
    if !is_root() {
        return skipped("needs root");
    }
    let place = Place::new();
    place.store();
    let script = r#"
        unshare -m --propagation private sleep 30 & other=$!
        trap 'kill $other' EXIT
        until [ "$(readlink /proc/$other/ns/mnt)" != "$(readlink /proc/self/ns/mnt)" ]; do sleep 0.01; done
        mount -N "/proc/$other/ns/mnt" -t zarrfs "$2/store" "$1"
        ! findmnt "$1"
        nsenter -m -t $other cat "$1/zarr.json"
        nsenter -m -t $other umount "$1"
    "#;
    let all = output_of(&mut with_helper(&place, &binary(), script));
    assert_eq!(all.ok().out, GROUP);
    let mut helper = Command::new("bash");
    let script = r#"exec -a mount.zarrfs "$1" "$2" "$3" -N /proc/self/ns/net"#;
    helper.args(["-c", script, "bash"]).arg(binary());
    let refused = output_of(helper.arg(place.join("store")).arg(&place.path));
    refused.failed(32, &["namespace /proc/self/ns/net"]);
    place.assert_untouched();
}

#[test]
fn a_mountpoint_that_vanishes_is_named_and_one_that_moves_is_unmounted() {
    let place = Place::new();
    let store = place.store();
    let above = place.make_dir("above");
    let point = place.make_dir("above/point");
    let mut mount = zarrfs();
    output_of(mount.arg(&store).arg(&point)).ok();
    let pid = daemon_of(&point);
    std::fs::rename(&above, place.join("moved to \\ a place")).unwrap();
    kill(pid, rustix::process::Signal::TERM);
    assert!(wait_until(Duration::from_secs(3), || !runs(pid)));
    assert!(place.mounted().is_empty(), "{:?}", place.mounted());
    let gone = output_of(mount.env("LC_ALL", "C"));
    gone.failed(32, &["above/point", "must be an existing directory"]);
    place.assert_untouched();
}

#[test]
fn the_last_value_of_a_repeated_option_applies() {
    let place = Place::new();
    let store = place.store();
    // The order of mount(8): options of the command line follow those of fstab.
    for args in [
        &["--umask", "077", "--umask", "027"][..],
        &["-o", "umask=077,ro,umask=027"],
        &["--umask=077", "-o", "umask=027"],
        &["--nonempty", "--nonempty", "-o", "nonempty,umask=027"],
    ] {
        place.mount(&store, args);
        use std::os::unix::fs::MetadataExt;
        let mode = std::fs::metadata(&place.path).unwrap().mode() & 0o777;
        assert_eq!(mode, 0o750, "{args:?}");
        place.unmount(&[]).ok();
    }
}

#[test]
fn a_user_without_fusermount3_mounts_in_namespaces_of_their_own() {
    let allowed = Command::new("unshare").args(["-Urm", "true"]).output();
    if !allowed.is_ok_and(|output| output.status.success()) {
        return skipped("needs user namespaces");
    }
    let place = Place::new();
    let store = place.store();
    let programs = place.make_dir("programs");
    for program in ["cat", "sh"] {
        std::os::unix::fs::symlink(format!("/bin/{program}"), programs.join(program)).unwrap();
    }
    let script = r#"trap '"$0" umount "$2"' EXIT; "$0" "$1" "$2" && cat "$2/zarr.json""#;
    let mut unshare = Command::new("/usr/bin/unshare");
    unshare.args(["-Urm", "sh", "-c", script]).arg(binary());
    unshare.arg(&store).arg(&place.path).env("PATH", &programs);
    let read = output_of(&mut unshare);
    assert_eq!(read.ok().out, GROUP);
    // The mount is invisible outside of the namespace.
    place.assert_untouched();
}
