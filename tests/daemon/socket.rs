//! H7: the socket of `zarrfs stats`: its owner, and the users that get an answer.

use std::fs;
use std::io::Read;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use rustix::process::Signal;
use serde_json::Value;

use crate::place::*;
use crate::support::*;

/// Mounts `source` with its own directory for sockets.
#[track_caller]
fn mount(place: &Place, source: &Path) -> PathBuf {
    let mut command = place.command(source, &[]);
    output_of(command.env("XDG_RUNTIME_DIR", place.dir())).ok();
    let socket = xattr(&place.path, "user.zarrfs.socket");
    PathBuf::from(socket.expect("an attribute of the root directory with the socket"))
}

fn stats(place: &Place, args: &[&str]) -> CommandOutput {
    output_of(zarrfs().arg("stats").arg(&place.path).args(args))
}

#[test]
fn h07_the_socket_belongs_to_the_user_and_is_removed_with_the_mount() {
    let place = Place::new();
    let store = place.store();
    let me = rustix::process::geteuid().as_raw();
    for source in [&store, &place.zip_of(&store)] {
        let socket = mount(&place, source);
        let directory = place.join("zarrfs");
        let name = format!("{}.sock", daemon_of(&place.path));
        assert_eq!(socket, directory.join(name));
        let of = fs::symlink_metadata(&socket).unwrap();
        assert!(of.file_type().is_socket());
        assert_eq!((of.uid(), of.mode() & 0o7777), (me, 0o600));
        let of = fs::symlink_metadata(&directory).unwrap();
        assert_eq!((of.uid(), of.mode() & 0o7777), (me, 0o700));

        let json: Value = serde_json::from_str(&stats(&place, &["--json"]).ok().out).unwrap();
        for name in [
            "failed_requests",
            "panics",
            "inodes",
            "handles",
            "chunks_decoded",
        ] {
            assert!(json[name].is_u64(), "{name}: {json}");
        }
        assert!(json.get("store").is_none() && json.get("arrays").is_none());
        let table = stats(&place, &[]);
        assert!(table.ok().out.contains(" inode"), "{table:?}");

        place.unmount(&[]).ok();
        assert_eq!(fs::read_dir(&directory).unwrap().count(), 0);
    }
}

#[test]
fn h07_the_socket_is_removed_when_a_signal_ends_a_busy_mount() {
    let place = Place::new();
    let socket = mount(&place, &place.store());
    let pid = daemon_of(&place.path);
    let busy = fs::File::open(place.path.join("a/c/0")).unwrap();
    kill(pid, Signal::TERM);
    kill(pid, Signal::INT);
    kill(pid, Signal::INT);
    assert!(wait_until(Duration::from_secs(20), || !runs(pid)));
    assert!(!socket.exists());
    drop(busy);
}

#[test]
fn h07_the_next_daemon_removes_the_socket_of_a_killed_daemon() {
    let place = Place::new();
    let store = place.store();
    let socket = mount(&place, &store);
    kill_daemon(daemon_of(&place.path));
    assert!(socket.exists());
    stats(&place, &[]).failed(1, &["gone"]);
    let next = mount(&place, &store);
    assert!(!socket.exists() && next.exists());
    stats(&place, &[]).ok();
    place.unmount(&[]).ok();
}

#[test]
fn h07_other_users_are_refused() {
    if !is_root() {
        return skipped("needs root");
    }
    let place = Place::new();
    let store = place.store();
    let binary = place.open_to_nobody();
    let runtime = place.make_dir("runtime");
    let mut command = place.command(&store, &["--allow-other"]);
    output_of(command.env("XDG_RUNTIME_DIR", &runtime)).ok();
    let socket = PathBuf::from(xattr(&place.path, "user.zarrfs.socket").unwrap());
    assert!(socket.starts_with(&runtime), "{socket:?}");
    let stats_as_nobody = || {
        let mut stats = Command::new(&binary);
        output_of(&mut as_nobody(stats.arg("stats").arg(&place.path)))
    };
    stats_as_nobody().failed(1, &["only root and the user"]);
    // Access is denied even if the modes allow it.
    let open = |path: &Path, mode| {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    };
    open(socket.parent().unwrap(), 0o755);
    open(&socket, 0o666);
    let refused = stats_as_nobody();
    refused.failed(1, &["only root and the user"]);
    assert_eq!(refused.out, "");
    stats(&place, &[]).ok();
    place.unmount(&[]).ok();
}

