//! The unix socket that serves the metrics of the daemon, for its own user and root.
//!
//! A client receives one JSON document and sends nothing. The socket (mode 0600) is in a directory
//! of the user (mode 0700). The directory is held open, never followed through a link, and names in
//! it are reached through the descriptor.

use std::collections::VecDeque;
use std::io::{self, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fs::{AtFlags, CWD, Dir, FileType, FlockOperation, Mode, OFlags};
use rustix::io::Errno;
use rustix::net::sockopt::{Timeout, set_socket_timeout, socket_peercred};
use rustix::net::{AddressFamily, Shutdown, SocketAddrUnix, SocketFlags, SocketType};

use super::Failure;

/// The suffix of the names of sockets.
const END: &str = ".sock";
/// The number of names that are tried, because a daemon in another pid namespace may have the same pid.
const NAMES: u32 = 16;
/// The time limit for the lock of the directory.
const LOCK_WAIT: Duration = Duration::from_secs(1);
/// The largest number of clients; a new client replaces the oldest one.
const MAX_CLIENTS: usize = 32;
/// The time limit of a client.
const CLIENT_TIMEOUT: Duration = Duration::from_secs(2);
/// The time between two checks of the clients, and before a retry of accept(2) without free descriptors.
const TICK: Duration = Duration::from_millis(100);

/// A listening socket, which is removed when it is closed.
#[derive(Debug)]
pub(super) struct Socket {
    directory: OwnedFd,
    name: String,
    path: PathBuf,
    listener: Arc<UnixListener>,
    is_closed: AtomicBool,
}

impl Socket {
    /// Creates the socket of a daemon; clients wait until [`Socket::serve`].
    ///
    /// # Errors
    /// The errors of all candidate directories.
    pub(super) fn open() -> Result<Self, Failure> {
        let mut failures = Vec::new();
        for (base, name) in places() {
            match Self::open_in(&base, &name) {
                Ok(socket) => return Ok(socket),
                Err(failure) => {
                    failures.push(format!("{}: {failure}", base.join(name).display()));
                }
            }
        }
        Err(failures.join("; ").into())
    }

    fn open_in(base: &Path, name: &str) -> Result<Self, Failure> {
        let directory = own_directory(base, name)?;
        let shown = base.join(name);
        lock(directory.as_fd())?;
        // Under the lock, a socket that refuses connections belongs to no daemon.
        sweep(directory.as_fd());
        let made = bind(directory.as_fd());
        let _ = rustix::fs::flock(&directory, FlockOperation::Unlock);
        let (listener, name) = made?;
        Ok(Self {
            path: shown.join(&name),
            directory,
            name,
            listener: Arc::new(listener),
            is_closed: AtomicBool::new(false),
        })
    }

    /// Returns the path of the socket.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Starts a thread that serves clients.
    ///
    /// # Errors
    /// If the thread cannot be started.
    pub(super) fn serve(&self, document: impl Fn() -> String + Send + 'static) -> io::Result<()> {
        let listener = Arc::clone(&self.listener);
        let thread = thread::Builder::new().name("zarrfs-stats".into());
        thread.spawn(move || serve(&listener, document)).map(drop)
    }

    /// Removes the socket and ends its thread.
    pub(super) fn close(&self) {
        if !self.is_closed.swap(true, Ordering::Relaxed) {
            let _ = rustix::fs::unlinkat(&self.directory, &self.name, AtFlags::empty());
            let _ = rustix::net::shutdown(&*self.listener, Shutdown::Both);
        }
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        self.close();
    }
}

/// Returns the candidate directories for the sockets of this user, the preferred one first.
fn places() -> Vec<(PathBuf, String)> {
    let user = rustix::process::geteuid();
    let mut places = Vec::new();
    if let Some(base) = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from)
        && base.is_absolute()
        // After sudo(8), the variable may be that of the other user.
        && std::fs::metadata(&base).is_ok_and(|base| base.uid() == user.as_raw())
    {
        places.push((base, "zarrfs".to_owned()));
    }
    if user.is_root() {
        places.push(("/run".into(), "zarrfs".to_owned()));
    }
    places.push(("/tmp".into(), format!("zarrfs-{user}")));
    places
}

