//! The command line. Every option is declared once, here; `-o name[=value]` of mount(8) becomes
//! `--name[=value]` before clap parses it.

mod complete;
mod discovery;
mod expand;
mod features;
mod generate;
mod help;
mod helper;
mod inspection;
mod man;
mod overview;
mod remote;
mod suggestions;
mod targets;
mod usage;
mod validate;

use std::ffi::OsString;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Args, CommandFactory, Parser, Subcommand, ValueEnum};

use crate::store::remote_schemes;
use crate::units::{
    FOREVER, parse_id, parse_log_filter, parse_memory_limit, parse_size, parse_time, parse_umask,
};
use crate::view::FormatSet;

pub use complete::{Completion, CompletionSource, complete, completions};
pub use discovery::{PathArgs, RunArgs, ViewsArgs};
pub use expand::expand_mount_options;
pub use generate::options;
pub use help::{HelpArgs, TOPICS, Topic, help};
pub use helper::{HelperArgs, HelperOptions};
pub use inspection::{
    CheckArgs, CompleteArgs, CompletionsArgs, ExportArgs, InfoArgs, ManArgs, PreviewProtocol,
    SourceArgs, StatsArgs, TreeArgs, key_of,
};
pub use man::{man, man_pages};
pub use remote::RemoteArgs;
pub use targets::TargetArgs;

/// The width of help texts on a wide terminal, in columns.
const MAX_WIDTH: usize = 100;

/// Mount a Zarr hierarchy as a read-only directory tree
#[derive(Debug, Parser)]
#[command(
    name = "zarrfs",
    version,
    long_version = features::text(),
    max_term_width = MAX_WIDTH,
    override_usage = "zarrfs [mount] SOURCE [MOUNTPOINT] [OPTIONS]\n       zarrfs COMMAND ...",
    help_template = overview::template(),
    after_help = overview::short_end(),
    after_long_help = overview::long_end(),
    subcommand_required = true,
    arg_required_else_help = true,
    disable_help_subcommand = true
)]
pub struct Cli {
    /// The command.
    #[command(subcommand)]
    pub command: Command,
    /// Print all commands and options as JSON
    #[arg(long, exclusive = true)]
    json_usage: bool,
    /// The options of mount(8), if it started this process as its helper.
    #[arg(skip)]
    pub helper: Option<HelperOptions>,
}

impl Cli {
    /// The file with variables for the environment of the command.
    pub fn env_file(&self) -> Option<&Path> {
        let remote = match &self.command {
            Command::Mount(arguments) => &arguments.options.remote,
            Command::Demo(arguments) => &arguments.options.remote,
            Command::Tree(arguments) => &arguments.source.remote,
            Command::Info(arguments) => &arguments.source.remote,
            Command::Check(arguments) => &arguments.source.remote,
            Command::Export(arguments) => &arguments.source.remote,
            Command::Views(arguments) => &arguments.source.remote,
            Command::Run(arguments) => &arguments.options.remote,
            Command::Path(_)
            | Command::Umount(_)
            | Command::Mounts(_)
            | Command::Stats(_)
            | Command::Completions(_)
            | Command::Complete(_)
            | Command::Man(_)
            | Command::Help(_) => return None,
        };
        remote.env_file.as_deref()
    }

