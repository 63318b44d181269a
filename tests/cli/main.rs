//! Level: the command line, as users, scripts, fstab and mount(8) use it: accepted and refused
//! options, and the exit codes (0 success, 1 failure, 2 usage, 32 mount failed).

#![allow(missing_docs, missing_debug_implementations, unreachable_pub)]
#![allow(clippy::unwrap_used, clippy::expect_used)]

#[path = "../support/mod.rs"]
mod support;

use support::place;

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use place::*;
use support::*;

/// Every option of a mount with a valid value that is not the default; "" means no value.
const OPTIONS: [(&str, &str); 17] = [
    ("path", "a"),
    ("ttl", "500ms"),
    ("threads", "3"),
    ("cache-size", "64MiB"),
    ("memory-limit", "1GiB"),
    ("allow-other", ""),
    ("uid", "1234"),
    ("gid", "2345"),
    ("umask", "027"),
    ("verify", ""),
    ("strict", ""),
    ("follow-symlinks", ""),
    ("force", ""),
    ("nonempty", ""),
    ("passthrough", "off"),
    ("log-file", "LOG"),
    ("log-level", "debug"),
];

/// Options of mount(8) that are accepted without effect.
const GENERIC: [&str; 15] = [
    "defaults",
    "ro",
    "rw",
    "dev",
    "nodev",
    "suid",
    "nosuid",
    "noexec",
    "noatime",
    "noauto",
    "nofail",
    "_netdev",
    "user",
    "x-systemd.automount",
    "x-foo=bar",
];

/// Invalid values, each with the option that must refuse it.
const BAD_VALUES: [(&str, &str); 27] = [
    ("ttl", "yesterday"),
    ("ttl", ""),
    ("ttl", "1 parsec"),
    ("ttl", "1.5.2s"),
    ("ttl", "nan"),
    ("threads", "many"),
    ("threads", "0"),
    ("threads", "1.5"),
    ("cache-size", "12parsecs"),
    ("cache-size", ""),
    ("cache-size", "MiB"),
    ("cache-size", "99999999999999999999"),
    ("cache-size", "99999999EiB"),
    ("memory-limit", "lots"),
    ("memory-limit", "1GiBs"),
    ("uid", "root!"),
    ("uid", "4294967296"),
    ("gid", "1.0"),
    ("umask", "9"),
    ("umask", "0o77"),
    ("umask", "77777777777"),
    ("umask", ""),
    ("passthrough", "maybe"),
    ("log-level", "nonsense"),
    ("timeout", "0"),
    ("views", "some"),
    ("formats", "npy+jpeg"),
];

fn zarrfs_with(args: &[&str]) -> CommandOutput {
    output_of(zarrfs().args(args))
}

#[test]
fn help_and_version_are_on_stdout() {
    let help = zarrfs_with(&["--help"]);
    help.ok();
    assert!(help.err.is_empty(), "{}", help.err);
    for word in ["mount", "umount", "demo", "SOURCE", "MOUNTPOINT"] {
        assert!(help.out.contains(word), "no {word} in {}", help.out);
    }
    let mount = zarrfs_with(&["mount", "--help"]);
    for (option, _) in OPTIONS {
        let option = format!("--{option}");
        assert!(
            mount.ok().out.contains(&option),
            "no {option} in {}",
            mount.out
        );
    }
    let umount = zarrfs_with(&["umount", "--help"]);
    assert!(umount.ok().out.contains("--lazy"), "{}", umount.out);
    zarrfs_with(&["demo", "--help"]).ok();

    let version = zarrfs_with(&["-V"]);
    let expected = format!("zarrfs {}\n", env!("CARGO_PKG_VERSION"));
    assert_eq!(version.ok().out, expected);
    let version = zarrfs_with(&["--version"]);
    assert!(version.ok().out.starts_with(&expected), "{version:?}");
}

#[test]
fn help_to_a_closed_pipe_causes_no_panic() {
    let script = r#""$1" --help 2>&1 >/dev/full | cat; "$1" --help 2>&1 | head -c 1 >/dev/null"#;
    let mut shell = Command::new("bash");
    shell.args(["-c", script, "bash"]);
    let shell = output_of(shell.arg(zarrfs().get_program()));
    assert!(!(shell.out + &shell.err).contains("panicked"));
}

