//! A directory served as the Hub of Hugging Face, with its content delivery network, in a process of its own.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use crate::support::{run_for, scratch};

use super::remote::without_cloud_environment;
use super::{Port, Process, Remote, http, installed};

/// The Hub.
#[derive(Debug)]
pub struct Hub {
    _process: Process,
    ports: [Port; 2],
    dir: tempfile::TempDir,
}

impl Hub {
    /// Serves a directory. `args` are the arguments of `hub.py`.
    pub fn start(root: &Path, args: &[&str]) -> Self {
        let dir = scratch();
        // The network uses the next port.
        let ports = std::iter::repeat_with(Port::free)
            .take(100)
            .find_map(|port| {
                let next = Port::take(port.number + 1)?;
                Some([port, next])
            });
        let ports = ports.expect("two ports are free");
        let number = ports[0].number.to_string();
        let mut command = Command::new("python3");
        command.arg(installed("hub.py")).arg(&number).arg(root);
        command.arg(dir.path().join("requests")).args(args);
        let mut process = Process::start("hub.py", &command, &dir.path().join("log"));
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

    /// Returns the address of the Hub.
    pub fn endpoint(&self) -> String {
        format!("http://127.0.0.1:{}", self.ports[0].number)
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
            .env("HF_HOME", self.dir.path().join("home"))
            .env("HF_HUB_DISABLE_XET", "1")
            .env("HF_HUB_DISABLE_TELEMETRY", "1");
        let output = run_for(&mut command, Duration::from_secs(120));
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    }

    /// Returns a line for each request so far: server, method, path, status, bytes, and `token` if it had one.
    pub fn requests(&self) -> Vec<String> {
        let log = fs::read_to_string(self.dir.path().join("requests")).unwrap_or_default();
        log.lines().map(str::to_owned).collect()
    }
}