    /// Whether the command prints JSON documents, also about its failure.
    pub fn is_json(&self) -> bool {
        match &self.command {
            Command::Mount(arguments) => arguments.options.json,
            Command::Demo(arguments) => arguments.options.json,
            Command::Mounts(arguments) => arguments.json,
            Command::Tree(arguments) => arguments.json,
            Command::Info(arguments) => arguments.json,
            Command::Check(arguments) => arguments.json,
            Command::Export(arguments) => arguments.json,
            Command::Views(arguments) => arguments.json,
            Command::Stats(arguments) => arguments.json,
            // Standard output is that of the command that runs.
            Command::Run(_)
            | Command::Path(_)
            | Command::Umount(_)
            | Command::Completions(_)
            | Command::Complete(_)
            | Command::Man(_)
            | Command::Help(_) => false,
        }
    }
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Mount SOURCE on MOUNTPOINT; returns once the mount answers
    #[command(args_override_self = true)]
    Mount(Box<MountArgs>),
    /// Unmount, and wait for the daemon to end
    #[command(visible_alias = "unmount")]
    #[command(override_usage = UMOUNT_USAGE)]
    Umount(UmountArgs),
    /// List what is mounted
    Mounts(MountsArgs),
    /// Mount the demo store that is inside the binary
    #[command(args_override_self = true)]
    Demo(Box<DemoArgs>),
    /// Show groups and arrays as a tree
    Tree(TreeArgs),
    /// Show the metadata and the views of one node
    Info(InfoArgs),
    /// Read and decode everything, and list what cannot be read
    Check(CheckArgs),
    /// Write a view, such as a NetCDF file, to a file, without a mount
    #[command(override_usage = "zarrfs export [OPTIONS] SOURCE[:KEY] FILE")]
    Export(ExportArgs),
    /// List the views of a node, of a mount or of a source
    #[command(override_usage = "zarrfs views [OPTIONS] SOURCE|MOUNTPOINT [KEY]")]
    Views(ViewsArgs),
    /// Print the path of one view of a mount
    Path(PathArgs),
    /// Run a command on a private mount that ends with it
    #[command(args_override_self = true)]
    Run(Box<RunArgs>),
    /// Show the metrics of a running mount
    Stats(StatsArgs),
    /// Print completions for a shell
    Completions(CompletionsArgs),
    /// Complete a command line, for the scripts of the completions
    #[command(name = "__complete", hide = true)]
    Complete(CompleteArgs),
    /// Print a manual page in the format of man(1)
    Man(ManArgs),
    /// Print the help of a command, or a topic of the manual
    Help(HelpArgs),
}

/// The ways to name mounts, of which one is required.
const UMOUNT_USAGE: &str =
    "zarrfs umount [--lazy] MOUNTPOINT... | --all | --all-users | --below DIR";

/// The text of SOURCE, with the schemes that this build supports.
fn source_help() -> String {
    let schemes: Vec<_> = remote_schemes().collect();
    format!(
        "A directory with a Zarr or N5 hierarchy, a zip archive or a database of one (SQLite, LMDB, GNU dbm, \
         Berkeley DB or dbm.dumb), an Icechunk repository, or references of kerchunk: a path, or a URL ({}). \
         zarrfs recognises the kind by the content; `URL|zip:KEY` is a hierarchy inside an archive",
        schemes.join(", ")
    )
}

/// `zarrfs [mount] SOURCE MOUNTPOINT`.
#[derive(Debug, Args)]
pub struct MountArgs {
    /// The hierarchy to mount.
    #[arg(help = source_help())]
    pub source: PathBuf,
    /// An empty directory [default: zarrfs/NAME in XDG_RUNTIME_DIR, which is printed]
    pub mountpoint: Option<PathBuf>,
    /// All options.
    #[command(flatten)]
    pub options: MountOptions,
}

/// `zarrfs demo MOUNTPOINT`.
#[derive(Debug, Args)]
pub struct DemoArgs {
    /// An empty directory
    pub mountpoint: PathBuf,
    /// All options.
    #[command(flatten)]
    pub options: MountOptions,
}

/// `zarrfs umount MOUNTPOINT...`.
#[derive(Debug, Args)]
pub struct UmountArgs {
    /// The mountpoints
    #[arg(required_unless_present_any = ["all", "all_users", "below"], value_name = "MOUNTPOINT")]
    pub mountpoints: Vec<PathBuf>,
    /// Unmount all mounts of this user, and print them
    #[arg(long, conflicts_with = "mountpoints")]
    pub all: bool,
    /// Unmount the mounts of all users (only root may), and print them
    #[arg(long, conflicts_with = "mountpoints")]
    pub all_users: bool,
    /// As --all, but only mounts at this directory or below it
    #[arg(long, conflicts_with = "mountpoints", value_name = "DIR")]
    pub below: Option<PathBuf>,
    /// Detach at once, even if files are open; the daemon ends when the last one is closed
    #[arg(short, long)]
    pub lazy: bool,
}

