//! Checks of option values that do not depend on the source. Messages do not repeat headers, which
//! may contain secrets.

use std::ffi::OsStr;

use clap::error::ErrorKind;

use super::{Cli, Command, RemoteArgs, key_of};
use crate::store::RemoteOptions;

impl Cli {
    /// Checks the values of all options.
    ///
    /// # Errors
    /// The error of the first invalid value.
    pub(super) fn validate(&self) -> Result<(), clap::Error> {
        let (path, remote) = match &self.command {
            Command::Mount(mount) => (&mount.options.path, &mount.options.remote),
            Command::Demo(demo) => (&demo.options.path, &demo.options.remote),
            Command::Tree(tree) => (tree.source.path_or(&tree.key), &tree.source.remote),
            Command::Info(info) => (info.source.path_or(&info.key), &info.source.remote),
            Command::Check(check) => (check.source.path_or(&check.key), &check.source.remote),
            Command::Export(export) => (&export.source.path, &export.source.remote),
            Command::Views(views) => (views.source.path_or(&views.key), &views.source.remote),
            Command::Run(run) => (&run.options.path, &run.options.remote),
            Command::Path(_)
            | Command::Umount(_)
            | Command::Mounts(_)
            | Command::Stats(_)
            | Command::Completions(_)
            | Command::Complete(_)
            | Command::Man(_)
            | Command::Help(_) => return Ok(()),
        };
        validate_path(path.as_deref())
            .and_then(|()| validate_remote(remote))
            .map_err(|message| {
                let mut command = <Self as clap::CommandFactory>::command();
                command.error(ErrorKind::ValueValidation, message)
            })
    }
}

fn validate_path(path: Option<&OsStr>) -> Result<(), String> {
    let key = key_of(path.unwrap_or_default()).map(drop);
    key.map_err(|error| format!("--path {error}"))
}

fn validate_remote(remote: &RemoteArgs) -> Result<(), String> {
    RemoteOptions::check(&remote.header, remote.endpoint_url.as_deref())
}
