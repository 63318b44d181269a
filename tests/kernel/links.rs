//! H8: a directory source with links and special files.

use std::fs;
use std::io::Read;
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::clients::*;
use crate::support::*;

const SECRET: &[u8] = b"outside of the source";

/// Creates a source in `dir/source`, with links to `dir/outside`.
fn source_with_links(dir: &Path) -> std::path::PathBuf {
    let source = dir.join("source");
    let outside = dir.join("outside");
    fs::create_dir_all(source.join("sub/deep")).unwrap();
    fs::create_dir(&outside).unwrap();
    fs::write(outside.join("secret"), SECRET).unwrap();
    fs::write(source.join("file"), "inside").unwrap();
    fs::write(source.join("sub/deep/file"), "deep").unwrap();
    for (link, target) in [
        ("in", "file"),
        ("sub/in", "../file"),
        ("sub/deep/in", "../../in"),
        ("in_dir", "sub/deep"),
        ("around", "sub/../sub/deep/../../file"),
        ("dangling", "sub/absent"),
        ("loop", "loop"),
        ("ping", "pong"),
        ("pong", "ping"),
        ("out", "../outside/secret"),
        ("out_dir", "../outside"),
        ("sub/out", "../../outside/secret"),
        ("in_then_out", "out"),
        ("etc", "/etc"),
        ("hostname", "/etc/passwd"),
        ("magic", "/proc/self/root/etc"),
        ("in_and_out", "../source/file"),
    ] {
        symlink(target, source.join(link)).unwrap();
    }
    symlink(outside.join("secret"), source.join("absolute")).unwrap();
    source
}

/// Reads with another program. If that blocks, the daemon is killed, because nothing else would release it.
fn cat(mount: &Mount, name: &str) -> Result<Vec<u8>, String> {
    let mut command = Command::new("cat");
    command
        .env("LC_ALL", "C")
        .arg(mount.join(name))
        .stdin(Stdio::null());
    let mut cat = Killed(
        command
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap(),
    );
    let Some(status) = wait_for(&mut cat.0, Duration::from_secs(10)) else {
        let daemon = Pid::from_raw(mount.pid().try_into().unwrap()).unwrap();
        kill_process(daemon, Signal::KILL).unwrap();
        panic!("reading {name} blocks");
    };
    let (mut content, mut output) = (Vec::new(), String::new());
    cat.0
        .stdout
        .take()
        .unwrap()
        .read_to_end(&mut content)
        .unwrap();
    cat.0
        .stderr
        .take()
        .unwrap()
        .read_to_string(&mut output)
        .unwrap();
    if status.success() {
        Ok(content)
    } else {
        Err(output)
    }
}

#[test]
fn h08_links_inside_the_source_are_followed_and_links_out_of_it_are_eacces() {
    let dir = scratch();
    let source = source_with_links(dir.path());
    for passthrough in PASSTHROUGH {
        let mount = Mount::of_keys(&source, &["--passthrough", passthrough]);
        for name in ["file", "in", "sub/in", "sub/deep/in", "around"] {
            assert_eq!(read(mount.join(name)).unwrap(), b"inside", "{name}");
        }
        for name in ["sub/deep/file", "in_dir/file"] {
            assert_eq!(read(mount.join(name)).unwrap(), b"deep", "{name}");
        }
        for name in [
            "out",
            "sub/out",
            "in_then_out",
            "hostname",
            "absolute",
            "in_and_out",
        ] {
            assert_eq!(errno(read(mount.join(name))), EACCES, "{name}");
        }
        for name in [
            "out_dir/secret",
            "out_dir",
            "etc/passwd",
            "etc",
            "magic/passwd",
            "magic",
        ] {
            assert_eq!(errno(read(mount.join(name))), EACCES, "{name}");
        }
        assert_eq!(errno(read(mount.join("dangling"))), ENOENT);
        for name in ["loop", "ping", "pong"] {
            assert_eq!(errno(read(mount.join(name))), EACCES, "{name}");
        }
        assert!(
            sh(&format!(
                "find {0} -follow; ls -laR {0} 2>&1 || true",
                mount.path().display()
            ))
            .contains("deep")
        );
    }
}

