//! Helpers of all tests with a real mount: mounts that are always removed, skipping, and client programs.
//!
//! The daemon is always a separate process (the `zarrfs` binary of this build), never a thread of
//! the test.

#![allow(
    dead_code,
    unused_imports,
    unreachable_pub,
    missing_docs,
    missing_debug_implementations
)]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::cast_possible_truncation
)]

pub mod clients;
pub mod faulty;
pub mod place;
pub mod servers;

use std::ffi::OsStr;
use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::time::{Duration, Instant};

/// Returns a command of the binary under test.
pub fn zarrfs() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_zarrfs"));
    command.stdin(Stdio::null());
    command
}

/// Returns a scratch directory, which is removed recursively on drop.
pub fn scratch() -> tempfile::TempDir {
    tempfile::Builder::new()
        .prefix("zarrfs-test-")
        .tempdir()
        .unwrap()
}

/// The result of a `zarrfs` command that failed, or was expected to fail.
#[derive(Debug)]
pub struct Refusal {
    pub code: Option<i32>,
    pub stderr: String,
}

/// A running mount. Dropping it unmounts (lazily if necessary) and waits for the daemon.
#[derive(Debug)]
pub struct Mount {
    path: PathBuf,
    log: PathBuf,
    pid: Option<u32>,
    _dir: tempfile::TempDir,
}

impl Mount {
    /// Mounts `source` with default options on a new directory.
    pub fn new(source: impl AsRef<OsStr>) -> Self {
        Self::with(source, &[])
    }

    /// Mounts `source` with more command line arguments.
    pub fn with(source: impl AsRef<OsStr>, args: &[&str]) -> Self {
        Self::attempt(source, args).unwrap_or_else(|e| panic!("zarrfs refused to mount: {e:?}"))
    }

    /// Mounts a source of plain keys, without Zarr metadata at its root.
    pub fn of_keys(source: impl AsRef<OsStr>, args: &[&str]) -> Self {
        Self::with(source, &[&["--force"], args].concat())
    }

    /// Mounts `source`, or returns the failure of the command.
    pub fn attempt(source: impl AsRef<OsStr>, args: &[&str]) -> Result<Self, Refusal> {
        Self::attempt_in(source, args, |_| ())
    }

    /// As [`Mount::attempt`], after a change of the command, for example of its environment.
    pub fn attempt_in(
        source: impl AsRef<OsStr>,
        args: &[&str],
        change: impl FnOnce(&mut Command),
    ) -> Result<Self, Refusal> {
        let dir = scratch();
        let path = dir.path().join("mnt");
        fs::create_dir(&path).unwrap();
        let log = dir.path().join("log");
        let mut command = zarrfs();
        command
            .arg(source.as_ref())
            .arg(&path)
            .arg("--log-file")
            .arg(&log)
            .args(args);
        change(&mut command);
        let output = run_for(&mut command, Duration::from_secs(60));
        if !output.status.success() {
            assert!(
                !is_mounted(&path),
                "a refused mount left something mounted on {path:?}"
            );
            return Err(Refusal {
                code: output.status.code(),
                stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
            });
        }
        let pid = xattr(&path, "user.zarrfs.pid").and_then(|pid| pid.parse().ok());
        Ok(Self {
            path,
            log,
            pid,
            _dir: dir,
        })
    }

    /// Returns the mountpoint.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns a path below the mountpoint.
    pub fn join(&self, key: impl AsRef<Path>) -> PathBuf {
        self.path.join(key)
    }

    /// Returns the process ID of the daemon.
    pub fn pid(&self) -> u32 {
        self.pid
            .expect("an attribute of the root directory with the daemon's pid")
    }

    /// Returns the log of the daemon so far.
    pub fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// Returns the daemon's resident memory in bytes (`VmRSS`), or its peak (`VmHWM`).
    pub fn memory(&self, field: &str) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.pid())).unwrap();
        let line = status.lines().find(|l| l.starts_with(field)).unwrap();
        line.split_whitespace()
            .nth(1)
            .unwrap()
            .parse::<u64>()
            .unwrap()
            * 1024
    }

    /// Unmounts with `zarrfs umount` and asserts that it succeeds.
    pub fn unmount(self) {
        let output = run_for(
            zarrfs().arg("umount").arg(&self.path),
            Duration::from_secs(30),
        );
        assert!(
            output.status.success(),
            "zarrfs umount: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        assert!(!is_mounted(&self.path));
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        clean_up(&self.path);
        if let Some(pid) = self.pid {
            // A zombie counts as ended, because its new parent may reap it late.
            let status = format!("/proc/{pid}/status");
            let gone = || !fs::read_to_string(&status).is_ok_and(|s| !s.contains("State:\tZ"));
            if !wait_until(Duration::from_secs(10), gone) {
                let _ = Command::new("kill").args(["-9", &pid.to_string()]).status();
                eprintln!("daemon {pid} outlived its mount and was killed");
                if !std::thread::panicking() {
                    panic!("daemon {pid} outlived its mount");
                }
            }
        }
    }
}

