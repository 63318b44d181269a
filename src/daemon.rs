//! The life of a mount: checks, mounting, the background, signals, unmounting.
//!
//! The order is fixed: everything that can fail (options, source, mountpoint) is done before the
//! mount, so that a failure leaves nothing behind; the mount is ready when the kernel's handshake
//! is done; the process that was called returns only then.

mod answer;
mod arguments;
mod background;
mod environment;
mod greeting;
mod kernel;
mod limits;
mod logging;
mod mountpoint;
mod namespace;
mod signals;
mod socket;
mod stats;

use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rustix::fd::OwnedFd;
use rustix::io::Errno;
use rustix::process::{Resource, Rlimit};

use crate::array::{Engine, EngineOptions};
use crate::cli::{Asked, MountOptions, Passthrough, TreeShown, UmountArgs, Views};
use crate::explore::ExploredStore;
use crate::fs::{Fs, Policy};
use crate::fuse::{Mounted, Transport};
use crate::machine::{address_space_bytes, cores, memory_bytes};
use crate::store::{
    Capabilities, DirOptions, DiskCache, DiskCacheError, FaultStore, HangingStore, Key,
    ListingSupport, OpenOptions, RemoteOptions, SourceName, Store, ZipOptions, open_demo,
};
use crate::tree::{self, Shown, Tree, ViewTree};
use crate::view::{Nodes, NodesOptions};
pub use answer::answer_question;
pub use environment::take_environment;
use mountpoint::Mountpoint;
pub use stats::stats;

/// A failure, for a person.
pub type Failure = Box<dyn std::error::Error + Send + Sync>;

/// What is mounted.
#[derive(Debug, Clone)]
pub enum Source {
    /// What the command line names.
    Given(PathBuf),
    /// The demo store inside the binary.
    Demo,
}

/// Mounts, in the background unless told otherwise; returns when the mount answers, or (in the
/// foreground) when it has ended.
///
/// # Errors
/// What was tried and what was found; then nothing is mounted.
pub fn mount(
    source: &Source,
    mountpoint: &Path,
    options: MountOptions,
    asked: Option<&Asked>,
) -> Result<(), Failure> {
    if asked.is_some_and(|asked| asked.is_fake) {
        return Ok(());
    }
    limits::restart_with_small_allocator()?;
    if !options.foreground && !is_background() {
        return background::start();
    }
    // It was started as /proc/self/exe.
    let _ = rustix::thread::set_name(c"zarrfs");
    if is_background() {
        background::tie();
    }
    let result = serve(source, mountpoint, &options, asked);
    if is_background()
        && let Err(failure) = &result
    {
        background::tell(&format!("{failure}"));
    }
    result
}

/// Has a command that mounts nothing say its warnings on standard error.
///
/// # Errors
/// None today; as when a mount starts to log.
pub fn log_warnings() -> Result<(), Failure> {
    // What is wrong with nodes is in what these commands print.
    let level = "zarrfs=warn,zarrfs::view=off";
    let level = std::env::var_os("ZARRFS_LOG").is_none().then_some(level);
    logging::start(None, level, false)
}

/// Whether this process is the one that serves in the background.
pub fn is_background() -> bool {
    std::env::var_os(background::CHILD).is_some()
}

