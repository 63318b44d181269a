//! The `zarrfs` command: parse, run, exit code.

use std::process::ExitCode;

use zarrfs::cli::{self, Command};
use zarrfs::daemon::{self, Failure, Source};

/// mount(8): the mount failed.
const MOUNT_FAILED: u8 = 32;

fn main() -> ExitCode {
    let cli = cli::parse(std::env::args_os());
    let (result, code) = match (cli.command, cli.mount) {
        (Some(Command::Umount(arguments)), _) => (daemon::umount(&arguments), 1),
        (Some(Command::Demo(demo)), _) => (
            daemon::mount(&Source::Demo, &demo.mountpoint, demo.options),
            MOUNT_FAILED,
        ),
        (Some(Command::Mount(mount)), _) => (run_mount(*mount), MOUNT_FAILED),
        (None, Some(mount)) => (run_mount(mount), MOUNT_FAILED),
        (None, None) => (Err("nothing to do (see --help)".into()), 2),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            if !daemon::is_background() {
                eprintln!("zarrfs: {failure}");
            }
            ExitCode::from(code)
        }
    }
}

fn run_mount(mount: cli::MountArgs) -> Result<(), Failure> {
    daemon::mount(
        &Source::Given(mount.source),
        &mount.mountpoint,
        mount.options,
    )
}