/// Two links to a directory that contains them would be 2^40 paths for each program that walks the tree.
#[test]
fn h08_links_to_a_directory_that_contains_them_are_eacces() {
    let dir = scratch();
    let above = dir.path().join("above");
    let source = above.join("source");
    fs::create_dir_all(source.join("a")).unwrap();
    fs::create_dir(source.join("b")).unwrap();
    fs::write(source.join("b/file"), "inside").unwrap();
    for (link, target) in [
        ("one", "."),
        ("two", "."),
        ("a/up", ".."),
        ("a/b", "../b"),
        ("b/a", "../a"),
    ] {
        symlink(target, source.join(link)).unwrap();
    }
    symlink(&above, source.join("a/above")).unwrap();
    for options in [&[][..], &["--follow-symlinks"]] {
        let mount = Mount::of_keys(&source, options);
        for name in ["one", "two", "a/up", "a/b/a", "b/a/b"] {
            assert_eq!(errno(fs::metadata(mount.join(name))), EACCES, "{name}");
        }
        for name in ["b/file", "a/b/file"] {
            assert_eq!(read(mount.join(name)).unwrap(), b"inside", "{name}");
        }
        let found = sh(&format!(
            "(timeout 60 find -L {} -name file 2>/dev/null || test $? = 1) | wc -l",
            mount.path().display()
        ));
        assert_eq!(found.trim(), "2", "{options:?}");
    }
    let mut check = zarrfs();
    check.arg("check").arg(&source);
    let mut check = Killed(check.stdout(Stdio::null()).spawn().unwrap());
    let ended = wait_for(&mut check.0, Duration::from_secs(60));
    assert!(ended.is_some(), "zarrfs check does not end");
}

#[test]
fn h08_follow_symlinks_follows_links_out_of_the_source() {
    let dir = scratch();
    let source = source_with_links(dir.path());
    run(Command::new("mkfifo").arg(dir.path().join("outside/fifo")));
    symlink("../outside/fifo", source.join("out_fifo")).unwrap();
    let mount = Mount::of_keys(&source, &["--follow-symlinks"]);
    for name in [
        "out",
        "sub/out",
        "in_then_out",
        "absolute",
        "out_dir/secret",
    ] {
        assert_eq!(read(mount.join(name)).unwrap(), SECRET, "{name}");
    }
    assert_eq!(read(mount.join("in_and_out")).unwrap(), b"inside");
    assert_eq!(read(mount.join("sub/deep/in")).unwrap(), b"inside");
    assert_eq!(
        read(mount.join("hostname")).unwrap(),
        fs::read("/etc/passwd").unwrap()
    );
    assert_eq!(errno(read(mount.join("loop"))), EACCES);
    for fifo in ["out_fifo", "out_dir/fifo"] {
        cat(&mount, fifo).expect_err("a FIFO outside can be opened");
    }
}

#[test]
fn h08_non_regular_files_are_hidden_and_never_opened() {
    let source = scratch();
    let at = |name: &str| source.path().join(name);
    fs::write(at("file"), "inside").unwrap();
    run(Command::new("mkfifo").arg(at("fifo")));
    let _listener = UnixListener::bind(at("socket")).unwrap();
    let mut hidden = vec!["fifo", "socket"];
    if is_root() {
        run(Command::new("mknod").arg(at("null")).args(["c", "1", "3"]));
        run(Command::new("mknod").arg(at("disk")).args(["b", "7", "0"]));
        hidden.extend(["null", "disk"]);
    }
    symlink("fifo", at("link_to_fifo")).unwrap();
    symlink("socket", at("link_to_socket")).unwrap();

    // A writer blocks in open(2) until a process opens the FIFO for reading, even briefly.
    let mut writer = Command::new("sh");
    writer
        .args(["-c", "echo x > \"$0\""])
        .arg(at("fifo"))
        .stdin(Stdio::null());
    let mut writer = Killed(writer.spawn().unwrap());
    let mount = Mount::of_keys(source.path(), &[]);
    for name in &hidden {
        assert_eq!(
            errno(fs::symlink_metadata(mount.join(name))),
            ENOENT,
            "stat {name}"
        );
        cat(&mount, name).expect_err("it can be opened");
    }
    for link in ["link_to_fifo", "link_to_socket"] {
        cat(&mount, link).expect_err("it can be opened");
    }
    let listed: Vec<_> = fs::read_dir(mount.path())
        .unwrap()
        .map(|e| e.unwrap().file_name())
        .collect();
    for name in hidden {
        assert!(
            !listed.iter().any(|listed| listed == name),
            "{name} is listed"
        );
    }
    run_for(
        Command::new("ls").arg("-laR").arg(mount.path()),
        Duration::from_secs(10),
    );
    assert_eq!(read(mount.join("file")).unwrap(), b"inside");
    assert!(
        writer.0.try_wait().unwrap().is_none(),
        "the daemon opened a FIFO"
    );
}

