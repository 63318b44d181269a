//! G6 and the errnos of names, types and permissions.

use std::fs::{self, File, Permissions};
use std::io::Read;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::process::Command;

use rustix::fs::{Access, Mode, OFlags};
use rustix::io::Errno;
use rustix::mount::{MountFlags, mount_remount};

use crate::clients::*;
use crate::sources::*;
use crate::support::*;

#[test]
fn g06_every_write_is_erofs() {
    let source = scratch();
    for source in both_kinds(source.path(), &tree()) {
        let mount = Mount::of_keys(&source, &["-o", "rw"]);
        let entry = mount_entry(mount.path()).unwrap();
        let options: Vec<&str> = entry.split(' ').nth(5).unwrap().split(',').collect();
        for option in ["ro", "nosuid", "nodev", "noexec"] {
            assert!(options.contains(&option), "{option} is missing in {entry}");
        }
        let wrong = client("writes.py", &[mount.path(), Path::new("a/big")]);
        assert_eq!(wrong.trim(), "", "on {source:?}");
    }
}

#[test]
fn g06_the_daemon_replies_erofs_even_if_the_kernel_sends_writes() {
    if !is_root() {
        return skipped("needs root");
    }
    let dir = scratch();
    let sources = both_kinds(dir.path(), &tree());
    for (source, args) in [
        (&sources[0], &[][..]),
        (&sources[0], &["--passthrough", "off"]),
        (&sources[1], &[]),
    ] {
        let mount = Mount::of_keys(source, args);
        let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
        mount_remount(mount.path(), flags, c"").unwrap();
        let before = fs::read(dir.path().join("archive.zip")).unwrap();
        let wrong = client(
            "writes.py",
            &[mount.path(), Path::new("a/big"), Path::new("daemon")],
        );
        assert_eq!(wrong.trim(), "", "on {source:?} {args:?}");
        assert!(
            fs::read(dir.path().join("archive.zip")).unwrap() == before,
            "the zip was written to"
        );
        for (name, content) in tree() {
            assert!(
                read(sources[0].join(&name)).unwrap() == content,
                "source file {name} was written to"
            );
        }
        assert_eq!(gauge(mount.path(), "panics"), 0);
    }
}

#[test]
fn g08_impossible_names_and_types_have_the_posix_errno() {
    let source = scratch();
    for source in both_kinds(source.path(), &tree()) {
        let mount = Mount::of_keys(&source, &[]);
        let stat = |name: &str| errno(fs::symlink_metadata(mount.join(name)));
        let raw = Errno::raw_os_error;
        for len in [256, 1024, 2000] {
            assert_eq!(
                stat(&"n".repeat(len)),
                raw(Errno::NAMETOOLONG),
                "a name of {len} bytes"
            );
            assert_eq!(
                stat(&format!("a/{}", "n".repeat(len))),
                raw(Errno::NAMETOOLONG),
                "a name of {len} bytes"
            );
        }
        assert_eq!(
            stat(&"d/".repeat(2100)),
            raw(Errno::NAMETOOLONG),
            "a path of 4200 bytes"
        );
        assert_eq!(stat(&"m".repeat(255)), ENOENT);
        assert!(fs::symlink_metadata(mount.join("a").join("n".repeat(255))).is_ok());
        assert_eq!(stat("absent"), ENOENT);
        assert_eq!(stat("absent/below"), ENOENT);
        assert_eq!(stat("zarr.json/below"), raw(Errno::NOTDIR));
        assert_eq!(stat("zarr.json/"), raw(Errno::NOTDIR));
        assert_eq!(
            errno(fs::read_dir(mount.join("zarr.json"))),
            raw(Errno::NOTDIR)
        );
        let open = |name: &str, flags| rustix::fs::open(mount.join(name), flags, Mode::empty());
        assert_eq!(open("a", OFlags::WRONLY).unwrap_err(), Errno::ISDIR);
        assert_eq!(
            open("zarr.json", OFlags::DIRECTORY).unwrap_err(),
            Errno::NOTDIR
        );
        let mut directory = File::open(mount.join("a")).unwrap();
        assert_eq!(errno(directory.read(&mut [0; 8])), raw(Errno::ISDIR));
        assert!(open("zarr.json", OFlags::RDONLY | OFlags::NOFOLLOW).is_ok());
        assert_eq!(
            rustix::fs::access(mount.join("zarr.json"), Access::READ_OK),
            Ok(())
        );
        assert_eq!(
            rustix::fs::access(mount.join("zarr.json"), Access::EXEC_OK).unwrap_err(),
            Errno::ACCESS
        );
        let mode = |name: &str| fs::metadata(mount.join(name)).unwrap().mode();
        assert_eq!(
            (mode("zarr.json"), mode("a"), mode("")),
            (0o100_644, 0o40_755, 0o40_755)
        );
    }
}

#[test]
fn a_file_the_daemon_may_not_read_is_eacces_and_not_absent() {
    if !is_root() {
        return skipped("needs root");
    }
    if fs::metadata("/dev/fuse").unwrap().mode() & 0o6 != 0o6 {
        return skipped("needs a /dev/fuse that everybody may open");
    }
    let source = scratch();
    let unreadable = source.path().join("unreadable");
    let closed = source.path().join("closed");
    fs::create_dir(&closed).unwrap();
    for path in [
        source.path().join("open"),
        unreadable.clone(),
        closed.join("below"),
    ] {
        fs::write(path, "content").unwrap();
    }
    for (path, mode) in [(source.path(), 0o755), (&unreadable, 0), (&closed, 0o700)] {
        fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
    }
    let nobody = [
        "setpriv",
        "--reuid=nobody",
        "--regid=nogroup",
        "--clear-groups",
        "--",
    ];
    let binary = zarrfs();
    let runnable = as_nobody(Command::new(binary.get_program()).arg("--version"))
        .output()
        .unwrap();
    if !runnable.status.success() {
        return skipped("needs a build directory that everybody may read");
    }
    let mount = Foreground::new(&nobody, &[], source.path(), &[]);
    let output_of_user = |program: &str, key: &str| {
        let mut command = as_nobody(Command::new(program).arg(mount.join(key)));
        let output = command.env("LC_ALL", "C").output().unwrap();
        String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned()
    };
    assert_eq!(output_of_user("cat", "open"), "content");
    for (program, key) in [
        ("cat", "unreadable"),
        ("ls", "closed"),
        ("cat", "closed/below"),
    ] {
        let text = output_of_user(program, key);
        assert!(
            text.contains("Permission denied"),
            "{program} {key}: {text}"
        );
    }
    assert!(output_of_user("ls", "absent").contains("No such file"));
    let warned = |key: &str| {
        mount
            .log()
            .lines()
            .any(|line| line.contains("WARN") && line.contains(key))
    };
    assert!(
        warned("unreadable") && warned("closed"),
        "the log does not say why: {}",
        mount.log()
    );
}
