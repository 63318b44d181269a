//! The `zarrfs` command: parse, run, exit code.

use std::io::Write;
use std::process::ExitCode;

use zarrfs::cli::{self, Command};
use zarrfs::daemon::{self, Source};

/// mount(8): the mount failed.
const MOUNT_FAILED: u8 = 32;

fn main() -> ExitCode {
    let cli = cli::parse(std::env::args_os());
    let (result, code) = match cli.command {
        Command::Umount(arguments) => (daemon::umount(&arguments), 1),
        Command::Demo(demo) => (
            daemon::mount(&Source::Demo, &demo.mountpoint, demo.options),
            MOUNT_FAILED,
        ),
        Command::Mount(mount) => {
            let source = Source::Given(mount.source);
            (
                daemon::mount(&source, &mount.mountpoint, mount.options),
                MOUNT_FAILED,
            )
        }
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            if !daemon::is_background() {
                // A standard error that can not be written to changes nothing.
                let _ = writeln!(std::io::stderr(), "zarrfs: {failure}");
            }
            ExitCode::from(code)
        }
    }
}
