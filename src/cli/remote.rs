//! Options for remote sources, for mounts and for commands that read a source.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;

use crate::store::{CredentialCommand, RemoteOptions, TlsOptions};
use crate::units::parse_timeout;

/// Options for remote sources.
#[derive(Debug, Clone, Args)]
pub struct RemoteArgs {
    /// Time limit of an operation that needs the network or a decoder
    #[arg(hide_short_help = true, long, value_name = "TIME", value_parser = parse_timeout, default_value = "30s", help_heading = "Remote")]
    pub timeout: Duration,
    /// Retries of a failed request, within the timeout
    #[arg(
        hide_short_help = true,
        long,
        value_name = "N",
        default_value_t = 10,
        help_heading = "Remote"
    )]
    pub retries: u32,
    /// Concurrent requests, fewer if the server has too many (429, 503)
    #[arg(hide_short_help = true, long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024), default_value_t = 64, help_heading = "Remote")]
    pub parallel: u16,
    /// Send requests without credentials
    #[arg(long, help_heading = "Remote")]
    pub anonymous: bool,
    /// URL of the object store, if it is not that of the provider
    #[arg(long, value_name = "URL", help_heading = "Remote")]
    pub endpoint_url: Option<String>,
    /// The region of an S3 bucket, where its answers do not name it
    #[arg(
        hide_short_help = true,
        long,
        value_name = "NAME",
        help_heading = "Remote"
    )]
    pub region: Option<String>,
    /// The profile of the AWS configuration to use, also if the environment has credentials
    #[arg(long, value_name = "NAME", help_heading = "Remote")]
    pub profile: Option<String>,
    /// Run this command for credentials, once per expiry: it prints JSON with `headers`, `sas` or AWS keys, and their
    /// `expires` (zarrfs help credentials)
    #[arg(
        hide_short_help = true,
        long,
        value_name = "COMMAND",
        conflicts_with_all = ["anonymous", "profile"],
        help_heading = "Remote"
    )]
    pub credential_command: Option<String>,
    /// Read environment variables, such as AWS_ACCESS_KEY_ID=..., from this file of NAME=VALUE lines;
    /// as root only if root owns it and others can neither read nor write it
    #[arg(
        hide_short_help = true,
        long,
        value_name = "FILE",
        help_heading = "Remote"
    )]
    pub env_file: Option<PathBuf>,
    /// Send this header with every request; other users can see it in the list of processes
    #[arg(
        hide_short_help = true,
        long,
        value_name = "NAME: VALUE",
        help_heading = "Remote"
    )]
    pub header: Vec<String>,
    /// Trust only the certificates in this file or directory (PEM), as curl --cacert; otherwise those that SSL_CERT_FILE,
    /// SSL_CERT_DIR, AWS_CA_BUNDLE, CURL_CA_BUNDLE and REQUESTS_CA_BUNDLE name, or those of the system
    #[arg(hide_short_help = true, long, value_name = "FILE", value_parser = absolute, help_heading = "Remote")]
    pub ca_bundle: Option<PathBuf>,
    /// Treat this status, such as 403, as proof that a key is absent
    #[arg(hide_short_help = true, long, value_name = "STATUS", value_parser = clap::value_parser!(u16).range(400..=499), help_heading = "Remote")]
    pub missing_status: Vec<u16>,
}

/// Returns an absolute path, because the daemon changes its working directory.
fn absolute(text: &str) -> Result<PathBuf, String> {
    std::path::absolute(text).map_err(|error| error.to_string())
}

impl RemoteArgs {
    /// Returns the options for the store. `ttl` is the option of the user, and `memory_bytes`
    /// limits the cache of fetched bytes.
    pub fn options(&self, ttl: Option<Duration>, memory_bytes: u64) -> RemoteOptions {
        let defaults = RemoteOptions::default();
        RemoteOptions {
            anonymous: self.anonymous,
            endpoint_url: self.endpoint_url.clone(),
            region: self.region.clone(),
            profile: self.profile.clone(),
            credential_command: self
                .credential_command
                .as_deref()
                .map(|line| Arc::new(CredentialCommand::new(line, self.timeout))),
            headers: self.header.clone(),
            tls: TlsOptions::new(self.ca_bundle.clone()),
            missing_statuses: self.missing_status.clone(),
            timeout: self.timeout,
            retries: self.retries,
            parallel: self.parallel.into(),
            ttl: ttl.unwrap_or(defaults.ttl),
            absent_ttl: ttl.unwrap_or(defaults.absent_ttl),
            memory_bytes,
            memory: defaults.memory,
            disk: None,
            is_public_only: false,
            redirects: None,
        }
    }
}
