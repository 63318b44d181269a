//! System limits: container memory, address space, descriptors, and nesting depth.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use rustix::io::Errno;
use serde_json::{Value, json};

use crate::stores::*;
use crate::support::*;

const MIB: u64 = 1 << 20;

/// Creates a group with the array `good`.
fn group() -> Stores {
    let stores = Stores::new();
    stores.put(".zgroup", b"{\"zarr_format\": 2}");
    stores
}

/// Creates an array `x` with one chunk of 64 MiB per file `x/N`, all of them equal and well compressible.
fn large(stores: &Stores, chunks: u64) -> Vec<u8> {
    let piece: Vec<u8> = (0..4093_u32)
        .flat_map(|i| i.wrapping_mul(2_654_435_761).to_le_bytes())
        .collect();
    let mut chunk = piece.repeat((64 << 20) / piece.len() + 1);
    chunk.truncate(64 << 20);
    let changes = json!({"shape": [chunks * 16 * MIB], "chunks": [16 * MIB],
        "compressor": {"id": "zstd", "level": 1}});
    stores.v2("x", changes, &[]);
    let encoded = zstd(&chunk);
    for number in 0..chunks {
        stores.put(&format!("x/{number}"), &encoded);
    }
    chunk
}

/// Returns a mount command with a wrapper program before it.
fn wrapped(wrapper: &[&str], source: &Path, mountpoint: &Path, log: &Path) -> Command {
    let mut command = Command::new(wrapper[0]);
    let zarrfs = zarrfs();
    command.args(&wrapper[1..]).arg(zarrfs.get_program());
    command
        .arg(source)
        .arg(mountpoint)
        .arg("--log-file")
        .arg(log);
    command
}

/// A cgroup with a memory limit, of version 1 or 2.
struct Cgroup(PathBuf);

impl Cgroup {
    /// Creates a cgroup; `None`, with a message, if this process may not create one.
    fn new(bytes: u64) -> Option<Self> {
        let name = format!("zarrfs-test-{}", std::process::id());
        let roots = [
            ("/sys/fs/cgroup/memory", "memory.limit_in_bytes"),
            ("/sys/fs/cgroup", "memory.max"),
        ];
        for (root, limit) in roots {
            let cgroup = Self(Path::new(root).join(&name));
            let is_limited = fs::create_dir(&cgroup.0).is_ok()
                && fs::write(cgroup.0.join(limit), bytes.to_string()).is_ok();
            if is_limited {
                let _ = fs::write(cgroup.0.join("memory.swap.max"), "0");
                return Some(cgroup);
            }
        }
        None
    }

    /// Returns the number of processes that the kernel has killed in the cgroup.
    fn kills(&self) -> u64 {
        let files = ["memory.oom_control", "memory.events"];
        let texts = files.map(|file| fs::read_to_string(self.0.join(file)).unwrap_or_default());
        let mut lines = texts.iter().flat_map(|text| text.lines());
        let kills = lines.find_map(|line| line.strip_prefix("oom_kill "));
        kills.unwrap().parse().unwrap()
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        let is_gone = || fs::remove_dir(&self.0).is_ok() || !self.0.exists();
        wait_until(Duration::from_secs(10), is_gone);
    }
}

#[test]
fn e03_default_limits_are_those_of_the_container() {
    let Some(cgroup) = Cgroup::new(512 * MIB) else {
        return skipped("no control group with a limit of memory can be made here");
    };
    let stores = group();
    let chunk = large(&stores, 32);
    let dir = scratch();
    let mountpoint = dir.path().join("mnt");
    fs::create_dir(&mountpoint).unwrap();
    let enter = format!("echo $$ > {}/cgroup.procs; exec \"$@\"", cgroup.0.display());
    let enter = ["sh", "-c", &enter, "sh"];
    run(&mut wrapped(
        &enter,
        stores.path(),
        &mountpoint,
        &dir.path().join("log"),
    ));
    std::thread::scope(|scope| {
        for reader in 0..8_usize {
            let (mountpoint, chunk) = (&mountpoint, &chunk);
            scope.spawn(move || {
                for step in 0..2 {
                    let number = (reader * 4 + step * 3) % 32;
                    let path = mountpoint.join(format!("x/.zarrfs/chunks/{number}"));
                    let found = read(&path).unwrap_or_else(|e| panic!("{path:?}: {e}"));
                    assert!(found == *chunk, "{path:?}");
                }
            });
        }
    });
    assert_eq!(cgroup.kills(), 0);
    assert_eq!(
        read(mountpoint.join("good/.zarrfs/good.bin")).unwrap(),
        le(&GOOD)
    );
    run(zarrfs().arg("umount").arg(&mountpoint));
}

