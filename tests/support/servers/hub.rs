//! A directory served as the Hub of Hugging Face, with its content delivery network, in a process of its own.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use crate::support::run_for;

use super::remote::without_cloud_environment;
use super::two_ports::TwoPorts;
use super::{Remote, installed};

/// The Hub. The network uses the second port.
#[derive(Debug)]
pub struct Hub(TwoPorts);

impl Hub {
    /// Serves a directory. `args` are the arguments of `hub.py`.
    pub fn start(root: &Path, args: &[&str]) -> Self {
        Self(TwoPorts::start("hub.py", root, args))
    }

    /// Returns the address of the Hub.
    pub fn endpoint(&self) -> String {
        format!("http://127.0.0.1:{}", self.0.port())
    }

    /// Returns the `zarrfs` arguments for sources below a repository, such as `datasets/ada/ocean`, for a user with
    /// this token, or without one.
    pub fn remote(&self, repository: &str, token: &str) -> Remote {
        let variable = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        Remote::new(&format!("hf://{repository}"))
            .envs(variable("HF_ENDPOINT", &self.endpoint()))
            .envs(variable("HF_TOKEN", token))
            .envs(variable("HF_HOME", "/nonexistent"))
    }

    /// Runs a Python program with `huggingface_hub`, which reads this Hub.
    pub fn run_client(&self, program: &Path, token: &str) -> String {
        let mut command = Command::new(installed(".venv/bin/python"));
        without_cloud_environment(&mut command)
            .arg(program)
            .env("HF_ENDPOINT", self.endpoint())
            .env("HF_TOKEN", token)
            .env("HF_HOME", self.0.dir().join("home"))
            .env("HF_HUB_DISABLE_XET", "1")
            .env("HF_HUB_DISABLE_TELEMETRY", "1");
        let output = run_for(&mut command, Duration::from_secs(120));
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    }

    /// Returns a line for each request so far: server, method, path, status, bytes, and `token` if it had one.
    pub fn requests(&self) -> Vec<String> {
        self.0.requests()
    }
}
