//! The views of a running mount, as files.

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::io::Errno;
use serde_json::Value;

use super::Failure;
use super::probe::{self, TIMEOUT};
use crate::cli::key_of;
use crate::fs::xattr;
use crate::store::ErrorKind;
use crate::view::{ESCAPE, Format};

/// A directory of a mount.
#[derive(Debug)]
pub(super) struct MountedViews {
    directory: PathBuf,
    /// The name of the directory's node.
    name: String,
    /// Whether nodes have their views in `.zarrfs`, and not in the directory of their group.
    is_native: bool,
}

/// The directory with the views of a node.
#[derive(Debug)]
pub(super) struct NodeViews {
    pub(super) directory: PathBuf,
    /// The name of the node.
    name: String,
    /// Whether the directory is that of an array's group.
    is_beside: bool,
}

/// Returns the error for a mount whose daemon has ended or hangs.
fn gone(directory: &Path, errno: Errno) -> Option<Failure> {
    let shown = directory.display();
    match errno {
        Errno::NOTCONN => Some(format!(
            "{shown}: the daemon of this mount is gone (zarrfs umount {shown}, or mount again)"
        )),
        Errno::TIMEDOUT => Some(format!(
            "{shown}: the daemon has not answered in {TIMEOUT:?}"
        )),
        _ => None,
    }
    .map(|message| ErrorKind::NoDaemon.failure(message))
}

impl MountedViews {
    /// Returns the views of a directory; `None` if it is not in a mount, or the mount has no views.
    ///
    /// # Errors
    /// If the daemon of the mount does not answer.
    pub(super) fn find(directory: &Path) -> Result<Option<Self>, Failure> {
        let text = |name| match probe::attribute(directory, name) {
            Ok(value) => Ok(Some(String::from_utf8_lossy(&value).into_owned())),
            Err(errno) => gone(directory, errno).map_or(Ok(None), Err),
        };
        let Some(views) = text(xattr::VIEWS)? else {
            return Ok(None);
        };
        let name = text(xattr::NAME)?.unwrap_or_default();
        let (directory, is_native) = match views.as_str() {
            "." => (directory.to_owned(), false),
            // The native tree, next to the directory of views, has views of more nodes.
            "views" => (directory.join("native"), true),
            _ => (directory.to_owned(), true),
        };
        Ok(Some(Self {
            directory,
            name,
            is_native,
        }))
    }

    /// Returns the directory of the views of the node at `key`.
    ///
    /// # Errors
    /// The mount has no such node.
    pub(super) fn node(&self, key: &OsStr) -> Result<NodeViews, Failure> {
        let key = key_of(key)?;
        let key = Path::new(OsStr::from_bytes(key.as_bytes()));
        let (path, name) = match key.file_name() {
            None => (self.directory.clone(), self.name.clone()),
            Some(last) => (
                self.directory.join(key),
                last.to_string_lossy().into_owned(),
            ),
        };
        let views = |directory: PathBuf, is_beside| NodeViews {
            directory,
            name,
            is_beside,
        };
        let failed = |error: io::Error| ErrorKind::at(&path, error);
        match fs::metadata(&path) {
            Ok(metadata) if metadata.is_dir() && self.is_native => {
                Ok(views(path.join(".zarrfs"), false))
            }
            Ok(metadata) if metadata.is_dir() => Ok(views(path, false)),
            Ok(_) => {
                let message = format!("{}: neither a group nor an array", path.display());
                Err(ErrorKind::NotADirectory.failure(message))
            }
            // In the tree of views, an array has no directory.
            Err(error) if error.kind() == io::ErrorKind::NotFound && !self.is_native => {
                let parent = path.parent().unwrap_or(&path).to_owned();
                let node = views(parent, true);
                match node.list() {
                    Ok(_) => Ok(node),
                    Err(_) => Err(failed(error)),
                }
            }
            Err(error) => Err(failed(error)),
        }
    }
}

impl NodeViews {
    /// Returns the path of the view in a format, even if the view does not exist.
    ///
    /// # Errors
    /// If the directory has no views of this format.
    pub(super) fn path(&self, format: Format) -> Result<PathBuf, Failure> {
        let is_taken = |name: &str| {
            let of_group = Format::all().any(|format| format.own_name("") == name);
            let path = self.directory.join(name);
            (self.is_beside && of_group)
                || fs::metadata(path).is_ok_and(|file| file.is_dir() != format.is_directory())
        };
        let name = |escape: &str| match self.is_beside {
            true => format.name_beside(&format!("{}{escape}", self.name)),
            false if escape.is_empty() => {
                Some(format.unique_name(&self.name, !format.is_of_group()))
            }
            false => Some(format.escaped_name(&self.name, escape)),
        };
        let plain = name("").filter(|plain| !is_taken(plain));
        let name = plain.or_else(|| name(ESCAPE));
        let name = name.ok_or_else(|| {
            ErrorKind::NoView.failure(format!(
                "{}: no `{format}` of {}: the mount has only the tree of views",
                self.directory.display(),
                self.name
            ))
        })?;
        Ok(self.directory.join(name))
    }

    /// Returns the content of `views.json` of the node.
    ///
    /// # Errors
    /// If the file cannot be read.
    pub(super) fn list(&self) -> Result<Value, Failure> {
        let file = match self.is_beside {
            true => format!("{}.views.json", self.name),
            false => "views.json".into(),
        };
        let file = self.directory.join(file);
        let failed = |e: io::Error| ErrorKind::at(&file, e);
        let text = fs::read(&file).map_err(failed)?;
        serde_json::from_slice(&text).map_err(|e| failed(e.into()))
    }

    /// Returns whether the list of views says that the node is an array.
    pub(super) fn is_array(&self) -> bool {
        self.list().is_ok_and(|list| list["node_type"] == "array")
    }

    /// Returns the error for a missing view, with the reason and the available formats.
    pub(super) fn missing(&self, name: &str, format: &str) -> Failure {
        let list = self.list().unwrap_or_default();
        let text = |value: &Value, member: &str| value[member].as_str().map(str::to_owned);
        let members = |name: &str| list[name].as_array().cloned().unwrap_or_default();
        let diagnostics = members("diagnostics");
        let own = diagnostics
            .iter()
            .find(|diagnostic| text(diagnostic, "view").as_deref() == Some(name));
        let reason = own.and_then(|own| text(own, "reason"));
        let reason = reason.map_or_else(String::new, |reason| format!(": {reason}"));
        let formats: Vec<String> = members("views")
            .iter()
            .filter_map(|view| text(view, "format"))
            .collect();
        let node = match list["key"].as_str() {
            None | Some("") => &self.name,
            Some(key) => key,
        };
        ErrorKind::NoView.failure(format!(
            "{node}: no `{format}`{reason}; it has {}",
            formats.join(", ")
        ))
    }
}