/// Opens or creates a directory that only this user can access.
fn own_directory(base: &Path, name: &str) -> Result<OwnedFd, Failure> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let base = rustix::fs::openat(CWD, base, flags | OFlags::PATH, Mode::empty())?;
    match rustix::fs::mkdirat(&base, name, Mode::RWXU) {
        Ok(()) | Err(Errno::EXIST) => {}
        Err(e) => return Err(e.into()),
    }
    let opened = rustix::fs::openat(&base, name, flags | OFlags::NOFOLLOW, Mode::empty());
    let directory = opened.map_err(|e| match e {
        Errno::LOOP | Errno::NOTDIR => "it is not a directory".to_owned(),
        e => e.to_string(),
    })?;
    let stat = rustix::fs::fstat(&directory)?;
    if stat.st_uid != rustix::process::geteuid().as_raw() {
        return Err(format!("it belongs to user {}", stat.st_uid).into());
    }
    match stat.st_mode & 0o777 {
        0o700 => Ok(directory),
        mode => Err(format!("it has mode {mode:04o}, not 0700").into()),
    }
}

fn lock(directory: BorrowedFd<'_>) -> Result<(), Failure> {
    let begun = Instant::now();
    loop {
        match rustix::fs::flock(directory, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(()),
            Err(Errno::AGAIN) if begun.elapsed() < LOCK_WAIT => thread::sleep(TICK / 10),
            Err(Errno::AGAIN) => return Err("another zarrfs has it locked".into()),
            Err(e) => return Err(e.into()),
        }
    }
}

/// Returns the address of a name in an open directory, whose length is independent of the directory's path.
fn address(directory: BorrowedFd<'_>, name: &[u8]) -> rustix::io::Result<SocketAddrUnix> {
    let directory = format!("/proc/self/fd/{}/", directory.as_raw_fd());
    SocketAddrUnix::new([directory.as_bytes(), name].concat())
}

fn unconnected(flags: SocketFlags) -> rustix::io::Result<OwnedFd> {
    let flags = flags | SocketFlags::CLOEXEC;
    rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)
}

/// Removes sockets without a listener.
fn sweep(directory: BorrowedFd<'_>) {
    let Ok(names) = Dir::read_from(directory) else {
        return;
    };
    for name in names.flatten() {
        let name = name.file_name();
        let is_socket = rustix::fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW)
            .is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::Socket);
        if !is_socket || !name.to_bytes().ends_with(END.as_bytes()) {
            continue;
        }
        let helper = address(directory, name.to_bytes()).and_then(|address| {
            rustix::net::connect(unconnected(SocketFlags::NONBLOCK)?, &address)
        });
        if helper == Err(Errno::CONNREFUSED) {
            let _ = rustix::fs::unlinkat(directory, name, AtFlags::empty());
        }
    }
}

fn bind(directory: BorrowedFd<'_>) -> Result<(UnixListener, String), Failure> {
    let pid = std::process::id();
    for number in 0..NAMES {
        let name = match number {
            0 => format!("{pid}{END}"),
            number => format!("{pid}-{number}{END}"),
        };
        let socket = unconnected(SocketFlags::NONBLOCK)?;
        match rustix::net::bind(&socket, &address(directory, name.as_bytes())?) {
            Err(Errno::ADDRINUSE) => continue,
            bound => bound?,
        }
        let mode = Mode::RUSR | Mode::WUSR;
        let listens = rustix::fs::chmodat(directory, &name, mode, AtFlags::empty())
            .and_then(|()| rustix::net::listen(&socket, 64));
        if let Err(e) = listens {
            let _ = rustix::fs::unlinkat(directory, &name, AtFlags::empty());
            return Err(e.into());
        }
        return Ok((UnixListener::from(socket), name));
    }
    Err("all names for a socket are taken".into())
}

