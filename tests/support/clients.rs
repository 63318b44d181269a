//! Client programs of a mount, and daemons that are started in unusual ways.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use crate::support::*;

pub const ENOENT: i32 = rustix::io::Errno::NOENT.raw_os_error();
pub const EIO: i32 = rustix::io::Errno::IO.raw_os_error();
pub const EACCES: i32 = rustix::io::Errno::ACCESS.raw_os_error();
pub const ESTALE: i32 = rustix::io::Errno::STALE.raw_os_error();
pub const ENOTCONN: i32 = rustix::io::Errno::NOTCONN.raw_os_error();

/// The values of `--passthrough`: the kernel reads files itself (as root), or the daemon answers reads.
pub const PASSTHROUGH: [&str; 2] = ["auto", "off"];

/// Runs a Python client of tests/kernel and returns its output.
pub fn client(program: &str, args: &[&Path]) -> String {
    run(Command::new("python3").arg(own_file(program)).args(args))
}

/// Returns the path of a file in tests/kernel.
pub fn own_file(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/kernel")
        .join(name)
}

/// Drops the kernel's dentry and inode caches, as under memory pressure.
pub fn drop_caches() {
    fs::write("/proc/sys/vm/drop_caches", "2").unwrap();
}

/// Returns a gauge of the daemon.
pub fn gauge(mountpoint: &Path, name: &str) -> u64 {
    let stats = xattr(mountpoint, "user.zarrfs.stats").expect("the root directory has the gauges");
    let stats: serde_json::Value = serde_json::from_str(&stats).unwrap();
    stats[name]
        .as_u64()
        .unwrap_or_else(|| panic!("no gauge {name} in {stats}"))
}

/// Reads a file after dropping its pages from the page cache, so that the store must answer.
pub fn read_uncached(path: &Path) -> io::Result<Vec<u8>> {
    let mut file = File::open(path)?;
    let _ = rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed);
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Returns every path below `root` with its inode number, and checks that readdir and stat agree on it.
pub fn inodes(root: &Path) -> BTreeMap<PathBuf, u64> {
    use std::os::unix::fs::DirEntryExt;
    let mut found = BTreeMap::new();
    let mut open = vec![root.to_owned()];
    while let Some(directory) = open.pop() {
        for entry in fs::read_dir(&directory).unwrap() {
            let entry = entry.unwrap();
            let metadata = entry.metadata().unwrap();
            assert_eq!(
                entry.ino(),
                metadata.ino(),
                "readdir and stat of {:?}",
                entry.path()
            );
            if metadata.is_dir() {
                open.push(entry.path());
            }
            found.insert(
                entry.path().strip_prefix(root).unwrap().to_owned(),
                metadata.ino(),
            );
        }
    }
    found
}

/// A process that is stopped until this is dropped.
pub struct Stopped(Pid);

impl Stopped {
    pub fn new(pid: u32) -> Self {
        let pid = Pid::from_raw(pid.try_into().unwrap()).unwrap();
        kill_process(pid, Signal::STOP).unwrap();
        let stopped = Self(pid);
        // A running thread stops only when it next enters the kernel.
        let tasks = format!("/proc/{}/task", pid.as_raw_nonzero());
        let is_stopped = |task: io::Result<fs::DirEntry>| {
            let status = fs::read_to_string(task.unwrap().path().join("status"));
            status.is_ok_and(|status| status.contains("State:\tT"))
        };
        let all = || fs::read_dir(&tasks).unwrap().all(is_stopped);
        assert!(wait_until(Duration::from_secs(5), all));
        stopped
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        let _ = kill_process(self.0, Signal::CONT);
    }
}

/// A child process that is killed on drop.
pub struct Killed(pub Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A mount that the test itself made; unmounted on drop.
pub struct Extra(PathBuf);

impl Extra {
    /// Mounts `kind` on a new directory `path`.
    pub fn new(kind: &str, path: &Path) -> Self {
        fs::create_dir(path).unwrap();
        run(Command::new("mount").args(["-t", kind, "none"]).arg(path));
        Self(path.to_owned())
    }
}

impl Drop for Extra {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

/// A daemon in the foreground, as a child of this process, so that its exit can be observed.
pub struct Foreground {
    pub daemon: Child,
    pub path: PathBuf,
    log: PathBuf,
    _dir: tempfile::TempDir,
}

impl Foreground {
    /// Mounts `source`. `wrapper` precedes the command line (`prlimit ...`).
    pub fn new(wrapper: &[&str], env: &[(&str, &str)], source: &Path, args: &[&str]) -> Self {
        let dir = scratch();
        let path = dir.path().join("mnt");
        fs::create_dir(&path).unwrap();
        let log = dir.path().join("log");
        if wrapper.contains(&"--reuid=nobody") {
            run(Command::new("chown")
                .args(["-R", "nobody:nogroup"])
                .arg(dir.path()));
        }
        let zarrfs = zarrfs();
        let mut line: Vec<_> = wrapper.iter().map(AsRef::as_ref).collect();
        line.push(zarrfs.get_program());
        let mut command = Command::new(line[0]);
        command
            .args(&line[1..])
            .args(["-f", "--force"])
            .arg(source)
            .arg(&path)
            .arg("--log-file")
            .arg(&log);
        command.args(args).envs(env.iter().copied());
        let daemon = command
            .stdin(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut mount = Self {
            daemon,
            path,
            log,
            _dir: dir,
        };
        let mounted = wait_until(Duration::from_secs(30), || is_mounted(&mount.path));
        assert!(
            mounted,
            "{command:?}: {:?}\n{}",
            mount.daemon.try_wait(),
            mount.log()
        );
        mount
    }

    pub fn join(&self, key: impl AsRef<Path>) -> PathBuf {
        self.path.join(key)
    }

    pub fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }
}

impl Drop for Foreground {
    fn drop(&mut self) {
        clean_up(&self.path);
        if wait_for(&mut self.daemon, Duration::from_secs(10)).is_none() {
            let _ = self.daemon.kill();
            let _ = self.daemon.wait();
            if !std::thread::panicking() {
                panic!("the daemon outlived its mount");
            }
        }
    }
}
