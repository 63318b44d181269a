//! A directory served as WebHDFS, the REST interface of name node and data nodes, in a process of its own.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use crate::support::scratch;

use super::{Port, Process, Remote, http, installed};

/// The name node.
#[derive(Debug)]
pub struct WebHdfs {
    _process: Process,
    ports: [Port; 2],
    dir: tempfile::TempDir,
}

impl WebHdfs {
    /// Serves a directory. `args` are the arguments of `webhdfs.py`.
    pub fn start(root: &Path, args: &[&str]) -> Self {
        let dir = scratch();
        // The data node uses the next port.
        let ports = std::iter::repeat_with(Port::free)
            .take(100)
            .find_map(|port| {
                let next = Port::take(port.number + 1)?;
                Some([port, next])
            });
        let ports = ports.expect("two ports are free");
        let number = ports[0].number.to_string();
        let mut command = Command::new("python3");
        command.arg(installed("webhdfs.py")).arg(&number).arg(root);
        command.arg(dir.path().join("requests")).args(args);
        let mut process = Process::start("webhdfs.py", &command, &dir.path().join("log"));
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

    /// Returns the `zarrfs` arguments for sources below the root.
    pub fn remote(&self, user: &str) -> Remote {
        let user = match user {
            "" => String::new(),
            user => format!("{user}@"),
        };
        Remote::new(&format!("hdfs://{user}127.0.0.1:{}", self.ports[0].number))
    }

    /// Returns a line for each request so far: node, operation, path, status and bytes.
    pub fn requests(&self) -> Vec<String> {
        let log = fs::read_to_string(self.dir.path().join("requests")).unwrap();
        log.lines().map(str::to_owned).collect()
    }
}
