//! The `zarrfs` command: parse, run, exit code.

use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::{self, ExitCode, Stdio};

use serde_json::{Map, Value, json};
use zarrfs::cli::{
    self, Cli, Command, CompleteArgs, CompletionSource, ManArgs, MountsArgs, RunArgs,
};
use zarrfs::daemon::{self, Failure, MountedSource, Source};
use zarrfs::export;
use zarrfs::inspect::{self, Verdict};
use zarrfs::store::ErrorKind;

/// The exit code of any failed command but mount.
const FAILED: u8 = 1;
/// The exit code of a failed mount in mount(8).
const MOUNT_FAILED: u8 = 32;
/// The exit code if `zarrfs run` itself fails, not its command.
const RUN_FAILED: u8 = 125;

fn main() -> ExitCode {
    if let Some(code) = daemon::run_probe().or_else(daemon::run_command) {
        return code;
    }
    let cli = cli::parse(std::env::args_os());
    let (is_json, code) = (cli.is_json(), failure_code(&cli.command));
    execute(cli).unwrap_or_else(|failure| {
        report(&failure, is_json);
        ExitCode::from(code)
    })
}

/// Returns the exit code of a command that fails.
fn failure_code(command: &Command) -> u8 {
    match command {
        Command::Mount(_) | Command::Demo(_) => MOUNT_FAILED,
        Command::Run(_) if daemon::private_mountpoint().is_some() => MOUNT_FAILED,
        Command::Run(_) => RUN_FAILED,
        _ => FAILED,
    }
}

/// Prints the message of a failure, and its document for programs. The exit code depends on neither.
fn report(failure: &Failure, is_json: bool) {
    // The waiting command prints that of a background process.
    if daemon::is_background() {
        return;
    }
    let _ = writeln!(io::stderr(), "zarrfs: {failure}");
    if is_json {
        let kind = ErrorKind::of(&**failure).name();
        let members = [
            ("kind", kind.into()),
            ("message", failure.to_string().into()),
        ];
        let members = members.map(|(name, value): (&str, Value)| (name.to_owned(), value));
        let document = inspect::document("error", Map::from_iter(members));
        let _ = inspect::print(format!("{document:#}\n").as_bytes());
    }
}

fn execute(cli: Cli) -> Result<ExitCode, Failure> {
    // For `run`, the variables are for the daemon, not for the command.
    let is_for_child = matches!(cli.command, Command::Run(_)) && !daemon::is_background();
    if let Some(file) = cli.env_file().filter(|_| !is_for_child) {
        daemon::restart_with_env_file(file)?;
    }
    let helper = cli.helper.as_ref();
    match cli.command {
        Command::Umount(arguments) => daemon::umount(&arguments)?,
        Command::Demo(demo) => {
            daemon::mount(&Source::Demo, Some(&demo.mountpoint), demo.options, None)?
        }
        Command::Mount(mount) => {
            let source = Source::new(mount.source);
            daemon::mount(&source, mount.mountpoint.as_deref(), mount.options, helper)?
        }
        Command::Check(arguments) => return check(|| inspect::check(&arguments)),
        Command::Run(arguments) => return run(*arguments),
        Command::Mounts(arguments) => shown(|| mounts(&arguments))?,
        Command::Tree(arguments) => shown(|| inspect::tree(&arguments))?,
        Command::Info(arguments) => shown(|| inspect::info(&arguments))?,
        Command::Export(arguments) => shown(|| export::export(&arguments))?,
        Command::Views(arguments) => shown(|| daemon::views(&arguments))?,
        Command::Path(arguments) => shown(|| daemon::path(&arguments))?,
        Command::Stats(arguments) => shown(|| daemon::stats(&arguments))?,
        Command::Completions(arguments) => {
            shown(|| Ok(inspect::print(&cli::completions(arguments.shell))?))?
        }
        Command::Complete(arguments) => shown(|| complete(&arguments))?,
        Command::Man(arguments) => shown(|| man(&arguments))?,
        Command::Help(arguments) => shown(|| help(arguments.topic.as_deref()))?,
    }
    Ok(ExitCode::SUCCESS)
}

/// Runs a command on a private mount; the background process serves it.
fn run(arguments: RunArgs) -> Result<ExitCode, Failure> {
    if let Some(mountpoint) = daemon::private_mountpoint() {
        let source = Source::new(arguments.source);
        daemon::mount(&source, Some(&mountpoint), arguments.options, None)?;
        return Ok(ExitCode::SUCCESS);
    }
    Ok(ExitCode::from(daemon::run(&arguments)?))
}