#[test]
fn e03_a_limited_address_space_is_refused_at_once_or_never_ends_the_daemon() {
    let stores = group();
    let chunk = large(&stores, 4);
    let enomem = rustix::io::Errno::NOMEM.raw_os_error();
    let mut mounted = 0;
    // Without optimisation, the program itself needs the smallest of these limits.
    for kib in [70, 100, 150, 200, 300, 500].map(|mib| mib * 1024) {
        let dir = scratch();
        let mountpoint = dir.path().join("mnt");
        fs::create_dir(&mountpoint).unwrap();
        let limit = format!("ulimit -v {kib}; exec \"$@\"");
        let limit = ["bash", "-c", &limit, "bash"];
        let mut command = wrapped(&limit, stores.path(), &mountpoint, &dir.path().join("log"));
        let output = run_for(&mut command, Duration::from_secs(60));
        if !output.status.success() {
            let text = String::from_utf8_lossy(&output.stderr);
            assert_eq!(output.status.code(), Some(32), "{kib}: {text}");
            assert!(text.contains("ulimit -v"), "{kib}: {text}");
            assert!(!is_mounted(&mountpoint));
            continue;
        }
        mounted += 1;
        std::thread::scope(|scope| {
            for reader in 0..4 {
                let (mountpoint, chunk) = (&mountpoint, &chunk);
                scope.spawn(move || {
                    let path = mountpoint.join(format!("x/.zarrfs/chunks/{reader}"));
                    let file = File::open(&path).unwrap();
                    let mut part = vec![0; 65536];
                    match file.read_exact_at(&mut part, 9 << 20) {
                        Ok(()) => assert!(part == chunk[9 << 20..][..65536], "{kib}: {path:?}"),
                        error => assert_eq!(errno(error), enomem, "{kib}: {path:?}"),
                    }
                    assert!(!names(mountpoint.join("x/.zarrfs")).is_empty());
                    assert!(read(mountpoint.join(format!("x/{reader}"))).is_ok());
                });
            }
        });
        let good = read(mountpoint.join("good/.zarrfs/good.bin"));
        assert_eq!(good.unwrap(), le(&GOOD), "{kib}");
        run(zarrfs().arg("umount").arg(&mountpoint));
    }
    assert!(mounted > 2, "{mounted}");
}