#[test]
fn h07_user_nobody_and_root_read_the_stats_of_a_daemon_of_user_nobody() {
    if !is_root() {
        return skipped("needs root");
    }
    let place = Place::new();
    let store = place.store();
    let binary = place.open_to_nobody();
    // The runtime directory of root belongs to another user than `nobody`.
    let runtime = place.make_dir("runtime");
    let mut command = Command::new(&binary);
    let mut command = as_nobody(command.arg(&store).arg(&place.path));
    output_of(command.env("XDG_RUNTIME_DIR", &runtime)).ok();
    let mut getfattr = Command::new("getfattr");
    getfattr.args([
        "--absolute-names",
        "--only-values",
        "-n",
        "user.zarrfs.socket",
    ]);
    let output = output_of(&mut as_nobody(getfattr.arg(&place.path)));
    let socket = PathBuf::from(&output.ok().out);
    assert_eq!(socket.parent(), Some(Path::new("/tmp/zarrfs-65534")));
    assert_eq!(fs::metadata(&socket).unwrap().uid(), 65534);
    let mut stats = Command::new(&binary);
    output_of(&mut as_nobody(stats.arg("stats").arg(&place.path))).ok();
    let mut text = String::new();
    let mut stream = UnixStream::connect(&socket).unwrap();
    stream.read_to_string(&mut text).unwrap();
    assert!(text.starts_with('{'), "{text}");
    place.unmount(&[]).ok();
    assert!(wait_until(Duration::from_secs(5), || !socket.exists()));
}

#[test]
fn h07_hanging_clients_do_not_delay_other_clients() {
    let place = Place::new();
    let socket = mount(&place, &place.store());
    let hanging: Vec<_> = (0..50)
        .map(|_| UnixStream::connect(&socket).unwrap())
        .collect();
    for _ in 0..3 {
        let stats = zarrfs().arg("stats").arg(&place.path).spawn();
        let ended = wait_for(&mut stats.unwrap(), Duration::from_secs(2));
        assert!(ended.is_some_and(|status| status.success()));
    }
    assert_serves(&place.path);
    drop(hanging);
    place.unmount(&[]).ok();
}

#[test]
fn a_mount_without_a_directory_for_its_socket_reports_totals() {
    if !is_root() {
        return skipped("needs root");
    }
    let place = Place::new();
    let store = place.store();
    place.open_to_nobody();
    // Each candidate directory belongs to another user, in a separate mount namespace.
    let script = r#"
        mkdir "$2/foreign"; chown nobody "$2/foreign"
        mkdir -pm 700 /run/zarrfs /tmp/zarrfs-0
        mount --bind "$2/foreign" /run/zarrfs; mount --bind "$2/foreign" /tmp/zarrfs-0
        unset XDG_RUNTIME_DIR
        "$3" "$4" "$1" --log-file "$2/log"
        trap 'umount "$1"' EXIT
        cat "$1/zarr.json"
        "$3" stats "$1"
        getfattr --absolute-names -d "$1"
    "#;
    let mut command = Command::new("unshare");
    command.args(["-m", "bash", "-euc", script, "bash"]);
    command.arg(&place.path).arg(place.dir());
    let output = output_of(command.arg(zarrfs().get_program()).arg(&store));
    assert!(output.ok().out.starts_with(GROUP), "{output:?}");
    assert!(output.out.contains("inodes") && !output.out.contains("zarrfs.socket"));
    let log = fs::read_to_string(place.join("log")).unwrap();
    let warnings = log.lines().filter(|line| line.contains("no socket"));
    assert_eq!(warnings.count(), 1, "{log}");
    assert!(log.contains("belongs to user 65534"), "{log}");
}

#[test]
fn a_socket_of_another_program_is_not_removed() {
    let place = Place::new();
    let socket = mount(&place, &place.store());
    let other = socket.with_file_name("1.sock");
    let _listener = UnixListener::bind(&other).unwrap();
    let second = Place::new();
    let mut command = second.command(second.store(), &[]);
    output_of(command.env("XDG_RUNTIME_DIR", place.dir())).ok();
    assert!(other.exists() && socket.exists());
    stats(&place, &[]).ok();
    stats(&second, &[]).ok();
    second.unmount(&[]).ok();
    place.unmount(&[]).ok();
}
