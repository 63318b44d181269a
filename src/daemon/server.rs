//! The process that serves a mount: its options, source and mountpoint, the background, signals, and its end.

mod arguments;
pub(super) mod background;
mod default_mountpoint;
mod kernel_timeout;
mod limits;
mod memory_budget;
mod mount_report;
mod mount_target;
mod namespace;
mod new_directories;
mod open_store;
mod outcome;
mod signals;
mod waiting_note;

use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rustix::fd::OwnedFd;
use rustix::process::{Resource, Rlimit};

use super::mountpoint::{self, MountEntry, Mountpoint};
use super::{Failure, Source, kernel, logging, probe, reexec, socket};
use crate::array::{Engine, EngineOptions};
use crate::cli::{HelperOptions, MountOptions, MountedTree, Passthrough, ViewsListing};
use crate::fs::{Fs, Policy};
use crate::fuse::{Mounted, Transport};
use crate::inspect;
use crate::machine::{cores, inherited_descriptors, keep_descriptors_from_children};
use crate::runtime::{self, block_on};
use crate::store::{Capabilities, ErrorKind, Key, RemoteOptions, SourceName, Store, Ttl};
use crate::tree::{self, MountedTrees, MuxTree, Tree};
use crate::view::{Nodes, NodesOptions};
pub(super) use arguments::is_source;
pub use background::private_mountpoint;
use default_mountpoint::Chosen;
use memory_budget::MemoryBudget;
use mount_target::MountTarget;
use new_directories::NewDirectories;
use open_store::open_store;

/// Mounts, in the background by default. Returns when the mount is ready; in the foreground, when
/// the mount has ended.
///
/// # Errors
/// The reason why the mount failed; then nothing is mounted.
pub fn mount(
    source: &Source,
    mountpoint: Option<&Path>,
    options: MountOptions,
    helper: Option<&HelperOptions>,
) -> Result<(), Failure> {
    if helper.is_some_and(|helper| helper.is_fake) {
        return Ok(());
    }
    limits::restart_with_small_allocator(&options)?;
    let chosen = match mountpoint {
        Some(_) => None,
        None => {
            let is_foreground = options.foreground || is_background();
            let chosen = default_mountpoint::choose(source, is_foreground);
            let first = |failure| arguments::source_first(failure, source, &options);
            match chosen.map_err(first)? {
                Chosen::New(path) => Some(path),
                Chosen::Mounted(path, pid) => {
                    mount_report::print(&["the same mount exists already".to_owned()]);
                    return report_mounted(&path, &options, pid);
                }
            }
        }
    };
    let mounted = mount_at(source, mountpoint, chosen.as_deref(), options, helper);
    if mounted.is_err()
        && let Some(chosen) = &chosen
    {
        default_mountpoint::discard(chosen);
    }
    mounted
}

/// Mounts on the mountpoint of the user, or on the `chosen` one.
fn mount_at(
    source: &Source,
    mountpoint: Option<&Path>,
    chosen: Option<&Path>,
    options: MountOptions,
    helper: Option<&HelperOptions>,
) -> Result<(), Failure> {
    if !options.foreground && !is_background() {
        let pid = background::start(chosen)?;
        return match (mountpoint.or(chosen), chosen) {
            (Some(path), None) if options.json => mount_report::print_json(path, &options, pid),
            (_, Some(path)) => report_mounted(path, &options, pid),
            (_, None) => Ok(()),
        };
    }
    if let Some(path) = chosen
        && !options.json
    {
        inspect::print(&default_mountpoint::line(path))?;
    }
    let mountpoint = mountpoint.or(chosen).unwrap_or(Path::new(""));
    // Without this, ps(1) shows the name "exe", because the program was started from /proc/self/exe.
    let _ = rustix::thread::set_name(c"zarrfs");
    if is_background() {
        background::die_with_parent();
    }
    let result = serve(source, mountpoint, &options, helper);
    if is_background()
        && let Err(failure) = &result
    {
        background::send_failure(failure);
    }
    result
}

/// Prints the mountpoint that was chosen for a source.
fn report_mounted(path: &Path, options: &MountOptions, pid: u32) -> Result<(), Failure> {
    match options.json {
        true => mount_report::print_json(path, options, pid),
        false => Ok(inspect::print(&default_mountpoint::line(path))?),
    }
}

/// Returns whether this process serves in the background.
pub fn is_background() -> bool {
    std::env::var_os(background::CHILD).is_some()
}

