//! H1, H2, H3 and ordinary users: access to a mount, and permission to mount.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use rustix::io::Errno;
use rustix::process::Signal;

use crate::place::*;
use crate::support::*;

/// Runs a client program with one argument as the user `nobody`.
fn run_as_nobody(program: &[&str], path: &Path) -> CommandOutput {
    let mut command = Command::new(program[0]);
    command.args(&program[1..]).arg(path);
    output_of(as_nobody(&command).env("LC_ALL", "C"))
}

/// Returns the modes of a directory and a file of the mount, and its owner and group.
fn modes(place: &Place) -> [u32; 4] {
    let directory = fs::metadata(&place.path).unwrap();
    let file = fs::metadata(place.path.join("a/c/0")).unwrap();
    assert_eq!((directory.uid(), directory.gid()), (file.uid(), file.gid()));
    [
        directory.mode() & 0o7777,
        file.mode() & 0o7777,
        file.uid(),
        file.gid(),
    ]
}

#[test]
fn h01_other_users_are_refused_without_allow_other() {
    if !is_root() {
        return skipped("needs root");
    }
    let place = Place::new();
    let store = place.store();
    place.open_to_nobody();
    run_as_nobody(&["ls"], &store).ok();
    for source in [&store, &place.zip_of(&store)] {
        place.mount(source, &[]);
        // Accesses by root must not allow those of other users.
        assert_serves(&place.path);
        for program in [&["ls"][..], &["stat"], &["find"]] {
            let refused = run_as_nobody(program, &place.path);
            assert_ne!(refused.code, Some(0), "{refused:?}");
            assert!(refused.err.contains("Permission denied"), "{refused:?}");
        }
        run_as_nobody(&["cat"], &place.path.join("zarr.json")).failed(1, &["permission denied"]);
        place.unmount(&[]).ok();
    }
}

#[test]
fn h01_even_root_is_refused_by_a_mount_of_an_ordinary_user() {
    if !is_root() {
        return skipped("needs root");
    }
    let place = Place::new();
    let store = place.store();
    let binary = place.open_to_nobody();
    let mut command = Command::new(&binary);
    output_of(&mut as_nobody(command.arg(&store).arg(&place.path))).ok();
    let sysadmin = fs::read_to_string("/sys/module/fuse/parameters/allow_sys_admin_access");
    if !sysadmin.is_ok_and(|on| on.trim() == "Y") {
        assert_eq!(
            errno(fs::read_dir(&place.path)),
            Errno::ACCESS.raw_os_error()
        );
    }
    // Root can unmount it anyway.
    let pid = place.processes()[0];
    place.unmount(&[]).ok();
    assert!(wait_until(Duration::from_secs(2), || !runs(pid)));
}

#[test]
fn h02_with_allow_other_all_users_read_and_the_kernel_checks_modes() {
    if !is_root() {
        return skipped("needs root");
    }
    let place = Place::new();
    let store = place.store();
    let zip = place.zip_of(&store);
    place.open_to_nobody();
    // The permissions of the daemon apply, not those of the caller.
    fs::set_permissions(&store, fs::Permissions::from_mode(0o700)).unwrap();
    run_as_nobody(&["ls"], &store).failed(2, &["permission denied"]);
    for source in [&store, &zip] {
        for option in [&["--allow-other"][..], &["-o", "allow_other"]] {
            place.mount(source, option);
            assert!(place.mounted()[0].has("allow_other"));
            assert!(place.mounted()[0].has("default_permissions"));
            assert_eq!(
                run_as_nobody(&["ls"], &place.path).ok().out,
                "a\nzarr.json\n"
            );
            let json = run_as_nobody(&["cat"], &place.path.join("zarr.json"));
            assert_eq!(json.ok().out, GROUP);
            assert_eq!(modes(&place)[..2], [0o755, 0o644]);
            place.unmount(&[]).ok();
        }
    }
}

#[test]
fn h02_modes_do_not_depend_on_the_source() {
    let place = Place::new();
    let store = place.store();
    let me = [
        rustix::process::geteuid().as_raw(),
        rustix::process::getegid().as_raw(),
    ];
    for (directory, file) in [(0o777, 0o777), (0o700, 0o400), (0o1777, 0o6755)] {
        let mode = fs::Permissions::from_mode;
        fs::set_permissions(&store, mode(directory)).unwrap();
        fs::set_permissions(store.join("a/c/0"), mode(file)).unwrap();
        for source in [&store, &place.zip_of(&store)] {
            place.mount(source, &[]);
            assert_eq!(modes(&place), [0o755, 0o644, me[0], me[1]]);
            place.unmount(&[]).ok();
        }
    }
}

