//! `/dev/fd/N` as the mountpoint: an open /dev/fuse that another program has mounted.

use std::ffi::CString;
use std::fs::File;
use std::os::fd::AsRawFd;
use std::process::Stdio;
use std::time::Duration;

use rustix::mount::{MountFlags, UnmountFlags};
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

#[test]
fn a_descriptor_of_another_file_is_not_mounted() {
    let place = Place::new();
    let store = place.store();
    let mount = |descriptor: &str| output_of(zarrfs().arg(&store).arg(descriptor).arg("-f"));
    mount("/dev/fd/0").failed(32, &["/dev/fd/0", "not of an open /dev/fuse"]);
    mount("/dev/fd/77").failed(32, &["/dev/fd/77", "descriptor"]);
}