#[test]
fn an_unknown_option_is_a_usage_error_that_names_it() {
    let place = Place::new();
    let (store, mnt) = (place.store(), place.path.to_str().unwrap());
    let store = store.to_str().unwrap();
    for args in [
        &["--frobnicate", store, mnt][..],
        &[store, mnt, "--frobnicate"],
        &[store, mnt, "--frobnicate=1"],
        &["mount", store, mnt, "--frobnicate"],
        &["umount", mnt, "--frobnicate"],
        &["demo", mnt, "--frobnicate"],
        &[store, mnt, "-o", "frobnicate"],
        &[store, mnt, "-o", "frobnicate=1"],
        &[store, mnt, "-o", "ro,uid=1,frobnicate,gid=1"],
        &[store, mnt, "-o", "ro", "-ofrobnicate"],
        &["demo", mnt, "-o", "frobnicate"],
    ] {
        zarrfs_with(args).failed(2, &["frobnicate"]);
    }
    place.assert_untouched();
}

#[test]
fn a_misspelled_option_is_an_error() {
    let place = Place::new();
    for option in [
        "UID=1",
        "uid:1",
        "cache_siz=1MiB",
        "allow_othe",
        "help",
        "o=ro",
        "source=x",
    ] {
        let name = option.split(['=', ':']).next().unwrap();
        place
            .attempt(place.dir(), &["-o", option])
            .failed(2, &[name]);
    }
    place.assert_untouched();
}

#[test]
fn missing_and_superfluous_arguments_are_usage_errors() {
    let place = Place::new();
    let (store, mnt) = (place.store(), place.path.to_str().unwrap());
    let store = store.to_str().unwrap();
    for args in [
        &[][..],
        &["mount"],
        &[store, mnt, "-o"],
        &[store, mnt, "superfluous"],
        &["umount"],
        &["umount", "--all", mnt],
        &["demo"],
        &[store, mnt, "--uid"],
    ] {
        let refused = zarrfs_with(args);
        assert_eq!(refused.code, Some(2), "{args:?}: {refused:?}");
        assert!(!refused.err.is_empty());
    }
    place.assert_untouched();
}

#[test]
fn a_bad_value_is_a_usage_error_that_names_the_option() {
    let place = Place::new();
    let store = place.store();
    for (option, value) in BAD_VALUES {
        let underscored = option.replace('-', "_");
        let named = format!("{option}|{underscored}");
        let long = format!("--{option}={value}");
        let short = format!("{underscored}={value}");
        for args in [&[long.as_str()][..], &["-o", &short]] {
            place.attempt(&store, args).failed(2, &[&named, value]);
        }
    }
    for option in ["uid", "ttl", "cache_size"] {
        place.attempt(&store, &["-o", option]).failed(2, &[option]);
    }
    place.assert_untouched();
}

/// Returns the visible effects of the options in [`OPTIONS`].
fn effects(place: &Place) -> (Vec<String>, [u32; 4]) {
    let names = fs::read_dir(&place.path).unwrap();
    let names = names.map(|e| e.unwrap().file_name().into_string().unwrap());
    let directory = fs::metadata(&place.path).unwrap();
    let file = fs::metadata(place.path.join("c/0")).unwrap();
    let modes = [
        directory.mode() & 0o777,
        file.mode() & 0o777,
        file.uid(),
        file.gid(),
    ];
    (names.collect(), modes)
}

#[test]
fn every_long_option_is_also_an_o_option() {
    if !is_root() {
        return skipped("needs root");
    }
    let place = Place::new();
    let store = place.store();
    let log = place.join("log");
    let options = OPTIONS.map(|(name, value)| match value {
        "LOG" => (name, log.to_str().unwrap()),
        _ => (name, value),
    });
    let long: Vec<String> = options
        .iter()
        .flat_map(|(name, value)| {
            let name = format!("--{name}");
            if value.is_empty() {
                vec![name]
            } else {
                vec![name, (*value).to_owned()]
            }
        })
        .collect();
    let short: Vec<String> = options
        .iter()
        .map(|(name, value)| {
            let name = name.replace('-', "_");
            if value.is_empty() {
                name
            } else {
                format!("{name}={value}")
            }
        })
        .collect();
    let together = vec!["-o".to_owned(), short.join(",")];
    let one_by_one: Vec<_> = short.iter().map(|option| format!("-o{option}")).collect();
    let (some, others) = short.split_at(8);
    let mixed = ["-o", &some.join(","), "-o", &others.join(",")].map(str::to_owned);

    for args in [long, together, one_by_one, mixed.to_vec()] {
        let args: Vec<_> = args.iter().map(String::as_str).collect();
        place.mount(&store, &args);
        assert_eq!(
            effects(&place),
            (vec!["c".to_owned()], [0o750, 0o640, 1234, 2345]),
            "{args:?}"
        );
        assert!(place.mounted()[0].has("allow_other"), "{args:?}");
        assert!(log.exists(), "{args:?}");
        place.unmount(&[]).ok();
        fs::remove_file(&log).unwrap();
    }
}

