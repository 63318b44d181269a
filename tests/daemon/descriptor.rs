//! `/dev/fd/N` as the mountpoint: an open /dev/fuse that another program has mounted. Descriptors of children.

use std::ffi::CString;
use std::fs::{self, File};
use std::io::IoSlice;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::mount::{MountFlags, UnmountFlags};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags};
use rustix::process::Signal;

use crate::place::*;
use crate::support::*;

/// Opens the device and mounts it on the mountpoint, as `apptainer --fusemount` does.
fn device(place: &Place) -> File {
    let device = File::options()
        .read(true)
        .write(true)
        .open("/dev/fuse")
        .unwrap();
    let data = format!(
        "fd={},rootmode=40000,user_id=0,group_id=0,allow_other",
        device.as_raw_fd()
    );
    let data = CString::new(data).unwrap();
    let flags = MountFlags::RDONLY | MountFlags::NODEV | MountFlags::NOSUID;
    rustix::mount::mount("fuse", &place.path, "fuse", flags, Some(data.as_c_str())).unwrap();
    // The started program inherits the descriptor.
    rustix::io::fcntl_setfd(&device, rustix::io::FdFlags::empty()).unwrap();
    device
}

#[test]
fn a_mounted_device_is_served() {
    if !is_root() {
        return skipped("only root mounts an open device");
    }
    let place = Place::new();
    let store = place.store();
    for is_foreground in [true, false] {
        let device = device(&place);
        let mut command = zarrfs();
        command
            .arg(&store)
            .arg(format!("/dev/fd/{}", device.as_raw_fd()));
        let log = place.join("log");
        command.arg("--log-file").arg(&log);
        if !is_foreground {
            output_of(&mut command).ok();
            drop(device);
            assert_serves(&place.path);
            rustix::mount::unmount(&place.path, UnmountFlags::empty()).unwrap();
            let is_gone = || place.processes().is_empty();
            assert!(wait_until(Duration::from_secs(5), is_gone));
            continue;
        }
        command
            .arg("-f")
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let mut daemon = Daemon::new(&mut command, place.join("stderr"));
        drop(device);
        assert_serves(&place.path);
        assert_eq!(daemon_of(&place.path), daemon.id());
        rustix::mount::unmount(&place.path, UnmountFlags::empty()).unwrap();
        daemon.ends_well(Duration::from_secs(5));
        let log = std::fs::read_to_string(&log).unwrap();
        assert!(log.contains(" is mounted on /dev/fd/"), "{log}");
    }
    // A signal ends the daemon, and with it the connection, although the mount is not its own.
    let device = device(&place);
    let mut command = zarrfs();
    command
        .arg(&store)
        .arg(format!("/dev/fd/{}", device.as_raw_fd()));
    command
        .arg("-f")
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    let mut daemon = Daemon::new(&mut command, place.join("stderr"));
    drop(device);
    assert_serves(&place.path);
    daemon.signal(Signal::TERM);
    assert!(daemon.ended(Duration::from_secs(4)).is_some());
    clean_up(&place.path);
}