/// Runs a command that prints; a closed pipe is not a failure.
fn shown(command: impl FnOnce() -> Result<(), Failure>) -> Result<(), Failure> {
    let result = daemon::log_warnings().and_then(|()| command());
    match result {
        Err(failure) if is_reader_gone(&failure) => Ok(()),
        result => result,
    }
}

/// Returns the exit code of a check; a closed pipe is a failure.
fn check(command: impl FnOnce() -> Result<Verdict, Failure>) -> Result<ExitCode, Failure> {
    match daemon::log_warnings().and_then(|()| command()) {
        Ok(Verdict::Good) => Ok(ExitCode::SUCCESS),
        Ok(Verdict::Bad) => Ok(ExitCode::from(FAILED)),
        Err(failure) if is_reader_gone(&failure) => Ok(ExitCode::from(FAILED)),
        Err(failure) => Err(failure),
    }
}

fn is_reader_gone(failure: &Failure) -> bool {
    let error = failure.downcast_ref::<io::Error>();
    error.is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
}

fn mounts(arguments: &MountsArgs) -> Result<(), Failure> {
    let mounts = daemon::mounts()?;
    let text = match arguments.json {
        true => {
            let mounts = mounts.iter().map(mount_json).collect();
            let members = Map::from_iter([("mounts".to_owned(), mounts)]);
            format!("{:#}\n", inspect::document("mounts", members))
        }
        false => mounts.iter().map(mount_line).collect(),
    };
    Ok(inspect::print(text.as_bytes())?)
}

fn mount_json(mount: &MountedSource) -> Value {
    json!({
        "mountpoint": mount.mountpoint.to_string_lossy(),
        "source": mount.source,
        "pid": mount.pid,
        "has_ended": mount.has_ended,
        "uid": mount.uid,
    })
}

fn mount_line(mount: &MountedSource) -> String {
    let user = rustix::process::geteuid();
    let other = mount
        .uid
        .filter(|uid| !user.is_root() && *uid != user.as_raw());
    let daemon = match (mount.pid, other) {
        (Some(pid), _) => format!("pid {pid}"),
        (None, Some(uid)) => format!("of the user {uid}"),
        (None, None) if mount.has_ended => {
            "its daemon has ended: unmount it, or mount again".into()
        }
        (None, None) => "its daemon does not answer".into(),
    };
    let line = format!(
        "{} on {} ({daemon})",
        mount.source,
        mount.mountpoint.display()
    );
    format!("{}\n", inspect::printable(&line))
}

/// Prints the help of a command or a topic; man(1) shows a topic on a terminal.
fn help(topic: Option<&str>) -> Result<(), Failure> {
    let text = cli::help(topic)?;
    let page = topic.and_then(|topic| cli::man(Some(&format!("zarrfs-{topic}.7"))));
    let page = page.filter(|_| io::stdout().is_terminal());
    if page.is_some_and(|page| is_shown_by_man(&page).unwrap_or(false)) {
        return Ok(());
    }
    Ok(inspect::print(text.as_bytes())?)
}

/// Shows a manual page with man(1). Fails or returns `false` if no man(1) can read standard input.
fn is_shown_by_man(page: &str) -> io::Result<bool> {
    let mut man = process::Command::new("man");
    man.args(["-l", "-"])
        .stdin(Stdio::piped())
        .stderr(Stdio::null());
    let mut man = man.spawn()?;
    if let Some(mut input) = man.stdin.take() {
        input.write_all(page.as_bytes())?;
    }
    Ok(man.wait()?.success())
}

fn man(arguments: &ManArgs) -> Result<(), Failure> {
    if arguments.list {
        return Ok(inspect::print(
            (cli::man_pages().join("\n") + "\n").as_bytes(),
        )?);
    }
    let name = arguments.page.as_deref();
    match cli::man(name) {
        Some(page) => Ok(inspect::print(page.as_bytes())?),
        None => {
            let name = name.unwrap_or_default();
            Err(format!("no manual page `{name}`; `zarrfs man --list` lists them").into())
        }
    }
}

/// The names of nodes and mountpoints for completions.
struct LocalCompletions;

impl CompletionSource for LocalCompletions {
    fn children(&self, source: &Path, group: &str) -> Vec<String> {
        // A source that cannot be read has no completions.
        inspect::child_nodes(source, group).unwrap_or_default()
    }

    fn mountpoints(&self) -> Vec<PathBuf> {
        daemon::mountpoints().unwrap_or_default()
    }
}

fn complete(arguments: &CompleteArgs) -> Result<(), Failure> {
    let completion = cli::complete(&arguments.words, arguments.quoted, &LocalCompletions);
    Ok(inspect::print(completion.to_string().as_bytes())?)
}
