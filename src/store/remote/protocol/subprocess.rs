//! Programs that print credentials.
//!
//! They run without tokio's `process`, whose driver opens descriptors when the network runtime starts, and panics if
//! there are none.

use std::io::{self, Read};
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use tokio::task::spawn_blocking;

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
    let (out, err) = (running.0.stdout.take(), running.0.stderr.take());
    let ended = async {
        let (out, err) = (
            spawn_blocking(move || read(out)),
            spawn_blocking(move || read(err)),
        );
        let lost = |error: tokio::task::JoinError| error.to_string();
        let (stdout, stderr) = (out.await.map_err(lost)??, err.await.map_err(lost)??);
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

fn read(pipe: Option<impl Read>) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::new();
    if let Some(pipe) = pipe {
        let read = pipe.take(MAX_OUTPUT_BYTES + 1).read_to_end(&mut bytes);
        read.map_err(|error| error.to_string())?;
    }
    match bytes.len() as u64 > MAX_OUTPUT_BYTES {
        true => Err(format!("it prints more than {MAX_OUTPUT_BYTES} bytes")),
        false => Ok(bytes),
    }
}
