//! A mount of a directory whose requests wait behind a gate.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::fs::{Mode, OFlags};

use crate::clients::*;
use crate::support::*;

/// The size of every file in bytes.
pub const FILE_BYTES: usize = 300_000;

/// The time limit of cached calls. One second is promised; a busy machine may take longer.
pub const SOON: Duration = Duration::from_secs(4);
/// The time limit of any call with `--timeout 3s`: 4.5 seconds are promised, and a busy machine may
/// take longer. Two consecutive deadlines would exceed it.
pub const AT_LAST: Duration = Duration::from_millis(7000);

/// Returns the content of a file.
pub fn content(name: &str) -> Vec<u8> {
    let seed = name
        .bytes()
        .fold(7_u32, |seed, byte| seed.wrapping_mul(31) + u32::from(byte));
    (0..FILE_BYTES as u32)
        .map(|i| ((i ^ seed).wrapping_mul(2_654_435_761) >> 24) as u8)
        .collect()
}

pub struct Hanging {
    pub mount: Foreground,
    gate: PathBuf,
    inodes: u64,
    threads: Vec<String>,
    _source: tempfile::TempDir,
}

impl Hanging {
    /// Mounts directories with files of known content, with an open gate.
    pub fn new(files: &[&str], args: &[&str]) -> Self {
        let source = scratch();
        for name in files {
            let path = source.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, content(name)).unwrap();
        }
        let gate = source.path().with_extension("gate");
        let env = [("ZARRFS_TEST_HANG", gate.to_str().unwrap())];
        let mount = Foreground::new(&[], &env, source.path(), args);
        let mut hanging = Self {
            mount,
            gate,
            inodes: 0,
            threads: Vec::new(),
            _source: source,
        };
        hanging.inodes = gauge(&hanging.mount.path, "inodes");
        hanging.threads = hanging.threads();
        hanging
    }

    pub fn join(&self, name: &str) -> PathBuf {
        self.mount.join(name)
    }

    /// Closes the gate for requests that were not made before.
    pub fn close(&self) {
        fs::write(&self.gate, "").unwrap();
    }

    /// Closes the gate for all requests.
    pub fn close_for_all(&self) {
        fs::write(&self.gate, "all").unwrap();
    }

    pub fn open(&self) {
        fs::remove_file(&self.gate).unwrap();
    }

    /// Returns the names of all threads but those of the session, which may start after the kernel has the
    /// mount. A thread that has just been started has the name of the daemon until it runs.
    fn threads(&self) -> Vec<String> {
        let tasks = format!("/proc/{}/task", self.mount.daemon.id());
        let names = || {
            let tasks = fs::read_dir(&tasks).unwrap();
            let names =
                tasks.filter_map(|task| fs::read_to_string(task.unwrap().path().join("comm")).ok());
            let mut names: Vec<_> = names.filter(|name| !name.starts_with("fuser-")).collect();
            names.sort_unstable();
            names
        };
        // The thread that starts the runtime of the network ends at once.
        let is_started = |names: &[String]| {
            names.get(1).is_none_or(|name| *name != names[0])
                && !names.iter().any(|name| name.starts_with("zarrfs-net-"))
        };
        let are_started = wait_until(Duration::from_secs(10), || is_started(&names()));
        let names = names();
        assert!(are_started, "{names:?}");
        names
    }

    /// Asserts that with an open gate all files can be read, and no cancelled request remains.
    pub fn recovers(self, files: &[&str]) {
        for name in files {
            assert!(read(self.join(name)).unwrap() == content(name), "{name}");
        }
        let path = &self.mount.path;
        let idle = || {
            if is_root() {
                drop_caches();
            }
            let is_gone = |name| gauge(path, name) == 0;
            is_gone("handles")
                && is_gone("directory_handles")
                && (!is_root() || gauge(path, "inodes") == self.inodes)
        };
        let is_idle = wait_until(Duration::from_secs(10), idle);
        assert!(is_idle, "{:?}", xattr(path, "user.zarrfs.stats"));
        assert_eq!(self.threads(), self.threads);
        assert_eq!(gauge(path, "panics"), 0);
        let output = run_for(zarrfs().arg("umount").arg(path), Duration::from_secs(10));
        assert!(output.status.success(), "{output:?}");
    }
}

impl Drop for Hanging {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.gate);
    }
}

/// Starts a program that should hang.
pub fn start(program: &str, args: &[&Path]) -> Killed {
    let mut command = listening(program);
    command.args(args).stdin(Stdio::null());
    Killed(spawn_piped(&mut command))
}

/// Returns a command with default signal actions, because a shell lets its background programs
/// ignore some signals.
fn listening(program: &str) -> Command {
    let mut command = Command::new("env");
    command.args(["--default-signal=HUP,INT,QUIT,TERM", program]);
    command
}

/// Starts a Python client that should hang after its call of `ready()`.
pub fn start_python(script: &str, path: &Path) -> Killed {
    let script = format!("def ready():\n print(flush=True)\n{script}");
    let mut python = listening("python3");
    python.args(["-c", &script]).arg(path);
    let mut python = Killed(spawn_piped(&mut python));
    let stdout = python.0.stdout.as_mut().unwrap();
    stdout.read_exact(&mut [0]).unwrap();
    python
}

fn spawn_piped(command: &mut Command) -> Child {
    command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

/// Asserts that a program hangs in the kernel.
pub fn hangs(child: &mut Killed, what: &str) {
    std::thread::sleep(Duration::from_millis(500));
    if let Some(status) = child.0.try_wait().unwrap() {
        panic!("{what} does not hang: {status} {}", printed(child));
    }
}

/// Returns the output of a program that has ended.
pub fn printed(child: &mut Killed) -> String {
    let mut text = String::new();
    let _ = child.0.stdout.take().unwrap().read_to_string(&mut text);
    let _ = child.0.stderr.take().unwrap().read_to_string(&mut text);
    text
}

/// Reads the beginning of a file with O_DIRECT.
pub fn read_direct(path: &Path, length: usize) -> io::Result<Vec<u8>> {
    let file = rustix::fs::open(path, OFlags::RDONLY | OFlags::DIRECT, Mode::empty())?;
    let mut bytes = vec![0; length];
    let count = rustix::io::read(&file, &mut bytes[..])?;
    bytes.truncate(count);
    Ok(bytes)
}

/// Opens a file, so that another open is answered from the cache.
pub fn open(path: &Path) -> File {
    File::open(path).unwrap()
}
