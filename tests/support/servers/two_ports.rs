//! A server of two addresses, of which the first redirects to the second, in a process of its own.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use crate::support::scratch;

use super::{Port, Process, http, installed};

/// A server on a port and the next one.
#[derive(Debug)]
pub struct TwoPorts {
    _process: Process,
    ports: [Port; 2],
    dir: tempfile::TempDir,
}

impl TwoPorts {
    /// Starts `python3 program PORT ROOT LOG ARGS...`, whose second port is PORT + 1, and which appends a line to LOG
    /// for each request.
    pub fn start(program: &'static str, root: &Path, args: &[&str]) -> Self {
        let dir = scratch();
        let ports = std::iter::repeat_with(Port::free)
            .take(100)
            .find_map(|port| {
                let next = Port::take(port.number + 1)?;
                Some([port, next])
            });
        let ports = ports.expect("two ports are free");
        let number = ports[0].number.to_string();
        let mut command = Command::new("python3");
        command.arg(installed(program)).arg(&number).arg(root);
        command.arg(dir.path().join("requests")).args(args);
        let mut process = Process::start(program, &command, &dir.path().join("log"));
        let url = format!("http://127.0.0.1:{number}/");
        process.wait(Duration::from_secs(60), || {
            http::request("GET", &url, &[], b"").is_ok()
        });
        Self {
            _process: process,
            ports,
            dir,
        }
    }

    /// Returns the first port.
    pub fn port(&self) -> u16 {
        self.ports[0].number
    }

    /// Returns the scratch directory of the server.
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// Returns a line for each request so far.
    pub fn requests(&self) -> Vec<String> {
        let log = fs::read_to_string(self.dir.path().join("requests")).unwrap_or_default();
        log.lines().map(str::to_owned).collect()
    }
}