#[test]
fn j02_a_daemon_that_is_killed_for_lack_of_memory_is_named_by_the_commands() {
    let Some(cgroup) = Cgroup::new(96 * MIB) else {
        return skipped("no control group with a limit of memory can be made here");
    };
    let stores = group();
    large(&stores, 4);
    let dir = scratch();
    let mountpoint = dir.path().join("mnt");
    fs::create_dir(&mountpoint).unwrap();
    let enter = format!("echo $$ > {}/cgroup.procs; exec \"$@\"", cgroup.0.display());
    let enter = ["sh", "-c", &enter, "sh"];
    // More than there is.
    let limits = ["--memory-limit", "2G", "--cache-size", "1G"];
    let mut mount = wrapped(&enter, stores.path(), &mountpoint, &dir.path().join("log"));
    run(mount.args(limits));
    let errnos = [Errno::NOTCONN, Errno::CONNABORTED].map(|errno| Some(errno.raw_os_error()));
    let error = read(mountpoint.join("x/.zarrfs/x.bin")).unwrap_err();
    assert!(errnos.contains(&error.raw_os_error()), "{error}");
    assert!(cgroup.kills() > 0);
    let listed = run(zarrfs().arg("mounts"));
    let line = listed
        .lines()
        .find(|line| line.contains(mountpoint.to_str().unwrap()));
    assert!(line.unwrap().contains("its daemon has ended"), "{listed}");
    let stats = run_for(
        zarrfs().arg("stats").arg(&mountpoint),
        Duration::from_secs(60),
    );
    let text = String::from_utf8_lossy(&stats.stderr);
    assert!(
        stats.status.code() == Some(1) && text.contains("is gone"),
        "{text}"
    );
    run(zarrfs().arg("umount").arg(&mountpoint));
    assert!(!is_mounted(&mountpoint));

    // Only the daemon stays in the control group: the kernel can kill a second process before the memory of the first
    // is free.
    let outside = cgroup.0.with_file_name("cgroup.procs");
    let leave = format!(
        "for process in $PPID $$; do echo $process > {}; done",
        outside.display()
    );
    let mut command = Command::new(enter[0]);
    command
        .args(&enter[1..])
        .arg(zarrfs().get_program())
        .arg("run");
    command
        .arg(stores.path())
        .args(limits)
        .args(["--", "sh", "-c"]);
    for (end, code) in [("", 1), ("; true", 125)] {
        let mut command = copy_of(&command);
        let script = format!("{leave}; cat \"$1\" > {}/copy{end}", dir.path().display());
        let output = run_for(
            command.args([&script, "sh", "{x/x.bin}"]),
            Duration::from_secs(60),
        );
        let text = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{text}");
        assert!(
            text.contains("zarrfs: the daemon of the mount was killed"),
            "{text}"
        );
    }
}

/// Returns a command with the same program and arguments.
fn copy_of(command: &Command) -> Command {
    let mut copy = Command::new(command.get_program());
    copy.args(command.get_args());
    copy
}

#[test]
fn e04_a_mount_with_too_few_descriptors_is_refused_with_the_reason() {
    let stores = group();
    let (mut mounted, mut refused) = (0, 0);
    for most in 8..22 {
        let dir = scratch();
        let mountpoint = dir.path().join("mnt");
        fs::create_dir(&mountpoint).unwrap();
        let limit = format!("--nofile={most}:{most}");
        let limit = ["prlimit", &limit];
        let mut command = wrapped(&limit, stores.path(), &mountpoint, &dir.path().join("log"));
        let output = run_for(&mut command, Duration::from_secs(60));
        if !output.status.success() {
            refused += 1;
            let text = String::from_utf8_lossy(&output.stderr);
            assert!(!text.contains("0666"), "{most}: {text}");
            let names_it = text.contains("open files") || text.contains("os error 24");
            assert!(names_it, "{most}: {text}");
            continue;
        }
        mounted += 1;
        let good = read(mountpoint.join("good/.zarrfs/good.bin"));
        assert_eq!(good.unwrap(), le(&GOOD), "{most}");
        assert_eq!(names(mountpoint.join("good")).len(), 3, "{most}");
        run(zarrfs().arg("umount").arg(&mountpoint));
    }
    assert!(mounted > 0 && refused > 0, "{mounted} and {refused}");
}

#[test]
fn b01_a_document_that_is_nested_too_deep_is_omitted_from_the_files_of_its_group() {
    let stores = group();
    let deep = "[".repeat(3_000_000) + &"]".repeat(3_000_000);
    stores.put("deep/zarr.json", deep.as_bytes());
    let long =
        json!({"zarr_format": 3, "node_type": "group", "attributes": {"x": "a".repeat(17 << 20)}});
    stores.put("long/zarr.json", long.to_string().as_bytes());
    let mount = stores.mount(&["--memory-limit", "64M"]);
    let readme = fs::read_to_string(mount.join("deep/.zarrfs/README.txt")).unwrap();
    assert!(readme.contains("recursion limit"), "{readme}");
    assert!(read(mount.join(".zarrfs/root.nc")).unwrap().len() > 32);
    let document = |name: &str| -> Value {
        let text = read(mount.join(".zarrfs").join(name)).unwrap();
        serde_json::from_slice(&text).unwrap()
    };
    let model = document("zom.json");
    let members: Vec<&String> = model["members"].as_object().unwrap().keys().collect();
    assert_eq!(members, ["good"]);
    assert!(
        document(".zmetadata")["metadata"]
            .get("good/.zarray")
            .is_some()
    );
    let readme = fs::read_to_string(mount.join(".zarrfs/README.txt")).unwrap();
    for name in [&*format!("{}.nc", source_name(stores.path())), "zom.json"] {
        for node in ["deep", "long"] {
            let is_named = |line: &str| line.contains(name) && line.contains(node);
            assert!(readme.lines().any(is_named), "{name}, {node}: {readme}");
        }
    }
}