/// Returns whether a client may read the metrics.
fn is_allowed_peer(stream: &UnixStream) -> bool {
    let own = rustix::process::geteuid();
    socket_peercred(stream).is_ok_and(|peer| peer.uid == own || peer.uid.is_root())
}

/// A client, with its document and the number of bytes sent.
#[derive(Debug)]
struct Client {
    stream: UnixStream,
    document: Arc<[u8]>,
    sent: usize,
    until: Instant,
}

impl Client {
    /// Sends without blocking; returns whether bytes remain to be sent.
    fn go_on(&mut self) -> bool {
        while let Some(rest) = self
            .document
            .get(self.sent..)
            .filter(|rest| !rest.is_empty())
        {
            match self.stream.write(rest) {
                Ok(count) => self.sent = self.sent.saturating_add(count),
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                    return Instant::now() < self.until;
                }
                Err(_) => return false,
            }
        }
        false
    }
}

fn serve(listener: &UnixListener, render: impl Fn() -> String) {
    let mut clients = VecDeque::new();
    loop {
        wait(listener, &clients);
        // Clients that connect at the same time receive the same document.
        let mut document: Option<Arc<[u8]>> = None;
        for _ in 0..MAX_CLIENTS {
            let stream = match listener.accept() {
                Ok((stream, _)) => stream,
                Err(e) => match Errno::from_io_error(&e) {
                    Some(Errno::AGAIN) => break,
                    Some(Errno::INTR | Errno::CONNABORTED) => continue,
                    // The socket is closed.
                    Some(Errno::INVAL) => return,
                    _ => {
                        thread::sleep(TICK);
                        break;
                    }
                },
            };
            if !is_allowed_peer(&stream) || stream.set_nonblocking(true).is_err() {
                continue;
            }
            if document.is_none() {
                // The panic is logged, and the client receives nothing.
                let text = catch_unwind(AssertUnwindSafe(&render));
                document = text.ok().map(|text| Arc::from(text.into_bytes()));
            }
            if let Some(document) = &document {
                clients.push_back(Client {
                    stream,
                    document: Arc::clone(document),
                    sent: 0,
                    until: Instant::now() + CLIENT_TIMEOUT,
                });
            }
        }
        clients.retain_mut(Client::go_on);
        while clients.len() > MAX_CLIENTS {
            clients.pop_front();
        }
    }
}

/// Waits for a new client, for a client that can receive more, or for the time limit.
fn wait(listener: &UnixListener, clients: &VecDeque<Client>) {
    let mut polled = vec![PollFd::new(listener, PollFlags::IN)];
    let takers = clients.iter();
    polled.extend(takers.map(|client| PollFd::new(&client.stream, PollFlags::OUT)));
    let tick = Timespec {
        tv_sec: 0,
        tv_nsec: TICK.subsec_nanos().into(),
    };
    let _ = rustix::event::poll(&mut polled, (!clients.is_empty()).then_some(&tick));
}

