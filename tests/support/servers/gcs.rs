//! An object store with the protocol of Google, without authentication.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use crate::support::{run, scratch};

use super::{Port, Process, Remote, http, installed};

/// fake-gcs-server with its objects in memory.
#[derive(Debug)]
pub struct FakeGcs {
    _process: Process,
    port: Port,
    _dir: tempfile::TempDir,
}

impl FakeGcs {
    /// Starts the server with a bucket that contains every file of `tree`.
    pub fn start(bucket: &str, tree: &Path) -> Self {
        let dir = scratch();
        let data = dir.path().join("data");
        fs::create_dir(&data).unwrap();
        // Copied, because the server does not follow links.
        run(Command::new("cp")
            .arg("-r")
            .arg(tree)
            .arg(data.join(bucket)));
        let port = Port::free();
        let number = port.number.to_string();
        let mut command = Command::new(installed(".venv/bin/fake-gcs-server"));
        command
            .args(["-scheme", "http", "-host", "127.0.0.1", "-port", &number])
            .args(["-public-host", &format!("127.0.0.1:{number}")])
            .args(["-backend", "memory", "-data"])
            .arg(&data);
        let mut process = Process::start("fake-gcs-server", &command, &dir.path().join("log"));
        let gcs = |process, port| Self {
            _process: process,
            port,
            _dir: dir,
        };
        let url = format!("http://127.0.0.1:{number}/storage/v1/b");
        process.wait(Duration::from_secs(60), || {
            http::request("GET", &url, &[], b"").is_ok_and(|a| a.status == 200)
        });
        gcs(process, port)
    }

    pub fn endpoint(&self) -> String {
        format!("http://127.0.0.1:{}", self.port.number)
    }

    /// Writes one object.
    pub fn put(&self, bucket: &str, key: &str, bytes: &[u8]) {
        let name = http::escaped(key).replace('/', "%2F");
        let url = format!(
            "{}/upload/storage/v1/b/{bucket}/o?uploadType=media&name={name}",
            self.endpoint()
        );
        let how = [("Content-Type", "application/octet-stream")];
        let answer = http::request("POST", &url, &how, bytes).unwrap();
        assert_eq!(answer.status, 200, "{}", answer.text());
    }

    /// Returns the URL of an object.
    pub fn url(&self, bucket: &str, key: &str) -> String {
        format!("{}/{bucket}/{}", self.endpoint(), http::escaped(key))
    }

    /// Returns the `zarrfs` arguments for sources in a bucket.
    pub fn remote(&self, bucket: &str) -> Remote {
        Remote::new(&format!("gs://{bucket}"))
            .endpoint(&self.endpoint())
            .arg("--anonymous")
    }
}
