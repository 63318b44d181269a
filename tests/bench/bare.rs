//! The FUSE floor: a file system of `fuser` alone, which answers every request from memory.
//!
//! ```text
//! bare MOUNTPOINT NAME:COUNT:BYTES...
//! ```
//! serves directories `NAME` of `COUNT` files `0`, `1`, ... of `BYTES` bytes each. Every file is a
//! part of one buffer, which is as long as the files of the largest directory, at most 2 GiB. The
//! kernel is configured as zarrfs does it for an immutable source (no open requests, names and
//! attributes cached for a day, as many session threads), so that any further cost is that of
//! zarrfs. It ends when it is unmounted; `cargo bench` alone only prints its usage.

use std::ffi::OsStr;
use std::io;
use std::time::{Duration, UNIX_EPOCH};

use fuser::{
    Config, Errno, FileAttr, FileHandle, FileType, Filesystem, Generation, INodeNo, InitFlags,
    KernelConfig, LockOwner, MountOption, OpenFlags, ReplyAttr, ReplyData, ReplyDirectory,
    ReplyDirectoryPlus, ReplyEmpty, ReplyEntry, ReplyOpen, Request,
};

const TTL: Duration = Duration::from_secs(86_400);
const ROOT: u64 = 1;
/// The upper half of an inode number is the number of the directory (from 1), the lower half that
/// of the file (from 1), or 0 for the directory itself.
const HALF: u32 = 32;
const MAX_ARENA_BYTES: u64 = 2 << 30;
/// As in zarrfs, the first READDIRPLUS reply is short.
const FIRST_PLUS_NAMES: usize = 16;

#[derive(Debug)]
struct Folder {
    name: String,
    count: u64,
    bytes: u64,
}

impl Folder {
    /// Parses `NAME:COUNT:BYTES`.
    fn parse(text: &str) -> Option<Self> {
        let mut parts = text.split(':');
        let folder = Self {
            name: parts.next()?.to_owned(),
            count: parts.next()?.parse().ok()?,
            bytes: parts.next()?.parse().ok()?,
        };
        (parts.next().is_none() && folder.count < 1 << HALF && folder.bytes <= MAX_ARENA_BYTES)
            .then_some(folder)
    }
}

#[derive(Debug)]
struct Bare {
    folders: Vec<Folder>,
    arena: Vec<u8>,
}

fn ino(folder: usize, file: u64) -> u64 {
    ((folder as u64 + 1) << HALF) | file
}

fn attr(ino: u64, kind: FileType, bytes: u64) -> FileAttr {
    FileAttr {
        ino: INodeNo(ino),
        size: bytes,
        blocks: bytes.div_ceil(512),
        atime: UNIX_EPOCH,
        mtime: UNIX_EPOCH,
        ctime: UNIX_EPOCH,
        crtime: UNIX_EPOCH,
        kind,
        perm: if kind == FileType::Directory {
            0o555
        } else {
            0o444
        },
        nlink: 1,
        uid: 0,
        gid: 0,
        rdev: 0,
        blksize: 4096,
        flags: 0,
    }
}

impl Bare {
    fn new(folders: Vec<Folder>) -> Self {
        let longest = folders
            .iter()
            .map(|folder| folder.bytes.max(folder.count.saturating_mul(folder.bytes)))
            .max()
            .unwrap_or(0)
            .min(MAX_ARENA_BYTES);
        let arena = (0..longest.div_ceil(8))
            .flat_map(|word| word.wrapping_mul(0x9E37_79B9_7F4A_7C15).to_le_bytes())
            .collect();
        Self { folders, arena }
    }

    fn at(&self, ino: INodeNo) -> Option<(&Folder, usize, u64)> {
        let number = usize::try_from(ino.0 >> HALF).ok()?.checked_sub(1)?;
        let file = ino.0 & ((1 << HALF) - 1);
        let folder = self.folders.get(number)?;
        (file <= folder.count).then_some((folder, number, file))
    }

    fn attr(&self, ino: INodeNo) -> Option<FileAttr> {
        if ino.0 == ROOT {
            return Some(attr(ROOT, FileType::Directory, 0));
        }
        Some(match self.at(ino)? {
            (_, _, 0) => attr(ino.0, FileType::Directory, 0),
            (folder, ..) => attr(ino.0, FileType::RegularFile, folder.bytes),
        })
    }

    fn find(&self, parent: INodeNo, name: &OsStr) -> Option<INodeNo> {
        let name = name.to_str()?;
        if parent.0 == ROOT {
            let number = self.folders.iter().position(|f| f.name == name)?;
            return Some(INodeNo(ino(number, 0)));
        }
        let (folder, number, file) = self.at(parent)?;
        let index: u64 = name.parse().ok()?;
        (file == 0 && index < folder.count).then(|| INodeNo(ino(number, index + 1)))
    }