/// Mounts and serves until unmounted.
fn serve(
    source: &Source,
    path: &Path,
    options: &MountOptions,
    helper: Option<&HelperOptions>,
) -> Result<(), Failure> {
    let inherited = inherited_descriptors();
    keep_descriptors_from_children();
    if let Some(file) = helper.and_then(|helper| helper.namespace.as_deref()) {
        namespace::enter(file)?;
    }
    let name = match source {
        Source::Argument(source) => Some(SourceName::parse(source)?),
        Source::Demo => None,
    };
    let (target, created) = claim_target(source, path, name.as_ref(), options)?;
    let options = &within_kernel_timeout(options);
    raise_descriptor_limit();
    let threads = threads(options);
    let memory = MemoryBudget::new(options, threads)?;
    runtime::start(cores())?;
    let waiting = waiting_note::start(name.as_ref(), options.remote.timeout);
    let is_source = target.directory().is_some_and(Mountpoint::is_source);
    let swapped = is_source.then_some((source, path));
    let (store, root) = block_on(open_root(name.as_ref(), options, memory, swapped))?;
    let (fs, socket) = build_fs(Arc::clone(&store), root.clone(), options, memory)?;
    drop(waiting);

    let signals = signals::Signals::register()?;
    let mount_name = mount_report::mount_name(source, store.label());
    limits::check(threads, memory.limit_bytes)?;
    let (device, mountpoint) = target.mount(&mount_name, options.allow_other)?;
    let transport = transport(options, threads, store.capabilities());
    let shown = mountpoint.as_deref().unwrap_or(path);
    let session = start_session(
        device,
        Arc::clone(&fs),
        transport,
        (shown, mountpoint.is_some()),
        signals,
        socket.clone(),
    );
    // A mount that fails leaves nothing mounted.
    let unmount = || {
        if let Some(mountpoint) = &mountpoint {
            let _ = kernel::unmount(mountpoint, true);
        }
    };
    let (session, entry) = session.inspect_err(|_| unmount())?;
    created.keep();
    let _ = rustix::process::set_dumpable_behavior(rustix::process::DumpableBehavior::NotDumpable);
    let shown = shown.display().to_string();
    let is_wanted = mount_report::is_wanted(helper);
    let at = (&*shown, mountpoint.is_some());
    let report = mount_report::lines(&*store, &root, &fs, at, options, is_wanted);
    drop((store, fs));
    if is_background() {
        mount_target::close_inherited(&inherited, path);
    }
    report_ready(&report, is_wanted, mountpoint.as_deref(), options).inspect_err(|_| unmount())?;
    let has_log = options.log_file.is_some() || is_background();
    let ended = outcome::run(session, &shown, entry.as_ref(), has_log);
    socket.iter().for_each(|socket| socket.close());
    if let Some(mountpoint) = &mountpoint {
        default_mountpoint::remove(mountpoint);
    }
    ended
}

/// Returns the options with a timeout before that of the kernel.
fn within_kernel_timeout(options: &MountOptions) -> MountOptions {
    let mut options = options.clone();
    if let Some((timeout, warning)) = kernel_timeout::lowered(options.remote.timeout) {
        log::warn!("{warning}");
        if is_background() {
            mount_report::print(&[warning]);
        }
        options.remote.timeout = timeout;
    }
    options
}

/// Locks the mountpoint, after creating it if the options say so, and starts the log.
fn claim_target(
    source: &Source,
    path: &Path,
    name: Option<&SourceName>,
    options: &MountOptions,
) -> Result<(MountTarget, NewDirectories), Failure> {
    let created = match options.mkdir && !mount_target::is_device(path) {
        true => NewDirectories::create(path, name.and_then(SourceName::path))?,
        false => NewDirectories::default(),
    };
    let target = MountTarget::claim(path, options.nonempty)
        .map_err(|error| arguments::root_cause(error, source, path, options))?;
    start_logging(target.directory(), options)?;
    if let Some(mountpoint) = target.directory() {
        check_paths(mountpoint, name, options)?;
    }
    Ok((target, created))
}

/// Opens the source and checks that its root is a Zarr node. `swapped` has the arguments if the mountpoint is a
/// Zarr source itself.
async fn open_root(
    source: Option<&SourceName>,
    options: &MountOptions,
    memory: MemoryBudget,
    swapped: Option<(&Source, &Path)>,
) -> Result<(Arc<dyn Store>, Key), Failure> {
    let store: Arc<dyn Store> = Arc::from(open_store(source, options, memory).await?);
    let base = source.map_or_else(Key::root, |source| source.root().clone());
    let root = arguments::root(&base, options)?;
    arguments::check_zarr(&*store, &base, &root, options, swapped).await?;
    Ok((store, root))
}

