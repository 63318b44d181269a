//! Real servers of remote stores, each a process of this machine that ends with its test, however
//! that ends. They are installed by `tests/servers/setup.sh`.

#![allow(dead_code, unused_imports, unreachable_pub, missing_docs)]
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod azurite;
mod gcs;
pub mod http;
mod mongodb;
mod moto;
mod nginx;
mod process;
mod rclone;
mod redis;
mod remote;
mod seaweed;
mod webhdfs;

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Duration;

use crate::support::run_for;

pub use azurite::Azurite;
pub use gcs::FakeGcs;
pub use mongodb::MongoDb;
pub use moto::Moto;
pub use nginx::{Nginx, Request, basic};
pub use process::{Port, Process};
pub use rclone::Rclone;
pub use redis::Redis;
pub use remote::{Remote, without_clouds};
pub use seaweed::Seaweed;
pub use webhdfs::WebHdfs;

/// Who asks an object store for something.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Keys {
    /// The access key of S3, the account of Azure.
    pub name: String,
    pub secret: String,
}

impl Keys {
    pub fn new(name: &str, secret: &str) -> Self {
        Self {
            name: name.to_owned(),
            secret: secret.to_owned(),
        }
    }

    /// The same name with a secret that is not its own, of the same form.
    pub fn with_wrong_secret(&self) -> Self {
        Self {
            secret: self.secret.chars().rev().collect(),
            ..self.clone()
        }
    }
}

/// A program or a module of the installed ones.
fn installed(path: &str) -> PathBuf {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/servers")
        .join(path);
    assert!(path.exists(), "run tests/servers/setup.sh: no {path:?}");
    path
}

/// Runs `client.py` with credentials of its own and none of this process's.
fn client(
    verb: &str,
    endpoint: &str,
    bucket: &str,
    what: &str,
    env: &[(String, String)],
) -> Output {
    let mut command = Command::new(installed(".venv/bin/python"));
    without_clouds(&mut command)
        .arg(installed("client.py"))
        .args([verb, endpoint, bucket, what])
        .envs(env.iter().cloned());
    run_for(&mut command, Duration::from_secs(120))
}

/// What `client.py` printed, or what it said of its failure.
fn answered(output: Output) -> Result<Vec<u8>, String> {
    if output.status.success() {
        Ok(output.stdout)
    } else {
        Err(String::from_utf8_lossy(&output.stderr).into_owned())
    }
}

fn lines(output: &[u8]) -> Vec<String> {
    let text = String::from_utf8(output.to_vec()).unwrap();
    text.lines().map(str::to_owned).collect()
}

/// Puts every file of `tree` into a bucket.
fn put(verb: &str, endpoint: &str, bucket: &str, tree: &Path, env: &[(String, String)]) {
    let tree = tree.to_str().unwrap();
    if let Err(why) = answered(client(verb, endpoint, bucket, tree, env)) {
        panic!("{verb} {bucket}: {why}");
    }
}