/// Mounts and serves until unmounted.
fn serve(
    source: &Source,
    mountpoint: &Path,
    options: &MountOptions,
    asked: Option<&Asked>,
) -> Result<(), Failure> {
    if let Some(file) = asked.and_then(|asked| asked.namespace.as_deref()) {
        namespace::enter(file)?;
    }
    let given = match source {
        Source::Given(source) => Some(SourceName::parse(source)?),
        Source::Demo => None,
    };
    let place = mountpoint;
    let mountpoint = Mountpoint::claim(place, options.nonempty)
        .map_err(|unusable| arguments::at_fault(unusable, source, place, options))?;
    let log = options.log_file.as_deref();
    if let Some(log) = log {
        mountpoint.check_outside(directory_of(log), "the log file")?;
    }
    logging::start(log, options.log_level.as_deref(), is_background())?;
    if mountpoint.is_recovered() {
        let shown = mountpoint.path().display();
        log::warn!("{shown}: a dead mount of zarrfs was there and is taken away");
    }
    if let Some(path) = given.as_ref().and_then(SourceName::path) {
        mountpoint.check_apart(path, "the source")?;
    }
    if let Some(cache) = &options.disk_cache {
        let failed = |what: &str| format!("--disk-cache {}: {what}", cache.display());
        let check = || -> Result<(), Failure> {
            mountpoint.check_outside(cache, "the disk cache")?;
            match given.as_ref().and_then(SourceName::path) {
                Some(source) if mountpoint::is_within(cache, source) => {
                    Err(failed("lies inside the source").into())
                }
                _ => Ok(()),
            }
        };
        // Before anything is made, as a source is not written to; and when it is known where a
        // path leads of which a part was not there.
        check()?;
        std::fs::create_dir_all(directory_of(cache)).map_err(|e| failed(&e.to_string()))?;
        check()?;
    }
    raise_descriptor_limit();
    let is_remote = given.as_ref().is_some_and(|given| given.path().is_none());
    let threads = threads(options, is_remote);
    let memory = Memory::new(options, threads)?;
    let store: Arc<dyn Store> = Arc::from(open(given.as_ref(), options, memory)?);
    let label = store.label().to_owned();
    let capabilities = store.capabilities();
    let base = given.map_or_else(Key::root, |given| given.root().clone());
    let root = arguments::root(&base, options)?;
    let swapped = mountpoint.is_source().then_some((source, place));
    arguments::check_zarr(&*store, &base, &root, options, swapped)?;
    let greeting = greeting::is_wanted(asked).then(|| (Arc::clone(&store), root.clone()));
    let tree = show(store, root, options, memory).map_err(|e| format!("{label}: {e}"))?;
    let mut fs = Fs::new(tree, policy(options, capabilities))?;
    let socket = open_socket();
    if let Some(socket) = &socket {
        fs.tell_socket(socket.path().as_os_str().as_bytes());
    }
    let fs = Arc::new(fs);
    if let Some(socket) = &socket {
        let fs = Arc::downgrade(&fs);
        // Nothing is counted where nothing is mounted any more.
        socket.serve(move || {
            fs.upgrade()
                .map_or_else(String::new, |fs| fs.document().to_string())
        })?;
    }

    let signals = signals::Signals::block()?;
    let name = greeting::mount_name(source, &label);
    limits::check(threads, memory.limit_bytes)?;
    let device = kernel::mount(mountpoint.target(), &name, options.allow_other)?;
    let mountpoint = mountpoint.release();
    let transport = Transport {
        threads: threads.session,
        passthrough: options.passthrough == Passthrough::Auto
            && !capabilities.immutable
            && !capabilities.is_remote,
        deadline: options.remote.timeout,
    };
    let last = socket.clone();
    let close = move || last.iter().for_each(|socket| socket.close());
    let mounted =
        take_up(device, fs, transport, &mountpoint, signals, close).inspect_err(|_| {
            let _ = kernel::unmount(&mountpoint, true);
        })?;
    let _ = rustix::process::set_dumpable_behavior(rustix::process::DumpableBehavior::NotDumpable);
    log::info!("{label} is mounted on {}", mountpoint.display());
    let _ = sd_notify::notify(false, &[sd_notify::NotifyState::Ready]);
    if let Some((store, root)) = greeting {
        greeting::say(&*store, &root, &mountpoint, options);
    }
    if is_background() {
        background::ready();
    }
    let shown = mountpoint.display();
    let ended = mounted.run();
    socket.iter().for_each(|socket| socket.close());
    match ended {
        Ok(()) => log::info!("{shown} is unmounted"),
        // Aborted from outside; there is nothing left to serve.
        Err(e) => log::warn!("{shown}: the connection to the kernel has ended: {e}"),
    }
    Ok(())
}

/// What is left to do once the kernel has mounted; if it fails, somebody has to unmount.
fn take_up(
    device: OwnedFd,
    fs: Arc<Fs>,
    transport: Transport,
    mountpoint: &Path,
    signals: signals::Signals,
    last: impl FnOnce() + Send + 'static,
) -> Result<Mounted, Failure> {
    let mounted = Mounted::start(device, fs, transport)
        .map_err(|e| format!("the kernel did not answer the mount: {e}"))?;
    let ours = mountpoint::entry(mountpoint)?;
    signals.watch(mountpoint.to_owned(), ours, last)?;
    std::env::set_current_dir("/")?;
    Ok(mounted)
}

/// Where the daemon tells what it has counted; a mount works without.
fn open_socket() -> Option<Arc<socket::Socket>> {
    let opened = socket::Socket::open();
    let opened =
        opened.inspect_err(|e| log::warn!("`zarrfs stats` has totals only: no socket: {e}"));
    opened.ok().map(Arc::new)
}

