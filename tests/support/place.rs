//! A mountpoint that cleans up after itself, and the state of mounts, processes and commands.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use crate::support::*;

/// The content of `zarr.json` in every source of this module.
pub const GROUP: &str = r#"{"zarr_format":3,"node_type":"group"}"#;

/// Returns the content of `a/c/0` in every source of this module.
pub fn chunk() -> Vec<u8> {
    (0..300_000_u32)
        .map(|i| u8::try_from(i * 7 % 251).unwrap())
        .collect()
}

/// Asserts that the mount at `path` serves the whole content of a source of this module.
pub fn assert_serves(path: &Path) {
    assert_served_bytes(path).unwrap();
}

/// Reads the whole content of a mounted source of this module, and asserts that it is right.
///
/// # Errors
/// The first error of a read, for example because the mount has ended.
pub fn assert_served_bytes(path: &Path) -> io::Result<()> {
    assert_eq!(fs::read(path.join("zarr.json"))?, GROUP.as_bytes());
    assert!(fs::read(path.join("a/c/0"))? == chunk());
    let names = fs::read_dir(path)?.map(|entry| Ok(entry?.file_name()));
    let mut names = names.collect::<io::Result<Vec<_>>>()?;
    names.sort();
    assert_eq!(names, ["a", "zarr.json"]);
    Ok(())
}

/// A line of /proc/self/mounts.
#[derive(Debug)]
pub struct Mounted {
    pub source: OsString,
    pub point: PathBuf,
    pub kind: String,
    pub options: Vec<String>,
}

impl Mounted {
    pub fn has(&self, option: &str) -> bool {
        self.options.iter().any(|o| o == option)
    }
}

/// Returns all mounts, in the order in which they were made. Asserts that every line has six fields.
pub fn mounts() -> Vec<Mounted> {
    let table = fs::read("/proc/self/mounts").unwrap();
    let lines = table.split(|&b| b == b'\n').filter(|l| !l.is_empty());
    lines
        .map(|line| {
            let fields: Vec<_> = line.split(|&b| b == b' ').map(unescaped).collect();
            assert_eq!(fields.len(), 6, "{:?}", String::from_utf8_lossy(line));
            let text = |i: usize| fields[i].to_str().unwrap().to_owned();
            Mounted {
                source: fields[0].clone(),
                point: PathBuf::from(&fields[1]),
                kind: text(2),
                options: text(3).split(',').map(str::to_owned).collect(),
            }
        })
        .collect()
}

fn unescaped(field: &[u8]) -> OsString {
    let mut plain = Vec::new();
    let mut rest = field;
    while let Some((&first, tail)) = rest.split_first() {
        if first == b'\\' {
            let digits = std::str::from_utf8(&tail[..3]).unwrap();
            plain.push(u8::from_str_radix(digits, 8).unwrap());
            rest = &tail[3..];
        } else {
            plain.push(first);
            rest = tail;
        }
    }
    OsString::from_vec(plain)
}

/// The output of a command that has ended.
#[derive(Debug)]
pub struct CommandOutput {
    pub code: Option<i32>,
    pub out: String,
    pub err: String,
}

/// Runs a command until it ends.
pub fn output_of(command: &mut Command) -> CommandOutput {
    let output = run_for(command, Duration::from_secs(40));
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    CommandOutput {
        code: output.status.code(),
        out: text(&output.stdout),
        err: text(&output.stderr),
    }
}

impl CommandOutput {
    /// Asserts that the command succeeded.
    #[track_caller]
    pub fn ok(&self) -> &Self {
        assert_eq!(self.code, Some(0), "{self:?}");
        self
    }

    /// Asserts that the command failed with `code` and a message with all `words`; `a|b` means a or b.
    #[track_caller]
    pub fn failed(&self, code: i32, words: &[&str]) -> &Self {
        assert_eq!(self.code, Some(code), "{self:?}");
        assert!(!self.err.contains("panicked"), "{self:?}");
        let message = self.err.to_lowercase();
        for word in words {
            let mut choices = word.split('|').map(str::to_lowercase);
            assert!(
                choices.any(|w| message.contains(&w)),
                "the message does not say {word:?}: {self:?}"
            );
        }
        self
    }
}