/// Listens on a socket, and passes a descriptor, or only bytes, to the first program that connects.
fn passing_socket(path: &Path, passed: Option<File>) -> JoinHandle<()> {
    let listener = UnixListener::bind(path).unwrap();
    std::thread::spawn(move || {
        let (stream, _) = listener.accept().unwrap();
        let descriptors: Vec<_> = passed.iter().map(AsFd::as_fd).collect();
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !descriptors.is_empty() {
            control.push(SendAncillaryMessage::ScmRights(&descriptors));
        }
        let message = [IoSlice::new(br#"{"volumeName":"data"}"#)];
        rustix::net::sendmsg(&stream, &message, &mut control, SendFlags::empty()).unwrap();
    })
}

#[test]
fn a_device_that_a_socket_passes_is_served() {
    if !is_root() {
        return skipped("only root mounts an open device");
    }
    let place = Place::new();
    let store = place.store();
    let socket = place.join("socket");
    let program = passing_socket(&socket, Some(device(&place)));
    output_of(zarrfs().arg(&store).arg(&socket).arg("--mkdir")).ok();
    program.join().unwrap();
    assert_serves(&place.path);
    // The mount has the type of the program that made it.
    let stats = output_of(zarrfs().arg("stats").arg(&place.path));
    assert!(stats.ok().out.contains("  uptime "), "{stats:?}");
    rustix::mount::unmount(&place.path, UnmountFlags::empty()).unwrap();
    let is_gone = || place.processes().is_empty();
    assert!(wait_until(Duration::from_secs(5), is_gone));
}

#[test]
fn a_socket_that_passes_no_device_is_not_mounted() {
    let place = Place::new();
    let store = place.store();
    for (name, passed, words) in [
        ("bytes", None, "passes no descriptor"),
        (
            "file",
            Some(File::open("/dev/null").unwrap()),
            "not of an open /dev/fuse",
        ),
    ] {
        let socket = place.join(name);
        let program = passing_socket(&socket, passed);
        output_of(zarrfs().arg(&store).arg(&socket).arg("-f")).failed(32, &[name, words]);
        program.join().unwrap();
        // A program that has ended left its socket.
        output_of(zarrfs().arg(&store).arg(&socket).arg("-f")).failed(32, &[name, "refused"]);
    }
}

#[test]
fn a_descriptor_of_another_file_is_not_mounted() {
    let place = Place::new();
    let store = place.store();
    let mount = |descriptor: &str| output_of(zarrfs().arg(&store).arg(descriptor).arg("-f"));
    mount("/dev/fd/0").failed(32, &["/dev/fd/0", "not of an open /dev/fuse"]);
    mount("/dev/fd/77").failed(32, &["/dev/fd/77", "descriptor"]);
}

/// Runs a script with these arguments in a mount namespace of its own.
fn in_mount_namespace(script: &str, arguments: &[&Path]) -> CommandOutput {
    let mut alone = Command::new("unshare");
    alone.args(["--mount", "--propagation", "private", "bash", "-euc"]);
    output_of(
        alone
            .arg(script)
            .arg(zarrfs().get_program())
            .args(arguments),
    )
}

/// Mounts an open device on `$2`, as [`device`], and hides the name of the device.
const MOUNT_AND_HIDE: &str = r#"
    exec 9<>/dev/fuse
    mount -i -t fuse -o ro,fd=9,rootmode=40000,user_id=0,group_id=0,allow_other fuse "$2"
    mount --bind /dev/null /dev/fuse
"#;

#[test]
fn a_mounted_device_is_served_where_dev_fuse_cannot_be_opened() {
    if !is_root() {
        return skipped("only root mounts an open device");
    }
    let place = Place::new();
    let store = place.store();
    let script = format!(
        r#"{MOUNT_AND_HIDE}
        for threads in 1 4; do
            "$0" -f --threads $threads "$1" /dev/fd/9 9<&9 &
            exec 9>&-
            timeout 10 cat "$2/zarr.json" "$2/zarr.json"
            timeout 10 cmp "$2/a/c/0" "$1/a/c/0"
            umount "$2"
            wait $!
            echo " ended with $?"
            umount /dev/fuse
            {MOUNT_AND_HIDE}
        done
        # As a daemon, which needs no shell to keep the device open.
        "$0" "$1" /dev/fd/9
        exec 9>&-
        timeout 10 cat "$2/zarr.json"
        umount "$2"
        "#
    );
    let served = format!("{GROUP}{GROUP} ended with 0\n");
    let output = in_mount_namespace(&script, &[&store, &place.path]);
    assert_eq!(output.ok().out, format!("{served}{served}{GROUP}"));
}

#[test]
fn a_device_whose_mount_does_not_end_by_an_unmount_is_a_failure() {
    if !is_root() {
        return skipped("only root mounts an open device");
    }
    let place = Place::new();
    let store = place.store();
    let script = format!(
        r#"{MOUNT_AND_HIDE}
        "$0" -f "$1" /dev/fd/9 9<&9 & daemon=$!
        exec 9>&-
        timeout 10 stat "$2/zarr.json" > "$3/log"
        case "$4" in
            abort)
                mount -t fusectl none "$3/connections"
                echo 1 > "$3/connections/$(mountpoint -d "$2" | cut -d : -f 2)/abort" ;;
            *) kill -s "$4" $daemon ;;
        esac
        code=0; wait $daemon || code=$?
        echo "ended with $code"
        timeout 10 cat "$2/a/c/0" || true
        "#
    );
    place.make_dir("connections");
    for (how, code, word) in [
        ("abort", 32, "before the unmount"),
        ("TERM", 143, "mounted by another program"),
    ] {
        let end = [&*store, &place.path, place.dir(), Path::new(how)];
        let output = in_mount_namespace(&script, &end);
        let ended = format!("ended with {code}\n");
        assert_eq!(output.ok().out, ended, "{how}: {output:?}");
        assert!(output.err.contains(word), "{output:?}");
        let is_dead = output.err.contains("endpoint is not connected")
            || output.err.contains("connection abort");
        assert!(is_dead, "{output:?}");
    }
}

/// A script that writes the descriptors that it inherits to a file, and then does `rest`.
fn listing_script(place: &Place, name: &str, rest: &str) -> PathBuf {
    let (script, list) = (place.join(name), place.join("list"));
    let text = format!(
        "#!/bin/sh\nls -l /proc/self/fd > {list}.part\nmv {list}.part {list}\n{rest}\n",
        list = list.display()
    );
    fs::write(&script, text).unwrap();
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
    script
}

/// Asserts that a child of zarrfs had standard input, output and error and the directory that `ls` lists, no more.
#[track_caller]
fn assert_no_descriptors(list: &str) {
    let links = list.lines().filter_map(|line| line.split_once(" -> "));
    let numbers: Vec<&str> = links
        .map(|(entry, _)| entry.rsplit(' ').next().unwrap())
        .collect();
    assert_eq!(numbers, ["0", "1", "2", "3"], "{list}");
    assert!(!list.contains("/dev/fuse"), "{list}");
}

