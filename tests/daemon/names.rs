//! H4: names of sources and mountpoints with special characters.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::place::*;
use crate::support::*;

/// Names with a special meaning in a mount table, a list of options, a shell or a terminal.
const ODD: [&[u8]; 12] = [
    b"with spaces  ",
    b"a,allow_other,dev,suid,rw",
    b"x,fsname=other,subtype=ext4,max_read=4096",
    b"back\\slash\\",
    b"comma\\,allow_other",
    b"\\040octal\\012",
    b"line\nbreak mnt fuse.zarrfs rw 0 0\n",
    b"tab\tand \x1b[31mcolour",
    b"#comment=\"'`$(touch x)",
    "\u{fc}\u{f1}\u{ef}\u{e7}\u{f6}d\u{e9} \u{1f4c8}".as_bytes(),
    b"not \xff\xfe utf-8",
    b"a|b?c=d&e@f:g%2f*",
];

/// Asserts that a name has changed no flag or option of a mount.
fn assert_sane(mount: &Mounted, owner: u32) {
    assert_eq!(mount.kind, "fuse.zarrfs");
    for wanted in ["ro", "nosuid", "nodev", "noexec"] {
        assert!(mount.has(wanted), "{mount:?}");
    }
    let owner = format!("user_id={owner}");
    assert!(mount.has(&owner), "{mount:?}");
    let known = |option: &str| {
        let own = [
            "user_id=",
            "group_id=",
            "rootmode=",
            "max_read=",
            "blksize=",
        ];
        let bare = ["ro", "nosuid", "nodev", "noexec", "relatime", "noatime"];
        bare.contains(&option)
            || option == "default_permissions"
            || own.iter().any(|name| option.starts_with(name))
    };
    for option in &mount.options {
        assert!(known(option), "{option:?} was smuggled in: {mount:?}");
    }
    assert!(!mount.has("max_read=4096"), "{mount:?}");
}

fn odd(name: &[u8]) -> &Path {
    Path::new(OsStr::from_bytes(name))
}

/// Creates a directory and a zip with an odd name.
fn sources(place: &Place, name: &[u8]) -> [PathBuf; 2] {
    let store = place.make_dir("sources");
    let zip = store.join("zip");
    fs::rename(place.zip_of(&place.store()), &zip).unwrap();
    let directory = store.join(odd(name));
    fs::rename(place.join("store"), &directory).unwrap();
    let named = [name, b".zip"].concat();
    let archive = store.join(odd(&named));
    fs::rename(zip, &archive).unwrap();
    [directory, archive]
}

#[test]
fn h04_unusual_names_are_mounted_and_add_no_options() {
    let owner = rustix::process::geteuid().as_raw();
    for name in ODD {
        let place = Place::named(odd(name));
        for source in sources(&place, name) {
            place.attempt(&source, &[]).ok();
            assert_serves(&place.path);
            let [mount] = &place.mounted()[..] else {
                panic!("{:?}", place.mounted())
            };
            assert_eq!(mount.point, place.path);
            assert_sane(mount, owner);
            let origin = xattr(&place.path, "user.zarrfs.source");
            let readable = |text: &&str| !text.contains(char::is_control);
            if let Some(text) = std::str::from_utf8(name).ok().filter(readable) {
                assert!(origin.is_some_and(|o| o.contains(text)), "{text:?}");
            }
            place.unmount(&[]).ok();
            place.assert_untouched();
        }
    }
}

#[test]
fn h04_unusual_names_add_no_options_to_fusermount3() {
    if !is_root() {
        return skipped("needs root");
    }
    for name in ODD {
        let place = Place::named(odd(name));
        let sources = sources(&place, name);
        let binary = place.open_to_nobody();
        for source in sources {
            let mut command = Command::new(&binary);
            output_of(&mut as_nobody(command.arg(source).arg(&place.path))).ok();
            let [mount] = &place.mounted()[..] else {
                panic!("{:?}", place.mounted())
            };
            assert_eq!(mount.point, place.path);
            assert_sane(mount, 65534);
            let mut command = Command::new(&binary);
            output_of(&mut as_nobody(command.arg("umount").arg(&place.path))).ok();
            place.assert_untouched();
        }
    }
}

#[test]
fn h04_unusual_names_are_refused_in_one_line() {
    let place = Place::new();
    for name in ODD {
        let missing = place.join(odd(name));
        place.attempt(&missing, &[]).failed(32, &["no such file"]);
    }
    let not_unicode = std::ffi::OsString::from_vec(b"/missing/\xff".to_vec());
    place.attempt(&not_unicode, &[]).failed(32, &["/missing/"]);
    place.assert_untouched();
}

#[test]
fn h04_a_password_in_a_source_is_not_printed() {
    let place = Place::new();
    let log = place.join("log");
    for source in [
        "s3://key:hunter2@example/bucket",
        "https://user:hunter2@example/store.zarr?token=hunter2",
        "redis://:hunter2@example/0",
    ] {
        for args in [&[][..], &["-f"]] {
            let mut command = place.command(source, args);
            command
                .args(["--log-level", "debug", "--timeout", "2s", "--log-file"])
                .arg(&log);
            let refused = output_of(&mut command);
            assert_ne!(refused.code, Some(0), "{refused:?}");
            let all = [
                refused.out,
                refused.err,
                fs::read_to_string(&log).unwrap_or_default(),
            ];
            assert!(!all.concat().contains("hunter2"), "{all:?}");
            assert!(!all[1].is_empty());
        }
    }
    place.assert_untouched();
}