/// `zarrfs mounts`.
#[derive(Debug, Args)]
pub struct MountsArgs {
    /// Print one JSON document instead of a table
    #[arg(long)]
    pub json: bool,
}

/// When the kernel may read files of a local directory itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Passthrough {
    /// Where it can: as root, since Linux 6.9, for files of 64 KiB and more.
    Auto,
    /// Never.
    Off,
}

/// Whether directories have the name `.zarrfs`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ViewsListing {
    /// No directory has it.
    Off,
    /// It can be opened and is not listed.
    Hidden,
    /// It is listed.
    List,
}

/// The trees of a mount.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum MountedTree {
    /// The store's keys.
    Native,
    /// The views, one directory for each group.
    Views,
    /// Both, in `native` and `views`.
    Both,
}

/// The options of a mount; each is also a `-o` option, with `_` for `-`.
#[derive(Debug, Clone, Args)]
pub struct MountOptions {
    /// Print a JSON document with mountpoint, process and views when the mount is ready
    #[arg(hide_short_help = true, long, help_heading = "Process")]
    pub json: bool,
    /// Stay in the foreground; notify systemd when the mount is ready (NOTIFY_SOCKET)
    #[arg(short, long, help_heading = "Process")]
    pub foreground: bool,
    /// Log to a file instead of syslog, or of standard error in the foreground
    #[arg(
        hide_short_help = true,
        long,
        value_name = "FILE",
        help_heading = "Process"
    )]
    pub log_file: Option<PathBuf>,
    /// Log level: error, warn, info, debug, trace, or filters such as zarrfs::store=debug,warn, as in the variable ZARRFS_LOG
    #[arg(hide_short_help = true, long, value_name = "LEVEL", value_parser = parse_log_filter, help_heading = "Process")]
    pub log_level: Option<String>,
    /// Session threads, which receive requests from the kernel [default: one per core, at most 4]
    #[arg(hide_short_help = true, long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=64), help_heading = "Process")]
    pub threads: Option<u16>,

    /// Mount only the part of the hierarchy below this key
    #[arg(long, value_name = "KEY", help_heading = "Source")]
    pub path: Option<OsString>,
    /// Verify the checksum of a zip entry before its first byte is served
    #[arg(hide_short_help = true, long, help_heading = "Source")]
    pub verify: bool,
    /// Mount also a directory or a zip archive without Zarr metadata at its root
    #[arg(hide_short_help = true, long, help_heading = "Source")]
    pub force: bool,
    /// Refuse to mount a zip archive with entries that would be hidden or unreadable
    #[arg(hide_short_help = true, long, help_heading = "Source")]
    pub strict: bool,
    /// Follow symbolic links that lead out of a source directory
    #[arg(hide_short_help = true, long, help_heading = "Source")]
    pub follow_symlinks: bool,
    /// Mount this branch, tag or snapshot of an Icechunk repository; a branch is followed, see --ttl
    /// [default: main]
    #[arg(
        hide_short_help = true,
        long = "ref",
        value_name = "NAME",
        help_heading = "Source"
    )]
    pub reference: Option<String>,
    /// Options for references.
    #[command(flatten)]
    pub targets: TargetArgs,

    /// The directory `.zarrfs` of views: absent, present but not listed, or listed
    #[arg(long, value_enum, default_value = "hidden", help_heading = "Views")]
    pub views: ViewsListing,
    /// The tree that is mounted: the store's keys, the views, or both in directories of these names
    #[arg(
        hide_short_help = true,
        long,
        value_enum,
        default_value = "native",
        help_heading = "Views"
    )]
    pub tree: MountedTree,
    /// Formats of views that are listed, such as npy,chunks, or all; all views can be opened by name
    /// [default: nc, tif, npy, PLINK and translations in a group, all but images (nii, mrc, fits, ome, imagej, png) in
    /// that of an array]
    #[arg(
        hide_short_help = true,
        long,
        value_name = "LIST",
        default_value = "",
        hide_default_value = true,
        help_heading = "Views"
    )]
    pub formats: FormatSet,
    /// Assume WGS 84 in rasters and NetCDF files: EPSG:4326 for latitudes and longitudes in degrees if no
    /// metadata name a system, its figure of the Earth for a grid mapping without one
    #[arg(long, help_heading = "Views")]
    pub assume_wgs84: bool,

    /// How long names and sizes of a source that can change are cached, such as 500ms or inf
    /// [default: 1s; 60s for a remote source, and 1s for absent names]
    #[arg(long, value_name = "TIME", value_parser = parse_time, help_heading = "Caching")]
    pub ttl: Option<Duration>,
    /// Treat the source as one that does not change: as --ttl inf. A --disk-cache is then used without
    /// asking the server
    #[arg(
        hide_short_help = true,
        long,
        conflicts_with = "ttl",
        help_heading = "Caching"
    )]
    pub immutable: bool,
    /// Size of the cache of decoded data [default: 1/8 of the memory, at most 2 GiB]
    #[arg(hide_short_help = true, long, value_name = "SIZE", value_parser = parse_size, help_heading = "Caching")]
    pub cache_size: Option<u64>,
    /// Memory limit of one request, or of the index of an archive [default: 1/2 of the memory]
    #[arg(hide_short_help = true, long, value_name = "SIZE", value_parser = parse_memory_limit, help_heading = "Caching")]
    pub memory_limit: Option<u64>,
    /// Cache fetched bytes in this directory, for later and for other mounts
    #[arg(long, value_name = "DIR", help_heading = "Caching")]
    pub disk_cache: Option<PathBuf>,
    /// Size of the --disk-cache
    #[arg(hide_short_help = true, long, value_name = "SIZE", value_parser = parse_size, default_value = "10GiB", help_heading = "Caching")]
    pub disk_cache_size: u64,
    /// When the kernel may read files of a local directory itself
    #[arg(
        hide_short_help = true,
        long,
        value_enum,
        default_value = "auto",
        help_heading = "Caching"
    )]
    pub passthrough: Passthrough,

    /// Options for remote sources.
    #[command(flatten)]
    pub remote: RemoteArgs,

    /// Allow other users to access the mount; mode bits apply, and the daemon's permissions on the source
    #[arg(long, help_heading = "Permissions")]
    pub allow_other: bool,
    /// Owner of all files [default: the user who mounts]
    #[arg(hide_short_help = true, long, value_name = "N", value_parser = parse_id, help_heading = "Permissions")]
    pub uid: Option<u32>,
    /// Group of all files [default: the group of the user who mounts]
    #[arg(hide_short_help = true, long, value_name = "N", value_parser = parse_id, help_heading = "Permissions")]
    pub gid: Option<u32>,
    /// Permission bits to clear in 0644 (files) and 0755 (directories)
    #[arg(hide_short_help = true, long, value_name = "OCTAL", value_parser = parse_umask, default_value = "0", help_heading = "Permissions")]
    pub umask: u16,
    /// Mount on a directory that is not empty
    #[arg(hide_short_help = true, long, help_heading = "Permissions")]
    pub nonempty: bool,
    /// Create the mountpoint, and directories above it, if they do not exist
    #[arg(long, help_heading = "Permissions")]
    pub mkdir: bool,

    /// Options of mount(8): any long option above, and the generic ones
    #[arg(
        short = 'o',
        value_name = "NAME[=VALUE],...",
        help_heading = "Mount options"
    )]
    pub mount_options: Vec<String>,
}