#[test]
fn in_the_foreground_the_command_is_the_daemon() {
    let place = Place::new();
    let store = place.store();
    for foreground in ["-f", "--foreground"] {
        let mut command = place.command(&store, &[foreground]);
        let mut daemon = Daemon::new(&mut command, place.join("none"));
        assert!(wait_until(Duration::from_secs(10), || place.is_mounted()));
        assert_eq!(daemon_of(&place.path), daemon.id());
        daemon.signal(rustix::process::Signal::TERM);
        daemon.ends_well(Duration::from_secs(3));
    }
}

#[test]
fn the_word_mount_is_optional() {
    let place = Place::new();
    place.store_named("demo");
    place.store_named("umount");
    for args in [
        &["mount", "demo", "mnt"][..],
        &["mount", "umount", "mnt"],
        &["./demo", "mnt"],
        &["-o", "ro", "./umount", "mnt"],
        &["./demo", "-o", "ro", "mnt", "--ttl", "inf"],
    ] {
        output_of(zarrfs().args(args).current_dir(place.dir())).ok();
        assert_serves(&place.path);
        place.unmount(&[]).ok();
    }
}

#[test]
fn a_successful_mount_prints_nothing() {
    let place = Place::new();
    let store = place.store();
    for source in [&store, &place.zip_of(&store)] {
        let mounted = place.attempt(source, &[]);
        assert_eq!((mounted.out.as_str(), mounted.err.as_str()), ("", ""));
        let unmounted = place.unmount(&[]);
        assert_eq!((unmounted.out.as_str(), unmounted.err.as_str()), ("", ""));
    }
}

#[test]
fn the_options_of_mount_8_are_accepted() {
    let place = Place::new();
    let store = place.store();
    let all = GENERIC.join(",");
    for options in ["ro,dev,suid,noauto,x-foo=bar", "rw,dev,suid", &all, ""] {
        place.mount(&store, &["-o", options]);
        assert_serves(&place.path);
        let [mount] = &place.mounted()[..] else {
            panic!("{:?}", place.mounted())
        };
        for flag in ["ro", "nosuid", "nodev", "noexec"] {
            assert!(mount.has(flag), "{options}: {mount:?}");
        }
        place.unmount(&[]).ok();
    }
}

#[test]
fn mount_8_mounts_and_umount_8_unmounts() {
    if !is_root() {
        return skipped("needs root");
    }
    if !Path::new("/sbin/mount.fuse3").exists() {
        return skipped("needs mount.fuse3");
    }
    let place = Place::named("a place, to mount");
    let store = place.store_named("a store, with odd 'name'");
    // mount(8) splits a type at its dots, so the path of the binary must not contain any.
    let binary = place.open_to_nobody();
    let kind = format!("fuse.{}", binary.to_str().unwrap());
    for options in [
        "ro",
        "defaults,rw,noauto,user,nofail,_netdev,x-foo=bar,uid=1234,umask=077,allow_other",
    ] {
        let mut mount = Command::new("mount");
        mount.args(["-t", &kind, "-o", options]);
        output_of(mount.arg(&store).arg(&place.path)).ok();
        assert_serves(&place.path);
        let [mount] = &place.mounted()[..] else {
            panic!("{:?}", mounts())
        };
        for flag in ["ro", "nosuid", "nodev", "noexec"] {
            assert!(mount.has(flag), "{mount:?}");
        }
        let file = fs::metadata(place.path.join("a/c/0")).unwrap();
        if options.contains("uid") {
            assert_eq!((file.uid(), file.mode() & 0o777), (1234, 0o600));
        }
        let pid = daemon_of(&place.path);
        output_of(Command::new("umount").arg(&place.path)).ok();
        assert!(wait_until(Duration::from_secs(2), || !runs(pid)));
        place.assert_untouched();
    }

    let mut mount = Command::new("mount");
    mount.args(["-t", &kind]).arg(place.join("missing"));
    let refused = output_of(mount.arg(&place.path));
    refused.failed(32, &["missing", "no such file"]);
    let mut mount = Command::new("mount");
    mount.args(["-t", &kind, "-o", "frobnicate"]).arg(&store);
    let refused = output_of(mount.arg(&place.path));
    assert_ne!(refused.code, Some(0));
    assert!(refused.err.contains("frobnicate"), "{refused:?}");
    place.assert_untouched();
}

