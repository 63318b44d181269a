//! `zarrfs stats`: the metrics of running mounts.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::io::{self, IsTerminal, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::io::Errno;
use serde_json::{Map, Value};

use super::every_mount::ask_all;
use super::probe::{self, TIMEOUT};
use super::{Failure, kernel, mountpoint, socket};
use crate::cli::StatsArgs;
use crate::daemon::mountpoint::MountEntry;
use crate::fs::xattr;
use crate::inspect;
use crate::store::ErrorKind;

/// The size of the largest document in bytes; it has some thousand arrays.
const MAX_DOCUMENT_BYTES: u64 = 64 << 20;

/// The reason why the metrics of a mount cannot be read.
enum StatsError {
    /// The metrics belong to another user.
    Denied(Failure),
    Other(Failure),
}

impl From<StatsError> for Failure {
    fn from(error: StatsError) -> Self {
        match error {
            StatsError::Denied(failure) | StatsError::Other(failure) => failure,
        }
    }
}

impl From<Failure> for StatsError {
    fn from(failure: Failure) -> Self {
        Self::Other(failure)
    }
}

/// Metrics by mountpoint.
type Documents = Vec<(PathBuf, Map<String, Value>)>;

/// Prints the metrics of the mount on a mountpoint, or of all mounts of this user; with `--watch`,
/// repeatedly.
///
/// # Errors
/// If the mountpoint has no zarrfs mount, or the daemon does not answer; with `--watch` also later.
pub fn stats(arguments: &StatsArgs) -> Result<(), Failure> {
    if arguments.prometheus {
        return prometheus(arguments);
    }
    let mut previous = HashMap::new();
    loop {
        let documents = match &arguments.mountpoint {
            Some(mountpoint) => vec![(mountpoint.clone(), read(mountpoint)?)],
            None => read_all()?,
        };
        let text = match arguments.json {
            true => json_text(arguments, &documents),
            false => plain_text(&documents, &previous),
        };
        let is_screen = arguments.watch.is_some() && !arguments.json && io::stdout().is_terminal();
        let clear = if is_screen { CLEAR } else { "" };
        inspect::print(format!("{clear}{text}").as_bytes())?;
        let Some(pause) = arguments.watch else {
            return Ok(());
        };
        if !arguments.json && !is_screen {
            inspect::print(b"\n")?;
        }
        previous = documents.into_iter().collect();
        std::thread::sleep(pause);
    }
}

/// Prints the metrics in the format of Prometheus. A daemon that does not answer is a metric and no error.
fn prometheus(arguments: &StatsArgs) -> Result<(), Failure> {
    let mounts: Vec<(PathBuf, String)> = match &arguments.mountpoint {
        Some(given) => {
            let (path, entry) = mounted(given)?;
            vec![(path, entry.source)]
        }
        None => {
            let all = mountpoint::all(kernel::FS_TYPE)?;
            all.into_iter()
                .map(|(path, entry)| (path, entry.source))
                .collect()
        }
    };
    let documents = ask_all(&mounts, |(path, _)| read(path));
    let mut found = Vec::new();
    for ((path, source), document) in mounts.into_iter().zip(documents) {
        let document = match document {
            Ok(document) => Some(document),
            Err(StatsError::Denied(_)) if arguments.mountpoint.is_none() => continue,
            Err(StatsError::Denied(failure)) => return Err(failure),
            Err(StatsError::Other(failure)) => {
                // The output has the metric that says so.
                let _ = writeln!(io::stderr(), "zarrfs: {failure}");
                None
            }
        };
        found.push((path.to_string_lossy().into_owned(), source, document));
    }
    inspect::print(inspect::prometheus(&found).as_bytes())?;
    Ok(())
}

/// The escape sequence that moves to the first line of a terminal and clears it.
const CLEAR: &str = "\u{1b}[H\u{1b}[2J";

fn plain_text(documents: &Documents, previous: &HashMap<PathBuf, Map<String, Value>>) -> String {
    let texts = documents.iter();
    let texts: Vec<String> = texts
        .map(|(path, document)| inspect::metrics_text(document, previous.get(path)))
        .collect();
    texts.join("\n")
}

/// Returns one document, on a single line if more documents follow.
fn json_text(arguments: &StatsArgs, documents: &Documents) -> String {
    let mut members = documents.iter().map(|(_, document)| document.clone());
    let document = match (&arguments.mountpoint, members.next()) {
        (Some(_), Some(members)) => inspect::document("stats", members),
        (_, first) => {
            let all = first.into_iter().chain(members).map(Value::Object);
            let mounts = ("mounts".to_owned(), all.collect());
            inspect::document("stats-of-all", Map::from_iter([mounts]))
        }
    };
    match arguments.watch {
        Some(_) => format!("{document}\n"),
        None => format!("{document:#}\n"),
    }
}

