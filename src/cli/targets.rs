//! Options for references, for mounts and for commands that read a source.

use clap::Args;

use crate::store::{AllowedTarget, TargetOptions};

/// Options for references and STAC documents.
#[derive(Debug, Clone, Args)]
pub struct TargetArgs {
    /// Read also targets of references, or assets of a STAC document, that begin with this URL or path, or `any`:
    /// those below the directory or at the server or bucket of the references or the document need no option; a
    /// private address has to be named
    #[arg(hide_short_help = true, long, value_name = "PREFIX", value_parser = AllowedTarget::parse, help_heading = "Source")]
    pub allow_target: Vec<AllowedTarget>,
    /// Read targets that are newer than their references
    #[arg(hide_short_help = true, long, help_heading = "Source")]
    pub allow_newer_targets: bool,
}

impl TargetArgs {
    /// Returns the options for the store.
    pub fn options(&self) -> TargetOptions {
        TargetOptions {
            allowed: self.allow_target.clone(),
            allow_newer: self.allow_newer_targets,
        }
    }
}