#[test]
fn h02_options_set_owner_group_and_umask() {
    if !is_root() {
        return skipped("needs root");
    }
    let place = Place::new();
    let store = place.store();
    place.open_to_nobody();
    for (umask, directory, file) in [
        ("0", 0o755, 0o644),
        ("022", 0o755, 0o644),
        ("0027", 0o750, 0o640),
        ("77", 0o700, 0o600),
        ("777", 0, 0),
    ] {
        let args = ["--allow-other", "--uid", "1234", "--gid", "2345", "--umask"];
        place.mount(&store, &[&args[..], &[umask]].concat());
        assert_eq!(modes(&place), [directory, file, 1234, 2345]);
        let listed = run_as_nobody(&["ls"], &place.path);
        if directory & 0o005 == 0 {
            listed.failed(2, &["permission denied"]);
        } else {
            listed.ok();
        }
        let mut owner = Command::new("setpriv");
        owner.args(["--reuid=1234", "--regid=9999", "--clear-groups", "ls"]);
        let listed = output_of(owner.arg(&place.path));
        assert_eq!(listed.code == Some(0), directory & 0o500 != 0, "{listed:?}");
        place.unmount(&[]).ok();
    }
}

#[test]
fn h02_a_copy_by_an_ordinary_user_can_be_changed_and_removed() {
    if !is_root() {
        return skipped("needs root");
    }
    let place = Place::new();
    let store = place.store();
    place.open_to_nobody();
    let own = place.make_dir("own");
    fs::set_permissions(&own, fs::Permissions::from_mode(0o777)).unwrap();
    for source in [&store, &place.zip_of(&store)] {
        place.mount(source, &["--allow-other", "--views", "list"]);
        let script = r#"
            cd "$1"
            ! test -w "$1" || exit 3
            ! touch "$1/new" || exit 4
            umask 022
            cp -r "$1" ../own/copy
            echo more >> ../own/copy/zarr.json
            touch ../own/copy/a/c/new
            rm -r ../own/copy
        "#;
        run_as_nobody(&["bash", "-euc", script, "bash"], &place.path).ok();
        let writable = rustix::fs::access(&place.path, rustix::fs::Access::WRITE_OK);
        assert_eq!(writable, Err(Errno::ROFS), "as root");
        let file = place.path.join("zarr.json");
        let writable = rustix::fs::access(&file, rustix::fs::Access::WRITE_OK);
        assert_eq!(writable, Err(Errno::ROFS), "as root");
        place.unmount(&[]).ok();
    }
}

#[test]
fn h03_the_mount_is_always_readonly_nosuid_nodev_noexec() {
    let place = Place::new();
    let store = place.store();
    fs::write(store.join("program"), "#!/bin/sh\necho ran\n").unwrap();
    let executable = fs::Permissions::from_mode(0o4755);
    fs::set_permissions(store.join("program"), executable).unwrap();
    for source in [&store, &place.zip_of(&store)] {
        for options in [
            &[][..],
            &["-o", "rw,dev,suid,exec"],
            &["-orw", "-odev,suid"],
        ] {
            place.mount(source, options);
            let [mount] = &place.mounted()[..] else {
                panic!("{:?}", place.mounted())
            };
            assert_eq!(mount.kind, "fuse.zarrfs");
            for flag in ["ro", "nosuid", "nodev", "noexec"] {
                assert!(mount.has(flag), "{options:?}: {mount:?}");
            }
            for flag in ["rw", "suid", "dev", "exec"] {
                assert!(!mount.has(flag), "{options:?}: {mount:?}");
            }
            let program = place.path.join("program");
            let run = Command::new(&program).output();
            assert_eq!(errno(run), Errno::ACCESS.raw_os_error());
            let new = fs::write(place.path.join("new"), "");
            assert_eq!(errno(new), Errno::ROFS.raw_os_error());
            place.unmount(&[]).ok();
        }
    }
}

#[test]
fn user_nobody_mounts_lists_reads_and_unmounts() {
    if !is_root() {
        return skipped("needs root");
    }
    let place = Place::new();
    let store = place.store();
    let zip = place.zip_of(&store);
    let binary = place.open_to_nobody();
    for source in [&store, &zip] {
        let mut command = Command::new(&binary);
        command
            .arg(source)
            .arg(&place.path)
            .args(["-o", "rw,dev,suid"]);
        output_of(&mut as_nobody(&command)).ok();
        let [mount] = &place.mounted()[..] else {
            panic!("{:?}", place.mounted())
        };
        for option in ["ro", "nosuid", "nodev", "noexec", "user_id=65534"] {
            assert!(mount.has(option), "{option}: {mount:?}");
        }
        assert_eq!(
            run_as_nobody(&["ls"], &place.path).ok().out,
            "a\nzarr.json\n"
        );
        let same = run_as_nobody(
            &["cmp", store.join("a/c/0").to_str().unwrap()],
            &place.path.join("a/c/0"),
        );
        same.ok();
        let shown = run_as_nobody(&["stat", "-c", "%a %u %g"], &place.path.join("zarr.json"));
        assert_eq!(shown.ok().out, "644 65534 65534\n");

        let pid = place.processes()[0];
        let unmount = [binary.to_str().unwrap(), "umount"];
        run_as_nobody(&unmount, &place.path).ok();
        assert!(!runs(pid));
        place.assert_untouched();
    }
}

