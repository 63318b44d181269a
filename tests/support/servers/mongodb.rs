//! A minimal MongoDB server with one collection, sufficient for its drivers, in a process of its own.

use std::fs;
use std::net::TcpStream;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use crate::support::scratch;

use super::{Port, Process, installed};

/// A server with an empty collection.
#[derive(Debug)]
pub struct MongoDb {
    _process: Process,
    port: Port,
    dir: tempfile::TempDir,
}

impl MongoDb {
    /// Starts the server with a Python that has pymongo. `args` are the arguments of `mongodb.py`.
    pub fn start(python: &Path, args: &[&str]) -> Self {
        let (dir, port) = (scratch(), Port::free());
        let mut command = Command::new(python);
        command
            .arg(installed("mongodb.py"))
            .arg(port.number.to_string());
        command.arg(dir.path().join("commands")).args(args);
        let mut process = Process::start("mongodb.py", &command, &dir.path().join("log"));
        process.wait(Duration::from_secs(60), || {
            TcpStream::connect(("127.0.0.1", port.number)).is_ok()
        });
        Self {
            _process: process,
            port,
            dir,
        }
    }

    pub fn port(&self) -> String {
        self.port.number.to_string()
    }

    /// Returns the URL of a path on the server.
    pub fn url(&self, place: &str) -> String {
        format!("mongodb://127.0.0.1:{}{place}", self.port.number)
    }

    /// Returns the names of the commands so far, except those of connection setup.
    pub fn commands(&self) -> Vec<String> {
        let log = fs::read_to_string(self.dir.path().join("commands")).unwrap();
        log.lines().map(str::to_owned).collect()
    }
}