impl MountOptions {
    /// Returns the time that names and sizes are cached, if the user has set it. It is [`Duration::MAX`] for
    /// a source that does not change.
    pub fn ttl(&self) -> Option<Duration> {
        match (self.immutable, self.ttl) {
            (true, _) => Some(Duration::MAX),
            (false, Some(ttl)) if ttl >= FOREVER => Some(Duration::MAX),
            (false, ttl) => ttl,
        }
    }
}

/// The SOURCE that means the demo store in the binary.
pub const DEMO: &str = "demo:";

/// Inserts the command `mount` if no command is given.
fn with_command(mut arguments: Vec<OsString>) -> Vec<OsString> {
    let command = Cli::command();
    let is_named = arguments.get(1).is_none_or(|first| {
        ["-h", "--help", "-V", "--version"]
            .iter()
            .any(|option| first == option)
            || command
                .get_subcommands()
                .flat_map(clap::Command::get_name_and_visible_aliases)
                .any(|named| first == named)
            || suggestions::is_unknown_word(first)
    });
    if !is_named {
        arguments.insert(1, "mount".into());
    }
    arguments
}

/// Parses a command line. `--help`, `--version` and errors end the process; errors with exit code
/// 2, or with 1 if mount(8) started it.
pub fn parse(arguments: impl IntoIterator<Item = OsString>) -> Cli {
    let arguments: Vec<OsString> = arguments.into_iter().collect();
    if helper::is_called(arguments.first()) {
        return helper::parse(arguments);
    }
    if let [_, option] = &arguments[..]
        && option == usage::OPTION
    {
        let document = format!("{:#}\n", usage::document());
        // A reader that is gone needs no document.
        let _ = std::io::stdout().write_all(document.as_bytes());
        std::process::exit(0);
    }
    match expand_mount_options(arguments) {
        Ok(arguments) => {
            let cli =
                Cli::try_parse_from(with_command(arguments.clone())).unwrap_or_else(|error| {
                    let error = suggestions::with_suggestion(error, &arguments);
                    refuse(&error, has_json(&arguments))
                });
            if let Err(error) = suggestions::command_first(&cli).and_then(|()| cli.validate()) {
                refuse(&error, cli.is_json());
            }
            cli
        }
        Err(message) => Cli::command()
            .error(clap::error::ErrorKind::UnknownArgument, message)
            .exit(),
    }
}

