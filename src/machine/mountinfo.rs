//! The mount table, `/proc/self/mountinfo` (proc_pid_mountinfo(5)).

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

/// A line of the mount table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MountInfo {
    /// The mount ID.
    pub id: String,
    /// The numbers of the device, `MAJOR:MINOR`.
    pub device: String,
    /// The directory of the file system that is the root of the mount.
    pub root: PathBuf,
    /// The mountpoint, relative to the root directory of the process.
    pub mountpoint: PathBuf,
    /// The type of the file system.
    pub kind: String,
    /// The source of the mount.
    pub source: String,
    /// The options of the file system, separated by commas.
    pub super_options: String,
}

impl MountInfo {
    /// Returns the options of the file system.
    pub fn options(&self) -> impl Iterator<Item = &str> {
        self.super_options.split(',')
    }
}

/// Returns the mounts of a table in its order, without malformed lines.
pub fn parse_table(table: &[u8]) -> impl Iterator<Item = MountInfo> {
    table.split(|byte| *byte == b'\n').filter_map(parse)
}

/// Parses a line of the table; `None` if it is malformed.
fn parse(line: &[u8]) -> Option<MountInfo> {
    let text = |field: &[u8]| String::from_utf8_lossy(field).into_owned();
    let path = |field: &[u8]| PathBuf::from(OsString::from_vec(unescape(field)));
    let mut fields = line.split(|byte| *byte == b' ');
    let (id, device) = (fields.next()?, fields.nth(1)?);
    let (root, mountpoint) = (fields.next()?, fields.next()?);
    // A hyphen ends the optional fields.
    let mut fields = fields.skip_while(|field| *field != b"-").skip(1);
    let (kind, source) = (fields.next()?, fields.next().unwrap_or_default());
    Some(MountInfo {
        id: text(id),
        device: text(device),
        root: path(root),
        mountpoint: path(mountpoint),
        kind: text(kind),
        source: text(&unescape(source)),
        super_options: text(fields.next().unwrap_or_default()),
    })
}

/// Decodes the octal escapes of a field, such as `\040` for a space.
fn unescape(field: &[u8]) -> Vec<u8> {
    let mut plain = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((first, tail)) = rest.split_first() {
        let digits = (*first == b'\\').then(|| tail.get(..3)).flatten();
        let digits = digits.and_then(|digits| std::str::from_utf8(digits).ok());
        match digits.and_then(|digits| u8::from_str_radix(digits, 8).ok()) {
            Some(byte) => {
                plain.push(byte);
                rest = tail.get(3..).unwrap_or_default();
            }
            None => {
                plain.push(*first);
                rest = tail;
            }
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_escaped_paths_and_optional_fields() {
        let table = b"36 35 98:0 /a\\040b /mnt/c\\134d rw,nosuid shared:1 master:2 - ext3 \
                      /dev/my\\011root rw,errors=continue\nshort line\n37 35 0:5 / /x rw - proc\n";
        let mounts: Vec<_> = parse_table(table).collect();
        let [first, second] = mounts.as_slice() else {
            panic!("{mounts:?}");
        };
        let expected = MountInfo {
            id: "36".into(),
            device: "98:0".into(),
            root: "/a b".into(),
            mountpoint: "/mnt/c\\d".into(),
            kind: "ext3".into(),
            source: "/dev/my\troot".into(),
            super_options: "rw,errors=continue".into(),
        };
        assert_eq!(*first, expected);
        assert!(first.options().eq(["rw", "errors=continue"]));
        assert_eq!((&*second.kind, &*second.source), ("proc", ""));
    }
}
