//! mount(8) calls a helper for each type of file system, `/sbin/mount.TYPE`, with arguments of its
//! own kind. Called by one of these names, zarrfs takes them, and nothing else.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use clap::{CommandFactory, Parser};

use super::Cli;
use super::expand::{Unknown, expand_list};

/// What links to the binary are called so that mount(8) finds it: for `-t zarrfs`, and for
/// `-t fuse.zarrfs`, which is what the mount table says.
const NAMES: [&str; 2] = ["mount.zarrfs", "mount.fuse.zarrfs"];

/// mount(8): incorrect invocation.
const USAGE: i32 = 1;

/// Mount a Zarr hierarchy: what mount(8) calls for the type zarrfs
///
/// The options are those of `zarrfs mount`, see zarrfs(1).
#[derive(Debug, Parser)]
#[command(name = "mount.zarrfs", version, max_term_width = 100)]
pub struct HelperArgs {
    /// What is mounted, as for `zarrfs mount`
    pub source: PathBuf,
    /// An empty directory
    pub mountpoint: PathBuf,
    /// Pass over options that are not known
    #[arg(short)]
    pub sloppy: bool,
    /// Do all but mount: check the options
    #[arg(short)]
    pub fake: bool,
    /// Nothing: there is no /etc/mtab to be left alone
    #[arg(short)]
    pub no_mtab: bool,
    /// Say what was mounted
    #[arg(short)]
    pub verbose: bool,
    /// Mount in this mount namespace, a file such as /proc/PID/ns/mnt
    #[arg(short = 'N', value_name = "NAMESPACE")]
    pub namespace: Option<PathBuf>,
    /// Any long option of `zarrfs mount`, and the generic ones of mount(8)
    #[arg(short = 'o', value_name = "NAME[=VALUE],...")]
    pub options: Vec<OsString>,
    /// The type, which says nothing new
    #[arg(short = 't', value_name = "TYPE")]
    pub kind: Option<OsString>,
}

/// What mount(8) asks for besides a mount.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Asked {
    /// Do all but mount.
    pub is_fake: bool,
    /// Say what was mounted.
    pub is_verbose: bool,
    /// The mount namespace to mount in.
    pub namespace: Option<PathBuf>,
}

/// Whether mount(8) has called us, by the name of the program.
pub(super) fn is_called(program: Option<&OsString>) -> bool {
    let name = program.and_then(|path| Path::new(path).file_name());
    name.is_some_and(|name| NAMES.iter().any(|helper| name == *helper))
}

/// Reads the arguments of a helper; `--help` and mistakes end the process.
pub(super) fn parse(arguments: Vec<OsString>) -> Cli {
    match read(arguments) {
        Ok(cli) => cli,
        Err(error) => {
            let code = if error.use_stderr() { USAGE } else { 0 };
            // A standard error that can not be written to changes nothing.
            let _ = error.print();
            std::process::exit(code)
        }
    }
}

fn read(arguments: Vec<OsString>) -> Result<Cli, clap::Error> {
    let given = HelperArgs::try_parse_from(arguments)?;
    let unknown = match given.sloppy {
        true => Unknown::Dropped,
        false => Unknown::Refused,
    };
    let mut ours: Vec<OsString> = vec!["mount.zarrfs".into(), "mount".into()];
    for list in &given.options {
        let expanded = expand_list(list, unknown).map_err(|message| {
            HelperArgs::command().error(clap::error::ErrorKind::UnknownArgument, message)
        })?;
        ours.extend(expanded);
    }
    ours.push("--".into());
    ours.push(given.source.into());
    ours.push(given.mountpoint.into());
    let mut cli = Cli::try_parse_from(ours)?;
    if let Some(mistake) = cli.mistake() {
        return Err(mistake);
    }
    cli.asked = Some(Asked {
        is_fake: given.fake,
        is_verbose: given.verbose,
        namespace: given.namespace,
    });
    Ok(cli)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::Command;

    fn parsed(arguments: &[&str]) -> Result<Cli, clap::Error> {
        read(arguments.iter().map(OsString::from).collect())
    }

    #[test]
    fn the_name_of_the_program_tells_a_helper() {
        let called = |name: &str| is_called(Some(&OsString::from(name)));
        assert!(called("/sbin/mount.zarrfs") && called("mount.fuse.zarrfs"));
        assert!(!called("/sbin/zarrfs") && !called("mount.zarrfs/zarrfs") && !is_called(None));
    }

    #[test]
    fn what_mount_8_says_is_a_mount() {
        let all = [
            "mount.zarrfs",
            "s3://b/x",
            "/mnt",
            "-sfnv",
            "-N",
            "/proc/1/ns/mnt",
            "-o",
            "rw,ttl=5s,nonsense=1",
            "-t",
            "fuse.zarrfs",
        ];
        let cli = parsed(&all).unwrap();
        let asked = Asked {
            is_fake: true,
            is_verbose: true,
            namespace: Some("/proc/1/ns/mnt".into()),
        };
        assert_eq!(cli.asked, Some(asked));
        let Command::Mount(mount) = cli.command else {
            panic!("{:?}", cli.command)
        };
        assert_eq!(mount.source, Path::new("s3://b/x"));
        assert_eq!(mount.options.ttl, Some(std::time::Duration::from_secs(5)));
    }

    #[test]
    fn mistakes_are_named() {
        for (arguments, named) in [
            (
                &["mount.zarrfs", "a", "b", "-o", "nonsense"][..],
                "nonsense",
            ),
            (&["mount.zarrfs", "a", "b", "-o", "ttl=never"], "never"),
            (
                &["mount.zarrfs", "a", "b", "-s", "-o", "ttl=never"],
                "never",
            ),
            (&["mount.zarrfs", "a", "b", "--ttl", "1s"], "--ttl"),
            (&["mount.zarrfs", "a"], "MOUNTPOINT"),
        ] {
            let message = parsed(arguments).unwrap_err().to_string();
            assert!(message.contains(named), "{message}");
        }
    }
}
