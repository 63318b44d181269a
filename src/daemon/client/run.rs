//! `zarrfs run`: a private mount for the duration of one command.
//!
//! The daemon and the command are children of this process. When this process ends, for whatever
//! reason, the kernel sends them a signal that ends them.

use std::ffi::{OsStr, OsString};
use std::fs::{self, DirBuilder, File};
use std::io::{self, Write};
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use rustix::fd::OwnedFd;
use rustix::process::{Pid, PidfdFlags, Signal};
use signal_hook::consts::{SIGHUP, SIGINT, SIGKILL, SIGQUIT, SIGTERM};

use super::mounted_views::MountedViews;
use super::{Failure, background, kernel, placeholders, probe, run_command};
use crate::cli::RunArgs;
use crate::inspect;
use crate::sync::Mutex;
use crate::translate::Target;
use crate::view::Format;

/// Added to the number of a signal that has ended the command, as in shells.
const SIGNALLED: u8 = 128;
/// The time that the daemon may take to end after the mount.
const END: Duration = Duration::from_secs(5);
/// The number of errors of the mount that are printed if the command fails.
const MAX_ERRORS: usize = 5;

/// Mounts a source, runs a command and unmounts. Returns the exit code of the command, or that of a
/// shell for a signal.
///
/// # Errors
/// If the source cannot be mounted, or a placeholder has no value.
pub fn run(args: &RunArgs) -> Result<u8, Failure> {
    let forwarder = Forwarder::start()?;
    let mut mount = match PrivateMount::new(&forwarder) {
        Ok(mount) => mount,
        Err(failure) => {
            return forwarder
                .received()
                .map_or(Err(failure), |n| Ok(SIGNALLED + n));
        }
    };
    let expanded = args.command.iter().map(|argument| mount.expand(argument));
    let expanded = expanded.collect::<Result<Vec<OsString>, Failure>>()?;
    let code = match forwarder.spawn(&mut run_command::command(&expanded))? {
        Some(mut child) => exit_code(child.wait()?),
        None => forwarder.received().map_or(1, |number| SIGNALLED + number),
    };
    forwarder.finish();
    match (mount.early_end()?, code) {
        (Some(end), 0) => return Err(end.into()),
        (Some(end), _) => writeln!(io::stderr(), "zarrfs: {end}")?,
        (None, 0) => {}
        (None, _) => mount.print_errors(),
    }
    Ok(code)
}

fn exit_code(status: ExitStatus) -> u8 {
    let number = status.code().or_else(|| {
        let signal = status.signal()?;
        signal.checked_add(SIGNALLED.into())
    });
    number
        .and_then(|number| u8::try_from(number).ok())
        .unwrap_or(1)
}

/// A mount of this process, which is unmounted when it is dropped.
#[derive(Debug)]
struct PrivateMount {
    directory: PathBuf,
    /// The process that serves the mount.
    daemon: Option<Child>,
}

impl PrivateMount {
    fn new(forwarder: &Forwarder) -> Result<Self, Failure> {
        let mut mount = Self {
            directory: private_directory()?,
            daemon: None,
        };
        let mut command = background::command();
        command.env(background::PRIVATE, &mount.directory);
        let Some(mut daemon) = forwarder.spawn(&mut command)? else {
            return Err("interrupted".into());
        };
        let answer = background::answer(&mut daemon);
        mount.daemon = Some(daemon);
        answer?;
        forwarder.finish();
        Ok(mount)
    }

    /// Replaces the placeholders of an argument.
    fn expand(&self, argument: &OsStr) -> Result<OsString, Failure> {
        placeholders::expand(argument, |name| {
            self.value(name).map(PathBuf::into_os_string)
        })
    }

    /// Returns the value of a placeholder.
    fn value(&self, name: &str) -> Result<PathBuf, Failure> {
        if name == "path" {
            return Ok(self.directory.clone());
        }
        let views = MountedViews::find(&self.directory)?;
        let views = views.ok_or("the mount has no views (--views off)")?;
        let root = views.node("".as_ref())?;
        let is_target = Target::ALL.iter().any(|target| target.name() == name);
        let path = match (name, name.parse::<Format>()) {
            ("views", _) => return Ok(root.directory),
            (_, Ok(format)) if !is_target => root.path(format)?,
            _ => {
                let (key, file) = name.rsplit_once('/').unwrap_or(("", name));
                if file.is_empty() {
                    return Err("a placeholder needs a name".into());
                }
                views.node(key.as_ref())?.directory.join(file)
            }
        };
        match fs::symlink_metadata(&path) {
            Ok(_) => Ok(path),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let (key, file) = name.rsplit_once('/').unwrap_or(("", name));
                let file = match key.is_empty() {
                    true => path.file_name().unwrap_or_default().to_string_lossy(),
                    false => file.into(),
                };
                Err(views.node(key.as_ref())?.missing(&file, name))
            }
            Err(error) => Err(format!("{}: {error}", path.display()).into()),
        }
    }

    /// Returns why the daemon has ended before the command, if it has failed.
    fn early_end(&mut self) -> io::Result<Option<String>> {
        let Some(daemon) = &mut self.daemon else {
            return Ok(None);
        };
        let mut status = daemon.try_wait()?;
        // The kernel ends the mount before the process.
        if status.is_none() && probe::is_dead(&self.directory) {
            status = ended(daemon)?;
        }
        let failed = status.filter(|status| !status.success());
        Ok(failed.map(|status| match status.signal() {
            Some(SIGKILL) => "the daemon of the mount was killed while the command ran, perhaps by the kernel for lack \
                              of memory (see --memory-limit)"
                .to_owned(),
            _ => format!("the daemon of the mount has ended while the command ran: {status}"),
        }))
    }

    /// Prints the last errors of the mount, which may be the reason why the command failed.
    fn print_errors(&self) {
        let views = MountedViews::find(&self.directory).ok().flatten();
        let root = views.and_then(|views| views.node("".as_ref()).ok());
        let text = root.and_then(|root| fs::read_to_string(root.directory.join("errors.txt")).ok());
        let lines: Vec<String> = text
            .unwrap_or_default()
            .lines()
            .map(str::to_owned)
            .collect();
        for line in lines.iter().skip(lines.len().saturating_sub(MAX_ERRORS)) {
            let _ = writeln!(io::stderr(), "zarrfs: {}", inspect::printable(line));
        }
    }
}

