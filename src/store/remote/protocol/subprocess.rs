//! Programs that print credentials.
//!
//! They run without tokio's `process`, whose driver opens descriptors when the network runtime starts, and panics if
//! there are none.

use std::io;
use std::os::fd::OwnedFd;
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use futures_util::future::try_join;
use tokio::io::AsyncReadExt;
use tokio::net::unix::pipe::Receiver;

use crate::machine;

/// Size limit of each output in bytes.
const MAX_OUTPUT_BYTES: u64 = 1 << 20;
/// How often a program that has closed its outputs is asked whether it has ended.
const POLL: Duration = Duration::from_millis(5);

/// A child process, which is killed when this value is dropped.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        // Fails if it has ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Runs a command without standard input, and returns its outputs. It is killed after `timeout`, and if this future is
/// dropped.
///
/// # Errors
/// Why it does not run, that it runs for too long or prints too much; no error for its status.
pub(super) async fn output(mut command: Command, timeout: Duration) -> Result<Output, String> {
    machine::keep_descriptors_from_children();
    command.stdin(Stdio::null());
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let failed = |error: io::Error| error.to_string();
    let mut running = Running(command.spawn().map_err(failed)?);
    let out = running.0.stdout.take().map(OwnedFd::from);
    let err = running.0.stderr.take().map(OwnedFd::from);
    let ended = async {
        let (stdout, stderr) = try_join(read(out), read(err)).await?;
        loop {
            if let Some(status) = running.0.try_wait().map_err(failed)? {
                return Ok(Output {
                    status,
                    stdout,
                    stderr,
                });
            }
            tokio::time::sleep(POLL).await;
        }
    };
    let late = |_| format!("it runs for more than {timeout:?}");
    tokio::time::timeout(timeout, ended).await.map_err(late)?
}

/// Reads a pipe until all of its writers have closed it, which can be others than the program that was started.
async fn read(pipe: Option<OwnedFd>) -> Result<Vec<u8>, String> {
    let failed = |error: io::Error| error.to_string();
    let mut bytes = Vec::new();
    if let Some(pipe) = pipe {
        let pipe = Receiver::from_owned_fd(pipe).map_err(failed)?;
        let mut pipe = pipe.take(MAX_OUTPUT_BYTES + 1);
        pipe.read_to_end(&mut bytes).await.map_err(failed)?;
    }
    match bytes.len() as u64 > MAX_OUTPUT_BYTES {
        true => Err(format!("it prints more than {MAX_OUTPUT_BYTES} bytes")),
        false => Ok(bytes),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime;

    fn run(line: &str, timeout: Duration) -> Result<Output, String> {
        let mut command = Command::new("sh");
        command.arg("-c").arg(line);
        runtime::network()
            .unwrap()
            .block_on(output(command, timeout))
    }

    #[test]
    fn both_outputs_are_read_to_their_ends_and_limits() {
        let long = Duration::from_secs(20);
        let both = "head -c 300000 /dev/zero; head -c 200000 /dev/zero >&2; exit 3";
        let found = run(both, long).unwrap();
        let lengths = (found.stdout.len(), found.stderr.len());
        assert_eq!(
            (lengths, found.status.code()),
            ((300_000, 200_000), Some(3))
        );
        let endless = run("cat /dev/zero", long).unwrap_err();
        assert!(endless.contains("more than 1048576 bytes"), "{endless}");
        assert!(run("exec no-such-program", long).is_ok_and(|found| !found.status.success()));
    }

    #[test]
    fn a_program_that_leaves_its_outputs_to_another_one_is_late() {
        let short = Duration::from_millis(200);
        let late = run("sleep 3 & echo a", short).unwrap_err();
        assert!(late.contains("more than 200ms"), "{late}");
    }
}
