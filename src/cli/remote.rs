//! How what is far away is asked; the same for a mount and for the commands that look at a source.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use crate::store::RemoteOptions;
use crate::units::parse_timeout;

/// Options for sources that are far away.
#[derive(Debug, Clone, Args)]
pub struct RemoteArgs {
    /// How long a program waits for anything that takes a network or a decoder
    #[arg(long, value_name = "TIME", value_parser = parse_timeout, default_value = "30s", help_heading = "Remote")]
    pub timeout: Duration,
    /// How often a request that failed is sent again, within that time
    #[arg(long, value_name = "N", default_value_t = 10, help_heading = "Remote")]
    pub retries: u32,
    /// Requests that are on their way at the same time
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024), default_value_t = 64, help_heading = "Remote")]
    pub parallel: u16,
    /// Ask without credentials
    #[arg(long, help_heading = "Remote")]
    pub anonymous: bool,
    /// Where the object store is, if not where its provider is
    #[arg(long, value_name = "URL", help_heading = "Remote")]
    pub endpoint_url: Option<String>,
    /// The region of an S3 bucket
    #[arg(long, value_name = "NAME", help_heading = "Remote")]
    pub region: Option<String>,
    /// The profile of the AWS configuration to use
    #[arg(long, value_name = "NAME", help_heading = "Remote")]
    pub profile: Option<String>,
    /// Take variables for the environment, such as AWS_ACCESS_KEY_ID=..., from this file of
    /// NAME=VALUE lines; root takes it only if it is its own and others can neither read nor change it
    #[arg(long, value_name = "FILE", help_heading = "Remote")]
    pub env_file: Option<PathBuf>,
    /// Send this header with every request; other users can see it in the list of processes
    #[arg(long, value_name = "NAME: VALUE", help_heading = "Remote")]
    pub header: Vec<String>,
    /// Take this refusal, such as 403, for a proof that there is no such key
    #[arg(long, value_name = "STATUS", value_parser = clap::value_parser!(u16).range(400..=499), help_heading = "Remote")]
    pub missing_status: Vec<u16>,
}

impl RemoteArgs {
    /// As the store takes them. `ttl` is what the user has said of it; bytes may take
    /// `memory_bytes`.
    pub fn options(&self, ttl: Option<Duration>, memory_bytes: u64) -> RemoteOptions {
        let defaults = RemoteOptions::default();
        RemoteOptions {
            anonymous: self.anonymous,
            endpoint_url: self.endpoint_url.clone(),
            region: self.region.clone(),
            profile: self.profile.clone(),
            headers: self.header.clone(),
            missing_statuses: self.missing_status.clone(),
            timeout: self.timeout,
            retries: self.retries,
            parallel: self.parallel.into(),
            ttl: ttl.unwrap_or(defaults.ttl),
            absent_ttl: ttl.unwrap_or(defaults.absent_ttl),
            memory_bytes,
            disk: None,
        }
    }
}