/// Returns whether a command line that is not understood asks for JSON.
fn has_json(arguments: &[OsString]) -> bool {
    let mut options = arguments.iter().take_while(|argument| *argument != "--");
    options.any(|argument| argument == "--json")
}

/// Ends the process with the message of an error, and for programs with its document (`zarrfs.error/1`), unless it is
/// help.
fn refuse(error: &clap::Error, is_json: bool) -> ! {
    if is_json && error.use_stderr() {
        let text = error.render().to_string();
        // The usage follows behind an empty line.
        let message = text.split("\n\n").next().unwrap_or_default();
        let message = message.trim_start_matches("error: ").trim();
        let document =
            serde_json::json!({"schema": "zarrfs.error/1", "kind": "usage", "message": message});
        let _ = writeln!(std::io::stdout(), "{document:#}");
    }
    error.exit()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_first_word_that_is_no_file_is_a_command() {
        let arguments = |first: &str| with_command(vec!["zarrfs".into(), first.into()]);
        for command in ["treee", "umnt", "list", "open"] {
            assert_eq!(arguments(command).len(), 2, "{command}");
        }
        for source in ["src", "a.zarr", "./a", "s3://b/a", "demo:", "--ttl", "a1"] {
            assert_eq!(arguments(source).len(), 3, "{source}");
        }
    }

    #[test]
    fn the_declaration_is_consistent() {
        Cli::command().debug_assert();
        HelperArgs::command().debug_assert();
    }
}