#[test]
fn b01_a_long_document_of_attributes_counts_against_the_memory_limit() {
    let members = |count: usize| -> Value {
        let members = (0..count).map(|number| (format!("{number:x}"), json!(number)));
        Value::Object(members.collect())
    };
    let group = |attributes: Value| -> Vec<u8> {
        json!({"zarr_format": 3, "node_type": "group", "attributes": attributes})
            .to_string()
            .into_bytes()
    };
    let stores = Stores::new();
    stores.put("zarr.json", &group(json!({})));
    // About 120 MB when parsed, and slightly less than an eighth of the limit.
    stores.put("long/zarr.json", &group(members(600_000)));
    for number in 0..4 {
        stores.put(&format!("fits{number}/zarr.json"), &group(members(30_000)));
    }
    let mount = stores.mount(&["--memory-limit", "128M", "--cache-size", "32M"]);
    let files = ["attributes.json", "README.txt", "zom.json", "views.json"];
    let before = mount.memory("VmHWM");
    std::thread::scope(|scope| {
        for group in ["long", "fits0", "fits1", "fits2", "fits3"] {
            for file in files {
                let path = mount.join(group).join(".zarrfs").join(file);
                scope.spawn(move || fs::read(path).map_err(|error| error.kind()));
            }
        }
    });
    let grown = mount.memory("VmHWM").saturating_sub(before);
    // The limit, and the 64 MiB that a process may have beside it. Each long document takes 120 MB.
    assert!(grown < (128 + 64) * MIB, "{grown}");
    for group in ["fits0", "fits3"] {
        let text = fs::read(mount.join(group).join(".zarrfs/attributes.json")).unwrap();
        let found: Value = serde_json::from_slice(&text).unwrap();
        assert_eq!(found, members(30_000), "{group}");
    }
    // Attributes that were not read are not shown as empty.
    let attributes = fs::read(mount.join("long/.zarrfs/attributes.json"));
    assert_eq!(attributes.unwrap_err().kind(), std::io::ErrorKind::NotFound);
    let readme = fs::read_to_string(mount.join("long/.zarrfs/README.txt")).unwrap();
    assert!(readme.contains("an eighth of the memory limit"), "{readme}");
}

#[test]
fn consolidated_documents_of_a_group_take_no_memory_of_its_views() {
    let stores = Stores::new();
    let array = json!({"zarr_format": 3, "node_type": "array", "shape": [4], "data_type": "uint8",
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [4]}},
        "chunk_key_encoding": {"name": "default"}, "fill_value": 7, "codecs": [{"name": "bytes"}],
        "attributes": {"x": vec![0; 1000]}});
    let copies: serde_json::Map<String, Value> = (0..200)
        .map(|number| (format!("gone{number}"), array.clone()))
        .collect();
    let group = json!({"zarr_format": 3, "node_type": "group", "attributes": {"title": "kept"},
        "consolidated_metadata": {"kind": "inline", "must_understand": false, "metadata": copies}});
    stores.put("zarr.json", group.to_string().as_bytes());
    stores.put("a/zarr.json", array.to_string().as_bytes());
    // When parsed, the consolidated metadata take more than the whole limit.
    let mount = stores.mount(&["--memory-limit", "32M"]);
    let attributes = fs::read_to_string(mount.join(".zarrfs/attributes.json")).unwrap();
    assert!(attributes.contains("\"kept\""), "{attributes}");
    assert!(fs::metadata(mount.join(".zarrfs/root.nc")).unwrap().len() > 32);
    assert!(fs::read(mount.join("a/.zarrfs/a.bin")).unwrap() == [7; 4]);
}