/// Removes all mounts on `path`, without waiting for a daemon that does not answer.
pub fn clean_up(path: &Path) {
    for _ in 0..4 {
        if !is_mounted(path) {
            return;
        }
        if rustix::mount::unmount(path, rustix::mount::UnmountFlags::DETACH).is_err() {
            let _ = Command::new("fusermount3")
                .arg("-uzq")
                .arg(path)
                .stderr(Stdio::null())
                .status();
        }
    }
}

/// Returns whether the mount table contains `path`.
pub fn is_mounted(path: &Path) -> bool {
    mount_entry(path).is_some()
}

/// Returns the line of /proc/self/mountinfo for `path`.
pub fn mount_entry(path: &Path) -> Option<String> {
    let table = fs::read("/proc/self/mountinfo").unwrap();
    let table = String::from_utf8_lossy(&table);
    let wanted = path.to_string_lossy().replace(' ', "\\040");
    table
        .lines()
        .rev()
        .find(|l| l.split(' ').nth(4) == Some(&wanted))
        .map(str::to_owned)
}

/// Reads one extended attribute as text.
pub fn xattr(path: &Path, name: &str) -> Option<String> {
    let mut value = vec![0; 65536];
    let n = rustix::fs::getxattr(path, name, &mut value).ok()?;
    value.truncate(n);
    String::from_utf8(value).ok()
}

/// Polls `condition` until it holds or `limit` has passed. Returns whether it held.
pub fn wait_until(limit: Duration, condition: impl Fn() -> bool) -> bool {
    let end = Instant::now() + limit;
    while Instant::now() < end {
        if condition() {
            return true;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    condition()
}

/// Runs a command until it ends. After `limit`, kills the command and fails with its name.
pub fn run_for(command: &mut Command, limit: Duration) -> Output {
    let name = format!("{command:?}");
    let mut child = command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap_or_else(|e| panic!("{name}: {e}"));
    let stdout = drain(child.stdout.take());
    let stderr = drain(child.stderr.take());
    let status = wait_for(&mut child, limit).unwrap_or_else(|| {
        let _ = child.kill();
        panic!("{name} was still running after {limit:?}")
    });
    Output {
        status,
        stdout: stdout.join().unwrap(),
        stderr: stderr.join().unwrap(),
    }
}

/// Waits for a child for at most `limit`.
pub fn wait_for(child: &mut Child, limit: Duration) -> Option<ExitStatus> {
    let end = Instant::now() + limit;
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            return Some(status);
        }
        if Instant::now() > end {
            return None;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn drain(stream: Option<impl Read + Send + 'static>) -> std::thread::JoinHandle<Vec<u8>> {
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        if let Some(mut stream) = stream {
            let _ = stream.read_to_end(&mut bytes);
        }
        bytes
    })
}

/// Runs a command that must succeed, and returns its output.
pub fn run(command: &mut Command) -> String {
    let output = run_for(command, Duration::from_secs(300));
    assert!(
        output.status.success(),
        "{command:?} failed: {}\n{}",
        output.status,
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Asserts that a file that is mapped keeps its bytes while its directory is listed. A page that the kernel
/// takes for one beyond the end of the file ends the process with SIGBUS.
pub fn stays_mapped(path: &Path) {
    let script = "import mmap, os, sys; path = sys.argv[1]; file = open(path, 'rb'); bytes = file.read(); \
                  mapped = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ); \
                  assert all(os.listdir(os.path.dirname(path)) and mapped[:] == bytes for _ in range(10))";
    run(Command::new("python3").arg("-c").arg(script).arg(path));
}

/// Runs a shell script that must succeed, and returns its output.
pub fn sh(script: &str) -> String {
    run(Command::new("bash").args(["-euo", "pipefail", "-c", script]))
}

/// Reports that the test is skipped, which `scripts/run-tests` counts. The test must then return.
pub fn skipped(reason: impl std::fmt::Display) {
    eprintln!("skipped: {reason}");
}

/// Returns whether the tests run as root (most can also run as an ordinary user).
pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Returns the same command, run as `nobody` without privileges.
pub fn as_nobody(command: &Command) -> Command {
    let mut wrapped = Command::new("setpriv");
    wrapped.args(["--reuid=nobody", "--regid=nogroup", "--clear-groups", "--"]);
    wrapped
        .arg(command.get_program())
        .args(command.get_args())
        .stdin(Stdio::null());
    wrapped
}

/// Returns the errno of a failed system call.
pub fn errno<T: std::fmt::Debug>(result: io::Result<T>) -> i32 {
    result
        .expect_err("the call must fail")
        .raw_os_error()
        .expect("a system call's error")
}

/// Reads a whole file.
pub fn read(path: impl AsRef<Path>) -> io::Result<Vec<u8>> {
    fs::read(path)
}
