//! The process of a server, and its ports.

use std::fs::{self, File};
use std::hash::{BuildHasher, RandomState};
use std::net::TcpListener;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group, test_kill_process_group};

use crate::support::wait_until;

/// A TCP port of the loopback interface, which no other test uses until this is dropped.
#[derive(Debug)]
pub struct Port {
    pub number: u16,
    _claim: UnixListener,
}

impl Port {
    /// Reserves a port outside of the range that the kernel assigns to clients.
    pub fn free() -> Self {
        let random = RandomState::new();
        (0..1000_u32)
            .filter_map(|attempt| {
                Self::take(20_000 + u16::try_from(random.hash_one(attempt) % 12_000).unwrap())
            })
            .next()
            .expect("a port is free")
    }

    /// Reserves the port with this number, if it is free.
    pub fn take(number: u16) -> Option<Self> {
        // An abstract socket name, which disappears with the process, whichever user runs it.
        let name = format!("zarrfs-test-port-{number}");
        let name = SocketAddr::from_abstract_name(name).unwrap();
        let _claim = UnixListener::bind_addr(&name).ok()?;
        TcpListener::bind(("127.0.0.1", number)).ok()?;
        Some(Self { number, _claim })
    }
}

/// Runs a command until it ends or standard input closes, which means that the test process has
/// ended. In both cases, the whole process group is ended.
const GUARD: &str = r#"
("$@" </dev/null; echo "ended with status $?"; kill -9 0) &
read -r _
kill -9 0
"#;

/// A running server. Dropping it ends the server and all processes that it has started.
#[derive(Debug)]
pub struct Process {
    name: &'static str,
    guard: Child,
    log: PathBuf,
}

impl Process {
    /// Starts the server `name`, with its output in the file `log`.
    pub fn start(name: &'static str, command: &Command, log: &Path) -> Self {
        let output = File::create(log).unwrap();
        let mut guarded = Command::new("sh");
        guarded
            .args(["-c", GUARD, "sh"])
            .arg(command.get_program())
            .args(command.get_args())
            .stdin(Stdio::piped())
            .stdout(output.try_clone().unwrap())
            .stderr(output)
            .process_group(0);
        for (key, value) in command.get_envs() {
            match value {
                Some(value) => guarded.env(key, value),
                None => guarded.env_remove(key),
            };
        }
        if let Some(directory) = command.get_current_dir() {
            guarded.current_dir(directory);
        }
        let guard = guarded
            .spawn()
            .unwrap_or_else(|e| panic!("{name} did not start: {e}"));
        Self {
            name,
            guard,
            log: log.to_owned(),
        }
    }

    /// Waits until the server answers. On a timeout, fails with the name and the end of the log.
    pub fn wait(&mut self, limit: Duration, answers: impl Fn() -> bool) {
        let end = Instant::now() + limit;
        loop {
            let has_ended = self.guard.try_wait().unwrap().is_some();
            if !has_ended && answers() {
                return;
            }
            if has_ended || Instant::now() > end {
                let why = if has_ended {
                    "ended"
                } else {
                    "does not answer"
                };
                panic!("the server {} {why}:\n{}", self.name, self.log_end());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Returns the process group.
    pub fn group(&self) -> Pid {
        Pid::from_child(&self.guard)
    }

    /// Returns the end of the server's log.
    pub fn log_end(&self) -> String {
        let log = fs::read(&self.log).unwrap_or_default();
        let log = String::from_utf8_lossy(&log);
        let lines: Vec<&str> = log.lines().collect();
        lines[lines.len().saturating_sub(30)..].join("\n")
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let group = self.group();
        let _ = kill_process_group(group, Signal::KILL);
        let _ = self.guard.wait();
        let gone = || test_kill_process_group(group).is_err();
        if !wait_until(Duration::from_secs(5), gone) {
            eprintln!("the server {} is killed and not gone yet", self.name);
        }
    }
}