/// A scratch directory with an empty mountpoint. On drop, all mounts below the directory are
/// removed, and no process with its path in the command line may be left.
#[derive(Debug)]
pub struct Place {
    dir: tempfile::TempDir,
    /// The mountpoint.
    pub path: PathBuf,
}

impl Place {
    /// Creates a mountpoint with an ordinary name.
    pub fn new() -> Self {
        Self::named("mnt")
    }

    /// Creates a mountpoint with a given name.
    pub fn named(name: impl AsRef<Path>) -> Self {
        let dir = scratch();
        let path = dir.path().join(name);
        fs::create_dir(&path).unwrap();
        Self { dir, path }
    }

    /// Returns the scratch directory.
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// Returns a path in the scratch directory.
    pub fn join(&self, name: impl AsRef<Path>) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Creates a directory in the scratch directory.
    pub fn make_dir(&self, name: impl AsRef<Path>) -> PathBuf {
        let path = self.join(name);
        fs::create_dir(&path).unwrap();
        path
    }

    /// Creates a directory store in the scratch directory.
    pub fn store(&self) -> PathBuf {
        self.store_named("store")
    }

    /// Creates a directory store with a given name.
    pub fn store_named(&self, name: impl AsRef<Path>) -> PathBuf {
        let path = self.make_dir(name);
        fs::write(path.join("zarr.json"), GROUP).unwrap();
        fs::create_dir_all(path.join("a/c")).unwrap();
        fs::write(path.join("a/c/0"), chunk()).unwrap();
        path
    }

    /// Creates a zip archive of `store` next to it.
    pub fn zip_of(&self, store: &Path) -> PathBuf {
        let path = store.with_extension("zip");
        // Written to stdout, because zip(1) appends a suffix to some file names.
        let mut zip = Command::new("zip");
        zip.args(["-q0r", "-", "."]).current_dir(store);
        let status = zip.stdout(File::create(&path).unwrap()).status();
        assert!(status.unwrap().success());
        path
    }

    /// Returns the command that mounts `source` on the mountpoint.
    pub fn command(&self, source: impl AsRef<OsStr>, args: &[&str]) -> Command {
        let mut command = zarrfs();
        command.arg(source.as_ref()).arg(&self.path).args(args);
        command
    }

    /// Tries to mount `source` on the mountpoint.
    pub fn attempt(&self, source: impl AsRef<OsStr>, args: &[&str]) -> CommandOutput {
        output_of(&mut self.command(source, args))
    }

    /// Mounts `source` in the background; returns the process ID of the daemon.
    #[track_caller]
    pub fn mount(&self, source: impl AsRef<OsStr>, args: &[&str]) -> u32 {
        self.attempt(source, args).ok();
        daemon_of(&self.path)
    }

    /// Mounts `source` in the foreground.
    #[track_caller]
    pub fn foreground(&self, source: impl AsRef<OsStr>, args: &[&str]) -> Daemon {
        let stderr = self.join("stderr");
        let mut command = self.command(source, args);
        command
            .arg("-f")
            .stdout(Stdio::null())
            .stderr(File::create(&stderr).unwrap());
        let daemon = Daemon::new(&mut command, stderr);
        assert!(
            wait_until(Duration::from_secs(20), || self.is_mounted()),
            "{}",
            daemon.stderr()
        );
        daemon
    }

    /// Runs `zarrfs umount` for the mountpoint.
    pub fn unmount(&self, args: &[&str]) -> CommandOutput {
        output_of(zarrfs().arg("umount").args(args).arg(&self.path))
    }

    /// Returns all mounts of zarrfs below the scratch directory.
    pub fn mounted(&self) -> Vec<Mounted> {
        let mut mounts = mounts();
        mounts.retain(|m| m.point.starts_with(self.dir()) && m.kind == "fuse.zarrfs");
        mounts
    }

    /// Returns whether zarrfs is mounted on the mountpoint.
    pub fn is_mounted(&self) -> bool {
        self.mounted().iter().any(|m| m.point == self.path)
    }

    /// Returns every process with the scratch directory in its command line.
    pub fn processes(&self) -> Vec<u32> {
        let wanted = self.dir().as_os_str().as_bytes();
        fs::read_dir("/proc")
            .unwrap()
            .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
            .filter(|pid: &u32| {
                let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
                line.windows(wanted.len()).any(|part| part == wanted)
            })
            .collect()
    }