impl Drop for PrivateMount {
    fn drop(&mut self) {
        let Some(mut daemon) = self.daemon.take() else {
            let _ = fs::remove_dir(&self.directory);
            return;
        };
        // A process that the command has left running may keep the mount busy.
        if kernel::unmount(&self.directory, false).is_err() {
            let _ = kernel::unmount(&self.directory, true);
        }
        let _ = ended(&mut daemon);
        let _ = fs::remove_dir(&self.directory);
    }
}

/// Waits for a process that is about to end; `None` if it has not after [`END`].
fn ended(process: &mut Child) -> io::Result<Option<ExitStatus>> {
    let end = Instant::now() + END;
    loop {
        let status = process.try_wait()?;
        if status.is_some() || Instant::now() >= end {
            return Ok(status);
        }
        thread::sleep(Duration::from_millis(5));
    }
}

/// Creates a directory that only this user can access.
fn private_directory() -> Result<PathBuf, Failure> {
    let base = std::env::temp_dir();
    let pid = std::process::id();
    for number in 0..100 {
        let path = base.join(format!("zarrfs-run-{pid}-{number}"));
        match DirBuilder::new().mode(0o700).create(&path) {
            Ok(()) => return Ok(fs::canonicalize(path)?),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(format!("{}: {error}", path.display()).into()),
        }
    }
    Err(format!("{}: all names for a mountpoint are taken", base.display()).into())
}

/// Forwards signals to the process for which this one waits.
#[derive(Debug)]
struct Forwarder(Arc<Mutex<Forwarding>>);

#[derive(Debug, Default)]
struct Forwarding {
    /// The number of the first signal.
    received: Option<u8>,
    target: Option<OwnedFd>,
}

impl Forwarder {
    /// Starts the thread that waits for signals.
    fn start() -> io::Result<Self> {
        let shared = Arc::new(Mutex::new(Forwarding::default()));
        let mut signals = signal_hook::iterator::Signals::new([SIGTERM, SIGINT, SIGHUP, SIGQUIT])?;
        let state = Arc::clone(&shared);
        let forward = move || {
            for number in signals.forever() {
                state.lock().forward(number);
            }
        };
        thread::Builder::new()
            .name("zarrfs-signals".into())
            .spawn(forward)?;
        Ok(Self(shared))
    }

    /// Returns the number of the first signal.
    fn received(&self) -> Option<u8> {
        self.0.lock().received
    }

    /// Starts a process to which signals are forwarded from now on; `None` after a signal.
    fn spawn(&self, command: &mut Command) -> io::Result<Option<Child>> {
        let mut state = self.0.lock();
        if state.received.is_some() {
            return Ok(None);
        }
        let child = command.spawn()?;
        let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
        let opened = pid.map(|pid| rustix::process::pidfd_open(pid, PidfdFlags::empty()));
        state.target = opened.and_then(Result::ok);
        Ok(Some(child))
    }

    /// Stops forwarding signals.
    fn finish(&self) {
        self.0.lock().target = None;
    }
}

impl Forwarding {
    fn forward(&mut self, number: i32) {
        let received = u8::try_from(number).unwrap_or_default();
        self.received.get_or_insert(received);
        if is_from_terminal(number) {
            return;
        }
        if let (Some(target), Some(signal)) = (&self.target, Signal::from_named_raw(number)) {
            let _ = rustix::process::pidfd_send_signal(target, signal);
        }
    }
}

/// Returns whether the terminal has sent a signal to the whole process group, and so also to the command.
fn is_from_terminal(number: i32) -> bool {
    matches!(number, SIGINT | SIGQUIT)
        && File::open(Path::new("/dev/tty")).is_ok_and(|terminal| {
            rustix::termios::tcgetpgrp(&terminal) == Ok(rustix::process::getpgrp())
        })
}
