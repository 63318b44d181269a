//! A directory served as WebHDFS, the REST interface of name node and data nodes, in a process of its own.

use std::path::Path;

use super::Remote;
use super::two_ports::TwoPorts;

/// The name node. The data node uses the second port.
#[derive(Debug)]
pub struct WebHdfs(TwoPorts);

impl WebHdfs {
    /// Serves a directory. `args` are the arguments of `webhdfs.py`.
    pub fn start(root: &Path, args: &[&str]) -> Self {
        Self(TwoPorts::start("webhdfs.py", root, args))
    }

    /// Returns the `zarrfs` arguments for sources below the root.
    pub fn remote(&self, user: &str) -> Remote {
        let user = match user {
            "" => String::new(),
            user => format!("{user}@"),
        };
        Remote::new(&format!("hdfs://{user}127.0.0.1:{}", self.0.port()))
    }

    /// Returns a line for each request so far: node, operation, path, status and bytes.
    pub fn requests(&self) -> Vec<String> {
        self.0.requests()
    }
}
