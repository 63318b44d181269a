//! Values that are wrong on their own, whatever the source is. Headers are not repeated: there may
//! be a secret in them.

use clap::error::ErrorKind;

use super::{Cli, Command, RemoteArgs};
use crate::store::{Key, RemoteOptions};

impl Cli {
    /// The first option whose value can not be meant.
    pub(super) fn mistake(&self) -> Option<clap::Error> {
        let (path, remote) = match &self.command {
            Command::Mount(mount) => (&mount.options.path, &mount.options.remote),
            Command::Demo(demo) => (&demo.options.path, &demo.options.remote),
            Command::Tree(tree) => (&tree.source.path, &tree.source.remote),
            Command::Info(info) => (&info.source.path, &info.source.remote),
            Command::Check(check) => (&check.source.path, &check.source.remote),
            Command::Umount(_) | Command::Stats(_) | Command::Completions(_) | Command::Man(_) => {
                return None;
            }
        };
        let message = of_path(path.as_deref()).or_else(|| of_remote(remote))?;
        let mut command = <Self as clap::CommandFactory>::command();
        Some(command.error(ErrorKind::ValueValidation, message))
    }
}

fn of_path(path: Option<&str>) -> Option<String> {
    let path = path?;
    let error = Key::new(path.trim_matches('/').as_bytes()).err()?;
    Some(format!("--path {path}: {error}"))
}

fn of_remote(remote: &RemoteArgs) -> Option<String> {
    RemoteOptions::check(&remote.header, remote.endpoint_url.as_deref()).err()
}