#[test]
fn a_daemon_of_user_nobody_ends_on_a_signal_and_is_recovered_when_killed() {
    if !is_root() {
        return skipped("needs root");
    }
    let place = Place::new();
    let store = place.store();
    let binary = place.open_to_nobody();
    let mount = [binary.to_str().unwrap(), store.to_str().unwrap()];
    for signal in [Signal::TERM, Signal::INT, Signal::HUP] {
        run_as_nobody(&mount, &place.path).ok();
        let pid = place.processes()[0];
        kill(pid, signal);
        assert!(wait_until(Duration::from_secs(3), || !runs(pid)));
        place.assert_untouched();
    }

    run_as_nobody(&mount, &place.path).ok();
    kill_daemon(place.processes()[0]);
    run_as_nobody(&["ls"], &place.path).failed(2, &["not connected"]);
    run_as_nobody(&mount, &place.path).ok();
    assert_eq!(
        run_as_nobody(&["ls"], &place.path).ok().out,
        "a\nzarr.json\n"
    );
    assert_eq!(place.mounted().len(), 1, "the dead mount is still mounted");
    run_as_nobody(&[mount[0], "umount"], &place.path).ok();
    place.assert_untouched();
}

#[test]
fn user_nobody_cannot_unmount_a_mount_of_root() {
    if !is_root() {
        return skipped("needs root");
    }
    let place = Place::new();
    let binary = place.open_to_nobody();
    for args in [&[][..], &["--allow-other"]] {
        let pid = place.mount(place.store_named(format!("store{}", args.len())), args);
        for lazy in [&["umount"][..], &["umount", "--lazy"]] {
            let unmount = [&[binary.to_str().unwrap()], lazy].concat();
            run_as_nobody(&unmount, &place.path).failed(1, &["mnt"]);
        }
        assert_serves(&place.path);
        assert!(runs(pid));
        place.unmount(&[]).ok();
    }
}

#[test]
fn user_nobody_cannot_mount_on_a_directory_of_another_user() {
    if !is_root() {
        return skipped("needs root");
    }
    let place = Place::new();
    let store = place.store();
    let foreign = place.make_dir("foreign");
    let binary = place.open_to_nobody();
    let mount = [binary.to_str().unwrap(), store.to_str().unwrap()];
    run_as_nobody(&mount, &foreign).failed(32, &["foreign", "access|permission", "of their own"]);

    let secret = place.store_named("secret");
    fs::set_permissions(&secret, fs::Permissions::from_mode(0o700)).unwrap();
    let mount = [binary.to_str().unwrap(), secret.to_str().unwrap()];
    run_as_nobody(&mount, &place.path).failed(32, &["secret", "permission denied"]);
    place.assert_untouched();
}

/// Runs a script with `$mount` (the binary and a source), the mountpoint as `$1` and a scratch
/// directory as `$2`, in a separate mount namespace that no other process sees.
fn in_a_namespace(place: &Place, binary: &Path, store: &Path, script: &str) -> CommandOutput {
    let prelude = format!(
        "as_nobody() {{ setpriv --reuid=nobody --regid=nogroup --clear-groups -- \"$@\"; }}\n\
         mount=({binary:?} {store:?} \"$1\")\n{script}"
    );
    let mut command = Command::new("unshare");
    command.args(["-m", "bash", "-euc", &prelude, "bash"]);
    output_of(command.arg(&place.path).arg(place.dir()).env("LC_ALL", "C"))
}

#[test]
fn h02_an_ordinary_user_needs_user_allow_other() {
    if !is_root() {
        return skipped("needs root");
    }
    let place = Place::new();
    let store = place.store();
    let binary = place.open_to_nobody();
    let without = r#"
        : > "$2/conf"; mount --bind "$2/conf" /etc/fuse.conf
        as_nobody "${mount[@]}" --allow-other
    "#;
    in_a_namespace(&place, &binary, &store, without)
        .failed(32, &["user_allow_other", "administrator"]);
    place.assert_untouched();

    let with = r#"
        echo user_allow_other > "$2/conf"; mount --bind "$2/conf" /etc/fuse.conf
        as_nobody "${mount[@]}" --allow-other
        trap 'as_nobody "${mount[0]}" umount "$1"' EXIT
        ls "$1"
        setpriv --reuid=1234 --regid=1234 --clear-groups ls "$1"
    "#;
    let listed = in_a_namespace(&place, &binary, &store, with);
    assert_eq!(listed.ok().out, "a\nzarr.json\na\nzarr.json\n");
    place.assert_untouched();
}