/// The tree that the options ask for.
fn show(
    store: Arc<dyn Store>,
    root: Key,
    options: &MountOptions,
    memory: Memory,
) -> Result<Box<dyn Tree>, Failure> {
    let native = tree::native(Arc::clone(&store), &root)?;
    if options.tree == TreeShown::Native && options.views == Views::Off {
        return Ok(native);
    }
    let engine = Engine::new(EngineOptions {
        cache_bytes: memory.cache_bytes,
        // A zip keeps up to an eighth for its decoded entries; a remote source an eighth for what
        // was fetched, and two for answers that are received and compressed entries of a zip.
        memory_limit_bytes: match store.capabilities().is_remote {
            true => memory.limit_bytes / 8 * 5,
            false => memory.limit_bytes / 8 * 7,
        },
        threads: decoders(store.capabilities().is_remote),
        timeout: options.remote.timeout,
    })?;
    let ttl = ttl(options, store.capabilities());
    let nodes = Nodes::new(
        store,
        Arc::new(engine),
        NodesOptions {
            root: root.clone(),
            formats: options.formats.clone(),
            ttl,
        },
    );
    let shown = match options.tree {
        TreeShown::Native => Shown::Native,
        TreeShown::Views => Shown::Views,
        TreeShown::Both => Shown::Both,
    };
    let is_listed = options.views == Views::List;
    Ok(Box::new(ViewTree::new(
        native, root, nodes, shown, is_listed,
    )?))
}

/// The memory that a mount may take, in bytes.
#[derive(Debug, Clone, Copy)]
struct Memory {
    cache_bytes: u64,
    limit_bytes: u64,
}

impl Memory {
    fn new(options: &MountOptions, threads: limits::Threads) -> Result<Self, Failure> {
        let memory = memory_bytes();
        let wanted = options.memory_limit.unwrap_or(memory / 2);
        let limit_bytes = limits::memory_limit_bytes(wanted, threads)?;
        if limit_bytes < wanted && options.memory_limit.is_some() {
            log::warn!(
                "--memory-limit {wanted}: only {limit_bytes} bytes fit into the address space \
                 (ulimit -v)"
            );
        }
        let cache_bytes = options.cache_size.unwrap_or((memory / 8).min(2 << 30));
        Ok(Self {
            cache_bytes: cache_bytes.min(limit_bytes),
            limit_bytes,
        })
    }
}

/// The threads of a mount. In a limited address space fewer wait for a network.
fn threads(options: &MountOptions, is_remote: bool) -> limits::Threads {
    let session = options
        .threads
        .map_or_else(|| cores().clamp(1, 4), usize::from);
    limits::Threads {
        session,
        early: workers(is_remote) + decoders(is_remote) + OTHER_THREADS,
        late: match is_remote {
            true => MAX_AHEAD_THREADS + OTHER_THREADS,
            false => OTHER_THREADS,
        },
    }
}

fn workers(is_remote: bool) -> usize {
    match (is_remote, address_space_bytes()) {
        (true, None) => FAR_WORKERS,
        (true, Some(_)) => FAR_WORKERS / 8,
        (false, _) => cores(),
    }
}

fn decoders(is_remote: bool) -> usize {
    match (is_remote, address_space_bytes()) {
        // Most of them wait for the network.
        (true, None) => FAR_DECODERS.max(cores()),
        (true, Some(_)) => FAR_DECODERS / 8,
        (false, _) => cores(),
    }
}

fn open(
    source: Option<&SourceName>,
    options: &MountOptions,
    memory: Memory,
) -> Result<Box<dyn Store>, Failure> {
    let remote_bytes = (memory.limit_bytes / 8).min(MAX_REMOTE_BYTES);
    let mut remote = options.remote.options(options.ttl, remote_bytes);
    if let Some(directory) = &options.disk_cache {
        match DiskCache::open(directory, options.disk_cache_size) {
            Ok(cache) => remote.disk = Some(Arc::new(cache)),
            // A disk that is full or read-only is no reason not to mount.
            Err(e @ DiskCacheError::Io { .. }) => {
                log::warn!("--disk-cache: {e}; it is not used");
                if is_background() {
                    // Who waits for the mount reads no log; if he reads nothing, nothing is lost.
                    let _ = writeln!(io::stderr(), "zarrfs: --disk-cache: {e}; it is not used");
                }
            }
            Err(e) => return Err(format!("--disk-cache: {e}").into()),
        }
    }
    let (ttl, absent_ttl) = (remote.ttl, remote.absent_ttl);
    let open = OpenOptions {
        remote,
        zip: ZipOptions {
            verify: options.verify,
            strict: options.strict,
            cache_bytes: memory.cache_bytes,
            memory_limit_bytes: memory.limit_bytes,
        },
        dir: DirOptions {
            follow_symlinks: options.follow_symlinks,
        },
    };
    let store = match source {
        Some(source) => source.open(&open)?,
        None => open_demo(&open)?,
    };
    let store = match store.capabilities().listing {
        ListingSupport::Complete => store,
        ListingSupport::BestEffort => {
            Box::new(ExploredStore::new(Arc::from(store), ttl, absent_ttl))
        }
    };
    // A panic in a decoder.
    if cfg!(feature = "test-faults")
        && let Ok(key) = std::env::var("ZARRFS_TEST_PANIC")
    {
        return Ok(Box::new(FaultStore::new(store, Key::new(key.as_bytes())?)));
    }
    // A network that hangs.
    if cfg!(feature = "test-faults")
        && let Some(gate) = std::env::var_os("ZARRFS_TEST_HANG")
    {
        return Ok(Box::new(HangingStore::new(
            store,
            gate.into(),
            options.remote.timeout,
        )));
    }
    Ok(store)
}

