//! How a remote store is named to `zarrfs`. What the command line calls things is said here only.

use std::process::Command;
use std::time::Duration;

use crate::support::{Mount, Refusal, run_for, zarrfs};

use super::Keys;
use super::seaweed::aws;

/// A place in a server, and what the command must be told to get there.
#[derive(Debug, Clone)]
pub struct Remote {
    base: String,
    args: Vec<String>,
    env: Vec<(String, String)>,
}

impl Remote {
    /// A source as the command line has it, without a slash at its end.
    pub fn new(base: &str) -> Self {
        Self {
            base: base.to_owned(),
            args: Vec::new(),
            env: Vec::new(),
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

    /// With one more argument.
    pub fn arg(mut self, arg: &str) -> Self {
        self.args.push(arg.to_owned());
        self
    }

    /// With one more variable of the environment.
    pub fn envs(mut self, variable: (String, String)) -> Self {
        self.env.push(variable);
        self
    }

    /// The source that a path is; a zip is told by its name.
    pub fn source(&self, path: &str) -> String {
        let zip = if path.ends_with(".zip") { "|zip:" } else { "" };
        format!("{}/{path}{zip}", self.base)
    }

    /// The source that a zip is, written the other way round.
    pub fn source_of_zip(&self, path: &str) -> String {
        format!("zip::{}/{path}", self.base)
    }

    /// Mounts what is at `path`.
    pub fn mount(&self, path: &str) -> Mount {
        let source = self.source(path);
        self.attempt(&source)
            .unwrap_or_else(|e| panic!("zarrfs refused to mount {source}: {e:?}"))
    }

    /// What a command that mounts nothing prints of what is at `path`.
    pub fn look(&self, command: &str, path: &str, more: &[&str]) -> Vec<u8> {
        let mut run = zarrfs();
        without_clouds(&mut run)
            .arg(command)
            .arg(self.source(path))
            .args(&self.args)
            .args(more)
            .envs(self.env.iter().cloned());
        let output = run_for(&mut run, Duration::from_secs(120));
        assert!(output.status.success(), "{command} {path}: {output:?}");
        output.stdout
    }

    /// Mounts a source, or says how the command failed. Every mount of a remote store comes here.
    pub fn attempt(&self, source: &str) -> Result<Mount, Refusal> {
        let args: Vec<&str> = self.args.iter().map(String::as_str).collect();
        Mount::attempt_in(source, &args, |command| {
            without_clouds(command).envs(self.env.iter().cloned());
        })
    }
}

/// Takes from a command's environment what this machine knows of clouds and proxies: it shall find
/// no other credentials than it is given, and ask no one but the servers of the test.
pub fn without_clouds(command: &mut Command) -> &mut Command {
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
