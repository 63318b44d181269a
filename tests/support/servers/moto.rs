//! Another object store with the S3 protocol, with its own users.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use crate::support::scratch;

use super::seaweed::aws;
use super::{Keys, Port, Process, Remote, answered, client, http, installed, lines, put};

/// moto. Before [`enforce`](Self::enforce), it accepts any keys, but requires some.
#[derive(Debug)]
pub struct Moto {
    _process: Process,
    port: Port,
    _dir: tempfile::TempDir,
}

impl Moto {
    pub fn start() -> Self {
        let dir = scratch();
        let port = Port::free();
        let number = port.number.to_string();
        let mut command = Command::new(installed(".venv/bin/python"));
        command
            .arg(installed(".venv/bin/moto_server"))
            .args(["-H", "127.0.0.1", "-p", &number])
            .current_dir(dir.path())
            // Without this, users have to be defined at the start.
            .env("INITIAL_NO_AUTH_ACTION_COUNT", "1000000000");
        let mut process = Process::start("moto", &command, &dir.path().join("log"));
        let url = format!("http://127.0.0.1:{number}/moto-api/");
        process.wait(Duration::from_secs(60), || {
            http::request("GET", &url, &[], b"").is_ok_and(|a| a.status == 200)
        });
        Self {
            _process: process,
            port,
            _dir: dir,
        }
    }

    pub fn endpoint(&self) -> String {
        format!("http://127.0.0.1:{}", self.port.number)
    }

    /// Creates the bucket, if it does not exist, and uploads every file of `tree` to it. Fails
    /// after [`enforce`](Self::enforce).
    pub fn put(&self, bucket: &str, tree: &Path) {
        put("s3-put", &self.endpoint(), bucket, tree, &aws(Some(&any())));
    }

    /// From now on, accepts only the returned keys, which may only list and read `bucket`.
    pub fn enforce(&self, bucket: &str) -> Keys {
        let output = client(
            "moto-user",
            &self.endpoint(),
            bucket,
            "reader",
            &aws(Some(&any())),
        );
        let output = answered(output).unwrap_or_else(|why| panic!("{why}"));
        let words = String::from_utf8(output).unwrap();
        let (name, secret) = words.trim().split_once(' ').unwrap();
        let url = format!("{}/moto-api/reset-auth", self.endpoint());
        let how = [("Content-Type", "text/plain")];
        let answer = http::request("POST", &url, &how, b"0").unwrap();
        assert_eq!(answer.status, 200, "{}", answer.text());
        Keys::new(name, secret)
    }

    /// Reads an object with the given keys, or anonymously.
    pub fn get(&self, bucket: &str, key: &str, keys: Option<&Keys>) -> Result<Vec<u8>, String> {
        answered(client("s3-get", &self.endpoint(), bucket, key, &aws(keys)))
    }

    /// Returns every key that begins with `prefix`.
    pub fn list(
        &self,
        bucket: &str,
        prefix: &str,
        keys: Option<&Keys>,
    ) -> Result<Vec<String>, String> {
        let output = client("s3-list", &self.endpoint(), bucket, prefix, &aws(keys));
        answered(output).map(|output| lines(&output))
    }

    /// Returns the `zarrfs` arguments for sources in a bucket with these keys.
    pub fn remote(&self, bucket: &str, keys: &Keys) -> Remote {
        Remote::s3(&self.endpoint(), bucket, Some(keys))
    }
}

fn any() -> Keys {
    Keys::new("ZARRFSTESTMOTO", "any-secret")
}