/// Connects to the socket of a daemon; both connecting and each read end within `limit`.
///
/// # Errors
/// The errors of the system calls.
pub(super) fn connect(path: &Path, limit: Duration) -> io::Result<UnixStream> {
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(io::ErrorKind::InvalidInput.into());
    };
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let directory = rustix::fs::open(parent, flags, Mode::empty())?;
    let socket = unconnected(SocketFlags::empty())?;
    set_socket_timeout(&socket, Timeout::Send, Some(limit))?;
    rustix::net::connect(&socket, &address(directory.as_fd(), name.as_bytes())?)?;
    let stream = UnixStream::from(socket);
    stream.set_read_timeout(Some(limit))?;
    Ok(stream)
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    fn read_metrics(socket: &Socket) -> String {
        let mut stream = connect(socket.path(), Duration::from_secs(20)).unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        text
    }

    #[test]
    fn hanging_clients_do_not_delay_other_clients() {
        let base = tempfile::tempdir().unwrap();
        let socket = Socket::open_in(base.path(), "zarrfs").unwrap();
        // Longer than a socket buffer.
        let document = "x".repeat(4 << 20);
        let own = document.clone();
        socket.serve(move || own.clone()).unwrap();
        let hanging: Vec<_> = (0..2 * MAX_CLIENTS)
            .map(|_| connect(socket.path(), Duration::from_secs(20)).unwrap())
            .collect();
        let begun = Instant::now();
        assert!(read_metrics(&socket) == document);
        assert!(begun.elapsed() < CLIENT_TIMEOUT, "{:?}", begun.elapsed());
        drop(hanging);
        let path = socket.path().to_owned();
        drop(socket);
        assert!(!path.exists());
        let refused = connect(&path, Duration::from_secs(1)).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn a_panic_while_a_document_is_rendered_does_not_stop_the_socket() {
        let base = tempfile::tempdir().unwrap();
        let socket = Socket::open_in(base.path(), "zarrfs").unwrap();
        let helper = AtomicBool::new(false);
        let document = move || match helper.swap(true, Ordering::Relaxed) {
            true => "{}".to_owned(),
            false => panic!("a bug"),
        };
        socket.serve(document).unwrap();
        assert_eq!(read_metrics(&socket), "");
        assert_eq!(read_metrics(&socket), "{}");
    }

    #[test]
    fn only_stale_sockets_are_removed() {
        let base = tempfile::tempdir().unwrap();
        let socket = Socket::open_in(base.path(), "zarrfs").unwrap();
        let directory = base.path().join("zarrfs");
        drop(UnixListener::bind(directory.join("1.sock")).unwrap());
        drop(UnixListener::bind(directory.join("other")).unwrap());
        std::fs::write(directory.join("2.sock"), "").unwrap();
        let other = Socket::open_in(base.path(), "zarrfs").unwrap();
        assert_ne!(other.path(), socket.path(), "the name was taken");
        assert!(!directory.join("1.sock").exists());
        for name in ["other", "2.sock"] {
            assert!(directory.join(name).exists(), "{name}");
        }
        for socket in [socket, other] {
            let mode = std::fs::metadata(socket.path()).unwrap().mode();
            assert_eq!(mode & 0o777, 0o600);
        }
    }

    #[test]
    fn a_directory_that_other_users_can_access_is_refused() {
        let base = tempfile::tempdir().unwrap();
        let why = |name: &str| Socket::open_in(base.path(), name).unwrap_err().to_string();
        let open = base.path().join("open");
        std::fs::create_dir(&open).unwrap();
        std::fs::set_permissions(&open, std::fs::Permissions::from_mode(0o750)).unwrap();
        assert!(why("open").contains("0750"));
        std::fs::set_permissions(&open, std::fs::Permissions::from_mode(0o700)).unwrap();
        symlink(&open, base.path().join("link")).unwrap();
        assert!(why("link").contains("not a directory"), "{}", why("link"));
        std::fs::write(base.path().join("file"), "").unwrap();
        assert!(why("file").contains("not a directory"));
        if rustix::process::geteuid().is_root() {
            std::os::unix::fs::chown(&open, Some(65534), None).unwrap();
            assert!(why("open").contains("65534"));
        }
    }

    #[test]
    fn a_path_may_be_longer_than_an_address() {
        let base = tempfile::tempdir().unwrap();
        let long = base.path().join("x".repeat(200));
        std::fs::create_dir(&long).unwrap();
        let socket = Socket::open_in(&long, "zarrfs").unwrap();
        socket.serve(|| "{}".into()).unwrap();
        assert_eq!(read_metrics(&socket), "{}");
    }
}