/// Opens a file that programs inherit.
fn inherited() -> File {
    let file = File::open("/etc/passwd").unwrap();
    rustix::io::fcntl_setfd(&file, rustix::io::FdFlags::empty()).unwrap();
    file
}

#[test]
fn a_credential_process_inherits_no_descriptors_and_does_not_keep_the_mount_alive() {
    if !is_root() {
        return skipped("only root mounts an open device");
    }
    let place = Place::new();
    let program = listing_script(
        &place,
        "credentials",
        "sleep 600 > /dev/null 2>&1 < /dev/null &\necho $! > \"$0.agent\"\n\
         echo '{\"Version\":1,\"AccessKeyId\":\"a\",\"SecretAccessKey\":\"b\"}'",
    );
    let profile = place.join("config");
    let text = format!("[default]\ncredential_process = {}\n", program.display());
    fs::write(&profile, text).unwrap();
    let (device, extra) = (device(&place), inherited());
    let mut command = zarrfs();
    command.args(["-f", "s3://bucket/ocean.zarr"]);
    command.arg(format!("/dev/fd/{}", device.as_raw_fd()));
    // No server has this port.
    command.args(["--endpoint-url", "http://127.0.0.1:1", "--retries", "0"]);
    command
        .env("AWS_CONFIG_FILE", &profile)
        .env("HOME", place.dir());
    command.env("AWS_EC2_METADATA_DISABLED", "true");
    for name in ["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE"] {
        command.env_remove(name);
    }
    command.stdout(Stdio::null()).stderr(Stdio::null());
    let mut daemon = Daemon::new(&mut command, place.join("stderr"));
    drop((device, extra));
    let status = daemon.ended(Duration::from_secs(30)).unwrap();
    let agent = fs::read_to_string(place.join("credentials.agent")).unwrap();
    let dead = run_for(
        Command::new("timeout").args(["5", "stat"]).arg(&place.path),
        Duration::from_secs(10),
    );
    kill(agent.trim().parse().unwrap(), Signal::KILL);
    clean_up(&place.path);
    assert_eq!(status.code(), Some(32));
    assert_no_descriptors(&fs::read_to_string(place.join("list")).unwrap());
    let error = String::from_utf8_lossy(&dead.stderr);
    assert!(error.contains("not connected"), "{error}");
}

#[test]
fn fusermount3_inherits_no_descriptors() {
    if !is_root() {
        return skipped("runs as nobody");
    }
    let place = Place::new();
    let store = place.store();
    let binary = place.open_to_nobody();
    listing_script(
        &place,
        "fusermount3",
        "PATH=/usr/bin:/bin exec fusermount3 \"$@\"",
    );
    let extra = inherited();
    let mut command = Command::new(&binary);
    command.arg(&store).arg(&place.path);
    let paths = format!("{}:/usr/bin:/bin", place.dir().display());
    output_of(as_nobody(&command).env("PATH", paths)).ok();
    drop(extra);
    assert_no_descriptors(&fs::read_to_string(place.join("list")).unwrap());
    place.unmount(&[]).ok();
}

#[test]
fn the_command_of_run_inherits_no_descriptors_of_zarrfs() {
    let list = output_of(zarrfs().args(["run", "demo:", "--", "ls", "-l", "/proc/self/fd"]));
    assert_no_descriptors(&list.ok().out);
}

#[test]
fn a_daemon_in_the_background_keeps_no_descriptor_of_its_caller() {
    if !is_root() {
        return skipped("only root sees the descriptors of a daemon");
    }
    let place = Place::new();
    let store = place.store();
    let files = |pid: u32| -> Vec<PathBuf> {
        let open = fs::read_dir(format!("/proc/{pid}/fd")).unwrap();
        let links = open.map(|entry| fs::read_link(entry.unwrap().path()));
        links.map(Result::unwrap).collect()
    };
    let held = |source: &Path| {
        let extra = inherited();
        let pid = place.mount(source, &[]);
        drop(extra);
        assert_serves(&place.path);
        let held = files(pid).contains(&PathBuf::from("/etc/passwd"));
        place.unmount(&[]).ok();
        held
    };
    assert!(!held(&store));
    // A source that is named by a descriptor stays open.
    let zip = File::open(place.zip_of(&store)).unwrap();
    rustix::io::fcntl_setfd(&zip, rustix::io::FdFlags::empty()).unwrap();
    assert!(held(Path::new(&format!("/dev/fd/{}", zip.as_raw_fd()))));
}

#[test]
fn a_device_that_is_not_mounted_is_refused() {
    let place = Place::new();
    let store = place.store();
    let device = File::options().read(true).write(true).open("/dev/fuse");
    let Ok(device) = device else {
        return skipped("/dev/fuse cannot be opened");
    };
    rustix::io::fcntl_setfd(&device, rustix::io::FdFlags::empty()).unwrap();
    let descriptor = format!("/dev/fd/{}", device.as_raw_fd());
    output_of(zarrfs().arg(&store).arg(descriptor)).failed(32, &["nothing is mounted"]);
}
