//! The message on a terminal that a mount still waits for its remote source.

use std::future::pending;
use std::io::{self, IsTerminal, Write};
use std::time::Duration;

use crate::runtime;
use crate::store::SourceName;

/// The delay of the message. Most sources answer within this time.
const DELAY: Duration = Duration::from_secs(1);

/// Prints the message after [`DELAY`] if standard error is a terminal. Dropping the result prevents it.
pub(super) fn start(source: Option<&SourceName>, timeout: Duration) -> Option<impl Send + use<>> {
    let label = source?.remote_label()?;
    if !io::stderr().is_terminal() {
        return None;
    }
    Some(runtime::on_network(async move {
        let _ = runtime::timeout(DELAY, pending::<()>()).await;
        let line = format!("zarrfs: waiting for {label} (--timeout {timeout:?})\n");
        let _ = io::stderr().write_all(line.as_bytes());
    }))
}
