//! `rclone serve s3`: a directory served as S3, with some unusual responses.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use crate::support::scratch;

use super::{Keys, Port, Process, Remote, http, installed};

/// A server of the subdirectories of a directory, as buckets.
#[derive(Debug)]
pub struct Rclone {
    _process: Process,
    port: Port,
    keys: Keys,
    _dir: tempfile::TempDir,
}

impl Rclone {
    pub fn start(buckets: &Path) -> Self {
        let dir = scratch();
        let port = Port::free();
        let keys = Keys::new("ZARRFSTESTRCLONE", "rclone-secret-of-the-tests");
        let mut command = Command::new(installed(".venv/bin/rclone"));
        command
            .args(["serve", "s3", "--config", "/dev/null"])
            .args(["--addr", &format!("127.0.0.1:{}", port.number)])
            .args(["--auth-key", &format!("{},{}", keys.name, keys.secret)])
            .arg(buckets)
            .current_dir(dir.path());
        let mut process = Process::start("rclone", &command, &dir.path().join("log"));
        let url = format!("http://127.0.0.1:{}/", port.number);
        process.wait(Duration::from_secs(60), || {
            http::request("GET", &url, &[], b"").is_ok()
        });
        Self {
            _process: process,
            port,
            keys,
            _dir: dir,
        }
    }

    /// Returns the `zarrfs` arguments for sources in a bucket.
    pub fn remote(&self, bucket: &str) -> Remote {
        let endpoint = format!("http://127.0.0.1:{}", self.port.number);
        Remote::s3(&endpoint, bucket, Some(&self.keys))
    }
}