    /// Asserts that nothing is mounted and nothing runs, except for a helper that is about to end.
    #[track_caller]
    pub fn assert_untouched(&self) {
        assert!(self.mounted().is_empty(), "{:?}", self.mounted());
        wait_until(Duration::from_secs(1), || self.processes().is_empty());
        let left = self.processes();
        let shown: Vec<_> = left.iter().map(|pid| command_line(*pid)).collect();
        assert!(left.is_empty(), "left over: {shown:?}");
    }

    /// Lets `nobody` read everything but not mount. Returns a copy of the binary in this directory.
    pub fn open_to_nobody(&self) -> PathBuf {
        let binary = self.join("zarrfs");
        run(Command::new("cp").arg(zarrfs().get_program()).arg(&binary));
        run(Command::new("chmod").args(["-R", "a+rX"]).arg(self.dir()));
        run(Command::new("chown")
            .arg("nobody:nogroup")
            .args([&self.path, self.dir()]));
        binary
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let below = mounts()
            .into_iter()
            .filter(|m| m.point.starts_with(self.dir()));
        for mount in below.rev() {
            for program in [&["umount"][..], &["umount", "-l"], &["fusermount3", "-uzq"]] {
                let mut command = Command::new(program[0]);
                command.args(&program[1..]).arg(&mount.point);
                if command.stderr(Stdio::null()).status().unwrap().success() {
                    break;
                }
            }
        }
        if wait_until(Duration::from_secs(10), || self.processes().is_empty()) {
            return;
        }
        for pid in self.processes() {
            eprintln!("{pid} is left and is killed: {}", command_line(pid));
            kill(pid, Signal::KILL);
        }
        if !std::thread::panicking() {
            panic!("a process outlived its mount");
        }
    }
}

fn command_line(pid: u32) -> String {
    let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    String::from_utf8_lossy(&line).replace('\0', " ")
}

/// Returns the process ID in the extended attribute of a mount's root.
#[track_caller]
pub fn daemon_of(path: &Path) -> u32 {
    let pid = xattr(path, "user.zarrfs.pid");
    pid.expect("an attribute of the root directory with the daemon's pid")
        .parse()
        .unwrap()
}

/// Returns whether any thread of a process runs. A zombie does not run.
pub fn runs(pid: u32) -> bool {
    let Ok(threads) = fs::read_dir(format!("/proc/{pid}/task")) else {
        return false;
    };
    threads.flatten().any(|thread| {
        let status = fs::read_to_string(thread.path().join("status")).unwrap_or_default();
        let mut lines = status.lines();
        lines.any(|line| line.starts_with("State:") && !line.contains('Z'))
    })
}

/// Sends a signal to a process.
pub fn kill(pid: u32, signal: Signal) {
    let pid = Pid::from_raw(pid.try_into().unwrap()).unwrap();
    let _ = kill_process(pid, signal);
}

/// Kills the daemon of a mount and waits for its end.
pub fn kill_daemon(pid: u32) {
    kill(pid, Signal::KILL);
    assert!(wait_until(Duration::from_secs(5), || !runs(pid)));
}

/// A daemon in the foreground, as a child of this process.
#[derive(Debug)]
pub struct Daemon {
    child: Child,
    stderr: PathBuf,
}

impl Daemon {
    /// Starts a command whose stderr goes to a file.
    pub fn new(command: &mut Command, stderr: PathBuf) -> Self {
        let child = command.spawn().unwrap();
        Self { child, stderr }
    }

    pub fn id(&self) -> u32 {
        self.child.id()
    }

    pub fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// Returns the exit status, if the daemon ends within `limit`.
    pub fn ended(&mut self, limit: Duration) -> Option<ExitStatus> {
        wait_for(&mut self.child, limit)
    }

    /// Asserts that the daemon ends successfully within `limit`.
    #[track_caller]
    pub fn ends_well(&mut self, limit: Duration) {
        let status = self.ended(limit);
        let status = status.unwrap_or_else(|| panic!("still there after {limit:?}"));
        assert_eq!(status.code(), Some(0), "{}", self.stderr());
    }

    pub fn stderr(&self) -> String {
        fs::read_to_string(&self.stderr).unwrap_or_default()
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