/// Reports to the log, the user, the service manager and the waiting command that the mount is ready.
fn report_ready(
    report: &[String],
    is_wanted: bool,
    mountpoint: Option<&Path>,
    options: &MountOptions,
) -> Result<(), Failure> {
    report.iter().for_each(|line| log::info!("{line}"));
    let _ = sd_notify::notify(false, &[sd_notify::NotifyState::Ready]);
    if is_wanted {
        mount_report::print(report);
    }
    match mountpoint {
        _ if is_background() => background::report_ready(),
        Some(path) if options.json => {
            mount_report::print_json(path, options, std::process::id())?;
        }
        _ => {}
    }
    Ok(())
}

fn start_logging(mountpoint: Option<&Mountpoint>, options: &MountOptions) -> Result<(), Failure> {
    let file = options.log_file.as_deref();
    if let (Some(file), Some(mountpoint)) = (file, mountpoint) {
        mountpoint.check_outside(directory_of(file), "the log file")?;
    }
    logging::start(file, options.log_level.as_deref(), is_background())?;
    if let Some(mountpoint) = mountpoint.filter(|mountpoint| mountpoint.is_recovered()) {
        let shown = mountpoint.path().display();
        log::warn!("{shown}: removed a dead mount of zarrfs");
    }
    Ok(())
}

/// Checks that mountpoint, source and disk cache do not contain each other, and creates the parent
/// directory of the cache.
fn check_paths(
    mountpoint: &Mountpoint,
    source: Option<&SourceName>,
    options: &MountOptions,
) -> Result<(), Failure> {
    let source = source.and_then(SourceName::path);
    if let Some(source) = source {
        mountpoint.check_apart(source, "the source")?;
    }
    let Some(cache) = &options.disk_cache else {
        return Ok(());
    };
    let failed = |reason: &str| format!("--disk-cache {}: {reason}", cache.display());
    let check = || -> Result<(), Failure> {
        mountpoint.check_outside(cache, "the disk cache")?;
        match source {
            Some(source) if mountpoint::is_within(cache, source) => {
                Err(failed("lies inside the source").into())
            }
            _ => Ok(()),
        }
    };
    // Checked before the directory is created, because a source is never written to. Checked again
    // after, because a symbolic link can appear in a path that did not exist.
    check()?;
    std::fs::create_dir_all(directory_of(cache)).map_err(|e| failed(&e.to_string()))?;
    check()
}

type MetricsSocket = Option<Arc<socket::Socket>>;

/// Builds the file system and starts its metrics socket.
fn build_fs(
    store: Arc<dyn Store>,
    root: Key,
    options: &MountOptions,
    memory: MemoryBudget,
) -> Result<(Arc<Fs>, MetricsSocket), Failure> {
    let policy = policy(options, store.capabilities());
    let tree = block_on(build_tree(
        Arc::clone(&store),
        root.clone(),
        options,
        memory,
    ));
    let tree = tree.map_err(|failure| match block_on(store.stat(&root)) {
        Err(error) => block_on(inspect::failed_key(&*store, &root, &error)),
        Ok(_) => {
            let message = format!("{}: {failure}", store.label());
            ErrorKind::of(&*failure).failure(message)
        }
    })?;
    let mut fs = block_on(Fs::new(tree, policy))?;
    let socket = open_socket();
    if let Some(socket) = &socket {
        fs.set_socket(socket.path().as_os_str().as_bytes());
    }
    let fs = Arc::new(fs);
    if let Some(socket) = &socket {
        let fs = Arc::downgrade(&fs);
        // After the unmount, the document is empty.
        socket.serve(move || {
            fs.upgrade()
                .map_or_else(String::new, |fs| fs.document().to_string())
        })?;
    }
    Ok((fs, socket))
}

fn transport(
    options: &MountOptions,
    threads: limits::Threads,
    capabilities: Capabilities,
) -> Transport {
    Transport {
        threads: threads.session,
        passthrough: options.passthrough == Passthrough::Auto
            && !capabilities.immutable
            && !capabilities.is_remote,
        deadline: options.remote.timeout,
    }
}

/// Starts the FUSE session and the signal handling, and returns the mount of this process. A signal unmounts it.
/// After a failure, the caller unmounts.
fn start_session(
    device: OwnedFd,
    fs: Arc<Fs>,
    transport: Transport,
    (path, is_own): (&Path, bool),
    signals: signals::Signals,
    socket: MetricsSocket,
) -> Result<(Mounted, Option<MountEntry>), Failure> {
    let mounted = Mounted::start(device, fs, transport).map_err(|e| match e.kind() {
        io::ErrorKind::PermissionDenied if !is_own => format!(
            "{}: nothing is mounted with this descriptor; the program that has opened /dev/fuse mounts first",
            path.display()
        ),
        _ => format!("the kernel did not answer the mount: {e}"),
    })?;
    // A mount that another program made ends with this process, or with that program.
    let entry = match is_own {
        // By now, another program may have mounted over this mount.
        true => mountpoint::entry(path)?.filter(|entry| entry.kind == kernel::FS_TYPE),
        false => None,
    };
    let close = move || socket.iter().for_each(|socket| socket.close());
    signals.watch(path.to_owned(), entry.clone(), close)?;
    std::env::set_current_dir("/")?;
    Ok((mounted, entry))
}