/// Reads the metrics of all mounts that this user may read. A daemon that does not answer is
/// reported on standard error.
fn read_all() -> Result<Documents, Failure> {
    let mounts = super::mountpoints()?;
    let found = ask_all(&mounts, |mountpoint| read(mountpoint));
    let mut documents = Vec::new();
    for (mountpoint, document) in mounts.into_iter().zip(found) {
        match document {
            Ok(document) => documents.push((mountpoint, document)),
            Err(StatsError::Denied(_)) => {}
            Err(StatsError::Other(failure)) => {
                // The other mounts are shown without this line.
                let _ = writeln!(io::stderr(), "zarrfs: {failure}");
            }
        }
    }
    match documents.is_empty() {
        true => {
            let message = "there is no mount whose metrics this user may read (`zarrfs mounts` lists all mounts)";
            Err(ErrorKind::NotMounted.failure(message))
        }
        false => Ok(documents),
    }
}

/// Returns the path of a mountpoint of zarrfs, and its mount.
fn mounted(given: &Path) -> Result<(PathBuf, MountEntry), Failure> {
    let shown = given.display();
    let failed = |e: io::Error| ErrorKind::at(given, e);
    let path = mountpoint::resolve(given).map_err(failed)?;
    match mountpoint::entry(&path).map_err(failed)? {
        None => {
            let hint = "`zarrfs mounts` lists the mounts";
            Err(ErrorKind::NotMounted
                .failure(format!("{shown}: nothing is mounted there ({hint})")))
        }
        Some(entry) if entry.kind != kernel::FS_TYPE && !is_served(&path, &entry) => {
            let what = format!("the mount there is of type {}, not zarrfs", entry.kind);
            Err(ErrorKind::NotMounted.failure(format!(
                "{shown}: {what} (`zarrfs mounts` lists those of zarrfs)"
            )))
        }
        Some(entry) => Ok((path, entry)),
    }
}

/// Returns whether zarrfs serves a mount that another program has made. A daemon that does not answer may be zarrfs.
fn is_served(path: &Path, entry: &MountEntry) -> bool {
    entry.kind == kernel::PASSED_FS_TYPE
        && !matches!(
            probe::pid_of(path),
            Ok(None) | Err(Errno::NODATA | Errno::OPNOTSUPP)
        )
}

/// Reads the metrics of the mount on a mountpoint.
fn read(given: &Path) -> Result<Map<String, Value>, StatsError> {
    let shown = given.display();
    let (path, entry) = mounted(given)?;
    // Without the requests of this function.
    let waiting = entry.waiting_requests();
    let no_daemon = |message: String| StatsError::Other(ErrorKind::NoDaemon.failure(message));
    let attribute = |name| match probe::attribute(&path, name) {
        Err(Errno::NOTCONN) => Err(no_daemon(format!(
            "{shown}: the daemon of this mount is gone (zarrfs umount {shown}, or mount again)"
        ))),
        Err(Errno::TIMEDOUT) => Err(no_daemon(format!(
            "{shown}: the daemon has not answered in {TIMEOUT:?}{}",
            waiting.map_or_else(String::new, |waiting| format!(
                ", waiting requests of programs: {waiting}"
            ))
        ))),
        Err(Errno::NODATA) => Ok(None),
        Err(e @ (Errno::ACCESS | Errno::PERM)) => {
            Err(StatsError::Denied(ErrorKind::at(given, io::Error::from(e))))
        }
        Err(e) => Err(ErrorKind::at(given, io::Error::from(e)).into()),
        Ok(value) => Ok(Some(value)),
    };
    let document = match attribute(xattr::SOCKET)? {
        Some(socket) => {
            let socket = PathBuf::from(OsStr::from_bytes(&socket));
            read_metrics(&socket).map_err(|error| {
                let message = format!("{shown}: {}: {}", socket.display(), read_failure(&error));
                match error.kind() {
                    io::ErrorKind::PermissionDenied => {
                        StatsError::Denied(ErrorKind::Denied.failure(message))
                    }
                    _ => no_daemon(message),
                }
            })?
        }
        // A daemon without a socket has the totals.
        None => attribute(xattr::STATS)?
            .ok_or_else(|| no_daemon(format!("{shown}: it tells no counters")))?,
    };
    let counted: Map<String, Value> =
        serde_json::from_slice(&document).map_err(|e| no_daemon(format!("{shown}: {e}")))?;
    let mut members = Map::new();
    // An older daemon's document lacks these members.
    members.insert("source".into(), entry.source.into());
    members.insert("mountpoint".into(), path.to_string_lossy().into());
    if let Ok(Some(pid)) = probe::pid_of(&path) {
        members.insert("pid".into(), pid.into());
    }
    if let Some(waiting) = waiting {
        members.insert("waiting_requests".into(), waiting.into());
    }
    members.extend(counted);
    Ok(members)
}

fn read_metrics(path: &Path) -> io::Result<Vec<u8>> {
    let mut document = Vec::new();
    let stream = socket::connect(path, TIMEOUT)?;
    stream.take(MAX_DOCUMENT_BYTES).read_to_end(&mut document)?;
    match document.is_empty() {
        true => Err(io::ErrorKind::PermissionDenied.into()),
        false => Ok(document),
    }
}

fn read_failure(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::PermissionDenied => {
            "only root and the user that the daemon runs as can read the metrics".into()
        }
        io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => {
            format!("the daemon does not listen there ({error})")
        }
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => {
            format!("the daemon has not answered in {TIMEOUT:?}")
        }
        _ => error.to_string(),
    }
}