#[test]
fn h08_a_fifo_in_place_of_a_file_never_blocks() {
    for passthrough in PASSTHROUGH {
        let dir = scratch();
        let source = dir.path().join("source");
        fs::create_dir(&source).unwrap();
        for name in ["seen", "read", "unseen"] {
            fs::write(source.join(name), "inside").unwrap();
        }
        let mount = Mount::of_keys(&source, &["--ttl", "1h", "--passthrough", passthrough]);
        assert!(fs::metadata(mount.join("seen")).unwrap().is_file());
        assert_eq!(cat(&mount, "read").unwrap(), b"inside");
        for name in ["seen", "read", "unseen"] {
            let fifo = dir.path().join("fifo");
            run(Command::new("mkfifo").arg(&fifo));
            fs::rename(&fifo, source.join(name)).unwrap();
            cat(&mount, name).expect_err("a FIFO can be opened");
        }
        assert!(fs::metadata(mount.path()).unwrap().is_dir());
    }
}

#[test]
fn h08_a_file_replaced_by_a_link_never_leads_out_of_the_source() {
    let dir = scratch();
    let (source, outside) = (dir.path().join("source"), dir.path().join("outside"));
    fs::create_dir_all(source.join("real")).unwrap();
    fs::create_dir(&outside).unwrap();
    for (root, content) in [
        (source.join("real"), b"inside".as_slice()),
        (outside, SECRET),
    ] {
        fs::write(root.join("file"), content).unwrap();
    }
    symlink("real", source.join("swapped_dir")).unwrap();
    symlink("real/file", source.join("swapped")).unwrap();
    let mount = Mount::of_keys(&source, &["--ttl", "1ms"]);
    let end = Instant::now() + Duration::from_secs(2);
    let swap = |name: &str, targets: [&str; 2]| {
        for target in targets.iter().cycle() {
            let new = dir.path().join(format!("new_{name}"));
            symlink(target, &new).unwrap();
            fs::rename(&new, source.join(name)).unwrap();
            if Instant::now() > end {
                return;
            }
        }
    };
    let look = |name: &str| {
        let mut inside = 0;
        while Instant::now() < end {
            if let Ok(content) = read(mount.join(name)) {
                assert_eq!(content, b"inside", "{name} led out of the source");
                inside += 1;
            }
        }
        inside
    };
    std::thread::scope(|scope| {
        scope.spawn(|| swap("swapped_dir", ["../outside", "real"]));
        scope.spawn(|| swap("swapped", ["../outside/file", "real/file"]));
        let other = scope.spawn(|| look("swapped"));
        assert!(
            look("swapped_dir/file") > 0 && other.join().unwrap() > 0,
            "nothing could ever be read"
        );
    });
    fs::remove_file(source.join("swapped")).unwrap();
    symlink("real/file", source.join("swapped")).unwrap();
    let back = || read(mount.join("swapped")).is_ok_and(|content| content == b"inside");
    assert!(
        wait_until(Duration::from_secs(3), back),
        "{:?}",
        read(mount.join("swapped"))
    );
}

#[test]
fn h08_a_file_with_a_lease_does_not_block_other_files() {
    const HOLD: &str = "\
import fcntl, signal, sys, time
signal.signal(signal.SIGIO, signal.SIG_IGN)
file = open(sys.argv[1], 'r+b')
fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_WRLCK)
print('held', flush=True)
time.sleep(30)
";
    let source = scratch();
    for name in ["leased", "other"] {
        fs::write(source.path().join(name), "inside").unwrap();
    }
    let mut holder = Command::new("python3");
    holder.args(["-c", HOLD]).arg(source.path().join("leased"));
    let mut holder = Killed(holder.stdout(Stdio::piped()).spawn().unwrap());
    let mut output = [0; 5];
    holder
        .0
        .stdout
        .as_mut()
        .unwrap()
        .read_exact(&mut output)
        .unwrap();
    assert_eq!(&output, b"held\n");

    let mount = Mount::of_keys(source.path(), &["--threads", "1"]);
    let mut reader = Command::new("cat");
    reader
        .arg(mount.join("leased"))
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    let reader = Killed(reader.spawn().unwrap());
    std::thread::sleep(Duration::from_millis(300));
    let begin = Instant::now();
    assert_eq!(read(mount.join("other")).unwrap(), b"inside");
    let waited = begin.elapsed();
    drop(holder);
    drop(reader);
    assert!(
        waited < Duration::from_secs(2),
        "the other file took {waited:?}"
    );
}