    fn bytes(&self, ino: INodeNo, offset: u64, size: u32) -> Option<&[u8]> {
        let (folder, _, file) = self.at(ino)?;
        let places = (self.arena.len() as u64 / folder.bytes.max(1)).max(1);
        let from = (file.checked_sub(1)? % places) * folder.bytes;
        let start = from + offset.min(folder.bytes);
        let end = from + offset.saturating_add(size.into()).min(folder.bytes);
        self.arena
            .get(usize::try_from(start).ok()?..usize::try_from(end).ok()?)
    }

    /// Visits the entries of a directory after `offset`, until `add` returns that the buffer is full.
    fn list(&self, ino: INodeNo, offset: u64, mut add: impl FnMut(INodeNo, u64, &str) -> bool) {
        if ino.0 == ROOT {
            for (number, folder) in self.folders.iter().enumerate() {
                let next = number as u64 + 1;
                let child = INodeNo(self::ino(number, 0));
                if next > offset && add(child, next, &folder.name) {
                    return;
                }
            }
        } else if let Some((folder, number, 0)) = self.at(ino) {
            for index in offset..folder.count {
                let child = INodeNo(self::ino(number, index + 1));
                if add(child, index + 1, &index.to_string()) {
                    return;
                }
            }
        }
    }

    fn kind(ino: INodeNo) -> FileType {
        if ino.0 & ((1 << HALF) - 1) == 0 {
            FileType::Directory
        } else {
            FileType::RegularFile
        }
    }
}

impl Filesystem for Bare {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> io::Result<()> {
        let wanted = InitFlags::FUSE_PARALLEL_DIROPS
            | InitFlags::FUSE_DO_READDIRPLUS
            | InitFlags::FUSE_READDIRPLUS_AUTO
            | InitFlags::FUSE_EXPLICIT_INVAL_DATA
            | InitFlags::FUSE_NO_OPEN_SUPPORT;
        // Capabilities that the kernel lacks are left out.
        let _ = config.add_capabilities(wanted & config.capabilities());
        let _ = config.set_max_write(1 << 20);
        let _ = config.set_max_background(64);
        Ok(())
    }

    fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        match self.find(parent, name).and_then(|ino| self.attr(ino)) {
            Some(attr) => reply.entry(&TTL, &attr, Generation(0)),
            None => reply.error(Errno::ENOENT),
        }
    }

    fn getattr(&self, _: &Request, ino: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        match self.attr(ino) {
            Some(attr) => reply.attr(&TTL, &attr),
            None => reply.error(Errno::ENOENT),
        }
    }

    fn open(&self, _: &Request, _: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        reply.error(Errno::ENOSYS);
    }

    fn read(
        &self,
        _: &Request,
        ino: INodeNo,
        _: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        match self.bytes(ino, offset, size) {
            Some(bytes) => reply.data(bytes),
            None => reply.error(Errno::EIO),
        }
    }

    fn flush(&self, _: &Request, _: INodeNo, _: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        reply.error(Errno::ENOSYS);
    }

    fn readdir(
        &self,
        _: &Request,
        ino: INodeNo,
        _: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        self.list(ino, offset, |child, next, name| {
            reply.add(child, next, Self::kind(child), name)
        });
        reply.ok();
    }

    fn readdirplus(
        &self,
        _: &Request,
        ino: INodeNo,
        _: FileHandle,
        offset: u64,
        mut reply: ReplyDirectoryPlus,
    ) {
        let mut left = if offset == 0 {
            FIRST_PLUS_NAMES
        } else {
            usize::MAX
        };
        self.list(ino, offset, |child, next, name| {
            let Some(attr) = self.attr(child).filter(|_| left > 0) else {
                return true;
            };
            left -= 1;
            reply.add(child, next, name, &TTL, &attr, Generation(0))
        });
        reply.ok();
    }
}

fn main() -> io::Result<()> {
    // `cargo bench` adds an option.
    let mut arguments = std::env::args().skip(1).filter(|word| word != "--bench");
    let Some(mountpoint) = arguments.next() else {
        println!("bare MOUNTPOINT NAME:COUNT:BYTES...  (scripts/bench runs it)");
        return Ok(());
    };
    let folders: Option<Vec<Folder>> = arguments.map(|word| Folder::parse(&word)).collect();
    let folders = folders
        .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "wanted: NAME:COUNT:BYTES"))?;
    let mut config = Config::default();
    config.mount_options = vec![MountOption::RO, MountOption::FSName("bare".into())];
    config.n_threads = Some(
        std::thread::available_parallelism()
            .map_or(1, usize::from)
            .clamp(1, 4),
    );
    config.clone_fd = true;
    fuser::mount(Bare::new(folders), mountpoint, &config)
}