/// A day: what the kernel may keep of a source that can not change.
const PINNED_TTL: Duration = Duration::from_secs(86_400);

/// Chunks that are fetched and decoded at the same time.
const FAR_DECODERS: usize = 64;
/// Requests to a network that are waited for at the same time.
const FAR_WORKERS: usize = 256;

/// Threads that fetch ahead of readers of a remote source.
const MAX_AHEAD_THREADS: usize = 32;
/// Threads for signals, deadlines and statistics.
const OTHER_THREADS: usize = 4;

/// What bytes that were fetched may take in memory.
const MAX_REMOTE_BYTES: u64 = 256 << 20;
/// How long what can change is trusted, if nobody says otherwise.
const NEAR_TTL: Duration = Duration::from_secs(1);

/// How long names, sizes and metadata are trusted.
fn ttl(options: &MountOptions, capabilities: Capabilities) -> Duration {
    match (capabilities.immutable, options.ttl) {
        (true, _) => PINNED_TTL,
        (false, Some(ttl)) => ttl,
        (false, None) if capabilities.is_remote => RemoteOptions::default().ttl,
        (false, None) => NEAR_TTL,
    }
}

fn policy(options: &MountOptions, capabilities: Capabilities) -> Policy {
    let ttl = ttl(options, capabilities);
    let absent_ttl = match (capabilities.immutable, options.ttl) {
        (false, None) => ttl.min(NEAR_TTL),
        _ => ttl,
    };
    Policy {
        ttl,
        absent_ttl,
        uid: options
            .uid
            .unwrap_or_else(|| rustix::process::geteuid().as_raw()),
        gid: options
            .gid
            .unwrap_or_else(|| rustix::process::getegid().as_raw()),
        umask: options.umask,
        workers: workers(capabilities.is_remote),
    }
}

/// The directory that a file is, or will be, in.
fn directory_of(file: &Path) -> &Path {
    match file.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}

/// Allows as many open files as this process may have: every file open through a mount of a
/// directory is one here.
fn raise_descriptor_limit() {
    let limit = rustix::process::getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: limit.maximum,
        maximum: limit.maximum,
    };
    if let Err(e) = rustix::process::setrlimit(Resource::Nofile, raised) {
        log::info!("the limit of open files stays {:?}: {e}", limit.current);
    }
}

/// Unmounts and waits for the daemon to end.
///
/// # Errors
/// If it is not ours, or is busy.
pub fn umount(arguments: &UmountArgs) -> Result<(), Failure> {
    let path = mountpoint::resolve(&arguments.mountpoint)
        .map_err(|e| format!("{}: {e}", arguments.mountpoint.display()))?;
    let shown = path.display();
    let Some(entry) = mountpoint::entry(&path)? else {
        return Err(format!("{shown}: nothing is mounted there").into());
    };
    if entry.kind != kernel::FS_TYPE {
        return Err(format!(
            "{shown}: the mount there is of type {}, not zarrfs",
            entry.kind
        )
        .into());
    }
    let daemon = match arguments.lazy {
        true => None,
        false => daemon_of(&path)?,
    };
    kernel::unmount(&path, arguments.lazy).map_err(|e| match e.kind() {
        io::ErrorKind::ResourceBusy => {
            format!("{shown}: busy: files are open or a process works there (see --lazy)")
        }
        _ => format!("{shown}: {e}"),
    })?;
    if let Some(daemon) = daemon {
        kernel::wait_for_end(&daemon, Duration::from_secs(10));
    }
    Ok(())
}

/// The process that serves a mount, if it is there.
fn daemon_of(path: &Path) -> Result<Option<OwnedFd>, Failure> {
    let value = match answer::attribute(path, "user.zarrfs.pid") {
        Ok(value) => value,
        // The question that nobody answers keeps the mount busy as long as this process is there.
        Err(Errno::TIMEDOUT) => {
            return Err(format!(
                "{}: the daemon has not answered in {:?} (see --lazy)",
                path.display(),
                answer::LIMIT
            )
            .into());
        }
        Err(_) => return Ok(None),
    };
    let pid = std::str::from_utf8(&value)
        .ok()
        .and_then(|v| v.parse().ok());
    let pid = pid.and_then(rustix::process::Pid::from_raw);
    let flags = rustix::process::PidfdFlags::empty();
    Ok(pid.and_then(|pid| rustix::process::pidfd_open(pid, flags).ok()))
}
