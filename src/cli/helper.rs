//! The command line of a mount(8) helper, `/sbin/mount.TYPE`, which has its own arguments. It is
//! used if the program has one of the names in [`NAMES`].

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use clap::{CommandFactory, Parser};

use super::Cli;
use super::expand::{UnknownOptions, expand_list};

/// The names of links to the binary for mount(8), for `-t zarrfs` and for `-t fuse.zarrfs`, the
/// type in the mount table.
const NAMES: [&str; 2] = ["mount.zarrfs", "mount.fuse.zarrfs"];

/// The exit code of mount(8) for an incorrect invocation.
const USAGE: i32 = 1;

/// Mount a Zarr hierarchy: the mount(8) helper of the type zarrfs
///
/// The options are those of `zarrfs mount`, see zarrfs(1).
#[derive(Debug, Parser)]
#[command(name = "mount.zarrfs", version, max_term_width = 100)]
pub struct HelperArgs {
    /// The source, as for `zarrfs mount`
    pub source: PathBuf,
    /// An empty directory
    pub mountpoint: PathBuf,
    /// Ignore unknown options
    #[arg(short)]
    pub sloppy: bool,
    /// Do all but mount: check the options
    #[arg(short)]
    pub fake: bool,
    /// No effect: zarrfs writes no /etc/mtab
    #[arg(short)]
    pub no_mtab: bool,
    /// Print what was mounted
    #[arg(short)]
    pub verbose: bool,
    /// Mount in this mount namespace, a file such as /proc/PID/ns/mnt
    #[arg(short = 'N', value_name = "NAMESPACE")]
    pub namespace: Option<PathBuf>,
    /// Any long option of `zarrfs mount`, and the generic ones of mount(8)
    #[arg(short = 'o', value_name = "NAME[=VALUE],...")]
    pub options: Vec<OsString>,
    /// The type, which is ignored
    #[arg(short = 't', value_name = "TYPE")]
    pub kind: Option<OsString>,
}

/// The options of a mount(8) helper that are not mount options.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HelperOptions {
    /// Do all but mount.
    pub is_fake: bool,
    /// Print what was mounted.
    pub is_verbose: bool,
    /// The mount namespace to mount in.
    pub namespace: Option<PathBuf>,
}

/// Returns whether the program was started with the name of a helper.
pub(super) fn is_called(program: Option<&OsString>) -> bool {
    let name = program.and_then(|path| Path::new(path).file_name());
    name.is_some_and(|name| NAMES.iter().any(|helper| name == *helper))
}

/// Parses the arguments of a helper; `--help` and errors end the process.
pub(super) fn parse(arguments: Vec<OsString>) -> Cli {
    match read(arguments) {
        Ok(cli) => cli,
        Err(error) => {
            let code = if error.use_stderr() { USAGE } else { 0 };
            // Ignored, because the exit code does not depend on this message.
            let _ = error.print();
            std::process::exit(code)
        }
    }
}

fn read(arguments: Vec<OsString>) -> Result<Cli, clap::Error> {
    let given = HelperArgs::try_parse_from(arguments)?;
    let unknown = match given.sloppy {
        true => UnknownOptions::Ignored,
        false => UnknownOptions::Rejected,
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
    cli.validate()?;
    cli.helper = Some(HelperOptions {
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
    fn a_helper_is_recognized_by_the_name_of_the_program() {
        let called = |name: &str| is_called(Some(&OsString::from(name)));
        assert!(called("/sbin/mount.zarrfs") && called("mount.fuse.zarrfs"));
        assert!(!called("/sbin/zarrfs") && !called("mount.zarrfs/zarrfs") && !is_called(None));
    }

    #[test]
    fn all_arguments_of_mount_8_are_accepted() {
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
        let helper = HelperOptions {
            is_fake: true,
            is_verbose: true,
            namespace: Some("/proc/1/ns/mnt".into()),
        };
        assert_eq!(cli.helper, Some(helper));
        let Command::Mount(mount) = cli.command else {
            panic!("{:?}", cli.command)
        };
        assert_eq!(mount.source, Path::new("s3://b/x"));
        assert_eq!(mount.options.ttl, Some(std::time::Duration::from_secs(5)));
    }

    #[test]
    fn an_error_names_the_wrong_argument() {
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
