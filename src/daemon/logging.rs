//! The log of the daemon: `--log-file`, standard error, or in the background syslog. Without
//! syslog, the background process logs to a file in the state directory of the user.

use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::time::SystemTime;

use env_logger::Target;
use log::{Level, LevelFilter, Record};
use rustix::fs::OFlags;
use rustix::io::Errno;

use super::Failure;
use super::state_log::StateLog;
use crate::units::date;

/// The socket of syslog and the journal.
const SYSLOG: &str = "/dev/log";
/// The facility of daemons, RFC 5424 section 6.2.1.
const FACILITY_DAEMON: u8 = 3 << 3;

/// Starts the log, filtered by ZARRFS_LOG and `--log-level`.
///
/// # Errors
/// If the log file cannot be opened for writing.
pub(super) fn start(
    file: Option<&Path>,
    level: Option<&str>,
    background: bool,
) -> Result<(), Failure> {
    let mut logger = env_logger::Builder::new();
    logger
        .filter_level(LevelFilter::Warn)
        .filter_module("zarrfs", LevelFilter::Info)
        // fuser warns about every unsupported request.
        .filter_module("fuser", LevelFilter::Error)
        // reqsign warns about every source of credentials that has none.
        .filter_module("reqsign", LevelFilter::Off);
    if let Ok(filter) = std::env::var("ZARRFS_LOG") {
        logger.parse_filters(&filter);
    }
    if let Some(level) = level {
        logger.parse_filters(level);
    }
    let is_unattended = background && file.is_none();
    let state = match is_unattended && !has_syslog() {
        true => StateLog::open(),
        false => None,
    };
    let to_state = state.is_some();
    let to_syslog = is_unattended && !to_state;
    logger.format(move |line, record| {
        if is_reply_to_cancelled_request(record) {
            return Ok(());
        }
        if to_syslog {
            let priority = FACILITY_DAEMON | severity(record.level());
            let pid = std::process::id();
            return writeln!(line, "<{priority}>zarrfs[{pid}]: {}", record.args());
        }
        if to_state {
            let (time, pid) = (date(SystemTime::now()), std::process::id());
            let (level, text) = (record.level(), record.args());
            return writeln!(line, "{time} zarrfs[{pid}]: {level}: {text}");
        }
        writeln!(line, "zarrfs: {}: {}", record.level(), record.args())
    });
    if let Some(path) = file {
        // A write to a pipe without a reader must not block.
        let nonblock = i32::try_from(OFlags::NONBLOCK.bits()).unwrap_or_default();
        let file = File::options()
            .create(true)
            .append(true)
            .custom_flags(nonblock)
            .open(path);
        let file = file.map_err(|e| format!("--log-file {}: {e}", path.display()))?;
        logger.target(Target::Pipe(Box::new(file)));
    } else if let Some(state) = state {
        logger.target(Target::Pipe(Box::new(state)));
    } else if to_syslog {
        logger.target(Target::Pipe(Box::new(Syslog(UnixDatagram::unbound()?))));
    }
    let _ = logger.try_init();
    std::panic::set_hook(Box::new(|panic| {
        log::error!(
            "bug: {panic}\n{}",
            std::backtrace::Backtrace::force_capture()
        );
    }));
    Ok(())
}

/// Logs the warnings of a command without a mount to standard error.
///
/// # Errors
/// If the log cannot be opened.
pub fn log_warnings() -> Result<(), Failure> {
    // These commands print the problems of nodes themselves.
    let level = "zarrfs=warn,zarrfs::view=off";
    let level = std::env::var_os("ZARRFS_LOG").is_none().then_some(level);
    start(None, level, false)
}

/// Returns whether fuser logs that the kernel refused the reply to an interrupted request. A program that was
/// killed no longer waits for the reply.
fn is_reply_to_cancelled_request(record: &Record<'_>) -> bool {
    let not_found = io::Error::from(Errno::NOENT).to_string();
    record.target() == "fuser::reply" && record.args().to_string().ends_with(&not_found)
}

fn has_syslog() -> bool {
    UnixDatagram::unbound().is_ok_and(|socket| socket.connect(SYSLOG).is_ok())
}

fn severity(level: Level) -> u8 {
    match level {
        Level::Error => 3,
        Level::Warn => 4,
        Level::Info => 6,
        Level::Debug | Level::Trace => 7,
    }
}

/// A log writer for syslog: non-blocking, with one record per datagram. Without syslog, records are lost.
#[derive(Debug)]
struct Syslog(UnixDatagram);

impl Write for Syslog {
    fn write(&mut self, record: &[u8]) -> io::Result<usize> {
        let _ = self.0.set_nonblocking(true);
        let _ = self.0.send_to(record.trim_ascii_end(), SYSLOG);
        Ok(record.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_reply_to_a_cancelled_request_is_not_logged() {
        let is_left_out = |target: &str, text: &str| {
            let (level, args) = (Level::Error, format_args!("{text}"));
            let record = Record::builder()
                .target(target)
                .level(level)
                .args(args)
                .build();
            is_reply_to_cancelled_request(&record)
        };
        let reply = "Failed to send FUSE reply";
        let (gone, other) = (
            "No such file or directory (os error 2)",
            "Invalid argument (os error 22)",
        );
        assert!(is_left_out("fuser::reply", &format!("{reply}: {gone}")));
        assert!(!is_left_out("fuser::reply", &format!("{reply}: {other}")));
        assert!(!is_left_out("zarrfs::fuse", &format!("{reply}: {gone}")));
    }
}
