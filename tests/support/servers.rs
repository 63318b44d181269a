//! Real servers of remote stores. Each is a process of this machine that ends with its test,
//! however the test ends. `tests/servers/setup.sh` installs them.

#![allow(dead_code, unused_imports, unreachable_pub, missing_docs)]
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod azurite;
mod gcs;
pub mod http;
mod https;
mod hub;
mod mongodb;
mod moto;
mod nginx;
mod process;
mod rclone;
mod redis;
mod remote;
mod seaweed;
mod two_ports;
mod webhdfs;

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Duration;

use crate::support::run_for;

pub use azurite::Azurite;
pub use gcs::FakeGcs;
pub use https::Https;
pub use hub::Hub;
pub use mongodb::MongoDb;
pub use moto::Moto;
pub use nginx::{Nginx, Request, basic};
pub use process::{Port, Process};
pub use rclone::Rclone;
pub use redis::Redis;
pub use remote::{Remote, without_cloud_environment};
pub use seaweed::Seaweed;
pub use two_ports::TwoPorts;
pub use webhdfs::WebHdfs;

/// The credentials of a user of an object store.
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

    /// Returns the same name with a wrong secret of the same form.
    pub fn with_wrong_secret(&self) -> Self {
        Self {
            secret: self.secret.chars().rev().collect(),
            ..self.clone()
        }
    }
}

/// Returns the path of an installed program or module.
fn installed(path: &str) -> PathBuf {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/servers")
        .join(path);
    assert!(path.exists(), "run tests/servers/setup.sh: no {path:?}");
    path
}

/// Runs `client.py` with the given credentials, and none from the environment of this process.
fn client(
    verb: &str,
    endpoint: &str,
    bucket: &str,
    what: &str,
    env: &[(String, String)],
) -> Output {
    let mut command = Command::new(installed(".venv/bin/python"));
    without_cloud_environment(&mut command)
        .arg(installed("client.py"))
        .args([verb, endpoint, bucket, what])
        .envs(env.iter().cloned());
    run_for(&mut command, Duration::from_secs(120))
}

/// Returns the output of `client.py`, or its error message.
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

/// Uploads every file of `tree` to a bucket.
fn put(verb: &str, endpoint: &str, bucket: &str, tree: &Path, env: &[(String, String)]) {
    let tree = tree.to_str().unwrap();
    if let Err(why) = answered(client(verb, endpoint, bucket, tree, env)) {
        panic!("{verb} {bucket}: {why}");
    }
}