#[test]
fn a_missing_fusermount3_is_named() {
    if !is_root() {
        return skipped("needs root");
    }
    let place = Place::new();
    let store = place.store();
    let binary = place.open_to_nobody();
    let not_in_path = r#"
        setpriv=$(type -p setpriv)
        export PATH=/nonexistent
        exec "$setpriv" --reuid=nobody --regid=nogroup --clear-groups -- "${mount[@]}"
    "#;
    let not_allowed = r#"
        for name in fusermount3 fusermount; do
            for dir in /bin /usr/bin /usr/local/bin; do
                if [ -e "$dir/$name" ]; then mount --bind /dev/null "$dir/$name"; fi
            done
        done
        as_nobody "${mount[@]}"
    "#;
    for script in [not_in_path, not_allowed] {
        in_a_namespace(&place, &binary, &store, script).failed(
            32,
            &["fusermount3", "mnt|fusermount3 has failed", "fuse3|exit"],
        );
        place.assert_untouched();
    }
}

#[test]
fn a_device_that_cannot_be_opened_is_named() {
    if !is_root() {
        return skipped("needs root");
    }
    let place = Place::new();
    let store = place.store();
    let binary = place.open_to_nobody();
    let private = r#"
        mkdir "$2/dev"; mount -t tmpfs -o mode=755 none "$2/dev"
        mknod -m 600 "$2/dev/fuse" c 10 229
        mount --bind "$2/dev/fuse" /dev/fuse
        as_nobody "${mount[@]}"
    "#;
    in_a_namespace(&place, &binary, &store, private)
        .failed(32, &["/dev/fuse", "permission denied", "mode 0666"]);
    place.assert_untouched();

    let missing = r#"
        mkdir "$2/no-dev"; mount -t tmpfs -o mode=755 none "$2/no-dev"
        touch "$2/no-dev/null"; mount --bind /dev/null "$2/no-dev/null"
        mount --rbind "$2/no-dev" /dev
        "${mount[@]}"
    "#;
    in_a_namespace(&place, &binary, &store, missing).failed(
        32,
        &[
            "mnt",
            "/dev/fuse",
            "no such file",
            "modprobe fuse",
            "--device /dev/fuse",
        ],
    );
    place.assert_untouched();
}

/// Simulates a container with the device, but without the permission to mount.
#[test]
fn a_mount_without_rights_in_a_container_names_the_required_options() {
    if !is_root() {
        return skipped("needs root");
    }
    let place = Place::new();
    let store = place.store();
    let mut command = Command::new("setpriv");
    command.args(["--bounding-set=-sys_admin", "--inh-caps=-sys_admin"]);
    command
        .arg(zarrfs().get_program())
        .arg(&store)
        .arg(&place.path);
    let refused = output_of(command.env("LC_ALL", "C"));
    refused.failed(
        32,
        &["not permitted", "--cap-add SYS_ADMIN", "--device /dev/fuse"],
    );
    place.assert_untouched();
}

#[test]
fn a_fusermount3_without_setuid_is_named_with_the_one_to_use() {
    if !is_root() {
        return skipped("runs as nobody");
    }
    let place = Place::new();
    let store = place.store();
    let binary = place.open_to_nobody();
    let programs = place.make_dir("bin");
    let own = programs.join("fusermount3");
    fs::copy("/usr/bin/fusermount3", &own).unwrap();
    fs::set_permissions(&own, fs::Permissions::from_mode(0o755)).unwrap();
    run(Command::new("chmod").arg("a+rx").arg(&programs));
    let mount = |before: &str| {
        let mut command = Command::new("setpriv");
        command.args(before.split_whitespace());
        command.args(["--reuid=nobody", "--regid=nogroup", "--clear-groups", "--"]);
        command.arg(&binary).arg(&store).arg(&place.path);
        output_of(command.env("PATH", format!("{}:/usr/bin:/bin", programs.display())))
    };
    let named = format!("{} is not setuid root", own.display());
    mount("").failed(
        32,
        &["not permitted", &named, "put /usr/bin before it in path"],
    );
    mount("--no-new-privs").failed(32, &["no_new_privs", "NoNewPrivileges=no"]);
    assert!(!is_mounted(&place.path));
}