#[test]
fn an_invalid_source_is_named() {
    let place = Place::new();
    let text = place.join("notes.txt");
    fs::write(&text, "neither a directory nor an archive".repeat(100)).unwrap();
    let fifo = place.join("pipe");
    run(Command::new("mkfifo").arg(&fifo));
    for (source, words) in [
        (place.join("missing"), &["missing", "no such file"][..]),
        (
            place.join("missing/inside"),
            &["missing/inside", "no such file"],
        ),
        (text.clone(), &["notes.txt", "zip"]),
        (text.join("below"), &["notes.txt/below", "not a directory"]),
        (fifo, &["pipe", "neither a directory nor a zip"]),
        (
            "/dev/null".into(),
            &["/dev/null", "neither a directory nor a zip"],
        ),
        ("".into(), &["no such file|empty"]),
    ] {
        for args in [&[][..], &["-f"]] {
            let refused = place.attempt(&source, args);
            if source.as_os_str().is_empty() {
                assert!(matches!(refused.code, Some(2 | 32)), "{refused:?}");
            } else {
                refused.failed(32, words);
            }
        }
    }
    place.assert_untouched();
}

#[test]
fn a_zip_is_found_by_its_content_and_a_file_url_is_a_path() {
    let place = Place::new();
    let store = place.store();
    let zip = place.zip_of(&store);
    let unnamed = place.join("no-extension");
    fs::copy(&zip, &unnamed).unwrap();
    let directory = place.store_named("directory.zip");
    let url = |path: &Path| format!("file://{}", path.display());
    let sources = [
        unnamed.to_str().unwrap().to_owned(),
        directory.to_str().unwrap().to_owned(),
        url(&zip),
        url(&store),
    ];
    for source in sources {
        place.mount(&source, &[]);
        assert_serves(&place.path);
        place.unmount(&[]).ok();
    }
}

#[test]
fn a_part_of_a_store_can_be_mounted() {
    let place = Place::new();
    let store = place.store();
    fs::write(place.join("outside"), "secret").unwrap();
    for source in [&store, &place.zip_of(&store)] {
        for path in ["a/c", "a/c/"] {
            place.mount(source, &["--force", "--path", path]);
            assert!(fs::read(place.path.join("0")).unwrap() == chunk());
            assert_eq!(fs::read_dir(&place.path).unwrap().count(), 1);
            let origin = xattr(&place.path.join("0"), "user.zarrfs.source").unwrap();
            assert!(origin.ends_with("/a/c/0"), "{origin}");
            place.unmount(&[]).ok();
        }
        for path in ["missing", "a/missing", "zarr.json", "zarr.json/below"] {
            place.attempt(source, &["--path", path]).failed(32, &[path]);
        }
        for path in ["..", "../outside", "a/../..", "a//c/../../.."] {
            let refused = place.attempt(source, &["--path", path]);
            assert!(matches!(refused.code, Some(2 | 32)), "{refused:?}");
            assert!(!refused.err.is_empty());
        }
    }
    place.assert_untouched();
}

#[test]
fn the_demo_is_a_hierarchy_and_takes_the_options_of_a_mount() {
    let place = Place::new();
    let mut demo = zarrfs();
    demo.arg("demo").arg(&place.path);
    output_of(&mut demo).ok();
    let json = fs::read(place.path.join("zarr.json")).unwrap();
    let json: serde_json::Value = serde_json::from_slice(&json).unwrap();
    assert_eq!(json["node_type"], "group");
    let mut files = 0;
    let mut open = vec![place.path.clone()];
    while let Some(directory) = open.pop() {
        for entry in fs::read_dir(directory).unwrap() {
            let (path, kind) = (entry.as_ref().unwrap().path(), entry.unwrap().file_type());
            if kind.unwrap().is_dir() {
                open.push(path);
            } else {
                let length = fs::metadata(&path).unwrap().len();
                assert_eq!(fs::read(&path).unwrap().len() as u64, length, "{path:?}");
                files += 1;
            }
        }
    }
    assert!(files > 5, "only {files} files");
    place.unmount(&[]).ok();

    output_of(demo.args(["--umask", "077", "-o", "ro"])).ok();
    let mode = fs::metadata(&place.path).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o700);
    place.unmount(&[]).ok();
    place.assert_untouched();

    let full = place.make_dir("full");
    fs::write(full.join("precious"), "data").unwrap();
    output_of(zarrfs().arg("demo").arg(&full)).failed(32, &["full", "not empty"]);
}

#[test]
fn completions_of_an_unknown_shell_are_a_usage_error() {
    for shell in ["bash", "zsh", "fish"] {
        zarrfs_with(&["completions", shell]).ok();
    }
    zarrfs_with(&["completions", "frobnicate"]).failed(2, &["frobnicate"]);
}
