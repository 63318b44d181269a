//! The source and the arguments of a remote store for `zarrfs`. Only this module spells the options.

use std::process::Command;
use std::time::Duration;

use crate::support::{Mount, Refusal, run_for, zarrfs};

use super::Keys;
use super::seaweed::aws;

/// A location in a server, with the arguments and the environment that `zarrfs` needs for it.
#[derive(Debug, Clone)]
pub struct Remote {
    base: String,
    args: Vec<String>,
    env: Vec<(String, String)>,
    removed: Vec<&'static str>,
}

impl Remote {
    /// Creates a location from a source of the command line, without a trailing slash.
    pub fn new(base: &str) -> Self {
        Self {
            base: base.to_owned(),
            args: Vec::new(),
            env: Vec::new(),
            removed: Vec::new(),
        }
    }

    pub fn s3(endpoint: &str, bucket: &str, keys: Option<&Keys>) -> Self {
        let mut remote = Self::new(&format!("s3://{bucket}")).endpoint(endpoint);
        remote.env = aws(keys);
        match keys {
            Some(_) => remote,
            None => remote.arg("--anonymous"),
        }
    }

    pub fn endpoint(self, url: &str) -> Self {
        self.arg("--endpoint-url").arg(url)
    }

    /// Adds an argument.
    pub fn arg(mut self, arg: &str) -> Self {
        self.args.push(arg.to_owned());
        self
    }

    /// Adds an environment variable.
    pub fn envs(mut self, variable: (String, String)) -> Self {
        self.env.push(variable);
        self
    }

    /// Removes an environment variable of this machine.
    pub fn without_env(mut self, name: &'static str) -> Self {
        self.removed.push(name);
        self
    }

    /// Returns the source for a path; a zip is recognised by its name.
    pub fn source(&self, path: &str) -> String {
        let zip = if path.ends_with(".zip") { "|zip:" } else { "" };
        format!("{}/{path}{zip}", self.base)
    }

    /// Returns the source for a zip in the other notation.
    pub fn source_of_zip(&self, path: &str) -> String {
        format!("zip::{}/{path}", self.base)
    }

    /// Mounts the source at `path`.
    pub fn mount(&self, path: &str) -> Mount {
        let source = self.source(path);
        self.attempt(&source)
            .unwrap_or_else(|e| panic!("zarrfs refused to mount {source}: {e:?}"))
    }

    /// Returns the output of a command that reads the source at `path` without a mount.
    pub fn run_command(&self, command: &str, path: &str, more: &[&str]) -> Vec<u8> {
        let mut run = zarrfs();
        without_cloud_environment(&mut run)
            .arg(command)
            .arg(self.source(path))
            .args(&self.args)
            .args(more)
            .envs(self.env.iter().cloned());
        let output = run_for(&mut run, Duration::from_secs(120));
        assert!(output.status.success(), "{command} {path}: {output:?}");
        output.stdout
    }

    /// Mounts a source, or returns the failure of the command. All mounts of remote stores use this.
    pub fn attempt(&self, source: &str) -> Result<Mount, Refusal> {
        let args: Vec<&str> = self.args.iter().map(String::as_str).collect();
        Mount::attempt_in(source, &args, |command| {
            without_cloud_environment(command);
            for name in &self.removed {
                command.env_remove(name);
            }
            command.envs(self.env.iter().cloned());
        })
    }
}

/// Removes the cloud and proxy settings of this machine from a command's environment. The command
/// then finds only the given credentials, and contacts only the servers of the test.
pub fn without_cloud_environment(command: &mut Command) -> &mut Command {
    for (name, _) in std::env::vars_os() {
        let upper = name.to_string_lossy().to_ascii_uppercase();
        let of_a_cloud = ["AWS_", "AZURE_", "GOOGLE_", "GCE_", "GCS_", "CLOUDSDK_"];
        if of_a_cloud.iter().any(|prefix| upper.starts_with(prefix)) || upper.ends_with("_PROXY") {
            command.env_remove(&name);
        }
    }
    command
        .env("AWS_EC2_METADATA_DISABLED", "true")
        .env("AWS_CONFIG_FILE", "/nonexistent")
        .env("AWS_SHARED_CREDENTIALS_FILE", "/nonexistent")
}