/// Opens the metrics socket. A mount works without a metrics socket.
fn open_socket() -> Option<Arc<socket::Socket>> {
    let opened = socket::Socket::open();
    let opened =
        opened.inspect_err(|e| log::warn!("`zarrfs stats` has totals only: no socket: {e}"));
    opened.ok().map(Arc::new)
}

/// Builds the tree that the options select.
async fn build_tree(
    store: Arc<dyn Store>,
    root: Key,
    options: &MountOptions,
    memory: MemoryBudget,
) -> Result<Box<dyn Tree>, Failure> {
    let native = tree::native(Arc::clone(&store), &root).await?;
    if options.tree == MountedTree::Native && options.views == ViewsListing::Off {
        return Ok(native);
    }
    let engine = Engine::new(EngineOptions {
        cache_bytes: memory.cache_bytes,
        // A zip uses one eighth for decoded entries. A remote source uses one eighth for the cache
        // of fetched bytes, and two for responses and compressed zip entries.
        memory_limit_bytes: match store.capabilities().is_remote {
            true => memory.limit_bytes / 8 * 5,
            false => memory.limit_bytes / 8 * 7,
        },
        parallel: match store.capabilities().is_remote {
            // Most of these tasks wait for the network.
            true => REMOTE_PARALLEL.max(cores()),
            false => cores(),
        },
        timeout: options.remote.timeout,
    })?;
    let Policy {
        ttl, absent_ttl, ..
    } = policy(options, store.capabilities());
    let nodes = Nodes::new(
        store,
        Arc::new(engine),
        NodesOptions {
            root: root.clone(),
            formats: options.formats.clone(),
            ttl: Ttl {
                present: ttl,
                absent: absent_ttl,
            },
            assume_wgs84: options.assume_wgs84,
        },
    );
    let trees = match options.tree {
        MountedTree::Native => MountedTrees::Native,
        MountedTree::Views => MountedTrees::Views,
        MountedTree::Both => MountedTrees::Both,
    };
    let is_listed = options.views == ViewsListing::List;
    let tree = MuxTree::new(native, root, Arc::new(nodes), trees, is_listed).await?;
    Ok(Box::new(tree))
}

/// Returns the number of threads that a mount starts.
fn threads(options: &MountOptions) -> limits::Threads {
    let session = options
        .threads
        .map_or_else(|| cores().clamp(1, 4), usize::from);
    limits::Threads {
        session,
        // The threads of the CPU pool, the local I/O pool and the network.
        early: 2 * cores() + REMOTE_THREADS,
        late: OTHER_THREADS,
    }
}

/// The time that the kernel may cache names and attributes of an immutable source.
const IMMUTABLE_TTL: Duration = Duration::from_secs(86_400);

/// The number of chunks of a remote source that are fetched and decoded at the same time.
const REMOTE_PARALLEL: usize = 64;
/// The number of threads of the network runtime, the disk cache and the host name resolver.
const REMOTE_THREADS: usize = 5;
/// The number of threads for signals, deadlines and metrics.
const OTHER_THREADS: usize = 4;

/// The default time to live of names and attributes of a mutable local source.
const LOCAL_TTL: Duration = Duration::from_secs(1);

/// Returns the time that names, attributes and metadata are cached.
fn ttl(options: &MountOptions, capabilities: Capabilities) -> Duration {
    match (capabilities.immutable, options.ttl()) {
        (true, _) => IMMUTABLE_TTL,
        (false, Some(ttl)) => ttl,
        (false, None) if capabilities.is_remote => RemoteOptions::default().ttl,
        (false, None) => LOCAL_TTL,
    }
}

fn policy(options: &MountOptions, capabilities: Capabilities) -> Policy {
    let ttl = ttl(options, capabilities);
    let absent_ttl = match (capabilities.immutable, options.ttl()) {
        (false, None) => ttl.min(LOCAL_TTL),
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
        local_io_threads: cores(),
    }
}

/// Returns the parent directory of a file.
fn directory_of(file: &Path) -> &Path {
    match file.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}

/// Raises the limit of open files (`RLIMIT_NOFILE`) to its hard limit: every open file of a mounted
/// directory is open in this process too.
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
