//! Extended attributes: the source of a file, and the metadata of a node.

use serde_json::Value;

use super::{Answer, Fs, FsAnswer, FsError};
use crate::tree::Ino;

/// The largest size of an extended attribute's value, and of the list of names, in bytes.
const MAX_ATTRIBUTE_BYTES: usize = 64 << 10;

/// The size of the attributes that a list has, in bytes. Programs that copy attributes copy those in the list, and
/// ext4 has one block of 4 KiB for all attributes of a file: `rsync -X` and Python's `copytree` fail with ENOSPC.
const MAX_LISTED_BYTES: usize = 3 << 10;
/// The bytes that a file system adds to each attribute.
const ENTRY_BYTES: usize = 20;

/// Returns whether the kernel accepts an extended attribute.
fn is_attribute(name: &str, value: &[u8]) -> bool {
    name.len() <= 255 && !name.contains('\0') && value.len() <= MAX_ATTRIBUTE_BYTES
}

/// The attribute with the source of a file.
pub const SOURCE: &str = "user.zarrfs.source";
/// The attribute with the version of the daemon.
pub const VERSION: &str = "user.zarrfs.version";
/// The attribute with the process ID of the daemon.
pub const PID: &str = "user.zarrfs.pid";
/// The attribute with the totals of the metrics.
pub const STATS: &str = "user.zarrfs.stats";
/// The attribute with the path of the metrics socket.
pub const SOCKET: &str = "user.zarrfs.socket";
/// The attribute of a directory with views: the relative path to the views.
pub const VIEWS: &str = "user.zarrfs.views";
/// The attribute of a directory with views: the name of its node.
pub const NAME: &str = "user.zarrfs.name";
/// The prefix of the attributes with the metadata of a node.
const NODE_PREFIX: &str = "user.zarr.";

/// The attributes of the root, the last one only if it has a socket. Other files have only the first.
const ROOT_ATTRIBUTES: [&str; 5] = [SOURCE, VERSION, PID, STATS, SOCKET];

impl Fs {
    /// Returns the names of the extended attributes of a file: of those of its node only as many as other file
    /// systems can hold.
    ///
    /// # Errors
    /// The errors of reading the metadata of the node.
    pub async fn listxattr(&self, ino: Ino) -> Result<Vec<String>, FsError> {
        let count = match (ino, &self.socket) {
            (Ino::ROOT, Some(_)) => ROOT_ATTRIBUTES.len(),
            (Ino::ROOT, None) => ROOT_ATTRIBUTES.len() - 1,
            _ => 1,
        };
        let own = ROOT_ATTRIBUTES.iter().take(count);
        let mut names: Vec<String> = own.map(|name| (*name).to_owned()).collect();
        if self.tree.views(ino).await?.is_some() {
            names.extend([VIEWS, NAME].map(str::to_owned));
        }
        let mut room = MAX_LISTED_BYTES;
        for name in &names {
            let value = self.getxattr(ino, name.as_bytes()).await?;
            room = room.saturating_sub(name.len() + value.len() + ENTRY_BYTES);
        }
        for (name, value) in self.tree.attributes(ino).await? {
            let name = format!("{NODE_PREFIX}{name}");
            let needed = name.len() + value.len() + ENTRY_BYTES;
            if is_attribute(&name, &value)
                && let Some(left) = room.checked_sub(needed)
            {
                room = left;
                names.push(name);
            }
        }
        Ok(names)
    }

    /// Returns the value of an extended attribute.
    ///
    /// # Errors
    /// [`FsError::NoAttribute`], or [`FsError::NoSuchAttributeSpace`] for a namespace other than
    /// `user.*`, after which callers such as ls(1) request no more of them.
    pub fn getxattr<'a>(&'a self, ino: Ino, name: &'a [u8]) -> FsAnswer<'a, Vec<u8>> {
        let is_of_node = name.starts_with(NODE_PREFIX.as_bytes());
        match is_of_node || name == VIEWS.as_bytes() || name == NAME.as_bytes() {
            true => Answer::later(self.attribute_of_node(ino, name)),
            false => Answer::now(self.own_attribute(ino, name)),
        }
    }

    /// Returns an attribute of the node of a directory, or the place of its views.
    async fn attribute_of_node(&self, ino: Ino, name: &[u8]) -> Result<Vec<u8>, FsError> {
        let Some(name) = name.strip_prefix(NODE_PREFIX.as_bytes()) else {
            let views = self.tree.views(ino).await?.ok_or(FsError::NoAttribute)?;
            return Ok(match name == NAME.as_bytes() {
                true => views.name.into_bytes(),
                false => views.path.into(),
            });
        };
        let attributes = self.tree.attributes(ino).await?;
        let found = attributes.into_iter().find(|(found, value)| {
            found.as_bytes() == name && is_attribute(&format!("{NODE_PREFIX}{found}"), value)
        });
        found.map(|(_, value)| value).ok_or(FsError::NoAttribute)
    }

    /// Returns an attribute of the mount itself.
    fn own_attribute(&self, ino: Ino, name: &[u8]) -> Result<Vec<u8>, FsError> {
        if !name.starts_with(b"user.") {
            return Err(FsError::NoSuchAttributeSpace);
        }
        match std::str::from_utf8(name).unwrap_or_default() {
            SOURCE => {
                let label = self.tree.store().label();
                let key = self.tree.key(ino)?;
                Ok(match key.is_root() {
                    true => label.as_bytes().to_vec(),
                    false => {
                        [label.trim_end_matches('/').as_bytes(), b"/", key.as_bytes()].concat()
                    }
                })
            }
            VERSION if ino == Ino::ROOT => Ok(env!("CARGO_PKG_VERSION").into()),
            PID if ino == Ino::ROOT => Ok(std::process::id().to_string().into_bytes()),
            STATS if ino == Ino::ROOT => Ok(Value::Object(self.totals()).to_string().into_bytes()),
            SOCKET if ino == Ino::ROOT => self.socket.clone().ok_or(FsError::NoAttribute),
            _ => Err(FsError::NoAttribute),
        }
    }
}
